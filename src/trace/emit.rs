//! From what happens to documents: who listens, and what they are told.

use super::warning::warn;
use super::{DEFAULTS, Document, Outcome, Trace, Writer, thread_default};
use crate::Priority;
use crate::error::AcquireError;
use crate::layout::Gate;
use crate::park::waiter::{Silence, Step, Told, Waiter, Wish, note};
use crate::segment::MemberId;
use crate::segment::attachment::Attachment;
use crate::settings::InvalidSettings;
use crate::sys::clock;
use std::cell::Cell;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The operations that the gates have alike.
struct Names {
    queue: &'static str,
    dispatch: &'static str,
    cancel: &'static str,
    error: &'static str,
    /// The first of a member's requests waits.
    first: &'static str,
    /// None does any more.
    none: &'static str,
}

fn names(gate: Gate) -> &'static Names {
    match gate {
        Gate::Scheduler => &Names {
            queue: "scheduler:queue",
            dispatch: "scheduler:dispatch",
            cancel: "scheduler:cancel",
            error: "scheduler:error",
            first: "scheduler:park",
            none: "scheduler:unpark",
        },
        Gate::Limiter => &Names {
            queue: "limiter:queue",
            dispatch: "limiter:dispatch",
            cancel: "limiter:cancel",
            error: "limiter:error",
            first: "limiter:backlog",
            none: "limiter:backlog",
        },
        Gate::Pacer => &Names {
            queue: "pacer:queue",
            dispatch: "pacer:dispatch",
            cancel: "pacer:cancel",
            error: "pacer:error",
            first: "pacer:backlog",
            none: "pacer:backlog",
        },
    }
}

thread_local! {
    /// Whether this thread is within a writer.
    static WRITING: Cell<bool> = const { Cell::new(false) };
}

/// What a handle has of tracing.
#[derive(Clone, Default)]
pub(crate) struct Tracer {
    trace: Trace,
    /// Tasks that waited and ran for less each are not told.
    pub threshold: Duration,
}

impl Tracer {
    pub fn to(&self, trace: Trace) -> Tracer {
        let threshold = self.threshold;
        Tracer { trace, threshold }
    }

    pub fn above(&self, threshold: Duration) -> Tracer {
        let trace = self.trace.clone();
        Tracer { trace, threshold }
    }

    /// The threshold in the source's number (A9).
    pub fn above_ms(&self, ms: f64) -> Result<Tracer, InvalidSettings> {
        if !ms.is_finite() || ms < 0.0 {
            return Err(InvalidSettings::TraceThresholdMs);
        }
        // What is too long for a Duration is longer than any task.
        let threshold = Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX);
        Ok(self.above(threshold))
    }

    /// The same, for another thread to go on with.
    pub fn pinned(&self) -> Tracer {
        match &self.trace {
            Trace::Default if DEFAULTS.peek() != 0 => match thread_default() {
                Some(writer) => self.to(Trace::Writer(writer)),
                None => self.clone(),
            },
            _ => self.clone(),
        }
    }

    /// Who would listen to this operation. Where nobody does that costs a field of the handle and a word of the process.
    #[inline]
    fn listener(&self, operation: &'static str) -> Option<Writer> {
        match &self.trace {
            Trace::Disabled => None,
            Trace::Default if !cfg!(feature = "tracing") && DEFAULTS.peek() == 0 => None,
            _ => self.look(operation),
        }
    }

    #[cold]
    fn look(&self, operation: &'static str) -> Option<Writer> {
        if WRITING.get() {
            return None;
        }
        match &self.trace {
            Trace::Disabled => None,
            Trace::Writer(writer) => writer.hears(operation).then(|| writer.clone()),
            Trace::Default => match thread_default() {
                Some(writer) => Some(writer).filter(|writer| writer.hears(operation)),
                None => Writer::by_default(operation),
            },
        }
    }

    /// If nobody listens, and nobody who is there now has to be kept to be asked later.
    #[inline]
    pub fn silence(&self) -> Option<Silence> {
        match &self.trace {
            Trace::Writer(_) => None,
            Trace::Disabled => Some(Silence::ForEver),
            Trace::Default => {
                let silent = DEFAULTS.peek() == 0
                    && (!cfg!(feature = "tracing") || self.look("scheduler:error").is_none());
                silent.then_some(Silence::Now)
            }
        }
    }

    /// What tells a member's news of whatever kind, if anybody listens.
    #[inline]
    pub fn teller(&self, attachment: &Attachment) -> Option<Teller> {
        // Who hears of anything hears of errors.
        self.teller_of("scheduler:error", attachment)
    }

    /// What tells a member's news of one kind, if anybody listens.
    #[inline]
    pub fn teller_of(&self, operation: &'static str, attachment: &Attachment) -> Option<Teller> {
        let writer = self.listener(operation)?;
        Some(Teller::new(writer, attachment))
    }
}

/// Tells one writer what becomes of one member's requests.
#[derive(Clone)]
pub(crate) struct Teller {
    writer: Writer,
    segment: Option<String>,
    member: MemberId,
}

impl Teller {
    #[cold]
    fn new(writer: Writer, attachment: &Attachment) -> Teller {
        Teller {
            writer,
            segment: attachment.location.as_ref().map(|place| place.name()),
            member: MemberId {
                index: attachment.me,
                generation: attachment.generation,
            },
        }
    }

    /// For a waiter to keep.
    pub fn shared(self) -> Arc<dyn Told> {
        Arc::new(self)
    }

    /// A document, completed and written if it is heard.
    pub fn tell(
        &self,
        operation: &'static str,
        gate: Gate,
        complete: impl FnOnce(Document) -> Document,
    ) {
        if WRITING.get() || !self.writer.hears(operation) {
            return;
        }
        let document = complete(Document {
            operation,
            gate,
            segment: self.segment.clone(),
            member: self.member,
            priority: None,
            amount: 1,
            queue_wait: None,
            execution: None,
            pending: None,
            outcome: None,
        });
        WRITING.set(true);
        let written = catch_unwind(AssertUnwindSafe(|| self.writer.write(&document)));
        if let Err(panic) = written {
            warn(operation, panic);
        }
        WRITING.set(false);
    }

    /// A request that failed without waiting.
    pub fn refused(&self, wish: Wish, error: &(dyn Error + 'static)) {
        let gate = wish.post.gate;
        let outcome = Outcome::of(error);
        let operation = match outcome {
            Outcome::TimedOut => return,
            Outcome::QueueFull => "pacer:reject",
            _ => names(gate).error,
        };
        self.tell(operation, gate, |document| Document {
            priority: priority(wish.post.gate, wish.post.lane),
            amount: wish.amount,
            outcome: Some(outcome),
            ..document
        });
    }

    /// A callback or a task panicked.
    pub fn panicked(&self, gate: Gate, priority: Priority, amount: u32) {
        self.tell(names(gate).error, gate, |document| Document {
            priority: Some(priority),
            amount,
            outcome: Some(Outcome::Panicked),
            ..document
        });
    }

    fn step(&self, waiter: &Waiter, operation: &'static str, outcome: Option<Outcome>) {
        let post = waiter.post;
        self.tell(operation, post.gate, |document| Document {
            priority: priority(post.gate, post.lane),
            amount: waiter.amount,
            queue_wait: Some(since(waiter.since)),
            outcome,
            ..document
        });
    }

    fn pending(&self, waiter: &Waiter, operation: &'static str, pending: u32) {
        let post = waiter.post;
        self.tell(operation, post.gate, |document| Document {
            priority: priority(post.gate, post.lane),
            amount: waiter.amount,
            pending: Some(pending),
            ..document
        });
    }
}

/// Does something if its scope is left by a panic.
pub(crate) struct OnPanic<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnPanic<F> {
    pub fn new(f: F) -> OnPanic<F> {
        OnPanic(Some(f))
    }

    /// The scope is left as it should be.
    #[inline]
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnPanic<F> {
    #[inline]
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

pub(crate) fn since(then: u64) -> Duration {
    Duration::from_nanos(clock::now().saturating_sub(then))
}

fn priority(gate: Gate, lane: usize) -> Option<Priority> {
    match gate {
        Gate::Pacer => None,
        _ => Priority::from_index(lane),
    }
}

impl Told for Teller {
    fn tell(&self, waiter: &Waiter, step: Step<'_>) {
        let names = names(waiter.post.gate);
        match step {
            Step::Queued => {
                let pending = waiter.pending.get();
                self.pending(waiter, names.queue, pending);
                if pending == 1 {
                    self.pending(waiter, names.first, 1);
                }
                return;
            }
            Step::Dispatched => {
                let notes = waiter.notes.get();
                if notes & note::STALLED != 0 {
                    self.step(waiter, "limiter:stall", None);
                }
                if notes & note::FORCED != 0 {
                    self.step(waiter, "limiter:force", None);
                }
                self.step(waiter, names.dispatch, None);
            }
            Step::Dropped => self.step(waiter, names.cancel, Some(Outcome::Cancelled)),
            Step::Failed(error) => match Outcome::of(error) {
                Outcome::TimedOut => self.step(waiter, names.cancel, Some(Outcome::TimedOut)),
                Outcome::Failed(AcquireError::Closed)
                    if waiter.notes.get() & note::CANCELLED != 0 =>
                {
                    self.step(waiter, names.cancel, Some(Outcome::Cancelled));
                }
                outcome => self.step(waiter, names.error, Some(outcome)),
            },
        }
        if waiter.notes.get() & note::LAST != 0 {
            self.pending(waiter, names.none, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_in_milliseconds() {
        let above = |ms| {
            Tracer::default()
                .above_ms(ms)
                .map(|tracer| tracer.threshold)
        };
        assert_eq!(above(0.0), Ok(Duration::ZERO));
        assert_eq!(above(-0.0), Ok(Duration::ZERO));
        assert_eq!(above(1.5), Ok(Duration::from_micros(1_500)));
        assert_eq!(above(f64::MAX), Ok(Duration::MAX));
        for ms in [-1.0, -f64::MIN_POSITIVE, f64::NAN, f64::INFINITY] {
            assert_eq!(above(ms), Err(InvalidSettings::TraceThresholdMs));
        }
    }
}
