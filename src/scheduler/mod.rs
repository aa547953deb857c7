//! The Scheduler: how many things run at once, over all processes that share a segment.

mod acquire;
mod callbacks;
mod close;
mod give;
mod permit;
mod run;
mod short;
mod spares;
mod stats;
mod take;
mod task;
mod turn;

use permit::{Held, Share};
pub use permit::{OwnedPermit, Permit};
pub use stats::{QueueStats, SharedStats, Stats};
#[cfg(feature = "tower")]
pub(crate) use take::Slots;

use crate::concurrency::Concurrency;
use crate::error::{AcquireError, CreateError};
use crate::layout::{Gate, LANES, Record, SchedulerHot};
use crate::park::Post;
use crate::park::waiter::Wish;
use crate::protocol::ledger::spare;
use crate::protocol::scheduler::Limits;
use crate::segment::attachment::Attachment;
use crate::segment::{Handle, Scope, local};
use crate::settings::{InvalidSettings, Settings};
use crate::sys::mapping::Lent;
use crate::trace::{Trace, Tracer};
use std::sync::Arc;
use std::time::Duration;

/// Hands out slots, the most urgent waiter of any process first, within a priority in order of arrival.
///
/// Get one from [`Segment::scheduler`](crate::Segment::scheduler) to share its slots with other processes, or make a
/// [`Scheduler::local`] one; both are the same code. Clones share the member; [`Scheduler::with`] adds lower targets of
/// the handle's own.
///
/// # What it promises
///
/// - Admission never exceeds the limit: one compare-exchange checks and takes.
/// - A waiter's place is settled in the segment: priority first (with a lottery, so that nothing starves), then order
///   of arrival; a process with many waiters takes turns with the others. For 500 us after its turn came a waiter may
///   be overtaken by newcomers that never wait; for 500 us more by threads that take slots for less than 2 us.
/// - Slots of a dead process come back by themselves: while somebody waits within some ms, about
///   100 where its process cannot be watched.
///
/// # Threads
///
/// Who has waited in front for some ms has a thread of its process watch those who hold slots, by up to 66 descriptors.
/// Tasks and callbacks that wait have one that wakes them.
///
/// # Cancel safety
///
/// Every future here may be dropped at any time: it leaves the queue, gives back nothing it did not take, and passes a
/// turn it was called for on to the next. One that is not polled for 250 ms when its turn comes lets others go first, and
/// has its turn when it is polled.
///
/// # Polls
///
/// No poll here blocks. One that joins the line as the very first of all may stay awake for up to 10 us before it returns
/// pending, as a blocked thread does for 2 us before it sleeps; never again in the same wait.
///
/// # Memory ordering
///
/// Giving a slot back happens before it is taken again, in any process. A failed try orders nothing.
///
/// ```
/// use shmsched::{Concurrency, Priority, Scheduler};
///
/// let scheduler = Scheduler::local(Concurrency::max(2))?;
/// let first = scheduler.try_acquire(Priority::Normal)?;
/// let second = scheduler.blocking_acquire(Priority::Low)?;
/// assert!(scheduler.try_acquire(Priority::Highest).is_err());
/// drop(first);
/// assert_eq!(scheduler.available_permits(), 1);
/// # drop(second);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Scheduler {
    handle: Arc<Handle>,
    /// The hot line and the records, as in the attachment: one load away, and known not to change.
    hot: Lent<SchedulerHot>,
    records: Lent<[Record]>,
    /// What this handle adds to the segment's targets; `i32::MAX` is nothing.
    pub(crate) bounds: [u32; LANES],
    /// Smallest overall limit that this handle knows of.
    max: u32,
    trace: Tracer,
}

const NO_BOUND: u32 = i32::MAX as u32;

impl Scheduler {
    pub(crate) fn shared(handle: Arc<Handle>) -> Scheduler {
        Scheduler::bounded(handle, [NO_BOUND; LANES], NO_BOUND, Tracer::default())
    }

    fn bounded(handle: Arc<Handle>, bounds: [u32; LANES], max: u32, trace: Tracer) -> Scheduler {
        let views = &handle.attachment.views;
        let (hot, records) = (views.hot.clone(), views.records.clone());
        Scheduler {
            handle,
            hot,
            records,
            bounds,
            max,
            trace,
        }
    }

    /// A Scheduler of this process alone: the same code over a private mapping.
    ///
    /// # Errors
    ///
    /// [`CreateError::Invalid`]: a limit or a target above 2147483647 (A10); or the system has no memory.
    pub fn local(concurrency: impl Into<Concurrency>) -> Result<Scheduler, CreateError> {
        let settings = Settings::new().concurrency(concurrency);
        Ok(Scheduler::shared(local(settings, None)?))
    }

    /// A handle of the same member with targets and a `max` of its own, resolved as the segment's are and never above
    /// them: they hold back this handle's callers only, and are compared with what runs in all processes (B17, B18,
    /// F11). [`Scheduler::concurrency`] goes on to report the segment's (A13). A number above 2147483647 counts as that.
    ///
    /// ```
    /// # use shmsched::{Concurrency, Priority, Scheduler};
    /// let all = Scheduler::local(8)?;
    /// let batch = all.with(Concurrency::max(2));
    /// let (_one, _two) = (batch.try_acquire(Priority::Normal)?, batch.try_acquire(Priority::Normal)?);
    /// assert!(batch.try_acquire(Priority::Normal).is_err());
    /// assert!(all.try_acquire(Priority::Normal).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with(&self, concurrency: impl Into<Concurrency>) -> Scheduler {
        let concurrency = concurrency.into();
        let bounds = concurrency
            .resolve()
            .map(|target| target.unwrap_or(NO_BOUND).min(NO_BOUND));
        let max = concurrency.max.unwrap_or(NO_BOUND).min(NO_BOUND);
        let both = std::array::from_fn(|lane| bounds[lane].min(self.bounds[lane]).min(max));
        let trace = self.trace.clone();
        Scheduler::bounded(self.handle.clone(), both, self.max.min(max), trace)
    }

    /// A handle of the same member that tells somebody else, or nobody (A7, A8).
    #[must_use]
    pub fn with_trace(&self, trace: Trace) -> Scheduler {
        self.traced(self.trace.to(trace))
    }

    /// A handle of the same member that tells of a `run` that succeeded only if it waited or ran for so long at least
    /// (O10). Zero, which it is at first, is all of them (O11); what went wrong is always told (O12), and so are all other
    /// operations (O13).
    #[must_use]
    pub fn with_trace_threshold(&self, threshold: Duration) -> Scheduler {
        self.traced(self.trace.above(threshold))
    }

    /// [`Scheduler::with_trace_threshold`] in the source's number, milliseconds that may have a fraction.
    ///
    /// # Errors
    ///
    /// [`InvalidSettings::TraceThresholdMs`] unless it is finite and not negative (A9).
    pub fn with_trace_threshold_ms(&self, ms: f64) -> Result<Scheduler, InvalidSettings> {
        Ok(self.traced(self.trace.above_ms(ms)?))
    }

    fn traced(&self, trace: Tracer) -> Scheduler {
        Scheduler {
            trace,
            ..self.clone()
        }
    }

    pub(crate) fn attachment(&self) -> &Arc<Attachment> {
        &self.handle.attachment
    }

    fn share(&self) -> Share {
        Share(self.handle.clone())
    }

    /// A permit for slots that were taken, after a wait or without one.
    pub(crate) fn owned(&self, slots: u32, waited: bool) -> OwnedPermit {
        OwnedPermit::after(self.share(), slots, waited)
    }

    fn wish(&self, lane: usize, amount: u32) -> Wish {
        let gate = Gate::Scheduler;
        Wish {
            post: Post { gate, lane },
            amount,
            bound: self.bounds[lane],
            ceiling: self.max,
        }
    }

    pub(crate) fn is_same(&self, other: &Scheduler) -> bool {
        Arc::ptr_eq(self.attachment(), other.attachment())
    }

    /// The configured limit in slots, of the segment and not of this handle (A13); `None` is unlimited (A12), or a forked
    /// child.
    pub fn concurrency(&self) -> Option<u32> {
        if self.attachment().failure_at(Gate::Scheduler) == Some(AcquireError::Forked) {
            return None;
        }
        u32::try_from(self.attachment().hot().concurrency.get()).ok()
    }

    /// Slots that are free now, under the limit alone; 2147483647 less what runs if unlimited. Of the moment: before the
    /// caller acts on it another process may have taken them. 0 in a forked child.
    pub fn available_permits(&self) -> u32 {
        if self.attachment().failure_at(Gate::Scheduler) == Some(AcquireError::Forked) {
            return 0;
        }
        let hot = self.attachment().hot();
        let limit = Limits::read(hot).concurrency.min(NO_BOUND);
        limit.saturating_sub(self.attachment().views.running().max(0) as u32)
    }

    /// Looks for dead members now and gives back what they held: of those that hold something or wait;
    /// [`Segment::look`](crate::Segment::look) asks about all. Who waits does so by itself.
    pub fn look(&self) -> crate::Looked {
        self.attachment().look(Scope::Concerned)
    }

    /// For tests: spare slots are allowed from now on, however long ago they were recalled.
    #[doc(hidden)]
    pub fn allow_spares(&self) {
        // There is no segment in a forked child.
        if self.attachment().failure_at(Gate::Scheduler).is_none() {
            spare::allow(&self.hot.spares);
        }
    }

    /// For tests: spare slots are lent from now on, though this thread was not brisk.
    #[doc(hidden)]
    pub fn lend_spares(&self) {
        if self.attachment().failure_at(Gate::Scheduler).is_none() {
            self.attachment().lend_spares_now(crate::sys::clock::now());
        }
    }

    /// For tests: fixes the lottery's draw of this member (0..127, lower is more urgent); `None` is chance again.
    #[doc(hidden)]
    pub fn fix_draw(&self, draw: Option<u32>) {
        self.attachment().draw.put(draw.map_or(0, |draw| draw + 1));
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("concurrency", &self.concurrency())
            .finish_non_exhaustive()
    }
}
