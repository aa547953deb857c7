//! The public API in one process, one module per group of docs/conformance.md and some for what crosses them.

mod admission;
mod basics;
mod callback_queues;
mod callbacks;
mod calm;
mod construction;
mod drains;
mod errors;
mod futures;
mod lent;
mod limiter_basics;
mod limiter_cases;
mod limiter_children;
mod limiter_consume;
mod limiter_gaps;
mod limiter_shared;
mod limiter_stats;
mod limiter_support;
mod links;
mod lottery;
mod pacer;
mod pacer_cancel;
mod pacer_gaps;
mod permits;
mod pressure;
mod priorities;
mod run;
mod send_sync;
mod shared;
mod spares;
mod stats;
#[cfg(all(feature = "stream", feature = "tokio"))]
mod streams;
#[cfg(all(feature = "stream", feature = "tokio"))]
mod streams_support;
mod support;
mod threads;
mod trace;
