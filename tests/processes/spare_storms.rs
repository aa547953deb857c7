//! Storms of threads that keep slots, stopped and killed at any time.

use crate::support::{
    Args, Chance, Child, Inside, LONG, Scene, Words, figure, hear, now, quiet_within, say,
};
use shmsched::{OwnedPermit, Priority, Scheduler, Segment};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;

/// Role: PATH COUNTS PROCESS THREADS SEED. Takes slots by every way in, in bursts, until it is told to stop.
pub fn stormy(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let inside = Inside::open(Path::new(args.text(1)));
    let process = args.number(2) as usize;
    let (over, working) = (AtomicBool::new(false), AtomicU64::new(args.number(3)));
    // Permits that another thread gives back.
    let moved = Mutex::new(Vec::<OwnedPermit>::new());
    thread::scope(|scope| {
        for thread in 0..args.number(3) {
            let (scheduler, inside, moved) = (&scheduler, &inside, &moved);
            let (over, working) = (&over, &working);
            let mut chance = Chance::seeded(args.number(4) * 31 + thread);
            // As many as there are slots: nobody is refused for them.
            let slots = scheduler.concurrency().unwrap() as usize;
            let spins = thread == 0 && (1..=slots).contains(&process);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    burst(scheduler, inside, (process, spins), &mut chance, moved);
                }
                working.fetch_sub(1, Ordering::Relaxed);
            });
        }
        say("storming");
        hear();
        over.store(true, Ordering::Relaxed);
        // Somebody may wait for what lies there.
        while working.load(Ordering::Relaxed) != 0 {
            give_one(&inside, process, &moved);
            thread::sleep(Duration::from_millis(1));
        }
        while give_one(&inside, process, &moved) {}
    });
    say("over");
}

fn burst(
    scheduler: &Scheduler,
    inside: &Inside,
    (process, spins): (usize, bool),
    chance: &mut Chance,
    moved: &Mutex<Vec<OwnedPermit>>,
) {
    let enter = |slots| _ = inside.enter(process, slots);
    let leave = |slots| inside.leave(process, slots);
    let budget = scheduler.concurrency().unwrap();
    let priority = Priority::from_index(chance.below(7) as usize).unwrap();
    let wait = Duration::from_micros(chance.below(2_000));
    let pairs = |most| {
        for _ in 0..most {
            if let Ok(_permit) = scheduler.try_acquire(NORMAL) {
                enter(1);
                leave(1);
            }
        }
    };
    // All processes have calm times together: in every second one some want all slots now and then.
    let time = now() / 2_000_000 % 4;
    if time != 0 {
        match (spins, time) {
            (true, _) => pairs(200),
            (_, 1) if process == 0 => drop(scheduler.try_acquire_many(budget, NORMAL)),
            _ => {
                give_one(inside, process, moved);
                thread::sleep(wait / 4);
            }
        }
        return;
    }
    match chance.below(16) {
        0 => {
            if let Ok(_permit) = scheduler.blocking_acquire(priority) {
                enter(1);
                leave(1);
            }
        }
        1 => {
            if let Ok(_permit) = scheduler.blocking_acquire_until(2, priority, wait) {
                enter(2);
                leave(2);
            }
        }
        2 => {
            if let Ok(_permit) =
                futures_executor::block_on(scheduler.acquire_until(1, priority, wait))
            {
                enter(1);
                leave(1);
            }
        }
        3 => {
            if let Ok(_permit) = scheduler.try_acquire_many(1 + chance.below(3) as u32, priority) {
                enter(1);
                leave(1);
            }
        }
        4 => {
            if let Ok(permit) = scheduler.try_acquire_owned(priority) {
                enter(1);
                let mut moved = moved.lock().unwrap_or_else(PoisonError::into_inner);
                moved.push(permit);
            }
        }
        5 => _ = give_one(inside, process, moved),
        6 => thread::sleep(wait / 4),
        _ => pairs(chance.below(400)),
    }
    // Nothing is kept for long.
    if chance.below(4) == 0 {
        give_one(inside, process, moved);
    }
}

/// Gives back a slot that maybe another thread took.
fn give_one(inside: &Inside, process: usize, moved: &Mutex<Vec<OwnedPermit>>) -> bool {
    let permit = moved.lock().unwrap_or_else(PoisonError::into_inner).pop();
    if permit.is_some() {
        inside.leave(process, 1);
    }
    permit.is_some()
}

/// Processes of several threads each, more than there are slots, stopped and killed at any time, while spares are allowed
/// again and again.
fn storm(time: Duration, budget: u32, kills: bool) {
    const PROCESSES: usize = 4;
    let scene = Scene::alone();
    let location = scene.segment(budget);
    let counts = scene.path("counts");
    let inside = Inside::open(&counts);
    let words = Words::of(&location);
    let mut chance = Chance::new();
    let path = location.path();
    let start = |process: usize, seed: u64| {
        let args = [
            &*path.to_string_lossy(),
            &*counts.to_string_lossy(),
            &process.to_string(),
            "3",
            &seed.to_string(),
        ];
        let mut child = Child::start("stormy", &args);
        child.expect("storming");
        child
    };
    let mut workers: Vec<Child> = (0..PROCESSES)
        .map(|process| start(process, chance.below(1 << 31)))
        .collect();
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let over = AtomicBool::new(false);
    let (mut stops, mut killed, mut kept, mut rounds) = (0, 0, 0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                (0..50).for_each(|_| own.allow_spares());
                thread::yield_now();
            }
        });
        let begun = Instant::now();
        // Longer on a machine that has no time for it.
        let enough = |stops, killed, kept, rounds| {
            stops > 20 && (!kills || killed > 5) && kept > 5 && kept * 30 > rounds
        };
        while begun.elapsed() < time
            || !enough(stops, killed, kept, rounds) && begun.elapsed() < time + LONG
        {
            thread::sleep(Duration::from_micros(chance.below(6_000)));
            rounds += 1;
            kept += usize::from(words.spare() > 0);
            let at = chance.below(PROCESSES as u64) as usize;
            if chance.below(3) == 0 {
                workers[at].stop_all();
                stops += 1;
                thread::sleep(Duration::from_micros(chance.below(8_000)));
                if kills && chance.below(8) == 0 {
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
        over.store(true, Ordering::Relaxed);
    });
    let most = inside.most();
    figure!(
        "peak {most} of {budget}, {stops} stops, {killed} kills, spares seen {kept} of {rounds} times"
    );
    assert_eq!(most, u64::from(budget), "the limit is kept and reached");
    for worker in &mut workers {
        worker.tell("stop");
    }
    for worker in &mut workers {
        worker.expect("over");
        worker.finish();
    }
    drop(own);
    assert!(kept * 30 > rounds, "spares were in use: {kept} of {rounds}");
    assert!(stops > 20 && (!kills || killed > 5));
    quiet_within(Duration::from_secs(4), &location, budget);
}

#[test]
fn case_26_a_storm_of_spares_and_stops() {
    storm(Duration::from_secs(4), 3, false);
}

#[test]
fn case_02_a_storm_of_spares_and_kills() {
    storm(Duration::from_secs(4), 2, true);
}

#[test]
#[ignore = "for scripts/stress: two minutes"]
fn stress_case_26_a_storm_of_spares_and_stops() {
    storm(Duration::from_secs(60), 3, false);
    storm(Duration::from_secs(60), 5, false);
}

#[test]
#[ignore = "for scripts/stress: two minutes"]
fn stress_case_02_a_storm_of_spares_and_kills() {
    storm(Duration::from_secs(60), 2, true);
    storm(Duration::from_secs(60), 4, true);
}
