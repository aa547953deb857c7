//! The end of a member's use of the Scheduler, before the last handle is dropped.

use super::Scheduler;
use crate::layout::Gate;
use crate::segment::attachment::state;
use crate::trace::Document;

impl Scheduler {
    /// Ends every wait of this member with [`AcquireError::Closed`](crate::AcquireError::Closed) and every later acquire, and
    /// drops its queued callbacks; permits stay valid. Other members are not concerned, nor are other gates. A second time
    /// does nothing.
    ///
    /// ```
    /// # use shmsched::{AcquireError, Priority, Scheduler};
    /// let scheduler = Scheduler::local(2)?;
    /// let permit = scheduler.try_acquire(Priority::Normal)?;
    /// scheduler.close();
    /// assert_eq!(scheduler.blocking_acquire(Priority::Normal).err(), Some(AcquireError::Closed));
    /// drop(permit); // still counts until here
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        let attachment = self.attachment();
        if attachment.state.set_bits(state::CLOSED) & (state::CLOSED | state::FORKED) == 0 {
            attachment.fail_everybody(Gate::Scheduler);
        }
    }

    /// Whether [`Scheduler::close`] or [`Scheduler::dispose`] was called.
    pub fn is_closed(&self) -> bool {
        self.attachment().state.get() & (state::CLOSED | state::DISPOSED) != 0
    }

    /// Gives back at once every slot of this member, those of work that still runs included (E7), ends its waits with
    /// [`AcquireError::Disposed`](crate::AcquireError::Disposed), drops its queued callbacks (X20) and makes later releases do nothing (E13). So others
    /// may for a while run more than the limit (E17). A second time does nothing (E14).
    ///
    /// ```
    /// # use shmsched::{Priority, Scheduler};
    /// let scheduler = Scheduler::local(2)?;
    /// let permit = scheduler.try_acquire(Priority::Normal)?;
    /// scheduler.dispose();
    /// assert_eq!(scheduler.available_permits(), 2);
    /// drop(permit); // gives nothing back any more
    /// assert_eq!(scheduler.available_permits(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dispose(&self) {
        let attachment = self.attachment();
        if attachment.state.get() & (state::DISPOSED | state::FORKED) != 0 {
            return;
        }
        let teller = self.trace.teller_of("scheduler:dispose", attachment);
        let teller = teller.map(|teller| (teller, attachment.held()));
        attachment.give_all_back();
        attachment.raw_held.put(0);
        attachment.fail_everybody(Gate::Scheduler);
        attachment.ring_helper();
        attachment.advance_after_freeing();
        if let Some((teller, amount)) = teller {
            let complete = |document| Document { amount, ..document };
            teller.tell("scheduler:dispose", Gate::Scheduler, complete);
        }
    }
}
