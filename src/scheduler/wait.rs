//! The slow paths of a Scheduler's member: joining its own queue and the line, taking turns, leaving.
//!
//! Everything that changes the member's queue or its places happens under the queue's lock, so a place has one writer
//! at a time; sleeping happens outside it.

use super::jobs;
use crate::error::AcquireError;
use crate::layout::SchedulerHot;
use crate::park::queue::Queue;
use crate::park::waiter::{Fate, Job, Kind, Nudge, Waiter, Wish};
use crate::park::{self, lane_bit};
use crate::protocol::ledger::{self, Refused, fits};
use crate::protocol::line::{Doing, Mark, Seat};
use crate::protocol::scheduler::{Limits, Moment, Outlook, PATIENCE_NS};
use crate::segment::Scope;
use crate::segment::attachment::{Attachment, state};
use crate::sys::clock;
use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often the first two in line look after things.
pub(crate) const WATCH_NS: u64 = 100_000_000;
/// How often everybody else does.
const DOZE_NS: u64 = 3_500_000_000;
/// How long the very first in line waits awake before it sleeps.
const LINGER_NS: u64 = 10_000;
/// How often a waiter asks whether the file still has a name, in watches.
const GONE_EVERY: u32 = 8;

/// What an attempt of a member's first waiter came to.
pub(crate) enum Attempt {
    /// It has its slots and left the queue; deliver, then call [`Attachment::settled`].
    Got(Nudge),
    /// Not yet. `rank`: how many stand before it in the line that have not lapsed; below 2 it watches.
    Later { rank: u32 },
}

thread_local! {
    static CHANCE: Cell<u64> = const { Cell::new(0) };
}

/// A small generator is enough for the lottery (xorshift64*), seeded per thread.
fn chance() -> u32 {
    CHANCE.with(|chance| {
        let mut x = chance.get();
        if x == 0 {
            let here = std::ptr::from_ref(chance) as u64;
            x = (clock::now() ^ here.rotate_left(32) ^ u64::from(std::process::id())) | 1;
        }
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        chance.set(x);
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as u32
    })
}

impl Attachment {
    /// A draw of the lottery.
    pub(crate) fn draw(&self) -> u32 {
        match self.draw.peek() {
            0 => chance(),
            fixed => fixed - 1,
        }
    }

    /// Calls who is next. With a draw, room was freed: the lottery decides the first turn by it, further ones by others.
    pub(crate) fn advance(&self, me: Option<usize>, first: Option<u32>) -> Outlook {
        if self.hot().summary.get() == 0 {
            return Outlook::default();
        }
        let mut next = first;
        let mut draw = || next.take().unwrap_or_else(|| self.draw());
        let moment = Moment {
            now: clock::now(),
            ms: clock::coarse_ms() as u32,
            draw: if first.is_some() {
                Some(&mut draw)
            } else {
                None
            },
        };
        let mut ring = |member: u32, lane: usize| self.ring(member, lane);
        self.views
            .gate()
            .advance(me.map(|lane| (self.me, lane)), moment, &mut ring)
    }

    /// After slots were given back or a limit was raised: pair `line-free`.
    pub(crate) fn advance_after_freeing(self: &Arc<Self>) {
        self.advance_drawn(self.draw());
    }

    fn advance_drawn(self: &Arc<Self>, draw: u32) {
        let outlook = self.advance(None, Some(draw));
        // Who was called and keeps silent may be dead; asked once in 10 ms at most.
        if outlook.silent && clock::coarse_ms() >= self.looked.get() + 10 {
            self.look(Scope::Concerned);
        }
    }

    /// Takes slots now, or says that the caller must wait (`false`). What a newcomer may do.
    pub(crate) fn take_now(self: &Arc<Self>, wish: Wish) -> Result<bool, AcquireError> {
        let Wish { lane, amount, .. } = wish;
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let hot = self.hot();
        let limits = Limits::read(hot);
        if limits.concurrency == 0 {
            // So it looks too when somebody zeroed the file.
            self.notice_damage();
            return Err(self.failure().unwrap_or(AcquireError::Zero));
        }
        if !limits.can_ever_fit(amount) {
            return Err(AcquireError::DoesNotFit {
                amount,
                concurrency: limits.concurrency,
            });
        }
        self.obey_hold_off();
        // A caller never passes its own process's waiters of its priority; a mark says nobody passes.
        if self.own_lanes.get() & 1 << lane != 0 || Mark(hot.hurry.get()).bars(lane) {
            return Ok(false);
        }
        let seat = Seat {
            amount,
            bound: wish.bound,
            ceiling: wish.ceiling,
            since: 0,
        };
        let bound = limits.bound(lane, &seat, false);
        let taken = {
            let record = self.own();
            ledger::take(&record, &hot.running, amount, bound, || {
                self.state.peek() != 0
            })
        };
        match taken {
            Ok(()) => {
                self.notice_gone_now_and_then();
                Ok(true)
            }
            Err(Refused::Full) => Ok(false),
            Err(Refused::Inert) => Err(self.failure().unwrap_or(AcquireError::Disposed)),
        }
    }

    /// Gives slots back, off the fast path.
    #[cold]
    pub(crate) fn give_slow(self: &Arc<Self>, slots: u32) {
        if self.is_inert() {
            return;
        }
        self.obey_hold_off();
        // One draw for this turn, whoever gets it.
        let draw = self.draw();
        if self.own_lanes.get() != 0 && self.hand_over(slots, draw) {
            return;
        }
        let given = {
            let record = self.own();
            ledger::give(&record, &self.hot().running, slots, || self.is_inert())
        };
        if given {
            self.advance_drawn(draw);
            self.serve_callbacks();
        }
    }

    /// Own turn: the slots go straight to this member's next waiter of the same amount, without touching RUNNING.
    ///
    /// Only if that place is next in the whole line and would be admitted after the release. A thread must have waited
    /// 500 us, since handing on between threads makes a convoy. A task is never handed slots: it is called and takes
    /// them itself, so that nothing is ever held by a future that nobody polls.
    fn hand_over(self: &Arc<Self>, slots: u32, draw: u32) -> bool {
        let mut queue = self.queue.lock();
        if self.failure().is_some() {
            return false;
        }
        let Some(lane) = self.next_after(slots, draw) else {
            return false;
        };
        let Some(first) = queue.first(lane).cloned() else {
            return false;
        };
        let long = clock::now().saturating_sub(first.since) >= PATIENCE_NS;
        if first.amount != slots
            || !(matches!(first.kind, Kind::Callback(_)) || first.is_thread() && long)
        {
            return false;
        }
        first.decide(Fate::Granted);
        let record = self.own();
        record
            .admitted
            .put(record.admitted.peek().wrapping_add(u64::from(slots)));
        record
            .released
            .put(record.released.peek().wrapping_add(u64::from(slots)));
        drop(record);
        let nudge = self.take_out(&mut queue, &first, true);
        self.member().held_since.put(clock::now());
        drop(queue);
        nudge.deliver();
        self.settled();
        match &first.kind {
            Kind::Callback(job) => {
                let job = job.lock().take();
                job.into_iter().for_each(|job| self.run_job(job));
            }
            // It sleeps on the member's bell.
            _ => self.ring(self.me, lane),
        }
        true
    }

    /// Runs this member's callbacks whose turn came by a release of this thread that was no hand-over.
    fn serve_callbacks(self: &Arc<Self>) {
        let mut lanes = self.own_lanes.get();
        while lanes != 0 {
            let lane = 31 - lanes.leading_zeros() as usize;
            let mut queue = self.queue.lock();
            let first = queue.first(lane).cloned();
            let got = first
                .filter(|first| matches!(first.kind, Kind::Callback(_)))
                .and_then(|first| match self.attempt(&mut queue, &first) {
                    Attempt::Got(nudge) => Some((nudge, first)),
                    Attempt::Later { .. } => None,
                });
            drop(queue);
            match got {
                Some((nudge, first)) => {
                    nudge.deliver();
                    self.settled();
                    Attachment::job_of(&first)
                        .into_iter()
                        .for_each(|job| self.run_job(job));
                }
                None => lanes &= !(1 << lane),
            }
        }
    }

    /// Runs a callback that has its slot on this thread, or, if it is ending, on the member's own.
    pub(crate) fn run_job(&self, job: Job) {
        let Err(job) = jobs::run_here(job) else {
            return;
        };
        let runner = self.helper.lock().runner();
        // With no thread to be had it runs here after all: its slot is taken.
        let unsent = match runner {
            Some(runner) => runner.send(job).err().map(|back| back.0),
            None => Some(job),
        };
        unsent.into_iter().for_each(jobs::run_alone);
    }

    /// The lane of this member whose turn it would be if `slots` were given back now.
    fn next_after(&self, slots: u32, draw: u32) -> Option<usize> {
        let hot = self.hot();
        let entries = self.views.line().entries();
        let limits = Limits::read(hot);
        let mut draw = || draw;
        let view = crate::protocol::scheduler::View {
            entries: &entries,
            running: hot.running.get().wrapping_sub(slots as i32),
            limits: &limits,
            mark: Mark(hot.hurry.get()),
            now: clock::now(),
            ms: clock::coarse_ms() as u32,
        };
        let plan = crate::protocol::scheduler::plan(view, Some(&mut draw));
        let (at, _) = *plan.calls.first()?;
        (entries[at].member == self.me && plan.lapses.is_empty()).then_some(entries[at].lane)
    }

    /// Joins this member's queue, and the line if it is the first of its lane.
    pub(crate) fn enqueue(self: &Arc<Self>, waiter: &Arc<Waiter>) -> Result<(), AcquireError> {
        let mut queue = self.queue.lock();
        if queue.shut || self.state.get() != 0 {
            return Err(self.failure().unwrap_or(AcquireError::Disposed));
        }
        let lane = waiter.lane;
        queue.push(waiter.clone());
        let deferred = &self.member().scheduler.deferred[lane];
        deferred.put(deferred.peek().wrapping_add(1));
        if queue.is_first(waiter) {
            self.own_lanes.set_bits(1 << lane);
            self.views
                .line()
                .join(self.me, self.generation, lane, waiter.seat());
            self.views.line().recount();
        }
        Ok(())
    }

    /// One try of the member's first waiter of a lane: sleep, look, take. Under the queue's lock.
    pub(crate) fn attempt(self: &Arc<Self>, queue: &mut Queue, waiter: &Arc<Waiter>) -> Attempt {
        let lane = waiter.lane;
        let hot = self.hot();
        let line = self.views.line();
        // Each round loses a race to a newcomer who got in; after 500 us the mark keeps them out.
        for _ in 0..64 {
            if !line.is_announced(self.me, lane) {
                line.announce(self.me, lane);
            }
            let was = line.settle(self.me, lane); // pair: line-sleep
            let outlook = match was.doing() {
                Doing::Called => Outlook {
                    turn: Some(was.drawn()),
                    ..Outlook::default()
                },
                _ => self.advance(Some(lane), None),
            };
            let Some(drawn) = outlook.turn else {
                let rank = self.take_note(waiter, outlook);
                return Attempt::Later { rank };
            };
            let limits = Limits::read(hot);
            let mark = Mark(hot.hurry.get());
            let drawn = drawn || mark == Mark::new(self.me, self.generation, lane, true);
            let bound = limits.bound(lane, &waiter.seat(), drawn);
            let taken = {
                let record = self.own();
                ledger::take(&record, &hot.running, waiter.amount, bound, || {
                    self.state.peek() != 0
                })
            };
            match taken {
                Ok(()) => {
                    self.member().held_since.put(clock::now());
                    return Attempt::Got(self.take_out(queue, waiter, true));
                }
                Err(Refused::Inert) => break,
                Err(Refused::Full) => {
                    let limit = limits.concurrency.min(i32::MAX as u32);
                    let lacks_room = !fits(hot.running.get(), waiter.amount, limit);
                    if lacks_room && clock::now().saturating_sub(waiter.since) >= PATIENCE_NS {
                        line.mark(Mark::new(self.me, self.generation, lane, drawn));
                    }
                }
            }
        }
        // Not left called: it would count as in, and nobody would ring it.
        line.settle(self.me, lane);
        Attempt::Later { rank: 0 }
    }

    /// After a look that brought no turn yet: says in the place whether it watches, and bars newcomers if it must. Returns
    /// how many stand before it, those behind a called one counting as next: they watch too.
    pub(crate) fn take_note(&self, waiter: &Waiter, outlook: Outlook) -> u32 {
        if let Some(place) = self.views.line().place(self.me, waiter.lane) {
            place.watching.put(u32::from(outlook.watches));
        }
        self.bar_if_held_up(waiter, outlook);
        match outlook.behind_called {
            true => 1,
            false => outlook.rank,
        }
    }

    /// Who asks for more than one slot may never be called, since they never come free together: if it holds up those
    /// behind it for lack of room, it bars newcomers all the same.
    fn bar_if_held_up(&self, waiter: &Waiter, outlook: Outlook) {
        if outlook.turn.is_none()
            && outlook.short
            && waiter.amount > 1
            && clock::now().saturating_sub(waiter.since) >= PATIENCE_NS
        {
            let mark = Mark::new(self.me, self.generation, waiter.lane, false);
            self.views.line().mark(mark);
        }
    }

    /// When a head that asks for more than one slot looks whether it must bar newcomers.
    pub(crate) fn bars_at(&self, waiter: &Waiter, now: u64) -> Option<u64> {
        let at = waiter.since.saturating_add(PATIENCE_NS);
        (waiter.amount > 1 && at > now).then_some(at)
    }

    /// Takes a waiter out of the queue, served or not; the next of its lane takes the place, with a new ticket.
    pub(crate) fn take_out(&self, queue: &mut Queue, waiter: &Arc<Waiter>, served: bool) -> Nudge {
        let lane = waiter.lane;
        let was_first = queue.is_first(waiter);
        if !queue.remove(waiter) {
            return Nudge::Nobody;
        }
        let counters = &self.member().scheduler;
        let counter = if served {
            &counters.completed[lane]
        } else {
            &counters.cancelled[lane]
        };
        counter.put(counter.peek().wrapping_add(1));
        if was_first {
            self.reseat(queue, lane)
        } else {
            Nudge::Nobody
        }
    }

    /// Gives the lane's place to whoever is first now, or up.
    pub(crate) fn reseat(&self, queue: &Queue, lane: usize) -> Nudge {
        let line = self.views.line();
        match queue.first(lane) {
            Some(first) => {
                first.called.put(0);
                line.unmark(self.me, self.generation, lane);
                line.join(self.me, self.generation, lane, first.seat());
                if first.is_thread() {
                    first.nudge()
                } else {
                    self.member().bell.ring(park::helper_bit());
                    Nudge::Nobody
                }
            }
            None => {
                line.leave(self.me, self.generation, lane); // pair: line-leave
                self.own_lanes.clear_bits(1 << lane);
                Nudge::Nobody
            }
        }
    }

    /// After a place changed hands or was given up, outside the queue's lock: room left to it is somebody's.
    pub(crate) fn settled(&self) {
        self.advance(None, None);
        self.views.line().recount();
    }

    /// Gives up waiting. `false` if the wait had ended already: look at its fate.
    pub(crate) fn cancel(self: &Arc<Self>, waiter: &Arc<Waiter>) -> bool {
        if self.state.get() & state::FORKED != 0 {
            return false;
        }
        let nudge = {
            let mut queue = self.queue.lock();
            if waiter.fate() != Fate::Waiting {
                return false;
            }
            waiter.decide(Fate::Failed);
            self.take_out(&mut queue, waiter, false)
        };
        nudge.deliver();
        self.settled();
        true
    }

    /// Ends every wait of this member: it was closed or disposed, or the segment is no use any more. The callbacks
    /// are dropped without being called.
    pub(crate) fn fail_everybody(&self, shut: bool) {
        let (waiters, nudges) = {
            let mut queue = self.queue.lock();
            queue.shut |= shut;
            let waiters = queue.drain();
            if waiters.is_empty() {
                return;
            }
            let counters = &self.member().scheduler;
            let mut nudges = Vec::with_capacity(waiters.len());
            for waiter in &waiters {
                waiter.decide(Fate::Failed);
                let cancelled = &counters.cancelled[waiter.lane];
                cancelled.put(cancelled.peek().wrapping_add(1));
                nudges.push(waiter.nudge());
            }
            let lanes = self.own_lanes.get();
            for lane in (0..crate::layout::LANES).filter(|lane| lanes & 1 << lane != 0) {
                let _ = self.reseat(&queue, lane);
            }
            (waiters, nudges)
        };
        nudges.into_iter().for_each(Nudge::deliver);
        self.member().bell.ring(park::everybody());
        self.settled();
        drop(waiters);
    }

    /// Ends the member's waits and its helper: the last handle is gone.
    pub(crate) fn shut_down(&self) {
        if self.state.get() & state::FORKED != 0 {
            return;
        }
        self.fail_everybody(true);
        if self.helper.lock().stop() {
            self.ring_helper();
        }
    }

    /// Asks whether the file still has a name; if not, tells everybody in line.
    pub(crate) fn notice_gone(&self) {
        let gone = match self.files.lock().as_ref() {
            Some(files) => files.is_gone(),
            None => false,
        };
        if gone && self.hot().flags.set_bits(SchedulerHot::FLAG_GONE) & SchedulerHot::FLAG_GONE == 0
        {
            for entry in self.views.line().entries() {
                self.ring(entry.member, entry.lane);
            }
        }
    }

    /// [`Self::notice_gone`] at about every thousandth acquire of this thread.
    fn notice_gone_now_and_then(self: &Arc<Self>) {
        let due = self.own().word.peek() >> 34 & 0x3ff == 0x3ff;
        if due {
            self.notice_gone();
        }
    }

    /// What a sleeper does when it looks up by itself. Both of the first two look for the dead: the other may be stopped,
    /// or dead itself.
    pub(crate) fn watch_duty(self: &Arc<Self>, near: bool, watches: u32) {
        self.notice_damage();
        if near || self.nobody_looks() {
            self.look(Scope::Front);
            // Held back by a target with nothing running, no release will ever draw for it.
            if self.hot().running.get() <= 0 {
                self.advance(None, Some(self.draw()));
            }
        }
        if watches.is_multiple_of(GONE_EVERY) {
            self.notice_gone();
        }
    }

    /// Whether nobody has looked for the dead for a second, though watchers do ten times a second: they are dead or
    /// stopped.
    fn nobody_looks(&self) -> bool {
        let since = (clock::coarse_ms() as u32).wrapping_sub(self.views.cold.looked.get());
        (1_000..u32::MAX / 2).contains(&since)
    }

    /// The very first in line stays awake for some microseconds: where slots are held as briefly as that, going to sleep
    /// and being woken would take longer than the wait. `true`: the bell rang.
    fn linger(&self, heard: u32, now: u64) -> bool {
        let bell = &self.member().bell;
        loop {
            for _ in 0..16 {
                if bell.peek() != heard {
                    return true;
                }
                std::hint::spin_loop();
            }
            if clock::now().saturating_sub(now) >= LINGER_NS {
                return false;
            }
        }
    }

    /// When a sleeper looks up by itself.
    pub(crate) fn timer(&self, now: u64, near: bool) -> u64 {
        let every = if near {
            WATCH_NS
        } else {
            DOZE_NS + u64::from(self.me % 64) * 8_000_000
        };
        now.saturating_add(every)
    }

    /// Waits on this thread until it has its slots.
    pub(crate) fn wait_here(
        self: &Arc<Self>,
        wish: Wish,
        deadline: Option<u64>,
    ) -> Result<(), AcquireError> {
        let Wish { lane, amount, .. } = wish;
        let kind = Kind::Thread(thread::current());
        let waiter = Arc::new(Waiter::new(kind, wish, clock::now(), deadline));
        self.enqueue(&waiter)?;
        self.look_if_stale();
        let mut watches = 0u32;
        // Kept over rings that came to nothing: on a busy segment they come more often than watches.
        let mut timer = u64::MAX;
        loop {
            let heard = self.member().bell.get();
            let mut queue = self.queue.lock();
            match waiter.fate() {
                Fate::Granted => return Ok(()),
                Fate::Failed => return Err(self.failure().unwrap_or(AcquireError::Closed)),
                Fate::Waiting => {}
            }
            let sits = queue.is_first(&waiter);
            let mut rank = u32::MAX;
            if sits {
                if let Some(failure) = self.wait_failure(amount) {
                    drop(queue);
                    return self.end_wait(&waiter, failure);
                }
                match self.attempt(&mut queue, &waiter) {
                    Attempt::Got(nudge) => {
                        drop(queue);
                        nudge.deliver();
                        self.settled();
                        return Ok(());
                    }
                    Attempt::Later { rank: now } => rank = now,
                }
            }
            drop(queue);
            let now = clock::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                if self.cancel(&waiter) {
                    return Err(AcquireError::TimedOut);
                }
                continue;
            }
            if sits {
                timer = timer.min(self.timer(now, rank < 2));
                let until = deadline.map_or(timer, |deadline| deadline.min(timer));
                let until = self.bars_at(&waiter, now).map_or(until, |at| at.min(until));
                if rank != 0 || !self.linger(heard, now) {
                    let _ = self.member().bell.wait(heard, lane_bit(lane), Some(until));
                }
                if clock::now() >= timer {
                    timer = u64::MAX;
                    watches = watches.wrapping_add(1);
                    self.watch_duty(rank < 2, watches);
                }
            } else {
                let left = deadline.map_or(Duration::from_secs(3600), |deadline| {
                    Duration::from_nanos(deadline - now)
                });
                thread::park_timeout(left);
            }
        }
    }

    /// Why a wait of `amount` cannot go on.
    pub(crate) fn wait_failure(&self, amount: u32) -> Option<AcquireError> {
        let limits = Limits::read(self.hot());
        let fits = limits.can_ever_fit(amount);
        self.failure()
            .or((!fits).then_some(AcquireError::DoesNotFit {
                amount,
                concurrency: limits.concurrency,
            }))
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
            self.fail_everybody(false);
        }
        match waiter.fate() {
            Fate::Granted => Ok(()),
            _ => Err(failure),
        }
    }

    /// Takes the job of a callback that got its turn.
    pub(crate) fn job_of(waiter: &Waiter) -> Option<Job> {
        match &waiter.kind {
            Kind::Callback(job) => job.lock().take(),
            _ => None,
        }
    }
}
