//! The Scheduler: how many things run at once, over all processes that share a segment.

mod permit;
mod stats;
mod task;
mod turn;

use permit::Held;
pub use permit::{OwnedPermit, Permit};
pub use stats::{QueueStats, SharedStats, Stats};

use crate::Priority;
use crate::concurrency::Concurrency;
use crate::deadline::Deadline;
use crate::error::{AcquireError, CreateError, NothingHeld, TryAcquireError};
use crate::layout::{Gate, LANES, Record, SchedulerHot};
use crate::park::Post;
use crate::park::waiter::{Job, Wish};
use crate::protocol::ledger;
use crate::protocol::scheduler::{Limits, fast_bound};
use crate::segment::attachment::{Attachment, state};
use crate::segment::{Handle, Scope, local};
use crate::settings::{InvalidSettings, Settings};
use crate::sys::mapping::Lent;
use crate::trace::{Document, OnPanic, Teller, Trace, Tracer};
use crate::waiting::Ask;
use crate::waiting::future::Taking;
use std::borrow::Borrow;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use task::Task;

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
///   be overtaken by newcomers that never wait.
/// - Slots of a dead process come back by themselves: while somebody waits within about 100 ms.
///
/// # Cancel safety
///
/// Every future here may be dropped at any time: it leaves the queue, gives back nothing it did not take, and passes a
/// turn it was called for on to the next.
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

/// What an owned permit keeps of its Scheduler: one count to raise, where a Scheduler has several.
#[derive(Clone)]
pub(crate) struct Share(Arc<Handle>);

impl Share {
    fn share(&self) -> Share {
        self.clone()
    }

    #[inline(always)]
    fn give_fast(&self, slots: u32) -> bool {
        let Share(handle) = self;
        let views = &handle.attachment.views;
        handle
            .attachment
            .give_fast(&views.hot, &views.records, slots)
    }

    fn give_held(&self, held: Held) {
        self.0.attachment.give_held(held);
    }

    fn is_same(&self, other: &Share) -> bool {
        Arc::ptr_eq(&self.0.attachment, &other.0.attachment)
    }
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
    /// [`CreateError::Invalid`], or the system has no memory.
    pub fn local(concurrency: impl Into<Concurrency>) -> Result<Scheduler, CreateError> {
        let settings = Settings::new().concurrency(concurrency);
        Ok(Scheduler::shared(local(settings, None)?))
    }

    /// A handle of the same member with targets and a `max` of its own, resolved as the segment's are and never above
    /// them: they hold back this handle's callers only, and are compared with what runs in all processes (B17, B18,
    /// F11). [`Scheduler::concurrency`] goes on to report the segment's (A13).
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

    /// The fast path: no call, no clock, one line of the segment and the thread's own record.
    #[inline(always)]
    fn take_fast(&self, lane: usize, slots: u32) -> bool {
        let attachment = &self.handle.attachment;
        let Some(record) = attachment.hot_record(&self.records) else {
            return false;
        };
        let hot: &SchedulerHot = &self.hot;
        let unusual = hot.flags.peek()
            | hot.hurry.peek()
            | hot.hold_off.peek()
            | hot.summary.peek() & 1 << lane;
        if unusual != 0 {
            return false;
        }
        let bound = fast_bound(hot, lane, self.bounds[lane]);
        let taken = ledger::take(record, &hot.running, slots, bound, || {
            attachment.state.peek() != 0
        })
        .is_ok();
        // Every thousandth time: does the file still have its name?
        if taken && record.word.peek() >> 34 & 0x3ff == 0x3ff {
            attachment.notice_gone();
        }
        taken
    }

    /// Takes slots now; `false`: the caller must wait.
    #[inline]
    pub(crate) fn take_now(&self, lane: usize, slots: u32) -> Result<bool, AcquireError> {
        if slots == 1 && self.take_fast(lane, slots) {
            return Ok(true);
        }
        self.take_slow(lane, slots)
    }

    /// The same for a caller who goes on to wait or to fail: tells of what fails.
    #[inline]
    fn take_or_tell(&self, lane: usize, slots: u32) -> Result<bool, AcquireError> {
        self.told(lane, slots, self.take_now(lane, slots))
    }

    fn told(
        &self,
        lane: usize,
        slots: u32,
        taken: Result<bool, AcquireError>,
    ) -> Result<bool, AcquireError> {
        if let Err(failure) = &taken {
            self.tell_refusal(lane, slots, failure);
        }
        taken
    }

    #[cold]
    fn tell_refusal(&self, lane: usize, slots: u32, failure: &AcquireError) {
        if let Some(teller) = self.trace.teller(self.attachment()) {
            teller.refused(self.wish(lane, slots), failure);
        }
    }

    #[cold]
    fn take_slow(&self, lane: usize, slots: u32) -> Result<bool, AcquireError> {
        if let Some(failure) = self.attachment().failure_at(Gate::Scheduler) {
            return Err(failure);
        }
        if self.max == 0 {
            return Err(AcquireError::Zero);
        }
        if slots > self.max {
            return Err(AcquireError::DoesNotFit {
                amount: slots,
                concurrency: self.max,
            });
        }
        if slots == 0 {
            return Ok(true);
        }
        self.attachment().take_slots_now(self.wish(lane, slots))
    }

    #[inline(always)]
    pub(crate) fn give_fast(&self, slots: u32) -> bool {
        self.attachment().give_fast(&self.hot, &self.records, slots)
    }

    pub(crate) fn give_held(&self, held: Held) {
        self.attachment().give_held(held);
    }

    fn give(&self, slots: u32) {
        self.attachment().give(slots);
    }

    /// A try that is not the usual case.
    #[cold]
    #[inline(never)]
    fn try_slow(&self, slots: u32, priority: Priority) -> Result<(), TryAcquireError> {
        let lane = priority.index();
        let taken = self.take_slow(lane, slots);
        if self.told(lane, slots, taken)? || Slots(self, lane, slots).take_at_last()? {
            return Ok(());
        }
        Err(TryAcquireError::NoPermits)
    }

    /// Whether it had to wait.
    fn block(&self, slots: u32, priority: Priority, until: Deadline) -> Result<bool, AcquireError> {
        let lane = priority.index();
        if self.take_or_tell(lane, slots)? {
            return Ok(false);
        }
        let ask = Slots(self, lane, slots);
        self.attachment().wait_here(&ask, until.stamp())?;
        Ok(true)
    }

    async fn take(
        &self,
        slots: u32,
        priority: Priority,
        until: Deadline,
    ) -> Result<bool, AcquireError> {
        let mut taking = Taking::new(Slots(self, priority.index(), slots), until.stamp());
        (&mut taking).await?;
        Ok(taking.has_waited())
    }

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

    /// The wait for a slot as a value that owns what it needs, for who keeps it.
    #[cfg(feature = "tower")]
    pub(crate) fn acquire_kept(
        &self,
        priority: Priority,
        until: Deadline,
    ) -> Taking<Slots<Scheduler>> {
        Taking::new(Slots(self.clone(), priority.index(), 1), until.stamp())
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

    /// Runs a future under a slot: `f` is called once the slot is there, its future driven to the end, the slot given
    /// back whatever way it ends (C1, C2). Dropped while queued, `f` is never called; dropped while running, the slot
    /// is given back (X47).
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire`]: `f` was not called then.
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

    /// Blocks until there is a slot and runs a closure under it. A panic gives the slot back and goes on.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::acquire`]: `f` was not called then.
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

    /// The callback form: calls `f(value)` with a slot that `f`, or what it starts, gives back by
    /// [`Scheduler::release`] exactly once.
    ///
    /// `true`: a slot was free and `f` ran within this call (C5). `false`: it was queued, and runs on the thread that
    /// releases a slot, in a loop, never recursively; or, if another process released, on a thread of their own; maybe
    /// before this returns (C7). `false` also after dispose or close, when `f` is dropped (C6, E10).
    ///
    /// # Panics
    ///
    /// A panic of `f` gives the slot back; within this call it goes on to the caller (E3), from a queued `f` it ends at
    /// the panic hook (E4). Do not release then (E2).
    pub fn acquire_with<T: Send + 'static>(
        &self,
        f: impl FnOnce(T) + Send + 'static,
        priority: Priority,
        value: T,
    ) -> bool {
        let lane = priority.index();
        let attachment = self.attachment();
        match self.take_now(lane, 1) {
            Ok(true) => {
                called_back(attachment, &self.trace, || f(value), priority);
                return true;
            }
            // A concurrency of zero queues (X19).
            Ok(false) | Err(AcquireError::Zero) => {}
            Err(failure) => {
                self.tell_refusal(lane, 1, &failure);
                return false;
            }
        }
        // The queue must not keep the member attached, or it would never end.
        let weak = Arc::downgrade(&self.handle);
        let trace = self.trace.pinned();
        let job: Job = Box::new(move || {
            let Some(handle) = weak.upgrade() else { return };
            called_back(&handle.attachment, &trace, || f(value), priority);
        });
        let told = self.trace.teller(attachment).map(Teller::shared);
        if let Err(failure) = attachment.enqueue_job(self.wish(lane, 1), job, told) {
            self.tell_refusal(lane, 1, &failure);
        }
        false
    }

    /// Gives back a slot that [`Scheduler::acquire_with`] took, and starts who is next (C17). On whatever thread.
    ///
    /// # Errors
    ///
    /// [`NothingHeld`], and nothing changed, if this member holds no such slot (X21). One release too many while others
    /// hold some gives back theirs: prefer permits (E5).
    pub fn release(&self) -> Result<(), NothingHeld> {
        self.attachment().release()
    }

    /// The configured limit, of the segment and not of this handle (A13); `None` is unlimited (A12).
    pub fn concurrency(&self) -> Option<u32> {
        if self.attachment().failure_at(Gate::Scheduler) == Some(AcquireError::Forked) {
            return None;
        }
        u32::try_from(self.attachment().hot().concurrency.get()).ok()
    }

    /// Slots that are free now, under the limit alone; 2147483647 less what runs if unlimited.
    pub fn available_permits(&self) -> u32 {
        if self.attachment().failure_at(Gate::Scheduler) == Some(AcquireError::Forked) {
            return 0;
        }
        let hot = self.attachment().hot();
        let limit = Limits::read(hot).concurrency.min(NO_BOUND);
        limit.saturating_sub(hot.running.get().max(0) as u32)
    }

    /// Ends every wait of this member with [`AcquireError::Closed`] and every later acquire; permits stay valid.
    pub fn close(&self) {
        let attachment = self.attachment();
        if attachment.state.set_bits(state::CLOSED) & (state::CLOSED | state::FORKED) == 0 {
            attachment.fail_everybody(Gate::Scheduler);
        }
    }

    /// Whether [`Scheduler::close`] or [`Scheduler::dispose`] was called.
    pub fn is_closed(&self) -> bool {
        self.attachment().state.get() & (state::CLOSED | state::DISPOSED) != 0
    }

    /// Gives back at once every slot of this member, those of work that still runs included (E7), ends its waits with
    /// [`AcquireError::Disposed`], drops its queued callbacks (X20) and makes later releases do nothing (E13). So others
    /// may for a while run more than the limit (E17). A second time does nothing (E14).
    pub fn dispose(&self) {
        let attachment = self.attachment();
        if attachment.state.get() & (state::DISPOSED | state::FORKED) != 0 {
            return;
        }
        let teller = self.trace.teller_of("scheduler:dispose", attachment);
        let teller = teller.map(|teller| (teller, attachment.held()));
        attachment.give_all_back();
        attachment.raw_held.put(0);
        attachment.fail_everybody(Gate::Scheduler);
        attachment.ring_helper();
        attachment.advance_after_freeing();
        if let Some((teller, amount)) = teller {
            let complete = |document| Document { amount, ..document };
            teller.tell("scheduler:dispose", Gate::Scheduler, complete);
        }
    }

    /// Looks for dead members now and gives back what they held.
    pub fn look(&self) -> crate::Looked {
        self.attachment().look(Scope::Concerned)
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

/// Runs a callback whose slot is taken; a panic gives the slot back first.
fn called_back(attachment: &Arc<Attachment>, trace: &Tracer, f: impl FnOnce(), priority: Priority) {
    attachment.raw_held.add(1);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        let _ = attachment.release();
        if let Some(teller) = trace.teller(attachment) {
            teller.panicked(Gate::Scheduler, priority, 1);
        }
        resume_unwind(panic);
    }
}

/// What a caller of the Scheduler asks for: slots, in a lane.
pub(crate) struct Slots<S>(S, usize, u32);

impl<S: Borrow<Scheduler>> Ask for Slots<S> {
    type Error = AcquireError;

    fn attachment(&self) -> &Arc<Attachment> {
        self.0.borrow().attachment()
    }

    fn wish(&self) -> Wish {
        self.0.borrow().wish(self.1, self.2)
    }

    fn teller(&self) -> Option<Teller> {
        self.0.borrow().trace.teller(self.attachment())
    }

    fn take_now(&self) -> Result<bool, AcquireError> {
        self.0.borrow().take_or_tell(self.1, self.2)
    }

    fn give_back(&self) {
        self.0.borrow().give(self.2);
    }
}
