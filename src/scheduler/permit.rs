//! Permits: slots held, given back on drop.

use super::Scheduler;
use std::fmt;

macro_rules! permit {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)?, $scheduler:ty) => {
        $(#[$doc])*
        #[must_use = "a permit that is not kept is given back at once"]
        pub struct $name $(<$life>)? {
            scheduler: $scheduler,
            slots: u32,
            /// Since when, if that is to be counted; 0 is not.
            since: u64,
        }

        impl $(<$life>)? $name $(<$life>)? {
            pub(crate) fn new(scheduler: $scheduler, slots: u32) -> Self {
                Self { scheduler, slots, since: 0 }
            }

            /// One that was waited for, or not.
            pub(crate) fn after(scheduler: $scheduler, slots: u32, waited: bool) -> Self {
                let mut permit = Self::new(scheduler, slots);
                if waited {
                    permit.count_hold();
                }
                permit
            }

            /// Has the time for which it is held from now on counted, as that of permits that were waited for is.
            pub fn count_hold(&mut self) {
                self.since = crate::sys::clock::now();
            }

            /// Slots that dropping it gives back.
            pub fn num_permits(&self) -> u32 {
                self.slots
            }

            /// Keeps the slots taken until this process ends; then the survivors reclaim them.
            pub fn forget(mut self) {
                if std::mem::take(&mut self.slots) != 0 {
                    // The member must not detach: that would give them back.
                    std::mem::forget(Scheduler::clone(&self.scheduler));
                }
            }

            /// Joins another permit of the same member to this one.
            ///
            /// # Panics
            ///
            /// If it belongs to another member (another [`Segment::open`](crate::Segment::open) or local Scheduler).
            #[track_caller]
            pub fn merge(&mut self, mut other: Self) {
                assert!(self.scheduler.is_same(&other.scheduler), "merging permits of different members");
                self.slots += std::mem::take(&mut other.slots);
            }

            /// Splits `slots` off into a permit of their own; `None`, and nothing changed, if there are fewer.
            pub fn split(&mut self, slots: u32) -> Option<Self> {
                self.slots = self.slots.checked_sub(slots)?;
                Some(Self::new(Clone::clone(&self.scheduler), slots))
            }
        }

        impl $(<$life>)? Drop for $name $(<$life>)? {
            #[inline]
            fn drop(&mut self) {
                if self.slots != 0 {
                    if self.since != 0 {
                        self.scheduler.count_hold(self.since);
                    }
                    self.scheduler.give(self.slots);
                }
            }
        }

        impl $(<$life>)? fmt::Debug for $name $(<$life>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("slots", &self.slots).finish_non_exhaustive()
            }
        }
    };
}

permit! {
    /// Slots of a [`Scheduler`], borrowed from it; given back on drop, on whatever thread (C13, E20).
    ///
    /// Memory ordering: what a thread did before it gave a slot back happens before what another does, in any process,
    /// after it took that slot.
    Permit<'a>, &'a Scheduler
}

permit! {
    /// Slots of a [`Scheduler`] that keep it alive: for tasks that outlive the borrow. Otherwise a [`Permit`].
    OwnedPermit, Scheduler
}
