//! A member's own waiters, first come first served within a post.

use super::Post;
use super::moments::Moments;
use super::run::{About, Run};
use super::waiter::{Call, Kind, Nudge, Waiter, note};
use crate::layout::Gate;
use crate::protocol::line::Seat;
use crate::sys::thunk::Thunk;
use crate::words::U32;
use std::collections::VecDeque;
use std::sync::Arc;

/// A sleep is brief below this.
const BRIEF_NS: u64 = 20_000;
/// After so many brief sleeps in turn the next one sleeps at once.
const BRIEF: u32 = 4;
/// But for each of so many, which tries again.
const RETRY: u32 = 32;

/// Room for so many entries of a post is kept when none does any more.
const KEPT: usize = 1_024;

/// One that waits, or several.
pub enum Entry {
    /// A thread, a task, or a callback.
    Waiter(Arc<Waiter>),
    /// Callbacks that have not acted for their member: one at least.
    Run(Box<Run>),
}

impl Entry {
    /// Unless these are calls.
    pub fn waiter(&self) -> Option<&Arc<Waiter>> {
        match self {
            Entry::Waiter(waiter) => Some(waiter),
            Entry::Run(_) => None,
        }
    }

    fn is(&self, waiter: &Arc<Waiter>) -> bool {
        self.waiter().is_some_and(|own| Arc::ptr_eq(own, waiter))
    }

    fn was_passed_over(&self) -> bool {
        self.waiter().is_some_and(|own| own.passed.peek() != 0)
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        match self {
            Entry::Waiter(_) => 1,
            Entry::Run(run) => run.len(),
        }
    }

    /// Where they wait.
    pub fn post(&self) -> Post {
        match self {
            Entry::Waiter(waiter) => waiter.post,
            Entry::Run(run) => Post {
                gate: Gate::Scheduler,
                lane: run.about.lane as usize,
            },
        }
    }

    /// What the first of them asks for, if it is a callback.
    fn callback(&mut self) -> Option<Seat> {
        match self {
            Entry::Waiter(waiter) => {
                matches!(waiter.kind, Kind::Callback(_)).then(|| waiter.seat())
            }
            Entry::Run(run) => Some(run.about.seat(run.since())),
        }
    }
}

/// Two callbacks, one behind the other, that ask for the same.
pub struct Pair {
    /// What the first asks for, and since when.
    pub seat: Seat,
    /// Since when the second waits.
    pub after: u64,
    /// Whether the first is a [`Waiter`].
    pub is_waiter: bool,
}

/// One that was taken out.
pub enum Taken {
    /// A thread, a task, or a callback.
    Waiter(Arc<Waiter>),
    /// A callback that did not act for its member.
    Call(Call),
}

fn run_of(entry: Entry) -> Option<Box<Run>> {
    match entry {
        Entry::Run(run) => Some(run),
        Entry::Waiter(_) => None,
    }
}

/// 1 for a thread or a task at the Scheduler.
fn asks_itself(waiter: &Waiter) -> u32 {
    let is_callback = matches!(waiter.kind, Kind::Callback(_));
    u32::from(waiter.post.gate == Gate::Scheduler && !is_callback)
}

/// The waiters of one member.
#[derive(Default)]
pub struct Queue {
    posts: [VecDeque<Entry>; Post::COUNT],
    /// How many wait at each.
    lens: [usize; Post::COUNT],
    /// How many threads and tasks wait at the Scheduler, for who has not the lock.
    askers: Arc<U32>,
    /// A run of nobody, for the next.
    idle: Option<Box<Run>>,
    /// When calls join, and have their turns.
    pub moments: Moments,
    /// No deadline of a task lies before this; `None`: there is none.
    pub earliest: Option<u64>,
    /// Posts for whose bell bits the helper sleeps, or will before it lets go of this, and until when at the latest.
    pub covered: (u32, u64),
    /// Posts whose last wait ended in a poll that stayed awake: the helper need not be ready for the next.
    pub spared: u32,
    /// How many brief sleeps of tasks came in turn, and how many waits slept at once since these were enough.
    pub brief: u32,
    /// Set once: nobody may join any more.
    pub shut: bool,
    /// Callbacks of the Limiter that wait or run.
    pub callbacks: u64,
    /// To wake once nobody waits at the Limiter and no callback of it is left.
    pub draining: Vec<Nudge>,
}

impl Queue {
    /// Where in its post the one stands that acts for the member: the first that was not passed over, else the first.
    fn acting(&self, post: Post) -> Option<usize> {
        let post = &self.posts[post.index()];
        let at = post.iter().position(|entry| !entry.was_passed_over());
        at.or((!post.is_empty()).then_some(0))
    }

    /// How many threads and tasks wait at the Scheduler; all others that do are callbacks.
    pub fn askers(&self) -> &Arc<U32> {
        &self.askers
    }

    /// Who acts for the member at this post.
    pub fn first(&mut self, post: Post) -> Option<&Arc<Waiter>> {
        let at = self.acting(post)?;
        let entries = &mut self.posts[post.index()];
        if let Entry::Run(run) = &mut entries[at]
            && let Some(call) = run.take()
        {
            let waiter = Entry::Waiter(Arc::new(call.into_waiter()));
            match run.len() {
                0 => self.idle = run_of(std::mem::replace(&mut entries[at], waiter)),
                _ => entries.insert(at, waiter),
            }
        }
        entries[at].waiter()
    }

    /// The first two of a post, if the very first acts for the member and both are callbacks that ask for the same.
    #[inline(always)]
    pub fn first_of_two_alike(&mut self, post: Post) -> Option<Pair> {
        if let Some(Entry::Run(run)) = self.posts[post.index()].front_mut()
            && run.len() > 1
        {
            let (first, next) = run.first_two();
            return Some(Pair {
                seat: run.about.seat(first),
                after: next,
                is_waiter: false,
            });
        }
        self.first_of_two_apart(post)
    }

    #[inline(never)]
    fn first_of_two_apart(&mut self, post: Post) -> Option<Pair> {
        let entries = &mut self.posts[post.index()];
        let front = entries.front_mut()?;
        if front.was_passed_over() {
            return None;
        }
        let (first, is_waiter) = (front.callback()?, front.waiter().is_some());
        let next = entries.get_mut(1)?.callback()?;
        let alike = Seat {
            since: first.since,
            ..next
        } == first;
        alike.then_some(Pair {
            seat: first,
            after: next.since,
            is_waiter,
        })
    }

    /// The very first of a post, unless it is a call.
    #[inline]
    pub fn front_waiter(&self, post: Post) -> Option<&Arc<Waiter>> {
        self.posts[post.index()].front()?.waiter()
    }

    /// The run at the front of a post, if more than one is left of it.
    #[inline(always)]
    pub fn front_run(&mut self, post: Post) -> Option<&mut Run> {
        match self.posts[post.index()].front_mut()? {
            Entry::Run(run) if run.len() > 1 => Some(run),
            _ => None,
        }
    }

    /// The first of that run was taken out.
    #[inline(always)]
    pub fn popped(&mut self, post: Post) {
        self.lens[post.index()] -= 1;
    }

    /// Takes the very first of a post out; others are left.
    pub fn take_first(&mut self, post: Post) -> Option<Taken> {
        let entries = &mut self.posts[post.index()];
        let taken = match entries.front_mut()? {
            Entry::Run(run) => {
                let call = run.take()?;
                if run.len() == 0 {
                    self.idle = entries.pop_front().and_then(run_of);
                }
                Taken::Call(call)
            }
            Entry::Waiter(_) => match entries.pop_front()? {
                Entry::Waiter(waiter) => {
                    self.askers.put(self.askers.peek() - asks_itself(&waiter));
                    Taken::Waiter(waiter)
                }
                Entry::Run(_) => return None,
            },
        };
        self.lens[post.index()] -= 1;
        Some(taken)
    }

    /// Whether this waiter acts for the member.
    pub fn is_first(&self, waiter: &Arc<Waiter>) -> bool {
        let at = self.acting(waiter.post);
        at.is_some_and(|at| self.posts[waiter.post.index()][at].is(waiter))
    }

    /// Whether the helper need not be rung for a task or callback of the Scheduler that joined: it looks up by itself
    /// early enough (`needed`, or its deadline), and for its turn it is rung.
    pub fn covers(&self, waiter: &Waiter, needed: u64) -> bool {
        let (posts, until) = self.covered;
        let needed = waiter.deadline.map_or(needed, |at| at.min(needed));
        waiter.post.gate == Gate::Scheduler && posts & waiter.post.bit() != 0 && until <= needed
    }

    /// Whether who stands first is to wait awake before it sleeps. Where the sleeps are brief it is not: they take
    /// hardly more than that, most likely since whoever it waits for needs the same processor.
    pub fn is_awake_worth_it(&mut self) -> bool {
        if self.brief < BRIEF {
            return true;
        }
        self.brief += 1;
        if self.brief < BRIEF + RETRY {
            return false;
        }
        self.brief = BRIEF - 1;
        true
    }

    /// One that stood first slept for so long until it had its turn.
    pub fn note_sleep(&mut self, ns: u64) {
        match ns < BRIEF_NS {
            true if self.brief < BRIEF => self.brief += 1,
            true => {}
            false => self.brief = 0,
        }
    }

    /// Joins at the end of its post.
    pub fn push(&mut self, waiter: Arc<Waiter>) {
        if let (Some(deadline), false) = (waiter.deadline, waiter.is_thread()) {
            self.earliest = Some(
                self.earliest
                    .map_or(deadline, |earliest| earliest.min(deadline)),
            );
        }
        let gate = waiter.post.gate;
        self.askers.put(self.askers.peek() + asks_itself(&waiter));
        self.posts[waiter.post.index()].push_back(Entry::Waiter(waiter.clone()));
        self.lens[waiter.post.index()] += 1;
        waiter.pending.put(self.pending(gate) as u32);
    }

    /// Joins at the end of its post, behind another callback, if one stands there: whoever that is has seen to it that they
    /// are looked after. The thunk is empty afterwards.
    #[inline(always)]
    pub fn push_call(&mut self, about: About, thunk: &mut Thunk) -> bool {
        let at = about.lane as usize;
        match self.posts[at].back_mut() {
            Some(Entry::Run(run)) if run.about == about => run.push(thunk, self.moments.now()),
            Some(Entry::Waiter(last)) if !matches!(last.kind, Kind::Callback(_)) => return false,
            Some(_) => self.begin_run(about, thunk),
            None => return false,
        }
        self.lens[at] += 1;
        true
    }

    #[inline(never)]
    fn begin_run(&mut self, about: About, thunk: &mut Thunk) {
        let since = self.moments.now();
        let mut run = match self.idle.take() {
            Some(mut run) => {
                run.about = about;
                run
            }
            None => Box::new(Run::new(about)),
        };
        run.push(thunk, since);
        self.posts[about.lane as usize].push_back(Entry::Run(run));
    }

    /// Gives up the room of a post at which nobody waits, if it is much.
    pub fn trim(&mut self, post: Post) {
        let post = &mut self.posts[post.index()];
        if post.is_empty() && post.capacity() > KEPT {
            *post = VecDeque::new();
        }
        if let Some(idle) = &mut self.idle {
            idle.trim();
        }
    }

    /// How many wait at a gate.
    fn pending(&self, gate: Gate) -> usize {
        Post::of(gate).map(|post| self.len(post)).sum()
    }

    /// Takes a waiter out, wherever it stands. `false` if it was not there.
    pub fn remove(&mut self, waiter: &Arc<Waiter>) -> bool {
        let post = &mut self.posts[waiter.post.index()];
        // Those that leave mostly stand at the front.
        let Some(at) = post.iter().position(|other| other.is(waiter)) else {
            return false;
        };
        post.remove(at);
        self.askers.put(self.askers.peek() - asks_itself(waiter));
        self.lens[waiter.post.index()] -= 1;
        if self.pending(waiter.post.gate) == 0 {
            waiter.notes.set_bits(note::LAST);
        }
        true
    }

    /// How many wait at a post.
    pub fn len(&self, post: Post) -> usize {
        self.lens[post.index()]
    }

    /// Takes everybody of a gate out.
    pub fn drain(&mut self, gate: Gate) -> Vec<Entry> {
        let posts = Post::of(gate);
        if gate == Gate::Scheduler {
            self.askers.put(0);
        }
        let all: Vec<_> = posts
            .flat_map(|post| {
                self.lens[post.index()] = 0;
                std::mem::take(&mut self.posts[post.index()])
            })
            .collect();
        if let Some(last) = all.last().and_then(Entry::waiter) {
            last.notes.set_bits(note::LAST);
        }
        all
    }

    /// Who waits for the Limiter to have nobody left, if that is so now.
    pub fn drained(&mut self) -> Vec<Nudge> {
        match self.is_drained() {
            true => std::mem::take(&mut self.draining),
            false => Vec::new(),
        }
    }

    /// Wakes whoever waits for that, once.
    pub fn tell_when_drained(&mut self, nudge: Nudge) {
        let known = self.draining.iter().any(|known| match (known, &nudge) {
            (Nudge::Task(known), Nudge::Task(new)) => known.will_wake(new),
            (Nudge::Thread(known), Nudge::Thread(new)) => known.id() == new.id(),
            _ => false,
        });
        if !known {
            self.draining.push(nudge);
        }
    }

    /// Nobody waits at the Limiter, and every callback of it has run.
    pub fn is_drained(&self) -> bool {
        self.callbacks == 0 && Post::of(Gate::Limiter).all(|post| self.len(post) == 0)
    }

    /// The tasks and callbacks whose deadline has passed; also finds the next deadline.
    pub fn expired(&mut self, now: u64) -> Vec<Arc<Waiter>> {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return Vec::new();
        }
        let mut expired = Vec::new();
        self.earliest = None;
        for waiter in self
            .posts
            .iter()
            .flatten()
            .filter_map(Entry::waiter)
            .filter(|waiter| !waiter.is_thread())
        {
            match waiter.deadline {
                Some(deadline) if deadline <= now => expired.push(waiter.clone()),
                Some(deadline) => {
                    self.earliest = Some(self.earliest.map_or(deadline, |e| e.min(deadline)))
                }
                None => {}
            }
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_stays_awake_unless_four_sleeps_in_turn_were_brief() {
        let mut queue = Queue::default();
        for _ in 0..3 {
            queue.note_sleep(BRIEF_NS - 1);
            assert!(queue.is_awake_worth_it());
        }
        queue.note_sleep(BRIEF_NS);
        (0..3).for_each(|_| queue.note_sleep(0));
        assert!(queue.is_awake_worth_it(), "not in turn");
        queue.note_sleep(0);
        for round in 0..3 {
            for _ in 0..RETRY - 1 {
                assert!(!queue.is_awake_worth_it());
                queue.note_sleep(0);
            }
            assert!(queue.is_awake_worth_it(), "now and then, round {round}");
            queue.note_sleep(0);
        }
        queue.note_sleep(BRIEF_NS);
        assert!(queue.is_awake_worth_it());
    }
}
