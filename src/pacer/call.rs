//! Calls that a token ends.

use super::Pacer;
use super::cancel::{CancelToken, Listener};
use super::start::Start;
use crate::error::{AcquireError, QueueFull, StartError};
use crate::park::waiter::{Kind, Waiter, Wish};
use crate::segment::attachment::Attachment;
use crate::trace::Teller;
use crate::waiting::Ask;
use crate::waiting::future::Taking;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

/// Why a call under a token did not begin its operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError<R> {
    /// The token was cancelled, with this reason.
    #[error("cancelled")]
    Cancelled(R),
    /// Too many wait; nothing was left behind (P48).
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// The wait ended otherwise.
    #[error(transparent)]
    Failed(#[from] AcquireError),
}

impl<R> From<StartError> for CallError<R> {
    fn from(error: StartError) -> CallError<R> {
        match error {
            StartError::QueueFull(full) => CallError::QueueFull(full),
            StartError::Failed(failure) => CallError::Failed(failure),
        }
    }
}

impl Pacer {
    /// [`Pacer::run`] under a token, which is handed to the operation too.
    ///
    /// The token is asked first of all (P25); while the call waits, cancelling takes it out of the queue before
    /// [`CancelToken::cancel`] returns (P24); and once more right before the operation (P26). From then on cancelling is the
    /// operation's business, and the queue's listener is gone (P32).
    ///
    /// ```
    /// # use shmsched::{CancelToken, Pacer};
    /// # use std::{sync::Arc, time::Duration};
    /// # futures_executor::block_on(async {
    /// # async fn fetch(url: &str) -> String { url.to_owned() }
    /// let pacer = Pacer::local(Duration::from_millis(100), 8)?;
    /// let token: CancelToken<Arc<str>> = CancelToken::new();
    /// let page = pacer
    ///     .run_cancellable(&token, |token| async move {
    ///         tokio::select! {
    ///             page = fetch("/index") => Ok(page),
    ///             why = token.cancelled() => Err(why),
    ///         }
    ///     })
    ///     .await?;
    /// assert_eq!(page, Ok("/index".to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`CallError::Cancelled`] with a clone of the token's reason, [`CallError::QueueFull`], and what ends any wait:
    /// `operation` was not called. Cancelled in the queue no start is spent; cancelled between its start and its operation
    /// that start is (P27).
    ///
    /// # Panics
    ///
    /// With the operation; its start is spent, and who waits goes on (P28).
    ///
    /// # Cancel safety
    ///
    /// As [`Pacer::run`]; dropped, it leaves nothing in the token.
    pub async fn run_cancellable<T, R: Clone, F: Future<Output = T>>(
        &self,
        token: &CancelToken<R>,
        operation: impl FnOnce(CancelToken<R>) -> F,
    ) -> Result<T, CallError<R>> {
        let call = Call::begin(self, token)?;
        loop {
            let taken = Taking::new(&call, None).await;
            if call.end(taken)? {
                break;
            }
        }
        drop(call);
        Ok(operation(token.clone()).await)
    }

    /// [`Pacer::blocking_start`] under a token: the one way to end a thread's wait from outside.
    ///
    /// # Errors
    ///
    /// As [`Pacer::run_cancellable`].
    pub fn blocking_start_cancellable<R: Clone>(
        &self,
        token: &CancelToken<R>,
    ) -> Result<(), CallError<R>> {
        let call = &Call::begin(self, token)?;
        loop {
            let taken = match call.take_now() {
                Ok(false) => self.attachment().wait_here(&call, None),
                taken => taken.map(drop),
            };
            if call.end(taken)? {
                return Ok(());
            }
        }
    }
}

/// One call under a token, which ends its wait.
struct Call<'a, R> {
    start: Start<'a>,
    token: &'a CancelToken<R>,
    listener: Listener<'a, R>,
}

impl<'a, R: Clone> Call<'a, R> {
    fn begin(pacer: &'a Pacer, token: &'a CancelToken<R>) -> Result<Call<'a, R>, CallError<R>> {
        let call = Call {
            start: pacer.asks(false),
            token,
            listener: Listener::of(token),
        };
        call.unless_cancelled()?;
        Ok(call)
    }

    fn unless_cancelled(&self) -> Result<(), CallError<R>> {
        match self.token.reason() {
            Some(reason) => Err(CallError::Cancelled(reason.clone())),
            None => Ok(()),
        }
    }

    /// After the wait, whatever came of it: whether the operation may begin, or has to ask again.
    fn end(&self, taken: Result<(), StartError>) -> Result<bool, CallError<R>> {
        self.listen_no_more();
        // A wait that was cancelled ended with a failure of its own; this is why.
        self.unless_cancelled()?;
        taken?;
        Ok(self.start.begin())
    }
}

impl<R> Call<'_, R> {
    fn listen_no_more(&self) {
        match self.start.attachment().failure() {
            Some(AcquireError::Forked) => self.listener.abandon(),
            _ => self.listener.remove(),
        }
    }
}

impl<R> Drop for Call<'_, R> {
    fn drop(&mut self) {
        self.listen_no_more();
    }
}

impl<R> Ask for &Call<'_, R> {
    type Error = StartError;

    fn attachment(&self) -> &Arc<Attachment> {
        self.start.attachment()
    }

    fn wish(&self) -> Wish {
        (&self.start).wish()
    }

    fn teller(&self) -> Option<Teller> {
        (&self.start).teller()
    }

    fn take_now(&self) -> Result<bool, StartError> {
        (&self.start).take_now()
    }

    fn join(&self, kind: Kind, deadline: Option<u64>) -> Result<Arc<Waiter>, StartError> {
        let waiter = (&self.start).join(kind, deadline)?;
        let leave = Arc::new(Leave {
            member: Arc::downgrade(self.start.attachment()),
            waiter: Arc::downgrade(&waiter),
        });
        if !self.listener.listen(&Waker::from(leave.clone())) {
            // Cancelled since it was asked.
            leave.leave();
        }
        Ok(waiter)
    }
}

/// What the token wakes: takes the waiter out of the queue, then has its caller see it.
struct Leave {
    member: Weak<Attachment>,
    waiter: Weak<Waiter>,
}

impl Leave {
    fn leave(&self) {
        let (Some(member), Some(waiter)) = (self.member.upgrade(), self.waiter.upgrade()) else {
            return;
        };
        // `false`: it has its start, or has failed, and knows.
        if member.cancel(&waiter) {
            waiter.nudge().deliver();
            if waiter.is_thread() {
                // It sleeps on the bell if it was the first.
                member.ring(member.me, waiter.post);
            }
        }
    }
}

impl Wake for Leave {
    fn wake(self: Arc<Self>) {
        self.leave();
    }
}
