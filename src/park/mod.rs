//! How a thread and how a task sleep: the process's own side of the line.
//!
//! A member has one place per lane in the segment. Behind it stands its own [`queue`], in process memory; the first of a
//! lane acts for the member. A thread that stands first sleeps on the member's bell itself; all others are woken through
//! process memory ([`waiter`]): threads by unpark, tasks by their waker.

pub mod queue;
pub mod waiter;

use crate::words::U32;
use std::num::NonZeroU32;

/// Bell bit of the helper thread, beside one bit per lane.
pub fn helper_bit() -> NonZeroU32 {
    NonZeroU32::new(1 << 31).expect("a shifted one")
}

/// The bell bit of a lane.
pub fn lane_bit(lane: usize) -> NonZeroU32 {
    NonZeroU32::new(1 << (lane & 15)).expect("a shifted one")
}

/// Every lane and the helper.
pub fn everybody() -> NonZeroU32 {
    NonZeroU32::MAX
}

/// Wakes the sleeper of a lane.
pub fn ring(bell: &U32, lane: usize) {
    bell.ring(lane_bit(lane));
}
