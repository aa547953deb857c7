//! Futures, polled by hand: cancelled at any instant, woken by whatever waker was last, on any executor.

use crate::calm::undisturbed;
use crate::support::{
    Bell, FOREVER, NORMAL, Shared, Task, ends, local, none_was_passed_over, until,
};
use shmsched::{AcquireError, OwnedPermit, Priority, Scheduler};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn dropped_before_the_first_poll() {
    let scheduler = local(1);
    drop(scheduler.acquire(NORMAL));
    let _held = scheduler.try_acquire(NORMAL).unwrap();
    drop(scheduler.acquire(NORMAL));
    let stats = scheduler.stats();
    assert_eq!(
        (stats.running, stats.pending, stats.total.deferred),
        (1, 0, 0)
    );
}

/// It joins the queue at its first poll, not when it is made.
#[test]
fn order_is_that_of_the_first_polls() {
    undisturbed(|| {
        let scheduler = local(1);
        let held = scheduler.try_acquire(NORMAL).unwrap();
        let mut second = Task::new(scheduler.acquire(NORMAL));
        let first = Task::waiting(scheduler.acquire(NORMAL));
        assert!(second.poll().is_none());
        let freed = Instant::now();
        drop(held);
        let passed = second.poll().is_some();
        if !none_was_passed_over(freed) {
            return false;
        }
        assert!(!passed);
        let permit = first.finish().unwrap();
        assert!(second.poll().is_none());
        drop(permit);
        assert!(second.finish().is_ok());
        true
    });
}

/// Head, middle and tail leave; the others keep their order.
#[test]
fn dropped_while_queued() {
    for leaves in [
        vec![0],
        vec![2],
        vec![4],
        vec![0, 1],
        vec![1, 3],
        vec![3, 4],
        vec![0, 2, 4],
    ] {
        undisturbed(|| {
            let scheduler = local(1);
            let mut held = Some(scheduler.try_acquire(NORMAL).unwrap());
            let mut queue: Vec<_> = (0..5)
                .map(|n| (n, Task::waiting(scheduler.acquire(NORMAL))))
                .collect();
            queue.retain(|(n, _)| !leaves.contains(n));
            let stats = scheduler.stats();
            assert_eq!(stats.pending, queue.len() as u64);
            assert_eq!(stats.total.cancelled, leaves.len() as u64);
            while !queue.is_empty() {
                let freed = Instant::now();
                drop(held.take());
                let mut others = queue[1..].iter_mut().rev();
                let passed = others.find_map(|(n, task)| task.poll().map(|_| *n));
                if !none_was_passed_over(freed) {
                    return false;
                }
                assert_eq!(passed, None, "of those without {leaves:?}");
                held = Some(queue.remove(0).1.finish().unwrap());
            }
            drop(held);
            assert_eq!(scheduler.available_permits(), 1);
            assert_eq!(scheduler.stats().pending, 0);
            true
        });
    }
}

/// Called for its turn, but dropped instead of polled: the turn goes on at once, not when the next looks up by himself.
#[test]
fn dropped_when_it_was_called() {
    // A busy machine delays some of them.
    undisturbed(|| late_when_dropped() <= 20);
}

/// How many of 100 are as late as if they had looked up by themselves, 7 ms after they came; or enough of them.
fn late_when_dropped() -> u32 {
    let mut late = 0;
    for round in 0..100 {
        let shared = Shared::new(1);
        let (a, b) = (shared.member(), shared.member());
        let held = a.try_acquire(NORMAL).unwrap();
        let called = Task::waiting(a.acquire(NORMAL));
        let member = if round % 2 == 0 { &a } else { &b };
        let next = Task::waiting(member.acquire(NORMAL));
        drop(held);
        called.bell.wait_past(0);
        let begun = Instant::now();
        drop(called);
        drop(next.finish().unwrap());
        late += u32::from(begun.elapsed() > Duration::from_millis(4));
        until("all is free", || a.stats().shared.unwrap().running == 0);
        drop(b.try_acquire(Priority::Lowest).unwrap());
        if late > 20 {
            break;
        }
    }
    println!("{late} late");
    late
}

/// Called and never polled, never dropped: after the grace its process's next goes first, then it is served too.
#[test]
fn called_but_never_polled() {
    let shared = Shared::new(1);
    let (a, b) = (shared.member(), shared.member());
    let held = b.try_acquire(NORMAL).unwrap();
    let mut silent = Task::waiting(a.acquire(NORMAL));
    let next = Task::waiting(a.acquire(NORMAL));
    let other = Task::waiting(b.acquire(NORMAL));
    drop(held);
    silent.bell.wait_past(0);
    drop(next.finish().unwrap());
    drop(other.finish().unwrap());
    // Nobody else is in line; it may be called at this very moment and woken once more.
    assert!(silent.poll().unwrap_or_else(|| silent.finish()).is_ok());
}

/// Alone in its member it lapses, and the other member goes on.
#[test]
fn called_but_never_polled_alone() {
    let shared = Shared::new(1);
    let (a, b) = (shared.member(), shared.member());
    let held = b.try_acquire(NORMAL).unwrap();
    let mut silent = Task::waiting(a.acquire(NORMAL));
    let other = Task::waiting(b.acquire(NORMAL));
    drop(held);
    silent.bell.wait_past(0);
    drop(other.finish().unwrap());
    assert!(silent.poll().unwrap_or_else(|| silent.finish()).is_ok());
}

/// A future that is never polled holds up nobody, though it is the most urgent and the slot is free: neither the same
/// lane nor the lanes below, in whatever member.
#[test]
fn a_future_that_nobody_polls_holds_up_no_lane() {
    use std::future::Future;
    use std::task::{Context, Waker};
    for (count, lane, waits_at) in [
        (1, Priority::High, Priority::Normal),
        (2, Priority::High, Priority::Low),
        (2, Priority::Normal, Priority::Normal),
    ] {
        let shared = Shared::new(1);
        let holder = shared.member();
        let permit = holder.try_acquire(Priority::Normal).unwrap();
        let sleepers: Vec<_> = (0..count).map(|_| shared.member()).collect();
        let mut context = Context::from_waker(Waker::noop());
        let mut futures: Vec<_> = sleepers
            .iter()
            .map(|member| Box::pin(member.acquire(lane)))
            .collect();
        for future in &mut futures {
            assert!(future.as_mut().poll(&mut context).is_pending());
        }
        let waiter = shared.member();
        let begun = std::time::Instant::now();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let until = std::time::Duration::from_secs(20);
                waiter.blocking_acquire_until(1, waits_at, until).map(drop)
            });
            while waiter.stats().pending == 0 {
                std::thread::yield_now();
            }
            drop(permit);
            waits.join().unwrap().expect("its turn");
        });
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        // Polled after all, each gets its turn.
        for future in futures {
            drop(futures_executor::block_on(future).unwrap());
        }
    }
}

/// Cancelled on one thread at the moment another one frees the slot: no slot and no turn is lost.
#[test]
fn cancel_races_with_release() {
    for member_of_its_own in [false, true] {
        let shared = Shared::new(1);
        let waits = shared.member();
        let frees = if member_of_its_own {
            shared.member()
        } else {
            waits.clone()
        };
        for round in 0..1_500 {
            let held = frees.try_acquire_owned(NORMAL).unwrap();
            let mut leaves = Task::waiting(waits.acquire(NORMAL));
            let next = Task::waiting(waits.acquire(NORMAL));
            let together = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    together.wait();
                    drop(held);
                });
                scope.spawn(|| {
                    together.wait();
                    if round % 2 == 0 {
                        drop(leaves.poll());
                    }
                    drop(leaves);
                });
            });
            drop(next.finish().unwrap());
            assert_eq!(waits.available_permits(), 1);
        }
        assert_eq!(waits.stats().pending, 0);
    }
}

/// Many tasks that are cancelled at random, polled by several threads.
#[test]
fn a_storm_of_cancels_leaves_nothing() {
    let scheduler = local(2);
    let served = AtomicU32::new(0);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (scheduler, served) = (&scheduler, &served);
            scope.spawn(move || {
                let mut dice = crate::support::Dice::new(seed + 1);
                for _ in 0..1_500 {
                    let mut task = Task::new(
                        scheduler.acquire_many(1 + dice.below(2) as u32, dice.priority()),
                    );
                    for _ in 0..dice.below(4) {
                        if let Some(permit) = task.poll() {
                            served.fetch_add(1, Ordering::SeqCst);
                            drop(permit.unwrap());
                            break;
                        }
                        thread::yield_now();
                    }
                }
            });
        }
    });
    assert!(served.load(Ordering::SeqCst) > 0);
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.pending), (0, 0));
    assert!(scheduler.try_acquire_many(2, Priority::Lowest).is_ok());
}

/// Polled without a wake: it stays pending, keeps its place, and is still woken.
#[test]
fn spurious_polls() {
    let scheduler = local(1);
    let held = scheduler.try_acquire(NORMAL).unwrap();
    let mut first = Task::waiting(scheduler.acquire(NORMAL));
    let mut second = Task::waiting(scheduler.acquire(NORMAL));
    for _ in 0..1_000 {
        assert!(second.poll().is_none());
        assert!(first.poll().is_none());
    }
    assert_eq!(scheduler.stats().total.deferred, 2);
    drop(held);
    let permit = first.finish().unwrap();
    for _ in 0..1_000 {
        assert!(second.poll().is_none());
    }
    drop(permit);
    assert!(second.finish().is_ok());
}

/// Only the waker of the last poll counts, and it is called.
#[test]
fn wakers_replaced_between_polls() {
    for polls in [1usize, 2, 5] {
        let scheduler = local(1);
        let held = scheduler.try_acquire(NORMAL).unwrap();
        let mut task = Task::new(scheduler.acquire(NORMAL));
        let bells: Vec<Arc<Bell>> = (0..polls).map(|_| Arc::default()).collect();
        for bell in &bells {
            assert!(task.poll_with(&Waker::from(bell.clone())).is_none());
        }
        // Those that were replaced are let go.
        for bell in &bells[..polls - 1] {
            assert_eq!(Arc::strong_count(bell), 1);
        }
        drop(held);
        bells[polls - 1].wait_past(0);
        // Polled late, it may have been passed over, and is called once more.
        assert!(task.poll().unwrap_or_else(|| task.finish()).is_ok());
        assert!(bells[..polls - 1].iter().all(|bell| bell.wakes() == 0));
    }
}

/// A waker that gives a slot back when it is dropped, as that of a task may which owns the permit.
struct Holds(#[allow(dead_code)] Mutex<Option<OwnedPermit>>);

impl Wake for Holds {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_replaced_waker_may_release() {
    let scheduler = local(2);
    ends("replacing a waker", move || {
        let permit = scheduler.try_acquire_owned(NORMAL).unwrap();
        let _held = scheduler.try_acquire_owned(NORMAL).unwrap();
        let mut task = Task::new(scheduler.acquire(NORMAL));
        let other = Task::waiting(scheduler.acquire(Priority::Low));
        let waker = Waker::from(Arc::new(Holds(Mutex::new(Some(permit)))));
        assert!(task.poll_with(&waker).is_none());
        drop(waker);
        // The permit comes back in here.
        let polled = task.poll();
        drop(match polled {
            Some(permit) => permit.unwrap(),
            None => task.finish().unwrap(),
        });
        drop(other.finish().unwrap());
    });
}

#[test]
fn a_dropped_future_may_release_by_its_waker() {
    let scheduler = local(1);
    ends("dropping a future", move || {
        let permit = scheduler.try_acquire_owned(NORMAL).unwrap();
        let mut task = Task::new(scheduler.acquire(NORMAL));
        let next = Task::waiting(scheduler.acquire(Priority::Low));
        let waker = Waker::from(Arc::new(Holds(Mutex::new(Some(permit)))));
        assert!(task.poll_with(&waker).is_none());
        drop(waker);
        drop(task);
        drop(next.finish().unwrap());
    });
}

/// A waker that polls at once, on the waking thread: nothing of the library is locked while a waker runs.
struct PollsAtOnce(
    Mutex<Option<Task<'static, Result<OwnedPermit, AcquireError>>>>,
    Arc<Bell>,
);

impl Wake for PollsAtOnce {
    fn wake(self: Arc<Self>) {
        let task = self.0.lock().unwrap().take();
        if let Some(mut task) = task {
            let waker = Waker::from(self.clone());
            match task.poll_with(&waker) {
                Some(permit) => {
                    drop(permit.unwrap());
                    self.1.clone().wake();
                }
                None => *self.0.lock().unwrap() = Some(task),
            }
        }
    }
}

#[test]
fn a_waker_may_poll_at_once() {
    let scheduler = Arc::new(local(1));
    ends("a waker that polls", move || {
        let held = scheduler.try_acquire(NORMAL).unwrap();
        let own = scheduler.clone();
        let mut task = Task::new(async move { own.acquire_owned(NORMAL).await });
        let waker = Arc::new(PollsAtOnce(Mutex::new(None), Arc::default()));
        assert!(task.poll_with(&Waker::from(waker.clone())).is_none());
        *waker.0.lock().unwrap() = Some(task);
        drop(held);
        waker.1.wait_past(0);
        assert_eq!(scheduler.available_permits(), 1);
    });
}

/// No runtime's timer is needed for a deadline.
#[test]
fn a_deadline_wakes_by_itself() {
    undisturbed(|| {
        let scheduler = local(1);
        let _held = scheduler.try_acquire(NORMAL).unwrap();
        let mut tasks = [80, 20, 50]
            .map(|ms| Task::new(scheduler.acquire_until(1, NORMAL, Duration::from_millis(ms))));
        // One whose time is up before it is polled does not wait.
        if tasks.iter_mut().any(|task| task.poll().is_some()) {
            return false;
        }
        for task in tasks {
            assert_eq!(task.finish().unwrap_err(), AcquireError::TimedOut);
        }
        assert_eq!(scheduler.stats().total.cancelled, 3);
        true
    });
}

async fn crowd(
    scheduler: Arc<Scheduler>,
    spawn: impl Fn(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>),
) {
    let left = Arc::new(AtomicU32::new(100));
    for n in 0..100 {
        let (scheduler, left) = (scheduler.clone(), left.clone());
        spawn(Box::pin(async move {
            for k in 0..10 {
                let permit = scheduler.acquire(Priority::ALL[(n + k) % 7]).await.unwrap();
                tokio::task::yield_now().await;
                drop(permit);
            }
            left.fetch_sub(1, Ordering::SeqCst);
        }));
    }
    while left.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn any_executor() {
    let scheduler = Arc::new(local(3));
    ends("the executors", move || {
        let multi = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        multi.block_on(crowd(scheduler.clone(), |task| drop(tokio::spawn(task))));
        let current = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        current.block_on(crowd(scheduler.clone(), |task| drop(tokio::spawn(task))));
        // futures-executor, one per thread.
        let served = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    futures_executor::block_on(async {
                        for _ in 0..100 {
                            drop(scheduler.acquire(NORMAL).await.unwrap());
                            served.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                });
            }
        });
        assert_eq!(served.load(Ordering::SeqCst), 1_000);
        assert_eq!(scheduler.available_permits(), 3);
        assert_eq!(scheduler.stats().pending, 0);
    });
}

#[test]
fn select_and_timeout_and_abort() {
    let scheduler = Arc::new(local(1));
    ends("the runtime", move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let held = scheduler.acquire(NORMAL).await.unwrap();
            // The loser of a select leaves.
            tokio::select! {
                biased;
                _ = scheduler.acquire(NORMAL) => panic!("it is taken"),
                () = tokio::task::yield_now() => {}
            }
            assert_eq!(scheduler.stats().pending, 0);
            // A select by reference keeps its place across the loop.
            let mut waiting = std::pin::pin!(scheduler.acquire(NORMAL));
            for _ in 0..5 {
                tokio::select! {
                    biased;
                    _ = &mut waiting => panic!("it is taken"),
                    () = tokio::task::yield_now() => {}
                }
            }
            assert_eq!(scheduler.stats().total.deferred, 2);
            let late = tokio::time::timeout(Duration::from_millis(20), scheduler.acquire(NORMAL));
            assert!(late.await.is_err());
            assert_eq!(scheduler.stats().pending, 1);
            let own = scheduler.clone();
            let aborted = tokio::spawn(async move { drop(own.acquire(NORMAL).await) });
            while scheduler.stats().pending < 2 {
                tokio::task::yield_now().await;
            }
            aborted.abort();
            assert!(aborted.await.unwrap_err().is_cancelled());
            assert_eq!(scheduler.stats().pending, 1);
            drop(held);
            drop(waiting.await.unwrap());
            // Aborted while it holds: the permit comes back.
            let own = scheduler.clone();
            let holds = tokio::spawn(async move {
                let _permit = own.acquire(NORMAL).await.unwrap();
                std::future::pending::<()>().await;
            });
            while scheduler.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            holds.abort();
            assert!(holds.await.unwrap_err().is_cancelled());
            assert_eq!(scheduler.available_permits(), 1);
        });
    });
}

/// A runtime that goes down with a hundred waiters; the Scheduler goes on with another one.
#[test]
fn a_runtime_shut_down_with_waiters() {
    for threads in [0, 2] {
        let scheduler = Arc::new(local(1));
        ends("the shutdown", move || {
            let build = || {
                let mut builder = match threads {
                    0 => tokio::runtime::Builder::new_current_thread(),
                    _ => tokio::runtime::Builder::new_multi_thread(),
                };
                builder.worker_threads(threads.max(1)).build().unwrap()
            };
            let runtime = build();
            let held = scheduler.try_acquire(NORMAL).unwrap();
            for n in 0..100 {
                let own = scheduler.clone();
                runtime.spawn(async move {
                    let _permit = own.acquire(Priority::ALL[n % 7]).await.unwrap();
                    std::future::pending::<()>().await;
                });
            }
            runtime.block_on(async {
                while scheduler.stats().pending < 100 {
                    tokio::task::yield_now().await;
                }
            });
            // Some may be called at this very moment.
            thread::scope(|scope| {
                scope.spawn(|| drop(held));
                runtime.shutdown_timeout(FOREVER);
            });
            assert_eq!(scheduler.stats().pending, 0);
            assert_eq!(scheduler.available_permits(), 1);
            let own = scheduler.clone();
            let ran = build().block_on(async move { own.run(|| async { 1 }, NORMAL).await });
            assert_eq!(ran, Ok(1));
        });
    }
}
