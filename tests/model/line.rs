//! The line: nobody sleeps beside room that is theirs. There are no timers here, so whoever is not woken never is.

use super::support::{LANE, World, explore, explore_at_least, thread};
use loom::sync::Mutex;
use shmsched::model::protocol::line::{Doing, Mark};
use shmsched::model::protocol::mutant;
use shmsched::model::protocol::roster;
use shmsched::model::protocol::scheduler::{Limits, View, plan};
use shmsched::model::words::U32;
use std::cell::Cell;
use std::sync::Arc;

/// One holds the only slot and gives it back; one joins and waits.
#[test]
fn wait_against_release() {
    explore("wait_against_release", || {
        let world = Arc::new(World::with_line(2, 2, 1));
        assert!(world.take(0, 1));
        let waiter = thread(&world, |world| {
            world.join(1, 1);
            world.wait_and_leave(1, 1, 0);
            world.give(1, 1);
        });
        let releaser = thread(&world, |world| world.give(0, 1));
        releaser.join().unwrap();
        waiter.join().unwrap();
        world.assert_all_free();
    });
}

/// A newcomer takes the slot that the waiter was called for, and gives it back.
#[test]
fn a_newcomer_passes() {
    explore("a_newcomer_passes", || {
        let world = Arc::new(World::with_line(2, 2, 1));
        assert!(world.take(0, 1));
        let waiter = thread(&world, |world| {
            world.join(1, 1);
            world.wait_and_leave(1, 1, 0);
            world.give(1, 1);
        });
        let newcomer = thread(&world, |world| {
            world.give(0, 1);
            if world.take(0, 1) {
                world.give(0, 1);
            }
        });
        newcomer.join().unwrap();
        waiter.join().unwrap();
        world.assert_all_free();
    });
}

/// Two wait in two members for the one slot, which goes from hand to hand.
#[test]
fn two_waiters() {
    explore("two_waiters", || {
        let world = Arc::new(World::with_line(2, 3, 1));
        assert!(world.take(2, 1));
        for member in [0, 1] {
            world.join(member, 1);
            assert!(!world.attempt(member, 1, 0));
        }
        let waiters = [0, 1].map(|member| {
            thread(&world, move |world| {
                world.wait_and_leave(member, 1, 0);
                world.give(member as usize, 1);
            })
        });
        world.give(2, 1);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        settle(&world);
    });
}

/// Two slots come free one after the other. The second releaser may find the first waiter on its way and leave the rest
/// to him, who may be in by then.
#[test]
fn two_come_free() {
    explore("two_come_free", || {
        let world = Arc::new(World::with_line(2, 3, 2));
        assert!(world.take(2, 2));
        for member in [0, 1] {
            world.join(member, 1);
            assert!(!world.attempt(member, 1, 0));
        }
        let waiters = [0, 1].map(|member| {
            thread(&world, move |world| {
                world.wait_and_leave(member, 1, 0);
            })
        });
        world.give(2, 1);
        world.give(2, 1);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        for member in [0, 1] {
            world.give(member, 1);
        }
        settle(&world);
    });
}

/// The first in line gives up, perhaps just as it is called; the second is served.
#[test]
fn cancel_against_call() {
    explore("cancel_against_call", || {
        let world = Arc::new(World::with_line(2, 3, 1));
        assert!(world.take(2, 1));
        for member in [0, 1] {
            world.join(member, 1);
            assert!(!world.attempt(member, 1, 0));
        }
        let waiter = thread(&world, |world| world.wait(1, 1, 0));
        let releaser = thread(&world, |world| world.give(2, 1));
        let cancels = thread(&world, |world| world.leave(0));
        releaser.join().unwrap();
        cancels.join().unwrap();
        waiter.join().unwrap();
        world.leave(1);
        world.give(1, 1);
        settle(&world);
    });
}

/// The last of a lane leaves as another joins it and a slot gets free.
#[test]
fn last_leaves_as_one_joins() {
    explore("last_leaves_as_one_joins", || {
        let world = Arc::new(World::with_line(2, 3, 1));
        assert!(world.take(2, 1));
        world.join(0, 1);
        let leaves = thread(&world, |world| world.leave(0));
        let joins = thread(&world, |world| {
            world.join(1, 1);
            world.wait(1, 1, 0);
        });
        let releaser = thread(&world, |world| world.give(2, 1));
        leaves.join().unwrap();
        joins.join().unwrap();
        releaser.join().unwrap();
        world.leave(1);
        world.give(1, 1);
        settle(&world);
    });
}

/// The last of a lane leaves as another joins it and leaves: SUMMARY says that nobody is there.
#[test]
fn last_leaves_as_one_passes_by() {
    explore_at_least(3, "last_leaves_as_one_passes_by", || {
        let world = Arc::new(World::with_line(2, 2, 1));
        world.join(0, 1);
        let passes_by = thread(&world, |world| {
            world.join(1, 1);
            world.leave(1);
        });
        let leaves = thread(&world, |world| world.leave(0));
        passes_by.join().unwrap();
        leaves.join().unwrap();
        settle(&world);
    });
}

/// The first was called and kept silent; the second passes it over just as it wakes.
#[test]
fn a_silent_one_wakes() {
    explore("a_silent_one_wakes", || {
        let world = Arc::new(World::with_line(2, 3, 1));
        assert!(world.take(2, 1));
        world.join(0, 1);
        world.give(2, 1);
        let entry = world.line().read(0, LANE).unwrap();
        assert_eq!(entry.state.doing(), Doing::Called);
        let threads = [0, 1].map(|member| {
            thread(&world, move |world| {
                if member == 1 {
                    world.join(1, 1);
                }
                world.wait_and_leave(member, 1, 1_000);
                world.give(member as usize, 1);
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        settle(&world);
    });
}

/// What another member does while member 0 hands its slot on.
#[derive(Clone, Copy, PartialEq)]
enum Other {
    /// Joins behind.
    Joins,
    /// Stands before, and gives up.
    Cancels,
    /// Stands before, and waits.
    Waits,
}

/// Own turn: member 0 hands its slot to its own waiter, without RUNNING, but only if that one is next.
fn own_turn(name: &'static str, other: Other) {
    explore(name, move || {
        let world = Arc::new(World::with_line(2, 3, 1));
        assert!(world.take(2, 1));
        if other != Other::Joins {
            world.join(1, 1);
            assert!(!world.attempt(1, 1, 0));
        }
        world.join(0, 1);
        assert!(!world.attempt(0, 1, 0));
        // The queue of member 0: whether its waiter still waits. The slot of a mutant: whether member 1 was handed one.
        let queue = Arc::new(Mutex::new(Cell::new(true)));
        let handed = Arc::new(U32::new(0));
        let of_releaser = (queue.clone(), handed.clone());
        let neighbour = thread(&world, move |world| match other {
            Other::Joins => {
                world.join(1, 1);
                if world.attempt(1, 1, 0) {
                    world.leave(1);
                    world.give(1, 1);
                    world.join(1, 1);
                }
            }
            Other::Cancels => world.leave(1),
            Other::Waits => loop {
                let heard = world.bell(1).heard();
                if handed.get() != 0 {
                    break;
                }
                if world.attempt(1, 1, 0) {
                    world.leave(1);
                    break;
                }
                world.bell(1).sleep(heard);
            },
        });
        let releaser = thread(&world, move |world| {
            let (queue, handed) = of_releaser;
            let queue = queue.lock().unwrap();
            match next_after(world, 1) {
                Some(0) if queue.get() => {
                    queue.set(false);
                    world.give_up_place(0);
                    drop(queue);
                    world.settled();
                    world.ring(0);
                }
                Some(1) if mutant("own-turn-of-another") => {
                    drop(queue);
                    world.leave(1);
                    handed.put(1);
                    world.ring(1);
                }
                _ => {
                    drop(queue);
                    world.give(2, 1);
                }
            }
        });
        let waiter = thread(&world, move |world| {
            loop {
                let heard = world.bell(0).heard();
                let queue = queue.lock().unwrap();
                if !queue.get() {
                    break;
                }
                if world.attempt(0, 1, 0) {
                    queue.set(false);
                    world.give_up_place(0);
                    drop(queue);
                    world.settled();
                    break;
                }
                drop(queue);
                world.bell(0).sleep(heard);
            }
        });
        releaser.join().unwrap();
        neighbour.join().unwrap();
        if other == Other::Waits {
            world.give(1, 1);
        }
        waiter.join().unwrap();
        world.give(0, 1);
        if other == Other::Joins {
            world.wait_and_leave(1, 1, 0);
            world.give(1, 1);
        }
        settle(&world);
    });
}

/// Whose turn it would be if `slots` were given back now.
fn next_after(world: &World, slots: u32) -> Option<u32> {
    let entries = world.line().entries();
    let view = View {
        entries: &entries,
        running: world.hot.running.get().wrapping_sub(slots as i32),
        limits: &Limits::read(&world.hot),
        mark: Mark(world.hot.hurry.get()),
        now: 0,
        ms: 0,
    };
    let plan = plan(view, None);
    let (at, _) = *plan.calls.first()?;
    plan.lapses.is_empty().then_some(entries[at].member)
}

#[test]
fn own_turn_against_join() {
    own_turn("own_turn_against_join", Other::Joins);
}

#[test]
fn own_turn_against_cancel() {
    own_turn("own_turn_against_cancel", Other::Cancels);
}

#[test]
fn own_turn_of_another() {
    own_turn("own_turn_of_another", Other::Waits);
}

/// Everything is free, nobody stands in line, and whichever member died now would leave nothing.
fn settle(world: &World) {
    assert_eq!(world.hot.summary.get(), 0, "SUMMARY");
    assert_eq!(world.line().entries(), []);
    world.assert_all_free();
    assert!(roster::retire(&world.roster[0], 1));
    world.look(|picture| assert_eq!(picture.left_behind(), 0, "left by member 0"));
}
