//! The Pacer's decisions: when the next start is, and whose. Pure functions of what was read.
//!
//! The head serves itself: when it is due it moves the next start by one compare-exchange, to an interval after now, and
//! once more right before its operation runs. So there is no state "let in but not begun" that a stopped process could
//! hold, spacing is measured between real starts, and a late one never makes the next come early (P8 to P12).

use super::line::{Entry, Line};
use super::turn::{self, GRACE_MS, NEVER, Outlook, Plan, Roll, Why};
use crate::layout::PacerHot;

/// How many members of the line know by themselves when their turn comes. The others are told when they become such.
const AWARE: usize = 2;
/// When one that is behind somebody who was called looks again.
const BEHIND_NS: u64 = 50_000_000;
/// How long after his turn came somebody ahead is looked after.
const GRACE_NS: u64 = GRACE_MS as u64 * 1_000_000;
/// Only a next start so much further ahead than an interval is put right: who read the clock before a start that came
/// between sees that start further ahead than an interval too.
const SLACK_NS: u64 = 1_000_000_000;

/// The words of a Pacer.
#[derive(Clone, Copy)]
pub struct Gate<'a> {
    /// The hot line.
    pub hot: &'a PacerHot,
    /// Where its callers wait.
    pub line: Line<'a>,
}

/// Looks who is next: one may start once it is time, and the next an interval after him. Of a member's places the first
/// looks after the line: whoever else waits in that process waits for him.
pub fn plan(entries: &[Entry], next_start: u64, interval: u64, now: u64, ms: u32) -> Plan {
    let roll = Roll::call(entries, ms);
    let mut plan = Plan {
        lapses: roll.lapses.clone(),
        ..Plan::default()
    };
    let mut due = next_start;
    // When somebody ahead will have been silent for long enough to look after him.
    let mut look_after = NEVER;
    let mut members = Vec::with_capacity(AWARE);
    for (rank, at) in roll.awake().into_iter().enumerate() {
        let member = entries[at].member;
        if !members.contains(&member) {
            if members.len() == AWARE {
                break;
            }
            members.push(member);
            if roll.called.contains(&at) {
                look_after = look_after.min(now.saturating_add(BEHIND_NS));
            } else if rank == 0 && due <= now {
                plan.calls.push((at, false));
                look_after = now.saturating_add(GRACE_NS);
            } else {
                let look = due.min(look_after);
                plan.watchers.push((at, look));
                look_after = look.saturating_add(GRACE_NS);
            }
        }
        due = due.max(now).saturating_add(interval);
    }
    plan
}

impl Gate<'_> {
    /// The interval, at least a nanosecond.
    #[inline(always)]
    pub fn interval(&self) -> u64 {
        self.hot.interval.peek().max(1)
    }

    /// When the next start is allowed. Far more than an interval ahead, which only a clock that stepped back or a shorter
    /// interval makes, counts as an interval ahead.
    pub fn next_start(&self, now: u64) -> u64 {
        let next = self.hot.next_start.get();
        self.put_right(next, now).unwrap_or(next)
    }

    /// What a next start is instead that is absurdly far ahead.
    fn put_right(&self, next: u64, now: u64) -> Option<u64> {
        let latest = now.saturating_add(self.interval());
        (next > latest.saturating_add(SLACK_NS)).then_some(latest)
    }

    /// Puts an absurd next start right: those in line wait for it.
    fn tidy(&self, now: u64) {
        let next = self.hot.next_start.get();
        if let Some(right) = self.put_right(next, now) {
            let _ = self.hot.next_start.replace(next, right);
        }
    }

    /// Takes the next start if it is time (P16), and says when the one after it is: an interval from now.
    ///
    /// `clock` is read after the word that it is compared with: with a time from before, a start of somebody who came between
    /// would look too far ahead, however long this one was stopped.
    #[inline(always)]
    pub fn take(&self, clock: impl Fn() -> u64) -> Option<u64> {
        // Each round loses to another start, which is in the future then, but for a scribbler.
        for _ in 0..4 {
            let seen = self.hot.next_start.get();
            let now = clock();
            if seen > now {
                if let Some(right) = self.put_right(seen, now) {
                    let _ = self.hot.next_start.replace(seen, right);
                }
                return None;
            }
            let next = now.saturating_add(self.interval());
            if super::mutant("start-claim") {
                self.hot.next_start.put(next);
                return Some(next);
            }
            if self.hot.next_start.replace(seen, next).is_ok() {
                return Some(next);
            }
        }
        None
    }

    /// [`Gate::take`] by a clock that stands still.
    #[cfg(any(test, shmsched_loom))]
    pub fn start(&self, now: u64) -> bool {
        self.take(|| now).is_some()
    }

    /// An operation is about to begin whose start was taken before, up to `next`: nobody starts within an interval of this
    /// (P12). `false`: that was so long ago that somebody else may have started meanwhile, so this one needs another start.
    #[inline(always)]
    pub fn begin(&self, mut next: u64, clock: impl Fn() -> u64) -> bool {
        // An interval may be shorter than a round takes.
        for _ in 0..4 {
            let now = clock();
            if now < next {
                self.put_off(now.saturating_add(self.interval()));
                return true;
            }
            match self.take(&clock) {
                Some(later) => next = later,
                None => return false,
            }
        }
        self.put_off(clock().saturating_add(self.interval()));
        true
    }

    /// No start before this. The next start only moves away.
    fn put_off(&self, next: u64) {
        // Each round loses to another start or begin, which is as late as this or nearly so.
        for _ in 0..4 {
            let seen = self.hot.next_start.get();
            if seen >= next || self.hot.next_start.replace(seen, next).is_ok() {
                return;
            }
        }
    }

    /// Changes the interval: the next start is no further away than the new one.
    pub fn set_interval(&self, interval: u64, now: u64) {
        self.hot.interval.put(interval.max(1));
        let latest = now.saturating_add(interval.max(1));
        let mut seen = self.hot.next_start.get();
        // Each round loses to a start, which may have been of the old interval.
        for _ in 0..4 {
            if seen <= latest {
                return;
            }
            match self.hot.next_start.replace(seen, latest) {
                Ok(_) => return,
                Err(moved) => seen = moved,
            }
        }
    }

    /// Looks who is next and calls him if it is time, see [`turn::advance`].
    pub fn advance(
        &self,
        me: Option<(u32, usize)>,
        why: Why,
        (now, ms): (u64, u32),
        ring: &mut dyn FnMut(u32, usize),
    ) -> Outlook {
        self.tidy(now);
        let mut plan =
            |entries: &[Entry]| plan(entries, self.next_start(now), self.interval(), now, ms);
        turn::advance(&self.line, me, why, (now, ms), &mut plan, &|_| true, ring)
    }

    /// Nobody waits, so that a newcomer need not.
    #[inline(always)]
    pub fn nobody_waits(&self) -> bool {
        self.hot.summary.peek() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::PacerCold;
    use std::cell::Cell;

    const INTERVAL: u64 = 100;

    fn with_gate(test: impl FnOnce(Gate<'_>)) {
        let (hot, cold) = (PacerHot::default(), PacerCold::default());
        hot.interval.put(INTERVAL);
        let line = Line {
            summary: &hot.summary,
            hurry: &hot.hurry,
            waiters: &hot.waiters,
            ticket: &cold.ticket,
            lanes: 1,
            bits: &[],
            words: 0,
            places: &[],
            by_member: false,
            roster: &[],
        };
        test(Gate { hot: &hot, line });
    }

    /// One that was stopped between reading the next start and its clock must not move it back, which its clock would take for
    /// too far ahead: another has started in between.
    #[test]
    fn one_who_was_stopped_brings_nobody_closer() {
        with_gate(|gate| {
            assert!(gate.start(1_000));
            let time = Cell::new(1_150);
            let while_another_starts = || {
                let now = time.get();
                if now == 1_150 {
                    assert!(gate.start(1_150));
                    time.set(1_160);
                }
                now
            };
            assert_eq!(gate.take(while_another_starts), None);
            assert_eq!(gate.hot.next_start.get(), 1_250);
        });
    }

    /// P12 and P13: what begins late moves the next one away; what never begins leaves it as it was.
    #[test]
    fn an_operation_that_begins_late_moves_the_next() {
        with_gate(|gate| {
            let next = gate.take(|| 1_000).unwrap();
            assert_eq!((next, gate.next_start(1_040)), (1_100, 1_100));
            assert!(gate.begin(next, || 1_040));
            assert!(!gate.start(1_139) && gate.start(1_140));
            // An earlier one never moves it back.
            assert!(gate.begin(next, || 1_090));
            assert_eq!(gate.hot.next_start.get(), 1_240);
        });
    }

    /// Case 45: so late that its start is over. It takes another one, unless somebody else was faster.
    #[test]
    fn an_operation_that_is_an_interval_late_needs_another_start() {
        with_gate(|gate| {
            let next = gate.take(|| 1_000).unwrap();
            assert!(gate.begin(next, || 1_100), "nobody else has started");
            assert!(!gate.start(1_199) && gate.start(1_200));
            // Now somebody has.
            assert!(!gate.begin(next, || 1_250));
            assert_eq!(gate.hot.next_start.get(), 1_300);
        });
    }

    #[test]
    fn the_end_of_time_saturates() {
        with_gate(|gate| {
            gate.hot.interval.put(u64::MAX);
            let next = gate.take(|| 5).unwrap();
            assert!(gate.begin(next, || 7));
            assert_eq!(gate.hot.next_start.get(), u64::MAX);
            assert!(!gate.start(u64::MAX - 1));
        });
    }
}
