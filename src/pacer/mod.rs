//! The Pacer: how far apart calls start, over all processes that share a segment.

mod turn;

use crate::deadline::Deadline;
use crate::error::{AcquireError, CreateError, QueueFull, StartError, TryStartError};
use crate::layout::{Gate, REJECTED};
use crate::park::Post;
use crate::park::waiter::{Kind, Waiter, Wish};
use crate::segment::attachment::Attachment;
use crate::segment::{Handle, local};
use crate::settings::Settings;
use crate::sys::clock;
use crate::waiting::Ask;
use crate::waiting::future::Taking;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Lets calls start at least an interval apart, over all processes, in order of arrival.
///
/// Get one from [`Segment::pacer`](crate::Segment::pacer), or make a [`Pacer::local`] one; both are the same code.
///
/// # What it promises
///
/// - Between two starts lies the interval at least, whoever starts and however late (P8): no credit is saved up while
///   nobody comes (P9), and a late start never makes the next come early (P10).
/// - Order of arrival over all processes; at most `max_waiting` callers wait, and one more is refused (P17).
/// - A caller that is stopped or killed while it waits is passed over; there is no state in which a caller that was let in
///   but has not begun could hold up the others.
///
/// # Cancel safety
///
/// Every future here may be dropped at any time: while it waits it gives up its place, which is free at once, and takes no
/// start (P24). A start that was taken is spent (P27).
#[derive(Clone)]
pub struct Pacer {
    handle: Arc<Handle>,
}

impl Pacer {
    pub(crate) fn of(handle: Arc<Handle>) -> Pacer {
        Pacer { handle }
    }

    /// A Pacer of this process alone: the same code over a private mapping.
    ///
    /// # Errors
    ///
    /// [`CreateError::Invalid`]: no interval, or more than 65,536 callers; or the system has no memory.
    pub fn local(interval: Duration, max_waiting: u32) -> Result<Pacer, CreateError> {
        let settings = Settings::new().interval(interval).max_waiting(max_waiting);
        Ok(Pacer::of(local(settings, None)?))
    }

    pub(crate) fn attachment(&self) -> &Arc<Attachment> {
        &self.handle.attachment
    }

    /// Starts now, if it is time and nobody waits (P15).
    ///
    /// # Errors
    ///
    /// [`TryStartError::NotYet`]: it would have to wait.
    pub fn try_start(&self) -> Result<(), TryStartError> {
        let ask = Start {
            pacer: self,
            spare: false,
        };
        match ask.take_now()? || ask.take_at_last()? {
            true => Ok(()),
            false => Err(TryStartError::NotYet),
        }
    }

    /// Waits for a start. Begin the operation right after: [`Pacer::run`] does.
    ///
    /// # Errors
    ///
    /// [`StartError::QueueFull`], and what ends any wait.
    pub async fn start(&self) -> Result<(), StartError> {
        self.start_until(Deadline::Never).await
    }

    /// Waits for a start until a deadline.
    ///
    /// # Errors
    ///
    /// As [`Pacer::start`], and [`AcquireError::TimedOut`]: no start was taken.
    pub fn start_until(
        &self,
        until: impl Into<Deadline>,
    ) -> impl Future<Output = Result<(), StartError>> + Send {
        let until = until.into();
        async move {
            let ask = Start {
                pacer: self,
                spare: false,
            };
            Taking::new(ask, until.stamp()).await
        }
    }

    /// The same for one who holds something others wait for: it finds a place though the queue is full, one for each
    /// member at a time.
    ///
    /// # Errors
    ///
    /// As [`Pacer::start_until`].
    pub fn start_holding_until(
        &self,
        until: impl Into<Deadline>,
    ) -> impl Future<Output = Result<(), StartError>> + Send {
        let until = until.into();
        async move {
            let ask = Start {
                pacer: self,
                spare: true,
            };
            Taking::new(ask, until.stamp()).await
        }
    }

    /// Blocks this thread until it may start.
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
        let ask = Start {
            pacer: self,
            spare: false,
        };
        if ask.take_now()? {
            return Ok(());
        }
        self.attachment().wait_here(&ask, until.into().stamp())
    }

    /// Runs an operation at its start: when it is time `operation` is called and its future polled once, before the turn
    /// passes on, since futures are lazy (P30). Then it runs on beside the others (P29).
    ///
    /// # Errors
    ///
    /// As [`Pacer::start`]: `operation` was not called then.
    pub async fn run<T, F: Future<Output = T>>(
        &self,
        operation: impl FnOnce() -> F,
    ) -> Result<T, StartError> {
        let ask = Start {
            pacer: self,
            spare: false,
        };
        let mut start = Taking::keeping(ask, None);
        (&mut start).await?;
        let mut operation = pin!(operation());
        let first = poll_fn(|context| Poll::Ready(operation.as_mut().poll(context))).await;
        start.pass_on();
        match first {
            Poll::Ready(value) => Ok(value),
            Poll::Pending => Ok(operation.await),
        }
    }

    /// The interval.
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

/// What a caller of a Pacer asks for.
struct Start<'a> {
    pacer: &'a Pacer,
    /// Whether it may stand in its member's own place.
    spare: bool,
}

impl Start<'_> {
    /// A place in line, one of those that callers share first.
    fn spot(&self) -> Option<u32> {
        let attachment = self.attachment();
        let geometry = attachment.views.geometry;
        let line = attachment.views.line(Gate::Pacer);
        let shared = geometry.members..geometry.members + geometry.max_waiting;
        let own = attachment.me..attachment.me + u32::from(self.spare);
        let owner = attachment.owner();
        line.take_spot(shared, owner)
            .or_else(|| line.take_spot(own, owner))
    }
}

impl Ask for Start<'_> {
    type Error = StartError;

    fn attachment(&self) -> &Arc<Attachment> {
        self.pacer.attachment()
    }

    fn wish(&self) -> Wish {
        let (gate, lane) = (Gate::Pacer, 0);
        Wish {
            post: Post { gate, lane },
            amount: 1,
            bound: 0,
            ceiling: 0,
        }
    }

    fn take_now(&self) -> Result<bool, StartError> {
        let attachment = self.attachment();
        if let Some(failure) = attachment.failure_at(Gate::Pacer) {
            return Err(failure.into());
        }
        Ok(attachment.start_now())
    }

    fn join(&self, kind: Kind, deadline: Option<u64>) -> Result<Arc<Waiter>, StartError> {
        let attachment = self.attachment();
        // Not refused on the account of a dead one.
        let spot = self.spot().or_else(|| {
            attachment.look_if_stale();
            self.spot()
        });
        let Some(spot) = spot else {
            attachment.member().pacer[REJECTED].add(1);
            return Err(QueueFull.into());
        };
        let waiter = Waiter::at(spot, kind, self.wish(), clock::now(), deadline);
        let waiter = Arc::new(waiter);
        match attachment.enqueue(&waiter) {
            Ok(()) => Ok(waiter),
            Err(failure) => {
                let line = attachment.views.line(Gate::Pacer);
                line.free_spot(spot, attachment.owner());
                Err(failure.into())
            }
        }
    }
}
