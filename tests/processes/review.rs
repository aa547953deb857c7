//! What a review found: who holds up whom, and when a watch is kept.

use crate::puppet::Puppet;
use crate::support::{LONG, Scene, Words, figure, now, quiet, until};
use shmsched::{
    AcquireError, Concurrency, Location, Priority, Scheduler, Segment, Settings, TryAcquireError,
};
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The draw that names the highest priority: the lottery helps nobody at the lowest.
const HIGHEST: u32 = 0;

fn attach(location: &Location) -> (Segment, Scheduler) {
    let segment = Segment::open(location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    (segment, scheduler)
}

/// Each release of the busy one rings who waits, long before it looks up by itself; it looks for the dead all the same.
#[test]
fn a_busy_line_does_not_postpone_the_watch_for_the_dead() {
    let scene = Scene::alone();
    let location = scene.segment(2);
    let words = Words::of(&location);
    let mut waiter = Puppet::new(&location);
    let mut busy = Puppet::new(&location);
    let mut waits = Vec::new();
    // The attach of each holder looks for the dead, so it comes before.
    for round in 0..5 {
        let mut holder = Puppet::new(&location);
        holder.take("one", 1);
        if round == 0 {
            busy.ask(&format!("draw {HIGHEST}"));
            busy.ask("loop 1 4 5000");
        }
        until(LONG, "both slots in use", || words.running() == 2);
        waiter.wait("w", 0, 1);
        holder.0.kill();
        let dead = now();
        let waited = Duration::from_nanos(waiter.got("w").saturating_sub(dead));
        waiter.drop("w");
        waits.push(waited);
    }
    figure!("{waits:?}");
    waits.sort_unstable();
    // One of five may have stood still.
    assert!(waits[3] < Duration::from_millis(600), "{waits:?}");
    drop(busy);
    quiet(&location, 2);
}

/// It cannot fail before it runs again: until then, it is as if it were not there. Its mark does not stand either.
#[test]
fn a_stopped_waiter_that_no_longer_fits_holds_up_nobody() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let words = Words::of(&location);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    let mut other = Puppet::new(&location);
    let mut big = Puppet::new(&location);
    big.wait("big", 3, 3);
    until(LONG, "a mark", || words.hurry() != 0);
    big.0.stop();
    assert!(!other.could_take(), "it bars newcomers while it fits");
    other.wait("w", 3, 1);
    until(LONG, "in line", || words.waiters() == 2);
    let set = now();
    holder.ask("set 2");
    let after = other.got("w").saturating_sub(set);
    figure!("the next is let in after {:?}", Duration::from_nanos(after));
    assert!(after < 2_000_000_000, "{after} ns");
    other.drop("w");
    until(Duration::from_secs(2), "a try succeeds", || {
        other.could_take()
    });
    // Also when all is free, and by who waits for both.
    holder.drop("one");
    other.wait("both", 3, 2);
    let both = other.0.expect_within("got both", Duration::from_secs(6));
    assert!(both.is_some(), "held up");
    other.drop("both");
    big.0.go_on();
    let why = big.0.expect("failed big");
    assert!(why.contains("DoesNotFit"), "{why}");
    quiet(&location, 2);
}

/// Its target alone holds it back; the limit has room, and so has the target for a smaller request.
#[test]
fn a_waiter_held_back_by_its_own_target_bars_nobody() {
    let scene = Scene::new();
    let low = Concurrency::max(10).target(Priority::Low, 3);
    let location = scene.segment_of("S", &Settings::new().concurrency(low).members(16));
    let words = Words::of(&location);
    let mut holder = Puppet::new(&location);
    let mut other = Puppet::new(&location);
    for puppet in [&mut holder, &mut other] {
        puppet.ask(&format!("draw {HIGHEST}"));
    }
    holder.take("two", 2);
    let mut waiter = Puppet::new(&location);
    waiter.wait("w", 2, 2);
    until(LONG, "in line", || words.waiters() == 1);
    // It would have barred newcomers after 500 us.
    std::thread::sleep(Duration::from_millis(5));
    for _ in 0..50 {
        for lane in 0..=2 {
            let may = other.ask(&format!("try probe {lane} 1"));
            assert_eq!((lane, &may[..]), (lane, "yes"));
            other.ask("drop probe");
        }
        assert_eq!(words.hurry(), 0, "a mark");
    }
    assert_eq!(words.waiters(), 1, "it was held back all the time");
    holder.drop("two");
    waiter.got("w");
    waiter.drop("w");
    quiet(&location, 10);
}

/// Also who never asks for a single slot notices within some thousand times that the file has no name any more.
#[test]
fn several_slots_at_once_notice_a_deleted_file() {
    let scene = Scene::new();
    let location = scene.segment(4);
    let (_segment, scheduler) = attach(&location);
    let many = || scheduler.blocking_acquire_many(2, Priority::Normal);
    assert!(many().is_ok());
    std::fs::remove_file(location.path()).unwrap();
    let noticed = (0..5_000).find_map(|round| many().err().map(|why| (round, why)));
    figure!("{noticed:?}");
    assert!(
        matches!(noticed, Some((_, AcquireError::Gone))),
        "{noticed:?}"
    );
    assert!(matches!(
        scheduler.try_acquire_many(2, Priority::Normal),
        Err(TryAcquireError::Failed(AcquireError::Gone))
    ));
}

/// A task with no time at all asks as a try does: not before it was looked for the dead.
#[test]
fn an_async_refusal_comes_after_a_look() {
    let scene = Scene::new();
    let location = scene.segment(2);
    let (_segment, scheduler) = attach(&location);
    let mut holders = [Puppet::new(&location), Puppet::new(&location)];
    holders.iter_mut().for_each(|holder| holder.take("one", 1));
    let poll_once = || {
        let asked = pin!(scheduler.acquire_until(1, Priority::Normal, Duration::ZERO));
        asked.poll(&mut Context::from_waker(Waker::noop()))
    };
    assert!(matches!(
        poll_once(),
        Poll::Ready(Err(AcquireError::TimedOut))
    ));
    holders.iter_mut().for_each(|holder| holder.0.kill());
    // The last look may be just over, and another is due no sooner than 100 ms after it.
    std::thread::sleep(Duration::from_millis(200));
    let polled = poll_once();
    assert!(matches!(polled, Poll::Ready(Ok(_))), "{polled:?}");
    drop(polled);
    quiet(&location, 2);
}

/// How many descriptors of this process are of the file that has this name now.
fn descriptors_of(path: &Path) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link == path))
        .count()
}

/// Who waits asks about the others time and again, and finds another file by the name of his own.
#[test]
fn a_probe_of_a_replaced_file_leaks_no_descriptor() {
    let scene = Scene::new();
    let location = scene.segment(1);
    // Attached first, so that it has not asked about anybody yet.
    let (_segment, scheduler) = attach(&location);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    let path = location.path();
    assert!(descriptors_of(&path) >= 1, "our own");
    std::fs::rename(&path, scene.path("moved")).unwrap();
    assert_eq!(descriptors_of(&path), 0);
    Segment::make(&location, &Settings::new().concurrency(1)).unwrap();
    let waited =
        scheduler.blocking_acquire_until(1, Priority::Normal, Duration::from_millis(1_500));
    assert!(matches!(waited, Err(AcquireError::TimedOut)), "{waited:?}");
    drop(waited);
    let grew = descriptors_of(&path);
    assert!(grew < 5, "{grew} descriptors of the other file");
    let moved = Location::File(scene.path("moved"));
    holder.drop("one");
    quiet(&moved, 1);
    quiet(&location, 1);
}

/// Holder killed while both watchers are stopped: who dozes behind them notices that nobody looks.
#[test]
fn a_dead_holder_behind_two_stopped_watchers_is_found() {
    // A thread looks by itself; a task has the helper look.
    std::thread::scope(|scope| {
        for how in ["wait", "task"] {
            scope.spawn(move || behind_two_stopped(how));
        }
    });
}

fn behind_two_stopped(how: &str) {
    let scene = Scene::new();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    let mut line: Vec<Puppet> = (0..3).map(|_| Puppet::new(&location)).collect();
    // They looked when they attached. Those who come to wait within 100 ms of that look again sooner.
    std::thread::sleep(Duration::from_millis(200));
    for (at, waiter) in line.iter_mut().enumerate() {
        waiter.ask(&format!("{how} w 3 1"));
        until(LONG, "in line", || words.waiters() == at as i32 + 1);
    }
    line[0].0.stop();
    line[1].0.stop();
    let killed = now();
    holder.0.kill();
    let after = line[2].got("w").saturating_sub(killed);
    figure!("{how}: found after {:?}", Duration::from_nanos(after));
    // One doze, of 4 s at most, then each of the two is passed over; not another doze.
    assert!(after < 6_000_000_000, "{how}: {after} ns");
    line[2].drop("w");
    // One after the other: who wakes first of two takes the slot.
    for waiter in &mut line[..2] {
        waiter.0.go_on();
        waiter.got("w");
        waiter.drop("w");
    }
    quiet(&location, 1);
}

/// The survivor looked a moment before both of those before it died, who hold all there is: so it did not look when it came
/// to wait, and owes it.
#[test]
fn a_newcomer_behind_two_dead_that_were_just_seen_alive() {
    std::thread::scope(|scope| {
        for how in ["wait", "task"] {
            scope.spawn(move || behind_two_dead(how));
        }
    });
}

fn behind_two_dead(how: &str) {
    let scene = Scene::new();
    let location = scene.segment(2);
    let words = Words::of(&location);
    let mut survivor = Puppet::new(&location);
    let mut took = Vec::new();
    for round in 0..3 {
        let mut dead = [Puppet::new(&location), Puppet::new(&location)];
        dead.iter_mut().for_each(|holder| holder.take("one", 1));
        for (at, holder) in dead.iter_mut().enumerate() {
            holder.wait("more", 3, 1);
            until(LONG, "in line", || words.waiters() == at as i32 + 1);
        }
        survivor.ask("look");
        dead.iter_mut().for_each(|holder| holder.0.kill());
        let at = now();
        survivor.ask(&format!("{how} w 3 1"));
        took.push(Duration::from_nanos(survivor.got("w") - at));
        survivor.drop("w");
        figure!("{how}, round {round}: {:?}", took[round]);
    }
    // Well below the 3.5 s of those who stand third.
    assert!(
        took.iter().all(|took| *took < Duration::from_secs(2)),
        "{how}: {took:?}"
    );
    quiet(&location, 2);
}

/// Killed in one burst, as by who kills a process group: the holder, and those that would have seen it first.
#[test]
fn the_holder_and_the_first_in_line_die_together() {
    std::thread::scope(|scope| {
        for (first, how) in [(1, "wait"), (2, "wait"), (2, "task"), (5, "wait")] {
            scope.spawn(move || die_together(first, how));
        }
    });
}

fn die_together(first: i32, how: &str) {
    let scene = Scene::new();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let mut doomed = vec![Puppet::new(&location)];
    doomed[0].take("one", 1);
    let mut last = Puppet::new(&location);
    for at in 0..first {
        let mut waiter = Puppet::new(&location);
        waiter.ask(&format!("{how} w 3 1"));
        until(LONG, "in line", || words.waiters() == at + 1);
        doomed.push(waiter);
    }
    last.ask(&format!("{how} w 3 1"));
    until(LONG, "in line", || words.waiters() == first + 1);
    // Past what any of them owes.
    std::thread::sleep(Duration::from_millis(300));
    doomed.iter_mut().for_each(|one| one.0.kill_only());
    let at = now();
    let took = Duration::from_nanos(last.got("w").saturating_sub(at));
    figure!("{how}, the first {first}: {took:?}");
    // One doze at most where none is left that watches.
    let most = if first < 2 { 2 } else { 6 };
    assert!(took < Duration::from_secs(most), "{how}, {first}: {took:?}");
    doomed.iter_mut().for_each(|one| one.0.kill());
    last.drop("w");
    quiet(&location, 1);
}
