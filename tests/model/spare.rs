//! Spare slots: who keeps one, who recalls it, and who dies meanwhile.

use super::support::{World, estate, explore_at_least, thread};
use shmsched::model::protocol::ledger::{self, spare};
use shmsched::model::protocol::mutant;
use shmsched::model::words::{U32, heavy_fence, mortal};
use std::sync::Arc;

/// Spares are allowed, and the thread of record 0 keeps one.
fn with_a_spare(world: World) -> Arc<World> {
    world.allow_spares();
    assert!(world.take_kept(0));
    world.give_kept(0);
    assert!(spare::lies_at(&world.records[0]));
    Arc::new(world)
}

/// Nobody runs any more: everything comes back.
fn settle_up(world: &World, record: usize) {
    world.recall(record);
    world.settle_up(record);
}

/// One takes its spare again and gives it back, while another needs a slot, the only one.
#[test]
fn taken_or_recalled() {
    explore_at_least(3, "taken_or_recalled", || {
        let world = with_a_spare(World::new(2, 1));
        let owner = thread(&world, |world| {
            if world.take_kept(0) {
                world.give_kept(0);
            }
        });
        let other = thread(&world, |world| {
            if world.take_kept(1) {
                world.give_kept(1);
            }
        });
        owner.join().unwrap();
        other.join().unwrap();
        settle_up(&world, 0);
    });
}

/// One that nobody is in the way of finds the slot that another keeps.
#[test]
fn recalled_at_rest() {
    explore_at_least(3, "recalled_at_rest", || {
        let world = with_a_spare(World::new(3, 1));
        let other = thread(&world, |world| {
            world.take_kept(1) && {
                {
                    world.gone();
                    world.give(1, 1)
                };
                true
            }
        });
        let third = thread(&world, |world| {
            world.recall(2);
        });
        // The third may have it in hand for a moment.
        let _ = other.join().unwrap();
        third.join().unwrap();
        assert!(world.take_kept(2));
        world.give_kept(2);
        settle_up(&world, 0);
    });
}

/// A spare was claimed, and spares are allowed again, before its owner looks.
#[test]
fn noticed_late() {
    explore_at_least(3, "noticed_late", || {
        let world = with_a_spare(World::new(2, 1));
        let owner = thread(&world, |world| {
            if world.take_kept(0) {
                world.give_kept(0);
            }
        });
        let other = thread(&world, |world| {
            if world.take_kept(1) {
                spare::allow(&world.hot.spares);
                world.give_kept(1);
            }
        });
        owner.join().unwrap();
        other.join().unwrap();
        settle_up(&world, 1);
    });
}

/// One who recalls sleeps between reading a spare and claiming it, until spares are allowed again.
#[test]
fn a_late_claimer() {
    explore_at_least(3, "a_late_claimer", || {
        let world = with_a_spare(World::new(3, 1));
        let late = thread(&world, |world| {
            world.recall(1);
        });
        let another = thread(&world, |world| {
            world.recall(2);
            spare::allow(&world.hot.spares);
        });
        for _ in 0..2 {
            if world.take_kept(0) {
                world.give_kept(0);
            }
        }
        late.join().unwrap();
        another.join().unwrap();
        settle_up(&world, 0);
    });
}

/// One who recalls dies after each write, while the owner takes its spare.
#[test]
fn a_recaller_dies() {
    // Writes: the phase, odd, the claim, even, odd, RUNNING, even, the phase.
    for writes in 1..=8 {
        explore_at_least(3, "a_recaller_dies", move || {
            let world = with_a_spare(World::new(2, 1));
            let recaller = thread(&world, move |world| {
                mortal(writes, || {
                    world.recall(1);
                });
                world.die(1);
            });
            if world.take_kept(0) {
                world.give_kept(0);
            }
            world.look(|_| ());
            recaller.join().unwrap();
            settle_up(&world, 0);
        });
    }
}

/// The owner dies after each write of taking and leaving its spare, while one looks and one recalls: what it left is found
/// once.
#[test]
fn an_owner_dies() {
    // Writes: the number, the count, the number, the count.
    for writes in 1..=4 {
        explore_at_least(3, "an_owner_dies", move || {
            let world = with_a_spare(World::new(3, 1));
            assert!(mortal(writes, || {
                if world.take_kept(0) {
                    world.give_kept(0);
                }
            }));
            world.lets_go(u32::from(writes == 2));
            world.gone();
            world.die(0);
            let recaller = thread(&world, |world| {
                if world.take_kept(1) {
                    {
                        world.gone();
                        world.give(1, 1)
                    };
                }
            });
            let looker = thread(&world, |world| {
                world.look(|_| ());
                world.give_estate_back(2);
            });
            recaller.join().unwrap();
            looker.join().unwrap();
            settle_up(&world, 1);
        });
    }
}

/// A member disposes while another claims its spare: it is given back once. As `segment::attachment` does it.
#[test]
fn dispose_against_a_claim() {
    explore_at_least(3, "dispose_against_a_claim", || {
        let world = with_a_spare(World::new(2, 1));
        let disposed = Arc::new(U32::new(0));
        let recaller = thread(&world, |world| {
            if world.take_kept(1) {
                {
                    world.gone();
                    world.give(1, 1)
                };
            }
        });
        let record = &world.records[0];
        disposed.set_bits(1);
        heavy_fence().unwrap();
        if !mutant("dispose-unsealed") {
            assert!(spare::seal(record, record.owner.get()));
        }
        let sum = ledger::settled_sum([record].into_iter()).expect("nobody else writes to it");
        ledger::give_sum(record, &world.hot.running, sum, 0);
        recaller.join().unwrap();
        assert_eq!(estate(&world), 0);
        settle_up(&world, 1);
    });
}

/// One gives its slot back and keeps it, since spares were just allowed, while another joins the line: it is not left
/// asleep.
#[test]
fn kept_against_a_wait() {
    explore_at_least(3, "kept_against_a_wait", || {
        let world = World::with_line(2, 2, 1);
        world.allow_spares();
        assert!(world.take_kept(0));
        let world = Arc::new(world);
        world.recall(0);
        let waiter = thread(&world, |world| {
            world.join(1, 1);
            world.wait_and_leave(1, 1, 0);
            {
                world.gone();
                world.give(1, 1)
            };
        });
        spare::allow(&world.hot.spares);
        world.give_kept(0);
        waiter.join().unwrap();
        settle_up(&world, 0);
    });
}

/// The same where it takes its spare and gives it back.
#[test]
fn a_pair_against_a_wait() {
    explore_at_least(3, "a_pair_against_a_wait", || {
        let world = with_a_spare(World::with_line(2, 2, 1));
        let waiter = thread(&world, |world| {
            world.join(1, 1);
            world.wait_and_leave(1, 1, 0);
            {
                world.gone();
                world.give(1, 1)
            };
        });
        if world.take_kept(0) {
            world.give_kept(0);
        }
        waiter.join().unwrap();
        settle_up(&world, 0);
    });
}

/// Spares are lent while one joins the line, and their only owner leaves one and goes: the one in line looks in time.
#[test]
fn lent_against_a_wait() {
    explore_at_least(3, "lent_against_a_wait", || {
        let world = World::with_line(2, 2, 1);
        world.allow_spares();
        assert!(world.take_kept(0));
        let world = Arc::new(world);
        world.recall(0);
        let waiter = thread(&world, |world| {
            world.join(1, 1);
            world.wait_and_leave(1, 1, 0);
            world.gone();
            world.give(1, 1);
        });
        world.lend();
        world.give_kept(0);
        waiter.join().unwrap();
        settle_up(&world, 0);
    });
}

/// The time for which spares were lent is up, and they are lent again as the first in line goes to sleep.
#[test]
fn lent_again() {
    explore_at_least(3, "lent_again", || {
        let world = World::with_line(2, 2, 1);
        world.allow_spares();
        assert!(world.take_kept(0));
        let world = Arc::new(world);
        world.recall(0);
        world.join(1, 1);
        world.lend();
        assert!(!world.attempt(1, 1, 0));
        world.recall(0);
        let waiter = thread(&world, |world| {
            world.wait_and_leave(1, 1, 0);
            world.gone();
            world.give(1, 1);
        });
        world.lend();
        world.give_kept(0);
        waiter.join().unwrap();
        settle_up(&world, 0);
    });
}

/// The first in line gives up while spares are lent: the next takes over its watch.
#[test]
fn lent_as_the_first_leaves() {
    explore_at_least(2, "lent_as_the_first_leaves", || {
        let world = World::with_line(3, 3, 1);
        world.allow_spares();
        assert!(world.take_kept(0));
        let world = Arc::new(world);
        world.recall(0);
        world.join(1, 1);
        assert!(!world.attempt(1, 1, 0));
        world.join(2, 1);
        let leaver = thread(&world, |world| world.leave(1));
        let waiter = thread(&world, |world| {
            world.wait_and_leave(2, 1, 0);
            world.gone();
            world.give(2, 1);
        });
        world.lend();
        world.give_kept(0);
        leaver.join().unwrap();
        waiter.join().unwrap();
        settle_up(&world, 0);
    });
}
