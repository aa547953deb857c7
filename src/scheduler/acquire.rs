//! The ways to a permit: at once, in a task, on a thread; one slot or several; borrowed or owned; with a deadline.

use super::{OwnedPermit, Permit, Scheduler};
use crate::Priority;
use crate::deadline::Deadline;
use crate::error::{AcquireError, TryAcquireError};

impl Scheduler {
    /// Takes a slot if one is free for this priority and nobody of this process waits at it (C14, C16). A refusal is
    /// preceded by a look for the dead not older than 100 ms.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError::NoPermits`]: it would have to wait.
    // Inlined, since a permit that comes back through memory costs as much as half an atomic instruction.
    #[inline(always)]
    pub fn try_acquire(&self, priority: Priority) -> Result<Permit<'_>, TryAcquireError> {
        if !self.take_fast(priority.index(), 1) {
            self.try_slow(1, priority)?;
        }
        Ok(Permit::new(self, 1))
    }

    /// Takes `slots` at once, or none.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::try_acquire`], and [`AcquireError::DoesNotFit`].
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

    /// Waits for a slot.
    ///
    /// # Errors
    ///
    /// [`AcquireError`]: closed, disposed, concurrency 0, segment retired, gone or damaged, handle used after a fork.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; the place in it is lost.
    pub async fn acquire(&self, priority: Priority) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(1, priority, Deadline::Never).await
    }

    /// Waits for `slots` at once. Those behind it, smaller ones too, wait until they fit.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire`], and [`AcquireError::DoesNotFit`] if they exceed a limit that is not zero, also when
    /// the limit is lowered meanwhile.
    pub async fn acquire_many(
        &self,
        slots: u32,
        priority: Priority,
    ) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(slots, priority, Deadline::Never).await
    }

    /// Waits for `slots` at once until a deadline, on any executor: no timer of a runtime is needed.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire_many`], and [`AcquireError::TimedOut`].
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

    /// [`Scheduler::acquire`] with a permit that keeps the Scheduler alive.
    ///
    /// # Errors
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

    /// Blocks this thread until it has a slot. Do not call it on a thread that an executor needs.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire`].
    pub fn blocking_acquire(&self, priority: Priority) -> Result<Permit<'_>, AcquireError> {
        self.blocking_acquire_until(1, priority, Deadline::Never)
    }

    /// Blocks this thread until it has `slots` at once.
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

    /// Blocks this thread until it has `slots` at once, or a deadline passes.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire_until`].
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
