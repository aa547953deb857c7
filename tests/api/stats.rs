//! Group G: what the counters say.

use crate::support::{Dice, NORMAL, Shared, Task, local, until};
use proptest::prelude::*;
use shmsched::{Changes, Concurrency, Priority, QueueStats, Scheduler, SharedStats, Stats};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The identities that hold while the Scheduler lives, per priority and in total.
fn check(stats: &Stats) {
    let mut sum = QueueStats::default();
    for queue in &stats.queues {
        assert_eq!(
            queue.deferred,
            queue.completed + queue.cancelled + queue.count
        );
        sum.count += queue.count;
        sum.deferred += queue.deferred;
        sum.completed += queue.completed;
        sum.cancelled += queue.cancelled;
    }
    assert_eq!(sum, stats.total);
    assert_eq!(stats.pending, stats.total.count);
}

#[test]
fn g1_g3_g12_the_fields() {
    let concurrency = Concurrency::max(5).target(Priority::Low, 2);
    let stats = local(concurrency.clone()).stats();
    assert_eq!((stats.concurrency, stats.shared), (Some(5), None));
    let shared = Shared::new(concurrency).member().stats();
    assert_eq!(shared.concurrency, Some(5));
    assert_eq!(shared.shared, Some(SharedStats::default()));
    assert_eq!(local(Concurrency::unlimited()).stats().concurrency, None);
}

#[test]
fn g2_g4_g5_g8_gauges_and_sums() {
    let scheduler = local(3);
    let held: Vec<_> = (0..3)
        .map(|_| scheduler.try_acquire(NORMAL).unwrap())
        .collect();
    let depths = [2, 0, 1, 3, 0, 0, 1];
    let waiting: Vec<_> = (0..7)
        .flat_map(|lane| (0..depths[lane]).map(move |_| Priority::ALL[lane]))
        .map(|priority| Task::waiting(scheduler.acquire(priority)))
        .collect();
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.pending), (3, 7));
    assert_eq!(stats.queues.map(|queue| queue.count), depths);
    assert_eq!(stats.queues.map(|queue| queue.deferred), depths);
    check(&stats);
    drop(waiting);
    drop(held);
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.pending), (0, 0));
    assert_eq!(stats.queues.map(|queue| queue.cancelled), depths);
    check(&stats);
}

#[test]
fn g6_g7_deferred_and_completed() {
    let scheduler = local(1);
    let completed_inside = Arc::new(AtomicU64::new(u64::MAX));
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    assert_eq!(scheduler.stats().total.deferred, 0);
    let (seen, own) = (completed_inside.clone(), scheduler.clone());
    let callback = move |()| seen.store(own.stats().queues[5].completed, Ordering::SeqCst);
    assert!(!scheduler.acquire_with(callback, Priority::Higher, ()));
    let queue = scheduler.stats().queues[5];
    assert_eq!((queue.deferred, queue.completed, queue.count), (1, 0, 1));
    scheduler.release().unwrap();
    // Counted when it starts, not when it ends.
    until("it ran", || completed_inside.load(Ordering::SeqCst) == 1);
    assert_eq!(scheduler.stats().running, 1);
    scheduler.release().unwrap();
    let queue = scheduler.stats().queues[5];
    assert_eq!((queue.deferred, queue.completed, queue.count), (1, 1, 0));
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Join(usize, u32),
    Cancel(usize),
    Try(usize),
    Give(usize),
    Poll(usize),
    Draw(Option<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..7usize, 1..3u32).prop_map(|(lane, slots)| Step::Join(lane, slots)),
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => (0..7usize).prop_map(Step::Try),
        3 => any::<usize>().prop_map(Step::Give),
        3 => any::<usize>().prop_map(Step::Poll),
        1 => proptest::option::of(0..127u32).prop_map(Step::Draw),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// The identities after every operation, against a plain model of who waits and what is held.
    #[test]
    fn g9_g10_identities_in_a_random_history(steps in prop::collection::vec(step(), 1..120)) {
        let scheduler = local(Concurrency::max(4).target(Priority::Low, 2));
        let mut waiting: Vec<(usize, Task<'_, _>)> = Vec::new();
        let mut held = Vec::new();
        let mut last = scheduler.stats();
        let mut deferred = 0;
        for step in steps {
            match step {
                Step::Join(lane, slots) => {
                    let mut task = Task::new(scheduler.acquire_many(slots, Priority::ALL[lane]));
                    match task.poll() {
                        // Barred from the fast path it may queue and be served within the poll.
                        Some(permit) => {
                            held.push(permit.unwrap());
                            deferred += scheduler.stats().total.deferred - deferred;
                            prop_assert!(deferred <= last.total.deferred + 1);
                        }
                        None => {
                            deferred += 1;
                            waiting.push((lane, task));
                        }
                    }
                }
                Step::Cancel(at) if !waiting.is_empty() => {
                    drop(waiting.remove(at % waiting.len()));
                }
                Step::Try(lane) => held.extend(scheduler.try_acquire(Priority::ALL[lane])),
                Step::Give(at) if !held.is_empty() => drop(held.remove(at % held.len())),
                Step::Poll(at) if !waiting.is_empty() => {
                    let at = at % waiting.len();
                    if let Some(permit) = waiting[at].1.poll() {
                        held.push(permit.unwrap());
                        drop(waiting.remove(at));
                    }
                }
                Step::Draw(draw) => scheduler.fix_draw(draw),
                _ => {}
            }
            let stats = scheduler.stats();
            check(&stats);
            let slots: u32 = held.iter().map(shmsched::Permit::num_permits).sum();
            prop_assert_eq!(stats.running, slots);
            prop_assert!(stats.running <= 4);
            prop_assert_eq!(stats.total.deferred, deferred);
            for lane in 0..7 {
                let count = waiting.iter().filter(|(of, _)| *of == lane).count() as u64;
                prop_assert_eq!(stats.queues[lane].count, count);
                prop_assert!(stats.queues[lane].completed >= last.queues[lane].completed);
                prop_assert!(stats.queues[lane].cancelled >= last.queues[lane].cancelled);
            }
            last = stats;
        }
        // All that wait are served when the slots come back.
        drop(held);
        while let Some(at) = waiting.iter_mut().position(|(_, task)| task.bell.wakes() > 0) {
            match waiting[at].1.poll() {
                Some(permit) => {
                    drop(permit);
                    drop(waiting.remove(at));
                }
                None => break,
            }
        }
        let left = std::mem::take(&mut waiting);
        prop_assert_eq!(scheduler.stats().pending, left.len() as u64);
        drop(left);
        prop_assert_eq!(scheduler.available_permits(), 4);
    }
}

/// All waiters of a random crowd are served in the end, whatever order they are polled in.
#[test]
fn g10_everybody_is_served() {
    let mut dice = Dice::new(10);
    for round in 0..30 {
        let scheduler = local(3);
        let held = scheduler.try_acquire_many(3, NORMAL).unwrap();
        let crowd: Vec<_> = (0..20)
            .map(|_| {
                let slots = 1 + dice.below(3) as u32;
                Task::waiting(scheduler.acquire_many(slots, dice.priority()))
            })
            .collect();
        drop(held);
        std::thread::scope(|scope| {
            for task in crowd {
                scope.spawn(move || drop(task.finish().unwrap()));
            }
        });
        let total = scheduler.stats().total;
        assert_eq!((total.deferred, total.completed), (20, 20), "round {round}");
        assert_eq!(scheduler.available_permits(), 3);
    }
}

#[test]
fn g13_a_snapshot_does_not_change() {
    let scheduler = local(1);
    let before = scheduler.stats();
    let read = format!("{before:?}");
    let _held = scheduler.try_acquire(NORMAL).unwrap();
    let waiting = Task::waiting(scheduler.acquire(NORMAL));
    assert_eq!(format!("{before:?}"), read);
    assert_ne!(scheduler.stats(), before);
    drop(waiting);
}

#[test]
fn g14_counters_reveal_a_burst() {
    let scheduler = local(1);
    let before = scheduler.stats();
    let held = scheduler.try_acquire(NORMAL).unwrap();
    let burst: Vec<_> = (0..10)
        .map(|_| Task::waiting(scheduler.acquire(NORMAL)))
        .collect();
    drop(held);
    burst
        .into_iter()
        .for_each(|task| drop(task.finish().unwrap()));
    let after = scheduler.stats();
    assert_eq!((before.pending, after.pending), (0, 0));
    assert_eq!(after.total.deferred - before.total.deferred, 10);
    assert_eq!(after.total.completed - before.total.completed, 10);
}

/// More may run than the limit says after it was lowered, or past a target.
#[test]
fn g15_r1_running_above_the_limit_is_no_error() {
    let shared = Shared::new(Concurrency::max(5).target(Priority::Low, 1));
    let segment = shared.open();
    let scheduler = segment.scheduler().unwrap();
    let held = scheduler.try_acquire_many(5, NORMAL).unwrap();
    segment.set(&Changes::new().concurrency(Some(2))).unwrap();
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.concurrency), (5, Some(2)));
    assert_eq!(stats.shared.unwrap().running, 5);
    assert_eq!(scheduler.available_permits(), 0);
    assert!(scheduler.try_acquire(NORMAL).is_err());
    drop(held);
    assert_eq!(scheduler.available_permits(), 2);
}

/// A member that takes a slot of the roster that another had starts at zero.
#[test]
fn g6_counters_start_at_zero_for_each_instance() {
    let shared = Shared::new(1);
    let holder = shared.member();
    let _held = holder.try_acquire(NORMAL).unwrap();
    for _ in 0..3 {
        let member = shared.member();
        assert_eq!(member.stats().total, QueueStats::default());
        drop(Task::waiting(member.acquire(NORMAL)));
        let timed_out = member.blocking_acquire_until(1, NORMAL, std::time::Duration::ZERO);
        assert!(timed_out.is_err());
        let expected = QueueStats {
            deferred: 2,
            cancelled: 2,
            ..QueueStats::default()
        };
        assert_eq!(member.stats().total, expected);
    }
}

/// Clones and lowered handles report the member.
#[test]
fn g1_stats_are_the_members() {
    let scheduler = local(4);
    let (clone, lowered): (Scheduler, Scheduler) = (scheduler.clone(), scheduler.with(2));
    let _held = [
        clone.try_acquire(NORMAL).unwrap(),
        lowered.try_acquire(NORMAL).unwrap(),
    ];
    for handle in [&scheduler, &clone, &lowered] {
        assert_eq!(handle.stats(), scheduler.stats());
        assert_eq!(handle.stats().running, 2);
    }
}
