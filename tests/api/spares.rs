//! Spare slots, as users see them: not at all.

use shmsched::{Changes, Location, Observer, Priority, Scheduler, Segment, Settings};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const NORMAL: Priority = Priority::Normal;
const LONG: Duration = Duration::from_secs(10);

struct Scene {
    _directory: tempfile::TempDir,
    location: Location,
    one: Segment,
    other: Segment,
}

/// Two members of one segment.
fn scene(slots: u32) -> Scene {
    let directory = tempfile::tempdir().unwrap();
    let location = Location::File(directory.path().join("spares"));
    let one = Segment::create(&location, &Settings::new().concurrency(slots)).unwrap();
    let other = Segment::open(&location).unwrap();
    Scene {
        _directory: directory,
        location,
        one,
        other,
    }
}

/// The thread that calls keeps a spare slot from here on.
fn keep(scheduler: &Scheduler) {
    scheduler.allow_spares();
    drop(scheduler.try_acquire(NORMAL).unwrap());
}

fn counts(location: &Location) -> (u64, u64, u32, Vec<u32>) {
    let snapshot = Observer::open(location).unwrap().snapshot().unwrap();
    let held = snapshot.members.iter().map(|member| member.held).collect();
    let scheduler = snapshot.scheduler.unwrap();
    (
        scheduler.admitted,
        scheduler.released,
        scheduler.running,
        held,
    )
}

#[test]
fn what_is_kept_counts_as_free() {
    let scene = scene(2);
    let (one, other) = (
        scene.one.scheduler().unwrap(),
        scene.other.scheduler().unwrap(),
    );
    keep(&one);
    assert_eq!((one.available_permits(), other.available_permits()), (2, 2));
    assert_eq!(
        (one.stats().running, one.stats().shared.unwrap().running),
        (0, 0)
    );
    assert_eq!(counts(&scene.location), (1, 1, 0, vec![0, 0]));
    // Both at once, and a third not.
    let both = other.try_acquire_many(2, NORMAL).unwrap();
    assert!(one.try_acquire(NORMAL).is_err());
    drop(both);
    for _ in 0..3 {
        drop(one.try_acquire(NORMAL).unwrap());
    }
    assert_eq!(counts(&scene.location), (6, 6, 0, vec![0, 0]));
    scene.one.wait_idle(Duration::ZERO).unwrap();
}

#[test]
fn a_waiter_gets_what_an_idle_thread_keeps() {
    let scene = scene(1);
    let (one, other) = (
        scene.one.scheduler().unwrap(),
        scene.other.scheduler().unwrap(),
    );
    let (kept, told) = channel();
    let (end, ended) = channel::<()>();
    let idle = {
        let one = one.clone();
        thread::spawn(move || {
            keep(&one);
            kept.send(()).unwrap();
            let _ = ended.recv();
        })
    };
    told.recv().unwrap();
    drop(other.blocking_acquire_until(1, NORMAL, LONG).unwrap());
    other.allow_spares();
    drop(futures_executor::block_on(other.acquire(NORMAL)).unwrap());
    // Also one who sets the limit after its Scheduler was disposed leaves nobody in the lurch.
    other.dispose();
    scene
        .other
        .set(&Changes::new().concurrency(Some(1)))
        .unwrap();
    drop(one.blocking_acquire_until(1, NORMAL, LONG).unwrap());
    drop(end);
    idle.join().unwrap();
}

#[test]
fn counters_are_exact_however_a_member_ends() {
    for disposed in [false, true] {
        for holds in [false, true] {
            let scene = scene(4);
            let scheduler = scene.other.scheduler().unwrap();
            keep(&scheduler);
            let held = holds.then(|| scheduler.try_acquire(NORMAL).unwrap());
            if disposed {
                scheduler.dispose();
            }
            drop(held);
            drop((scheduler, scene.other));
            let n = 1 + u64::from(holds);
            let (admitted, released, running, _) = counts(&scene.location);
            assert_eq!(
                (admitted, released, running),
                (n, n, 0),
                "{disposed} {holds}"
            );
            let one = scene.one.scheduler().unwrap();
            assert!(one.try_acquire_many(4, NORMAL).is_ok());
        }
    }
}

#[test]
fn a_lower_limit_and_a_target_hold_at_once() {
    let scene = scene(4);
    let (one, other) = (
        scene.one.scheduler().unwrap(),
        scene.other.scheduler().unwrap(),
    );
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| keep(&one));
        }
    });
    let changes = Changes::new().concurrency(Some(2)).target(Priority::Low, 1);
    scene.one.set(&changes).unwrap();
    keep(&one);
    let held = other.try_acquire(NORMAL).unwrap();
    assert!(one.try_acquire(Priority::Low).is_err(), "over its target");
    let second = one.try_acquire(NORMAL).unwrap();
    assert!(other.try_acquire(NORMAL).is_err() && one.try_acquire(NORMAL).is_err());
    drop((held, second));
}

/// Threads keep, recall, and drop what others took, all the while: never more than the limit.
#[test]
fn never_more_than_the_limit() {
    let scene = scene(3);
    let inside = std::sync::atomic::AtomicU32::new(0);
    let stop = AtomicBool::new(false);
    let (give, take) = channel();
    thread::scope(|scope| {
        for n in 0..4 {
            let segment = [&scene.one, &scene.other][n % 2];
            let scheduler = segment.scheduler().unwrap();
            let (inside, stop, give) = (&inside, &stop, give.clone());
            scope.spawn(move || {
                for round in 0u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    scheduler.allow_spares();
                    let slots = 1 + u32::from(round % 64 == 0) * 2;
                    let Ok(permit) = scheduler.try_acquire_many_owned(slots, NORMAL) else {
                        continue;
                    };
                    assert!(inside.fetch_add(slots, Ordering::SeqCst) + slots <= 3);
                    inside.fetch_sub(slots, Ordering::SeqCst);
                    match round % 16 {
                        0 => give.send(permit).unwrap(),
                        _ => drop(permit),
                    }
                }
            });
        }
        drop(give);
        scope.spawn(move || take.into_iter().for_each(drop));
        thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
    });
    let one = scene.one.scheduler().unwrap();
    assert!(one.try_acquire_many(3, NORMAL).is_ok());
    assert!(one.try_acquire_many(3, NORMAL).is_ok());
}
