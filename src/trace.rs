//! Tracing: a document for each step of a wait and each task, to whoever listens.
//!
//! A handle's [`Trace`] says who: [`Writer`] of its own, the thread's default one, or nobody. Without a listener nothing
//! is evaluated: no clock is read and nothing allocated. What needs no wait and is no `run` is never told, so
//! `try_acquire`, `try_consume` and their kind do not even ask.
//!
//! ```
//! use shmsched::trace::{Trace, Writer};
//! use shmsched::{Priority, Scheduler};
//! use std::time::Duration;
//!
//! let writer = Writer::new(|document, operation| println!("{operation} {:?}", document.queue_wait));
//! let scheduler = Scheduler::local(4)?
//!     .with_trace(Trace::Writer(writer.clone()))
//!     .with_trace_threshold(Duration::from_millis(50));
//! scheduler.run_blocking(|| (), Priority::Normal)?; // quicker than 50 ms: not told
//! writer.switch(false); // and on again, at any time
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Operations
//!
//! | operation | told when | fields beside gate, member, priority and amount |
//! | --- | --- | --- |
//! | `scheduler:task` | a `run` or `run_blocking` ended, whatever way | `queue_wait`, `execution` once it began, `outcome` |
//! | `scheduler:queue`, `limiter:queue`, `pacer:queue` | a request joined the queue | `pending`: how many of the member wait, this one among them |
//! | `scheduler:dispatch`, `limiter:dispatch`, `pacer:dispatch` | it got what it waited for | `queue_wait` |
//! | `scheduler:cancel`, `limiter:cancel`, `pacer:cancel` | it left without: at its deadline, dropped, or by its token | `queue_wait`, `outcome` |
//! | `scheduler:error`, `limiter:error`, `pacer:error` | a request failed, waiting or not; a task or a callback panicked | `outcome`, `queue_wait` if it waited |
//! | `scheduler:park`, `scheduler:unpark` | the first of a member's requests began to wait; the last one ended | `pending`: 1, 0 |
//! | `limiter:backlog`, `pacer:backlog` | the same, both ways | `pending`: 1, 0 |
//! | `limiter:stall` | a front was admitted since its priority had not got on for a second | `queue_wait` |
//! | `limiter:force` | a request was admitted into debt: by such a stall, or as more than the capacity | `queue_wait` |
//! | `pacer:reject` | the queue was full | `outcome` |
//! | `scheduler:dispose` | [`Scheduler::dispose`](crate::Scheduler::dispose) | `amount`: slots given back |
//!
//! After each `queue` comes one of `dispatch`, `cancel` and `error`, unless the process ends or forks. What fits at once
//! does not wait and is not told, except as a `task`. What a child's request does at its parent is the child's to tell.
//!
//! # Writers
//!
//! A writer is called on the thread that asked, polls or drops, for callbacks on the one that runs them; never under a lock
//! of this library. It should be quick all the same: whoever calls it waits for it, and at a Pacer others may start
//! meanwhile, so that the caller waits once more, of which nobody is told.
//!
//! It must not use what it traces (O5). If it does nothing breaks, but as long as a thread is within a writer it is told
//! nothing, and a writer that waits for its own caller waits for ever.
//!
//! A panic in a writer is contained (O6): whatever was traced goes on, and the [warning hook](set_warning_hook) is called
//! (O7). Not where panics abort.
//!
//! Who listens is found when a wait, a `run` or a refusal begins (O2), and kept until it ends, whatever thread goes on with
//! it; whether that writer is switched on is asked for each document (O4).

mod emit;
#[cfg(feature = "tracing")]
mod events;
mod warning;

pub(crate) use emit::{OnPanic, Teller, Tracer, since};
pub use warning::{Warning, WarningHook, set_warning_hook};

use crate::error::AcquireError;
use crate::segment::MemberId;
use crate::snapshot::Gate;
use crate::words::U32;
use crate::{Priority, error};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Every operation there is. More may come.
pub const OPERATIONS: [&str; 21] = [
    "scheduler:task",
    "scheduler:queue",
    "scheduler:dispatch",
    "scheduler:cancel",
    "scheduler:park",
    "scheduler:unpark",
    "scheduler:error",
    "scheduler:dispose",
    "limiter:queue",
    "limiter:dispatch",
    "limiter:cancel",
    "limiter:backlog",
    "limiter:stall",
    "limiter:force",
    "limiter:error",
    "pacer:queue",
    "pacer:dispatch",
    "pacer:cancel",
    "pacer:backlog",
    "pacer:reject",
    "pacer:error",
];

/// What happened, as plain values. See [the operations](self#operations) for which of them are there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Document {
    /// What happened; the same that the writer gets beside.
    pub operation: &'static str,
    /// Where.
    pub gate: Gate,
    /// What a person calls the segment; `None` of a local gate.
    pub segment: Option<String>,
    /// Who: one attachment of this process.
    pub member: MemberId,
    /// `None` at the Pacer, of `dispose`, and of a try that has none.
    pub priority: Option<Priority>,
    /// Slots or tokens; 1 of a start.
    pub amount: u32,
    /// How long it waited in the queue.
    pub queue_wait: Option<Duration>,
    /// How long the task ran.
    pub execution: Option<Duration>,
    /// How many requests of this member wait at this gate.
    pub pending: Option<u32>,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

/// How what a [`Document`] is about ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The task returned, whatever value.
    Completed,
    /// The task or callback panicked.
    Panicked,
    /// Its future was dropped, its token cancelled, or the last handle dropped with it in the queue.
    Cancelled,
    /// Its deadline passed.
    TimedOut,
    /// The Pacer's queue was full.
    QueueFull,
    /// It failed otherwise.
    Failed(AcquireError),
}

impl Outcome {
    /// Of an error of whatever operation.
    fn of(error: &(dyn std::error::Error + 'static)) -> Outcome {
        if let Some(error::StartError::Failed(failure)) = error.downcast_ref() {
            return Outcome::of(failure);
        }
        match error.downcast_ref::<AcquireError>() {
            Some(AcquireError::TimedOut) => Outcome::TimedOut,
            Some(failure) => Outcome::Failed(failure.clone()),
            None => Outcome::QueueFull,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Completed => f.write_str("completed"),
            Outcome::Panicked => f.write_str("panicked"),
            Outcome::Cancelled => f.write_str("cancelled"),
            Outcome::TimedOut => f.write_str("timed out"),
            Outcome::QueueFull => f.write_str("queue full"),
            Outcome::Failed(failure) => failure.fmt(f),
        }
    }
}

type Call = dyn Fn(&Document, &'static str) + Send + Sync;

/// What a writer does with a document.
enum Write {
    Call(Box<Call>),
    #[cfg(feature = "tracing")]
    Events,
}

/// Takes documents. Clones are the same writer.
#[derive(Clone)]
pub struct Writer(Arc<Written>);

struct Written {
    /// 1: switched on.
    on: U32,
    write: Write,
}

impl Writer {
    /// One that is switched on.
    pub fn new(write: impl Fn(&Document, &'static str) + Send + Sync + 'static) -> Writer {
        Writer::of(Write::Call(Box::new(write)))
    }

    fn of(write: Write) -> Writer {
        let on = U32::new(1);
        Writer(Arc::new(Written { on, write }))
    }

    /// Switches it on or off, for all clones and from the next document on (O4).
    pub fn switch(&self, on: bool) {
        self.0.on.put(on.into());
    }

    /// Whether it is switched on.
    pub fn is_on(&self) -> bool {
        self.0.on.get() != 0
    }

    /// Whether both are clones of one.
    pub fn is_same(&self, other: &Writer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Where nobody was named.
    fn by_default(operation: &'static str) -> Option<Writer> {
        let _ = operation;
        #[cfg(feature = "tracing")]
        return events::hears(operation).then(events::writer);
        #[cfg(not(feature = "tracing"))]
        None
    }

    fn hears(&self, operation: &'static str) -> bool {
        let _ = operation;
        self.is_on()
            && match self.0.write {
                Write::Call(_) => true,
                #[cfg(feature = "tracing")]
                Write::Events => events::hears(operation),
            }
    }

    fn write(&self, document: &Document) {
        match &self.0.write {
            Write::Call(write) => write(document, document.operation),
            #[cfg(feature = "tracing")]
            Write::Events => events::emit(document),
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("on", &self.is_on())
            .finish_non_exhaustive()
    }
}

/// Who is told what a handle does: an option of a [`Scheduler`](crate::Scheduler::with_trace), a
/// [`Limiter`](crate::Limiter::with_trace), its children, which inherit it (K12, X45), and a
/// [`Pacer`](crate::Pacer::with_trace).
#[derive(Clone, Debug, Default)]
pub enum Trace {
    /// The [default writer](set_thread_default) of the thread that asks, looked for each time (O2). If it has none and the
    /// feature `tracing` is on: the thread's `tracing` subscriber, as `Writer::tracing`.
    #[default]
    Default,
    /// Nobody (O3).
    Disabled,
    /// This one.
    Writer(Writer),
}

/// 1 once a thread has had a default writer: until then nobody looks for one.
static DEFAULTS: U32 = U32::new(0);

thread_local! {
    static DEFAULT: RefCell<Option<Writer>> = const { RefCell::new(None) };
}

/// Gives this thread a default writer, or none. Returns the one it had.
///
/// It is told what handles with [`Trace::Default`] do that were asked on this thread, whenever they were made.
pub fn set_thread_default(writer: Option<Writer>) -> Option<Writer> {
    DEFAULTS.put(1);
    // A thread that ends has none any more.
    let put = DEFAULT.try_with(|default| {
        let mut default = default.try_borrow_mut().ok()?;
        std::mem::replace(&mut *default, writer)
    });
    put.ok().flatten()
}

/// The default writer of this thread.
fn thread_default() -> Option<Writer> {
    let get = DEFAULT.try_with(|default| default.try_borrow().ok()?.clone());
    get.ok().flatten()
}
