//! Dispose against those of the same process who take and give meanwhile, as `segment::attachment` does it: the flag is
//! process memory, the cheap side of the pair is a compiler fence, the expensive side a membarrier.

use super::support::{World, explore};
use shmsched::model::protocol::ledger::{self, Refused};
use shmsched::model::words::{U32, heavy_fence, with_membarrier};
use std::sync::Arc;

/// A disposable member: its common record and two leased ones.
struct Member {
    world: World,
    disposed: U32,
}

impl Member {
    fn new() -> Arc<Member> {
        with_membarrier(true);
        Arc::new(Member {
            world: World::with_records(1, 3, 2),
            disposed: U32::new(0),
        })
    }

    fn is_inert(&self) -> bool {
        self.disposed.peek() != 0
    }

    fn take(&self, record: usize, k: u32) -> Result<(), Refused> {
        let (record, hot) = (&self.world.records[record], &self.world.hot);
        ledger::take(record, &hot.running, k, 2, || self.is_inert())
    }

    fn give(&self, record: usize, k: u32) {
        let (record, hot) = (&self.world.records[record], &self.world.hot);
        ledger::give(record, &hot.running, k, || self.is_inert());
    }

    /// Gives back what the member holds, once.
    fn dispose(&self) {
        if self.disposed.set_bits(1) != 0 {
            return;
        }
        heavy_fence().unwrap();
        let sum = loop {
            match ledger::settled_sum(self.world.records.iter()) {
                Some(sum) => break sum,
                None => loom::thread::yield_now(),
            }
        };
        if sum != 0 {
            ledger::give_sum(&self.world.records[0], &self.world.hot.running, sum, sum);
        }
    }
}

fn spawn(member: &Arc<Member>, f: impl FnOnce(&Member) + 'static) -> loom::thread::JoinHandle<()> {
    let member = member.clone();
    loom::thread::spawn(move || f(&member))
}

/// A permit is dropped, on another thread than took it, while its handle is disposed.
#[test]
fn dispose_against_release() {
    explore("dispose_against_release", || {
        let member = Member::new();
        member.take(1, 1).unwrap();
        let release = spawn(&member, |member| member.give(2, 1));
        let dispose = spawn(&member, Member::dispose);
        release.join().unwrap();
        dispose.join().unwrap();
        member.world.assert_all_free();
    });
}

/// One acquires, and uses what it got, while its handle is disposed.
#[test]
fn dispose_against_acquire() {
    explore("dispose_against_acquire", || {
        let member = Member::new();
        let acquire = spawn(&member, |member| {
            if member.take(1, 1).is_ok() {
                member.give(1, 1);
            }
        });
        let dispose = spawn(&member, Member::dispose);
        acquire.join().unwrap();
        dispose.join().unwrap();
        assert_eq!(member.take(1, 1), Err(Refused::Inert));
        member.world.assert_all_free();
    });
}

/// One acquires, one releases, and two dispose.
#[test]
fn disposed_twice() {
    explore("disposed_twice", || {
        let member = Member::new();
        member.take(1, 1).unwrap();
        let release = spawn(&member, |member| member.give(1, 1));
        let acquire = spawn(&member, |member| {
            let _ = member.take(2, 1);
        });
        let dispose = spawn(&member, Member::dispose);
        member.dispose();
        release.join().unwrap();
        acquire.join().unwrap();
        dispose.join().unwrap();
        member.world.assert_all_free();
    });
}

/// The estate is inherited by a member that is disposed meanwhile.
#[test]
fn dispose_against_inheriting() {
    explore("dispose_against_inheriting", || {
        let member = Member::new();
        member.world.leave_behind(2);
        let heir = spawn(&member, |member| {
            let (world, inert) = (&member.world, || member.is_inert());
            let found = ledger::inherit(&world.records[1], &world.cold.estate, inert);
            if found != 0 {
                ledger::give_inherited(&world.records[1], &world.hot.running, found, inert);
            }
        });
        let dispose = spawn(&member, Member::dispose);
        heir.join().unwrap();
        dispose.join().unwrap();
        member.world.settle_up(2);
    });
}
