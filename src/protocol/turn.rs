//! Taking turns: what the plans of the three gates have in common, and what is done about a plan.

use super::line::{Doing, Entry, Line, Mark, Promise};

/// How long a place that was called may keep silent before it is passed over, in ms.
pub const GRACE_MS: u32 = 250;
/// The same for a silent one right behind a lapsed one.
pub const NEXT_GRACE_MS: u32 = 10;
/// No time of its own to look again.
pub const NEVER: u64 = u64::MAX;

/// What to do about the line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Entries whose turn it is, and whether by exception: the Scheduler's draw, the Limiter's guard.
    pub calls: Vec<(usize, bool)>,
    /// Entries that were called and kept silent.
    pub lapses: Vec<usize>,
    /// An entry that won the draw, does not fit yet and has waited long enough to bar everybody.
    pub bar: Option<usize>,
    /// Entries that look after the line, and when each must look again at the latest.
    pub watchers: Vec<(usize, u64)>,
    /// The entry that now lacks room under the limit and so holds up all behind it.
    pub short: Option<usize>,
}

/// Who of the line is called, silent or asleep.
#[derive(Clone, Debug, Default)]
pub struct Roll {
    /// Called and silent for the grace.
    pub lapses: Vec<usize>,
    /// Called, on its way.
    pub called: Vec<usize>,
    /// Waits to be called.
    pub asleep: Vec<usize>,
}

impl Roll {
    /// Reads the states. `ms` is now, coarse and wrapping.
    pub fn call(entries: &[Entry], ms: u32) -> Roll {
        let mut roll = Roll::default();
        let mut after_lapsed = false;
        for (at, entry) in entries.iter().enumerate() {
            let grace = if after_lapsed {
                NEXT_GRACE_MS
            } else {
                GRACE_MS
            };
            match entry.state.doing() {
                Doing::Lapsed => {
                    after_lapsed = true;
                    continue;
                }
                Doing::Called if silent_for(entry, ms) >= grace => {
                    roll.lapses.push(at);
                    after_lapsed = true;
                    continue;
                }
                Doing::Called => roll.called.push(at),
                Doing::Asleep => roll.asleep.push(at),
            }
            after_lapsed = false;
        }
        roll
    }

    /// In order, those that have not lapsed.
    pub fn awake(&self) -> Vec<usize> {
        let mut awake = [&self.called[..], &self.asleep[..]].concat();
        awake.sort_unstable();
        awake
    }
}

/// How long ago a place was called, in ms. A stamp ahead of now (another CPU's coarse clock) has just been written.
pub fn silent_for(entry: &Entry, ms: u32) -> u32 {
    let silent = ms.wrapping_sub(entry.state.ms());
    if silent < u32::MAX / 2 { silent } else { 0 }
}

/// What [`advance`] found for the place that asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// It is the asker's turn; whether by exception.
    pub turn: Option<bool>,
    /// It is among those that look after the line; when it must look again at the latest.
    pub watches: Option<u64>,
    /// How many stand before it that have not lapsed.
    pub rank: u32,
    /// It lacks room under the limit and holds up all behind it.
    pub short: bool,
    /// Somebody before it was called and is not in yet: he may be stopped, and those who watch too.
    pub behind_called: bool,
    /// Somebody who was called has kept silent for more than 10 ms: he may be dead.
    pub silent: bool,
}

/// Why somebody looks who is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Room came free: nobody's rank has changed.
    Freed,
    /// A waiter looks for itself, or somebody left: there may be a new watcher.
    Moved,
    /// Somebody's turn comes sooner than he thinks.
    Sooner,
}

/// Looks who is next and calls as many as now fit; passes over the silent. `ring` wakes a member's sleeper of a lane.
/// With `me` (spot and lane) the asker's own place is called like any other, and the answer says so instead of ringing;
/// if it is not its turn, its place says when it will look again.
pub fn advance(
    line: &Line<'_>,
    me: Option<(u32, usize)>,
    why: Why,
    (now, ms): (u64, u32),
    plan: &mut dyn FnMut(&[Entry]) -> Plan,
    can_ever_fit: &dyn Fn(u32) -> bool,
    ring: &mut dyn FnMut(u32, usize),
) -> Outlook {
    let mut outlook = Outlook::default();
    let mut why = why;
    // Each round passes over somebody or loses a race to somebody who got on.
    for _ in 0..8 {
        if line.summary.get() == 0 {
            return outlook; // pair: line-free
        }
        let entries = line.entries();
        let plan = plan(&entries);
        let mine = |at: usize| me == Some((entries[at].spot, entries[at].lane));
        let mut watchers = plan.watchers.iter();
        outlook.watches = watchers.find(|(at, _)| mine(*at)).map(|(_, due)| *due);
        outlook.short = plan.short.is_some_and(mine);
        let ahead = entries.iter().enumerate().take_while(|(at, _)| !mine(*at));
        outlook.rank = ahead
            .filter(|(_, e)| e.state.doing() != Doing::Lapsed)
            .count() as u32;
        let called = |at: usize| plan.calls.iter().any(|call| call.0 == at);
        let mut ahead = entries.iter().enumerate().take_while(|(at, _)| !mine(*at));
        outlook.behind_called = ahead.any(|(at, e)| e.state.doing() == Doing::Called || called(at));
        outlook.silent = entries.iter().any(|entry| {
            entry.state.doing() == Doing::Called && silent_for(entry, ms) >= NEXT_GRACE_MS
        });
        let mut again = false;
        for at in &plan.lapses {
            again |= line.lapse(&entries[*at], ms);
        }
        if again {
            why = Why::Sooner;
            continue;
        }
        if let Some(at) = plan.bar {
            let e = &entries[at];
            line.mark(Mark::new(e.member, e.generation, e.lane, true));
            // It may have left before the mark was set, and would not clear it.
            line.tidy_mark(can_ever_fit);
        }
        for (at, exception) in &plan.calls {
            let entry = &entries[*at];
            if !line.call(entry, *exception, ms) {
                again = true;
            } else if mine(*at) {
                outlook.turn = Some(*exception);
            } else {
                ring(entry.member, entry.lane);
            }
        }
        if again {
            continue;
        }
        if let (Some((spot, lane)), None) = (me, outlook.turn)
            && line.promise(spot, lane, Promise::new(outlook.watches, now))
        {
            continue;
        }
        // Who left made a new watcher, who sleeps for longer than it should.
        for (at, due) in plan.watchers.iter().filter(|_| why != Why::Freed) {
            let entry = &entries[*at];
            let asleep = entry.state.doing() == Doing::Asleep && !called(*at);
            let late = entry.promise.is_later_than(Promise::new(Some(*due), now));
            if asleep && !mine(*at) && (late || why == Why::Sooner) {
                ring(entry.member, entry.lane); // pair: line-promise
            }
        }
        return outlook;
    }
    if outlook.turn.is_none() {
        outlook.watches = Some(now); // nothing is settled: look again
    }
    outlook
}
