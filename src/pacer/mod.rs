//! The Pacer: how far apart calls start, over all processes that share a segment.

mod call;
mod cancel;
mod ms;
mod start;
mod stats;
mod turn;

pub use call::CallError;
pub use cancel::{CancelToken, Cancelled};
pub use stats::PacerStats;

use crate::deadline::Deadline;
use crate::error::{AcquireError, CreateError, StartError, TryStartError};
use crate::segment::attachment::Attachment;
use crate::segment::{Handle, local};
use crate::settings::Settings;
use crate::trace::{Trace, Tracer};
use crate::waiting::Ask;
use crate::waiting::future::Taking;
use std::sync::Arc;
use std::time::Duration;

/// Lets calls start at least an interval apart, over all processes, in order of arrival.
///
/// For a service that wants its calls some time apart, whoever makes them, retries included (P1, P46); choose the interval
/// longer than what the service asks for, by the jitter of what lies between (docs/hazards.md). For bytes or calls per second,
/// with bursts, there is the [`Limiter`](crate::Limiter).
///
/// Get one from [`Segment::pacer`](crate::Segment::pacer), or make a [`Pacer::local`] one; both are the same code. Clones
/// share the member.
///
/// # What it promises
///
/// - Between two starts lies the interval at least, whoever starts and however late (P8): no credit is saved up while
///   nobody comes (P9), and a late start never makes the next come early (P10). It is measured from when a start is
///   handed to its caller, for [`Pacer::run`] right before the operation is called (P12), to the next; from where
///   [`Pacer::try_start`] takes one at once, with nothing to do before it returns. The clock is monotonic (P39).
/// - Order of arrival over all processes (P21); at most `max_waiting` callers wait, and one more is refused (P17). A retry is
///   an arrival like any other (P22).
/// - It paces starts and waits for no end: operations overlap (P29). A start that was taken is spent, whatever becomes of
///   its operation (P27).
/// - A caller that is stopped or killed while it waits is passed over; there is no state in which a caller that was let in
///   but has not begun could hold up the others. The price: a process that is stopped for longer than an interval within
///   the microseconds between its start and its operation begins it whenever it goes on.
///
/// ```text
/// interval       |---------|---------|---------|---------|---------|---------|
/// calls          abc                                d                     e
/// starts         a         b         c              d                     e
///
/// c is late      abc
/// starts         a         b             c         the next
/// ```
///
/// # Cancel safety
///
/// Every future here may be dropped at any time: while it waits it gives up its place, which is free at once, and takes no
/// start (P24). A start that was taken is spent (P27).
///
/// # Memory ordering
///
/// A start carries no data: it orders nothing but the starts themselves.
///
/// ```
/// use shmsched::{Pacer, TryStartError};
/// use std::time::Duration;
///
/// # futures_executor::block_on(async {
/// let pacer = Pacer::local(Duration::from_millis(20), 8)?;
/// let answer = pacer.run(|| async { "pong" }).await?; // at once: the first
/// assert_eq!(answer, "pong");
/// assert_eq!(pacer.try_start(), Err(TryStartError::NotYet));
/// pacer.start().await?; // 20 ms later
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Pacer {
    handle: Arc<Handle>,
    trace: Tracer,
}

impl Pacer {
    pub(crate) fn of(handle: Arc<Handle>) -> Pacer {
        let trace = Tracer::default();
        Pacer { handle, trace }
    }

    /// A Pacer of this process alone: the same code over a private mapping. See also [`Pacer::local_ms`].
    ///
    /// # Errors
    ///
    /// [`CreateError::Invalid`]: an interval of zero, or more than 65,536 callers (a huge interval saturates); or the
    /// system has no memory.
    pub fn local(interval: Duration, max_waiting: u32) -> Result<Pacer, CreateError> {
        let settings = Settings::new().interval(interval).max_waiting(max_waiting);
        Ok(Pacer::of(local(settings, None)?))
    }

    /// A handle of the same member that tells somebody else, or nobody.
    #[must_use]
    pub fn with_trace(&self, trace: Trace) -> Pacer {
        let handle = self.handle.clone();
        let trace = self.trace.to(trace);
        Pacer { handle, trace }
    }

    pub(crate) fn attachment(&self) -> &Arc<Attachment> {
        &self.handle.attachment
    }

    /// Starts now, if it is time and nobody waits (P15).
    ///
    /// # Errors
    ///
    /// [`TryStartError::NotYet`]: it would have to wait. [`TryStartError::Failed`]: it can never succeed, for what
    /// [`Pacer::start`] says.
    pub fn try_start(&self) -> Result<(), TryStartError> {
        let ask = &self.asks(false);
        // What is taken at once was taken just now: between that and a second stamp lies less than the caller's own way to
        // its operation.
        match ask.take_now()? || (ask.take_at_last()? && ask.begin()) {
            true => Ok(()),
            false => Err(TryStartError::NotYet),
        }
    }

    /// Waits for a start, on any executor. Begin the operation right after: [`Pacer::run`] does. [`Pacer`] has an example.
    ///
    /// # Errors
    ///
    /// [`StartError::QueueFull`] (P17). [`StartError::Failed`]: segment retired, gone or damaged, handle used after a fork, or
    /// no thread to be had that wakes tasks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; its place in it is lost, no start is.
    pub async fn start(&self) -> Result<(), StartError> {
        self.start_until(Deadline::Never).await
    }

    /// Waits for a start until a deadline, on any executor: no timer of a runtime is needed.
    ///
    /// # Errors
    ///
    /// As [`Pacer::start`], and [`AcquireError::TimedOut`]: no start was taken.
    ///
    /// # Cancel safety
    ///
    /// As [`Pacer::start`].
    ///
    /// ```
    /// # use shmsched::{AcquireError, Pacer, StartError};
    /// # use std::time::Duration;
    /// # futures_executor::block_on(async {
    /// let pacer = Pacer::local(Duration::from_secs(60), 8)?;
    /// pacer.start().await?;
    /// let late = pacer.start_until(Duration::from_millis(5)).await;
    /// assert_eq!(late, Err(StartError::Failed(AcquireError::TimedOut)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn start_until(
        &self,
        until: impl Into<Deadline>,
    ) -> impl Future<Output = Result<(), StartError>> + Send {
        self.start_as(false, until.into())
    }

    /// The same for one who holds something others wait for: it finds a place though the queue is full, one for each
    /// member at a time.
    ///
    /// # Errors
    ///
    /// As [`Pacer::start_until`].
    ///
    /// # Cancel safety
    ///
    /// As [`Pacer::start`].
    pub fn start_holding_until(
        &self,
        until: impl Into<Deadline>,
    ) -> impl Future<Output = Result<(), StartError>> + Send {
        self.start_as(true, until.into())
    }

    async fn start_as(&self, spare: bool, until: Deadline) -> Result<(), StartError> {
        let (ask, until) = (self.asks(spare), until.stamp());
        loop {
            Taking::new(&ask, until).await?;
            if ask.begin() {
                return Ok(());
            }
        }
    }

    /// Blocks this thread until it may start. Do not call it on a thread that an executor needs.
    ///
    /// # Errors
    ///
    /// As [`Pacer::start`].
    pub fn blocking_start(&self) -> Result<(), StartError> {
        self.blocking_start_until(Deadline::Never)
    }

    /// Blocks this thread until it may start, or a deadline passes.
    ///
    /// # Errors
    ///
    /// As [`Pacer::start_until`].
    pub fn blocking_start_until(&self, until: impl Into<Deadline>) -> Result<(), StartError> {
        let (ask, until) = (&self.asks(false), until.into().stamp());
        loop {
            if !ask.take_now()? {
                self.attachment().wait_here(&ask, until)?;
            }
            if ask.begin() {
                return Ok(());
            }
        }
    }

    /// Runs an operation at its start: when it is time `operation` is called and its future polled, at once and in the same
    /// poll, so that it has begun (P30). Then it runs on beside the others (P29). To be able to cancel it with a reason:
    /// [`Pacer::run_cancellable`].
    ///
    /// A call within the operation is a call like any other, and cannot be immediate (P38).
    ///
    /// # Errors
    ///
    /// As [`Pacer::start`]: `operation` was not called then.
    ///
    /// # Panics
    ///
    /// With the operation; its start is spent, and who waits goes on (P28).
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits it leaves the queue, and `operation` is never called; afterwards the operation's future is
    /// dropped.
    pub async fn run<T, F: Future<Output = T>>(
        &self,
        operation: impl FnOnce() -> F,
    ) -> Result<T, StartError> {
        self.start().await?;
        Ok(operation().await)
    }

    /// The interval; zero in a forked child.
    pub fn interval(&self) -> Duration {
        match self.attachment().failure() {
            Some(AcquireError::Forked) => Duration::ZERO,
            _ => Duration::from_nanos(self.attachment().views.pacer().interval()),
        }
    }
}

impl std::fmt::Debug for Pacer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pacer")
            .field("interval", &self.interval())
            .finish_non_exhaustive()
    }
}
