//! The Limiter: how many tokens a second, over all processes that share a segment.

#[cfg(feature = "tokio")]
mod async_io;
mod callbacks;
mod io;
mod levels;
mod pace;
mod stats;
#[cfg(feature = "stream")]
mod stream;
mod take;
mod turn;

#[cfg(feature = "tokio")]
pub use async_io::{AsyncPacedReader, AsyncPacedWriter};
pub use io::{PacedReader, PacedWriter};
pub use stats::{LimiterQueueStats, LimiterStats};
#[cfg(feature = "stream")]
pub use stream::PacedStream;
pub(crate) use take::Tokens;

use crate::Priority;
use crate::deadline::Deadline;
use crate::error::{AcquireError, CreateError, TryAcquireError};
use crate::layout::{Gate, LimiterHot, Record};
use crate::park::Post;
use crate::park::waiter::Wish;
use crate::protocol::bucket::Bucket;
use crate::protocol::turn::Why;
use crate::segment::attachment::Attachment;
use crate::segment::{Handle, local};
use crate::settings::Settings;
use crate::sys::mapping::Lent;
use crate::trace::{Trace, Tracer};
use crate::waiting::future::Taking;
use std::sync::Arc;

/// Hands out tokens, usually bytes, at a rate: the most urgent waiter of any process first, within a priority in order of
/// arrival.
///
/// Get one from [`Segment::limiter`](crate::Segment::limiter) to share its rate with other processes, or make a
/// [`Limiter::local`] one; both are the same code. Clones share the member. [`Limiter::child`] adds a rate of its own.
///
/// # What it promises
///
/// - Tokens per second is the rate and the capacity: a bucket that is full at creation (X4) and that time fills, exactly,
///   at any rate from 1 to 2147483647 (H3). In any stretch of time no more is taken than it earned and a bucket full, but
///   for what is admitted into debt.
/// - Debits are exact: one compare-exchange checks and takes. A request that has to wait is served in order, never passed
///   by one that came later at its priority or below, whoever polls how often.
/// - More than the capacity is admitted when the bucket is full, into debt, which later refills pay first (I18, I20).
/// - Nobody starves: if the front of a priority has not got on for a second, it is admitted into debt, one for each
///   priority and second at most (I15, I19), unless the debt would not fit into 32 bits (I17).
///
/// # Cancel safety
///
/// Every future here may be dropped at any time: it leaves the queue, takes nothing, and those behind it get on.
///
/// # Memory ordering
///
/// Tokens carry no data: taking them orders nothing but the debits themselves.
///
/// ```
/// use shmsched::{Limiter, Priority};
///
/// let limiter = Limiter::local(1_000_000)?; // a megabyte a second
/// limiter.blocking_acquire(400_000, Priority::Normal)?; // at once: the bucket is full
/// assert!(limiter.try_consume(600_000).is_ok());
/// assert!(limiter.try_consume(600_000).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Limiter {
    handle: Arc<Handle>,
    /// The hot line and the records, as in the attachment: one load away, and known not to change.
    hot: Lent<LimiterHot>,
    records: Lent<[Record]>,
    trace: Tracer,
}

/// The source's former name for it (H13).
#[deprecated(note = "renamed to Limiter")]
pub type Throttle = Limiter;

impl Limiter {
    pub(crate) fn of(handle: Arc<Handle>) -> Limiter {
        Limiter::traced(handle, Tracer::default())
    }

    fn traced(handle: Arc<Handle>, trace: Tracer) -> Limiter {
        let views = &handle.attachment.views;
        let (hot, records) = (views.limiter_hot.clone(), views.records.clone());
        Limiter {
            handle,
            hot,
            records,
            trace,
        }
    }

    /// A handle of the same member that tells somebody else, or nobody (H5, H6). [`Limiter::child`] inherits it (K12).
    #[must_use]
    pub fn with_trace(&self, trace: Trace) -> Limiter {
        Limiter::traced(self.handle.clone(), self.trace.to(trace))
    }

    /// A Limiter of this process alone: the same code over a private mapping.
    ///
    /// # Errors
    ///
    /// [`CreateError::Invalid`] unless the rate is 1..=2147483647 (H4), or the system has no memory.
    pub fn local(tokens_per_second: u32) -> Result<Limiter, CreateError> {
        let settings = Settings::new().rate(tokens_per_second);
        Ok(Limiter::of(local(settings, None)?))
    }

    /// A Limiter with a rate of its own that also obeys this one, and what this one obeys (K1, K2).
    ///
    /// Its bucket is of this process alone (K10). A request takes its tokens at every level, or waits and has taken none:
    /// first its turn among the child's own, then in the parent's line like everybody there. What is forced into debt is
    /// so at every level (K5), and counted by the child (X34). Dropping the child leaves the parent as it was (K8). It is
    /// traced as this handle is, unless it [says otherwise](Limiter::with_trace) (K12).
    ///
    /// ```
    /// # use shmsched::{Limiter, Priority};
    /// let all = Limiter::local(16_000_000)?;
    /// let worker = all.child(4_000_000)?;
    /// worker.blocking_acquire(1_000, Priority::Normal)?; // from both
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Limiter::local`].
    pub fn child(&self, tokens_per_second: u32) -> Result<Limiter, CreateError> {
        let settings = Settings::new().rate(tokens_per_second);
        let handle = local(settings, Some(self.handle.clone()))?;
        Ok(Limiter::traced(handle, self.trace.clone()))
    }

    pub(crate) fn attachment(&self) -> &Arc<Attachment> {
        &self.handle.attachment
    }

    fn wish(&self, tokens: u32, priority: Priority) -> Wish {
        let (gate, lane) = (Gate::Limiter, priority.index());
        Wish {
            post: Post { gate, lane },
            amount: tokens,
            bound: 0,
            ceiling: 0,
        }
    }

    /// Takes tokens if the balance has them all and nobody waits, at any priority (I24); more than the capacity never
    /// (X30). None wanted: whenever nobody waits, whatever the balance (I8, I9).
    ///
    /// # Errors
    ///
    /// [`TryAcquireError::NoTokens`]: it would have to wait. [`TryAcquireError::Failed`]: it can never succeed, for what
    /// [`Limiter::acquire`] says. Nothing was taken.
    ///
    /// ```
    /// # use shmsched::{Limiter, TryAcquireError};
    /// let limiter = Limiter::local(10)?;
    /// assert_eq!(limiter.try_consume(11), Err(TryAcquireError::NoTokens));
    /// assert_eq!(limiter.try_consume(10), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_consume(&self, tokens: u32) -> Result<(), TryAcquireError> {
        if self.take_or_tell(tokens, None)? || self.try_at_last(tokens)? {
            return Ok(());
        }
        Err(TryAcquireError::NoTokens)
    }

    /// Waits for tokens, 0 to 2147483647 of them (I6), on any executor.
    ///
    /// ```
    /// # use shmsched::{Limiter, Priority};
    /// # futures_executor::block_on(async {
    /// let limiter = Limiter::local(1_000)?;
    /// limiter.acquire(1_000, Priority::Normal).await?; // at once: the bucket is full
    /// limiter.acquire(10, Priority::Normal).await?; // 10 ms later
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`AcquireError`]: more than 2147483647 tokens, segment retired, gone or damaged, handle used after a fork, or no
    /// thread to be had that wakes tasks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; the place in it is lost, no token is.
    pub async fn acquire(&self, tokens: u32, priority: Priority) -> Result<(), AcquireError> {
        self.acquire_until(tokens, priority, Deadline::Never).await
    }

    /// Waits for tokens until a deadline, on any executor: no timer of a runtime is needed. A duration counts from the
    /// call, not from the first poll.
    ///
    /// # Errors
    ///
    /// As [`Limiter::acquire`], and [`AcquireError::TimedOut`]: nothing was taken.
    ///
    /// # Cancel safety
    ///
    /// As [`Limiter::acquire`].
    pub fn acquire_until(
        &self,
        tokens: u32,
        priority: Priority,
        until: impl Into<Deadline>,
    ) -> impl Future<Output = Result<(), AcquireError>> + Send {
        // Now, not at the first poll: a duration counts from the call.
        let until = until.into();
        async move {
            let ask = Tokens(self, tokens, priority);
            Taking::new(ask, until.stamp()).await
        }
    }

    /// The same as a value that owns what it needs, for who keeps it.
    #[cfg(any(feature = "tokio", feature = "stream", feature = "tower"))]
    pub(crate) fn acquire_kept(
        &self,
        tokens: u32,
        priority: Priority,
        until: Deadline,
    ) -> Taking<Tokens<Limiter>> {
        Taking::new(Tokens(self.clone(), tokens, priority), until.stamp())
    }

    /// Blocks this thread until it has its tokens. Do not call it on a thread that an executor needs. [`Limiter`] has an
    /// example.
    ///
    /// # Errors
    ///
    /// As [`Limiter::acquire`].
    pub fn blocking_acquire(&self, tokens: u32, priority: Priority) -> Result<(), AcquireError> {
        self.blocking_acquire_until(tokens, priority, Deadline::Never)
    }

    /// Blocks this thread until it has its tokens, or a deadline passes.
    ///
    /// # Errors
    ///
    /// As [`Limiter::acquire_until`].
    pub fn blocking_acquire_until(
        &self,
        tokens: u32,
        priority: Priority,
        until: impl Into<Deadline>,
    ) -> Result<(), AcquireError> {
        if self.take_or_tell(tokens, Some(priority))? {
            return Ok(());
        }
        let ask = Tokens(self, tokens, priority);
        self.attachment().wait_here(&ask, until.into().stamp())
    }

    /// Gives back tokens that were taken for something that did not happen, at every level; never above the capacity.
    /// Wakes whoever can go on with them. Tokens that were not taken before create some: nothing checks.
    ///
    /// ```
    /// # use shmsched::Limiter;
    /// let limiter = Limiter::local(10)?;
    /// limiter.try_consume(10)?;
    /// limiter.refund(4); // four were not sent after all
    /// assert!(limiter.try_consume(4).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refund(&self, tokens: u32) {
        let attachment = self.attachment();
        if tokens == 0 || attachment.failure() == Some(AcquireError::Forked) {
            return;
        }
        attachment.give_tokens_back(tokens);
        let mut level = Some(attachment);
        while let Some(attachment) = level {
            attachment.advance(Gate::Limiter, None, Why::Sooner);
            level = attachment.parent.as_ref().map(|parent| &parent.attachment);
        }
    }

    /// The rate, which is also the capacity (H7). 0 in a forked child.
    pub fn tokens_per_second(&self) -> u32 {
        match self.attachment().failure() {
            Some(AcquireError::Forked) => 0,
            _ => Bucket { hot: &self.hot }.rate(),
        }
    }

    /// The lowest rate of all levels, which is the most that fits into each bucket. 0 in a forked child.
    fn capacity(&self) -> u32 {
        let mut capacity = self.tokens_per_second();
        let mut level = &self.handle;
        while capacity != 0
            && let Some(parent) = &level.attachment.parent
        {
            let hot: &LimiterHot = &parent.attachment.views.limiter_hot;
            capacity = capacity.min(Bucket { hot }.rate());
            level = parent;
        }
        capacity
    }
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter")
            .field("tokens_per_second", &self.tokens_per_second())
            .finish_non_exhaustive()
    }
}
