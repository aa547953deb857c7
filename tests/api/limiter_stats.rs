//! Group M: what the counters of a Limiter say.

use crate::calm::{calm, scene, waits};
use crate::limiter_support::{
    Log, MOST, Rated, check, conserved, drain_to, into_debt, limiter, read,
};
use crate::support::{Dice, NORMAL, Task, until};
use shmsched::{LimiterQueueStats, LimiterStats, Priority, QueueStats};
use std::thread;
use std::time::{Duration, Instant};

/// All fields and no others; `total` has no stall.
#[test]
fn m1_m3_m6_the_fields() {
    for limiter in [limiter(1_000), Rated::new(1_000).member()] {
        let LimiterStats {
            tokens,
            tokens_per_second,
            pending,
            forced,
            total,
            queues,
        } = limiter.stats();
        assert_eq!(
            (tokens, tokens_per_second),
            (1_000, limiter.tokens_per_second())
        );
        assert_eq!((pending, forced), (0, 0));
        let QueueStats {
            count,
            deferred,
            completed,
            cancelled,
            ..
        } = total;
        assert_eq!([count, deferred, completed, cancelled], [0; 4]);
        assert_eq!(queues, [LimiterQueueStats::default(); 7]);
    }
}

#[test]
fn m2_m11_a_debt_is_a_reading() {
    let shared = Rated::new(1_000);
    let limiter = shared.member();
    let debt = into_debt(&limiter, 2_000);
    assert!((-2_000..-1_000).contains(&debt.tokens));
    let info = shared.info();
    assert!(info.tokens < 0 && info.tokens_raw <= info.tokens);
    // It rises by the rate, with no call that would refill.
    thread::sleep(Duration::from_millis(100));
    conserved(1_000, debt, 0, read(&limiter));
}

/// What goes into debt, and nothing else.
#[test]
fn m4_forced_only_rises() {
    let limiter = limiter(1_000);
    assert_eq!(limiter.consume(drop, 500, NORMAL, ()), Ok(true));
    limiter.blocking_acquire(600, NORMAL).unwrap();
    assert_eq!(limiter.stats().forced, 0, "it only waited");
    until("it is full", || limiter.stats().tokens == 1_000);
    for expected in 1..=2 {
        limiter.blocking_acquire(1_001, NORMAL).unwrap();
        assert_eq!(limiter.stats().forced, expected);
    }
    drop(Task::waiting(limiter.acquire(5_000, NORMAL)));
    assert_eq!(limiter.stats().forced, 2);
}

/// Each priority by itself: it grows while its front is blocked, and ends with it.
#[test]
fn m5_x31_the_stall() {
    scene(|| {
        let limiter = limiter(1_000);
        let indebted = Instant::now();
        into_debt(&limiter, 600);
        let begun = Instant::now();
        let first = waits(limiter.acquire(50, NORMAL));
        let mut second = waits(limiter.acquire(50, NORMAL));
        let low = waits(limiter.acquire(50, Priority::Low));
        // One that wants no tokens is not blocked on them.
        thread::sleep(Duration::from_millis(350));
        let stats = limiter.stats();
        let most = begun.elapsed().as_millis() as u64 / 100;
        if stats.total.completed == 1 {
            for lane in [2, 3] {
                let stall = stats.queues[lane].stall;
                // Who has his tokens is not blocked any more.
                calm(stall >= 3);
                assert!(stall <= most, "{stall} of {most}");
            }
        }
        for lane in [0, 1, 4, 5, 6] {
            assert_eq!(stats.queues[lane].stall, 0);
        }
        // Another is the front now: its time begins.
        drop(first);
        let stats = limiter.stats();
        calm(stats.queues[3].stall == 0 && stats.queues[2].stall >= 3);
        until("it is served", || second.poll().is_some());
        assert_eq!(limiter.stats().queues[3].stall, 0);
        low.finish().unwrap();
        assert_eq!(limiter.stats().queues[2].stall, 0);
        assert!(indebted.elapsed() >= Duration::from_millis(640));
    });
}

/// At the end of the word it goes on past ten; a front that wants nothing has none.
#[test]
fn m5_x31_a_stall_that_no_guard_ends() {
    let limiter = limiter(1);
    into_debt(&limiter, MOST - 1);
    let since = Instant::now();
    let _stuck = Task::waiting(limiter.acquire(MOST, NORMAL));
    until("it passes ten", || limiter.stats().queues[3].stall >= 12);
    assert!(since.elapsed() >= Duration::from_millis(1_199));
    assert_eq!(limiter.stats().forced, 1);
    let mut nothing = Task::new(limiter.acquire(0, Priority::Low));
    until("it is served", || nothing.poll().is_some());
    assert_eq!(limiter.stats().queues[2].stall, 0);
}

/// A random history of one Limiter, against a plain model; what is served at once counts nowhere.
#[test]
fn m7_m9_identities_in_a_random_history() {
    let mut dice = Dice::new(7);
    let shared = Rated::new(20_000);
    let (limiter, other) = (shared.member(), shared.member());
    let mut waiting: Vec<(usize, Task<'_, _>)> = Vec::new();
    let (mut fast, mut served) = (0u64, 0u64);
    let end = Instant::now() + Duration::from_millis(900);
    let mut last = limiter.stats();
    while Instant::now() < end {
        match dice.below(8) {
            0..=2 => {
                let lane = dice.below(7);
                let tokens = dice.below(300) as u32;
                let mut task = Task::new(limiter.acquire(tokens, Priority::ALL[lane]));
                match task.poll() {
                    Some(taken) => {
                        taken.unwrap();
                        let deferred = limiter.stats().total.deferred;
                        // It may queue and be served within the poll.
                        served += deferred - last.total.deferred;
                        fast += u64::from(deferred == last.total.deferred);
                    }
                    None => waiting.push((lane, task)),
                }
            }
            3 if !waiting.is_empty() => {
                drop(waiting.remove(dice.below(waiting.len())));
            }
            4 => {
                let before = limiter.stats().total;
                fast += u64::from(limiter.try_consume(dice.below(300) as u32).is_ok());
                let _ = other.try_consume(50);
                assert_eq!(limiter.stats().total, before);
            }
            5 if !waiting.is_empty() => {
                let at = dice.below(waiting.len());
                if let Some(taken) = waiting[at].1.poll() {
                    taken.unwrap();
                    served += 1;
                    drop(waiting.remove(at));
                }
            }
            _ => {
                if let Some(at) = waiting.iter().position(|(_, task)| task.bell.wakes() > 0)
                    && let Some(taken) = waiting[at].1.poll()
                {
                    taken.unwrap();
                    served += 1;
                    drop(waiting.remove(at));
                }
            }
        }
        let stats = limiter.stats();
        check(&stats);
        for lane in 0..7 {
            let count = waiting.iter().filter(|(of, _)| *of == lane).count() as u64;
            let queue = stats.queues[lane];
            assert_eq!(queue.queue.count, count);
            assert!(queue.queue.completed >= last.queues[lane].queue.completed);
            assert!(queue.queue.cancelled >= last.queues[lane].queue.cancelled);
            assert!(count > 0 || queue.stall == 0);
        }
        assert_eq!(stats.total.completed, served);
        assert_eq!(stats.pending, waiting.len() as u64);
        assert!(stats.forced >= last.forced);
        last = stats;
    }
    assert!(fast > 0 && served > 0 && last.total.cancelled > 0);
    let info = shared.info();
    let queued: u64 = info.queued.iter().sum();
    assert_eq!(info.deferred, info.completed + info.cancelled + queued);
}

#[test]
fn m8_a_snapshot_does_not_change() {
    let limiter = limiter(10);
    let before = limiter.stats();
    let read = format!("{before:?}");
    limiter.try_consume(10).unwrap();
    let waiting = Task::waiting(limiter.acquire(10, NORMAL));
    assert_eq!(format!("{before:?}"), read);
    assert_ne!(limiter.stats(), before);
    drop(waiting);
}

/// Clones report the member.
#[test]
fn m8_stats_are_the_members() {
    let limiter = limiter(10);
    let clone = limiter.clone();
    into_debt(&clone, 100);
    let waiting = Task::waiting(clone.acquire(1, NORMAL));
    let stats = limiter.stats();
    assert_eq!((stats.forced, stats.pending), (1, 1));
    drop(waiting);
}

/// A forced item was in the queue: it counts in both.
#[test]
fn m12_a_forced_item_completes() {
    let limiter = limiter(100);
    let log = Log::new();
    assert_eq!(log.consume(&limiter, 101, NORMAL, ()), Ok(false));
    let stats = limiter.stats();
    let forced_once = QueueStats {
        deferred: 1,
        completed: 1,
        ..QueueStats::default()
    };
    assert_eq!((stats.forced, stats.queues[3].queue), (1, forced_once));
    check(&stats);
    // By the guard, too.
    until("there is a debt", || drain(&limiter));
    let waiting = Task::waiting(limiter.acquire(5_000, Priority::High));
    waiting.finish().unwrap();
    let stats = limiter.stats();
    assert_eq!((stats.forced, stats.queues[4].queue), (2, forced_once));
    check(&stats);
}

/// Whether there was something to take.
fn drain(limiter: &shmsched::Limiter) -> bool {
    let some = limiter.stats().tokens > 0;
    some.then(|| drain_to(limiter, 0)).is_some()
}
