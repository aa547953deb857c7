//! Storms of brisk processes and of such that wait, stopped and killed at any time.

use crate::lent_roles::{Brisk, Ends, over, waiting};
use crate::support::lending::{LENT, Lending, OFF};
use crate::support::{Chance, Child, Inside, LONG, Scene, figure, quiet_within};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Brisk processes and such that wait, stopped and killed at any time, while slots are lent by themselves and, after some
/// waits, by this process.
fn storm(time: Duration, budget: u32, brisk: usize, kills: bool) {
    const WAITERS: usize = 2;
    let scene = Scene::alone();
    let location = scene.segment(budget);
    let counts = scene.path("counts");
    let inside = Inside::open(&counts);
    let lending = Lending::of(&location.path());
    let mut chance = Chance::new();
    let start = |process: usize, seed: u64| match process < WAITERS {
        true => waiting(&location, &counts, process, seed, 3_000),
        false => {
            let mut brisk = Brisk::new(&location, &counts, process);
            brisk.asks("go");
            brisk.0
        }
    };
    let mut workers: Vec<Child> = (0..WAITERS + brisk)
        .map(|process| start(process, chance.below(1 << 31)))
        .collect();
    let (over_now, forged) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut lent, mut rounds, mut stops, mut killed) = (0, 0, 0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over_now.load(Ordering::Relaxed) {
                if lending.phase() == OFF {
                    forged.fetch_add(lending.lend().into(), Ordering::Relaxed);
                }
                thread::sleep(Duration::from_micros(300));
            }
        });
        let _ends = Ends(&over_now);
        let begun = Instant::now();
        // Longer on a machine that has no time for it.
        let enough = |lent, stops, killed| lent > 0 && stops > 2 && (!kills || killed > 0);
        while begun.elapsed() < time
            || !enough(lent, stops, killed) && begun.elapsed() < time + LONG
        {
            thread::sleep(Duration::from_micros(chance.below(6_000)));
            rounds += 1;
            lent += usize::from(lending.phase() == LENT);
            let at = chance.below(workers.len() as u64) as usize;
            if chance.below(3) == 0 {
                workers[at].stop_all();
                stops += 1;
                thread::sleep(Duration::from_micros(chance.below(8_000)));
                if kills && chance.below(6) == 0 {
                    inside.dies(at);
                    workers[at].kill();
                    killed += 1;
                    workers[at] = start(at, chance.below(1 << 31));
                } else {
                    workers[at].go_on();
                }
            }
            if inside.most() > u64::from(budget) {
                break;
            }
        }
    });
    let most = inside.most();
    let forged = forged.into_inner();
    figure!(
        "peak {most} of {budget}, {brisk} brisk, {stops} stops, {killed} kills, lent {lent} of {rounds} times, {forged} forged"
    );
    assert!(most <= u64::from(budget), "the limit is kept");
    for worker in &mut workers[WAITERS..] {
        worker.tell("idle");
        worker.expect("=");
    }
    for worker in &mut workers[..WAITERS] {
        let took = over(worker);
        figure!("{took:?}");
        assert!(took.waits > 0);
    }
    assert!(lent > 0 && stops > 2 && (!kills || killed > 0));
    drop(workers);
    quiet_within(Duration::from_secs(4), &location, budget);
}

#[test]
fn case_26_a_storm_of_lent_slots_and_stops() {
    for (budget, brisk) in [(1, 2), (2, 2), (4, 6)] {
        storm(Duration::from_millis(900), budget, brisk, false);
    }
}

#[test]
fn case_02_a_storm_of_lent_slots_and_kills() {
    for (budget, brisk) in [(1, 2), (2, 6), (4, 2)] {
        storm(Duration::from_millis(900), budget, brisk, true);
    }
}

#[test]
#[ignore = "for scripts/stress: three minutes"]
fn stress_case_02_a_storm_of_lent_slots_and_kills() {
    for (budget, brisk) in [(1, 2), (2, 2), (4, 2), (1, 6), (2, 6), (4, 6)] {
        storm(Duration::from_secs(30), budget, brisk, true);
    }
}
