//! Slots that are lent: until when, who is to know, and what a stranger writes there.

use super::*;
use crate::protocol::ledger::spare::{self, LENT, OFF, ON, RECALL, Step, phase};
use crate::protocol::scheduler::LEND_NS;
use crate::protocol::turn::{NEVER, Outlook};
use crate::words::I32;

const NOW: u64 = 1 << 40;

fn seat(since: u64) -> Seat {
    Seat {
        amount: 1,
        bound: u32::MAX,
        ceiling: u32::MAX,
        since,
    }
}

/// Two members, the first of which holds the only slot.
fn world(lent: u64, spares: u32) -> World {
    let world = World::new(3, 1);
    world.hot.running.put(1);
    world.hot.spares.put(spares);
    world.cold.lent.put(lent);
    world
}

impl World {
    fn stands(&self, member: u32, lane: usize) {
        self.line().join(member, owner(member), lane, seat(NOW));
    }

    fn looks(&self, member: Option<(u32, usize)>, rung: &mut Vec<(u32, usize)>) -> Outlook {
        let moment = Moment {
            now: NOW,
            ms: 0,
            draw: None,
        };
        self.gate().advance(member, moment, &mut |member, lane| {
            rung.push((member, lane))
        })
    }
}

#[test]
fn lent_until() {
    for (lent, until) in [
        (NOW, NOW + LEND_NS),
        (NOW - 1, NOW - 1 + LEND_NS),
        (NOW - LEND_NS, NOW),
        (NOW - LEND_NS - 7, NOW - 7),
        (0, LEND_NS),
        // From the future.
        (NOW + 1, NOW),
        (NOW + LEND_NS, NOW),
        (u64::MAX, NOW),
        (u64::MAX - LEND_NS, NOW),
    ] {
        assert_eq!(
            world(lent, LENT).gate().lent_until(NOW),
            Some(until),
            "{lent}"
        );
        for other in [OFF, ON, RECALL] {
            assert_eq!(world(lent, other).gate().lent_until(NOW), None);
        }
    }
}

/// Only the first in line knows when it is to look; who promised less than that is rung by who lends.
#[test]
fn the_first_in_line_alone_is_told() {
    let world = world(NOW, OFF);
    let mut rung = Vec::new();
    world.stands(1, 3);
    world.stands(2, 3);
    let first = world.looks(Some((1, 3)), &mut rung);
    let second = world.looks(Some((2, 3)), &mut rung);
    assert_eq!((first.watches, second.watches), (Some(NEVER), Some(NEVER)));
    rung.clear();
    assert!(spare::lend(&world.hot.spares));
    assert!(!spare::lend(&world.hot.spares), "once");
    world.looks(None, &mut rung);
    assert_eq!(rung, [(1, 3)]);
    let first = world.looks(Some((1, 3)), &mut rung);
    let second = world.looks(Some((2, 3)), &mut rung);
    assert_eq!(
        (first.watches, second.watches),
        (Some(NOW + LEND_NS), Some(NEVER))
    );
    rung.clear();
    world.looks(None, &mut rung);
    assert_eq!(rung, [], "it has promised");
    // A more urgent one joins: it knows by its own look, and who was the first looks for nothing.
    world.stands(0, 5);
    let top = world.looks(Some((0, 5)), &mut rung);
    assert_eq!(top.watches, Some(NOW + LEND_NS));
    // It goes before it has looked again: the one behind it still has its promise.
    world.line().leave(0, 1, 5);
    rung.clear();
    world.looks(None, &mut rung);
    assert_eq!(rung, []);
    // Who promised a time and is first no more takes it back, and looks once more.
    world.line().leave(1, 1, 3);
    world.looks(None, &mut rung);
    assert_eq!(rung, [(2, 3)], "its timer is later than that");
}

/// They are lent again, later: who promised the earlier time comes too early, and nobody is rung. Sooner: it is.
#[test]
fn promises_and_times() {
    let far = |ns: u64| Promise::new(Some(NOW + ns), NOW);
    let timer = Promise::new(Some(NEVER), NOW);
    let none = Promise::new(None, NOW);
    assert!(timer.is_later_than(far(LEND_NS)) && none.is_later_than(far(LEND_NS)));
    assert!(!far(LEND_NS).is_later_than(timer) && !far(LEND_NS).is_later_than(none));
    assert!(none.is_later_than(timer) && !timer.is_later_than(none) && !timer.is_later_than(timer));
    assert!(!far(LEND_NS).is_later_than(far(2 * LEND_NS)));
    assert!(far(2 * LEND_NS).is_later_than(far(LEND_NS)));
    // Of a time long past nobody is afraid.
    assert!(!Promise::new(Some(1), NOW).is_later_than(Promise::new(Some(2), NOW)));
}

/// Steps are plain while slots are lent, the owner is asked with the phase, and whoever recalls finds what lies there.
#[test]
fn steps_while_lent() {
    crate::sys::membarrier::register().unwrap();
    let (spares, running) = (U32::new(LENT), I32::new(0));
    let records = [Record::default(), Record::default()];
    ledger::take(&records[0], &running, 1, 1, never).unwrap();
    let asked = std::cell::Cell::new(OFF);
    let usual = |phase| {
        asked.set(phase);
        true
    };
    assert_eq!(spare::leave(&records[0], &spares, usual), Step::Done);
    assert_eq!(asked.replace(OFF), LENT);
    assert_eq!(spare::take(&records[0], &spares, usual), Step::Done);
    assert_eq!(asked.get(), LENT);
    // Somebody of its own member waits: it goes where all can have it.
    assert_eq!(
        spare::leave(&records[0], &spares, |_| false),
        Step::Contested
    );
    assert!(spare::settle(&records[0], never));
    assert!(ledger::give(&records[0], &running, 1, never));
    ledger::take(&records[0], &running, 1, 1, never).unwrap();
    assert_eq!(spare::leave(&records[0], &spares, usual), Step::Done);
    let found = spare::recall(&spares, &running, &records[1], || &records, never);
    assert_eq!(
        (found, running.get(), phase(spares.get())),
        (Some(1), 0, OFF)
    );
    // While they are allowed, or recalled, nobody lends.
    for word in [ON, RECALL, LENT] {
        spares.put(word);
        assert!(!spare::lend(&spares));
        assert_eq!(spares.get(), word);
    }
}
