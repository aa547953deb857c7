//! Spare slots: death after every write of who leaves, takes, recalls, claims and settles them.

use crate::support::{Child, LONG, figure, until};
use crate::sweep::{BUDGET, Bench, sweep};
use shmsched::Priority;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const NORMAL: Priority = Priority::Normal;

impl Bench {
    /// Pairs of this thread, which keeps the slot as its spare. By the first it may notice that its last was claimed.
    fn park(&self) {
        self.scheduler.allow_spares();
        for _ in 0..2 {
            drop(self.scheduler.try_acquire(NORMAL).unwrap());
        }
    }

    /// Spares of this thread and of one that has ended.
    fn park_two(&self) {
        let before = self.words.spare();
        self.park();
        let held = self.hold(1);
        thread::scope(|scope| {
            scope.spawn(|| self.park());
        });
        drop(held);
        let now = (self.words.spare(), self.words.taken() as usize);
        assert_eq!(now, (before + 2, before + 2));
    }

    /// A child that has a spare, ready to go on.
    fn child_with_spare(&self, operation: &str, n: u64) -> Child {
        let child = self.child(operation, n);
        assert_eq!(self.words.spare(), 1, "it keeps a slot");
        child
    }

    /// Another process with a spare.
    fn keeper(&self) -> Child {
        let mut keeper = Child::start("keep", &[&self.path()]);
        keeper.expect("kept");
        keeper
    }
}

/// Whether it died; if not, what it said of how it went.
fn killed_or(child: &mut Child, word: &str, said: &str) -> bool {
    let killed = child.was_killed();
    if !killed {
        assert_eq!(child.expect(word), said);
    }
    killed
}

#[test]
fn case_02_pairs_by_a_spare() {
    sweep("spare_steps", 15, |bench, n| {
        let mut child = bench.child("spare_steps", n);
        child.tell("go");
        killed_or(&mut child, "spare", "1")
    });
}

/// Its own spare lies there, and nobody wanted it: nothing but plain stores.
#[test]
fn case_02_pairs_by_a_spare_that_lies_there() {
    sweep("spare_again", 9, |bench, n| {
        let mut child = bench.child_with_spare("spare_again", n);
        let taken = bench.words.taken();
        child.tell("go");
        let killed = killed_or(&mut child, "spare", "1");
        assert_eq!(taken, 1);
        killed
    });
}

/// It was claimed meanwhile: its owner notices at its next steps. Without spares since, and with them allowed again.
#[test]
fn case_02_pairs_after_the_spare_was_claimed() {
    for allowed in [false, true] {
        let name = format!("spare_again, allowed {allowed}");
        sweep(&name, 12, |bench, n| {
            let mut child = bench.child_with_spare("spare_again", n);
            let all = bench.hold(BUDGET);
            assert_eq!((bench.words.spare(), bench.words.taken()), (0, 3));
            drop(all);
            assert_eq!(bench.words.taken(), 0);
            if allowed {
                bench.scheduler.allow_spares();
            }
            child.tell("go");
            let kept = if allowed { "1" } else { "0" };
            killed_or(&mut child, "spare", kept)
        });
    }
}

/// The slot that was claimed is held by its claimer.
#[test]
fn case_02_pairs_while_the_spare_is_anothers() {
    for held in [BUDGET, BUDGET - 1] {
        let name = format!("spare_again, {held} held");
        sweep(&name, 6, |bench, n| {
            let mut child = bench.child_with_spare("spare_again", n);
            let all = bench.hold(BUDGET);
            let mut all = all;
            drop(all.split(BUDGET - held));
            bench.scheduler.allow_spares();
            child.tell("go");
            // All are held: its failed tries recall, and nothing is kept.
            let kept = if held == BUDGET { "0" } else { "1" };
            let killed = killed_or(&mut child, "spare", kept);
            drop(all);
            killed
        });
    }
}

/// Its own spare lies there, and it may not take it.
#[test]
fn case_02_a_spare_under_a_lower_limit() {
    sweep("spare_lowered", 6, |bench, n| {
        let mut child = bench.child_with_spare("spare_lowered", n);
        let held = bench.hold(2);
        assert_eq!((bench.words.spare(), bench.words.taken()), (1, 3));
        child.tell("go");
        let killed = killed_or(&mut child, "taken", "false");
        drop(held);
        killed
    });
}

/// The child's own spare, this thread's, and that of a thread that has ended, all of them wanted at once.
#[test]
fn case_02_recall() {
    sweep("spare_recall", 20, |bench, n| {
        let mut child = bench.child_with_spare("spare_recall", n);
        bench.park_two();
        child.tell("go");
        killed_or(&mut child, "all", "true")
    });
}

/// The spares of others, by one that never had one. They are alive, ended, and stopped.
#[test]
fn case_02_recall_of_others_spares() {
    sweep("recall", 15, |bench, n| {
        let mut child = bench.child("recall", n);
        bench.park_two();
        let mut keeper = bench.keeper();
        keeper.stop();
        assert_eq!((bench.words.spare(), bench.words.taken()), (3, 3));
        child.tell("go");
        let killed = killed_or(&mut child, "all", "true");
        keeper.kill();
        killed
    });
}

/// Two recall together, and each may die in the middle of it.
#[test]
fn case_02_two_recall_together() {
    sweep("recall", 15, |bench, n| {
        let mut children = [bench.child("recall", n), bench.child("recall", n)];
        bench.park_two();
        children.iter_mut().for_each(|child| child.tell("go"));
        let killed = children.each_mut().map(|child| child.was_killed());
        killed[0] || killed[1]
    });
}

#[test]
fn case_02_detach_with_a_spare() {
    sweep("spare_detach", 8, |bench, n| {
        let mut child = bench.child_with_spare("spare_detach", n);
        assert_eq!(bench.words.taken(), 2);
        child.tell("go");
        child.was_killed()
    });
}

#[test]
fn case_02_dispose_with_a_spare() {
    sweep("spare_dispose", 6, |bench, n| {
        let mut child = bench.child_with_spare("spare_dispose", n);
        assert_eq!(bench.words.taken(), 2);
        child.tell("go");
        child.was_killed()
    });
}

/// What was claimed and not noticed by its owner.
#[test]
fn case_02_dispose_and_detach_with_a_claimed_spare() {
    for operation in ["spare_dispose", "spare_detach"] {
        sweep(operation, 6, |bench, n| {
            let mut child = bench.child_with_spare(operation, n);
            let held = bench.hold(2);
            assert_eq!((bench.words.spare(), bench.words.taken()), (0, 3));
            child.tell("go");
            let killed = child.was_killed();
            drop(held);
            killed
        });
    }
}

/// It has a spare when it joins the line; others leave theirs meanwhile.
#[test]
fn case_02_a_wait_with_a_spare() {
    for operation in ["spare_wait", "spare_task"] {
        sweep(operation, 15, |bench, n| {
            let mut child = bench.child_with_spare(operation, n);
            let held = bench.hold(2);
            child.tell("go");
            bench.waits_or_ended(&mut child);
            bench.scheduler.allow_spares();
            drop(held);
            child.was_killed()
        });
    }
}

/// Spares are left and taken, and allowed again and again, while the child joins and leaves the line: after so many writes
/// as chance has it.
#[test]
fn case_02_a_wait_while_others_keep_spares() {
    let bench = Bench::new();
    let mut deaths = 0;
    for n in 1..60 {
        for operation in ["wait", "many", "cancel", "queued_callback", "spare_wait"] {
            let mut child = bench.child(operation, n);
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                for thread in 0..2 {
                    let (scheduler, over) = (&bench.scheduler, &over);
                    scope.spawn(move || {
                        while !over.load(Ordering::Relaxed) {
                            for _ in 0..20 {
                                let one = scheduler.try_acquire(NORMAL);
                                let two = (thread == 0).then(|| scheduler.try_acquire(NORMAL));
                                scheduler.allow_spares();
                                drop((one, two));
                            }
                            thread::yield_now();
                        }
                    });
                }
                child.tell("go");
                until(LONG, "ended", || child.poll().is_some());
                over.store(true, Ordering::Relaxed);
            });
            let killed = child.was_killed();
            deaths += u32::from(killed);
            bench.all_is_back(&format!("{operation}, write {n}, killed {killed}"));
        }
    }
    figure!("{deaths} deaths");
    assert!(deaths > 30, "only {deaths} deaths");
}

#[test]
fn case_02_a_killed_keeper_of_a_spare() {
    let bench = Bench::new();
    for round in 0..10 {
        let mut keepers = [(); 3].map(|()| bench.keeper());
        assert_eq!((bench.words.spare(), bench.words.taken()), (3, 3));
        keepers.iter_mut().for_each(Child::kill);
        bench.all_is_back(&format!("round {round}"));
    }
}

/// The dead one's spare is there, was claimed by this process, or this process is short of slots at once.
#[test]
fn case_02_look_that_buries_a_keeper() {
    for (operation, claimed) in [
        ("look", 0),
        ("look", 1),
        ("spare_look", 0),
        ("spare_look", 1),
    ] {
        let name = format!("{operation}, claimed {claimed}");
        sweep(&name, 8, |bench, n| {
            let mut child = bench.child(operation, n);
            let mut keeper = bench.keeper();
            let held = (claimed != 0).then(|| bench.hold(BUDGET));
            keeper.kill();
            drop(held);
            child.tell("go");
            child.was_killed()
        });
    }
}
