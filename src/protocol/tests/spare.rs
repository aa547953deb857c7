//! Spare slots: recallers and owners that are stopped at the worst moment.

use super::*;
use crate::protocol::ledger::spare::{self, OFF, ON, RECALL, Step, phase};
use crate::words::I32;
use std::cell::Cell;

fn never() -> bool {
    false
}

/// One slot, spares allowed, some records.
struct Spares {
    word: U32,
    running: I32,
    records: Vec<Record>,
}

impl Spares {
    fn new(records: usize) -> Spares {
        crate::sys::membarrier::register().unwrap();
        Spares {
            word: U32::new(ON),
            running: I32::new(0),
            records: (0..records).map(|_| Record::default()).collect(),
        }
    }

    /// The thread of this record takes the slot in the usual way.
    fn take(&self, record: usize) {
        ledger::take(&self.records[record], &self.running, 1, 1, never).unwrap();
    }

    fn leave(&self, record: usize) -> Step {
        spare::leave(&self.records[record], &self.word, |_| true)
    }

    fn take_spare(&self, record: usize) -> Step {
        spare::take(&self.records[record], &self.word, |_| true)
    }

    fn recall(&self, own: usize) -> Option<u32> {
        self.recall_of(own, &self.records, never)
    }

    fn recall_of(&self, own: usize, of: &[Record], inert: impl Fn() -> bool) -> Option<u32> {
        let own = &self.records[own];
        spare::recall(&self.word, &self.running, own, || of, inert)
    }

    fn is_off(&self) -> bool {
        phase(self.word.get()) == OFF
    }
}

#[test]
fn a_spare_is_taken_left_and_recalled() {
    let spares = Spares::new(2);
    assert_eq!(spares.take_spare(0), Step::Not);
    spares.take(0);
    for _ in 0..3 {
        assert_eq!(spares.leave(0), Step::Done);
        assert!(spare::lies_at(&spares.records[0]));
        assert_eq!(spares.take_spare(0), Step::Done);
    }
    assert_eq!(spares.recall(1), Some(0), "it is held");
    assert!(spares.is_off() && spares.running.get() == 1);
    assert_eq!(spares.leave(0), Step::Not);
    assert!(ledger::give(&spares.records[0], &spares.running, 1, never));
    spare::allow(&spares.word);
    spares.take(0);
    assert_eq!(spares.leave(0), Step::Done);
    assert_eq!(spares.recall(1), Some(1));
    assert_eq!((spares.running.get(), spares.is_off()), (0, true));
    // Its owner finds out.
    assert_eq!(spares.take_spare(0), Step::Contested);
    assert!(!spare::settle(&spares.records[0], never));
    assert_eq!(Word(spares.records[0].word.get()).net(), 0);
    assert_eq!(spares.take_spare(0), Step::Not);
}

/// A recaller is stopped after the fence, and goes on when spares are allowed again.
#[test]
fn a_sweep_that_goes_on_late_claims_nothing() {
    let spares = Spares::new(3);
    let began = Cell::new(false);
    let owner = &spares.records[0];
    let late = || {
        // It has left ON and passed the fence. Another comes through, spares are allowed, the owner leaves one.
        assert_eq!(spares.recall(2), Some(0));
        spare::allow(&spares.word);
        spares.take(0);
        assert_eq!(spares.leave(0), Step::Done);
        began.set(true);
        &spares.records[..]
    };
    let taken = Cell::new(false);
    let inert = || {
        // Between its reading of the number and its compare-exchange.
        if began.get() && !taken.get() && spare::lies_at(owner) {
            assert_eq!(spares.take_spare(0), Step::Done);
            taken.set(true);
        }
        false
    };
    spare::recall(
        &spares.word,
        &spares.running,
        &spares.records[1],
        late,
        inert,
    );
    assert!(began.get());
    assert_eq!(spares.running.get(), 1, "the owner's");
}

/// A recaller is stopped between number and compare-exchange, the owner between number and phase.
#[test]
fn owner_and_recaller_stopped_halfway() {
    let spares = Spares::new(3);
    let owner = &spares.records[0];
    spares.take(0);
    assert_eq!(spares.leave(0), Step::Done);
    let stopped = Cell::new(false);
    let in_hand = Cell::new(false);
    let inert = || {
        if !stopped.replace(true) {
            // As `take`, which began while spares were on, with the phase read at last when they are on again.
            let number = owner.spare.get();
            owner.spare.put(number + 1);
            assert_eq!(phase(spares.word.get()), RECALL);
            assert_eq!(spares.recall(2), Some(0));
            spare::allow(&spares.word);
            // The episode is another, so it settles.
            in_hand.set(spare::settle(owner, never));
        }
        false
    };
    spares.recall_of(1, &spares.records, inert);
    let claimed = i32::from(!in_hand.get());
    assert_eq!(spares.running.get() + claimed, 1, "one of the two has it");
}

/// A record that was leased after the sweep's bound was read is swept too: the bound is asked after the fence.
#[test]
fn a_sweep_asks_for_the_records_after_the_fence() {
    let spares = Spares::new(3);
    spares.take(2);
    assert_eq!(spares.leave(2), Step::Done);
    let asked = Cell::new(0);
    let records = || {
        asked.set(phase(spares.word.get()));
        &spares.records[..]
    };
    spare::recall(
        &spares.word,
        &spares.running,
        &spares.records[0],
        records,
        never,
    );
    assert_eq!(asked.get(), RECALL);
    assert!(!spare::lies_at(&spares.records[2]) && spares.is_off());
}

#[test]
fn who_is_disposed_while_it_recalls_leaves_the_rest_to_others() {
    let spares = Spares::new(3);
    spares.take(1);
    assert_eq!(spares.leave(1), Step::Done);
    assert_eq!(spares.recall_of(0, &spares.records, || true), None);
    assert!(!spares.is_off() && spare::lies_at(&spares.records[1]));
    assert_eq!(spares.recall(2), Some(1));
    assert!(spares.is_off());
}

/// The seal of a look that is slow must not fall on the record's next owner.
#[test]
fn numbers_never_come_back() {
    let record = Record::default();
    let owner = owner(0).word();
    for _ in 0..3 {
        record.owner.put(owner);
        let seen = (record.claimed.get(), record.spare.get());
        spare::clear(&record, owner);
        record.owner.put(0);
        spare::unseal(&record);
        assert!(record.claimed.get() > seen.0 && record.spare.get() > seen.1);
        assert_eq!(record.spare.get() & 1, 0);
    }
}

#[test]
fn a_sealed_record_is_not_claimed() {
    let spares = Spares::new(2);
    let record = &spares.records[1];
    record.owner.put(owner(0).word());
    spares.take(1);
    assert_eq!(spares.leave(1), Step::Done);
    assert!(
        spare::seal(record, owner(1).word()),
        "another's: left alone"
    );
    assert!(spare::lies_at(record));
    assert!(spare::seal(record, owner(0).word()));
    assert!(!spare::lies_at(record) && spare::lay_at(record));
    assert_eq!(spares.recall(0), Some(0));
}

/// Whatever a stranger writes there: no panic, no endless loop.
#[test]
fn scribbled_numbers() {
    for number in [0, 1, 2, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) + 1] {
        for claimed in [0, 1, number, number ^ 1, u64::MAX, 1 << 63] {
            for word in [OFF, ON, RECALL, 3, u32::MAX, u32::MAX - 2] {
                let spares = Spares::new(2);
                spares.records[1].spare.put(number);
                spares.records[1].claimed.put(claimed);
                spares.word.put(word);
                let _ = spares.take_spare(1);
                let _ = spares.leave(1);
                let _ = spare::settle(&spares.records[1], never);
                let _ = spares.recall(0);
                spare::clear(&spares.records[1], 0);
                assert!(!spare::lies_at(&spares.records[1]));
            }
        }
    }
}
