//! The Limiter's decisions: whose tokens the next ones are. Pure functions of what was read.
//!
//! Strictly the most urgent first, within a lane in order of arrival: whoever lacks tokens holds up all behind it, but two.
//! One that wants no tokens waits only for those of its own lane (I10 to I12). The front of a lane that has not got on
//! for a second is admitted into debt, so that nothing starves (I15); that counts as getting on, so it is one a second
//! for each lane at most (I19).
//!
//! Nobody ticks: the first two and the front of each lane know when their turn comes, the others are told when they
//! become such. Pair `bucket-credit`: who claims a window credits it, then reads SUMMARY; who joins writes SUMMARY, then
//! reads TOKENS, and reckons from them when its turn comes.

use super::bucket::Bucket;
use super::line::{Entry, Line};
use super::turn::{self, NEVER, Outlook, Plan, Roll, Why};
use crate::layout::{LANES, LimiterCold, LimiterHot};
use crate::words::U64;

/// After so long without getting on the front of a lane is admitted into debt.
pub const GUARD_NS: u64 = 1_000_000_000;
/// How many of the line know by themselves when their turn comes. The others are told when they become such.
const AWARE: usize = 2;
/// When one that is behind somebody who was called looks again.
const BEHIND_NS: u64 = 50_000_000;

/// What the plan is made from.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The line, in order.
    pub entries: &'a [Entry],
    /// The bucket, refilled up to now.
    pub bucket: Bucket<'a>,
    /// Per lane, when its front last got on.
    pub progress: &'a [U64; LANES],
    /// Now, in ns.
    pub now: u64,
    /// Now, coarse ms, wrapping.
    pub ms: u32,
}

impl View<'_> {
    /// When the front of its lane is admitted whatever the balance.
    fn guard(&self, entry: &Entry) -> u64 {
        let progress = self.progress[entry.lane].get().min(self.now);
        progress.max(entry.seat.since).saturating_add(GUARD_NS)
    }
}

/// Looks who is next and how many fit now, those already called counted as if they were in.
pub fn plan(view: View<'_>) -> Plan {
    let roll = Roll::call(view.entries, view.ms);
    let awake = roll.awake();
    let mut plan = Plan {
        lapses: roll.lapses,
        ..Plan::default()
    };
    let balance = i64::from(view.bucket.tokens());
    // What those called and those before take.
    let amount = |at: usize| i64::from(view.entries[at].seat.amount);
    let mut taken: i64 = roll.called.iter().map(|at| amount(*at)).sum();
    let mut behind_called = false;
    let mut held_up = false;
    let mut lane_seen = [false; LANES];
    for (rank, at) in awake.into_iter().enumerate() {
        let entry = &view.entries[at];
        if roll.called.contains(&at) {
            behind_called = true;
            lane_seen[entry.lane] = true;
            continue;
        }
        let front = !lane_seen[entry.lane];
        let enough = i64::from(view.bucket.enough(entry.seat.amount));
        if entry.seat.amount == 0 {
            // Goes as soon as those of its own lane have.
            if front {
                plan.calls.push((at, false));
                continue;
            }
        } else if !held_up && balance - taken >= enough {
            taken += amount(at);
            plan.calls.push((at, false));
            continue;
        } else if front && view.guard(entry) <= view.now {
            // Unless the debt would not fit, which later refills make true (I17).
            if balance - taken - amount(at) >= i64::from(i32::MIN) {
                taken += amount(at);
                lane_seen[entry.lane] = true;
                plan.calls.push((at, true));
                continue;
            }
        }
        lane_seen[entry.lane] = true;
        let mut due = NEVER;
        if entry.seat.amount != 0 {
            if rank < AWARE {
                due = view.bucket.due(taken + enough, view.now);
            }
            if front {
                let unrepresentable = taken + amount(at) + i64::from(i32::MIN);
                let fits = view.bucket.due(unrepresentable, view.now);
                due = due.min(view.guard(entry).max(fits));
            } else {
                // Should it become the front, its second begins then.
                due = due.min(view.now.saturating_add(GUARD_NS));
            }
            held_up = true;
            taken += amount(at);
        }
        if behind_called && rank < AWARE {
            due = due.min(view.now.saturating_add(BEHIND_NS));
        }
        if rank < AWARE || front {
            plan.watchers.push((at, due));
        }
    }
    plan
}

/// The words of a Limiter.
#[derive(Clone, Copy)]
pub struct Gate<'a> {
    /// The hot line.
    pub hot: &'a LimiterHot,
    /// The cold line.
    pub cold: &'a LimiterCold,
    /// Where its callers wait.
    pub line: Line<'a>,
}

impl<'a> Gate<'a> {
    /// The bucket.
    pub fn bucket(&self) -> Bucket<'a> {
        Bucket { hot: self.hot }
    }

    /// Refills, looks who is next and calls as many as now fit, see [`turn::advance`].
    pub fn advance(
        &self,
        me: Option<(u32, usize)>,
        why: Why,
        (now, ms): (u64, u32),
        ring: &mut dyn FnMut(u32, usize),
    ) -> Outlook {
        let mut plan = |entries: &[Entry]| {
            let bucket = self.bucket();
            bucket.refill(now);
            let progress = &self.cold.progress;
            plan(View {
                entries,
                bucket,
                progress,
                now,
                ms,
            })
        };
        turn::advance(&self.line, me, why, ms, &mut plan, &|_| true, ring)
    }

    /// Notes that the front of a lane got on, or that another is the front.
    pub fn got_on(&self, lane: usize, now: u64) {
        if let Some(progress) = self.cold.progress.get(lane) {
            progress.put(now);
        }
    }

    /// Whether the front of a lane, in line since then, may go into debt now.
    pub fn may_force(&self, lane: usize, since: u64, now: u64) -> bool {
        let progress = self.cold.progress[lane].get().min(now);
        now.saturating_sub(progress.max(since)) >= GUARD_NS
    }
}
