//! Waiting at a gate: a member's own queue, its places in the lines, and its turns.
//!
//! What is the same for all gates is here: joining and leaving ([`Attachment::enqueue`], [`Attachment::take_out`]),
//! sleeping ([`sleep`]), futures ([`future`]) and the thread that wakes them ([`helper`]). What a turn is and what it
//! takes is the gate's: `scheduler/turn`, `limiter/turn`, `pacer/turn`.
//!
//! Everything that changes the member's queue or its places happens under the queue's lock, so a place has one writer
//! at a time; sleeping happens outside it.

pub(crate) mod future;
pub(crate) mod helper;
pub(crate) mod jobs;
mod sleep;

use crate::error::AcquireError;
use crate::layout::{Gate, SchedulerHot};
use crate::park::queue::Queue;
use crate::park::waiter::{Fate, Job, Kind, Nudge, Step, Told, Waiter, Wish, note};
use crate::park::{self, HELPER_BIT, Post};
use crate::protocol::turn::{NEVER, Outlook, Why};
use crate::segment::attachment::{Attachment, state};
use crate::sys::clock;
use crate::sys::mutex::Mutex;
use crate::trace::Teller;
use crate::words::U64;
use std::error::Error;
use std::sync::Arc;

/// What an attempt of a member's first waiter came to.
pub(crate) enum Attempt {
    /// It has what it wanted and left the queue; deliver, then call [`Attachment::settled`].
    Got(Vec<Nudge>),
    /// Not yet.
    Later(Later),
}

/// How a waiter stands that has no turn yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Later {
    /// How many stand before it in the line that have not lapsed; below 2 it watches.
    pub rank: u32,
    /// When it must look again at the latest, if it knows.
    pub due: u64,
    /// Somebody before it was called and is not in: he may be dead.
    pub behind: bool,
}

impl Later {
    /// It stands first and knows no time.
    pub const FIRST: Later = Later {
        rank: 0,
        due: NEVER,
        behind: false,
    };
}

/// One wait, as the gate's caller asks for it.
pub(crate) trait Ask {
    /// What can go wrong.
    type Error: From<AcquireError> + Error + 'static;
    /// The member that waits.
    fn attachment(&self) -> &Arc<Attachment>;
    /// What for.
    fn wish(&self) -> Wish;
    /// Who is told how it goes, if anybody listens.
    fn teller(&self) -> Option<Teller>;
    /// Takes it now; `false`: the caller must wait. Tells of what fails.
    fn take_now(&self) -> Result<bool, Self::Error>;
    /// Gives back what a releaser handed to a wait that nobody polls any more.
    fn give_back(&self) {}
    /// Joins the queue.
    fn join(&self, kind: Kind, deadline: Option<u64>) -> Result<Arc<Waiter>, Self::Error> {
        let waiter = Waiter::new(kind, self.wish(), clock::now(), deadline);
        let waiter = Arc::new(waiter.told_to(self.teller().map(Teller::shared)));
        self.attachment().enqueue(&waiter)?;
        Ok(waiter)
    }
    /// Tells that it failed before it waited.
    #[cold]
    fn tell_refusal(&self, error: &Self::Error) {
        if let Some(teller) = self.teller() {
            teller.refused(self.wish(), error);
        }
    }
    /// One more try before a refusal: not on the account of a dead one, nor of a stopped one whose turn it is.
    fn take_at_last(&self) -> Result<bool, Self::Error> {
        let attachment = self.attachment();
        attachment.look_if_stale();
        attachment.advance(self.wish().post.gate, None, Why::Moved);
        self.take_now()
    }
}

/// Which counter of a member's queue.
#[derive(Clone, Copy)]
enum Count {
    Deferred,
    Completed,
    Cancelled,
}

impl Attachment {
    fn count(&self, post: Post, which: Count) {
        let counts = self.member().queue(post.gate, post.lane);
        let count: Option<&U64> = counts.map(|counts| counts[which as usize]);
        if let Some(count) = count {
            count.put(count.peek().wrapping_add(1));
        }
    }

    /// The place of a waiter that acts for the member.
    pub(crate) fn spot(&self, waiter: &Waiter) -> u32 {
        match waiter.post.gate {
            Gate::Pacer => waiter.spot,
            _ => self.me,
        }
    }

    /// Looks who is next at a gate and calls him.
    pub(crate) fn advance(&self, gate: Gate, me: Option<&Waiter>, why: Why) -> Outlook {
        let place = me.map(|waiter| (self.spot(waiter), waiter.post.lane));
        let mut ring = |member: u32, lane: usize| self.ring(member, Post { gate, lane });
        let line = self.views.line(gate);
        if line.summary.get() == 0 {
            return Outlook::default();
        }
        let now = || (clock::now(), clock::coarse_ms() as u32);
        match gate {
            // It reads the clocks itself.
            Gate::Scheduler => self.advance_slots(place, None),
            Gate::Limiter => {
                let limiter = self.views.limiter();
                limiter.advance_by(&clock::now, place, why, now(), &mut ring)
            }
            Gate::Pacer => self.views.pacer().advance(place, why, now(), &mut ring),
        }
    }

    /// One try of the member's first waiter of a post: sleep, look, take. Under the queue's lock.
    pub(crate) fn attempt(self: &Arc<Self>, queue: &mut Queue, waiter: &Arc<Waiter>) -> Attempt {
        match waiter.post.gate {
            Gate::Scheduler => self.attempt_slots(queue, waiter),
            Gate::Limiter => self.attempt_tokens(queue, waiter),
            Gate::Pacer => self.attempt_start(queue, waiter),
        }
    }

    /// Why a wait cannot go on.
    pub(crate) fn wait_failure(&self, waiter: &Waiter) -> Option<AcquireError> {
        let failure = self.failure_at(waiter.post.gate);
        failure.or_else(|| match waiter.post.gate {
            Gate::Scheduler => self.never_fits(waiter.amount),
            _ => None,
        })
    }

    /// Joins the member's queue, and the line if it is the first of its post, or has a place of its own: whether it is.
    pub(crate) fn enqueue(&self, waiter: &Arc<Waiter>) -> Result<bool, AcquireError> {
        if let Some(failure) = self.wait_failure(waiter) {
            return Err(failure);
        }
        let gate = waiter.post.gate;
        let mut queue = self.queue.lock();
        if queue.shut || self.is_barred(gate) {
            return Err(self.failure_at(gate).unwrap_or(AcquireError::Disposed));
        }
        queue.push(waiter.clone());
        self.count(waiter.post, Count::Deferred);
        let first = queue.is_first(waiter);
        if first {
            self.own_posts.set_bits(waiter.post.bit());
        }
        if first || gate == Gate::Pacer {
            let line = self.views.line(gate);
            let lane = waiter.post.lane;
            line.join(self.spot(waiter), self.owner(), lane, waiter.seat());
            line.recount();
            self.views.pressure(gate).begin(clock::now());
        }
        drop(queue);
        waiter.tell(Step::Queued);
        Ok(first)
    }

    /// Puts a waiter of this member at the end of its post that runs `job` when its turn comes, on whatever thread, and
    /// tries it once. `Err`: it cannot wait, and the job is dropped.
    pub(crate) fn enqueue_job(
        self: &Arc<Self>,
        wish: Wish,
        job: Job,
        told: Option<Arc<dyn Told>>,
    ) -> Result<(), AcquireError> {
        self.ensure_helper()?;
        let kind = Kind::Callback(Mutex::new(Some(job)));
        let waiter = Arc::new(Waiter::new(kind, wish, clock::now(), None).told_to(told));
        // Who is not first is seen to by who makes it so.
        if !self.enqueue(&waiter)? {
            return Ok(());
        }
        let mut queue = self.queue.lock();
        let first = queue.is_first(&waiter);
        let got = match first.then(|| self.attempt(&mut queue, &waiter)) {
            Some(Attempt::Got(nudges)) => Some(nudges),
            _ => None,
        };
        drop(queue);
        match got {
            Some(nudges) => {
                nudges.into_iter().for_each(Nudge::deliver);
                self.settled(wish.post.gate);
                Attachment::job_of(&waiter)
                    .into_iter()
                    .for_each(|job| self.run_job(job));
            }
            None if first => {
                self.look_if_stale();
                self.ring_helper();
            }
            None => {}
        }
        Ok(())
    }

    /// How it stands after a look that brought no turn. Those behind a called one count as next: they watch too.
    pub(crate) fn take_note(&self, waiter: &Waiter, outlook: Outlook) -> Later {
        if waiter.post.gate == Gate::Scheduler {
            self.bar_if_held_up(waiter, outlook);
        }
        Later {
            rank: match outlook.behind_called {
                true => 1,
                false => outlook.rank,
            },
            due: outlook.watches.unwrap_or(NEVER),
            behind: outlook.behind_called,
        }
    }

    /// Takes a waiter out of the queue, served or not; the next of its post takes the place, with a new ticket.
    pub(crate) fn take_out(&self, queue: &mut Queue, waiter: &Arc<Waiter>, served: bool) -> Nudge {
        let was_first = queue.is_first(waiter);
        if !queue.remove(waiter) {
            return Nudge::Nobody;
        }
        match served {
            true => self.left_served(waiter, clock::now()),
            false => self.count(waiter.post, Count::Cancelled),
        }
        self.give_up_spot(waiter);
        if was_first {
            self.reseat(queue, waiter.post)
        } else {
            Nudge::Nobody
        }
    }

    /// Counts a waiter that left the queue with what it wanted. Under the queue's lock.
    pub(crate) fn left_served(&self, waiter: &Waiter, now: u64) {
        let gate = waiter.post.gate;
        self.count(waiter.post, Count::Completed);
        self.views.pressure(gate).progress(now);
        self.member()
            .took(gate.into(), now.saturating_sub(waiter.since));
    }

    /// Gives up the place of a waiter that has one of its own.
    fn give_up_spot(&self, waiter: &Waiter) {
        if waiter.post.gate == Gate::Pacer {
            let line = self.views.line(Gate::Pacer);
            line.leave(waiter.spot, self.generation, 0); // pair: line-leave
            line.free_spot(waiter.spot, self.owner());
        }
    }

    /// Gives the post's place to whoever is first now, or up.
    pub(crate) fn reseat(&self, queue: &Queue, post: Post) -> Nudge {
        let line = self.views.line(post.gate);
        match queue.first(post) {
            Some(first) => {
                first.called.put(0);
                if post.gate != Gate::Pacer {
                    line.unmark(self.me, self.generation, post.lane);
                    line.join(self.me, self.owner(), post.lane, first.seat());
                }
                if first.is_thread() {
                    first.nudge()
                } else {
                    self.ring_helper();
                    Nudge::Nobody
                }
            }
            None => {
                if post.gate != Gate::Pacer {
                    line.leave(self.me, self.generation, post.lane); // pair: line-leave
                }
                self.own_posts.clear_bits(post.bit());
                Nudge::Nobody
            }
        }
    }

    /// After a place changed hands or was given up, outside the queue's lock: room left to it is somebody's.
    pub(crate) fn settled(&self, gate: Gate) {
        self.moved(gate, Why::Moved);
    }

    fn moved(&self, gate: Gate, why: Why) {
        self.advance(gate, None, why);
        self.views.line(gate).recount();
        self.end_pressure(gate);
        if gate == Gate::Limiter {
            let drained = self.queue.lock().drained();
            drained.into_iter().for_each(Nudge::deliver);
        }
    }

    /// If nobody waits any more, that is when waiting ended; who joined in between begins it anew.
    fn end_pressure(&self, gate: Gate) {
        let line = self.views.line(gate);
        if line.summary.get() == 0 {
            let pressure = self.views.pressure(gate);
            pressure.end(clock::now());
            if line.summary.get() != 0 {
                pressure.begin(clock::now());
            }
        }
    }

    /// Gives up waiting. `false` if the wait had ended already: look at its fate.
    pub(crate) fn cancel(self: &Arc<Self>, waiter: &Arc<Waiter>) -> bool {
        if self.state.get() & state::FORKED != 0 {
            return false;
        }
        let gate = waiter.post.gate;
        let nudge = {
            let mut queue = self.queue.lock();
            if waiter.fate() != Fate::Waiting {
                return false;
            }
            waiter.decide(Fate::Failed);
            waiter.notes.set_bits(note::CANCELLED);
            if gate == Gate::Limiter && queue.is_first(waiter) {
                let limiter = self.views.limiter();
                if limiter.line.is_front(self.me, waiter.post.lane) {
                    // Another is the front now: its second begins.
                    limiter.got_on(waiter.post.lane, clock::now());
                }
            }
            self.take_out(&mut queue, waiter, false)
        };
        nudge.deliver();
        self.leave_parent(waiter);
        // Those behind it reckoned with what it would have taken.
        self.moved(gate, Why::Sooner);
        true
    }

    /// Ends every wait of this member at a gate: it was closed or disposed, or the segment is no use any more. The
    /// callbacks are dropped without being called.
    pub(crate) fn fail_everybody(self: &Arc<Self>, gate: Gate) {
        let (waiters, nudges) = {
            let mut queue = self.queue.lock();
            let waiters = queue.drain(gate);
            if waiters.is_empty() {
                return;
            }
            let mut nudges = Vec::with_capacity(waiters.len());
            for waiter in &waiters {
                waiter.decide(Fate::Failed);
                self.count(waiter.post, Count::Cancelled);
                self.give_up_spot(waiter);
                nudges.push(waiter.nudge());
            }
            let posts = self.own_posts.get();
            for post in Post::of(gate).filter(|post| posts & post.bit() != 0) {
                let _ = self.reseat(&queue, post);
            }
            (waiters, nudges)
        };
        nudges.into_iter().for_each(Nudge::deliver);
        park::ring_everybody(&self.member().bell);
        for waiter in &waiters {
            self.leave_parent(waiter);
        }
        self.moved(gate, Why::Sooner);
        for waiter in &waiters {
            if let (Kind::Callback(_), Some(_)) = (&waiter.kind, &waiter.told) {
                match self.failure_at(gate) {
                    Some(failure) => waiter.tell(Step::Failed(&failure)),
                    None => waiter.tell(Step::Dropped),
                }
            }
        }
        drop(waiters);
    }

    /// Ends a wait that cannot go on; a reason that concerns the whole member ends all of them. `Ok` if a releaser was
    /// faster.
    pub(crate) fn end_wait(
        self: &Arc<Self>,
        waiter: &Arc<Waiter>,
        failure: AcquireError,
    ) -> Result<(), AcquireError> {
        if matches!(failure, AcquireError::DoesNotFit { .. }) {
            self.cancel(waiter);
        } else {
            self.fail_everybody(waiter.post.gate);
        }
        match waiter.fate() {
            Fate::Granted => Ok(()),
            _ => Err(failure),
        }
    }

    /// Ends the member's waits and its helper: the last handle is gone.
    pub(crate) fn shut_down(self: &Arc<Self>) {
        if self.state.get() & state::FORKED != 0 {
            return;
        }
        self.queue.lock().shut = true;
        for gate in Gate::ALL {
            self.fail_everybody(gate);
        }
        if self.helper.lock().stop() {
            self.ring_helper();
        }
    }

    /// Whether a newcomer must wait at a gate where nobody passes the line: somebody stands there who has not lapsed, or
    /// of this member.
    pub(crate) fn must_queue(&self, gate: Gate) -> bool {
        let line = self.views.line(gate);
        if line.summary.get() == 0 {
            return false;
        }
        let own = Post::of(gate).fold(0, |bits, post| bits | post.bit());
        self.own_posts.get() & own != 0 || line.is_anybody_awake()
    }

    /// Asks whether the file still has a name; if not, tells everybody in line. Twice a second at most.
    pub(crate) fn notice_gone_at_times(&self) {
        if let Some(parent) = &self.parent {
            return parent.attachment.notice_gone_at_times();
        }
        let now = clock::coarse_ms();
        if now >= self.asked_gone.get().saturating_add(500) {
            self.asked_gone.put(now);
            self.notice_gone();
        }
    }

    /// Asks whether the file still has a name; if not, tells everybody in line.
    pub(crate) fn notice_gone(&self) {
        let gone = match self.files.lock().as_ref() {
            Some(files) => files.is_gone(),
            None => false,
        };
        if gone && !self.views.raise_flag(SchedulerHot::FLAG_GONE) {
            for gate in Gate::ALL {
                self.ring_all(gate);
            }
        }
    }

    /// Wakes everybody who stands in the line of a gate.
    pub(crate) fn ring_all(&self, gate: Gate) {
        for entry in self.views.line(gate).entries() {
            let lane = entry.lane;
            self.ring(entry.member, Post { gate, lane });
        }
    }

    /// Has the helper look at the queue again.
    pub(crate) fn ring_helper(&self) {
        park::ring(&self.member().bell, HELPER_BIT);
    }

    /// Takes the job of a callback that got its turn. Who runs it tells of that first.
    pub(crate) fn job_of(waiter: &Arc<Waiter>) -> Option<Job> {
        let Kind::Callback(job) = &waiter.kind else {
            return None;
        };
        let job = job.lock().take()?;
        if waiter.told.is_none() {
            return Some(job);
        }
        let waiter = waiter.clone();
        Some(Box::new(move || {
            waiter.tell(Step::Dispatched);
            job();
        }))
    }

    /// Runs a callback whose turn it is on this thread, or, if it is ending, on the member's own.
    pub(crate) fn run_job(&self, job: Job) {
        let Err(job) = jobs::run_here(job) else {
            return;
        };
        let runner = self.helper.lock().runner();
        // With no thread to be had it runs here after all: what it needs is taken.
        let unsent = match runner {
            Some(runner) => runner.send(job).err().map(|back| back.0),
            None => Some(job),
        };
        unsent.into_iter().for_each(jobs::run_alone);
    }
}
