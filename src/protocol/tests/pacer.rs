//! When the next start is, and whose, in plain memory with a clock of its own.

use super::{entry, member, owner};
use crate::layout::{Member, PacerCold, PacerHot, Place};
use crate::protocol::line::{Doing, Entry, Line, Seat, State};
use crate::protocol::pacer::{Gate, plan};
use crate::protocol::roster::{self, Owner};
use crate::protocol::turn::{GRACE_MS, NEVER, Outlook, Plan, Why};
use crate::words::U64;
use proptest::prelude::*;
use std::cell::Cell;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const NOW: u64 = 1_000 * SECOND;

/// A process: its first in line acts for it. Nobody has a timer but that which the plan gives him.
#[derive(Default)]
struct Process {
    rung: Cell<bool>,
    due: Cell<u64>,
    stopped: Cell<bool>,
}

/// A Pacer, and so many members and places.
struct World {
    hot: PacerHot,
    cold: PacerCold,
    roster: Vec<Member>,
    bits: Vec<U64>,
    places: Vec<Place>,
    processes: Vec<Process>,
    /// Spot and member, in order of arrival.
    waiters: Vec<(u32, u32)>,
    now: u64,
    /// Every timer comes so much too late.
    late: u64,
    /// How often anybody woke.
    wakes: Cell<u64>,
}

impl World {
    fn new(interval: u64, members: usize, places: usize) -> World {
        let world = World {
            hot: PacerHot::default(),
            cold: PacerCold::default(),
            roster: (0..members).map(|_| member()).collect(),
            bits: (0..places.div_ceil(64)).map(|_| U64::new(0)).collect(),
            places: (0..places).map(|_| Place::default()).collect(),
            processes: (0..members).map(|_| Process::default()).collect(),
            waiters: Vec::new(),
            now: NOW,
            late: 0,
            wakes: Cell::new(0),
        };
        world.hot.interval.put(interval);
        for member in &world.roster {
            assert_eq!(roster::claim(member), Some(1));
        }
        world
    }

    fn line(&self) -> Line<'_> {
        Line {
            summary: &self.hot.summary,
            hurry: &self.hot.hurry,
            waiters: &self.hot.waiters,
            ticket: &self.cold.ticket,
            lanes: 1,
            bits: &self.bits,
            words: self.bits.len(),
            places: &self.places,
            by_member: false,
            roster: &self.roster,
        }
    }

    fn gate(&self) -> Gate<'_> {
        Gate {
            hot: &self.hot,
            line: self.line(),
        }
    }

    fn moment(&self) -> (u64, u32) {
        (self.now, (self.now / MS) as u32)
    }

    fn ring(&self, member: u32) {
        self.processes[member as usize].rung.set(true);
    }

    fn advance(&self, me: Option<(u32, usize)>, why: Why) -> Outlook {
        let mut ring = |member: u32, _| self.ring(member);
        self.gate().advance(me, why, self.moment(), &mut ring)
    }

    /// What a newcomer may do.
    fn start_now(&self) -> bool {
        self.gate().nobody_waits() && self.gate().start(self.now)
    }

    /// Starts at once, or takes a place. `None`: QueueFull.
    fn arrive(&mut self, member: u32) -> Option<Option<u32>> {
        if self.start_now() {
            return Some(None);
        }
        let spots = 0..self.places.len() as u32;
        let spot = self.line().take_spot(spots, owner(member))?;
        let seat = Seat {
            amount: 1,
            bound: 0,
            ceiling: 0,
            since: self.now,
        };
        self.line().join(spot, owner(member), 0, seat);
        self.waiters.push((spot, member));
        if self.first(member) == Some(spot) {
            self.ring(member);
        }
        Some(Some(spot))
    }

    fn first(&self, member: u32) -> Option<u32> {
        let first = self.waiters.iter().find(|waiter| waiter.1 == member);
        first.map(|waiter| waiter.0)
    }

    fn leave(&mut self, spot: u32, why: Why) {
        let at = self.waiters.iter().position(|waiter| waiter.0 == spot);
        let (_, member) = self.waiters.remove(at.unwrap());
        self.line().leave(spot, 1, 0);
        self.line().free_spot(spot, owner(member));
        self.ring(member);
        self.advance(None, why);
    }

    /// One try of the first of a process, as the library makes it. Whether he started.
    fn attempt(&self, member: u32, spot: u32) -> bool {
        self.wakes.set(self.wakes.get() + 1);
        for _ in 0..64 {
            let was = self.line().settle(spot, 0);
            if was.doing() != Doing::Called {
                let outlook = self.advance(Some((spot, 0)), Why::Moved);
                if outlook.turn.is_none() {
                    let due = outlook.watches.unwrap_or(NEVER);
                    self.processes[member as usize].due.set(due);
                    return false;
                }
            }
            if self.gate().start(self.now) {
                return true;
            }
        }
        panic!("64 rounds lost");
    }

    /// Who starts until `until`, and when.
    fn run(&mut self, until: u64) -> Vec<(u32, u64)> {
        let mut starts = Vec::new();
        loop {
            let processes = &self.processes;
            let ready = |p: &Process| p.rung.get() && !p.stopped.get();
            if let Some(member) = processes.iter().position(ready) {
                processes[member].rung.set(false);
                processes[member].due.set(NEVER);
                let member = member as u32;
                if let Some(spot) = self.first(member)
                    && self.attempt(member, spot)
                {
                    starts.push((spot, self.now));
                    self.leave(spot, Why::Moved);
                }
                continue;
            }
            let awake = processes.iter().filter(|p| !p.stopped.get());
            let next = awake.map(|p| p.due.get()).min().unwrap_or(NEVER);
            if next > until {
                self.now = self.now.max(until);
                return starts;
            }
            self.now = self.now.max(next.saturating_add(self.late));
            for process in processes.iter().filter(|p| p.due.get() <= self.now) {
                process.rung.set(true);
            }
        }
    }

    fn is_empty(&self) -> bool {
        let free = |place: &Place| place.owner.get() == 0 && place.ticket.get() == 0;
        self.hot.summary.get() == 0
            && self.bits.iter().all(|word| word.get() == 0)
            && self.places.iter().all(free)
    }
}

fn asleep(spot: u32) -> Entry {
    entry(spot, 0, u64::from(spot) + 1, 1, 0)
}

fn called(spot: u32, ago: u32) -> Entry {
    let mut entry = asleep(spot);
    let ms = ((NOW / MS) as u32).wrapping_sub(ago);
    entry.state = State(u64::from(ms) << 32 | 1);
    entry
}

fn plan_at(entries: &[Entry], next: u64, interval: u64) -> Plan {
    plan(entries, next, interval, NOW, (NOW / MS) as u32)
}

#[test]
fn a_member_watches_once() {
    let mut entries = [asleep(0), asleep(1), asleep(2), asleep(3)];
    entries[1].member = 0;
    entries[3].member = 2;
    let plan = plan_at(&entries, NOW + 1, 10);
    assert_eq!(plan.watchers, [(0, NOW + 1), (2, NOW + 21)]);
}

#[test]
fn only_the_head_is_called_and_only_when_it_is_time() {
    let entries = [asleep(0), asleep(1), asleep(2)];
    let plan = plan_at(&entries, NOW + 1, 10);
    assert_eq!(plan.calls, []);
    assert_eq!(plan.watchers, [(0, NOW + 1), (1, NOW + 11)]);
    // P16: exactly then is allowed. The next one comes an interval after him (P9).
    for next in [0, NOW - 1, NOW] {
        let plan = plan_at(&entries, next, 10);
        assert_eq!(plan.calls, [(0, false)]);
        assert_eq!(plan.watchers, [(1, NOW + 10)]);
    }
}

#[test]
fn a_silent_head_is_looked_after_and_passed_over() {
    let entries = [called(0, 1), asleep(1), asleep(2)];
    let plan = plan_at(&entries, NOW, 100 * SECOND);
    assert_eq!((plan.calls.len(), plan.lapses.len()), (0, 0));
    assert_eq!(plan.watchers, [(1, NOW + 50 * MS)]);
    let entries = [called(0, GRACE_MS), asleep(1), asleep(2)];
    let plan = plan_at(&entries, NOW, SECOND);
    assert_eq!((plan.lapses, plan.calls), (vec![0], vec![(1, false)]));
    // Should it sleep through its own time, which nobody else would notice for long.
    let entries = [asleep(0), asleep(1)];
    let plan = plan_at(&entries, NOW + SECOND, 100 * SECOND);
    assert_eq!(plan.watchers[1], (1, NOW + SECOND + 250 * MS));
}

#[test]
fn a_start_moves_the_next_one_by_an_interval_from_now() {
    let world = World::new(100, 1, 0);
    let gate = world.gate();
    assert!(gate.start(NOW), "the first at once (P7)");
    assert!(!gate.start(NOW) && !gate.start(NOW + 99));
    assert!(gate.start(NOW + 100), "P16");
    // No credit for idle time (P9, P10).
    assert!(gate.start(NOW + 1_000));
    assert!(!gate.start(NOW + 1_099));
    assert!(gate.start(NOW + 1_100));
}

#[test]
fn whoever_read_the_clock_too_early_moves_nothing() {
    let world = World::new(100 * MS, 1, 0);
    let gate = world.gate();
    assert!(gate.start(NOW));
    for late in [1, 99 * MS, 101 * MS, SECOND] {
        assert!(!gate.start(NOW - late));
        assert_eq!(gate.next_start(NOW - late), NOW + 100 * MS);
        gate.advance(None, Why::Moved, (NOW - late, 0), &mut |_, _| ());
        assert_eq!(world.hot.next_start.get(), NOW + 100 * MS);
    }
}

#[test]
fn a_next_start_far_ahead_becomes_an_interval_ahead() {
    for absurd in [NOW + 10 * SECOND, u64::MAX] {
        // For a newcomer.
        let world = World::new(SECOND, 1, 0);
        world.hot.next_start.put(absurd);
        assert_eq!(world.gate().next_start(NOW), NOW + SECOND);
        assert!(!world.gate().start(NOW));
        assert_eq!(world.hot.next_start.get(), NOW + SECOND);
        // And for who waits already.
        let mut world = World::new(SECOND, 1, 3);
        assert_eq!(world.arrive(0), Some(None));
        assert_eq!(world.arrive(0), Some(Some(0)));
        assert_eq!(world.run(NOW + 1), []);
        world.hot.next_start.put(absurd);
        let starts = world.run(NOW + 3 * SECOND);
        assert!(
            matches!(starts[..], [(0, at)] if at <= NOW + 2 * SECOND),
            "{starts:?}"
        );
    }
}

#[test]
fn intervals_may_last_for_ever() {
    for interval in [u64::MAX, u64::MAX - NOW, 1 << 63] {
        let mut world = World::new(interval, 1, 4);
        assert_eq!(world.arrive(0), Some(None));
        assert_eq!(world.hot.next_start.get(), NOW.saturating_add(interval));
        for spot in 0..3 {
            assert_eq!(world.arrive(0), Some(Some(spot)));
        }
        assert_eq!(world.run(NOW + 293 * 365 * 86_400 * SECOND / 2), []);
        // A shorter one reaches who waits.
        let now = world.now;
        world.gate().set_interval(SECOND, now);
        world.leave(2, Why::Sooner);
        let starts = world.run(now + 5 * SECOND);
        assert_eq!(starts, [(0, now + SECOND), (1, now + 2 * SECOND)]);
    }
}

#[test]
fn an_interval_is_at_least_a_nanosecond() {
    let world = World::new(0, 1, 0);
    assert_eq!(world.gate().interval(), 1);
    assert!(world.gate().start(NOW) && !world.gate().start(NOW) && world.gate().start(NOW + 1));
    world.gate().set_interval(0, NOW);
    assert_eq!(world.hot.interval.get(), 1);
}

#[test]
fn another_interval_counts_from_now_on() {
    let world = World::new(SECOND, 1, 0);
    let gate = world.gate();
    assert!(gate.start(NOW));
    gate.set_interval(10 * SECOND, NOW);
    assert_eq!(gate.next_start(NOW), NOW + SECOND, "as it was promised");
    assert!(gate.start(NOW + SECOND));
    gate.set_interval(MS, NOW + 2 * SECOND);
    assert_eq!(gate.next_start(NOW + 2 * SECOND), NOW + 2 * SECOND + MS);
}

#[test]
fn starts_are_an_interval_apart_and_in_order() {
    let mut world = World::new(100 * MS, 2, 8);
    assert_eq!(world.arrive(0), Some(None), "P20");
    for spot in 0..8 {
        assert_eq!(world.arrive(spot % 2), Some(Some(spot)));
    }
    assert_eq!(world.arrive(0), None, "P17: all places are taken");
    let starts = world.run(NOW + 2 * SECOND);
    let expected: Vec<_> = (0..8)
        .map(|n| (n, NOW + (u64::from(n) + 1) * 100 * MS))
        .collect();
    assert_eq!(starts, expected);
    assert!(world.is_empty());
    assert_eq!(world.arrive(1), Some(None), "P7: long after the last");
}

#[test]
fn nobody_passes_the_line() {
    let mut world = World::new(100 * MS, 2, 4);
    assert_eq!(world.arrive(0), Some(None));
    assert_eq!(world.arrive(0), Some(Some(0)));
    assert_eq!(world.run(NOW + 50 * MS), []);
    // It is time, but the head's timer has not come yet (P36).
    world.now = NOW + 150 * MS;
    assert_eq!(world.arrive(1), Some(Some(1)));
    let starts = world.run(NOW + SECOND);
    assert_eq!(starts, [(0, NOW + 150 * MS), (1, NOW + 250 * MS)]);
}

#[test]
fn late_timers_never_make_up_for_it() {
    let mut world = World::new(100 * MS, 2, 6);
    world.late = 70 * MS;
    world.arrive(0);
    (0..6).for_each(|_| {
        world.arrive(0);
    });
    let starts = world.run(NOW + 5 * SECOND);
    let spots: Vec<_> = starts.iter().map(|start| start.0).collect();
    assert_eq!(spots, [0, 1, 2, 3, 4, 5]);
    assert!(
        starts.windows(2).all(|two| two[1].1 - two[0].1 >= 100 * MS),
        "{starts:?}"
    );
}

#[test]
fn who_cancels_leaves_the_order_of_the_others() {
    let mut world = World::new(100 * MS, 2, 4);
    world.arrive(0);
    (0..4).for_each(|_| {
        world.arrive(1);
    });
    assert_eq!(world.run(NOW + 50 * MS), []);
    // P35: the time of the next is not counted anew.
    world.leave(0, Why::Sooner);
    world.leave(2, Why::Sooner);
    let starts = world.run(NOW + SECOND);
    assert_eq!(starts, [(1, NOW + 100 * MS), (3, NOW + 200 * MS)]);
    assert!(world.is_empty());
}

#[test]
fn a_successor_that_is_due_starts_when_the_head_leaves() {
    let mut world = World::new(100 * MS, 2, 2);
    world.arrive(0);
    world.arrive(0);
    world.arrive(1);
    assert_eq!(world.run(NOW + 50 * MS), []);
    world.now = NOW + 150 * MS;
    world.leave(0, Why::Sooner);
    assert_eq!(world.run(NOW + 150 * MS), [(1, NOW + 150 * MS)]);
}

#[test]
fn a_stopped_head_is_passed_over_and_is_first_again() {
    let mut world = World::new(10 * SECOND, 2, 4);
    world.arrive(0);
    for member in [0, 0, 1, 0] {
        world.arrive(member);
    }
    assert_eq!(world.run(NOW + SECOND), []);
    world.processes[0].stopped.set(true);
    let starts = world.run(NOW + 15 * SECOND);
    assert_eq!(starts.len(), 1);
    let (spot, at) = starts[0];
    assert!(
        spot == 2 && at <= NOW + 10 * SECOND + 850 * MS,
        "{starts:?}"
    );
    world.processes[0].stopped.set(false);
    world.ring(0);
    let then = |n: u64| at + n * 10 * SECOND;
    assert_eq!(
        world.run(then(3)),
        [(0, then(1)), (1, then(2)), (3, then(3))]
    );
}

/// A process rings nobody for a place of its own that waits behind another of its own: it would wake itself.
#[test]
fn callers_of_one_process_sleep_until_it_is_time() {
    let mut world = World::new(10 * SECOND, 1, 3);
    (0..4).for_each(|_| {
        world.arrive(0);
    });
    assert_eq!(world.run(NOW + 60 * SECOND).len(), 3);
    // Woken to join, or by who left, and for its turn.
    assert!(world.wakes.get() <= 6, "{} wakes", world.wakes.get());
}

#[test]
fn a_place_has_one_owner_until_it_is_given_up() {
    let world = World::new(1, 2, 3);
    let line = world.line();
    assert_eq!(line.take_spot(0..3, owner(0)), Some(0));
    assert_eq!(line.take_spot(0..3, owner(1)), Some(1));
    assert_eq!(
        line.take_spot(2..9, owner(1)),
        Some(2),
        "beyond the places there is none"
    );
    assert_eq!(line.take_spot(0..9, owner(1)), None);
    assert_eq!(line.owners(), [0, 1, 1]);
    line.free_spot(0, owner(1));
    assert_eq!(line.take_spot(0..3, owner(1)), None, "it is not his");
    line.free_spot(0, owner(0));
    line.free_spot(0, owner(0));
    assert_eq!(line.take_spot(0..3, owner(1)), Some(0));
    line.free_spot(99, owner(0));
}

#[test]
fn the_dead_leave_their_places_to_others() {
    let mut world = World::new(SECOND, 2, 4);
    world.arrive(0);
    for member in [0, 1, 0] {
        world.arrive(member);
    }
    // One that was taken, and not joined yet.
    assert_eq!(world.line().take_spot(3..4, owner(0)), Some(3));
    assert!(roster::retire(&world.roster[0], 1));
    let spots: Vec<_> = world.line().entries().iter().map(|e| e.spot).collect();
    assert_eq!(spots, [1], "absent at once");
    for _ in 0..2 {
        let none = std::iter::empty();
        roster::clean(0, &world.roster[0], 1, none, &[world.line()]);
    }
    assert_eq!(world.line().owners(), [1]);
    assert_eq!(world.bits[0].get(), 0b10);
    // The next attachment of the slot takes one; a cleaner of the first that is late leaves it alone.
    assert_eq!(roster::claim(&world.roster[0]), Some(2));
    let (member, generation) = (0, 2);
    let heir = Owner { member, generation };
    assert_eq!(world.line().take_spot(0..4, heir), Some(0));
    let seat = asleep(0).seat;
    world.line().join(0, heir, 0, seat);
    world.line().absent(0, 1);
    assert_eq!(world.line().read(0, 0).map(|e| e.generation), Some(2));
    assert_eq!(world.bits[0].get(), 0b11);
}

#[test]
fn waiters_counts_callers() {
    let mut world = World::new(SECOND, 1, 70);
    world.arrive(0);
    (0..70).for_each(|_| {
        world.arrive(0);
    });
    world.line().recount();
    assert_eq!(world.hot.waiters.get(), 70);
    world.leave(69, Why::Sooner);
    world.line().recount();
    assert_eq!(world.hot.waiters.get(), 69);
}

proptest! {
    /// Whatever the words say: no panic, nothing endless, and at most one start at any moment.
    #[test]
    fn scribbled_words(
        interval in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
        steps in prop::collection::vec((0u8..6, any::<u64>(), any::<u64>()), 0..20),
    ) {
        let world = World::new(interval, 1, 2);
        let gate = world.gate();
        for (what, now, word) in steps {
            match what {
                0 => world.hot.next_start.put(word),
                1 => gate.set_interval(word, now),
                2 => { gate.next_start(now); }
                3 => { gate.advance(None, Why::Sooner, (now, 0), &mut |_, _| ()); }
                4 => world.hot.summary.put(word as u32 & 1),
                _ => {
                    let first = gate.start(now);
                    prop_assert!(!(first && now < u64::MAX && gate.start(now)));
                }
            }
        }
    }

    /// Any arrivals, cancellations and late timers: starts are an interval apart, in the order of arrival, and everybody who
    /// stays starts.
    #[test]
    fn nobody_is_lost(
        interval in 1u64..50,
        late in prop_oneof![Just(0), 0u64..80],
        steps in prop::collection::vec((0u8..6, 0u64..60, 0usize..8), 1..80),
    ) {
        let mut world = World::new(interval * MS, 3, 6);
        world.late = late * MS;
        let mut order = Vec::new();
        let mut starts: Vec<(u32, u64)> = Vec::new();
        let done = |starts: &mut Vec<_>, order: &mut Vec<u32>, new: Vec<(u32, u64)>| {
            for (spot, at) in new {
                if order.is_empty() || order.remove(0) != spot {
                    return false;
                }
                starts.push((spot, at));
            }
            true
        };
        for (what, ms, which) in steps {
            if what == 0 && !world.waiters.is_empty() {
                let (gone, _) = world.waiters[which % world.waiters.len()];
                order.retain(|spot| *spot != gone);
                world.leave(gone, Why::Sooner);
            } else {
                match world.arrive((which % 3) as u32) {
                    Some(Some(spot)) => order.push(spot),
                    Some(None) => {
                        prop_assert!(order.is_empty());
                        starts.push((99, world.now));
                    }
                    None => prop_assert_eq!(order.len(), 6),
                }
            }
            let until = world.now + ms * MS;
            let new = world.run(until);
            prop_assert!(done(&mut starts, &mut order, new), "out of order");
        }
        let until = world.now + 20 * (interval + late) * MS;
        let new = world.run(until);
        prop_assert!(done(&mut starts, &mut order, new), "out of order");
        prop_assert!(order.is_empty(), "{order:?} still wait");
        prop_assert!(world.is_empty());
        for two in starts.windows(2) {
            prop_assert!(two[1].1 - two[0].1 >= interval * MS);
        }
    }
}
