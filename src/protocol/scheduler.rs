//! The Scheduler's decisions: who may be in, and whose turn it is. Pure functions of what was read.

use super::line::{Doing, Entry, Line, Mark, Seat};
use crate::layout::{LANES, SchedulerHot};

/// How long a place that was called may keep silent before it is passed over, in ms.
pub const GRACE_MS: u32 = 250;
/// The same for a silent one right behind a lapsed one.
pub const NEXT_GRACE_MS: u32 = 10;
/// How long a head is passed by newcomers before it bars them, in ns.
pub const PATIENCE_NS: u64 = 500_000;
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

/// What to do about the line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Entries whose turn it is, and whether the draw made it so.
    pub calls: Vec<(usize, bool)>,
    /// Entries that were called and kept silent.
    pub lapses: Vec<usize>,
    /// An entry that won the draw, does not fit yet and has waited long enough to bar everybody.
    pub bar: Option<usize>,
    /// The first two that are not lapsed: they watch.
    pub watchers: [Option<usize>; 2],
    /// The entry that now lacks room under the limit and so holds up all behind it.
    pub short: Option<usize>,
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
    let mut plan = Plan::default();
    let mut taken = i64::from(view.running.max(0));
    let mut asleep = Vec::new();
    let mut after_lapsed = false;
    for (at, entry) in view.entries.iter().enumerate() {
        let grace = if after_lapsed {
            NEXT_GRACE_MS
        } else {
            GRACE_MS
        };
        let silent = view.ms.wrapping_sub(entry.state.ms());
        // A stamp ahead of now (another CPU's coarse clock) has just been written.
        let overdue = silent >= grace && silent < u32::MAX / 2;
        match entry.state.doing() {
            Doing::Lapsed => {
                after_lapsed = true;
                continue;
            }
            Doing::Called if overdue => {
                plan.lapses.push(at);
                after_lapsed = true;
                continue;
            }
            Doing::Called => taken += i64::from(entry.seat.amount),
            // More than there will ever be: it fails by itself when it wakes, and holds nobody up until then.
            Doing::Asleep if !view.limits.can_ever_fit(entry.seat.amount) => {}
            Doing::Asleep => asleep.push(at),
        }
        after_lapsed = false;
        if let Some(free) = plan.watchers.iter_mut().find(|watcher| watcher.is_none()) {
            *free = Some(at);
        }
    }
    let limit = i64::from(view.limits.concurrency.min(i32::MAX as u32));
    while !asleep.is_empty() && taken < limit {
        let Some((place, drawn)) = choose(&view, &asleep, taken, limit, &mut draw, &mut plan.bar)
        else {
            break;
        };
        let at = asleep.remove(place);
        taken += i64::from(view.entries[at].seat.amount);
        plan.calls.push((at, drawn));
    }
    // One held back by its own target alone holds up nobody.
    plan.short = asleep
        .into_iter()
        .find(|at| taken + i64::from(view.entries[*at].seat.amount) > limit);
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
    /// Where its callers wait.
    pub line: Line<'a>,
}

/// What [`Gate::advance`] found for the place that asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// It is the asker's turn; whether the draw made it so.
    pub turn: Option<bool>,
    /// It is among the first two, which keep the short timer.
    pub watches: bool,
    /// How many stand before it that have not lapsed.
    pub rank: u32,
    /// It lacks room under the limit and holds up all behind it.
    pub short: bool,
    /// Somebody before it was called and is not in yet: he may be stopped, and those who watch too.
    pub behind_called: bool,
    /// Somebody who was called has kept silent for more than 10 ms: he may be dead.
    pub silent: bool,
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
    /// Looks who is next and calls as many as now fit; passes over the silent. `ring` wakes a member's sleeper of a
    /// lane. With `me` the asker's own place is called like any other, and the answer says so instead of ringing.
    pub fn advance(
        &self,
        me: Option<(u32, usize)>,
        mut moment: Moment<'_>,
        ring: &mut dyn FnMut(u32, usize),
    ) -> Outlook {
        let mut outlook = Outlook::default();
        let mut lapsed = false;
        // Each round passes over somebody or loses a race to somebody who got on.
        for _ in 0..8 {
            if self.hot.summary.get() == 0 {
                return outlook; // pair: line-free
            }
            let entries = self.line.entries();
            let limits = Limits::read(self.hot);
            let running = self.hot.running.get();
            let mark = Mark(self.hot.hurry.get());
            let view = View {
                entries: &entries,
                running,
                limits: &limits,
                mark,
                now: moment.now,
                ms: moment.ms,
            };
            let draw = moment
                .draw
                .as_mut()
                .map(|draw| &mut **draw as &mut dyn FnMut() -> u32);
            let plan = plan(view, draw);
            let mine = |at: usize| me == Some((entries[at].member, entries[at].lane));
            outlook.watches = plan.watchers.iter().flatten().any(|at| mine(*at));
            outlook.short = plan.short.is_some_and(mine);
            let ahead = entries.iter().enumerate().take_while(|(at, _)| !mine(*at));
            outlook.rank = ahead
                .filter(|(_, e)| e.state.doing() != Doing::Lapsed)
                .count() as u32;
            let mut ahead = entries.iter().enumerate().take_while(|(at, _)| !mine(*at));
            outlook.behind_called = ahead.any(|(at, e)| {
                e.state.doing() == Doing::Called || plan.calls.iter().any(|call| call.0 == at)
            });
            outlook.silent = entries.iter().any(|entry| {
                let silent = moment.ms.wrapping_sub(entry.state.ms());
                entry.state.doing() == Doing::Called
                    && (NEXT_GRACE_MS..u32::MAX / 2).contains(&silent)
            });
            let mut again = false;
            for at in &plan.lapses {
                again |= self.line.lapse(&entries[*at], moment.ms);
            }
            if again {
                lapsed = true;
                continue;
            }
            if let Some(at) = plan.bar {
                let e = &entries[at];
                self.line
                    .mark(Mark::new(e.member, e.generation, e.lane, true));
                // It may have left before the mark was set, and would not clear it.
                self.line.tidy_mark(|amount| limits.can_ever_fit(amount));
            }
            for (at, drawn) in &plan.calls {
                let entry = &entries[*at];
                if !self.line.call(entry, *drawn, moment.ms) {
                    again = true;
                } else if mine(*at) {
                    outlook.turn = Some(*drawn);
                } else {
                    ring(entry.member, entry.lane);
                }
            }
            if !again {
                // Who left made a new second, who was woken as second is the first now: only the second can be one
                // that does not watch yet. A mere release changes nobody's rank.
                if let (true, Some(at)) = (lapsed || moment.draw.is_none(), plan.watchers[1]) {
                    let entry = &entries[at];
                    let called = plan.calls.iter().any(|call| call.0 == at);
                    if !mine(at)
                        && !called
                        && !entry.watching
                        && entry.state.doing() == Doing::Asleep
                    {
                        ring(entry.member, entry.lane);
                    }
                }
                return outlook;
            }
        }
        outlook
    }
}
