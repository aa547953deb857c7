//! The protocols under loom: every interleaving of a few threads, up to a bound on preemptions, over the same code that
//! runs in a segment. `scripts/loom` runs them, and then each again with one step left out, which must fail.
//!
//! A model's last assertion is conservation: RUNNING is what the living hold, the estate, and what the dead left; in the
//! end everything is free. Nothing here has a timer, so a wake-up that is lost is a deadlock, which loom reports.
#![cfg(shmsched_loom)]

mod bias;
mod bucket;
mod dispose;
mod ledger;
mod line;
mod spare;
mod starts;
mod support;
mod tokens;
