//! The records of a segment and where they lie.
//!
//! ```text
//! 0x0000  header            256 bytes   written once, before the file appears under its name
//! 0x0100  scheduler, hot    128 bytes   the words every acquire and release touches
//! 0x0180  scheduler, cold   128 bytes   estate, ticket counter, configured settings, high-water marks
//! 0x0200  limiter, hot and cold   256 bytes
//! 0x0300  pacer, hot and cold     256 bytes
//! 0x0400  pressure of the gates   3 x 128 bytes
//! 0x0580  reserved                2688 bytes
//! 0x1000  bit sets of the line: scheduler 7 x W words, limiter 7 x W, pacer P
//!         roster                  1408 bytes a member
//!         records                 128 bytes each: one per member, then those leased to threads
//!         places, scheduler       64 bytes each, 7 a member
//!         places, limiter         64 bytes each, 7 a member
//!         places, pacer           64 bytes each, members + max_waiting
//! ```
//!
//! W is `members / 64`, P is `(members + max_waiting) / 64`, both rounded up. Every part starts at a multiple of 128.
//! All integers are little-endian. `docs/segment-format.md` says what each word means and how to read it with `od`.

mod gates;
mod header;
mod ledger;
mod map;

pub use gates::{
    LimiterCold, LimiterHot, PacerCold, PacerHot, Place, PressureWords, SchedulerCold, SchedulerHot,
};
pub use header::{Checked, FORMAT, Gate, Geometry, Header, Unusable, put_bytes};
pub use ledger::{Member, REJECTED, Record, Took};
pub use map::{
    HEADER_AT, LIMITER_COLD_AT, LIMITER_HOT_AT, Map, PACER_COLD_AT, PACER_HOT_AT, PRESSURE_AT,
    SCHEDULER_COLD_AT, SCHEDULER_HOT_AT,
};

/// Priorities, and so lanes of the Scheduler's and the Limiter's line.
pub const LANES: usize = 7;
