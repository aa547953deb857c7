//! The words of the gates and a place in the line.

use super::LANES;
#[cfg(not(shmsched_loom))]
use crate::sys::mapping::shared_record;
#[cfg(shmsched_loom)]
use crate::words::shared_record;
use crate::words::{I32, U32, U64};

shared_record! {
    /// The Scheduler's hot line: everything an acquire and a release touch, so that both own one line.
    #[derive(Debug, Default)]
    #[repr(C, align(128))]
    pub struct SchedulerHot {
        /// Slots in all; -1 is unlimited, 0 pauses.
        pub concurrency: I32,
        /// Slots taken, the estate included.
        pub running: I32,
        /// Members with somebody in the line. For people; nothing decides by it.
        pub waiters: I32,
        /// Bit p: somebody waits at priority index p.
        pub summary: U32,
        /// The mark of a head that may not be passed any more, see `protocol::line::Mark`; 0 is none.
        pub hurry: U32,
        /// Coarse clock in ms of a look that asks everybody to hold off for some microseconds; 0 is none.
        pub hold_off: U32,
        /// `FLAG_RETIRED`, `FLAG_GONE`.
        pub flags: U32,
        /// Resolved targets, lowest priority first; -1 is unlimited.
        pub targets: [I32; LANES],
        /// The place called last: member << 3 | priority index + 1; 0 is none. A hint where to look first, nothing more.
        pub called: U32,
        /// Whether threads may keep spare slots: episode << 2 | phase, see `protocol::ledger::spare`.
        pub spares: U32,
    }
}

impl SchedulerHot {
    /// `flags`: the segment was removed by force.
    pub const FLAG_RETIRED: u32 = 1;
    /// `flags`: somebody saw that the file has no name any more.
    pub const FLAG_GONE: u32 = 2;
}

shared_record! {
    /// What the Scheduler touches only off the fast path.
    #[derive(Debug, Default)]
    #[repr(C, align(128))]
    pub struct SchedulerCold {
        /// Slots left behind by the dead and adopted, not yet given back: sequence << 32 | slots.
        pub estate: U64,
        /// The ticket drawn last.
        pub ticket: U64,
        /// Settings as given: targets lowest first (-1 unlimited, -2 not given).
        pub configured: [I32; LANES],
        /// One more than the highest member slot ever used.
        pub members_high: U32,
        /// One more than the highest record ever used.
        pub records_high: U32,
        /// When anybody last looked for the dead: coarse ms, wrapping.
        pub looked: U32,
        /// When spare slots were recalled last, ns of the clock that all processes share.
        pub recalled: U64,
        /// When spare slots were lent last though somebody waited, likewise.
        pub lent: U64,
    }
}

shared_record! {
    /// The Limiter's hot line: everything that a debit touches.
    #[derive(Debug, Default)]
    #[repr(C, align(128))]
    pub struct LimiterHot {
        /// Tokens per second, and the most a quiet bucket holds; 1..=2147483647.
        pub rate: I32,
        /// The balance; negative in debt.
        pub tokens: I32,
        /// Members with somebody in the line. For people; nothing decides by it.
        pub waiters: I32,
        /// Bit p: somebody waits at priority index p.
        pub summary: U32,
        /// No mark is ever set here: nobody passes the line.
        pub hurry: U32,
        /// As `SchedulerHot::flags`.
        pub flags: U32,
        /// Up to when refills were paid, see `protocol::bucket::Stamp`.
        pub stamp: U64,
    }
}

shared_record! {
    /// What the Limiter touches only when somebody waits.
    #[derive(Debug, Default)]
    #[repr(C, align(128))]
    pub struct LimiterCold {
        /// The ticket drawn last.
        pub ticket: U64,
        /// Per priority: when its front last got on, `sys::clock::now` units.
        pub progress: [U64; LANES],
    }
}

shared_record! {
    /// The Pacer's hot line.
    #[derive(Debug, Default)]
    #[repr(C, align(128))]
    pub struct PacerHot {
        /// Nanoseconds between two starts, at least 1.
        pub interval: U64,
        /// When the next start is allowed, `sys::clock::now` units.
        pub next_start: U64,
        /// Members with somebody in the line. For people; nothing decides by it.
        pub waiters: I32,
        /// Bit 0: somebody waits.
        pub summary: U32,
        /// No mark is ever set here: nobody passes the line.
        pub hurry: U32,
        /// As `SchedulerHot::flags`.
        pub flags: U32,
    }
}

shared_record! {
    /// What the Pacer touches only when somebody waits.
    #[derive(Debug, Default)]
    #[repr(C, align(128))]
    pub struct PacerCold {
        /// The ticket drawn last.
        pub ticket: U64,
    }
}

shared_record! {
    /// How long anybody waited at a gate, and how long nothing moved, see `protocol::pressure`. Times in ns.
    #[derive(Debug, Default)]
    #[repr(C, align(128))]
    pub struct PressureWords {
        /// Since when somebody waits, or up to when that was counted; 0: nobody does.
        pub began: U64,
        /// When something was last released or spent while somebody waited.
        pub progress: U64,
        /// Time in which somebody waited.
        pub some: U64,
        /// The part of it in which nothing moved.
        pub full: U64,
        /// Averages of the first over 10, 60 and 300 s.
        pub some_averages: [U64; 3],
        /// Averages of the second.
        pub full_averages: [U64; 3],
    }
}

shared_record! {
    /// Where a member stands in a lane of a line.
    #[derive(Debug, Default)]
    #[repr(C, align(64))]
    pub struct Place {
        /// Order of arrival; 0 is nobody.
        pub ticket: U64,
        /// `protocol::line::State`: asleep, called or lapsed, stamped with the ticket.
        pub state: U64,
        /// When it was taken, `sys::clock::now` units.
        pub since: U64,
        /// Who stands here: generation << 32 | member + 1. The Pacer's are nobody's (0) until somebody takes them.
        pub owner: U64,
        /// Slots (tokens) wanted.
        pub amount: U32,
        /// What the handle adds to the segment's target; 2147483647 is nothing.
        pub bound: U32,
        /// When its sleeper looks after the line by itself, see `protocol::line::Promise`.
        pub watching: U32,
        /// The handle's own overall limit, which a drawn turn may not pass either; 2147483647 is nothing.
        pub ceiling: U32,
    }
}
