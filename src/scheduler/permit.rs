//! Permits: slots held, given back on drop.

use super::Scheduler;
use crate::segment::Handle;
use crate::sys::clock;
use std::fmt;
use std::sync::Arc;

/// How many slots, and since when if that is to be counted, in one word: a permit of two words travels in registers, one
/// of three through memory, which costs an uncontended acquire and release half as much again.
///
/// The slots alone; or [`TIMED`], a stamp in units of 1,024 ns modulo 104 days, and the slots in the lowest bits. More
/// than fit there are not timed.
#[derive(Clone, Copy)]
pub(crate) struct Held(u64);

const TIMED: u64 = 1 << 63;
const SLOT_BITS: u32 = 20;
const SLOTS: u64 = (1 << SLOT_BITS) - 1;
const STAMPS: u64 = (TIMED - 1) >> SLOT_BITS;

impl Held {
    pub(crate) fn slots(self) -> u32 {
        match self.0 & TIMED {
            0 => self.0 as u32,
            _ => (self.0 & SLOTS) as u32,
        }
    }

    /// Since when, in ns of a clock that says `now`.
    pub(crate) fn since(self, now: u64) -> Option<u64> {
        let units = (now >> 10).wrapping_sub(self.0 >> SLOT_BITS) & STAMPS;
        (self.0 & TIMED != 0).then(|| now.saturating_sub(units << 10))
    }

    fn timed(self, now: u64) -> Held {
        let slots = u64::from(self.slots());
        match slots <= SLOTS {
            true => Held(TIMED | (now >> 10 & STAMPS) << SLOT_BITS | slots),
            false => self,
        }
    }

    pub(crate) fn is_timed(self) -> bool {
        self.0 & TIMED != 0
    }

    /// None hold nothing, for no time.
    fn with_slots(self, slots: u32) -> Held {
        match self.0 & TIMED {
            0 => Held(slots.into()),
            _ if slots == 0 => Held(0),
            _ if u64::from(slots) > SLOTS => Held(slots.into()),
            _ => Held(self.0 & !SLOTS | u64::from(slots)),
        }
    }
}

/// What an owned permit keeps of its Scheduler: one count to raise, where a Scheduler has several.
#[derive(Clone)]
pub(crate) struct Share(pub(super) Arc<Handle>);

impl Share {
    fn share(&self) -> Share {
        self.clone()
    }

    #[inline(always)]
    fn give_fast(&self, slots: u32) -> bool {
        let Share(handle) = self;
        let views = &handle.attachment.views;
        handle
            .attachment
            .give_fast(&views.hot, &views.records, slots)
    }

    fn give_held(&self, held: Held) {
        self.0.attachment.give_held(held);
    }

    fn is_same(&self, other: &Share) -> bool {
        Arc::ptr_eq(&self.0.attachment, &other.0.attachment)
    }
}

macro_rules! permit {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)?, $scheduler:ty) => {
        $(#[$doc])*
        #[must_use = "a permit that is not kept is given back at once"]
        pub struct $name $(<$life>)? {
            scheduler: $scheduler,
            held: Held,
        }

        impl $(<$life>)? $name $(<$life>)? {
            #[inline]
            pub(crate) fn new(scheduler: $scheduler, slots: u32) -> Self {
                Self { scheduler, held: Held(slots as u64) }
            }

            /// One that was waited for, or not.
            pub(crate) fn after(scheduler: $scheduler, slots: u32, waited: bool) -> Self {
                let mut permit = Self::new(scheduler, slots);
                if waited {
                    permit.count_hold();
                }
                permit
            }

            /// Has the time for which it is held from now on counted, as that of permits that were waited for is. One of
            /// more than 1,048,575 slots is not counted, and a hold of more than 104 days only as what is beyond.
            pub fn count_hold(&mut self) {
                self.held = self.held.timed(clock::now());
            }

            /// Slots that dropping it gives back.
            pub fn num_permits(&self) -> u32 {
                self.held.slots()
            }

            fn take_slots(&mut self) -> u32 {
                let slots = self.held.slots();
                self.held = self.held.with_slots(0);
                slots
            }

            /// Keeps the slots taken until this process ends, when the survivors reclaim them, or until
            /// [`Scheduler::dispose`].
            pub fn forget(mut self) {
                if self.take_slots() != 0 {
                    // The member must not detach: that would give them back.
                    std::mem::forget(self.scheduler.share());
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
                let both = self.held.slots() + other.take_slots();
                self.held = self.held.with_slots(both);
            }

            /// Splits `slots` off into a permit of their own; `None`, and nothing changed, if there are fewer.
            pub fn split(&mut self, slots: u32) -> Option<Self> {
                let rest = self.held.slots().checked_sub(slots)?;
                self.held = self.held.with_slots(rest);
                Some(Self::new(Clone::clone(&self.scheduler), slots))
            }
        }

        impl $(<$life>)? Drop for $name $(<$life>)? {
            #[inline(always)]
            fn drop(&mut self) {
                let Held(held) = self.held;
                if held & TIMED != 0 || !self.scheduler.give_fast(held as u32) {
                    self.scheduler.give_held(self.held);
                }
            }
        }

        impl $(<$life>)? fmt::Debug for $name $(<$life>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("slots", &self.held.slots()).finish_non_exhaustive()
            }
        }
    };
}

permit! {
    /// Slots of a [`Scheduler`], borrowed from it; given back on drop, on whatever thread (C13, E20).
    ///
    /// # Memory ordering
    ///
    /// What a thread did before it gave a slot back happens before what another does, in any process, after it took that
    /// slot.
    ///
    /// ```
    /// # use shmsched::{Priority, Scheduler};
    /// let scheduler = Scheduler::local(4)?;
    /// let mut permit = scheduler.try_acquire_many(3, Priority::Normal)?;
    /// let two = permit.split(2).expect("there are three");
    /// drop(permit);
    /// assert_eq!((two.num_permits(), scheduler.available_permits()), (2, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Permit<'a>, &'a Scheduler
}

permit! {
    /// Slots of a [`Scheduler`] that keep it alive: for tasks that outlive the borrow. Otherwise a [`Permit`], with the same
    /// memory ordering.
    ///
    /// ```
    /// # use shmsched::{Priority, Scheduler};
    /// let scheduler = Scheduler::local(1)?;
    /// let permit = scheduler.blocking_acquire_owned(Priority::Normal)?;
    /// let worker = std::thread::spawn(move || {
    ///     // ... the work
    ///     drop(permit);
    /// });
    /// worker.join().unwrap();
    /// assert_eq!(scheduler.available_permits(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    OwnedPermit, Share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_slots_and_since_when() {
        const DAY: u64 = 86_400_000_000_000;
        for slots in [0, 1, 2, 1_048_575, 1_048_576, i32::MAX as u32] {
            let plain = Held(slots.into());
            assert_eq!((plain.slots(), plain.since(5)), (slots, None));
            for begun in [0, 1, 1_023, 5_000_000_000, 400 * DAY, u64::MAX >> 1] {
                let timed = plain.timed(begun);
                assert_eq!(timed.slots(), slots);
                for passed in [0, 1_000, 3_000_000, 100 * DAY] {
                    let since = timed.since(begun + passed);
                    assert_eq!(since.is_some(), slots < 1 << 20);
                    assert!(since.is_none_or(|since| since.abs_diff(begun) < 1_024));
                }
            }
        }
    }

    #[test]
    fn changing_the_slots_keeps_the_stamp() {
        let timed = Held(7).timed(9_000_000);
        for slots in [1, 2, 1_048_575] {
            let changed = timed.with_slots(slots);
            assert_eq!(changed.slots(), slots);
            assert_eq!(changed.since(20_000_000), timed.since(20_000_000));
        }
        let none = timed.with_slots(0);
        assert_eq!((none.slots(), none.since(20_000_000)), (0, None));
        let many = timed.with_slots(1 << 20);
        assert_eq!((many.slots(), many.since(20_000_000)), (1 << 20, None));
        assert_eq!(Held(3).with_slots(5).slots(), 5);
    }
}
