//! A token that cancels, with the reason.
//!
//! Its listeners are wakers: of a task that awaits the reason, and of a place in the queue, whose "wake" leaves it. They
//! are called outside the token's lock, by who cancels. Each is taken out again by whoever put it in, so a token may live
//! as long as the process.

use crate::sys::mutex::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

/// Cancels calls, once and with a reason, which comes back from each of them.
///
/// Clones are the same token. The reason is any type; what waits gives out clones of it, so put what is large, or what is to
/// be recognised, into an [`Arc`]. A token is of one process, as what it cancels is.
///
/// The usual token of an async runtime tells *that* it was cancelled, not *why*, and would be this library's only reason to
/// depend on that runtime; so this is a small one of its own. To tie it to another: await that one, then
/// [`CancelToken::cancel`].
///
/// ```
/// use shmsched::{CallError, CancelToken, Pacer};
/// use std::time::Duration;
///
/// # futures_executor::block_on(async {
/// let pacer = Pacer::local(Duration::from_millis(10), 8)?;
/// let token = CancelToken::new();
/// let answer = pacer.run_cancellable(&token, |_token| async { 42 }).await;
/// assert_eq!(answer, Ok(42));
///
/// assert!(token.cancel("shutting down"));
/// assert!(!token.cancel("too late"), "the first reason stays");
/// let answer = pacer.run_cancellable(&token, |_token| async { 42 }).await;
/// assert_eq!(answer, Err(CallError::Cancelled("shutting down")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct CancelToken<R = ()> {
    shared: Arc<Shared<R>>,
}

struct Shared<R> {
    /// Set once, under the lock.
    reason: OnceLock<R>,
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl<R> CancelToken<R> {
    /// A token that is not cancelled.
    pub fn new() -> CancelToken<R> {
        CancelToken {
            shared: Arc::new(Shared {
                reason: OnceLock::new(),
                listeners: Mutex::default(),
            }),
        }
    }

    /// Cancels whatever runs under this token. `false`: it was cancelled before, and keeps that reason (P33).
    ///
    /// When this returns, whoever waited in a queue under it has left (P24).
    ///
    /// # Panics
    ///
    /// With the first panic of a waker, after all of them were called.
    pub fn cancel(&self, reason: R) -> bool {
        let mut listeners = self.shared.listeners.lock();
        let refused = self.shared.reason.set(reason).err();
        let wakers = match &refused {
            None => std::mem::take(&mut listeners.wakers),
            Some(_) => BTreeMap::new(),
        };
        drop(listeners);
        let mut panicked = None;
        for waker in wakers.into_values() {
            let woken = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            panicked = panicked.or(woken.err());
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        refused.is_none()
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some()
    }

    /// Why it was cancelled, if it was: the very value that was given.
    pub fn reason(&self) -> Option<&R> {
        self.shared.reason.get()
    }

    /// Waits until it is cancelled: for an operation to select on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes its waker out of the token.
    pub fn cancelled(&self) -> Cancelled<'_, R> {
        Cancelled {
            listener: Listener::of(self),
        }
    }

    /// How many listen to it: calls that wait in a queue, and [`CancelToken::cancelled`] futures that were polled. Of a
    /// token at rest it is 0, however many calls there were.
    pub fn listeners(&self) -> usize {
        self.shared.listeners.lock().wakers.len()
    }
}

impl<R> Clone for CancelToken<R> {
    fn clone(&self) -> CancelToken<R> {
        CancelToken {
            shared: self.shared.clone(),
        }
    }
}

impl<R> Default for CancelToken<R> {
    fn default() -> CancelToken<R> {
        CancelToken::new()
    }
}

impl<R> fmt::Debug for CancelToken<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// One listener of a token at most; taken out when this is dropped.
pub(super) struct Listener<'a, R> {
    token: &'a CancelToken<R>,
    key: Mutex<Option<u64>>,
}

impl<'a, R> Listener<'a, R> {
    /// Does not listen yet.
    pub fn of(token: &'a CancelToken<R>) -> Listener<'a, R> {
        Listener {
            token,
            key: Mutex::new(None),
        }
    }

    /// Has this waker called on cancellation, instead of the one before. `false`: it is cancelled already.
    pub fn listen(&self, waker: &Waker) -> bool {
        let mut key = self.key.lock();
        let mut listeners = self.token.shared.listeners.lock();
        if self.token.is_cancelled() {
            return false;
        }
        let at = *key.get_or_insert(listeners.next);
        if at == listeners.next {
            listeners.next += 1;
        }
        let known = listeners.wakers.get(&at);
        if known.is_some_and(|known| known.will_wake(waker)) {
            return true;
        }
        let old = listeners.wakers.insert(at, waker.clone());
        drop(listeners);
        drop(key);
        // A waker's drop is foreign code: outside the locks.
        drop(old);
        true
    }

    /// Listens no more (P32).
    pub fn remove(&self) {
        let key = self.key.lock().take();
        if let Some(key) = key {
            let old = self.token.shared.listeners.lock().wakers.remove(&key);
            drop(old);
        }
    }

    /// Forgets to listen, without touching the token: in a forked child its lock may be held for ever.
    pub fn abandon(&self) {
        let _ = self.key.lock().take();
    }
}

impl<R> Drop for Listener<'_, R> {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The future of [`CancelToken::cancelled`]; yields the reason.
#[must_use = "futures do nothing unless polled"]
pub struct Cancelled<'a, R> {
    listener: Listener<'a, R>,
}

impl<R: Clone> Future for Cancelled<'_, R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let token = self.listener.token;
        if token.reason().is_none() && self.listener.listen(context.waker()) {
            return Poll::Pending;
        }
        match token.reason() {
            Some(reason) => Poll::Ready(reason.clone()),
            None => Poll::Pending,
        }
    }
}
