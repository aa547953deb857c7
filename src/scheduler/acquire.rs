//! The ways to a permit: at once, in a task, on a thread; one slot or several; borrowed or owned; with a deadline.

use super::{OwnedPermit, Permit, Scheduler};
use crate::Priority;
use crate::deadline::Deadline;
use crate::error::{AcquireError, TryAcquireError};

impl Scheduler {
    /// Takes a slot if one is free for this priority and nobody of this process waits at it (C14, C16). A refusal is
    /// preceded by a look for the dead not older than 100 ms. [`Scheduler`] has an example.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError::NoPermits`]: it would have to wait. [`TryAcquireError::Failed`]: it can never succeed, for what
    /// [`Scheduler::acquire`] says. Nothing was taken.
    // Inlined, since a permit that comes back through memory costs as much as half an atomic instruction.
    #[inline(always)]
    pub fn try_acquire(&self, priority: Priority) -> Result<Permit<'_>, TryAcquireError> {
        if !self.take_fast(priority.index(), 1) {
            self.try_slow(1, priority)?;
        }
        Ok(Permit::new(self, 1))
    }

    /// Takes `slots` together, or none. 0 are there whenever one may acquire at all.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::try_acquire`], and [`AcquireError::DoesNotFit`].
    ///
    /// ```
    /// # use shmsched::{Priority, Scheduler, TryAcquireError};
    /// let scheduler = Scheduler::local(4)?;
    /// let three = scheduler.try_acquire_many(3, Priority::Normal)?;
    /// let more = scheduler.try_acquire_many(2, Priority::Normal);
    /// assert_eq!(more.err(), Some(TryAcquireError::NoPermits));
    /// # drop(three);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_acquire_many(
        &self,
        slots: u32,
        priority: Priority,
    ) -> Result<Permit<'_>, TryAcquireError> {
        if slots == 1 {
            return self.try_acquire(priority);
        }
        self.try_slow(slots, priority)?;
        Ok(Permit::new(self, slots))
    }

    /// [`Scheduler::try_acquire`] with a permit that keeps the Scheduler alive.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::try_acquire`].
    pub fn try_acquire_owned(&self, priority: Priority) -> Result<OwnedPermit, TryAcquireError> {
        self.try_acquire_many_owned(1, priority)
    }

    /// [`Scheduler::try_acquire_many`] with a permit that keeps the Scheduler alive.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::try_acquire_many`].
    pub fn try_acquire_many_owned(
        &self,
        slots: u32,
        priority: Priority,
    ) -> Result<OwnedPermit, TryAcquireError> {
        if slots != 1 || !self.take_fast(priority.index(), 1) {
            self.try_slow(slots, priority)?;
        }
        Ok(OwnedPermit::new(self.share(), slots))
    }

    /// Waits for a slot, on any executor. A poll that comes to stand first in line may stay awake for up to 10 us before
    /// it returns pending, once in a wait: a slot that is given back meanwhile wakes nobody.
    ///
    /// # Errors
    ///
    /// [`AcquireError`]: closed, disposed, concurrency 0, segment retired, gone or damaged, handle used after a fork, or no
    /// thread to be had that wakes tasks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; the place in it is lost, no slot is.
    ///
    /// ```
    /// # use shmsched::{Priority, Scheduler};
    /// # futures_executor::block_on(async {
    /// let scheduler = Scheduler::local(2)?;
    /// let permit = scheduler.acquire(Priority::High).await?;
    /// assert_eq!(scheduler.available_permits(), 1);
    /// drop(permit);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire(&self, priority: Priority) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(1, priority, Deadline::Never).await
    }

    /// Waits for `slots` together. Those behind it, smaller ones too, wait until they fit. 0 need no wait.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire`], and [`AcquireError::DoesNotFit`] if they exceed a limit that is not zero, also when
    /// the limit is lowered meanwhile.
    ///
    /// # Cancel safety
    ///
    /// As [`Scheduler::acquire`].
    pub async fn acquire_many(
        &self,
        slots: u32,
        priority: Priority,
    ) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(slots, priority, Deadline::Never).await
    }

    /// Waits for `slots` together until a deadline, on any executor: no timer of a runtime is needed. A duration counts
    /// from the call, not from the first poll.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire_many`], and [`AcquireError::TimedOut`]: nothing was taken.
    ///
    /// # Cancel safety
    ///
    /// As [`Scheduler::acquire`].
    ///
    /// ```
    /// # use shmsched::{AcquireError, Priority, Scheduler};
    /// # use std::time::Duration;
    /// # futures_executor::block_on(async {
    /// let scheduler = Scheduler::local(1)?;
    /// let held = scheduler.acquire(Priority::Normal).await?;
    /// let late = scheduler.acquire_until(1, Priority::High, Duration::from_millis(5)).await;
    /// assert_eq!(late.err(), Some(AcquireError::TimedOut));
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn acquire_until(
        &self,
        slots: u32,
        priority: Priority,
        until: impl Into<Deadline>,
    ) -> impl Future<Output = Result<Permit<'_>, AcquireError>> + Send {
        // Now, not at the first poll: a duration counts from the call.
        let until = until.into();
        async move {
            let waited = self.take(slots, priority, until).await?;
            Ok(Permit::after(self, slots, waited))
        }
    }

    /// [`Scheduler::acquire`] with a permit that keeps the Scheduler alive. [`OwnedPermit`] has an example.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`Scheduler::acquire`].
    pub async fn acquire_owned(&self, priority: Priority) -> Result<OwnedPermit, AcquireError> {
        self.acquire_many_owned(1, priority).await
    }

    /// [`Scheduler::acquire_many`] with a permit that keeps the Scheduler alive.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire_many`].
    ///
    /// # Cancel safety
    ///
    /// As [`Scheduler::acquire`].
    pub async fn acquire_many_owned(
        &self,
        slots: u32,
        priority: Priority,
    ) -> Result<OwnedPermit, AcquireError> {
        self.acquire_owned_until(slots, priority, Deadline::Never)
            .await
    }

    /// [`Scheduler::acquire_until`] with a permit that keeps the Scheduler alive.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire_until`].
    ///
    /// # Cancel safety
    ///
    /// As [`Scheduler::acquire`].
    pub fn acquire_owned_until(
        &self,
        slots: u32,
        priority: Priority,
        until: impl Into<Deadline>,
    ) -> impl Future<Output = Result<OwnedPermit, AcquireError>> + Send {
        let until = until.into();
        async move {
            let waited = self.take(slots, priority, until).await?;
            Ok(self.owned(slots, waited))
        }
    }

    /// Blocks this thread until it has a slot. Do not call it on a thread that an executor needs. [`Scheduler`] has an
    /// example.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire`].
    pub fn blocking_acquire(&self, priority: Priority) -> Result<Permit<'_>, AcquireError> {
        self.blocking_acquire_until(1, priority, Deadline::Never)
    }

    /// Blocks this thread until it has `slots` together.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire_many`].
    pub fn blocking_acquire_many(
        &self,
        slots: u32,
        priority: Priority,
    ) -> Result<Permit<'_>, AcquireError> {
        self.blocking_acquire_until(slots, priority, Deadline::Never)
    }

    /// Blocks this thread until it has `slots` together, or a deadline passes. With one in the past it does not wait.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire_until`].
    ///
    /// ```
    /// # use shmsched::{AcquireError, Priority, Scheduler};
    /// # use std::time::Duration;
    /// let scheduler = Scheduler::local(1)?;
    /// let held = scheduler.blocking_acquire(Priority::Normal)?;
    /// let late = scheduler.blocking_acquire_until(1, Priority::High, Duration::from_millis(5));
    /// assert_eq!(late.err(), Some(AcquireError::TimedOut));
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocking_acquire_until(
        &self,
        slots: u32,
        priority: Priority,
        until: impl Into<Deadline>,
    ) -> Result<Permit<'_>, AcquireError> {
        let waited = self.block(slots, priority, until.into())?;
        Ok(Permit::after(self, slots, waited))
    }

    /// [`Scheduler::blocking_acquire`] with a permit that keeps the Scheduler alive.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire`].
    pub fn blocking_acquire_owned(&self, priority: Priority) -> Result<OwnedPermit, AcquireError> {
        self.blocking_acquire_owned_until(1, priority, Deadline::Never)
    }

    /// [`Scheduler::blocking_acquire_until`] with a permit that keeps the Scheduler alive.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire_until`].
    pub fn blocking_acquire_owned_until(
        &self,
        slots: u32,
        priority: Priority,
        until: impl Into<Deadline>,
    ) -> Result<OwnedPermit, AcquireError> {
        let waited = self.block(slots, priority, until.into())?;
        Ok(self.owned(slots, waited))
    }
}
