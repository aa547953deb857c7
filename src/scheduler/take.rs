//! What every way in and out comes to: slots taken or refused at once, waited for, given back.

use super::Scheduler;
use super::permit::Held;
use crate::Priority;
use crate::deadline::Deadline;
use crate::error::{AcquireError, TryAcquireError};
use crate::layout::{Gate, SchedulerHot};
use crate::park::waiter::Wish;
use crate::protocol::ledger::spare::{self, Step};
use crate::protocol::ledger::{self, fits};
use crate::protocol::scheduler::fast_bound;
use crate::segment::attachment::Attachment;
use crate::trace::Teller;
use crate::waiting::Ask;
use crate::waiting::future::Taking;
use std::borrow::Borrow;
use std::sync::Arc;

impl Scheduler {
    /// The fast path: no call, no clock, one line of the segment and the thread's own record.
    #[inline(always)]
    pub(super) fn take_fast(&self, lane: usize, slots: u32) -> bool {
        let attachment = &self.handle.attachment;
        let Some(record) = attachment.hot_record(&self.records) else {
            return false;
        };
        let hot: &SchedulerHot = &self.hot;
        let bound = fast_bound(hot, lane, self.bounds[lane]);
        if slots == 1 {
            // RUNNING counts the spare already.
            let usual =
                |phase| attachment.is_usual(hot, phase) && fits(hot.running.peek(), 0, bound);
            match spare::take(record, &hot.spares, usual) {
                Step::Done => {
                    if record.spare.peek() & 0x7fe == 0 {
                        attachment.after_many_spares();
                    }
                    return true;
                }
                Step::Contested => attachment.give_contested(record, false),
                Step::Not => (),
            }
        }
        let unusual = hot.flags.peek()
            | hot.hurry.peek()
            | hot.hold_off.peek()
            | hot.summary.peek() & 1 << lane;
        if unusual != 0 {
            return false;
        }
        let taken = ledger::take(record, &hot.running, slots, bound, || {
            attachment.state.peek() != 0
        })
        .is_ok();
        if taken {
            attachment.now_and_then(record.word.peek());
        }
        taken
    }

    /// Takes slots now; `false`: the caller must wait.
    #[inline]
    pub(crate) fn take_now(&self, lane: usize, slots: u32) -> Result<bool, AcquireError> {
        if slots == 1 && self.take_fast(lane, slots) {
            return Ok(true);
        }
        self.take_slow(lane, slots)
    }

    /// The same for a caller who goes on to wait or to fail: tells of what fails.
    #[inline]
    pub(super) fn take_or_tell(&self, lane: usize, slots: u32) -> Result<bool, AcquireError> {
        self.told(lane, slots, self.take_now(lane, slots))
    }

    fn told(
        &self,
        lane: usize,
        slots: u32,
        taken: Result<bool, AcquireError>,
    ) -> Result<bool, AcquireError> {
        if let Err(failure) = &taken {
            self.tell_refusal(lane, slots, failure);
        }
        taken
    }

    #[cold]
    pub(super) fn tell_refusal(&self, lane: usize, slots: u32, failure: &AcquireError) {
        if let Some(teller) = self.trace.teller(self.attachment()) {
            teller.refused(self.wish(lane, slots), failure);
        }
    }

    #[cold]
    fn take_slow(&self, lane: usize, slots: u32) -> Result<bool, AcquireError> {
        if let Some(failure) = self.attachment().failure_at(Gate::Scheduler) {
            return Err(failure);
        }
        if self.max == 0 {
            return Err(AcquireError::Zero);
        }
        if slots > self.max {
            return Err(AcquireError::DoesNotFit {
                amount: slots,
                concurrency: self.max,
            });
        }
        if slots == 0 {
            return Ok(true);
        }
        self.attachment().take_slots_now(self.wish(lane, slots))
    }

    #[inline(always)]
    pub(crate) fn give_fast(&self, slots: u32) -> bool {
        self.attachment().give_fast(&self.hot, &self.records, slots)
    }

    pub(crate) fn give_held(&self, held: Held) {
        self.attachment().give_held(held);
    }

    fn give(&self, slots: u32) {
        self.attachment().give(slots);
    }

    /// A try that is not the usual case.
    #[cold]
    #[inline(never)]
    pub(super) fn try_slow(&self, slots: u32, priority: Priority) -> Result<(), TryAcquireError> {
        let lane = priority.index();
        let taken = self.take_slow(lane, slots);
        if self.told(lane, slots, taken)? || Slots(self, lane, slots).take_at_last()? {
            return Ok(());
        }
        Err(TryAcquireError::NoPermits)
    }

    /// Whether it had to wait.
    pub(super) fn block(
        &self,
        slots: u32,
        priority: Priority,
        until: Deadline,
    ) -> Result<bool, AcquireError> {
        let lane = priority.index();
        if self.take_or_tell(lane, slots)? {
            return Ok(false);
        }
        let ask = Slots(self, lane, slots);
        self.attachment().wait_here(&ask, until.stamp())?;
        Ok(true)
    }

    pub(super) async fn take(
        &self,
        slots: u32,
        priority: Priority,
        until: Deadline,
    ) -> Result<bool, AcquireError> {
        let mut taking = Taking::new(Slots(self, priority.index(), slots), until.stamp());
        (&mut taking).await?;
        Ok(taking.has_waited())
    }

    /// The wait for a slot as a value that owns what it needs, for who keeps it.
    #[cfg(feature = "tower")]
    pub(crate) fn acquire_kept(
        &self,
        priority: Priority,
        until: Deadline,
    ) -> Taking<Slots<Scheduler>> {
        Taking::new(Slots(self.clone(), priority.index(), 1), until.stamp())
    }
}

/// What a caller of the Scheduler asks for: slots, in a lane.
pub(crate) struct Slots<S>(S, usize, u32);

impl<S: Borrow<Scheduler>> Ask for Slots<S> {
    type Error = AcquireError;

    fn attachment(&self) -> &Arc<Attachment> {
        self.0.borrow().attachment()
    }

    fn wish(&self) -> Wish {
        self.0.borrow().wish(self.1, self.2)
    }

    fn teller(&self) -> Option<Teller> {
        self.0.borrow().trace.teller(self.attachment())
    }

    fn take_now(&self) -> Result<bool, AcquireError> {
        self.0.borrow().take_or_tell(self.1, self.2)
    }

    fn give_back(&self) {
        self.0.borrow().give(self.2);
    }
}
