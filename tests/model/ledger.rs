//! The ledger, a look, and the estate.

use super::support::{World, estate, explore, owner, thread};
use shmsched::model::protocol::ledger::{Picture, Word};
use shmsched::model::protocol::roster::{self, Status};
use shmsched::model::words::mortal;
use std::sync::Arc;

/// What the picture says the dead left, adopted or not.
fn found(picture: &Picture) -> u32 {
    picture.left_behind() + Word(picture.estate).net()
}

/// One thread takes and gives two slots, another takes one, of two in all, while a third looks: never over the limit, and nobody is robbed.
#[test]
fn nobody_died() {
    explore("nobody_died", || {
        let world = Arc::new(World::new(2, 2));
        let two = thread(&world, |world| {
            if world.take(0, 2) {
                world.give(0, 2);
            }
        });
        let one = thread(&world, |world| world.take(1, 1));
        let looker = thread(&world, |world| {
            world.look(|picture| assert_eq!(found(picture), 0));
        });
        two.join().unwrap();
        if one.join().unwrap() {
            world.give(1, 1);
        }
        looker.join().unwrap();
        assert_eq!(estate(&world), 0);
        world.settle_up(0);
    });
}

/// A thread uses a record that nobody used before, above the mark, while another looks: nobody is robbed.
#[test]
fn a_mark_rises() {
    explore("a_mark_rises", || {
        let world = Arc::new(World::with_records(1, 2, 2));
        let fresh = world.records[1].owner.get();
        world.records[1].owner.put(0);
        world.cold.records_high.put(1);
        let newcomer = thread(&world, move |world| {
            roster::raise(&world.cold.records_high, 2);
            assert!(world.records[1].owner.replace(0, fresh).is_ok());
            assert!(world.take(1, 1));
        });
        let looker = thread(&world, |world| {
            world.look(|picture| assert_eq!(found(picture), 0));
        });
        newcomer.join().unwrap();
        looker.join().unwrap();
        world.give(1, 1);
        world.settle_up(0);
    });
}

/// One dies after each write of taking or giving two slots, beside a thread that does the same with one, while a third
/// looks.
#[test]
fn a_holder_dies() {
    // Writes: odd, RUNNING, even.
    for (takes, writes, left) in [
        (true, 1, 0),
        (true, 2, 2),
        (true, 3, 2),
        (false, 1, 2),
        (false, 2, 0),
        (false, 3, 0),
    ] {
        explore("a_holder_dies", move || {
            let world = Arc::new(World::new(3, 3));
            if !takes {
                assert!(world.take(0, 1) && world.take(1, 2));
            }
            let change = move |world: &World, record, k| {
                if takes {
                    assert!(world.take(record, k));
                } else {
                    world.give(record, k);
                }
            };
            let dying = thread(&world, move |world| {
                assert!(mortal(writes, || change(world, 1, 2)));
                world.die(1);
            });
            let living = thread(&world, move |world| change(world, 0, 1));
            let looker = thread(&world, move |world| {
                world.look(|picture| {
                    if Status(picture.status[1]).gone().is_none() {
                        assert_eq!(found(picture), 0);
                    } else if picture.busy.contains(&true) {
                        assert!(found(picture) <= left);
                    } else {
                        assert_eq!(found(picture), left);
                    }
                });
            });
            dying.join().unwrap();
            living.join().unwrap();
            looker.join().unwrap();
            if takes {
                world.give(0, 1);
            }
            world.settle_up(2);
        });
    }
}

/// Member 2 is dead and left two slots, between two brackets or in the middle of one.
fn with_a_dead_holder(concurrency: i32) -> Arc<World> {
    let world = Arc::new(World::new(3, concurrency));
    assert!(mortal(3, || {
        world.take(2, 2);
    }));
    world.die(2);
    world
}

/// Two look at once while a living thread changes its own net: adopted once.
#[test]
fn two_lookers() {
    explore("two_lookers", || {
        let world = with_a_dead_holder(4);
        let lookers = [0, 1].map(|_| {
            thread(&world, |world| {
                world.look(|picture| assert!(found(picture) <= 2));
            })
        });
        if world.take(0, 1) {
            world.give(0, 1);
        }
        for looker in lookers {
            looker.join().unwrap();
        }
        assert!(world.look(|_| ()));
        assert_eq!(estate(&world), 2);
        assert_eq!(world.give_estate_back(1), 2);
        world.assert_all_free();
    });
}

/// Two look and give the estate back at once: given back once.
#[test]
fn two_heirs() {
    explore("two_heirs", || {
        let world = with_a_dead_holder(2);
        let heirs = [0, 1].map(|record| {
            thread(&world, move |world| {
                world.look(|picture| assert!(found(picture) <= 2));
                world.give_estate_back(record);
            })
        });
        for heir in heirs {
            heir.join().unwrap();
        }
        world.settle_up(1);
    });
}

/// A looker dies after each of its writes, between adopting and inheriting, or with the inheritance half moved, while
/// another looks: given back once.
#[test]
fn an_heir_dies() {
    // Writes: GONE, estate; then odd, estate, even of the inheritance; then odd, RUNNING, even of the release.
    for writes in 1..=8 {
        explore("an_heir_dies", move || {
            let world = with_a_dead_holder(3);
            let heir = thread(&world, move |world| {
                mortal(writes, || {
                    world.look(|_| ());
                    world.give_estate_back(0);
                });
                world.die(0);
            });
            let other = thread(&world, |world| {
                world.look(|picture| assert!(found(picture) <= 2));
                world.give_estate_back(1);
            });
            heir.join().unwrap();
            other.join().unwrap();
            world.settle_up(1);
        });
    }
}

/// A dead member is cleaned, and its slot and record go to another, who takes a slot, while a third looks.
#[test]
fn a_slot_changes_hands() {
    explore("a_slot_changes_hands", || {
        let world = Arc::new(World::new(3, 3));
        assert!(mortal(2, || {
            world.take(1, 2);
        }));
        world.die(1);
        let successor = thread(&world, |world| {
            world.bury();
            roster::clean(
                1,
                &world.roster[1],
                1,
                world.records.iter(),
                &[world.line()],
            );
            // Whoever claims a slot has locked its byte.
            world.revive(1);
            let generation = roster::claim(&world.roster[1]).expect("it was freed");
            world.records[1].owner.put(owner(1, generation));
            assert!(world.take(1, 1));
        });
        let looker = thread(&world, |world| {
            world.look(|picture| assert!(found(picture) <= 2));
        });
        successor.join().unwrap();
        looker.join().unwrap();
        assert!(world.look(|_| ()));
        assert_eq!(estate(&world), 2);
        assert_eq!(world.hot.running.get(), 3);
        world.give_estate_back(2);
        world.give(1, 1);
        world.assert_all_free();
    });
}
