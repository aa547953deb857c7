//! Share a budget between the processes of one machine.
//!
//! A [`Segment`] is a small file in shared memory that every process maps. It holds up to three gates: a [`Scheduler`]
//! (how many things run at once), a [`Limiter`] (how many tokens a second) and a [`Pacer`] (how far apart calls start),
//! each over all processes, urgent work first. There is no daemon: who must wait sleeps on a futex, and what a killed
//! process held comes back by itself.
//!
//! ```
//! use shmsched::{Concurrency, Priority, Scheduler};
//!
//! // One process alone; Segment::create and Segment::open share it between many.
//! let scheduler = Scheduler::local(Concurrency::max(8).target(Priority::Low, 2))?;
//! let sum = scheduler.run_blocking(|| (1..=10).sum::<u32>(), Priority::High)?;
//! assert_eq!(sum, 55);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | | what it adds |
//! |---|---|---|
//! | `cli` | default | what only the command needs; a program leaves it out by `default-features = false` |
//! | `stream` | default | `Limiter::stream`, which paces a futures `Stream` |
//! | `tokio` | default | `Limiter::async_reader` and `async_writer` |
//! | `tracing` | | the documents of [`trace`] as events of that crate |
//! | `tower` | | layers for its services |
//!
//! # Caveats
//!
//! - It protects against accidents, not against enemies: whoever may write to the file may change the counters. What is
//!   read from it is checked, so a damaged segment is an error and never undefined behaviour; but a file that is *cut
//!   short* raises SIGBUS unless [`OpenOptions::survive_truncation`] is set.
//! - Lowering a limit takes nothing away from who holds a slot.
//! - [`Scheduler::dispose`] gives slots back while their work goes on.
//! - A forked child cannot use its parent's handles; it opens the segment afresh. A raw `clone` without exec is not
//!   supported.
//!
//! docs/hazards.md has the whole list, docs/design.md the protocols and why they hold.
//!
//! # Rules
//!
//! A letter and a number in brackets, as in (C5), is the id of the rule that is kept there: docs/conformance.md has each
//! rule, and the test that shows it. Units, ranges, errors, panics, cancel safety and memory ordering are said where they
//! differ from these:
//!
//! - A number of slots or tokens is 0 to 2147483647. Times are of the monotonic clock.
//! - Every future runs on any executor and may be dropped at any time. What is called `blocking_` or `wait_` blocks its
//!   thread: keep it off the threads that an executor needs.
//! - What failed has taken and changed nothing.
//! - Nothing here panics unless a caller's code does, or its heading says so.
//! - Giving a slot back happens before it is taken again, in any process. Tokens and starts order nothing but themselves.
//!
//! # Reading the source
//!
//! `layout` (what lies where), `protocol/ledger` and `protocol/roster` (counting that survives deaths), `protocol/line`
//! and `protocol/turn` (order), `protocol/{scheduler,bucket,limiter,pacer}` (whose turn it is), `segment` (attaching),
//! `waiting` (queues, sleeping, waking), `scheduler`, `limiter` and `pacer` (what a caller sees). docs/design.md has a word
//! on each file.

#![cfg_attr(shmsched_loom, allow(dead_code, unused_imports))]

#[cfg(not(shmsched_loom))]
pub(crate) mod sys;
/// What of it a model can run.
#[cfg(shmsched_loom)]
pub(crate) mod sys {
    pub mod bias;
}

mod layout;
mod protocol;
mod words;

#[cfg(not(shmsched_loom))]
mod park;

#[cfg(not(shmsched_loom))]
mod concurrency;
#[cfg(not(shmsched_loom))]
mod controller;
#[cfg(not(shmsched_loom))]
mod deadline;
#[cfg(not(shmsched_loom))]
mod error;
#[cfg(not(shmsched_loom))]
mod escape;
#[cfg(not(shmsched_loom))]
mod limiter;
#[cfg(not(shmsched_loom))]
mod location;
#[cfg(not(shmsched_loom))]
mod pacer;
#[cfg(not(shmsched_loom))]
mod priority;
#[cfg(not(shmsched_loom))]
mod scheduler;
#[cfg(not(shmsched_loom))]
mod segment;
#[cfg(not(shmsched_loom))]
mod settings;
#[cfg(not(shmsched_loom))]
mod snapshot;
#[cfg(all(feature = "tower", not(shmsched_loom)))]
pub mod tower;
#[cfg(not(shmsched_loom))]
pub mod trace;
#[cfg(not(shmsched_loom))]
mod waiting;

#[cfg(not(shmsched_loom))]
pub use self::{
    concurrency::{Concurrency, InvalidConcurrency},
    deadline::Deadline,
    error::{
        AcquireError, CreateError, EvictError, NoGate, NothingHeld, OpenError, QueueFull,
        RemoveError, SetError, StartError, TryAcquireError, TryStartError,
    },
    limiter::{Limiter, LimiterQueueStats, LimiterStats, PacedReader, PacedWriter},
    location::{Location, LocationError},
    pacer::{CallError, CancelToken, Cancelled, Pacer, PacerStats},
    priority::{ParsePriorityError, Priority, parse_priority},
    scheduler::{OwnedPermit, Permit, QueueStats, Scheduler, SharedStats, Stats},
    segment::{Looked, MemberId, Observer, OpenOptions, Segment},
    settings::{Changes, InvalidSettings, Settings},
    snapshot::{
        Durations, Gate, LimiterInfo, MemberInfo, MemberState, PacerInfo, PlaceState, Pressure,
        SchedulerInfo, SegmentInfo, Snapshot, Stalled, WaitingInfo,
    },
    trace::Trace,
};

/// Backing off: when to shed work, and when to pause, by how long work is held up and not by how much of it there is.
///
/// A Scheduler whose slots are all taken is in good health as long as nobody waits for long; what counts is the share of
/// the time in which somebody was delayed (`some`), and in which nothing got on (`full`). Look at
/// [`Scheduler::stats`](crate::Scheduler::stats) or [`Limiter::stats`](crate::Limiter::stats) every
/// [`SAMPLE_MS`](pressure::SAMPLE_MS), in a loop of your own that ends with the program, and tell a
/// [`Controller`](pressure::Controller). Two averages and a dead band keep a moment's queue from being taken for a flood,
/// and a moment's rest for its end: `shed` comes after 7 s of nothing but delay, `paused` after 3.6 s of nothing at all.
///
/// The averages are this process's sight of things. Add up across processes what the controllers say, not what they are
/// told; or use the segment's own pressure, which needs no samples: [`Observer::snapshot`](crate::Observer::snapshot).
///
/// ```
/// use shmsched::pressure::{Controller, Sample};
/// use shmsched::{Priority, Scheduler};
/// use std::time::Duration;
///
/// let scheduler = Scheduler::local(1)?;
/// let permit = scheduler.try_acquire(Priority::Normal)?;
/// let waits = scheduler.clone();
/// let waiting = std::thread::spawn(move || waits.blocking_acquire(Priority::Low).is_ok());
/// while scheduler.stats().pending == 0 {}
///
/// let mut controller = Controller::new(Duration::ZERO);
/// let completed = 0; // of the program's own
/// for sample in 1..=35 {
///     assert!(!controller.shed());
///     let now = Sample::scheduler(&scheduler.stats(), &scheduler.targets(), completed);
///     controller.update(&now, Duration::from_millis(200 * sample));
/// }
/// assert!(controller.shed() && controller.paused());
/// drop(permit);
/// assert!(waiting.join().unwrap());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `examples/backoff.rs` is a whole program.
#[cfg(not(shmsched_loom))]
pub mod pressure {
    pub use crate::controller::{
        Clocked, Controller, FULL_HI, FULL_LO, Kind, SAMPLE_MS, SOME_HI, SOME_LO, STALL_TICKS,
        Sample, TAU_MS,
    };
}

#[cfg(all(feature = "tokio", not(shmsched_loom)))]
pub use self::limiter::{AsyncPacedReader, AsyncPacedWriter};

#[cfg(all(feature = "stream", not(shmsched_loom)))]
pub use self::limiter::PacedStream;

#[cfg(not(shmsched_loom))]
#[allow(deprecated)]
pub use self::limiter::Throttle;

/// For the model tests (`tests/model`): the protocol over loom's cells.
#[cfg(shmsched_loom)]
#[doc(hidden)]
pub mod model {
    #![allow(missing_docs)]
    pub mod layout {
        pub use crate::layout::*;
    }
    pub mod protocol {
        pub use crate::protocol::*;
    }
    pub mod sys {
        pub use crate::sys::*;
    }
    pub mod words {
        pub use crate::words::*;
    }
}

/// For the command, which shows the same text in the same way.
#[cfg(all(feature = "cli", not(shmsched_loom)))]
#[doc(hidden)]
pub use self::escape::{escaped, hides};

/// For the crash tests (`tests/crash`).
#[cfg(all(feature = "crash-hook", not(shmsched_loom)))]
#[doc(hidden)]
pub use crate::words::crash;

/// The Rust of README.md and docs/migration.md, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
#[cfg(doctest)]
#[doc = include_str!("../docs/migration.md")]
struct Migration;
