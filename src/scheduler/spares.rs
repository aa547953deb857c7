//! Spare slots at the Scheduler: when threads may keep them, and when they are recalled. See `protocol::ledger::spare`.

use crate::layout::{Record, SchedulerHot};
use crate::protocol::ledger::{self, spare};
use crate::protocol::scheduler::LEND_NS;
use crate::protocol::turn::NEVER;
use crate::segment::attachment::Attachment;
use crate::sys::clock;
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
    static COUNTED: Cell<Counted> = const { Cell::new(Counted { at: 0, record: 0, which: 0 }) };
}

/// When this thread last came to a round number of acquires, by which record, and to which number.
#[derive(Clone, Copy)]
struct Counted {
    at: u64,
    record: usize,
    which: u64,
}

impl Attachment {
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
        // Of no use where its own member waits: nobody of it leaves or takes a spare then.
        if !brisk || !off || hot.hurry.get() | hot.flags.get() | self.own_lanes() != 0 {
            return;
        }
        // Recalled early, by one who would have been refused: not again at once.
        let (recalled, lent) = (self.views.cold.recalled.get(), self.views.cold.lent.get());
        let early = recalled.abs_diff(lent) < LEND_NS;
        if early && now.abs_diff(recalled) < SPARE_EVERY_NS {
            return;
        }
        self.lend_spares_now(now);
    }

    /// Lends, and has the first in line know.
    pub(crate) fn lend_spares_now(&self, now: u64) {
        self.views.cold.lent.put(now);
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
}
