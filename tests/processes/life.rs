//! The segment itself: removed, unlinked, full, cut short, scribbled on.

use crate::puppet::Puppet;
use crate::support::{
    Args, Chance, Child, LONG, Scene, Words, figure, hear, less, now, one_of, quiet, say, until,
};
use shmsched::{
    AcquireError, Observer, OpenError, OpenOptions, Priority, RemoveError, Segment, Settings,
    TryAcquireError,
};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;

#[test]
fn a_retired_segment_ends_every_wait_at_once() {
    one_of(3, || {
        let scene = Scene::new();
        let location = scene.segment(1);
        let words = Words::of(&location);
        let mut holder = Puppet::new(&location);
        holder.take("one", 1);
        let mut waiters: Vec<_> = (0..3).map(|_| Puppet::new(&location)).collect();
        for waiter in &mut waiters {
            waiter.ask("wait thread 3 1");
            waiter.ask("wait second 3 1");
            waiter.ask("task task 4 1");
        }
        until(LONG, "in line", || {
            waiters.iter_mut().all(|w| w.ask("pending") == "3")
        });
        assert!(matches!(
            Segment::remove(&location, false),
            Err(RemoveError::InUse { members: 4 })
        ));
        assert!(location.path().exists(), "a refusal leaves it alone");
        let removed = Instant::now();
        Segment::remove(&location, true).unwrap();
        for waiter in &mut waiters {
            for id in ["thread", "second", "task"] {
                assert_eq!(waiter.0.expect(&format!("failed {id}")), "Retired");
            }
        }
        let took = removed.elapsed();
        assert!(holder.ask("try two 3 1").contains("retired"));
        assert!(!location.path().exists());
        assert!(matches!(Segment::open(&location), Err(OpenError::NotFound)));
        // The slot in use stays in use and is given back without harm.
        assert_eq!(words.running(), 1);
        holder.drop("one");
        assert_eq!(words.running(), 0);
        for puppet in waiters.iter_mut().chain([&mut holder]) {
            puppet.0.tell("leave");
            puppet.0.finish();
        }
        less("ended after", took, Duration::from_secs(1))
    });
}

#[test]
fn an_unlinked_file_is_noticed_by_who_waits() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    let mut waiters: Vec<_> = (0..3).map(|_| Puppet::new(&location)).collect();
    for (at, waiter) in waiters.iter_mut().enumerate() {
        waiter.ask(&format!("{} w 3 1", if at == 1 { "task" } else { "wait" }));
    }
    until(LONG, "in line", || {
        waiters.iter_mut().all(|w| w.ask("pending") == "1")
    });
    std::fs::remove_file(location.path()).unwrap();
    let removed = Instant::now();
    for waiter in &mut waiters {
        assert_eq!(waiter.0.expect("failed w"), "Gone");
    }
    let took = removed.elapsed();
    figure!("noticed after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(holder.ask("try two 3 1").contains("gone"));
}

#[test]
fn an_unlinked_file_is_noticed_by_the_1024th_acquire() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    drop(scheduler.try_acquire(NORMAL).unwrap());
    std::fs::remove_file(location.path()).unwrap();
    let granted = (0..3_000)
        .position(|_| scheduler.try_acquire(NORMAL).is_err())
        .expect("it was never noticed");
    assert!(granted <= 1_024, "{granted}");
    let why = scheduler.try_acquire(NORMAL).unwrap_err();
    assert_eq!(why, TryAcquireError::Failed(AcquireError::Gone));
}

#[test]
fn a_full_member_table_waits_or_refuses_and_never_for_the_dead() {
    let scene = Scene::new();
    let location = scene.segment_of("S", &Settings::new().concurrency(2).members(4));
    let mut members: Vec<_> = (0..4).map(|_| Puppet::new(&location)).collect();
    let begun = Instant::now();
    assert!(matches!(
        Segment::open(&location),
        Err(OpenError::TableFull)
    ));
    let wait = Duration::from_millis(300);
    let patient = OpenOptions::new().wait_for_room(wait);
    assert!(matches!(
        Segment::open_with(&location, &patient),
        Err(OpenError::TableFull)
    ));
    assert!(begun.elapsed() >= wait, "{:?}", begun.elapsed());
    // A dead member's slot is room at once, the first time it is asked for.
    members[2].0.kill();
    let fifth = Segment::open(&location).expect("the dead one's slot");
    assert!(matches!(
        Segment::open(&location),
        Err(OpenError::TableFull)
    ));
    // One that leaves makes room for who waits.
    let patient = OpenOptions::new().wait_for_room(LONG);
    std::thread::scope(|scope| {
        let sixth = scope.spawn(|| Segment::open_with(&location, &patient).map(drop));
        std::thread::sleep(Duration::from_millis(150));
        assert!(!sixth.is_finished());
        members[0].0.tell("leave");
        sixth.join().unwrap().expect("room was made");
    });
    drop(fifth);
    quiet(&location, 2);
}

#[test]
fn case_51b_short_lives_never_fill_the_table() {
    let scene = Scene::new();
    let location = scene.segment_of("S", &Settings::new().concurrency(2).members(4));
    let path = location.path();
    for round in 0..60 {
        let mut child = Child::start("spin", &[&path.to_string_lossy()]);
        child.expect("spinning");
        child.kill();
        if round % 8 == 0 {
            drop(Segment::open(&location).expect("room"));
        }
    }
    quiet(&location, 2);
}

/// Role: PATH SURVIVE. Works on a segment that others damage; errors are fine, nothing else is.
pub fn scribbled(args: &Args) {
    let options = OpenOptions::new().survive_truncation(args.text(1) == "survive");
    let mut chance = Chance::seeded(u64::from(std::process::id()));
    say("working");
    let mut lost = false;
    while crate::support::heard_by(Duration::ZERO).is_none() {
        let Ok(segment) = Segment::open_with(args_location(args), &options) else {
            if !lost {
                say("refused");
            }
            lost = true;
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        let Ok(scheduler) = segment.scheduler() else {
            continue;
        };
        for _ in 0..50 {
            let priority = Priority::from_index(chance.below(7) as usize).unwrap();
            let wait = Duration::from_micros(chance.below(2_000));
            match chance.below(6) {
                0 => drop(scheduler.blocking_acquire_until(1, priority, wait)),
                1 => {
                    let call = scheduler.acquire_until(2, priority, wait);
                    drop(futures_executor::block_on(call));
                }
                2 => {
                    scheduler.acquire_with(|()| {}, priority, ());
                    let _ = scheduler.release();
                }
                3 => {
                    std::hint::black_box(segment.look());
                    std::hint::black_box(scheduler.stats());
                }
                4 => {
                    if let Ok(mut observer) = Observer::open_with(args_location(args), &options) {
                        let _ = observer.snapshot();
                    }
                }
                _ => drop(scheduler.try_acquire(priority)),
            }
            if matches!(
                scheduler.try_acquire(NORMAL),
                Err(TryAcquireError::Failed(AcquireError::Lost))
            ) {
                say("lost");
                hear();
                return;
            }
        }
        say("alive");
    }
}

fn args_location(args: &Args) -> &'static shmsched::Location {
    static LOCATION: std::sync::OnceLock<shmsched::Location> = std::sync::OnceLock::new();
    LOCATION.get_or_init(|| args.location())
}

/// Random byte changes to a living segment while processes work on it: errors are fine, crashes and hangs are not.
fn scribble(changes: u32, time: Duration) {
    let scene = Scene::new();
    let location = scene.segment_of("S", &Settings::new().concurrency(3).members(16));
    let path = location.path();
    let pristine = std::fs::read(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut chance = Chance::new();
    let mut workers: Vec<_> = (0..3)
        .map(|_| Child::start("scribbled", &[&path.to_string_lossy(), "plain"]))
        .collect();
    workers
        .iter_mut()
        .for_each(|worker| drop(worker.expect("working")));
    let begun = Instant::now();
    let length = pristine.len() as u64;
    // Of 16 members and 1,024 waiting places, see docs/segment-format.md.
    let records = 0x1200 + 16 * 1408;
    let mut done = 0;
    while done < changes && begun.elapsed() < time {
        // Most of them where it hurts: hot and cold line, bit sets and roster, the words of the ledger, the header.
        let at = match chance.below(5) {
            0 => 0x100 + chance.below(0x100),
            1 => 0x1000 + chance.below(0x1000),
            2 => records + chance.below(24) * 128 + chance.below(16),
            3 => chance.below(0x100),
            _ => chance.below(length),
        };
        let byte = [[0, 0xff, chance.below(256) as u8][chance.below(3) as usize]];
        file.write_all_at(&byte, at).unwrap();
        done += 1;
        if done % 500 == 0 {
            // A header that nobody may open any more tests nothing else: put it right.
            file.write_all_at(&pristine[..0x100], 0).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        if done % 16 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    for worker in &mut workers {
        worker.tell("stop");
    }
    let stopping = Instant::now();
    workers.iter_mut().for_each(Child::finish);
    figure!(
        "{done} changes in {:?}, stopped in {:?}",
        begun.elapsed(),
        stopping.elapsed()
    );
    assert!(done * 2 > changes, "only {done} changes");
}

#[test]
fn case_40_random_bytes_neither_crash_nor_hang() {
    scribble(10_000, Duration::from_secs(8));
}

#[test]
#[ignore = "for scripts/stress: 100,000 changes"]
fn stress_case_40_random_bytes_neither_crash_nor_hang() {
    scribble(100_000, Duration::from_secs(100));
}

#[test]
fn case_40_a_file_cut_short_is_survived_where_asked() {
    for length in [0u64, 100, 4096] {
        let scene = Scene::new();
        let location = scene.segment(3);
        let path = location.path();
        let mut workers: Vec<_> = (0..2)
            .map(|_| Child::start("scribbled", &[&path.to_string_lossy(), "survive"]))
            .collect();
        workers
            .iter_mut()
            .for_each(|worker| drop(worker.expect("alive")));
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(length).unwrap();
        let cut = now();
        for worker in &mut workers {
            // Whether it met the cut while attached or at its next attach, it says so and lives.
            let said = until_said(worker, &["lost", "refused"]);
            figure!(
                "cut to {length}: {said} after {} ms",
                (now() - cut) / 1_000_000
            );
            assert_eq!(worker.poll(), None, "it lives");
            worker.tell("stop");
        }
        workers.iter_mut().for_each(Child::finish);
    }
}

fn until_said(child: &mut Child, any: &[&str]) -> String {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        for what in any {
            if child.listen_for(what, Duration::from_millis(5)).is_ok() {
                return (*what).to_owned();
            }
        }
        assert_eq!(child.poll(), None, "it died");
    }
    panic!("it said none of {any:?}");
}

/// A thread that sleeps in the line when the file is cut short wakes with `Lost`.
#[test]
fn case_40_waiters_of_a_cut_file_end() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let options = OpenOptions::new().survive_truncation(true);
    let segment = Segment::open_with(&location, &options).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let held = scheduler.try_acquire(NORMAL).unwrap();
    let words = Words::of(&location);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| scheduler.blocking_acquire(NORMAL).map(drop));
        let task = scope.spawn(|| futures_executor::block_on(scheduler.acquire(NORMAL)).map(drop));
        until(LONG, "in line", || {
            scheduler.stats().pending == 2 && words.waiters() == 1
        });
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(location.path())
            .unwrap();
        file.set_len(0).unwrap();
        let cut = Instant::now();
        assert_eq!(thread.join().unwrap(), Err(AcquireError::Lost));
        assert_eq!(task.join().unwrap(), Err(AcquireError::Lost));
        assert!(
            cut.elapsed() < Duration::from_secs(5),
            "{:?}",
            cut.elapsed()
        );
    });
    drop(held);
}
