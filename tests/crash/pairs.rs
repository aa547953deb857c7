//! Two children die together, each after a random write of a random operation.

use crate::operations::ALL;
use crate::support::{Chance, LONG, figure, until};
use crate::sweep::Bench;
use shmsched::Priority;

fn pairs(rounds: u32) {
    let bench = Bench::new();
    let mut chance = Chance::new();
    let mut deaths = 0;
    for round in 0..rounds {
        let partner = [0, 1, 3][chance.below(3) as usize];
        let picks = [(); 2].map(|()| {
            let operation = ALL[chance.below(ALL.len() as u64) as usize];
            (operation, 1 + chance.below(40))
        });
        let [one, two] = picks;
        let mut children = [bench.child(one.0, one.1), bench.child(two.0, two.1)];
        let held = match partner {
            0 => None,
            // The children may hold some already.
            slots => bench
                .scheduler
                .try_acquire_many_owned(slots, Priority::Normal)
                .ok(),
        };
        if chance.below(2) == 0 {
            bench.scheduler.allow_spares();
        }
        children.iter_mut().for_each(|child| child.tell("go"));
        if held.is_some() {
            // Let them run into each other before there is room.
            let pause = std::time::Duration::from_micros(chance.below(8_000));
            std::thread::sleep(pause);
        }
        drop(held);
        for child in &mut children {
            until(LONG, "ended", || child.poll().is_some());
            deaths += u32::from(child.was_killed());
        }
        bench.all_is_back(&format!("round {round}: {picks:?}, partner {partner}"));
    }
    figure!("{rounds} pairs, {deaths} deaths");
    assert!(deaths > rounds / 4, "only {deaths} of {} died", rounds * 2);
}

#[test]
fn case_02_pairs_die_together() {
    pairs(150);
}

#[test]
#[ignore = "for scripts/stress: about a minute"]
fn stress_case_02_pairs_die_together() {
    pairs(2_000);
}
