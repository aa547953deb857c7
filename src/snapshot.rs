//! What an observer sees of a segment, as plain values.

use crate::Priority;
use crate::concurrency::Concurrency;
pub use crate::layout::Gate;
use std::path::PathBuf;
use std::time::Duration;

/// The segment itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// What a person calls it.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Random identity of this life of it.
    pub id: [u8; 16],
    /// Version of its format: docs/segment-format.md.
    pub format: u32,
    /// Its length in bytes.
    pub bytes: u64,
    /// Whether its counters belong to this boot; if not, the next to attach discards them.
    pub boot_is_current: bool,
    /// Member slots in use.
    pub members_used: u32,
    /// Member slots.
    pub members_capacity: u32,
    /// Records in use. A thread of a member counts what it holds in a record of its own.
    pub records_used: u32,
    /// Records that there are; threads that find none share their member's.
    pub records_capacity: u32,
    /// Device of the file.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// Permission bits of the file, within 0o7777.
    pub mode: u32,
    /// Removed by force.
    pub retired: bool,
    /// The file has lost its name, or another file has it.
    pub gone: bool,
    /// Kind of file system, such as `tmpfs`; `unknown` if the system does not say.
    pub filesystem: String,
}

/// For how long somebody has waited at a gate: as the kernel's pressure files say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Somebody alive waited.
    pub some: Stalled,
    /// The part of that in which nothing had been released or spent for 200 ms: so the first 200 ms of every stall are not
    /// in it.
    pub full: Stalled,
}

/// A share of the wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalled {
    /// Averages that decay exponentially over 10, 60 and 300 seconds, in hundredths of a percent: 0..=10000. After a stall
    /// of 10 seconds the first is at 63 %, 10 seconds later at 23 %. What is running is in them.
    pub averages: [u16; 3],
    /// Microseconds in all, since the segment was made or reset, but for the last second or so of what is running: then it
    /// lags behind the averages. Never goes back, also over deaths.
    pub total_us: u64,
}

/// How long something took, over all that ever did: a histogram whose buckets double.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many took less than a microsecond, less than two, four and so on; the last, all the rest.
    pub buckets: [u64; 32],
    /// The longest, in microseconds.
    pub longest_us: u64,
    /// All together, in microseconds.
    pub sum_us: u64,
}

impl Durations {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// The duration, in microseconds, that this share (0 to 1) of them did not exceed, for sure: the upper end of the
    /// bucket where that is, at most the longest. So it may be up to twice what it was; [`Durations::estimate_us`] is
    /// nearer. `None` if there are none.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        self.find(share).map(|found| found.to)
    }

    /// The duration, in microseconds, that this share (0 to 1) of them probably did not exceed: an estimate within the
    /// bucket where that is, as if those in it were spread evenly on a logarithmic scale, and never more than the longest.
    /// `None` if there are none.
    pub fn estimate_us(&self, share: f64) -> Option<u64> {
        let found = self.find(share)?;
        Some(match found.from {
            // The longest is known.
            _ if found.is_last => found.to,
            0 => 0,
            from => {
                let ratio = found.to as f64 / from as f64;
                (from as f64 * libm::pow(ratio, found.part)).round() as u64
            }
        })
    }

    fn find(&self, share: f64) -> Option<Found> {
        let count = self.count();
        let wanted = (share.clamp(0.0, 1.0) * count as f64).ceil().max(1.0) as u64;
        let wanted = wanted.min(count);
        let mut before = 0u64;
        for (at, in_it) in self.buckets.iter().enumerate() {
            if *in_it != 0 && before.wrapping_add(*in_it) >= wanted {
                let from = if at == 0 { 0 } else { 1 << (at - 1) };
                let end = if at == 31 { u64::MAX } else { 1 << at };
                return Some(Found {
                    from,
                    // The longest is written after the count.
                    to: end.min(self.longest_us.max(from).max(1)),
                    part: ((wanted - before) as f64 - 0.5) / *in_it as f64,
                    is_last: wanted == count,
                });
            }
            before = before.wrapping_add(*in_it);
        }
        None
    }
}

/// Where a share of the durations is.
struct Found {
    /// The ends of its bucket.
    from: u64,
    to: u64,
    /// How far into the bucket, by their number, 0 to 1.
    part: f64,
    /// It is the longest of all.
    is_last: bool,
}

/// The Scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerInfo {
    /// The limit; `None` is unlimited.
    pub concurrency: Option<u32>,
    /// Slots held by the living.
    pub running: u32,
    /// RUNNING, less the spare slots that threads keep: what the dead left is in it until somebody looks.
    pub running_raw: i32,
    /// Members with somebody in line.
    pub waiters: u32,
    /// How long the first in line has waited; `None` if nobody waits.
    pub head_wait_ms: Option<u64>,
    /// Settings as given.
    pub configured: Concurrency,
    /// Resolved targets, lowest priority first; `None` is unlimited.
    pub targets: [Option<u32>; 7],
    /// Waiting per priority, lowest first, those behind their process's place included.
    pub queued: [u64; 7],
    /// Slots ever taken.
    pub admitted: u64,
    /// Slots ever given back.
    pub released: u64,
    /// Waits ever begun; = completed + cancelled + lost + the sum of queued.
    pub deferred: u64,
    /// Waits that ended with a turn.
    pub completed: u64,
    /// Waits given up.
    pub cancelled: u64,
    /// Waits that ended with their process.
    pub lost: u64,
    /// Slots of the dead given back.
    pub reclaimed: u64,
    /// How long anybody waited.
    pub pressure: Pressure,
    /// How long those waited that got their slots.
    pub waits: Durations,
    /// How long slots were held that were waited for, and those of `shmsched run`.
    pub holds: Durations,
}

/// The Limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterInfo {
    /// The rate, and the most that a quiet bucket holds.
    pub tokens_per_second: u32,
    /// The balance, with what has been earned since the word was written; negative in debt.
    pub tokens: i32,
    /// The TOKENS word itself.
    pub tokens_raw: i32,
    /// Members with somebody in line.
    pub waiters: u32,
    /// How long the first in line has waited; `None` if nobody waits.
    pub head_wait_ms: Option<u64>,
    /// Waiting per priority, lowest first, those behind their process's place included.
    pub queued: [u64; 7],
    /// Tokens ever taken, those given back left out.
    pub consumed: u64,
    /// Waits ever begun; = completed + cancelled + lost + the sum of queued.
    pub deferred: u64,
    /// Waits that ended with a turn.
    pub completed: u64,
    /// Waits given up.
    pub cancelled: u64,
    /// Waits that ended with their process.
    pub lost: u64,
    /// Admissions into debt: of a front that had waited a second, or of more than the bucket holds.
    pub forced: u64,
    /// How long anybody waited.
    pub pressure: Pressure,
    /// How long those waited that got their tokens.
    pub waits: Durations,
}

/// The Pacer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacerInfo {
    /// The least time between two starts.
    pub interval: Duration,
    /// How many may wait.
    pub max_waiting: u32,
    /// How many do.
    pub waiting: u32,
    /// How long the first in line has waited; `None` if nobody waits.
    pub head_wait_ms: Option<u64>,
    /// Until the next start is allowed; zero is now.
    pub next_start_in: Duration,
    /// Starts ever.
    pub started: u64,
    /// Callers ever refused because the queue was full.
    pub rejected: u64,
    /// Waits ever begun; = completed + cancelled + lost + waiting.
    pub deferred: u64,
    /// Waits that ended with a start.
    pub completed: u64,
    /// Waits given up.
    pub cancelled: u64,
    /// Waits that ended with their process.
    pub lost: u64,
    /// How long anybody waited.
    pub pressure: Pressure,
    /// How long those waited that started.
    pub waits: Durations,
}

/// How a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberState {
    /// Its lock is held, and so far as can be seen its process runs.
    Alive,
    /// Its process is stopped; it keeps what it holds.
    Stopped,
    /// Its process is ending, dumping core perhaps; it keeps what it holds until the kernel is done.
    Exiting,
    /// Its process is gone, but something that inherited its lock lives: the command of a killed `run`.
    Orphaned,
    /// Dead; the next look takes back what it held.
    Dead,
}

/// What a place in the line does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceState {
    /// Waits to be called.
    Asleep,
    /// It is its turn.
    Called,
    /// It let its turn pass; it keeps its place.
    Lapsed,
}

/// One place of a member in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingInfo {
    /// At which gate.
    pub gate: Gate,
    /// Of which priority; `None` at the Pacer, which has none.
    pub priority: Option<Priority>,
    /// Slots or tokens wanted; 1 at the Pacer.
    pub amount: u32,
    /// How long already.
    pub since_ms: u64,
    /// 1 is next, lottery aside.
    pub position: u32,
    /// What it does.
    pub state: PlaceState,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Its member slot.
    pub member: u32,
    /// Which attachment of that slot.
    pub generation: u32,
    /// Process id, in its own namespace.
    pub pid: u32,
    /// Whether that namespace is this process's.
    pub same_namespace: bool,
    /// What it runs: the first 64 bytes, as they are. Escape it before you show it.
    pub command: String,
    /// How it is.
    pub state: MemberState,
    /// How long it has been attached.
    pub age_ms: u64,
    /// Slots it holds.
    pub held: u32,
    /// For how long at most, if it ever waited for one. Who gets a slot at once reads no clock: then `None`, and all that
    /// is known is that it is no longer than `age_ms`.
    pub held_ms: Option<u64>,
    /// Where it waits.
    pub waiting: Vec<WaitingInfo>,
}

/// All of a segment at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The segment itself.
    pub segment: SegmentInfo,
    /// Its Scheduler, if it has one.
    pub scheduler: Option<SchedulerInfo>,
    /// Its Limiter, if it has one.
    pub limiter: Option<LimiterInfo>,
    /// Its Pacer, if it has one.
    pub pacer: Option<PacerInfo>,
    /// Its members.
    pub members: Vec<MemberInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(buckets: &[(usize, u64)], longest_us: u64) -> Durations {
        let mut durations = Durations {
            longest_us,
            ..Durations::default()
        };
        for (at, count) in buckets {
            durations.buckets[*at] = *count;
        }
        durations
    }

    #[test]
    fn a_quantile_is_a_bound_and_an_estimate_lies_below_it() {
        let none = Durations::default();
        assert_eq!((none.quantile_us(0.5), none.estimate_us(0.5)), (None, None));
        // Two hundred of about 190 ms, and one of a second.
        let some = of(&[(18, 200), (20, 1)], 1_000_000);
        assert_eq!(some.quantile_us(0.5), Some(262_144));
        // Halfway from 131 to 262 ms, on a logarithmic scale.
        assert!((184_000..187_000).contains(&some.estimate_us(0.5).unwrap()));
        assert_eq!(some.estimate_us(1.0), Some(1_000_000));
        assert_eq!(some.quantile_us(1.0), Some(1_000_000));
        // One alone is the longest.
        assert_eq!(of(&[(11, 1)], 1_500).estimate_us(0.5), Some(1_500));
        assert_eq!(of(&[(0, 9)], 0).estimate_us(0.5), Some(0));
        // The longest caps the bucket; torn readings and full counters are no reason to panic.
        assert!(of(&[(11, 9)], 1_030).estimate_us(0.9).unwrap() <= 1_030);
        assert_eq!(of(&[(11, 2)], 0).estimate_us(1.0), Some(1_024));
        let full = of(&[(31, u64::MAX)], u64::MAX);
        assert!(full.estimate_us(0.5).unwrap() >= 1 << 30);
        for durations in [some, full, of(&[(0, 1), (5, 7), (9, 3), (31, 2)], 1 << 40)] {
            let shares = (0..=100).map(|share| f64::from(share) / 100.0);
            let estimates: Vec<u64> = shares
                .clone()
                .flat_map(|it| durations.estimate_us(it))
                .collect();
            assert!(estimates.is_sorted(), "{estimates:?}");
            for (share, estimate) in shares.zip(estimates) {
                assert!(estimate <= durations.quantile_us(share).unwrap());
            }
        }
    }
}
