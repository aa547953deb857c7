//! The Limiter's line: nobody sleeps on who is not told of his turn. A sleeper wakes by itself when the plan told it a time
//! that is not too late; else it must be rung.

use super::support::{Bell, explore};
use shmsched::model::layout::{LimiterCold, LimiterHot, Member, Place};
use shmsched::model::protocol::bucket::TICK_NS;
use shmsched::model::protocol::limiter::Gate;
use shmsched::model::protocol::line::{Doing, Line, Seat};
use shmsched::model::protocol::mutant;
use shmsched::model::protocol::roster::{self, Owner};
use shmsched::model::protocol::turn::{NEVER, Outlook, Why};
use shmsched::model::words::U64;
use std::sync::Arc;

/// One token a tick.
const RATE: u32 = 10_000;
/// Two lanes are enough; the more urgent one.
const HIGH: usize = 1;
const LOW: usize = 0;
const LANES: usize = 2;

/// A Limiter, whose members have a place in two lanes.
struct World {
    hot: LimiterHot,
    cold: LimiterCold,
    roster: Vec<Member>,
    bits: Vec<U64>,
    places: Vec<Place>,
    bells: Vec<Bell>,
}

impl World {
    /// So many members, and an empty bucket at time 0.
    fn new(members: usize) -> World {
        let world = World {
            hot: LimiterHot::default(),
            cold: LimiterCold::default(),
            roster: (0..members).map(|_| Member::default()).collect(),
            bits: (0..LANES).map(|_| U64::new(0)).collect(),
            places: (0..members * LANES).map(|_| Place::default()).collect(),
            bells: (0..members).map(|_| Bell::default()).collect(),
        };
        for member in &world.roster {
            assert_eq!(roster::claim(member), Some(1));
        }
        world.gate().bucket().fill(RATE, 0);
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

    fn advance(&self, me: Option<(u32, usize)>, why: Why, tick: u64) -> Outlook {
        if self.hot.summary.get() == 0 {
            return Outlook::default();
        }
        let mut ring = |member: u32, _| self.bells[member as usize].ring();
        self.gate().advance(me, why, (tick * TICK_NS, 0), &mut ring)
    }

    fn join(&self, member: u32, lane: usize, amount: u32) {
        let seat = Seat {
            amount,
            bound: 0,
            ceiling: 0,
            since: 0,
        };
        let owner = Owner {
            member,
            generation: 1,
        };
        self.gate().line.join(member, owner, lane, seat);
    }

    /// Leaves, served or not.
    fn leave(&self, member: u32, lane: usize, why: Why, tick: u64) {
        self.gate().line.leave(member, 1, lane);
        if !mutant("leave-without-advance") {
            self.advance(None, why, tick);
        }
    }

    /// Gives tokens back, and calls who can go on with them.
    fn refund(&self, amount: u64, tick: u64) {
        self.gate().bucket().credit(amount);
        self.advance(None, Why::Sooner, tick);
    }

    /// One try: sleep, look, take. `Err` when it looks again, `NEVER` if it does not know.
    fn attempt(&self, member: u32, lane: usize, amount: u32, tick: u64) -> Result<(), u64> {
        let gate = self.gate();
        for _ in 0..64 {
            let was = gate.line.settle(member, lane);
            if was.doing() != Doing::Called {
                let outlook = self.advance(Some((member, lane)), Why::Moved, tick);
                if outlook.turn.is_none() {
                    return Err(outlook.watches.unwrap_or(NEVER));
                }
            }
            let bucket = gate.bucket();
            match bucket.debit(amount, bucket.enough(amount)) {
                Ok(_) => return Ok(()),
                Err(_) if mutant("settle") => return Err(NEVER),
                Err(_) => {}
            }
        }
        panic!("64 rounds lost");
    }

    /// Joins and looks for the first time, when nothing is there.
    fn stand(&self, member: u32, lane: usize, amount: u32) {
        self.join(member, lane, amount);
        assert!(self.attempt(member, lane, amount, 0).is_err());
    }

    /// Waits until it has its tokens, or looks again by itself by the given tick. Whether it has them.
    fn wait(&self, member: u32, lane: usize, amount: u32, tick: u64, by: u64) -> bool {
        loop {
            let heard = self.bells[member as usize].heard();
            match self.attempt(member, lane, amount, tick) {
                Ok(()) => return true,
                Err(due) if due <= tick * TICK_NS => {}
                Err(due) if due <= by * TICK_NS => return false,
                Err(_) => self.bells[member as usize].sleep(heard),
            }
        }
    }
}

fn thread<T: 'static>(
    world: &Arc<World>,
    f: impl FnOnce(&World) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let world = world.clone();
    loom::thread::spawn(move || f(&world))
}

/// One gives back what another waits for.
#[test]
fn wait_against_refund() {
    explore("wait_against_refund", || {
        let world = Arc::new(World::new(1));
        let waiter = thread(&world, |world| {
            world.join(0, LOW, 1);
            assert!(world.wait(0, LOW, 1, 0, 0));
            world.leave(0, LOW, Why::Moved, 0);
        });
        world.refund(1, 0);
        waiter.join().unwrap();
        assert_eq!(world.hot.tokens.get(), 0);
        assert_eq!(world.hot.summary.get(), 0);
    });
}

/// The first gives up, perhaps just as it is called for what is given back; the second is served.
#[test]
fn cancel_against_refund() {
    explore("cancel_against_refund", || {
        let world = Arc::new(World::new(2));
        world.stand(0, LOW, 1);
        world.stand(1, LOW, 1);
        let waiter = thread(&world, |world| world.wait(1, LOW, 1, 0, 0));
        let refund = thread(&world, |world| world.refund(1, 0));
        world.leave(0, LOW, Why::Sooner, 0);
        refund.join().unwrap();
        assert!(waiter.join().unwrap());
        world.leave(1, LOW, Why::Moved, 0);
        assert_eq!(world.hot.tokens.get(), 0);
        assert_eq!(world.hot.summary.get(), 0);
    });
}

/// A newcomer that saw nobody takes what the waiter was called for, and gives it back.
#[test]
fn a_newcomer_was_faster() {
    explore("a_newcomer_was_faster", || {
        let world = Arc::new(World::new(1));
        world.hot.tokens.put(1);
        let waiter = thread(&world, |world| {
            world.join(0, LOW, 1);
            assert!(world.wait(0, LOW, 1, 0, 0));
            world.leave(0, LOW, Why::Moved, 0);
        });
        if world.hot.summary.get() == 0 && world.gate().bucket().debit(1, 1).is_ok() {
            world.refund(1, 0);
        }
        waiter.join().unwrap();
        assert_eq!(world.hot.tokens.get(), 0);
        assert_eq!(world.hot.summary.get(), 0);
    });
}

/// The third knows no time. It becomes the second as it joins, and knows one then.
#[test]
fn the_third_becomes_the_second() {
    explore("the_third_becomes_the_second", || {
        let world = Arc::new(World::new(3));
        world.stand(0, LOW, 1);
        world.stand(1, LOW, 1);
        let third = thread(&world, |world| {
            world.join(2, LOW, 1);
            assert!(!world.wait(2, LOW, 1, 0, 3));
        });
        world.leave(0, LOW, Why::Sooner, 0);
        third.join().unwrap();
    });
}

/// The second becomes the third as a more urgent one came, and looks; that one leaves again, and counts on the time that
/// it had promised.
#[test]
fn a_promise_is_taken_back() {
    explore("a_promise_is_taken_back", || {
        let world = Arc::new(World::new(3));
        world.stand(0, LOW, 1);
        world.stand(1, LOW, 1);
        world.stand(2, HIGH, 1);
        let second = thread(&world, |world| {
            assert!(!world.wait(1, LOW, 1, 0, 3));
        });
        world.leave(2, HIGH, Why::Moved, 0);
        second.join().unwrap();
    });
}

/// The first claims what its time earned, and has not got it yet when another joins and reckons without it.
#[test]
fn a_window_on_its_way() {
    explore("a_window_on_its_way", || {
        let world = Arc::new(World::new(2));
        world.stand(0, HIGH, 10);
        let first = thread(&world, |world| {
            assert!(world.wait(0, HIGH, 10, 10, 10));
            world.leave(0, HIGH, Why::Moved, 10);
        });
        let second = thread(&world, |world| {
            world.join(1, LOW, 5);
            assert!(!world.wait(1, LOW, 5, 10, 15));
        });
        first.join().unwrap();
        second.join().unwrap();
    });
}

/// The same, and the first has not enough yet: it takes nothing, and looks no second time.
#[test]
fn a_window_too_small() {
    explore("a_window_too_small", || {
        let world = Arc::new(World::new(2));
        world.stand(0, LOW, 100);
        let first = thread(&world, |world| {
            assert!(world.attempt(0, LOW, 100, 10).is_err());
        });
        let second = thread(&world, |world| {
            world.join(1, HIGH, 15);
            assert!(!world.wait(1, HIGH, 15, 10, 15));
        });
        first.join().unwrap();
        second.join().unwrap();
    });
}
