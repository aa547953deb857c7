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
use super::turn::{self, GRACE_MS, NEVER, Outlook, Plan, Roll, Why};
use crate::layout::{LANES, LimiterCold, LimiterHot};
use crate::words::U64;

/// After so long without getting on the front of a lane is admitted into debt.
pub const GUARD_NS: u64 = 1_000_000_000;
/// What a stall is told in.
pub const STALL_TICK_NS: u64 = 100_000_000;
/// How many of the line know by themselves when their turn comes. The others are told when they become such.
const AWARE: usize = 2;
/// When one that is behind somebody who was called looks again.
const BEHIND_NS: u64 = 50_000_000;
/// How long after his turn came somebody ahead is looked after.
const GRACE_NS: u64 = GRACE_MS as u64 * 1_000_000;

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
        let since = entry.seat.since.min(self.now);
        guard(&self.progress[entry.lane], since, self.now)
    }
}

/// When the front of a lane, in line since then, may go into debt. A lane that got on over a second from now, which only
/// a scribbler makes, has not got on.
pub fn guard(progress: &U64, since: u64, now: u64) -> u64 {
    let progress = match progress.get() {
        absurd if absurd > now.saturating_add(GUARD_NS) => 0,
        progress => progress.min(now),
    };
    progress.max(since).saturating_add(GUARD_NS)
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
    let amount = |at: usize| i64::from(view.entries[at].seat.amount);
    // What those called take, and what those before wait for.
    let mut taken: i64 = roll.called.iter().map(|at| amount(*at)).sum();
    let mut awaited = 0;
    // When somebody ahead will have been silent for long enough to look after him.
    let mut look_after = NEVER;
    // Lanes in which somebody was called just now, and in which somebody who comes first is not in.
    let mut lane_moves = [false; LANES];
    let mut lane_seen = [false; LANES];
    for (rank, at) in awake.into_iter().enumerate() {
        let entry = &view.entries[at];
        let lane = entry.lane;
        if roll.called.contains(&at) {
            look_after = look_after.min(view.now.saturating_add(BEHIND_NS));
            lane_seen[lane] = true;
            continue;
        }
        let wants = entry.seat.amount != 0;
        let enough = i64::from(view.bucket.enough(entry.seat.amount));
        // Once somebody of its lane gets on, the second of who is behind him begins.
        let front = !lane_seen[lane] && !lane_moves[lane];
        let fits = awaited == 0 && balance - taken >= enough;
        // Unless the debt would not fit, which later refills make true (I17).
        let forced = wants
            && !fits
            && front
            && view.guard(entry) <= view.now
            && balance - taken - amount(at) >= i64::from(i32::MIN);
        // Who wants none goes as soon as those of its own lane have.
        let goes = match wants {
            true => fits || forced,
            false => !lane_seen[lane],
        };
        if goes {
            taken += amount(at);
            lane_moves[lane] = true;
            lane_seen[lane] |= forced;
            look_after = look_after.min(view.now.saturating_add(GRACE_NS));
            plan.calls.push((at, forced));
            continue;
        }
        lane_seen[lane] = true;
        let mut due = NEVER;
        if rank < AWARE {
            due = look_after;
        }
        if wants {
            if rank < AWARE {
                due = due.min(view.bucket.due(taken + awaited + enough, view.now));
            }
            if front {
                let representable = taken + amount(at) + i64::from(i32::MIN);
                let fits = view.bucket.due(representable, view.now);
                due = due.min(view.guard(entry).max(fits));
            } else {
                // Should it become the front, its second begins then.
                due = due.min(view.now.saturating_add(GUARD_NS));
            }
            awaited += amount(at);
        }
        look_after = look_after.min(due.saturating_add(GRACE_NS));
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

    /// [`Gate::advance_by`] a clock that stands still.
    #[cfg(any(test, shmsched_loom))]
    pub fn advance(
        &self,
        me: Option<(u32, usize)>,
        why: Why,
        (now, ms): (u64, u32),
        ring: &mut dyn FnMut(u32, usize),
    ) -> Outlook {
        self.advance_by(&|| now, me, why, (now, ms), ring)
    }

    /// Refills by the clock, looks who is next and calls as many as now fit, see [`turn::advance`].
    pub fn advance_by(
        &self,
        clock: &dyn Fn() -> u64,
        me: Option<(u32, usize)>,
        why: Why,
        (now, ms): (u64, u32),
        ring: &mut dyn FnMut(u32, usize),
    ) -> Outlook {
        if self.line.summary.get() == 0 {
            return Outlook::default();
        }
        // Before the line is read, which then has whoever reckoned without it.
        if !super::mutant("refill-late") {
            self.bucket().refill_by(clock); // pair: bucket-credit
        }
        let mut plan = |entries: &[Entry]| {
            let bucket = self.bucket();
            if super::mutant("refill-late") {
                bucket.refill_by(clock);
            }
            let progress = &self.cold.progress;
            plan(View {
                entries,
                bucket,
                progress,
                now,
                ms,
            })
        };
        turn::advance(&self.line, me, why, (now, ms), &mut plan, &|_| true, ring)
    }

    /// Notes that the front of a lane got on, or that another is the front.
    pub fn got_on(&self, lane: usize, now: u64) {
        if let Some(progress) = self.cold.progress.get(lane) {
            progress.put(now);
        }
    }

    /// Whether the front of a lane, in line since then, may go into debt now.
    pub fn may_force(&self, lane: usize, since: u64, now: u64) -> bool {
        let progress = self.cold.progress.get(lane);
        progress.is_some_and(|progress| guard(progress, since, now) <= now)
    }
}
