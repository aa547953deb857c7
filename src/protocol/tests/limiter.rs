//! Whose the next tokens are, in plain memory with a clock of its own.

use super::{entry, member, owner};
use crate::layout::{LANES, LimiterCold, LimiterHot, Member, Place};
use crate::protocol::bucket::{Bucket, TICK_NS};
use crate::protocol::limiter::{GUARD_NS, Gate, View, plan};
use crate::protocol::line::{Doing, Entry, Line, Seat, State};
use crate::protocol::roster;
use crate::protocol::turn::{GRACE_MS, NEVER, Plan, Why};
use crate::words::U64;
use proptest::prelude::*;
use std::cell::Cell;

const MOST: u32 = 2_147_483_647;
const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// When the plans of a test are made.
const NOW: u64 = 1_000 * SECOND;

/// The words of a bucket, and what the plan of a line over it is now.
struct Desk {
    hot: LimiterHot,
    progress: [U64; LANES],
}

impl Desk {
    fn new(rate: u32, tokens: i32) -> Desk {
        let hot = LimiterHot::default();
        Bucket { hot: &hot }.fill(rate, NOW);
        hot.tokens.put(tokens);
        let progress = std::array::from_fn(|_| U64::new(NOW));
        Desk { hot, progress }
    }

    fn bucket(&self) -> Bucket<'_> {
        Bucket { hot: &self.hot }
    }

    fn plan_at(&self, entries: &[Entry], now: u64) -> Plan {
        plan(View {
            entries,
            bucket: self.bucket(),
            progress: &self.progress,
            now,
            ms: (now / MS) as u32,
        })
    }

    fn plan(&self, entries: &[Entry]) -> Plan {
        self.plan_at(entries, NOW)
    }

    fn calls(&self, entries: &[Entry]) -> Vec<(usize, bool)> {
        self.plan(entries).calls
    }

    /// Nobody of the lane has got on for a second.
    fn starve(&self, lane: usize) {
        self.progress[lane].put(NOW - GUARD_NS);
    }
}

/// Somebody asleep who came in the order of its member slot, long ago.
fn asleep(member: u32, lane: usize, amount: u32) -> Entry {
    entry(member, lane, u64::from(member) + 1, amount, u32::MAX)
}

/// The same, called so many ms before `NOW`.
fn called(member: u32, lane: usize, amount: u32, ago: u32) -> Entry {
    let mut entry = asleep(member, lane, amount);
    let ms = ((NOW / MS) as u32).wrapping_sub(ago);
    entry.state = State(u64::from(ms) << 32 | 1);
    entry
}

#[test]
fn the_most_urgent_first_and_nobody_passes_who_lacks_tokens() {
    let desk = Desk::new(100, 10);
    let entries = [asleep(0, 6, 8), asleep(1, 3, 2), asleep(2, 3, 1)];
    assert_eq!(desk.calls(&entries), [(0, false), (1, false)]);
    let entries = [asleep(0, 6, 11), asleep(1, 3, 2), asleep(2, 0, 1)];
    assert_eq!(desk.calls(&entries), []);
    // Nor the one of its own lane that wants less.
    let entries = [asleep(0, 3, 11), asleep(1, 3, 1)];
    assert_eq!(desk.calls(&entries), []);
}

#[test]
fn who_was_called_counts_as_in() {
    let desk = Desk::new(100, 10);
    let entries = [called(0, 3, 8, 0), asleep(1, 3, 3)];
    assert_eq!(desk.calls(&entries), []);
    // Also behind: it was called before the other came.
    let entries = [asleep(0, 6, 3), called(1, 3, 8, 0)];
    assert_eq!(desk.calls(&entries), []);
}

#[test]
fn who_wants_none_waits_only_for_its_own_lane() {
    let desk = Desk::new(100, -50);
    // In debt, behind a more urgent one that starves (I10, I12).
    let entries = [
        asleep(0, 6, 1),
        asleep(1, 3, 0),
        asleep(2, 3, 0),
        asleep(3, 3, 5),
        asleep(4, 3, 0),
    ];
    assert_eq!(desk.calls(&entries), [(1, false), (2, false)]);
    // I11.
    let entries = [asleep(0, 3, 1), asleep(1, 3, 0)];
    assert_eq!(desk.calls(&entries), []);
    let entries = [called(0, 3, 1, 0), asleep(1, 3, 0)];
    assert_eq!(desk.calls(&entries), []);
}

#[test]
fn more_than_the_capacity_goes_when_the_bucket_is_full() {
    let entries = [asleep(0, 3, 101), asleep(1, 3, 1)];
    assert_eq!(Desk::new(100, 99).calls(&entries), []);
    assert_eq!(Desk::new(100, 100).calls(&entries), [(0, false)]);
    let desk = Desk::new(100, 0);
    let dues = desk.plan(&entries).watchers;
    // Who is behind waits for the debt too.
    assert_eq!(dues[0], (0, NOW + SECOND));
}

#[test]
fn the_guard_lets_the_front_into_debt_after_exactly_a_second() {
    let desk = Desk::new(1, 0);
    let mut front = asleep(0, 3, 50);
    front.seat.since = NOW;
    let entries = [front];
    let late = NOW + GUARD_NS;
    desk.hot
        .stamp
        .put(desk.hot.stamp.get() + ((2 * SECOND / TICK_NS) << 14)); // nothing comes in
    assert_eq!(desk.plan_at(&entries, late - 1).calls, []);
    assert_eq!(desk.plan_at(&entries, late).calls, [(0, true)]);
    // From when its lane got on last.
    desk.progress[3].put(NOW + 5);
    assert_eq!(desk.plan_at(&entries, late + 4).calls, []);
    assert_eq!(desk.plan_at(&entries, late + 5).calls, [(0, true)]);
}

#[test]
fn one_of_each_lane_is_forced_and_none_behind_it() {
    let desk = Desk::new(100, -50);
    (0..LANES).for_each(|lane| desk.starve(lane));
    let entries = [
        asleep(0, 6, 1),
        asleep(1, 6, 1),
        asleep(2, 3, 5),
        asleep(3, 3, 0),
        asleep(4, 0, 9),
    ];
    assert_eq!(desk.calls(&entries), [(0, true), (2, true), (4, true)]);
    // Somebody of the lane is on his way already.
    let entries = [called(0, 6, 1, 0), asleep(1, 6, 1)];
    assert_eq!(desk.calls(&entries), []);
}

#[test]
fn who_stands_behind_one_that_gets_on_is_not_forced() {
    let desk = Desk::new(100, 10);
    desk.starve(3);
    let entries = [asleep(0, 3, 10), asleep(1, 3, 10)];
    assert_eq!(desk.calls(&entries), [(0, false)]);
    let entries = [asleep(0, 3, 0), asleep(1, 3, 11)];
    assert_eq!(desk.calls(&entries), [(0, false)]);
}

#[test]
fn a_debt_that_no_word_can_say_waits_for_refills() {
    let desk = Desk::new(100, i32::MIN + 50);
    desk.starve(3);
    assert_eq!(desk.calls(&[asleep(0, 3, 50)]), [(0, true)]);
    let entries = [asleep(0, 3, 51)];
    let plan = desk.plan(&entries);
    assert_eq!(plan.calls, []);
    assert_eq!(plan.watchers, [(0, NOW + SECOND / 100)]);
    // What others wait for is no debt yet.
    let desk = Desk::new(1, 0);
    desk.starve(3);
    desk.progress[6].put(NOW);
    let entries = [asleep(0, 6, MOST), asleep(1, 3, 10)];
    assert_eq!(desk.calls(&entries), [(1, true)]);
    // What was called for is.
    let entries = [called(0, 6, MOST, 0), asleep(1, 3, 2)];
    assert_eq!(desk.calls(&entries), []);
}

#[test]
fn the_silent_are_passed_over_and_count_no_more() {
    let desk = Desk::new(100, 10);
    let entries = [called(0, 6, 8, GRACE_MS), asleep(1, 3, 5)];
    let plan = desk.plan(&entries);
    assert_eq!((plan.lapses, plan.calls), (vec![0], vec![(1, false)]));
    let mut lapsed = asleep(0, 6, 8);
    lapsed.state = State(2);
    let entries = [lapsed, asleep(1, 3, 5)];
    let plan = desk.plan(&entries);
    assert_eq!((plan.lapses, plan.calls), (vec![], vec![(1, false)]));
}

#[test]
fn the_first_two_and_the_fronts_know_when() {
    let desk = Desk::new(100, 0);
    let entries = [
        asleep(0, 6, 10),
        asleep(1, 6, 5),
        asleep(2, 6, 5),
        asleep(3, 2, 1),
        asleep(4, 2, 1),
    ];
    let plan = desk.plan(&entries);
    let dues = [
        (0, NOW + SECOND / 10),
        (1, NOW + 3 * SECOND / 20),
        (3, NOW + SECOND), // its guard
    ];
    assert_eq!(plan.watchers, dues);
}

#[test]
fn who_is_right_behind_looks_after_the_silent() {
    // Long before its own turn, should the first sleep through its own.
    let desk = Desk::new(100, 0);
    let entries = [asleep(0, 6, 10), asleep(1, 6, 90)];
    let second = desk.plan(&entries).watchers[1];
    assert_eq!(second, (1, NOW + 350 * MS));
    let entries = [asleep(0, 6, 10), asleep(1, 6, 0)];
    assert_eq!(desk.plan(&entries).watchers[1], (1, NOW + 350 * MS));
    // Called just now, or a while ago.
    let desk = Desk::new(1_000, 10);
    let entries = [asleep(0, 6, 10), asleep(1, 6, 900)];
    assert_eq!(desk.plan(&entries).watchers, [(1, NOW + 250 * MS)]);
    let entries = [called(0, 6, 10, 1), asleep(1, 6, 900)];
    assert_eq!(desk.plan(&entries).watchers, [(1, NOW + 50 * MS)]);
}

#[test]
fn a_lane_that_got_on_in_the_future_did_not() {
    let desk = Desk::new(100, -50);
    desk.progress[3].put(u64::MAX);
    let mut front = asleep(0, 3, 1);
    front.seat.since = NOW - GUARD_NS;
    assert_eq!(desk.calls(&[front]), [(0, true)]);
}

fn some_entry() -> impl Strategy<Value = Entry> {
    let amount = prop_oneof![Just(0), 0..30u32, Just(MOST), any::<u32>()];
    let since = prop_oneof![NOW - 2 * SECOND..NOW, Just(NOW)];
    (0u32..64, 0..LANES, 1u64..1000, amount, 0u64..6, since).prop_map(
        |(member, lane, ticket, amount, doing, since)| {
            let mut entry = entry(member, lane, ticket, amount, u32::MAX);
            let ms = (NOW / MS) as u32 - 20 * doing as u32;
            entry.state = State(u64::from(ms) << 32 | [0, 0, 0, 0, 1, 2][doing as usize]);
            entry.seat.since = since;
            entry
        },
    )
}

proptest! {
    /// Whatever the line and the words look like: nobody is called twice; what was called and what is called now is there,
    /// but for what is forced, one a lane at most and representable; nobody who wants tokens passes one who lacks them,
    /// but the forced; and whoever looks by itself does so after now, so that nobody spins.
    #[test]
    fn plans_keep_the_balance(
        mut entries in prop::collection::vec(some_entry(), 0..30),
        tokens in prop_oneof![Just(i32::MIN), -100..100i32, Just(i32::MAX), any::<i32>()],
        rate in prop_oneof![1..50u32, Just(MOST)],
        parts in 0..10_000u64,
        progress in prop::array::uniform7(prop_oneof![Just(0), Just(u64::MAX), NOW - 2 * SECOND..NOW]),
    ) {
        entries.sort_by_key(|entry| (std::cmp::Reverse(entry.lane), entry.ticket));
        let desk = Desk::new(rate, tokens.min(rate as i32));
        desk.hot.stamp.put(desk.hot.stamp.get() | parts);
        for (word, progress) in desk.progress.iter().zip(progress) {
            word.put(progress);
        }
        let plan = desk.plan(&entries);
        let doing = |at: usize| match plan.lapses.contains(&at) {
            true => Doing::Lapsed,
            false => entries[at].state.doing(),
        };
        let amount = |at: usize| i64::from(entries[at].seat.amount);
        let mut left = i64::from(desk.hot.tokens.get());
        left -= (0..entries.len())
            .filter(|at| doing(*at) == Doing::Called)
            .map(amount)
            .sum::<i64>();
        let mut is_called = vec![false; entries.len()];
        let mut forced_lanes = [0; LANES];
        for (at, forced) in &plan.calls {
            prop_assert!(!is_called[*at] && doing(*at) == Doing::Asleep);
            is_called[*at] = true;
            if *forced {
                forced_lanes[entries[*at].lane] += 1;
                prop_assert!(left - amount(*at) >= i64::from(i32::MIN));
            } else if amount(*at) != 0 {
                prop_assert!(left >= amount(*at).min(rate.into()));
                let passed = (0..*at).any(|before| {
                    doing(before) == Doing::Asleep && !is_called[before] && amount(before) != 0
                });
                prop_assert!(!passed);
            }
            left -= amount(*at);
            let passed = (0..*at).any(|before| {
                doing(before) != Doing::Lapsed
                    && !is_called[before]
                    && entries[before].lane == entries[*at].lane
            });
            // Called behind one that was called before is a matter of who takes first.
            let behind_called = (0..*at).any(|before| doing(before) == Doing::Called);
            prop_assert!(!passed || behind_called, "FIFO within a lane");
        }
        prop_assert!(forced_lanes.iter().all(|forced| *forced < 2));
        for (at, due) in &plan.watchers {
            prop_assert!(*due > NOW, "{due} is no time to sleep until");
            prop_assert!(!is_called[*at] && doing(*at) == Doing::Asleep);
        }
        // Somebody looks.
        let sleepers = (0..entries.len()).filter(|at| doing(*at) != Doing::Lapsed).count();
        if sleepers > 0 && plan.calls.is_empty() && plan.lapses.is_empty() {
            let called = (0..entries.len()).any(|at| doing(at) == Doing::Called);
            prop_assert!(called || plan.watchers.iter().any(|(_, due)| *due != NEVER));
        }
    }
}

/// A process that waits in one lane.
struct Waiter {
    lane: usize,
    amount: Cell<u32>,
    since: Cell<u64>,
    stands: Cell<bool>,
    /// Stopped: neither rings nor timers reach it.
    stopped: Cell<bool>,
    rung: Cell<bool>,
    due: Cell<u64>,
}

/// A Limiter and its members, each with one waiter. Nobody has a timer but that which the plan gives him: who is not
/// rung in time sleeps on.
struct World {
    hot: LimiterHot,
    cold: LimiterCold,
    roster: Vec<Member>,
    bits: Vec<U64>,
    places: Vec<Place>,
    waiters: Vec<Waiter>,
    now: Cell<u64>,
    /// How often anybody woke.
    wakes: Cell<u64>,
    /// How often each lane went into debt.
    forced: [Cell<u64>; LANES],
}

impl World {
    fn new(rate: u32, lanes: &[usize]) -> World {
        let members = lanes.len();
        let world = World {
            hot: LimiterHot::default(),
            cold: LimiterCold::default(),
            roster: (0..members).map(|_| member()).collect(),
            bits: (0..LANES).map(|_| U64::new(0)).collect(),
            places: (0..members * LANES).map(|_| Place::default()).collect(),
            waiters: lanes
                .iter()
                .map(|lane| Waiter {
                    lane: *lane,
                    amount: Cell::new(0),
                    since: Cell::new(0),
                    stands: Cell::new(false),
                    stopped: Cell::new(false),
                    rung: Cell::new(false),
                    due: Cell::new(NEVER),
                })
                .collect(),
            now: Cell::new(NOW),
            wakes: Cell::new(0),
            forced: Default::default(),
        };
        assert!(members <= 64);
        for member in &world.roster {
            assert_eq!(roster::claim(member), Some(1));
        }
        world.gate().bucket().fill(rate, NOW);
        world.hot.tokens.put(0);
        world
    }

    fn gate(&self) -> Gate<'_> {
        let line = Line {
            summary: &self.hot.summary,
            hurry: &self.hot.hurry,
            waiters: &self.hot.waiters,
            ticket: &self.cold.ticket,
            lanes: LANES,
            bits: &self.bits,
            words: 1,
            places: &self.places,
            by_member: true,
            roster: &self.roster,
        };
        Gate {
            hot: &self.hot,
            cold: &self.cold,
            line,
        }
    }

    fn moment(&self) -> (u64, u32) {
        (self.now.get(), (self.now.get() / MS) as u32)
    }

    fn advance(&self, why: Why) {
        let mut ring = |member: u32, _| self.waiters[member as usize].rung.set(true);
        self.gate().advance(None, why, self.moment(), &mut ring);
    }

    fn join(&self, who: usize, amount: u32) {
        let waiter = &self.waiters[who];
        let seat = Seat {
            amount,
            bound: 0,
            ceiling: 0,
            since: self.now.get(),
        };
        waiter.amount.set(amount);
        waiter.since.set(seat.since);
        waiter.stands.set(true);
        waiter.due.set(NEVER);
        let line = self.gate().line;
        line.join(who as u32, owner(who as u32), waiter.lane, seat);
        waiter.rung.set(true);
    }

    fn leave(&self, who: usize, why: Why) {
        let waiter = &self.waiters[who];
        waiter.stands.set(false);
        self.gate().line.leave(who as u32, 1, waiter.lane);
        self.advance(why);
    }

    /// Gives up.
    fn cancel(&self, who: usize) {
        self.gate().got_on(self.waiters[who].lane, self.now.get());
        self.leave(who, Why::Sooner);
    }

    /// One try, as the library makes it. Whether it got its tokens, and left.
    fn attempt(&self, who: usize) -> bool {
        let (waiter, gate) = (&self.waiters[who], self.gate());
        let place = (who as u32, waiter.lane);
        let mut ring = |member: u32, _| self.waiters[member as usize].rung.set(true);
        waiter.rung.set(false);
        self.wakes.set(self.wakes.get() + 1);
        for _ in 0..64 {
            let was = gate.line.settle(place.0, place.1);
            if was.doing() != Doing::Called {
                let (why, moment) = (Why::Moved, self.moment());
                let outlook = gate.advance(Some(place), why, moment, &mut ring);
                if outlook.turn.is_none() {
                    waiter.due.set(outlook.watches.unwrap_or(NEVER));
                    return false;
                }
            }
            let (now, amount) = (self.now.get(), waiter.amount.get());
            gate.bucket().refill(now);
            let force = gate.may_force(waiter.lane, waiter.since.get(), now);
            let least = match force {
                true => i32::MIN,
                false => gate.bucket().enough(amount),
            };
            if amount != 0 {
                match gate.bucket().debit(amount, least) {
                    Ok(debit) if debit.into_debt => {
                        let forced = &self.forced[waiter.lane];
                        forced.set(forced.get() + 1);
                    }
                    Ok(_) => {}
                    Err(_) => continue,
                }
            }
            gate.got_on(waiter.lane, now);
            self.leave(who, Why::Moved);
            return true;
        }
        panic!("64 rounds lost");
    }

    /// Goes on until `until`. `served` is told who got his tokens.
    fn run(&self, until: u64, mut served: impl FnMut(&World, usize)) {
        loop {
            let awake = |w: &Waiter| w.stands.get() && !w.stopped.get();
            while let Some(who) = self.waiters.iter().position(|w| awake(w) && w.rung.get()) {
                if self.attempt(who) {
                    served(self, who);
                }
            }
            let dues = self
                .waiters
                .iter()
                .filter(|w| awake(w))
                .map(|w| w.due.get());
            let next = dues.min().unwrap_or(NEVER);
            if next > until {
                self.now.set(until);
                return;
            }
            assert!(next >= self.now.get());
            self.now.set(next);
            for waiter in self.waiters.iter().filter(|w| w.due.get() == next) {
                waiter.rung.set(true);
            }
        }
    }

    /// When each was served, in ms from the start, in order.
    fn served_until(&self, until: u64) -> Vec<(usize, u64)> {
        let mut times = Vec::new();
        self.run(until, |world, who| {
            times.push((who, (world.now.get() - NOW) / MS));
        });
        times
    }
}

#[test]
fn each_is_served_when_its_tokens_are_there() {
    let world = World::new(1_000, &[6, 5, 4, 3]);
    (0..4).for_each(|who| world.join(who, 100));
    let times = world.served_until(NOW + SECOND);
    assert_eq!(times, [(0, 100), (1, 200), (2, 300), (3, 400)]);
}

#[test]
fn the_same_in_one_lane() {
    let world = World::new(1_000, &[3; 6]);
    (0..6).for_each(|who| world.join(who, 100));
    let times = world.served_until(NOW + SECOND);
    let expected: Vec<_> = (0..6).map(|who| (who, 100 * (who as u64 + 1))).collect();
    assert_eq!(times, expected);
    // Woken once at joining, once for becoming one of the first two, once for its turn.
    assert!(world.wakes.get() <= 18, "{} wakes", world.wakes.get());
}

#[test]
fn who_cancels_lets_the_others_come_sooner() {
    let world = World::new(1_000, &[6, 6, 6, 2]);
    for (who, amount) in [300, 100, 100, 50].into_iter().enumerate() {
        world.join(who, amount);
    }
    assert_eq!(world.served_until(NOW + 50 * MS), []);
    world.cancel(0);
    let times = world.served_until(NOW + SECOND);
    assert_eq!(times, [(1, 100), (2, 200), (3, 250)]);
}

#[test]
fn one_more_urgent_comes_and_goes_and_nobody_is_forgotten() {
    let world = World::new(1_000, &[3, 3, 3, 6, 6]);
    (0..3).for_each(|who| world.join(who, 100));
    world.run(NOW + 10 * MS, |_, _| ());
    // The second of the first is fourth now, and looks meanwhile.
    world.join(3, 50);
    world.join(4, 50);
    world.run(NOW + 20 * MS, |_, _| ());
    world.waiters[1].rung.set(true);
    world.run(NOW + 30 * MS, |_, _| ());
    world.cancel(3);
    world.cancel(4);
    let times = world.served_until(NOW + SECOND);
    assert_eq!(times, [(0, 100), (1, 200), (2, 300)]);
}

#[test]
fn a_stopped_one_is_passed_over() {
    let world = World::new(1_000, &[3; 3]);
    (0..3).for_each(|who| world.join(who, 100));
    world.run(NOW + 50 * MS, |_, _| ());
    world.waiters[0].stopped.set(true);
    let times = world.served_until(NOW + SECOND);
    assert_eq!(times.len(), 2);
    // Its turn was at 100 ms; it is called, and has been silent for the grace, within two of these.
    let (first, at) = times[0];
    assert!(first == 1 && at <= 100 + 2 * 250 + 50, "{at} ms");
    assert!(times[1].0 == 2 && times[1].1 <= at + 100);
    // It goes first when it wakes.
    world.waiters[0].stopped.set(false);
    world.waiters[0].rung.set(true);
    assert_eq!(world.served_until(NOW + 2 * SECOND)[0].0, 0);
}

/// Eight processes that always want more, of one lane, with amounts of their own each time.
#[test]
fn the_long_run_keeps_the_rate_and_turns_are_equal() {
    let world = World::new(10_000, &[3; 8]);
    let mut seed = 12_345u64;
    let mut amount = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as u32 % 500 + 1
    };
    (0..8).for_each(|who| world.join(who, amount()));
    let mut turns = [0u32; 8];
    let mut sum = 0u64;
    world.run(NOW + 600 * SECOND, |world, who| {
        turns[who] += 1;
        sum += u64::from(world.waiters[who].amount.get());
        world.join(who, amount());
    });
    assert!((5_990_000..=6_000_000).contains(&sum), "{sum} tokens");
    let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    assert!(most - least <= 1, "{turns:?}");
    let served: u32 = turns.iter().sum();
    assert!(
        world.wakes.get() <= 3 * u64::from(served) + 8,
        "{} wakes for {served} turns",
        world.wakes.get()
    );
}

/// The most urgent lane takes all there is; each other lane gets one a second, into debt, and the average holds.
#[test]
fn nobody_starves_and_the_average_holds() {
    let world = World::new(1_000, &[6, 6, 3, 3, 0]);
    let amounts = [100, 100, 20, 20, 30];
    (0..5).for_each(|who| world.join(who, amounts[who]));
    let mut sums = [0u64; 5];
    let mut turns: Vec<Vec<u64>> = vec![Vec::new(); LANES];
    world.run(NOW + 100 * SECOND, |world, who| {
        sums[who] += u64::from(amounts[who]);
        turns[world.waiters[who].lane].push(world.now.get());
        world.join(who, amounts[who]);
    });
    let all: u64 = sums.iter().sum();
    assert!((99_000..=100_100).contains(&all), "{sums:?}");
    for lane in [3, 0] {
        assert!(
            (95..=100).contains(&turns[lane].len()),
            "{lane}: {}",
            turns[lane].len()
        );
        assert!(
            turns[lane]
                .windows(2)
                .all(|two| two[1] - two[0] >= GUARD_NS)
        );
    }
    assert!(
        sums[0].abs_diff(sums[1]) <= 100 && sums[2].abs_diff(sums[3]) <= 20,
        "{sums:?}"
    );
}

/// One that wants more than a bucket holds gets it, others later.
#[test]
fn more_than_the_capacity_is_paid_for_afterwards() {
    let world = World::new(100, &[3, 3]);
    world.join(0, 350);
    world.join(1, 50);
    let times = world.served_until(NOW + 10 * SECOND);
    // At a full bucket or the guard, both after a second; then 250 of debt and 50 more, or the guard.
    assert_eq!(times, [(0, 1_000), (1, 2_000)]);
    assert_eq!(world.gate().bucket().balance(world.now.get()), 100);
}

proptest! {
    /// Members of any lanes come, go and want anything: whoever waits is served within its own lane's turn at the guard,
    /// and nobody of one lane before another who came earlier.
    #[test]
    fn nobody_is_lost(
        steps in prop::collection::vec((0usize..10, 0u32..200, 0u64..400, 0u8..8), 1..80),
    ) {
        let world = World::new(1_000, &[6, 5, 5, 4, 3, 3, 3, 1, 0, 0]);
        let mut order: Vec<Vec<usize>> = vec![Vec::new(); LANES];
        let mut wrong = Vec::new();
        let mut served = |order: &mut Vec<Vec<usize>>, world: &World, who: usize| {
            let line = &mut order[world.waiters[who].lane];
            if line.first() != Some(&who) {
                wrong.push(who);
            }
            line.retain(|other| *other != who);
        };
        for (who, amount, ms, what) in steps {
            let lane = world.waiters[who].lane;
            match (world.waiters[who].stands.get(), what) {
                (true, 0) => {
                    world.cancel(who);
                    order[lane].retain(|other| *other != who);
                }
                (true, 1) => {
                    world.gate().bucket().credit(50);
                    world.advance(Why::Sooner);
                }
                (true, 2) => world.waiters[who].rung.set(true),
                (true, _) => {}
                (false, _) => {
                    world.join(who, amount);
                    order[lane].push(who);
                }
            }
            let until = world.now.get() + ms * MS;
            world.run(until, |world, who| served(&mut order, world, who));
        }
        let until = world.now.get() + 4 * SECOND;
        world.run(until, |world, who| served(&mut order, world, who));
        let left: Vec<_> = order.concat();
        prop_assert!(left.is_empty(), "{left:?} still wait");
        prop_assert!(wrong.is_empty(), "{wrong:?} passed others of their lane");
        prop_assert_eq!(world.hot.summary.get(), 0);
    }
}
