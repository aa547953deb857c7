//! Holders and waiters that die, in every order.

use crate::puppet::Puppet;
use crate::support::{LONG, Scene, Words, figure, median, now, quiet, until};
use rustix::process::Signal;
use shmsched::{Observer, Priority, Segment};
use std::time::{Duration, Instant};

#[test]
fn case_01_killed_holders_give_back() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let mut holders: Vec<_> = (0..3).map(|_| Puppet::new(&location)).collect();
    for holder in &mut holders {
        holder.take("one", 1);
    }
    let mut other = Puppet::new(&location);
    assert!(!other.could_take());
    holders.iter_mut().for_each(|holder| holder.0.kill());
    // The refusal just before may have looked already: the next look is at most 100 ms away.
    until(Duration::from_secs(1), "granted", || other.could_take());
    quiet(&location, 3);
}

#[test]
fn an_observer_asks_about_those_it_is_told_to() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let mut holders: Vec<_> = (0..2).map(|_| Puppet::new(&location)).collect();
    for holder in &mut holders {
        holder.take("one", 1);
    }
    let mut observer = Observer::open(&location).unwrap();
    let mut running = |about: &[u32]| {
        let seen = observer.snapshot_asking(|member| about.contains(&member));
        seen.unwrap().scheduler.unwrap().running
    };
    assert_eq!(running(&[]), 2);
    holders.iter_mut().for_each(|holder| holder.0.kill());
    // Nobody looked yet: the words are what they were.
    assert_eq!(running(&[]), 2);
    until(LONG, "one is found", || running(&[0]) == 1);
    // Once found it stays so, without asking again.
    assert_eq!(running(&[]), 1);
    until(LONG, "the other is found", || running(&[1]) == 0);
    assert_eq!(running(&[]), 0);
}

/// No attach, no refusal: who waits already finds the dead holder by himself.
fn killed_holder(rounds: usize) -> Vec<Duration> {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let mut waiter = Puppet::new(&location);
    let words = Words::of(&location);
    let mut delays: Vec<_> = (0..rounds)
        .map(|_| {
            let mut holder = Puppet::new(&location);
            holder.take("one", 1);
            waiter.wait("w", 3, 1);
            until(LONG, "in line", || words.waiters() == 1);
            holder.0.kill();
            let dead = now();
            let got = waiter.got("w");
            waiter.drop("w");
            Duration::from_nanos(got.saturating_sub(dead))
        })
        .collect();
    quiet(&location, 1);
    delays.sort_unstable();
    figure!(
        "median {:?}, worst {:?} of {rounds}",
        median(&delays),
        delays[rounds - 1]
    );
    delays
}

#[test]
fn a_killed_holders_slot_comes_to_who_waits() {
    let delays = killed_holder(20);
    assert!(median(&delays) < Duration::from_millis(150), "{delays:?}");
    // One that does not watch would look after 3.5 s.
    assert!(delays[19] < Duration::from_secs(2), "{delays:?}");
}

#[test]
#[ignore = "for scripts/stress: 10 s on an idle machine"]
fn stress_a_killed_holders_slot_comes_within_150_ms_in_99_of_100() {
    let delays = killed_holder(100);
    assert!(delays[98] < Duration::from_millis(150), "{delays:?}");
}

/// A job group is killed at once: the holder and those who stood first in line. Who stands behind them must not wait
/// for an attach that never comes.
fn killed_with_the_first_in_line(first: usize) {
    let scene = Scene::new();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    let mut doomed: Vec<_> = (0..first).map(|_| Puppet::new(&location)).collect();
    let mut survivor = Puppet::new(&location);
    for (at, waiter) in doomed.iter_mut().enumerate() {
        waiter.wait("w", 3, 1);
        until(LONG, "in line", || words.waiters() as usize == at + 1);
    }
    survivor.wait("w", 3, 1);
    until(LONG, "in line", || words.waiters() as usize == first + 1);
    // Stopped first, so that nobody sees the others die.
    doomed.iter_mut().for_each(|waiter| waiter.0.stop());
    holder.0.kill_only();
    doomed.iter_mut().for_each(|waiter| waiter.0.kill_only());
    holder.0.kill();
    doomed.iter_mut().for_each(|waiter| waiter.0.kill());
    let dead = now();
    let took = Duration::from_nanos(survivor.got("w").saturating_sub(dead));
    figure!("{first} first in line: {took:?}");
    // Found by the second in line within 100 ms; by others when they look up by themselves, after 3.5 s.
    let bound = if first < 2 { 2 } else { 6 };
    assert!(took < Duration::from_secs(bound), "{took:?}");
    survivor.drop("w");
    quiet(&location, 1);
}

#[test]
fn case_01_holder_and_head_killed_together() {
    killed_with_the_first_in_line(1);
}

#[test]
fn case_01_holder_and_first_two_killed_together() {
    killed_with_the_first_in_line(2);
}

#[test]
fn case_08_killed_head_leaves_the_next_its_turn() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let words = Words::of(&location);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    let mut head = Puppet::new(&location);
    head.wait("all", 3, 3);
    // Newcomers may pass it before.
    until(LONG, "a mark", || words.hurry() != 0);
    let mut next = Puppet::new(&location);
    next.wait("one", 3, 1);
    until(LONG, "in line", || words.waiters() == 2);
    // A head that lacks room under the limit holds up those behind it, until it dies.
    assert_eq!(
        next.0.expect_within("got one", Duration::from_millis(50)),
        None
    );
    head.0.kill();
    let dead = now();
    let after = next.got("one").saturating_sub(dead);
    // One that does not watch would look after 3.5 s.
    assert!(after < 2_000_000_000, "{after} ns");
    next.drop("one");
    holder.drop("one");
    quiet(&location, 3);
}

#[test]
fn case_26_a_forgotten_permit_stays_until_the_process_ends() {
    let scene = Scene::new();
    let location = scene.segment(2);
    let mut puppet = Puppet::new(&location);
    puppet.take("one", 1);
    puppet.ask("forget one");
    let mut other = Puppet::new(&location);
    other.take("one", 1);
    assert_eq!(other.ask("try two 3 1"), "no");
    other.drop("one");
    // A good end, but nothing detached: the survivors reclaim it.
    puppet.0.tell("leave");
    puppet.0.finish();
    quiet(&location, 2);
}

#[test]
fn case_34_a_stopped_holder_keeps_its_slot() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    holder.0.stop();
    let mut other = Puppet::new(&location);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_500) {
        assert!(!other.could_take(), "a stopped holder was declared dead");
        std::thread::sleep(Duration::from_millis(20));
    }
    let snapshot = Observer::open(&location).unwrap().snapshot().unwrap();
    let seen = snapshot.members.iter().find(|m| m.held == 1).unwrap();
    assert_eq!(seen.state, shmsched::MemberState::Stopped);
    assert_eq!(holder.0.state(), Some('T'), "somebody woke it");
    holder.0.go_on();
    holder.drop("one");
    assert!(other.could_take());
    quiet(&location, 1);
}

#[test]
fn case_38b_a_zombie_is_dead() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    let mut other = Puppet::new(&location);
    holder.0.kill_only();
    until(LONG, "a zombie", || holder.0.state() == Some('Z'));
    until(Duration::from_secs(1), "granted", || other.could_take());
    assert_eq!(holder.0.state(), Some('Z'), "it was not reaped meanwhile");
    quiet(&location, 1);
}

/// A waiter killed in its sleep leaves nothing behind, whoever looks next.
#[test]
fn case_08_killed_waiters_leave_the_line() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let words = Words::of(&location);
    let held = scheduler.try_acquire(Priority::Normal).unwrap();
    let mut waiters: Vec<_> = (0..5).map(|_| Puppet::new(&location)).collect();
    for (at, waiter) in waiters.iter_mut().enumerate() {
        waiter.wait("w", at + 1, 1);
        waiter.ask(&format!("task t {at} 1"));
    }
    until(LONG, "in line", || words.waiters() == 5);
    waiters.iter_mut().for_each(|waiter| waiter.0.kill());
    until(Duration::from_secs(2), "all left the line", || {
        let _ = scheduler.try_acquire(Priority::Normal);
        words.waiters() == 0 && words.summary() == 0
    });
    drop(held);
    quiet(&location, 1);
}

/// SIGSTOP does not end a wait, and SIGKILL of a stopped process does.
#[test]
fn a_stopped_holder_that_is_killed_gives_back() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    holder.0.stop();
    let mut waiter = Puppet::new(&location);
    waiter.wait("w", 3, 1);
    assert_eq!(
        waiter.0.expect_within("got w", Duration::from_millis(300)),
        None
    );
    holder.0.signal(Signal::KILL);
    holder.0.wait();
    waiter.got("w");
    waiter.drop("w");
    quiet(&location, 1);
}
