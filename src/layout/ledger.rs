//! The roster's and the ledger's records.

use super::{Gate, LANES};
#[cfg(not(shmsched_loom))]
use crate::sys::mapping::shared_record;
#[cfg(shmsched_loom)]
use crate::words::shared_record;
use crate::words::{U32, U64};

/// Words that a model has no use for, where every cell costs time: there are none of them there.
const fn real(words: usize) -> usize {
    if cfg!(shmsched_loom) { 0 } else { words }
}

shared_record! {
    /// What a member's queue of one gate counted, per priority. One writer at a time (the member's queue lock), never
    /// reset: the next member in that row goes on from them.
    #[derive(Debug, Default)]
    #[repr(C)]
    pub struct GateCounters {
        /// Waits begun.
        pub deferred: [U64; LANES],
        /// Waits that ended with a turn.
        pub completed: [U64; LANES],
        /// Waits given up.
        pub cancelled: [U64; LANES],
        /// Waits that ended with the member.
        pub lost: [U64; LANES],
    }
}

shared_record! {
    /// One attachment of one process.
    #[derive(Debug)]
    #[cfg_attr(shmsched_loom, derive(Default))]
    #[repr(C, align(128))]
    pub struct Member {
        /// `protocol::roster::Status`: generation << 32 | FREE, LIVE or GONE.
        pub status: U64,
        /// Process id in its own namespace. For people.
        pub pid: U32,
        /// Padding.
        pub reserved0: U32,
        /// Start time of the process in clock ticks after boot, of `/proc/PID/stat`.
        pub start: U64,
        /// Inode of the pid namespace.
        pub namespace: U64,
        /// When it attached.
        pub attached: U64,
        /// What it runs, UTF-8, cut, zero padded.
        pub command: [U64; 8],
        /// Line break.
        pub reserved1: [U64; real(3)],
        /// The word its sleepers sleep on; grows by one at each ring.
        pub bell: U32,
        /// Padding.
        pub reserved2: U32,
        /// Since when it has held something that it waited for; 0 is unknown.
        pub held_since: U64,
        /// To the next line.
        pub reserved3: [U64; real(14)],
        /// The Scheduler's queue.
        pub scheduler: GateCounters,
        /// The Limiter's queue.
        #[cfg(not(shmsched_loom))]
        pub limiter: GateCounters,
        /// The Limiter's admissions into debt, per priority.
        pub forced: [U64; real(LANES)],
        /// The Pacer's queue: deferred, completed, cancelled, lost, rejected.
        pub pacer: [U64; real(5)],
        /// How long waits at the three gates took, and holds: four times 32 counts, see [`Member::took`].
        pub histograms: [U32; real(128)],
        /// The longest of each, in microseconds.
        pub longest: [U64; real(4)],
        /// The sum of each, in microseconds.
        pub sums: [U64; real(4)],
        /// To a multiple of 128.
        pub reserved4: [U64; real(4)],
    }
}

/// Which word of [`Member::pacer`] counts the callers refused because the queue was full.
pub const REJECTED: usize = 4;

/// What [`Member::took`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// A wait at the Scheduler.
    Slots,
    /// A wait at the Limiter.
    Tokens,
    /// A wait at the Pacer.
    Start,
    /// Slots were held.
    Hold,
}

impl From<Gate> for Took {
    fn from(gate: Gate) -> Took {
        match gate {
            Gate::Scheduler => Took::Slots,
            Gate::Limiter => Took::Tokens,
            Gate::Pacer => Took::Start,
        }
    }
}

impl GateCounters {
    /// Deferred, completed, cancelled and lost of a lane.
    pub fn of(&self, lane: usize) -> [&U64; 4] {
        let sets = [&self.deferred, &self.completed, &self.cancelled, &self.lost];
        sets.map(|set| &set[lane])
    }
}

impl Member {
    /// Deferred, completed, cancelled and lost of a gate's lane. `None`: no such lane.
    pub fn queue(&self, gate: Gate, lane: usize) -> Option<[&U64; 4]> {
        match gate {
            Gate::Scheduler => (lane < LANES).then(|| self.scheduler.of(lane)),
            #[cfg(not(shmsched_loom))]
            Gate::Limiter => (lane < LANES).then(|| self.limiter.of(lane)),
            #[cfg(shmsched_loom)]
            Gate::Limiter => None,
            Gate::Pacer => match &self.pacer[..] {
                [a, b, c, d, ..] if lane == 0 => Some([a, b, c, d]),
                _ => None,
            },
        }
    }

    /// Notes how long something took: a hold from whatever thread, a wait under the lock of the member's queue only.
    #[inline(always)]
    pub fn took(&self, what: Took, ns: u64) {
        let us = ns / 1_000;
        let at = (u64::BITS - us.leading_zeros()).min(31) as usize;
        if let (Some(count), Some(longest), Some(sum)) = (
            self.histograms.get(what as usize * 32 + at),
            self.longest.get(what as usize),
            self.sums.get(what as usize),
        ) {
            if what == Took::Hold {
                count.add(1);
                sum.add(us);
            } else {
                count.put(count.peek().wrapping_add(1));
                sum.put(sum.peek().wrapping_add(us));
                if longest.peek() < us {
                    longest.put(us);
                }
                return;
            }
            let mut seen = longest.get();
            while seen < us {
                match longest.replace(seen, us) {
                    Ok(_) => break,
                    Err(now) => seen = now,
                }
            }
        }
    }

    /// Those of all lanes of all gates.
    pub fn queues(&self) -> impl Iterator<Item = [&U64; 4]> {
        let lanes = move |gate| (0..LANES).filter_map(move |lane| self.queue(gate, lane));
        Gate::ALL.into_iter().flat_map(lanes)
    }
}

shared_record! {
    /// What one thread of one member took and gave back.
    #[derive(Debug, Default)]
    #[repr(C, align(128))]
    pub struct Record {
        /// sequence << 32 | net, see `protocol::ledger`.
        pub word: U64,
        /// generation << 32 | member + 1; 0 is free.
        pub owner: U64,
        /// Slots taken.
        pub admitted: U64,
        /// Slots given back.
        pub released: U64,
        /// Slots of the dead given back.
        pub reclaimed: U64,
        /// Tokens taken, less those given back.
        pub consumed: U64,
        /// Starts.
        pub started: U64,
        /// Number of the thread's last step with its spare slot; odd: it has one. See `protocol::ledger::spare`.
        pub spare: U64,
        /// Number of the spare that was settled last, odd if another thread has it; the highest bit is the seal.
        pub claimed: U64,
        /// To the next line.
        pub reserved: [U64; real(7)],
    }
}
