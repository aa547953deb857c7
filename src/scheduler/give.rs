//! Giving slots back at the Scheduler: the usual way, own turn, and who is next.

use super::Held;
use super::short::ShortWay;
use super::turn::slot_post;
use crate::layout::{Gate, Record, SchedulerHot, Took};
use crate::park::waiter::{Fate, Kind, Nudge};
use crate::protocol::ledger;
use crate::protocol::ledger::spare::{self, Step};
use crate::protocol::line::Mark;
use crate::protocol::scheduler::{Limits, PATIENCE_NS};
use crate::protocol::turn::NEVER;
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::waiting::Attempt;
use std::sync::Arc;

impl Attachment {
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
        // A slot that one of this member waits for is handed on instead.
        if slots == 1 && self.own_lanes() == 0 {
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
        let lane = self.own_lanes().trailing_zeros() as usize;
        if slots == 1
            && let Some(way) = ShortWay::new(self, lane)
            && let Some(short) = way.next(&mut queue)
        {
            let turn = way.hand_on(&mut queue, &short);
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
            let tried = first
                .filter(|first| matches!(first.kind, Kind::Callback(_)))
                .map(|first| (self.attempt(&mut queue, &first), first));
            drop(queue);
            match tried {
                Some((Attempt::Later(later), first)) => {
                    lanes &= !(1 << lane);
                    // Its place promises to look then, and it is the helper that does.
                    if later.due != NEVER {
                        self.have_tended(&first, later);
                    }
                }
                Some((Attempt::Got(nudges), first)) => {
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
}
