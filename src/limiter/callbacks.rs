//! The callback form, and waiting until all callbacks have run.

use super::Limiter;
use crate::Priority;
use crate::error::AcquireError;
use crate::layout::Gate;
use crate::park::waiter::{Job, Nudge};
use crate::segment::attachment::Attachment;
use crate::trace::{OnPanic, Teller};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::thread;

/// A callback that waits or runs; dropped when it has run, or never will.
struct Pending(Weak<Attachment>);

impl Pending {
    fn begin(attachment: &Arc<Attachment>) -> Pending {
        attachment.queue.lock().callbacks += 1;
        Pending(Arc::downgrade(attachment))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(attachment) = self.0.upgrade() else {
            return;
        };
        // A forked child has a copy that nobody waits for.
        if attachment.failure() == Some(AcquireError::Forked) {
            return;
        }
        let drained = {
            let mut queue = attachment.queue.lock();
            queue.callbacks -= 1;
            queue.drained()
        };
        drained.into_iter().for_each(Nudge::deliver);
    }
}

/// Calls back and, if that panics, says so to whom it is told.
fn call_back<T>(
    f: impl FnOnce(T),
    value: T,
    told: impl FnOnce() -> Option<Teller>,
    (tokens, priority): (u32, Priority),
) {
    let armed = OnPanic::new(|| {
        if let Some(teller) = told() {
            teller.panicked(Gate::Limiter, priority, tokens);
        }
    });
    f(value);
    armed.disarm();
}

impl Limiter {
    /// The callback form: takes `tokens` and calls `f(value)`, exactly once (I1, I2).
    ///
    /// `true`: the tokens were there, nobody waited, and `f` ran within this call (I3, I4). `false`: it was queued, and runs
    /// on a thread of the member's own when its turn comes, maybe before this returns (I5).
    ///
    /// Dropping the last handle drops what is queued, without calling it: see [`Limiter::drain`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::acquire`]; `f` is dropped, nothing was taken (I7).
    ///
    /// # Panics
    ///
    /// A panic of `f` within this call goes on to the caller, from a queued `f` it ends at the panic hook, and the next ones
    /// run all the same. The tokens are spent either way (X28).
    ///
    /// ```
    /// # use shmsched::{Limiter, Priority};
    /// let limiter = Limiter::local(1_000)?;
    /// let ran = limiter.consume(|name| println!("sent {name}"), 200, Priority::High, "a.png")?;
    /// assert!(ran);
    /// limiter.blocking_drain();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn consume<T: Send + 'static>(
        &self,
        f: impl FnOnce(T) + Send + 'static,
        tokens: u32,
        priority: Priority,
        value: T,
    ) -> Result<bool, AcquireError> {
        let attachment = self.attachment();
        let of = (tokens, priority);
        if self.take_or_tell(tokens, Some(priority))? {
            call_back(f, value, || self.trace.teller(attachment), of);
            return Ok(true);
        }
        let teller = self.trace.teller(attachment);
        let told = teller.clone().map(Teller::shared);
        let pending = Pending::begin(attachment);
        let job: Job = Box::new(move || {
            let _pending = pending;
            call_back(f, value, || teller, of);
        });
        let queued = attachment.enqueue_job(self.wish(tokens, priority), job, told);
        queued.inspect_err(|failure| self.tell_refusal(tokens, Some(priority), failure))?;
        Ok(false)
    }

    /// Waits until nobody of this member waits here and every callback of it has returned (H10): before the last handle
    /// is dropped, so that nothing queued is lost. Do not wait for it within a callback. At once in a forked child.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn drain(&self) {
        let poll = |context: &mut std::task::Context<'_>| match self
            .is_drained_or(|| Nudge::Task(context.waker().clone()))
        {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        std::future::poll_fn(poll).await;
    }

    /// [`Limiter::drain`] on this thread. Do not call it within a callback, which would wait for itself.
    pub fn blocking_drain(&self) {
        while !self.is_drained_or(|| Nudge::Thread(thread::current())) {
            thread::park();
        }
    }

    fn is_drained_or(&self, nudge: impl FnOnce() -> Nudge) -> bool {
        let attachment = self.attachment();
        if attachment.failure() == Some(AcquireError::Forked) {
            return true;
        }
        let mut queue = attachment.queue.lock();
        let drained = queue.is_drained();
        if !drained {
            queue.tell_when_drained(nudge());
        }
        drained
    }
}
