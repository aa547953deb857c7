//! Group J: one bucket, several members and several processes.

use crate::calm::{calm, scene, undisturbed};
use crate::limiter_support::{
    Log, Rated, conserved, drain_to, earned, into_debt, one_by_one, open, read,
};
use crate::support::{NORMAL, Task, child, told, until};
use shmsched::{LimiterQueueStats, LimiterStats, Priority, QueueStats};
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// Four processes that want all they can get have the rate between them, to the token.
#[test]
fn j1_j7_processes_share_the_rate() {
    scene(|| {
        const NAME: &str = "limiter_shared::j1_j7_processes_share_the_rate";
        const RATE: u32 = 1_000_000;
        if let Some(path) = told(NAME) {
            let own = open(&path);
            let end = Instant::now() + SECOND;
            while Instant::now() < end {
                own.blocking_acquire(2_000, NORMAL).unwrap();
            }
            assert!(own.stats().tokens < RATE as i32 / 2);
            return;
        }
        let shared = Rated::new(RATE);
        let own = shared.member();
        drain_to(&own, 0);
        let (start, end) = thread::scope(|scope| {
            let others: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| child(NAME, &shared.path())))
                .collect();
            // This process is the fourth: from the moment that the others take something as well.
            // Or they are through, of whom most stood still.
            let ended = || others.iter().all(thread::ScopedJoinHandle::is_finished);
            let (mut taken, mut all_take) = (0, false);
            while !all_take && !ended() {
                own.blocking_acquire(2_000, NORMAL).unwrap();
                taken += 2_000;
                all_take = shared.info().consumed >= u64::from(RATE) + taken + 200_000;
            }
            let start = (shared.info().consumed, read(&own), shared.info().consumed);
            while !ended() {
                own.blocking_acquire(2_000, NORMAL).unwrap();
            }
            let end = (shared.info().consumed, read(&own), shared.info().consumed);
            others
                .into_iter()
                .for_each(|other| other.join().expect("it passes"));
            calm(all_take);
            (start, end)
        });
        calm(end.1.tokens < i64::from(RATE) / 2);
        let (least, _) = earned(RATE, end.1.at() - start.1.after());
        let (_, most) = earned(RATE, end.1.after() - start.1.at());
        let took = end.0.abs_diff(start.0) as i64;
        // What was taken while the figures were read, and what either reading found in the bucket.
        let doubt = (start.2 - start.0 + end.2 - end.0) as i64;
        let kept = end.1.tokens - start.1.tokens;
        assert!(took + kept + doubt >= least && took + kept - doubt <= most + 2 * doubt);
        let ratio = took as f64 / least as f64;
        calm((0.8..1.05).contains(&ratio));
    });
}

/// Members that race for one balance never take a token twice: no debt, and no more than there was.
#[test]
fn j2_j3_j5_racing_members_stay_exact() {
    const RATE: u32 = 20_000;
    let shared = Rated::new(RATE);
    let watcher = shared.member();
    let begun = Barrier::new(8);
    let (taken, lowest) = (AtomicI64::new(0), AtomicI64::new(i64::MAX));
    // It would be nearly a second until it is full again.
    let start = drain_to(&watcher, 2_000);
    let end = Instant::now() + Duration::from_millis(700);
    thread::scope(|scope| {
        for n in 0..8u32 {
            let member = shared.member();
            let (begun, taken, lowest) = (&begun, &taken, &lowest);
            scope.spawn(move || {
                begun.wait();
                while Instant::now() < end {
                    let tokens = 1 + n * 37;
                    if member.try_consume(tokens).is_ok() {
                        taken.fetch_add(tokens.into(), Ordering::SeqCst);
                    }
                    lowest.fetch_min(member.stats().tokens.into(), Ordering::SeqCst);
                }
            });
        }
    });
    assert!(lowest.load(Ordering::SeqCst) >= 0);
    let taken = taken.load(Ordering::SeqCst);
    conserved(RATE, start, taken, read(&watcher));
    assert_eq!(shared.info().consumed, 18_000 + taken as u64);
    assert_eq!(shared.info().forced, 0);
}

/// Eight members notice the same idle time at the same moment: it is paid once.
#[test]
fn j6_each_window_is_paid_once() {
    const RATE: u32 = 100_000;
    let shared = Rated::new(RATE);
    let members: Vec<_> = (0..8).map(|_| shared.member()).collect();
    let mut start = drain_to(&members[0], 0);
    for _ in 0..6 {
        thread::sleep(Duration::from_millis(100));
        let begun = Barrier::new(8);
        let taken = AtomicI64::new(0);
        thread::scope(|scope| {
            for member in &members {
                let (begun, taken) = (&begun, &taken);
                scope.spawn(move || {
                    begun.wait();
                    while member.try_consume(50).is_ok() {
                        taken.fetch_add(50, Ordering::SeqCst);
                    }
                });
            }
        });
        let now = read(&members[1]);
        conserved(RATE, start, taken.load(Ordering::SeqCst), now);
        start = now;
    }
}

/// The same by processes, which exit in between.
#[test]
fn j6_processes_notice_the_same_window() {
    scene(|| {
        const NAME: &str = "limiter_shared::j6_processes_notice_the_same_window";
        const RATE: u32 = 3_000;
        if let Some(path) = told(NAME) {
            let own = open(&path);
            while own.try_consume(7).is_ok() {}
            return;
        }
        let shared = Rated::new(RATE);
        let own = shared.member();
        let start = drain_to(&own, 0);
        thread::sleep(Duration::from_millis(300));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| child(NAME, &shared.path()));
            }
        });
        let taken = shared.info().consumed - u64::from(RATE);
        assert!(taken >= 900);
        // Or it may have been full before the first of them came.
        calm(start.age() < SECOND);
        conserved(RATE, start, taken as i64, read(&own));
    });
}

/// Forced items count for the member that was served; the observer sees all. Stats have no shared part.
#[test]
fn j9_j10_counters_are_the_members_own() {
    let shared = Rated::new(100);
    let (a, b) = (shared.member(), shared.member());
    into_debt(&a, 10_000);
    b.blocking_acquire(5, NORMAL).unwrap();
    let mine = Task::waiting(a.acquire(5, Priority::High));
    let theirs = Task::waiting(b.acquire(5, Priority::Low));
    let LimiterStats {
        tokens: _,
        tokens_per_second: _,
        pending,
        forced,
        total,
        queues,
    } = a.stats();
    assert_eq!((forced, pending), (1, 1));
    let forced_once = QueueStats {
        count: 1,
        deferred: 2,
        completed: 1,
        ..QueueStats::default()
    };
    assert_eq!(total, forced_once);
    assert_eq!(queues[2], LimiterQueueStats::default());
    let of_b = b.stats();
    assert_eq!((of_b.forced, of_b.pending), (1, 1));
    assert_eq!(of_b.queues[4], LimiterQueueStats::default());
    let info = shared.info();
    assert_eq!((info.forced, info.deferred, info.completed), (2, 4, 2));
    assert_eq!((info.waiters, info.queued), (2, [0, 0, 1, 0, 1, 0, 0]));
    assert_eq!(info.consumed, 10_105);
    drop((mine, theirs));
    // Who detaches leaves what it took in the sum.
    drop(b);
    let info = shared.info();
    assert_eq!((info.forced, info.cancelled, info.consumed), (2, 2, 10_105));
}

/// A member that takes a slot of the roster that another had starts at zero.
#[test]
fn j9_counters_start_at_zero_for_each_member() {
    let shared = Rated::new(100);
    let first = shared.member();
    into_debt(&first, 1_000);
    drop(first);
    let second = shared.member();
    let stats = second.stats();
    assert_eq!((stats.forced, stats.total), (0, QueueStats::default()));
    assert_eq!(shared.info().forced, 1);
}

/// The usual deployment: a shared parent, a child of each worker's own.
#[test]
fn j11_k10_a_child_for_each_worker() {
    scene(|| {
        const MEGA: u32 = 1_000_000;
        let shared = Rated::new(16 * MEGA);
        let workers: Vec<_> = (0..4)
            .map(|_| shared.member().child(4 * MEGA).unwrap())
            .collect();
        let rate_of = |busy: usize| {
            // Not what was saved up.
            for worker in &workers[..busy] {
                drain_to(worker, 0);
            }
            let starts: Vec<_> = workers[..busy].iter().map(read).collect();
            let end = Instant::now() + Duration::from_millis(600);
            let taken: Vec<AtomicI64> = (0..busy).map(|_| AtomicI64::new(0)).collect();
            thread::scope(|scope| {
                for (worker, taken) in workers.iter().zip(&taken) {
                    scope.spawn(move || {
                        while Instant::now() < end {
                            worker.blocking_acquire(40_000, NORMAL).unwrap();
                            taken.fetch_add(40_000, Ordering::SeqCst);
                        }
                    });
                }
            });
            let time = starts[0].age().as_secs_f64();
            for ((worker, start), taken) in workers.iter().zip(starts).zip(&taken) {
                let now = read(worker);
                let got = now.tokens - start.tokens + taken.load(Ordering::SeqCst);
                assert!(got <= earned(4 * MEGA, start.age()).1);
            }
            let taken: i64 = taken.iter().map(|taken| taken.load(Ordering::SeqCst)).sum();
            taken as f64 / time / f64::from(MEGA)
        };
        let (one, four) = (rate_of(1), rate_of(4));
        // Of 4 and of 16 MB/s.
        calm((3.4..=4.1).contains(&one) && (13.0..=16.4).contains(&four));
        calm(four / one > 3.3);
    });
}

/// The balance is the segment's: the same from every member and every process.
#[test]
fn j12_the_balance_is_shared() {
    const NAME: &str = "limiter_shared::j12_the_balance_is_shared";
    if let Some(path) = told(NAME) {
        let own = open(&path);
        assert!(own.stats().tokens < -2_000_000);
        assert_eq!(own.tokens_per_second(), 1_000);
        own.refund(1_000_000);
        return;
    }
    let shared = Rated::new(1_000);
    let (a, b) = (shared.member(), shared.member());
    let full = read(&b);
    a.try_consume(600).unwrap();
    let seen = read(&b).tokens;
    assert!(seen >= 400 && seen <= 400 + earned(1_000, full.age()).1);
    until("it is full", || b.stats().tokens == 1_000);
    let debt = into_debt(&a, 3_000_000);
    conserved(1_000, debt, 0, read(&b));
    child(NAME, &shared.path());
    conserved(1_000, debt, -1_000_000, read(&b));
    conserved(1_000, debt, -1_000_000, read(&a));
}

/// Urgent callers of one process before those of another, within a priority in turns.
#[test]
fn j1_one_line_for_all_members() {
    undisturbed(|| {
        let shared = Rated::new(10);
        let (a, b) = (shared.member(), shared.member());
        drain_to(&a, 0);
        let log = Log::new();
        for _ in 0..4 {
            log.queue(&a, 10, NORMAL, 'a');
        }
        for _ in 0..2 {
            log.queue(&b, 10, NORMAL, 'b');
        }
        log.queue(&b, 10, Priority::High, 'B');
        log.queue(&a, 10, Priority::Low, 'l');
        calm(a.stats().pending + b.stats().pending == 8);
        let order: String = one_by_one(&b, &log, 8).into_iter().collect();
        if shared.info().forced > 0 {
            return false;
        }
        assert_eq!(order, "Bababaal");
        true
    });
}

/// A process that ends while it waits leaves the line to the others, and its tokens were not taken.
#[test]
fn j1_a_waiting_process_that_exits() {
    scene(|| {
        const NAME: &str = "limiter_shared::j1_a_waiting_process_that_exits";
        if let Some(path) = told(NAME) {
            let own = open(&path);
            assert_eq!(
                own.consume(|()| panic!("it ran"), 900, NORMAL, ()),
                Ok(false)
            );
            std::mem::forget(own);
            return;
        }
        let shared = Rated::new(1_000);
        let own = shared.member();
        // A debt gives the child the time that it needs to begin.
        let debt = into_debt(&own, 500);
        child(NAME, &shared.path());
        assert_eq!(shared.info().deferred, 2);
        // Behind it, of the same priority. Who stands second looks for the dead ones at its watch.
        let begun = Instant::now();
        own.blocking_acquire(100, NORMAL).unwrap();
        calm(begun.elapsed() < SECOND * 2);
        conserved(1_000, debt, 100, read(&own));
        let info = shared.info();
        assert_eq!((info.lost, info.waiters), (1, 0));
        // The debt, and nothing by the guard.
        calm(info.forced == 1);
    });
}
