//! Many processes that come, work, die and are killed.

use crate::support::{
    Args, Chance, Child, Recorder, Scene, Words, figure, hear, heard_by, peak, quiet, say,
};
use shmsched::{Location, Priority, Segment};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Role: PATH LOG SEED. Takes slots by every way in, records each unit, until it is told to stop.
pub fn play(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let log = Recorder::open(Path::new(args.text(1)));
    let mut chance = Chance::seeded(args.number(2));
    say("working");
    while heard_by(Duration::ZERO).is_none() {
        let priority = Priority::from_index(chance.below(7) as usize).unwrap();
        let slots = if chance.below(5) == 0 { 2 } else { 1 };
        let wait = Duration::from_micros(chance.below(3_000));
        let hold = Duration::from_micros(chance.below(300));
        let work = || {
            log.start(slots);
            if hold > Duration::from_micros(100) {
                std::thread::sleep(hold);
            }
            log.end(slots);
        };
        let done = match chance.below(5) {
            0 => scheduler
                .try_acquire_many(slots, priority)
                .is_ok_and(|permit| {
                    work();
                    drop(permit);
                    true
                }),
            1 => scheduler
                .blocking_acquire_many(slots, priority)
                .is_ok_and(|permit| {
                    work();
                    drop(permit);
                    true
                }),
            2 => scheduler
                .blocking_acquire_until(slots, priority, wait)
                .is_ok_and(|permit| {
                    work();
                    drop(permit);
                    true
                }),
            3 => futures_executor::block_on(scheduler.acquire_many(slots, priority)).is_ok_and(
                |permit| {
                    work();
                    drop(permit);
                    true
                },
            ),
            _ => futures_executor::block_on(scheduler.acquire_until(slots, priority, wait))
                .is_ok_and(|permit| {
                    work();
                    drop(permit);
                    true
                }),
        };
        std::hint::black_box(done);
    }
}

fn start(location: &Location, log: &Path, seed: u64) -> Child {
    let path = location.path();
    let log = log.to_string_lossy();
    Child::start("churn", &[&path.to_string_lossy(), &log, &seed.to_string()])
}

fn storm(time: Duration, budget: u32) {
    let scene = Scene::new();
    let location = scene.segment(budget);
    let log = Recorder::open(&scene.path("log"));
    let mut chance = Chance::new();
    let mut workers: Vec<Child> = (0..8)
        .map(|_| start(&location, log.path(), chance.below(1 << 31)))
        .collect();
    let begun = Instant::now();
    let mut kills = 0;
    while begun.elapsed() < time {
        std::thread::sleep(Duration::from_millis(chance.below(30)));
        let at = chance.below(8) as usize;
        log.dies(workers[at].pid());
        workers[at].kill();
        kills += 1;
        workers[at] = start(&location, log.path(), chance.below(1 << 31));
    }
    for worker in &mut workers {
        worker.tell("stop");
    }
    workers.iter_mut().for_each(Child::finish);
    let (most, units) = peak(log.path());
    figure!("{units} units, {kills} kills, peak {most} of {budget}");
    assert_eq!(most, budget, "the limit is kept and reached");
    assert!(units > kills * 10);
    quiet(&location, budget);
}

#[test]
fn case_01_a_storm_of_kills_ends_quiet() {
    storm(Duration::from_secs(6), 3);
}

#[test]
#[ignore = "for scripts/stress: two minutes"]
fn stress_case_01_a_storm_of_kills_ends_quiet() {
    storm(Duration::from_secs(120), 3);
}

/// Role: PATH. Takes and gives as fast as it can until it is killed.
pub fn spin(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    say("spinning");
    loop {
        drop(scheduler.try_acquire(Priority::Normal));
        drop(scheduler.try_acquire_many(2, Priority::High));
    }
}

/// Killed anywhere within the hottest loop, two together: nothing lost or invented.
fn pairs(rounds: u32) {
    let scene = Scene::new();
    let location = scene.segment(3);
    let path = location.path();
    let mut chance = Chance::new();
    let words = Words::of(&location);
    let mut caught = 0;
    for _ in 0..rounds {
        let mut two = [(); 2].map(|()| Child::start("spin", &[&path.to_string_lossy()]));
        two.iter_mut()
            .for_each(|child| drop(child.expect("spinning")));
        std::thread::sleep(Duration::from_micros(chance.below(3_000)));
        two.iter_mut().for_each(Child::kill_only);
        two.iter_mut().for_each(Child::kill);
        caught += u32::from(words.running() != 0);
        quiet(&location, 3);
    }
    figure!("{caught} of {rounds} pairs left something");
    assert!(caught > 0, "none died while holding");
}

#[test]
fn case_02_two_killed_together_in_a_hot_loop() {
    pairs(40);
}

#[test]
#[ignore = "for scripts/stress: 2,000 pairs, three minutes"]
fn stress_case_02_two_killed_together_in_a_hot_loop() {
    pairs(2_000);
}

/// Role: PATH SECONDS. 50 tasks that give up after 0 to 300 us, then aborts and a runtime that shuts down amid 100 waits.
pub fn impatient(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let until = Instant::now() + Duration::from_millis(args.number(1));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    // Longer on a machine that has no time for it.
    let longest = until + Duration::from_secs(10);
    let both = Arc::new([const { AtomicU64::new(0) }; 2]);
    let tasks: Vec<_> = (0..50u64)
        .map(|seed| {
            let (scheduler, both) = (scheduler.clone(), both.clone());
            runtime.spawn(async move {
                let few = || both.iter().any(|n| n.load(Ordering::Relaxed) < 30);
                let mut chance = Chance::seeded(seed + 1);
                let (mut granted, mut late, mut calls) = (0u64, 0u64, 0u64);
                while Instant::now() < until || few() && Instant::now() < longest {
                    calls += 1;
                    let patience = Duration::from_micros(chance.below(300));
                    // Alternately our own deadline, a timeout around it, and select.
                    let permit = match calls % 3 {
                        0 => scheduler
                            .acquire_until(1, Priority::Normal, patience)
                            .await
                            .ok(),
                        1 => tokio::time::timeout(patience, scheduler.acquire(Priority::Normal))
                            .await
                            .ok()
                            .map(Result::unwrap),
                        _ => tokio::select! {
                            permit = scheduler.acquire(Priority::Normal) => permit.ok(),
                            () = tokio::time::sleep(patience) => None,
                        },
                    };
                    match permit {
                        Some(permit) => {
                            granted += 1;
                            both[0].fetch_add(1, Ordering::Relaxed);
                            tokio::time::sleep(Duration::from_micros(50)).await;
                            drop(permit);
                        }
                        None => {
                            late += 1;
                            both[1].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                (granted, late, calls)
            })
        })
        .collect();
    let mut sum = (0, 0, 0);
    for task in tasks {
        let (granted, late, calls) = runtime.block_on(task).unwrap();
        sum = (sum.0 + granted, sum.1 + late, sum.2 + calls);
    }
    assert_eq!(sum.0 + sum.1, sum.2);
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.pending), (0, 0));
    assert_eq!(
        stats.total.deferred,
        stats.total.completed + stats.total.cancelled
    );
    say(format!("counted {} {}", sum.0, sum.1));
    // Aborted one by one while they wait, hold or are called.
    for round in 0..50 {
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let scheduler = scheduler.clone();
                runtime.spawn(async move {
                    let permit = scheduler.acquire(Priority::High).await.unwrap();
                    tokio::task::yield_now().await;
                    drop(permit);
                })
            })
            .collect();
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        for task in &tasks {
            task.abort();
        }
        for task in tasks {
            let _ = runtime.block_on(task);
        }
    }
    let _held = scheduler.try_acquire(Priority::Normal);
    for _ in 0..100 {
        let scheduler = scheduler.clone();
        runtime.spawn(async move { drop(scheduler.acquire(Priority::Low).await) });
    }
    std::thread::sleep(Duration::from_millis(2));
    runtime.shutdown_background();
    say("shut");
    hear();
}

#[test]
fn case_09_impatient_tasks_lose_nothing() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let path = location.path();
    let mut children: Vec<_> = (0..4)
        .map(|_| Child::start("impatient", &[&path.to_string_lossy(), "2000"]))
        .collect();
    let mut sum = (0, 0);
    for child in &mut children {
        let counted = child.expect("counted");
        let (granted, late) = counted.split_once(' ').unwrap();
        sum.0 += granted.parse::<u64>().unwrap();
        sum.1 += late.parse::<u64>().unwrap();
    }
    for child in &mut children {
        child.expect("shut");
        child.tell("leave");
    }
    children.iter_mut().for_each(Child::finish);
    figure!("{} granted, {} gave up", sum.0, sum.1);
    assert!(sum.0 > 100 && sum.1 > 100);
    quiet(&location, 1);
}
