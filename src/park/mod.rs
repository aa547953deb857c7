//! How a thread and how a task sleep: the process's own side of the line.
//!
//! A member has one place per lane in the segment. Behind it stands its own [`queue`], in process memory; the first of a
//! lane acts for the member. A thread that stands first sleeps on the member's bell itself; all others are woken through
//! process memory ([`waiter`]): threads by unpark, tasks by their waker.

pub mod moments;
pub mod queue;
pub mod run;
pub mod waiter;

use crate::layout::{Gate, LANES};
use crate::words::U32;
use std::num::NonZeroU32;

/// Where a waiter of a member stands: at which gate, in which lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    /// The gate.
    pub gate: Gate,
    /// The priority's index; 0 at the Pacer, which has one lane.
    pub lane: usize,
}

impl Post {
    /// How many there are.
    pub const COUNT: usize = 2 * LANES + 1;

    /// A number below [`Post::COUNT`].
    pub fn index(self) -> usize {
        match self.gate {
            Gate::Scheduler => self.lane,
            Gate::Limiter => LANES + self.lane,
            Gate::Pacer => 2 * LANES,
        }
    }

    /// All of a gate, the least urgent first.
    pub fn of(gate: Gate) -> impl Iterator<Item = Post> {
        let lanes = match gate {
            Gate::Pacer => 1,
            _ => LANES,
        };
        (0..lanes).map(move |lane| Post { gate, lane })
    }

    /// All there are.
    pub fn all() -> impl Iterator<Item = Post> {
        Gate::ALL.into_iter().flat_map(Post::of)
    }

    /// Its bit in a set of posts, and the bell bit of its sleeper.
    pub fn bit(self) -> u32 {
        1 << self.index()
    }
}

/// Bell bit of the helper thread, beside one bit per post.
pub const HELPER_BIT: u32 = 1 << 31;

/// Wakes a member's sleepers of these bits.
pub fn ring(bell: &U32, bits: u32) {
    if let Some(bits) = NonZeroU32::new(bits) {
        bell.ring(bits);
    }
}

/// Wakes all of a member's sleepers.
pub fn ring_everybody(bell: &U32) {
    bell.ring(NonZeroU32::MAX);
}
