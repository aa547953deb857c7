//! A turn at the Scheduler: taking slots, giving them back, and who is next.

use super::Held;
use crate::error::AcquireError;
use crate::layout::{Gate, Record, SchedulerHot, Took};
use crate::park::Post;
use crate::park::queue::Queue;
use crate::park::waiter::{Fate, Kind, Nudge, Waiter, Wish};
use crate::protocol::ledger::spare::{self, Step};
use crate::protocol::ledger::{self, Refused, fits};
use crate::protocol::line::{Doing, Mark, Seat};
use crate::protocol::scheduler::{LEND_NS, Limits, Moment, PATIENCE_NS};
use crate::protocol::turn::{NEVER, Outlook};
use crate::segment::Scope;
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::waiting::{Attempt, Later};
use std::cell::Cell;
use std::sync::Arc;

/// Spare slots are allowed again so long after a recall. It takes some 10 us, so recalls take a fiftieth at most.
const SPARE_EVERY_NS: u64 = 500_000;

/// So many acquires of a thread in so short a time are worth lending spare slots to it.
const BRISK: u64 = 64;
const BRISK_NS: u64 = BRISK * 2_000;

/// A recall that is late by so much is not on its way.
const OVERDUE_NS: u64 = 10_000_000;

/// A recall that takes so long was begun by one who is dead or stopped.
const STALE_RECALL_NS: u64 = 1_000_000_000;

thread_local! {
    static CHANCE: Cell<u64> = const { Cell::new(0) };
    static COUNTED: Cell<Counted> = const { Cell::new(Counted { at: 0, record: 0, which: 0 }) };
}

/// When this thread last came to a round number of acquires, by which record, and to which number.
#[derive(Clone, Copy)]
struct Counted {
    at: u64,
    record: usize,
    which: u64,
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

pub(super) fn slot_post(lane: usize) -> Post {
    let gate = Gate::Scheduler;
    Post { gate, lane }
}

impl Attachment {
    /// The lanes of the Scheduler at which this member's queue has somebody.
    #[inline]
    pub(super) fn own_lanes(&self) -> u32 {
        self.own_posts.get() & ((1 << crate::layout::LANES) - 1)
    }

    /// A draw of the lottery.
    pub(crate) fn draw(&self) -> u32 {
        match self.draw.peek() {
            0 => chance(),
            fixed => fixed - 1,
        }
    }

    /// Calls who is next. With a draw, room was freed: the lottery decides the first turn by it, further ones by others.
    pub(crate) fn advance_slots(&self, me: Option<(u32, usize)>, first: Option<u32>) -> Outlook {
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
        let gate = Gate::Scheduler;
        let mut ring = |member: u32, lane: usize| self.ring(member, Post { gate, lane });
        self.views.scheduler().advance(me, moment, &mut ring)
    }

    /// After slots were given back or a limit was raised: pair `line-free`.
    #[cold]
    #[inline(never)]
    pub(crate) fn advance_after_freeing(self: &Arc<Self>) {
        self.advance_drawn(self.draw());
    }

    fn advance_drawn(self: &Arc<Self>, draw: u32) {
        if self
            .views
            .scheduler()
            .is_spoken_for(clock::coarse_ms() as u32)
        {
            return;
        }
        self.views.pressure(Gate::Scheduler).progress(clock::now());
        let outlook = self.advance_slots(None, Some(draw));
        // Who was called and keeps silent may be dead; asked once in 10 ms at most.
        if outlook.silent && clock::coarse_ms() >= self.looked.get() + 10 {
            self.look(Scope::Concerned);
        }
    }

    /// Takes slots now, or says that the caller must wait (`false`). What a newcomer may do.
    pub(crate) fn take_slots_now(self: &Arc<Self>, wish: Wish) -> Result<bool, AcquireError> {
        let Wish { post, amount, .. } = wish;
        let lane = post.lane;
        if let Some(failure) = self.failure_at(Gate::Scheduler) {
            return Err(failure);
        }
        let hot = self.hot();
        let limits = Limits::read(hot);
        if limits.concurrency == 0 {
            // So it looks too when somebody zeroed the file.
            self.notice_damage();
            return Err(self
                .failure_at(Gate::Scheduler)
                .unwrap_or(AcquireError::Zero));
        }
        if !limits.can_ever_fit(amount) {
            return Err(AcquireError::DoesNotFit {
                amount,
                concurrency: limits.concurrency,
            });
        }
        self.obey_hold_off();
        // A caller never passes its own process's waiters of its priority; a mark says nobody passes.
        if self.own_posts.get() & post.bit() != 0 || Mark(hot.hurry.get()).bars(lane) {
            return Ok(false);
        }
        let seat = Seat {
            amount,
            bound: wish.bound,
            ceiling: wish.ceiling,
            since: 0,
        };
        let bound = limits.bound(lane, &seat, false);
        let take = || {
            let record = self.own();
            ledger::take(&record, &hot.running, amount, bound, || {
                self.state.peek() != 0
            })
        };
        let mut taken = take();
        if taken == Err(Refused::Full) && self.recall_if_due(None).is_some() {
            taken = take();
            if hot.summary.get() != 0 {
                self.advance_after_freeing();
            }
        }
        match taken {
            Ok(()) => {
                let word = self.own().word.peek();
                self.now_and_then(word);
                Ok(true)
            }
            Err(Refused::Full) => Ok(false),
            Err(Refused::Inert) => Err(self
                .failure_at(Gate::Scheduler)
                .unwrap_or(AcquireError::Disposed)),
        }
    }

    /// This thread's record among `records`, if it used this member last.
    #[inline(always)]
    pub(crate) fn hot_record<'a>(&self, records: &'a [Record]) -> Option<&'a Record> {
        records.get(self.hot_index()? as usize)
    }

    /// Gives slots back, if that is the usual case: no call, no clock, one line of the segment and the thread's own record.
    #[inline(always)]
    pub(crate) fn give_fast(
        self: &Arc<Self>,
        hot: &SchedulerHot,
        records: &[Record],
        slots: u32,
    ) -> bool {
        let Some(record) = self.hot_record(records) else {
            return false;
        };
        if slots == 1 {
            match spare::leave(record, &hot.spares, |phase| self.is_usual(hot, phase)) {
                Step::Done => return true,
                Step::Contested => {
                    self.give_contested(record, true);
                    return true;
                }
                Step::Not => (),
            }
        }
        if slots == 0 || hot.summary.peek() | hot.hold_off.peek() != 0 {
            return false;
        }
        if ledger::give(record, &hot.running, slots, || self.is_inert()) && hot.summary.get() != 0 {
            self.advance_after_freeing(); // pair: line-free
        }
        true
    }

    /// Whether nothing is against leaving and taking spare slots in this phase: nobody waits, or, where they are lent,
    /// nobody of this member. Asked after the phase: pair `spare-join`.
    #[inline(always)]
    pub(crate) fn is_usual(&self, hot: &SchedulerHot, phase: u32) -> bool {
        let waiting = match phase {
            spare::LENT => self.own_lanes(),
            _ => hot.summary.peek(),
        };
        hot.flags.peek() | hot.hurry.peek() | waiting | self.state.peek() == 0
    }

    /// The spare of this thread is recalled, or something else is against it: it goes where all can have it. `left`: it was
    /// being left, and not taken.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_contested(self: &Arc<Self>, record: &Record, left: bool) {
        let hot = self.hot();
        let inert = || self.is_inert();
        let in_hand = spare::settle(record, inert);
        if in_hand && !ledger::put_back(record, &hot.running, 1, inert) {
            return;
        }
        if left {
            spare::count_released(record);
        }
        if in_hand && hot.summary.get() != 0 {
            self.advance_after_freeing(); // pair: line-free
        }
    }

    /// For who waits, or is about to: recalls spare slots, but for those that are lent, which the first in line recalls in
    /// time. At its deadline nobody is refused on account of those either.
    pub(crate) fn recall_if_due(self: &Arc<Self>, deadline: Option<u64>) -> Option<u32> {
        if spare::phase(self.hot().spares.get()) == spare::LENT {
            let now = clock::now();
            let due = self.views.scheduler().lent_until(now);
            if due.is_some_and(|due| now < due.min(deadline.unwrap_or(NEVER))) {
                return None;
            }
        }
        self.recall_spares()
    }

    /// Has all spare slots given back, so that RUNNING says what is held: before a caller is refused, and after it has
    /// joined the line. How many; `None`: there can have been none. Others may have claimed some.
    pub(crate) fn recall_spares(self: &Arc<Self>) -> Option<u32> {
        let hot = self.hot();
        if spare::phase(hot.spares.get()) == spare::OFF {
            return None;
        }
        self.views.cold.recalled.put(clock::now());
        let own = self.own();
        let leased = || self.views.leased();
        let inert = || self.is_inert();
        spare::recall(&hot.spares, &hot.running, &own, leased, inert)
    }

    /// Spare slots are of use where somebody takes slots again and again, and nobody is short of them.
    #[cold]
    pub(crate) fn allow_spares(self: &Arc<Self>) {
        let hot = self.hot();
        let busy = hot.summary.get() | hot.hurry.get() | hot.flags.get();
        if busy != 0 {
            return;
        }
        // One from the future is of an earlier boot, or a scribbler's.
        let since = clock::now().abs_diff(self.views.cold.recalled.get());
        match spare::phase(hot.spares.get()) {
            spare::OFF if since >= SPARE_EVERY_NS => {
                spare::allow(&hot.spares);
            }
            // Who recalled them died.
            spare::RECALL if since >= STALE_RECALL_NS => {
                self.recall_spares();
            }
            _ => (),
        }
    }

    /// Where slots are taken briskly though somebody waits, spare ones are of use too: for so long as newcomers may pass
    /// the line anyway.
    fn lend_spares(self: &Arc<Self>) {
        let hot = self.hot();
        let now = clock::now();
        let (record, which) = {
            let own = self.own();
            (
                std::ptr::from_ref::<Record>(&own) as usize,
                own.word.peek() >> 40,
            )
        };
        // Who takes and leaves the giving back to others comes here twice by one number. Of another record's nothing
        // follows for this one.
        let last = COUNTED.get();
        if (last.record, last.which) == (record, which) {
            return;
        }
        COUNTED.set(Counted {
            at: now,
            record,
            which,
        });
        let next = last.record == record && which == last.which.wrapping_add(1);
        let brisk = next && now.saturating_sub(last.at) < BRISK_NS;
        let off = spare::phase(hot.spares.get()) == spare::OFF;
        if !brisk || !off || hot.hurry.get() | hot.flags.get() != 0 {
            return;
        }
        // Recalled early, by one who would have been refused: not again at once.
        let (recalled, lent) = (self.views.cold.recalled.get(), self.views.cold.lent.get());
        let early = recalled.abs_diff(lent) < LEND_NS;
        if early && now.abs_diff(recalled) < SPARE_EVERY_NS {
            return;
        }
        self.lend_spares_now();
    }

    /// Lends, and has the first in line know.
    pub(crate) fn lend_spares_now(&self) {
        self.views.cold.lent.put(clock::now());
        if spare::lend(&self.hot().spares) {
            self.advance_slots(None, None); // pair: spare-lend
        }
    }

    /// At about every thousandth acquire by a spare: does the file still have its name, and does anybody recall what is
    /// lent? The first two in line may be stopped or dead, and nobody behind them looks for seconds. Then this thread does
    /// it, and calls who is next, as at any release.
    #[cold]
    #[inline(never)]
    pub(crate) fn after_many_spares(self: &Arc<Self>) {
        self.notice_gone();
        let now = clock::now();
        let due = self.views.scheduler().lent_until(now);
        let overdue = due.is_some_and(|due| now.saturating_sub(due) >= OVERDUE_NS);
        if overdue && self.hot().summary.get() != 0 {
            self.recall_spares();
            self.advance_after_freeing();
        }
    }

    /// After an acquire, with the word of the record: at every 64th of a thread, are spare slots worth while though somebody
    /// waits? At every thousandth: are they anyway, and does the file still have its name?
    #[inline(always)]
    pub(crate) fn now_and_then(self: &Arc<Self>, word: u64) {
        // Each acquire and each release takes two steps.
        if word >> 34 & (BRISK - 1) == BRISK - 1 {
            self.after_many(word >> 34 & 0x3ff == 0x3ff);
        }
    }

    #[cold]
    #[inline(never)]
    fn after_many(self: &Arc<Self>, thousand: bool) {
        if self.hot().summary.get() != 0 {
            self.lend_spares();
        }
        if thousand {
            self.notice_gone();
            self.allow_spares();
        }
    }

    /// Gives back what a permit holds and calls who is next. Never fails.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_held(self: &Arc<Self>, held: Held) {
        if !held.is_timed() {
            // The usual way was tried already.
            if held.slots() != 0 {
                self.give_slow(held.slots());
            }
            return;
        }
        let now = clock::now();
        if let Some(since) = held.since(now)
            && !self.is_inert()
        {
            self.member().took(Took::Hold, now.saturating_sub(since));
        }
        self.give(held.slots());
    }

    /// Gives slots back and calls who is next. Never fails.
    pub(crate) fn give(self: &Arc<Self>, slots: u32) {
        let views = &self.views;
        if slots != 0 && !self.give_fast(&views.hot, &views.records, slots) {
            self.give_slow(slots);
        }
    }

    /// Gives slots back, off the fast path.
    #[cold]
    fn give_slow(self: &Arc<Self>, slots: u32) {
        if self.is_inert() {
            return;
        }
        if self.hot().hold_off.peek() != 0 {
            self.obey_hold_off();
        }
        // One draw for this turn, whoever gets it.
        let mut drawn = None;
        let mut draw = || *drawn.get_or_insert_with(|| self.draw());
        if self.own_lanes() != 0 && self.hand_over(slots, &mut draw) {
            return;
        }
        let given = {
            let record = self.own();
            ledger::give(&record, &self.hot().running, slots, || self.is_inert())
        };
        if given {
            self.advance_drawn(draw());
            self.serve_callbacks();
        }
    }

    /// Own turn: the slots go straight to this member's next waiter of the same amount, without touching RUNNING.
    ///
    /// Only if that place is next in the whole line and would be admitted after the release. A thread must have waited
    /// 500 us, since handing on between threads makes a convoy. A task is never handed slots: it is called and takes
    /// them itself, so that nothing is ever held by a future that nobody polls.
    fn hand_over(self: &Arc<Self>, slots: u32, draw: &mut dyn FnMut() -> u32) -> bool {
        let mut queue = self.queue.lock();
        if !self.is_well() && self.failure_at(Gate::Scheduler).is_some() {
            return false;
        }
        if let Some(short) = self.next_of_ours_alone(&mut queue, slots) {
            let turn = self.hand_on(&mut queue, short);
            drop(queue);
            self.run_turn(turn);
            return true;
        }
        let Some(lane) = self.next_after(slots, draw()) else {
            return false;
        };
        let Some(first) = queue.first(slot_post(lane)).cloned() else {
            return false;
        };
        let long = clock::now().saturating_sub(first.since) >= PATIENCE_NS;
        if first.amount != slots
            || !(matches!(first.kind, Kind::Callback(_)) || first.is_thread() && long)
        {
            return false;
        }
        first.decide(Fate::Granted);
        ledger::pass_on(&self.own(), slots);
        let nudge = self.take_out(&mut queue, &first, true);
        self.member().held_since.put(clock::now());
        drop(queue);
        nudge.deliver();
        self.settled(Gate::Scheduler);
        match &first.kind {
            Kind::Callback(_) => self
                .job_of(&first)
                .into_iter()
                .for_each(|job| self.run_job(job)),
            // It sleeps on the member's bell.
            _ => self.ring(self.me, slot_post(lane)),
        }
        true
    }

    /// Runs this member's callbacks whose turn came by a release of this thread that was no hand-over.
    fn serve_callbacks(self: &Arc<Self>) {
        let mut lanes = self.own_lanes();
        while lanes != 0 {
            let lane = 31 - lanes.leading_zeros() as usize;
            let mut queue = self.queue.lock();
            let first = queue.first(slot_post(lane)).cloned();
            let got = first
                .filter(|first| matches!(first.kind, Kind::Callback(_)))
                .and_then(|first| match self.attempt(&mut queue, &first) {
                    Attempt::Got(nudges) => Some((nudges, first)),
                    Attempt::Later(_) => None,
                });
            drop(queue);
            match got {
                Some((nudges, first)) => {
                    nudges.into_iter().for_each(Nudge::deliver);
                    self.settled(Gate::Scheduler);
                    self.job_of(&first)
                        .into_iter()
                        .for_each(|job| self.run_job(job));
                }
                None => lanes &= !(1 << lane),
            }
        }
    }

    /// The lane of this member whose turn it would be if `slots` were given back now.
    fn next_after(&self, slots: u32, draw: u32) -> Option<usize> {
        let hot = self.hot();
        let entries = self.views.line(Gate::Scheduler).entries();
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

    /// Looks who is next after a recall: what it found is room that was freed.
    pub(crate) fn look_for_slots(&self, me: Option<(u32, usize)>, found: Option<u32>) -> Outlook {
        let draw = found.filter(|found| *found != 0).map(|_| self.draw());
        self.advance_slots(me, draw)
    }

    /// One try of the member's first waiter of a lane: sleep, look, take. Under the queue's lock.
    pub(crate) fn attempt_slots(
        self: &Arc<Self>,
        queue: &mut Queue,
        waiter: &Arc<Waiter>,
    ) -> Attempt {
        let lane = waiter.post.lane;
        let hot = self.hot();
        let line = self.views.line(Gate::Scheduler);
        // Each round loses a race to a newcomer who got in; after 500 us the mark keeps them out.
        for _ in 0..64 {
            if !line.is_announced(self.me, lane) {
                line.announce(self.me, lane);
            }
            // Its bit is set, so spare slots that are left from here on are seen to be wanted.
            let found = self.recall_if_due(waiter.deadline); // pair: spare-join
            let was = line.settle(self.me, lane); // pair: line-sleep
            let outlook = match was.doing() {
                Doing::Called => Outlook {
                    turn: Some(was.drawn()),
                    ..Outlook::default()
                },
                _ => self.look_for_slots(Some((self.me, lane)), found),
            };
            let Some(drawn) = outlook.turn else {
                return Attempt::Later(self.take_note(waiter, outlook));
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
                    return Attempt::Got(vec![self.take_out(queue, waiter, true)]);
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
        // Not left called: it would count as in, and nobody would ring it. Who freed room before that left it to this one.
        line.settle(self.me, lane);
        Attempt::Later(Later {
            due: clock::now(),
            ..Later::FIRST
        })
    }

    /// Who asks for more than one slot may never be called, since they never come free together: if it holds up those
    /// behind it for lack of room, it bars newcomers all the same.
    pub(crate) fn bar_if_held_up(&self, waiter: &Waiter, outlook: Outlook) {
        if outlook.turn.is_none()
            && outlook.short
            && waiter.amount > 1
            && clock::now().saturating_sub(waiter.since) >= PATIENCE_NS
        {
            let mark = Mark::new(self.me, self.generation, waiter.post.lane, false);
            self.views.line(Gate::Scheduler).mark(mark);
        }
    }

    /// When a head that asks for more than one slot looks whether it must bar newcomers.
    pub(crate) fn bars_at(&self, waiter: &Waiter, now: u64) -> Option<u64> {
        let at = waiter.since.saturating_add(PATIENCE_NS);
        let bars = waiter.post.gate == Gate::Scheduler && waiter.amount > 1;
        (bars && at > now).then_some(at)
    }

    /// Why so many slots can never be had.
    pub(crate) fn never_fits(&self, amount: u32) -> Option<AcquireError> {
        let limits = Limits::read(self.hot());
        let concurrency = limits.concurrency;
        (!limits.can_ever_fit(amount)).then_some(AcquireError::DoesNotFit {
            amount,
            concurrency,
        })
    }
}
