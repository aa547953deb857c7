//! Code run under a slot: a future or a closure.

use super::task::Task;
use super::{Permit, Scheduler};
use crate::Priority;
use crate::deadline::Deadline;
use crate::error::AcquireError;
use crate::trace::OnPanic;
use std::future::poll_fn;
use std::pin::pin;

impl Scheduler {
    /// Runs a future under a slot: `f` is called once the slot is there, its future driven to the end, the slot given
    /// back whatever way it ends (C1, C2).
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire`]: `f` was not called then.
    ///
    /// # Panics
    ///
    /// With `f` or its future; the slot is given back.
    ///
    /// # Cancel safety
    ///
    /// Dropped while queued, `f` is never called; dropped while running, its future is dropped and the slot given back
    /// (X47).
    ///
    /// ```
    /// # use shmsched::{Concurrency, Priority, Scheduler};
    /// # let scheduler = Scheduler::local(Concurrency::max(4))?;
    /// let answer = async { scheduler.run(|| async { 6 * 7 }, Priority::Normal).await };
    /// assert_eq!(futures_executor::block_on(answer)?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn run<T, F: Future<Output = T>>(
        &self,
        f: impl FnOnce() -> F,
        priority: Priority,
    ) -> Result<T, AcquireError> {
        let mut task = Task::new(self, priority, Task::heard(self));
        let waited = self.take(1, priority, Deadline::Never).await;
        let waited = waited.inspect_err(|error| task.failed(error))?;
        let _permit = Permit::after(self, 1, waited);
        task.start(waited);
        let mut future = pin!(task.call(f));
        let result = poll_fn(|context| task.call(|| future.as_mut().poll(context))).await;
        task.complete();
        Ok(result)
    }

    /// Blocks this thread until there is a slot and runs a closure under it (C1, C2). The
    /// [first page](crate) has an example.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire`]: `f` was not called then.
    ///
    /// # Panics
    ///
    /// With `f`; the slot is given back first.
    pub fn run_blocking<T>(
        &self,
        f: impl FnOnce() -> T,
        priority: Priority,
    ) -> Result<T, AcquireError> {
        if let Some(teller) = Task::heard(self) {
            return self.run_told(f, Task::new(self, priority, Some(teller)));
        }
        let waited = self.block(1, priority, Deadline::Never)?;
        let armed = OnPanic::new(|| Task::new(self, priority, None).tell_panic());
        let permit = Permit::after(self, 1, waited);
        let result = f();
        drop(permit);
        armed.disarm();
        Ok(result)
    }

    #[cold]
    fn run_told<T>(&self, f: impl FnOnce() -> T, mut task: Task<'_>) -> Result<T, AcquireError> {
        let waited = self.block(1, task.priority(), Deadline::Never);
        let waited = waited.inspect_err(|error| task.failed(error))?;
        let _permit = Permit::after(self, 1, waited);
        task.start(waited);
        let result = task.call(f);
        task.complete();
        Ok(result)
    }
}
