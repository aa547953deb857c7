//! Typed atomic cells: the words a segment is made of, and the only place that names atomics.
//!
//! Two implementations with one interface: `real` wraps the machine's atomics, bit for bit, so that a cell can live in
//! a mapping; `model` wraps loom's, so that the code of `protocol` runs unchanged under a model checker
//! (`--cfg shmsched_loom`).
//!
//! # The orderings a cell offers
//!
//! | operation | ordering | for |
//! |---|---|---|
//! | `get` | acquire load | a value somebody else published |
//! | `peek` | relaxed load | a word this thread alone writes, or a hint |
//! | `put` | release store | publishing |
//! | `poke` | relaxed store | a word whose publication a later operation does |
//! | `swap`, `replace`, `add`, `sub`, `set_bits`, `clear_bits` | read-modify-write **and full fence** | both sides of every announce-then-look pair |
//!
//! A full fence on both sides of an announce-then-look pair (store-load) is what keeps a wake-up from being lost. On
//! x86-64 a locked instruction is that fence already, and a second one would make the fast path 2.7 times as long; on
//! aarch64, and for loom, it is spelled out.

#[cfg(not(shmsched_loom))]
mod real;
#[cfg(not(shmsched_loom))]
pub use real::*;

#[cfg(shmsched_loom)]
mod model;
#[cfg(shmsched_loom)]
pub use model::*;

#[cfg(all(feature = "crash-hook", not(shmsched_loom)))]
pub mod crash;
