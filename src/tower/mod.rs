//! Layers for [tower](https://docs.rs/tower) services (feature `tower`): how many requests at once, by a
//! [`Scheduler`](crate::Scheduler), and how many tokens a second, by a [`Limiter`](crate::Limiter), over all processes
//! that share the segment, each request at a priority of its own.
//!
//! ```
//! use shmsched::tower::{ConcurrencyLayer, RateLayer};
//! use shmsched::{Limiter, Priority, Scheduler};
//! use std::time::Duration;
//! use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
//!
//! #[derive(Clone)]
//! struct Query {
//!     text: String,
//!     priority: Priority,
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let scheduler = Scheduler::local(4)?; // or segment.scheduler()?, to share it with other processes
//! let limiter = Limiter::local(1_000)?;
//! let priority = |query: &Query| query.priority;
//! let cost = |query: &Query| query.text.len() as u32;
//! let service = ServiceBuilder::new()
//!     .layer(RateLayer::new(limiter, cost, priority))
//!     .layer(ConcurrencyLayer::new(scheduler, priority).wait_at_most(Duration::from_secs(5)))
//!     .service(service_fn(async |query: Query| Ok::<_, BoxError>(query.text.to_uppercase())));
//!
//! let (text, priority) = ("which way".to_owned(), Priority::High);
//! assert_eq!(service.oneshot(Query { text, priority }).await?, "WHICH WAY");
//! # Ok::<(), BoxError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! `examples/tower_service.rs` is a whole program, with axum.
//!
//! # Always ready
//!
//! `poll_ready` does not wait: who goes first depends on the request, and that comes with `call`. So the future that `call`
//! returns waits, first at the gate, then for a clone of the inner service to be ready, and then calls that clone. In the
//! other order a request of low priority would keep the inner service's readiness (a connection, a place in a buffer)
//! while it stands in line, and urgent ones would wait for that without any order.
//!
//! So there is no back-pressure through `poll_ready`: requests that wait are futures that the caller holds. What bounds
//! them is `wait_at_most`: with [`Duration::ZERO`](std::time::Duration::ZERO) a request that would have to wait is turned
//! away at once. The inner service must be [`Clone`], and its clones must stand for one thing, as those of tower's own
//! services do.
//!
//! # Which outside
//!
//! Put a [`RateLayer`] outside a [`ConcurrencyLayer`], that is before it in a `ServiceBuilder`: then a request that waits
//! for tokens has no slot. What it paid is spent if it is turned away further in.
//!
//! # Errors
//!
//! [`BoxError`], as with tower's own layers: an [`AcquireError`](crate::AcquireError) where the request did not come to the
//! inner service ([`TimedOut`](crate::AcquireError::TimedOut) after `wait_at_most`), else the inner service's own error.
//! `error.downcast_ref::<AcquireError>()` tells which.
//!
//! # Cancel safety
//!
//! The future may be dropped at any moment. While it waits it leaves the queue and has taken nothing; after that the
//! inner future is dropped first, and then its slot is given back. Tokens that were paid for a call that was not made are
//! refunded.

mod body;
mod calling;
mod concurrency;
mod rate;

pub use body::{HeldBody, UntilBody};
pub use concurrency::{
    ConcurrencyFuture, ConcurrencyLayer, ConcurrencyService, Hold, UntilResponse,
};
pub use rate::{RateFuture, RateLayer, RateService};

use crate::deadline::Deadline;
use std::time::Duration;

/// What the services fail with, the same type as tower's.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Until when a request that comes now is ready to wait.
fn until(most: Option<Duration>) -> Deadline {
    most.map_or(Deadline::Never, Deadline::after)
}
