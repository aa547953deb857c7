//! A member's own waiters, first come first served within a post.

use super::Post;
use super::waiter::{Call, Kind, Nudge, Waiter, note};
use crate::layout::Gate;
use crate::protocol::line::Seat;
use std::collections::VecDeque;
use std::sync::Arc;

/// A sleep is brief below this.
const BRIEF_NS: u64 = 20_000;
/// After so many brief sleeps in turn the next one sleeps at once.
const BRIEF: u32 = 4;
/// But for each of so many, which tries again.
const RETRY: u32 = 32;

/// Room for so many that wait at a post is kept when none does any more.
const KEPT: usize = 1_024;

/// One that waits.
pub enum Entry {
    /// A thread, a task, or a callback.
    Waiter(Arc<Waiter>),
    /// A callback that has not acted for its member.
    Call(Call),
}

impl Entry {
    /// Unless it is a call.
    pub fn waiter(&self) -> Option<&Arc<Waiter>> {
        match self {
            Entry::Waiter(waiter) => Some(waiter),
            Entry::Call(_) => None,
        }
    }

    fn is(&self, waiter: &Arc<Waiter>) -> bool {
        self.waiter().is_some_and(|own| Arc::ptr_eq(own, waiter))
    }

    fn was_passed_over(&self) -> bool {
        self.waiter().is_some_and(|own| own.passed.peek() != 0)
    }

    /// Where it waits.
    pub fn post(&self) -> Post {
        match self {
            Entry::Waiter(waiter) => waiter.post,
            Entry::Call(call) => call.post(),
        }
    }

    /// What it asks for, if it is a callback.
    pub fn callback(&self) -> Option<Seat> {
        match self {
            Entry::Waiter(waiter) => {
                matches!(waiter.kind, Kind::Callback(_)).then(|| waiter.seat())
            }
            Entry::Call(call) => Some(call.seat()),
        }
    }
}

/// The waiters of one member.
#[derive(Default)]
pub struct Queue {
    posts: [VecDeque<Entry>; Post::COUNT],
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

    /// Who acts for the member at this post.
    pub fn first(&mut self, post: Post) -> Option<&Arc<Waiter>> {
        let at = self.acting(post)?;
        let entries = &mut self.posts[post.index()];
        if let Entry::Call(_) = entries[at]
            && let Some(Entry::Call(call)) = entries.remove(at)
        {
            entries.insert(at, Entry::Waiter(Arc::new(call.into_waiter())));
        }
        entries[at].waiter()
    }

    /// The first two of a post, if the very first acts for the member.
    #[inline]
    pub fn first_two(&self, post: Post) -> Option<(&Entry, &Entry)> {
        let post = &self.posts[post.index()];
        let (first, next) = (post.front()?, post.get(1)?);
        (!first.was_passed_over()).then_some((first, next))
    }

    /// Whether the very first of a post is a call.
    #[inline]
    pub fn starts_with_call(&self, post: Post) -> bool {
        matches!(self.posts[post.index()].front(), Some(Entry::Call(_)))
    }

    /// Takes the very first of a post out; others are left.
    #[inline]
    pub fn take_first(&mut self, post: Post) -> Option<Entry> {
        self.posts[post.index()].pop_front()
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
        self.posts[waiter.post.index()].push_back(Entry::Waiter(waiter.clone()));
        waiter.pending.put(self.pending(gate) as u32);
    }

    /// Whether a callback stands at the end of a post: whoever that is has seen to it that they are looked after.
    #[inline]
    pub fn ends_with_callback(&self, post: Post) -> bool {
        match self.posts[post.index()].back() {
            Some(Entry::Call(_)) => true,
            Some(Entry::Waiter(last)) => matches!(last.kind, Kind::Callback(_)),
            None => false,
        }
    }

    /// Joins at the end of its post, behind another callback.
    #[inline]
    pub fn push_call(&mut self, call: Call) {
        self.posts[call.post().index()].push_back(Entry::Call(call));
    }

    /// Gives up the room of a post at which nobody waits, if it is much.
    pub fn trim(&mut self, post: Post) {
        let post = &mut self.posts[post.index()];
        if post.is_empty() && post.capacity() > KEPT {
            *post = VecDeque::new();
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
        if self.pending(waiter.post.gate) == 0 {
            waiter.notes.set_bits(note::LAST);
        }
        true
    }

    /// How many wait at a post.
    pub fn len(&self, post: Post) -> usize {
        self.posts[post.index()].len()
    }

    /// Takes everybody of a gate out.
    pub fn drain(&mut self, gate: Gate) -> Vec<Entry> {
        let posts = Post::of(gate);
        let all: Vec<_> = posts
            .flat_map(|post| std::mem::take(&mut self.posts[post.index()]))
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
