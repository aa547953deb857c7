//! Group C: who gets in at once, who queues, in which order.

use crate::calm::undisturbed;
use crate::support::{
    FOREVER, MEANT, NORMAL, Shared, Task, local, none_was_passed_over, panics_of, until,
    watch_panics,
};
use shmsched::{Concurrency, Priority, TryAcquireError};
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn c1_run_yields_the_result() {
    let scheduler = local(4);
    let ran = futures_executor::block_on(scheduler.run(|| async { "value" }, NORMAL));
    assert_eq!(ran, Ok("value"));
    assert_eq!(scheduler.run_blocking(|| "value", NORMAL), Ok("value"));
    // It may borrow.
    let mut counted = 0;
    scheduler.run_blocking(|| counted += 1, NORMAL).unwrap();
    assert_eq!(counted, 1);
}

#[test]
fn c2_run_gives_its_slot_back() {
    let scheduler = local(1);
    for _ in 0..2 {
        let failed: Result<Result<(), &str>, _> =
            futures_executor::block_on(scheduler.run(|| async { Err("it failed") }, NORMAL));
        assert_eq!(failed, Ok(Err("it failed")));
        assert_eq!(
            scheduler.run_blocking(|| Err::<(), _>("it failed"), NORMAL),
            Ok(Err("it failed"))
        );
        let running = futures_executor::block_on(
            scheduler.run(|| async { scheduler.stats().running }, NORMAL),
        );
        assert_eq!(running, Ok(1));
    }
    assert_eq!(scheduler.stats().running, 0);
}

/// The future is driven once to its end; a value that could be awaited is left alone.
#[test]
#[expect(clippy::async_yields_async)]
fn c3_a_result_is_adopted_once() {
    let scheduler = local(1);
    let calls = AtomicU32::new(0);
    let run = scheduler.run(
        || {
            calls.fetch_add(1, Ordering::SeqCst);
            // Panics when polled after its end.
            async { ready(5) }
        },
        NORMAL,
    );
    let value: Ready<i32> = futures_executor::block_on(run).unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(value.into_inner(), 5);
    let value: Ready<i32> = scheduler.run_blocking(|| ready(6), NORMAL).unwrap();
    assert_eq!(value.into_inner(), 6);
}

/// A failure stays visible when nobody keeps the handle of the task.
#[test]
fn c4_a_discarded_failure_is_reported_once() {
    watch_panics();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let scheduler = local(1);
    let meant = format!("{MEANT}c4");
    let text = meant.clone();
    runtime.block_on(async {
        let own = scheduler.clone();
        drop(tokio::spawn(async move {
            own.run(|| async move { panic!("{text}") }, NORMAL).await
        }));
        while panics_of(&meant).is_empty() {
            tokio::task::yield_now().await;
        }
    });
    drop(runtime);
    assert_eq!(panics_of(&meant).len(), 1);
    assert_eq!(scheduler.available_permits(), 1);
}

#[test]
fn c5_true_means_it_ran_within_the_call() {
    let scheduler = local(1);
    let here = thread::current().id();
    let ran = Arc::new(AtomicU32::new(0));
    let counted = ran.clone();
    let took = scheduler.acquire_with(
        move |()| {
            assert_eq!(thread::current().id(), here);
            counted.fetch_add(1, Ordering::SeqCst);
        },
        NORMAL,
        (),
    );
    assert!(took);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert_eq!(scheduler.stats().running, 1);
}

#[test]
fn c6_x43_false_means_queued_or_disposed() {
    let scheduler = local(1);
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    assert!(!scheduler.acquire_with(drop, NORMAL, ()));
    assert_eq!(scheduler.stats().pending, 1);
    scheduler.dispose();
    assert!(!scheduler.acquire_with(|()| panic!("called after dispose"), NORMAL, ()));
    assert_eq!(scheduler.stats().pending, 0);
}

/// Two members, two threads each: every callback runs exactly once, whatever the call returned (C7, R11), and every
/// call that returned false was counted as deferred and then as completed (G17).
#[test]
fn c7_g17_r11_every_callback_runs_exactly_once() {
    const EACH: usize = 2_000;
    let shared = Shared::new(2);
    let members = [shared.member(), shared.member()];
    let ran: Arc<Vec<AtomicU32>> = Arc::new((0..4 * EACH).map(|_| AtomicU32::new(0)).collect());
    let queued = [AtomicUsize::new(0), AtomicUsize::new(0)];
    thread::scope(|scope| {
        for part in 0..4 {
            let (ran, member, queued) = (&ran, &members[part % 2], &queued[part % 2]);
            scope.spawn(move || {
                for n in 0..EACH {
                    let (ran, own) = (ran.clone(), member.clone());
                    let took = member.acquire_with(
                        move |id: usize| {
                            ran[id].fetch_add(1, Ordering::SeqCst);
                            own.release().unwrap();
                        },
                        Priority::ALL[n % 7],
                        part * EACH + n,
                    );
                    if !took {
                        queued.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let count = || ran.iter().filter(|n| n.load(Ordering::SeqCst) != 0).count();
    until("all have run", || count() == 4 * EACH);
    until("all is given back", || members[0].available_permits() == 2);
    assert!(ran.iter().all(|n| n.load(Ordering::SeqCst) == 1));
    for (member, queued) in members.iter().zip(&queued) {
        let total = member.stats().total;
        let queued = queued.load(Ordering::SeqCst) as u64;
        assert_eq!(
            (total.deferred, total.completed, total.count),
            (queued, queued, 0)
        );
    }
}

/// A slot is free, but one of this priority waits for two.
#[test]
fn c8_a_caller_queues_behind_its_own_priority() {
    let scheduler = local(2);
    let held = scheduler.try_acquire(NORMAL).unwrap();
    let first = Task::waiting(scheduler.acquire_many(2, NORMAL));
    let second = Task::waiting(scheduler.acquire(NORMAL));
    assert!(scheduler.try_acquire(NORMAL).is_err());
    assert_eq!(scheduler.available_permits(), 1);
    assert_eq!(scheduler.stats().queues[3].count, 2);
    drop(held);
    let permit = first.finish().unwrap();
    assert_eq!(permit.num_permits(), 2);
    drop(permit);
    assert!(second.finish().is_ok());
}

#[test]
fn c9_fifo_within_a_priority() {
    let scheduler = local(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    for n in 0..1_000 {
        let (order, own) = (order.clone(), scheduler.clone());
        let queued = scheduler.acquire_with(
            move |n| {
                order.lock().unwrap().push(n);
                own.release().unwrap();
            },
            NORMAL,
            n,
        );
        assert!(!queued);
    }
    scheduler.release().unwrap();
    until("all have run", || order.lock().unwrap().len() == 1_000);
    assert!(order.lock().unwrap().is_sorted());
}

#[test]
fn c9_fifo_of_tasks() {
    undisturbed(|| {
        let scheduler = local(1);
        let mut held = Some(scheduler.try_acquire(NORMAL).unwrap());
        let mut queue: Vec<_> = (0..300)
            .map(|_| Task::waiting(scheduler.acquire(NORMAL)))
            .collect();
        for at in 0..queue.len() {
            let freed = Instant::now();
            drop(held.take());
            // Polling the others does not let them pass; the last first, as it is the least due.
            let from = queue.len().min(at + 4);
            let mut others = queue[at + 1..from].iter_mut().rev();
            let passed = others.any(|other| other.poll().is_some());
            queue[at].bell.wait_past(0);
            let polled = queue[at].poll();
            if !none_was_passed_over(freed) {
                return false;
            }
            assert!(!passed, "passed {at}");
            held = Some(polled.expect("its turn").unwrap());
        }
        true
    });
}

#[test]
fn c9_fifo_of_threads() {
    let scheduler = local(1);
    let order = Mutex::new(Vec::new());
    let held = scheduler.try_acquire(NORMAL).unwrap();
    thread::scope(|scope| {
        for n in 0..20u64 {
            let (scheduler, order) = (&scheduler, &order);
            scope.spawn(move || {
                let permit = scheduler.blocking_acquire(NORMAL).unwrap();
                order.lock().unwrap().push(n);
                drop(permit);
            });
            until("it waits", || scheduler.stats().pending == n + 1);
        }
        drop(held);
    });
    assert!(order.lock().unwrap().is_sorted());
}

/// The gap between a slot being freed and its waiter taking it is a newcomer's of another priority, until the waiter
/// has set its mark; then nobody as urgent or less comes in before it.
#[test]
fn c10_r13_a_newcomer_may_overtake_until_the_mark() {
    undisturbed(|| {
        let shared = Shared::new(1);
        let (waits, comes) = (shared.member(), shared.member());
        // A winner of the lottery would bar everybody.
        comes.fix_draw(Some(0));
        let held = comes.try_acquire(NORMAL).unwrap();
        let mut waiting = Task::waiting(waits.acquire(NORMAL));
        let patience = Instant::now() + Duration::from_millis(2);
        let freed = Instant::now();
        drop(held);
        waiting.bell.wait_past(0);
        // Called, but it has not come yet.
        let newcomer = comes.try_acquire(Priority::Low);
        while Instant::now() < patience {
            thread::yield_now();
        }
        let early = waiting.poll();
        if !none_was_passed_over(freed) {
            return false;
        }
        assert!(early.is_none());
        let freed = Instant::now();
        drop(newcomer.unwrap());
        let barred = [Priority::Lowest, Priority::Low, NORMAL]
            .map(|priority| (priority, comes.try_acquire(priority).map(drop)));
        let urgent = comes.try_acquire(Priority::High).map(drop);
        if !none_was_passed_over(freed) {
            return false;
        }
        for (priority, barred) in barred {
            assert_eq!(barred, Err(TryAcquireError::NoPermits), "{priority}");
        }
        assert_eq!(urgent, Ok(()));
        let begun = Instant::now();
        assert!(waiting.finish().is_ok());
        assert!(begun.elapsed() < FOREVER / 5);
        // The mark is gone with it.
        assert!(comes.try_acquire(Priority::Lowest).is_ok());
        true
    });
}

/// Who needs two slots is not kept out by those who need one and leave one free in turn.
#[test]
fn c10_large_amounts_do_not_starve() {
    let shared = Shared::new(2);
    let (waits, churns) = (shared.member(), shared.member());
    for priority in [Priority::Highest, NORMAL, Priority::Lowest] {
        let mut held = Some(churns.try_acquire(NORMAL).unwrap());
        let waiting = Task::waiting(waits.acquire_many(2, priority));
        let end = Instant::now() + FOREVER;
        let served = thread::scope(|scope| {
            let served = scope.spawn(|| waiting.finish().unwrap().num_permits());
            while !served.is_finished() {
                assert!(Instant::now() < end, "{priority} starves");
                // Takes the next before it lets go of the last, so that two are never free unless it is barred.
                let next = churns.try_acquire(NORMAL).ok();
                if next.is_none() {
                    thread::yield_now();
                }
                drop(std::mem::replace(&mut held, next));
            }
            served.join().unwrap()
        });
        assert_eq!(served, 2);
    }
}

#[test]
fn c11_c12_the_value_reaches_the_callback() {
    let scheduler = local(1);
    let value = Arc::new(5);
    let got = Arc::new(Mutex::new(Vec::new()));
    let push = || {
        let got = got.clone();
        move |value: Arc<i32>| got.lock().unwrap().push(value)
    };
    assert!(scheduler.acquire_with(push(), NORMAL, value.clone()));
    assert!(!scheduler.acquire_with(push(), NORMAL, value.clone()));
    scheduler.release().unwrap();
    until("both ran", || got.lock().unwrap().len() == 2);
    assert!(
        got.lock()
            .unwrap()
            .iter()
            .all(|got| Arc::ptr_eq(got, &value))
    );
    scheduler.release().unwrap();
    // In `run` the closure carries it.
    let same = scheduler.run_blocking(|| Arc::ptr_eq(&value, &value.clone()), NORMAL);
    assert_eq!(same, Ok(true));
}

#[test]
fn c13_a_slot_is_held_until_released() {
    let scheduler = local(1);
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    let ran = Arc::new(AtomicU32::new(0));
    let counted = ran.clone();
    let count = move |()| {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    assert!(!scheduler.acquire_with(count, NORMAL, ()));
    // The callback returned long ago; that alone frees nothing, also not with a look.
    scheduler.look();
    assert!(scheduler.try_acquire(Priority::Highest).is_err());
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    scheduler.release().unwrap();
    until("the next started", || ran.load(Ordering::SeqCst) == 1);
    assert_eq!(scheduler.stats().running, 1);
    scheduler.release().unwrap();
}

#[test]
fn c14_x5_try_looks_at_its_own_queue_only() {
    let scheduler = local(2);
    // A winner of the lottery would bar everybody.
    scheduler.fix_draw(Some(0));
    let _held = scheduler.try_acquire(NORMAL).unwrap();
    let waiting = Task::waiting(scheduler.acquire_many(2, Priority::Low));
    let before = scheduler.stats();
    assert!(scheduler.try_acquire(Priority::Low).is_err());
    assert_eq!(scheduler.stats(), before);
    // Backlog of another priority is no reason.
    for priority in [Priority::High, NORMAL] {
        assert!(scheduler.try_acquire(priority).is_ok());
    }
    let _both = scheduler.try_acquire(Priority::High).unwrap();
    assert!(scheduler.try_acquire(Priority::High).is_err());
    let after = scheduler.stats();
    assert_eq!((after.pending, after.total), (before.pending, before.total));
    drop(waiting);
}

#[test]
fn c15_every_try_is_matched_by_a_release() {
    let scheduler = local(3);
    for expected in 1..=3 {
        std::mem::forget(scheduler.try_acquire_owned(NORMAL).unwrap());
        assert_eq!(scheduler.stats().running, expected);
    }
    let scheduler = local(3);
    let permits: Vec<_> = (0..3)
        .map(|_| scheduler.try_acquire(NORMAL).unwrap())
        .collect();
    for (left, permit) in permits.into_iter().enumerate().rev() {
        drop(permit);
        assert_eq!(scheduler.stats().running, left as u32);
    }
}

#[test]
fn c16_try_obeys_its_target() {
    let scheduler = local(Concurrency::max(100).target(Priority::Low, 20));
    let _held = scheduler.try_acquire_many(20, NORMAL).unwrap();
    assert!(scheduler.try_acquire(Priority::Low).is_err());
    assert!(scheduler.try_acquire(NORMAL).is_ok());
}

#[test]
fn c17_each_release_starts_one() {
    let scheduler = local(1);
    let started = Arc::new(AtomicU32::new(0));
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    for _ in 0..2 {
        let started = started.clone();
        let count = move |()| {
            started.fetch_add(1, Ordering::SeqCst);
        };
        assert!(!scheduler.acquire_with(count, NORMAL, ()));
    }
    for expected in 1..=2 {
        scheduler.release().unwrap();
        until("one more started", || {
            started.load(Ordering::SeqCst) == expected
        });
        assert_eq!(scheduler.stats().pending, 2 - u64::from(expected));
        assert_eq!(scheduler.stats().running, 1);
    }
    scheduler.release().unwrap();
    assert_eq!(scheduler.stats().running, 0);
}

/// Which of two queued callbacks runs first after one release; 0 is the one queued first.
fn first_of(priorities: [Priority; 2], draw: Option<u32>) -> usize {
    let scheduler = local(1);
    scheduler.fix_draw(draw);
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    let order = Arc::new(Mutex::new(Vec::new()));
    for (n, priority) in priorities.into_iter().enumerate() {
        let order = order.clone();
        let push = move |n| order.lock().unwrap().push(n);
        assert!(!scheduler.acquire_with(push, priority, n));
    }
    scheduler.release().unwrap();
    until("one ran", || !order.lock().unwrap().is_empty());
    let order = order.lock().unwrap();
    assert_eq!(order.len(), 1);
    order[0]
}

#[test]
fn c18_more_important_work_first() {
    for low in 0..7 {
        for high in low + 1..7 {
            let both = [Priority::ALL[low], Priority::ALL[high]];
            assert_eq!(first_of(both, Some(0)), 1, "{both:?}");
        }
    }
    // With the lottery still by far the most often: 123 of 127.
    let high_first: usize = (0..200)
        .map(|_| first_of([Priority::Low, Priority::High], None))
        .sum();
    assert!(high_first > 160, "{high_first} of 200");
}

/// Several workers share a pool: all finish, urgent work waits less, the lowest is not starved.
#[test]
fn c19_d8_workers_share_a_pool() {
    let shared = Shared::new(4);
    // Of the same time for all: who begins late would be served less.
    let (together, end) = (Barrier::new(12), OnceLock::new());
    let served: Vec<(u64, Duration)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|n| {
                let member = shared.member();
                let priority = [Priority::High, NORMAL, Priority::Lowest][n % 3];
                let (together, end) = (&together, &end);
                scope.spawn(move || {
                    let (mut served, mut waited) = (0, Duration::ZERO);
                    together.wait();
                    let end = *end.get_or_init(|| Instant::now() + Duration::from_millis(1_500));
                    while Instant::now() < end {
                        let begun = Instant::now();
                        let permit = member.blocking_acquire(priority).unwrap();
                        waited += begun.elapsed();
                        thread::sleep(Duration::from_micros(300));
                        drop(permit);
                        served += 1;
                    }
                    (served, waited)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let of = |kind: usize| {
        let all = || served.iter().skip(kind).step_by(3);
        let count: u64 = all().map(|one| one.0).sum();
        (
            count,
            all().map(|one| one.1).sum::<Duration>() / count.max(1) as u32,
        )
    };
    let (high, lowest) = (of(0), of(2));
    assert!(served.iter().all(|one| one.0 > 0), "{served:?}");
    assert!(
        high.1 < lowest.1 && high.0 > lowest.0,
        "{high:?} {lowest:?}"
    );
    assert_eq!(shared.member().stats().shared.unwrap().running, 0);
}

#[test]
fn c20_queues_are_local() {
    let shared = Shared::new(1);
    let (a, b) = (shared.member(), shared.member());
    let _held = a.try_acquire(NORMAL).unwrap();
    let waiting: Vec<_> = (0..5).map(|_| Task::waiting(b.acquire(NORMAL))).collect();
    assert_eq!((a.stats().pending, b.stats().pending), (0, 5));
    assert_eq!(a.stats().total.deferred, 0);
    drop(waiting);
}

#[test]
fn c21_g11_the_fast_path_never_queues() {
    let scheduler = local(2);
    for n in 0..100 {
        scheduler.run_blocking(|| (), Priority::ALL[n % 7]).unwrap();
        futures_executor::block_on(scheduler.run(|| async {}, NORMAL)).unwrap();
    }
    assert_eq!(scheduler.stats().total, Default::default());
}

/// The order is that of all processes: who releases does not serve its own first.
#[test]
fn x40_the_order_is_global() {
    let shared = Shared::new(1);
    let (a, b) = (shared.member(), shared.member());
    a.fix_draw(Some(0));
    for (own, other, own_first) in [
        (NORMAL, Priority::High, false),
        (NORMAL, NORMAL, false),
        (Priority::High, NORMAL, true),
    ] {
        undisturbed(|| {
            let held = a.try_acquire(NORMAL).unwrap();
            let theirs = Task::waiting(b.acquire(other));
            let ran = Arc::new(AtomicU32::new(0));
            let (counted, releases) = (ran.clone(), a.clone());
            let callback = move |()| {
                counted.fetch_add(1, Ordering::SeqCst);
                releases.release().unwrap();
            };
            assert!(!a.acquire_with(callback, own, ()));
            let freed = Instant::now();
            drop(held);
            let permit = theirs.finish().unwrap();
            let ran_first = ran.load(Ordering::SeqCst) == 1;
            let judged = none_was_passed_over(freed);
            assert!(
                ran_first == own_first || !judged,
                "{own} and {other}: {ran_first}"
            );
            drop(permit);
            until("both were served", || ran.load(Ordering::SeqCst) == 1);
            until("all is free", || a.available_permits() == 1);
            judged
        });
    }
}

/// Within a priority members that queue many take turns with the others.
#[test]
fn order_members_take_turns() {
    undisturbed(|| {
        let shared = Shared::new(1);
        let (floods, modest, holds) = (shared.member(), shared.member(), shared.member());
        let mut held = Some(holds.try_acquire(NORMAL).unwrap());
        let mut flood: Vec<_> = (0..50)
            .map(|_| Task::waiting(floods.acquire(NORMAL)))
            .collect();
        let mut few: Vec<_> = (0..2)
            .map(|_| Task::waiting(modest.acquire(NORMAL)))
            .collect();
        let mut order = String::new();
        while order.len() < 6 {
            let freed = Instant::now();
            drop(held.take());
            let before = order.len();
            until("somebody is served", || {
                for (name, tasks) in [('f', &mut flood), ('m', &mut few)] {
                    let called = tasks.iter_mut().position(|task| task.bell.wakes() > 0);
                    let Some(at) = called.filter(|_| held.is_none()) else {
                        continue;
                    };
                    if let Some(permit) = tasks[at].poll() {
                        held = Some(permit.unwrap());
                        order.push(name);
                        drop(tasks.remove(at));
                    }
                }
                order.len() > before
            });
            if !none_was_passed_over(freed) {
                return false;
            }
        }
        assert_eq!(order, "fmfmff");
        true
    });
}
