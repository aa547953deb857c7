//! The Pacer: one start an interval, and places that are one caller's each.

use super::support::{Bell, explore};
use shmsched::model::layout::{Member, PacerCold, PacerHot, Place};
use shmsched::model::protocol::line::{Doing, Line, Seat};
use shmsched::model::protocol::mutant;
use shmsched::model::protocol::pacer::Gate;
use shmsched::model::protocol::roster::{self, Owner};
use shmsched::model::protocol::turn::{NEVER, Outlook, Why};
use shmsched::model::words::{U64, mortal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const INTERVAL: u64 = 10;

/// A Pacer of one word of places.
struct World {
    hot: PacerHot,
    cold: PacerCold,
    roster: Vec<Member>,
    bits: Vec<U64>,
    places: Vec<Place>,
    bells: Vec<Bell>,
    /// How many have each place now; no words of the segment.
    taken: Vec<AtomicU32>,
}

impl World {
    fn new(members: usize, places: usize) -> World {
        let world = World {
            hot: PacerHot::default(),
            cold: PacerCold::default(),
            roster: (0..members).map(|_| Member::default()).collect(),
            bits: vec![U64::new(0)],
            places: (0..places).map(|_| Place::default()).collect(),
            bells: (0..members).map(|_| Bell::default()).collect(),
            taken: (0..places).map(|_| AtomicU32::new(0)).collect(),
        };
        world.hot.interval.put(INTERVAL);
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
            words: 1,
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

    fn advance(&self, me: Option<(u32, usize)>, why: Why, now: u64) -> Outlook {
        let mut ring = |member: u32, _| self.bells[member as usize].ring();
        self.gate().advance(me, why, (now, 0), &mut ring)
    }

    /// Takes a place and stands in it.
    fn join(&self, member: u32) -> Option<u32> {
        let line = self.line();
        let spot = line.take_spot(0..self.places.len() as u32, owner(member))?;
        let others = self.taken[spot as usize].fetch_add(1, Ordering::Relaxed);
        assert_eq!(others, 0, "two have place {spot}");
        let seat = Seat {
            amount: 1,
            bound: 0,
            ceiling: 0,
            since: 0,
        };
        line.join(spot, owner(member), 0, seat);
        Some(spot)
    }

    /// Leaves and gives the place up.
    fn leave(&self, member: u32, spot: u32, why: Why, now: u64) {
        self.line().leave(spot, 1, 0);
        self.taken[spot as usize].fetch_sub(1, Ordering::Relaxed);
        self.line().free_spot(spot, owner(member));
        if !mutant("leave-without-advance") {
            self.advance(None, why, now);
        }
    }

    /// One try: sleep, look, start. `Err` when it looks again, `NEVER` if it does not know.
    fn attempt(&self, spot: u32, now: u64) -> Result<(), u64> {
        for _ in 0..64 {
            let was = self.line().settle(spot, 0);
            if was.doing() != Doing::Called {
                let outlook = self.advance(Some((spot, 0)), Why::Moved, now);
                if outlook.turn.is_none() {
                    return Err(outlook.watches.unwrap_or(NEVER));
                }
            }
            if self.gate().start(now) {
                return Ok(());
            }
        }
        panic!("64 rounds lost");
    }

    /// Joins and looks for the first time, before it is time.
    fn stand(&self, member: u32) -> u32 {
        let spot = self.join(member).unwrap();
        assert!(self.attempt(spot, 0).is_err());
        spot
    }

    /// Waits until it has started, or looks again by itself. Whether it started.
    fn wait(&self, member: u32, spot: u32, now: u64) -> bool {
        loop {
            let heard = self.bells[member as usize].heard();
            match self.attempt(spot, now) {
                Ok(()) => return true,
                Err(NEVER) => self.bells[member as usize].sleep(heard),
                Err(due) if due <= now => {}
                Err(_) => return false,
            }
        }
    }

    fn assert_empty(&self) {
        assert_eq!(self.hot.summary.get(), 0, "SUMMARY");
        assert_eq!(self.bits[0].get(), 0, "bits");
        for place in &self.places {
            assert_eq!((place.owner.get(), place.ticket.get()), (0, 0));
        }
    }
}

fn owner(member: u32) -> Owner {
    Owner {
        member,
        generation: 1,
    }
}

fn thread<T: 'static>(
    world: &Arc<World>,
    f: impl FnOnce(&World) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let world = world.clone();
    loom::thread::spawn(move || f(&world))
}

/// Three start at once, one of whom read the clock a little before the others: one of them does, and the next is an interval
/// after him, whatever the others do.
#[test]
fn one_start_an_interval() {
    explore("one_start_an_interval", || {
        let world = Arc::new(World::new(1, 0));
        let clocks = [100, 100, 95];
        let threads = clocks.map(|now| thread(&world, move |world| world.gate().start(now)));
        let started = threads.map(|thread| thread.join().unwrap());
        let winners: Vec<_> = (0..3).filter(|at| started[*at]).collect();
        assert_eq!(winners.len(), 1, "{started:?}");
        assert_eq!(world.hot.next_start.get(), clocks[winners[0]] + INTERVAL);
    });
}

/// The interval gets shorter as one starts: whoever waits looks in time.
#[test]
fn a_shorter_interval() {
    explore("a_shorter_interval", || {
        let world = Arc::new(World::new(1, 0));
        let day = 86_400_000_000_000;
        world.hot.interval.put(day);
        let sets = thread(&world, |world| world.gate().set_interval(INTERVAL, 100));
        let starts = thread(&world, |world| assert!(world.gate().start(100)));
        starts.join().unwrap();
        sets.join().unwrap();
        world.advance(None, Why::Sooner, 101);
        assert!(world.gate().next_start(101) <= 101 + INTERVAL);
        assert!(world.hot.next_start.get() > 100);
    });
}

/// Two callers want the one place, leave it, and take it again.
#[test]
fn two_want_one_place() {
    explore("two_want_one_place", || {
        let world = Arc::new(World::new(2, 1));
        let threads = [0, 1].map(|member| {
            thread(&world, move |world| {
                if let Some(spot) = world.join(member) {
                    let entry = world.line().read(spot, 0).expect("it is there");
                    assert_eq!(entry.member, member);
                    world.leave(member, spot, Why::Sooner, 0);
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        world.assert_empty();
        assert!(world.join(0).is_some());
    });
}

/// A caller died after each write of taking its place and joining: a cleaner frees the place once, and whoever takes it next
/// keeps it.
#[test]
fn a_cleaner_and_the_next_owner() {
    for writes in 1..=12 {
        explore("a_cleaner_and_the_next_owner", move || {
            let world = Arc::new(World::new(2, 1));
            mortal(writes, || {
                world.join(0);
            });
            world.taken[0].store(0, Ordering::Relaxed);
            assert!(roster::retire(&world.roster[0], 1));
            assert_eq!(world.line().entries(), [], "absent at once");
            let cleaner = thread(&world, |world| {
                let none = std::iter::empty();
                roster::clean(0, &world.roster[0], 1, none, &[world.line()]);
            });
            let next = thread(&world, |world| world.join(1));
            cleaner.join().unwrap();
            let Some(spot) = next.join().unwrap() else {
                return world.assert_empty();
            };
            let entries = world.line().entries();
            assert_eq!(entries.len(), 1, "its owner stands there");
            assert_eq!((entries[0].spot, entries[0].member), (spot, 1));
            world.leave(1, spot, Why::Sooner, 0);
            world.assert_empty();
        });
    }
}

/// Two are due, and look at once: the first starts, and the second an interval later.
#[test]
fn two_are_due() {
    explore("two_are_due", || {
        let world = Arc::new(World::new(2, 2));
        world.hot.next_start.put(5);
        let spots = [0, 1].map(|member| world.stand(member));
        let waiters = [0, 1].map(|member| {
            let spot = spots[member as usize];
            thread(&world, move |world| {
                let started = world.wait(member, spot, 7);
                if started {
                    world.leave(member, spot, Why::Moved, 7);
                }
                started
            })
        });
        let started = waiters.map(|waiter| waiter.join().unwrap());
        assert_eq!(started, [true, false], "first come, first served");
        assert_eq!(world.hot.next_start.get(), 7 + INTERVAL);
    });
}

/// The third knows no time. The first starts as it joins, or gives up, and then it is the second and knows one.
#[test]
fn the_third_becomes_the_second() {
    for starts in [true, false] {
        explore("the_third_becomes_the_second", move || {
            let world = Arc::new(World::new(3, 3));
            world.hot.next_start.put(5);
            let first = world.stand(0);
            world.stand(1);
            let third = thread(&world, |world| {
                let spot = world.join(2).unwrap();
                assert!(!world.wait(2, spot, 5));
            });
            let why = match starts {
                true => Why::Moved,
                false => Why::Sooner,
            };
            if starts {
                assert!(world.wait(0, first, 5));
            }
            world.leave(0, first, why, 5);
            third.join().unwrap();
        });
    }
}
