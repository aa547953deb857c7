//! `run` and `run_blocking`: whatever way the work ends, its slot comes back.

use crate::support::{MEANT, NORMAL, Task, ends, local, panics_of, until, watch_panics};
use shmsched::{AcquireError, Priority};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

const ROUNDS: usize = 1_000;

/// Case 44: a task that fails or panics always gives its slot back.
#[test]
fn case44_a_thousand_panics_of_each_kind() {
    watch_panics();
    let scheduler = local(2);
    let meant = format!("{MEANT}case 44");
    let fails = || panic!("{meant}");
    let yields = || {
        let mut polled = false;
        std::future::poll_fn(move |context| {
            if std::mem::replace(&mut polled, true) {
                return std::task::Poll::Ready(());
            }
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        })
    };
    for _ in 0..ROUNDS {
        let panics = [
            // The blocking form.
            catch_unwind(AssertUnwindSafe(|| scheduler.run_blocking(fails, NORMAL))),
            // The closure, before there is a future.
            catch_unwind(AssertUnwindSafe(|| {
                let run = scheduler.run::<(), std::future::Ready<()>>(|| panic!("{meant}"), NORMAL);
                futures_executor::block_on(run)
            })),
            // Before the first await.
            catch_unwind(AssertUnwindSafe(|| {
                futures_executor::block_on(scheduler.run(|| async { fails() }, NORMAL))
            })),
            // After it.
            catch_unwind(AssertUnwindSafe(|| {
                let run = scheduler.run(
                    || async {
                        yields().await;
                        fails()
                    },
                    NORMAL,
                );
                futures_executor::block_on(run)
            })),
        ];
        assert!(panics.iter().all(Result::is_err));
        let failed =
            futures_executor::block_on(scheduler.run(|| async { Err::<(), _>(1) }, NORMAL));
        assert_eq!(failed, Ok(Err(1)));
    }
    assert_eq!(panics_of(&meant).len(), 4 * ROUNDS);
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.pending), (0, 0));
    assert!(scheduler.try_acquire_many(2, NORMAL).is_ok());
}

/// The same with a queue: each failing run starts the next.
#[test]
fn case44_a_failing_run_starts_the_next() {
    watch_panics();
    let scheduler = Arc::new(local(1));
    let meant = format!("{MEANT}next");
    let held = scheduler.try_acquire(NORMAL).unwrap();
    let threads: Vec<_> = (0..20)
        .map(|n| {
            let (own, text) = (scheduler.clone(), meant.clone());
            thread::spawn(move || match n % 2 {
                0 => own.run_blocking(|| panic!("{text}"), NORMAL),
                _ => futures_executor::block_on(own.run(|| async { panic!("{text}") }, NORMAL)),
            })
        })
        .collect();
    until("all wait", || scheduler.stats().pending == 20);
    drop(held);
    for thread in threads {
        let ended: thread::Result<Result<(), AcquireError>> = ends("a run", move || thread.join());
        assert!(ended.is_err());
    }
    assert_eq!(panics_of(&meant).len(), 20);
    assert_eq!(scheduler.available_permits(), 1);
}

/// In a runtime the panic is the task's.
#[test]
fn case44_a_panic_in_a_runtime() {
    watch_panics();
    let scheduler = Arc::new(local(1));
    let meant = format!("{MEANT}runtime");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        for _ in 0..100 {
            let (own, text) = (scheduler.clone(), meant.clone());
            let task = tokio::spawn(async move {
                let body = || async move {
                    tokio::task::yield_now().await;
                    panic!("{text}")
                };
                own.run::<(), _>(body, NORMAL).await
            });
            assert!(task.await.unwrap_err().is_panic());
        }
    });
    assert_eq!(panics_of(&meant).len(), 100);
    assert_eq!(scheduler.available_permits(), 1);
}

/// The slot is held while the work runs, and free when the result is there.
#[test]
fn the_slot_is_held_for_the_work() {
    let scheduler = local(1);
    let run = scheduler.run(
        || async {
            assert!(scheduler.try_acquire(Priority::Highest).is_err());
            assert_eq!(scheduler.stats().running, 1);
        },
        NORMAL,
    );
    futures_executor::block_on(run).unwrap();
    assert_eq!(scheduler.available_permits(), 1);
    let inside = scheduler.run_blocking(|| scheduler.available_permits(), NORMAL);
    assert_eq!(inside, Ok(0));
    assert_eq!(scheduler.available_permits(), 1);
}

/// Dropped while queued the closure is never called; dropped while running the slot comes back.
#[test]
fn x47_dropping_a_run_cancels_it() {
    let scheduler = local(1);
    let called = Arc::new(AtomicU32::new(0));
    let work = || {
        let called = called.clone();
        move || {
            called.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>()
        }
    };
    drop(scheduler.run(work(), NORMAL));
    let held = scheduler.try_acquire(NORMAL).unwrap();
    drop(Task::waiting(scheduler.run(work(), NORMAL)));
    drop(held);
    assert_eq!(called.load(Ordering::SeqCst), 0);
    assert_eq!(scheduler.stats().total.cancelled, 1);
    let running = Task::waiting(scheduler.run(work(), NORMAL));
    assert_eq!(called.load(Ordering::SeqCst), 1);
    assert_eq!(scheduler.available_permits(), 0);
    drop(running);
    assert_eq!(scheduler.available_permits(), 1);
}

/// The work's own future is dropped before its slot is given back.
#[test]
fn the_slot_outlives_the_work() {
    struct Work(shmsched::Scheduler, Arc<AtomicBool>);
    impl Drop for Work {
        fn drop(&mut self) {
            self.1.store(self.0.stats().running == 1, Ordering::SeqCst);
        }
    }
    let scheduler = local(1);
    let held = Arc::new(AtomicBool::new(false));
    let work = Work(scheduler.clone(), held.clone());
    let run = Task::waiting(scheduler.run(
        || async move {
            let _work = work;
            std::future::pending::<()>().await;
        },
        NORMAL,
    ));
    drop(run);
    assert!(held.load(Ordering::SeqCst));
    assert_eq!(scheduler.available_permits(), 1);
}

/// A payload that is no text goes through as it is.
#[test]
fn a_panic_payload_reaches_the_caller() {
    let scheduler = local(1);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        scheduler.run_blocking(|| resume_unwind(Box::new(17_u8)), NORMAL)
    }));
    let payload = caught.map(|ran: Result<(), AcquireError>| ran).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&17_u8));
    assert_eq!(scheduler.available_permits(), 1);
}

/// Runs within runs of another Scheduler do not meet.
#[test]
fn nested_runs_of_two_schedulers() {
    ends("nested runs", || {
        let (outer, inner) = (local(1), local(1));
        let sum = outer.run_blocking(|| inner.run_blocking(|| 3, NORMAL).unwrap() + 4, NORMAL);
        assert_eq!(sum, Ok(7));
    });
}
