//! Acquire and release by every way in.

use crate::calm::{calm, scene};
use shmsched::{AcquireError, Concurrency, Priority, Scheduler, TryAcquireError};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;

#[test]
fn a1_a2_limits_count() {
    let unlimited = Scheduler::local(Concurrency::unlimited()).unwrap();
    let many: Vec<_> = (0..10_000)
        .map(|_| unlimited.try_acquire(NORMAL).unwrap())
        .collect();
    assert_eq!(unlimited.concurrency(), None);
    assert_eq!(unlimited.stats().running, 10_000);
    drop(many);
    assert_eq!(unlimited.stats().running, 0);

    let four = Scheduler::local(4).unwrap();
    let held: Vec<_> = (0..4).map(|_| four.try_acquire(NORMAL).unwrap()).collect();
    assert_eq!(
        four.try_acquire(NORMAL).unwrap_err(),
        TryAcquireError::NoPermits
    );
    drop(held);
    assert!(four.try_acquire(NORMAL).is_ok());
}

#[test]
fn many_threads_never_exceed_the_limit_and_end_at_zero() {
    for limit in [1u32, 3] {
        let scheduler = Scheduler::local(limit).unwrap();
        let inside = AtomicI32::new(0);
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (scheduler, inside) = (&scheduler, &inside);
                scope.spawn(move || {
                    for k in 0..2_000 {
                        let priority = Priority::from_index((n + k) % 7).unwrap();
                        let permit = scheduler.blocking_acquire(priority).unwrap();
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(now <= limit as i32, "{now} inside");
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        let stats = scheduler.stats();
        assert_eq!((stats.running, stats.pending), (0, 0));
        assert_eq!(stats.total.deferred, stats.total.completed);
        assert_eq!(scheduler.available_permits(), limit);
    }
}

#[test]
fn a_deadline_ends_a_wait_in_time() {
    scene(|| {
        let scheduler = Scheduler::local(1).unwrap();
        let _held = scheduler.try_acquire(NORMAL).unwrap();
        let begun = Instant::now();
        let wait = Duration::from_millis(60);
        let failed = scheduler
            .blocking_acquire_until(1, NORMAL, wait)
            .unwrap_err();
        assert_eq!(failed, AcquireError::TimedOut);
        let failed =
            futures_executor::block_on(scheduler.acquire_until(1, NORMAL, wait)).unwrap_err();
        assert_eq!(failed, AcquireError::TimedOut);
        let took = begun.elapsed();
        assert!(took >= 2 * wait, "{took:?}");
        // One of them may have stood still, before it was in line or in it.
        calm(took < Duration::from_millis(400));
        calm(scheduler.stats().total.cancelled == 2);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_share_a_limit() {
    let scheduler = Arc::new(Scheduler::local(2).unwrap());
    let inside = Arc::new(AtomicI32::new(0));
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let (scheduler, inside) = (scheduler.clone(), inside.clone());
            tokio::spawn(async move {
                for _ in 0..20 {
                    let permit = scheduler.acquire(NORMAL).await.unwrap();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(scheduler.available_permits(), 2);
}
