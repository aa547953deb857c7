//! The Scheduler's decisions: who may be in, and whose turn it is. Pure functions of what was read.

use super::ledger::spare;
use super::line::{Doing, Entry, Line, Mark, Seat};
use super::turn::{self, NEVER, Outlook, Plan, Roll, Why};
use crate::layout::{LANES, SchedulerCold, SchedulerHot};

/// How long a head is passed by newcomers before it bars them, in ns.
pub const PATIENCE_NS: u64 = 500_000;
/// For how long spare slots are lent while somebody waits, in ns: as long as a head is passed.
pub const LEND_NS: u64 = PATIENCE_NS;
/// Weights of the lottery, lowest priority first.
pub const WEIGHTS: [u32; LANES] = [1, 2, 4, 8, 16, 32, 64];
/// Their sum: a draw is a number below it.
pub const TICKETS: u32 = 127;

/// The limits as read once: `u32::MAX` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Slots in all.
    pub concurrency: u32,
    /// Targets, lowest priority first.
    pub targets: [u32; LANES],
}

impl Limits {
    /// Reads the words. A negative one is unlimited.
    pub fn read(hot: &SchedulerHot) -> Limits {
        Limits {
            concurrency: hot.concurrency.get().try_into().unwrap_or(u32::MAX),
            targets: std::array::from_fn(|lane| {
                hot.targets[lane].get().try_into().unwrap_or(u32::MAX)
            }),
        }
    }

    /// Up to which RUNNING a waiter may be admitted at this priority. A drawn turn may pass the targets, never the
    /// limit, nor its handle's own.
    pub fn bound(&self, lane: usize, seat: &Seat, drawn: bool) -> u32 {
        let limit = self.concurrency.min(seat.ceiling).min(i32::MAX as u32);
        if drawn {
            return limit;
        }
        // A target below the amount delays until nothing else runs; a target of zero leaves it to the draw.
        match self.targets[lane].min(seat.bound) {
            0 => 0,
            target => limit.min(target.max(seat.amount)),
        }
    }

    /// Whether so much can ever be admitted. A limit of zero pauses, it does not refuse.
    pub fn can_ever_fit(&self, amount: u32) -> bool {
        self.concurrency == 0 || amount <= self.concurrency.min(i32::MAX as u32)
    }
}

/// Up to which RUNNING one slot may be taken on the fast path.
#[inline(always)]
pub fn fast_bound(hot: &SchedulerHot, lane: usize, handle: u32) -> u32 {
    // As unsigned, -1 (unlimited) is the largest number.
    let limit = hot.concurrency.peek() as u32;
    let target = hot.targets[lane].peek() as u32;
    limit.min(target).min(handle)
}

/// The lane a draw names.
pub fn drawn_lane(draw: u32) -> usize {
    let mut left = draw % TICKETS;
    for lane in (0..LANES).rev() {
        if left < WEIGHTS[lane] {
            return lane;
        }
        left -= WEIGHTS[lane];
    }
    0
}

/// What the plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The line, in order.
    pub entries: &'a [Entry],
    /// RUNNING.
    pub running: i32,
    /// The limits.
    pub limits: &'a Limits,
    /// The hurry word.
    pub mark: Mark,
    /// Now, in ns.
    pub now: u64,
    /// Now, coarse ms, wrapping.
    pub ms: u32,
}

/// Looks who is next and how many fit now, those already called counted as if they were in. `draw` is asked once per
/// turn given away; without it only the order decides.
pub fn plan(view: View<'_>, mut draw: Option<&mut dyn FnMut() -> u32>) -> Plan {
    let roll = Roll::call(view.entries, view.ms);
    let amount = |at: usize| i64::from(view.entries[at].seat.amount);
    let mut taken = i64::from(view.running.max(0));
    taken += roll.called.iter().map(|at| amount(*at)).sum::<i64>();
    // The first two that have not lapsed watch.
    let watchers = roll.awake().into_iter().take(2).map(|at| (at, NEVER));
    let mut plan = Plan {
        watchers: watchers.collect(),
        lapses: roll.lapses,
        ..Plan::default()
    };
    let mut asleep = roll.asleep;
    // More than there will ever be: it fails by itself when it wakes, and holds nobody up until then.
    asleep.retain(|at| view.limits.can_ever_fit(view.entries[*at].seat.amount));
    let limit = i64::from(view.limits.concurrency.min(i32::MAX as u32));
    while !asleep.is_empty() && taken < limit {
        let Some((place, drawn)) = choose(&view, &asleep, taken, limit, &mut draw, &mut plan.bar)
        else {
            break;
        };
        let at = asleep.remove(place);
        taken += amount(at);
        plan.calls.push((at, drawn));
    }
    // One held back by its own target alone holds up nobody.
    plan.short = asleep.into_iter().find(|at| taken + amount(*at) > limit);
    plan
}

/// Position in `asleep` of the next one.
fn choose(
    view: &View<'_>,
    asleep: &[usize],
    taken: i64,
    limit: i64,
    draw: &mut Option<&mut dyn FnMut() -> u32>,
    bar: &mut Option<usize>,
) -> Option<(usize, bool)> {
    let entry = |position: usize| &view.entries[asleep[position]];
    let fits_limit = |position: usize| taken + i64::from(entry(position).seat.amount) <= limit;
    let fits_drawn = |position: usize| {
        let e = entry(position);
        taken + i64::from(e.seat.amount) <= i64::from(view.limits.bound(e.lane, &e.seat, true))
    };
    // A winner that bars everybody is next, whoever else there is.
    if view.mark.drawn() {
        let winner = (0..asleep.len()).find(|p| {
            let e = entry(*p);
            view.mark == Mark::new(e.member, e.generation, e.lane, true)
        });
        if let Some(winner) = winner
            && (fits_drawn(winner) || !fits_limit(winner))
        {
            return fits_limit(winner).then_some((winner, true));
        }
    }
    if let Some(draw) = draw {
        let lane = drawn_lane(draw());
        if let Some(head) = (0..asleep.len()).find(|position| entry(*position).lane == lane) {
            if fits_drawn(head) {
                return Some((head, true));
            }
            if !fits_limit(head) && view.now.saturating_sub(entry(head).seat.since) >= PATIENCE_NS {
                *bar = Some(asleep[head]);
                return None;
            }
        }
    }
    for position in 0..asleep.len() {
        if !fits_limit(position) {
            // Lack of room under the limit holds up everybody behind, smaller ones too.
            return None;
        }
        let e = entry(position);
        let bound = view.limits.bound(e.lane, &e.seat, false);
        if taken + i64::from(e.seat.amount) <= i64::from(bound) {
            return Some((position, false));
        }
        // Held back by its own target: holds up nobody.
    }
    None
}

/// The words of a Scheduler.
#[derive(Clone, Copy)]
pub struct Gate<'a> {
    /// The hot line.
    pub hot: &'a SchedulerHot,
    /// Beside it.
    pub cold: &'a SchedulerCold,
    /// Where its callers wait.
    pub line: Line<'a>,
}

/// When it is, and what chance says.
pub struct Moment<'a> {
    /// Now, in ns.
    pub now: u64,
    /// Now, coarse ms, wrapping.
    pub ms: u32,
    /// Asked once per turn given away; `None`: only the order decides.
    pub draw: Option<&'a mut dyn FnMut() -> u32>,
}

impl Gate<'_> {
    /// When the first in line recalls the spare slots that are lent. `None`: none are.
    pub fn lent_until(&self, now: u64) -> Option<u64> {
        if spare::phase(self.hot.spares.get()) != spare::LENT {
            return None; // pair: spare-lend
        }
        // One from the future is a scribbler's, of an earlier boot, or was lent after `now` was read: a look too many.
        let due = self.cold.lent.get().saturating_add(LEND_NS);
        Some(match due.saturating_sub(now) > LEND_NS {
            true => now,
            false => due,
        })
    }

    /// Whether all the room there is belongs to one who was called and is on its way: then a plan would call nobody. For
    /// a releaser who has subtracted from RUNNING, on the same side of the pair `line-free` as the plan: what it reads of
    /// the place, the plan would have read. With many who wait that is a fraction of reading the line.
    ///
    /// `false` where somebody may be silent: passing over him is a plan's affair.
    pub fn is_spoken_for(&self, ms: u32) -> bool {
        let hint = self.hot.called.get();
        let Some(lane) = (hint & 7).checked_sub(1) else {
            return false;
        };
        let Some(entry) = self.line.read(hint >> 3, lane as usize) else {
            return false;
        };
        let limit = i64::from(Limits::read(self.hot).concurrency.min(i32::MAX as u32));
        let running = i64::from(self.hot.running.get().max(0)); // pair: line-free
        let called = entry.state.doing() == Doing::Called || super::mutant("spoken-asleep");
        called
            && turn::silent_for(&entry, ms) < turn::NEXT_GRACE_MS
            && running + i64::from(entry.seat.amount) >= limit
    }

    /// Looks who is next and calls as many as now fit, see [`turn::advance`]. With a draw, room came free; else a waiter
    /// looks, or somebody left.
    pub fn advance(
        &self,
        me: Option<(u32, usize)>,
        mut moment: Moment<'_>,
        ring: &mut dyn FnMut(u32, usize),
    ) -> Outlook {
        let why = match moment.draw {
            Some(_) => Why::Freed,
            None => Why::Moved,
        };
        let (now, ms) = (moment.now, moment.ms);
        let mut plan = |entries: &[Entry]| {
            let view = View {
                entries,
                limits: &Limits::read(self.hot),
                running: self.hot.running.get(),
                mark: Mark(self.hot.hurry.get()),
                now,
                ms,
            };
            let draw = moment.draw.as_mut();
            let mut plan = plan(
                view,
                draw.map(|draw| &mut **draw as &mut dyn FnMut() -> u32),
            );
            if let (Some(due), Some(first)) = (self.lent_until(now), plan.watchers.first_mut()) {
                first.1 = due;
            }
            if let Some((at, _)) = plan.calls.last() {
                let Entry { member, lane, .. } = entries[*at];
                self.hot.called.poke(member << 3 | (lane as u32 + 1));
            }
            plan
        };
        let can_ever_fit = |amount: u32| Limits::read(self.hot).can_ever_fit(amount);
        turn::advance(
            &self.line,
            me,
            why,
            (now, ms),
            &mut plan,
            &can_ever_fit,
            ring,
        )
    }
}
