//! The Pacer, by the ids of group P. What must not happen too early is asserted tightly, what must happen in the end loosely.

use crate::calm::{calm, holds_for, scene, waits};
use crate::support::{FOREVER, MEANT, Task, alone, ends, panics_of, until, watch_panics};
use shmsched::{
    AcquireError, Changes, CreateError, InvalidSettings, Location, Pacer, PacerStats, QueueFull,
    Segment, Settings, StartError, TryStartError,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn pacer(interval_ms: u64, max_waiting: u32) -> Pacer {
    Pacer::local(ms(interval_ms), max_waiting).unwrap()
}

/// For so long a turn is kept: 250 ms, by a clock that goes in steps of 10 ms.
const GRACE: Duration = ms(200);

/// One that has just started something, so that everybody has to wait.
pub fn busy(interval_ms: u64, max_waiting: u32) -> Pacer {
    let pacer = pacer(interval_ms, max_waiting);
    pacer.try_start().unwrap();
    pacer
}

/// Stamps lie an interval apart. Each was taken a moment after its start, so one that was delayed shortens the next gap:
/// that is forgiven once, and in part. By who stood still in that moment it says nothing: the scene is played again. What
/// nobody can shorten who stands still is the whole, from before the first start of the Pacer until after the last.
#[track_caller]
pub fn assert_apart(pacer: &Pacer, begun: Instant, stamps: &[Instant], interval: Duration) {
    let mut stamps = stamps.to_vec();
    stamps.sort_unstable();
    let whole = *stamps.last().unwrap() - begun;
    let least = interval * (pacer.stats().started as u32 - 1);
    assert!(whole + ms(1) >= least, "{whole:?}, not {least:?}");
    let gaps: Vec<_> = stamps.windows(2).map(|two| two[1] - two[0]).collect();
    let short = |by: Duration| gaps.iter().filter(|gap| **gap + by < interval).count();
    let apart = short(Duration::from_micros(200)) <= 1 && short(interval / 3) == 0;
    if !apart {
        // For whom it never comes off.
        println!("not {interval:?} apart: {gaps:?}");
    }
    calm(apart);
}

#[test]
fn p1_p8_two_executions_share_the_interval() {
    scene(|| {
        let begun = Instant::now();
        let pacer = pacer(15, 8);
        let stamps = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..6 {
                        pacer.blocking_start().unwrap();
                        stamps.lock().unwrap().push(Instant::now());
                    }
                });
            }
        });
        let stamps = stamps.into_inner().unwrap();
        assert_eq!(stamps.len(), 12);
        assert_apart(&pacer, begun, &stamps, ms(15));
    });
}

#[test]
fn p2_p4_the_interval_in_milliseconds() {
    let refused = |interval: f64, waiting: f64| match Pacer::local_ms(interval, waiting) {
        Err(CreateError::Invalid(error)) => error,
        other => panic!("{interval} {waiting}: {other:?}"),
    };
    for interval in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        // Also with a count that is wrong too: the interval comes first.
        for waiting in [8.0, -1.0] {
            let error = refused(interval, waiting);
            assert_eq!(error, InvalidSettings::IntervalMs);
            assert_eq!(error.to_string(), "intervalMs must be finite and positive");
        }
    }
    let longest = Settings::LONGEST_INTERVAL;
    for (given, interval) in [
        (0.5, Duration::from_micros(500)),
        (1.1, Duration::from_micros(1_100)),
        (100.0, ms(100)),
        (5e-324, Duration::from_nanos(1)),
        (f64::MAX, longest),
        (1e308, longest),
    ] {
        let pacer = Pacer::local_ms(given, 8.0).unwrap();
        assert_eq!(pacer.interval(), interval, "{given}");
        pacer.try_start().unwrap();
        if interval < ms(1) {
            (0..50).for_each(|_| pacer.blocking_start().unwrap());
        }
    }
    let error = Pacer::local(Duration::ZERO, 8).unwrap_err();
    assert!(matches!(
        error,
        CreateError::Invalid(InvalidSettings::Interval { .. })
    ));
    let huge = Pacer::local(Duration::MAX, 8).unwrap();
    assert_eq!(huge.interval(), Settings::LONGEST_INTERVAL);
}

#[test]
fn p3_x46_the_count_is_any_safe_integer() {
    let settings = |waiting: f64| Settings::new().pacing_ms(100.0, waiting);
    for waiting in [
        -1.0,
        1.5,
        f64::NAN,
        f64::INFINITY,
        9_007_199_254_740_992.0,
        -f64::INFINITY,
    ] {
        let error = settings(waiting).unwrap_err();
        assert_eq!(error, InvalidSettings::SafeInteger, "{waiting}");
        let text = "maxWaiting must be a non-negative safe integer";
        assert_eq!(error.to_string(), text);
    }
    for waiting in [0.0, -0.0, 8.0, 65_536.0] {
        let settings = settings(waiting).unwrap();
        assert_eq!(settings.max_waiting, waiting as u32);
        assert_eq!(settings.validate(), Ok(()));
    }
    // A safe integer, but more than there are places: another error, and not that of a full queue.
    for given in [65_537, (1 << 53) - 1] {
        let error = settings(given as f64).unwrap_err();
        assert_eq!(error, InvalidSettings::MaxWaiting { given });
        assert!(error.to_string().contains(&given.to_string()));
    }
    let most = Pacer::local(ms(1), 65_536).unwrap();
    most.blocking_start().unwrap();
}

#[test]
fn p5_queue_full_is_an_error_of_its_own() {
    let pacer = busy(60_000, 0);
    let error = pacer.blocking_start().unwrap_err();
    assert_eq!(error, StartError::QueueFull(QueueFull));
    let text = "Shared limiter waiting queue is full";
    assert_eq!(
        (error.to_string(), QueueFull.to_string()),
        (text.into(), text.into())
    );
    let boxed: Box<dyn Error> = Box::new(QueueFull);
    assert!(boxed.is::<QueueFull>());
}

#[test]
fn p6_the_outcome_comes_through_the_future() {
    let pacer = pacer(60_000, 0);
    assert_eq!(
        Task::new(pacer.run(|| async { "value" })).poll(),
        Some(Ok("value"))
    );
    // Nothing happens before it is polled, and the failure is its output.
    let full = pacer.run(|| async { "value" });
    assert_eq!(pacer.stats().rejected, 0);
    assert_eq!(Task::new(full).poll(), Some(Err(QueueFull.into())));
    // What the operation yields is not looked at.
    let pacer = self::pacer(60_000, 0);
    let outcome: Result<Result<(), &str>, _> = Task::new(pacer.run(|| async { Err("its own") }))
        .poll()
        .unwrap();
    assert_eq!(outcome, Ok(Err("its own")));
}

#[test]
fn p7_the_first_starts_at_once() {
    let begun = Instant::now();
    Pacer::local(Settings::LONGEST_INTERVAL, 0)
        .unwrap()
        .blocking_start()
        .unwrap();
    assert!(begun.elapsed() < ms(500), "{:?}", begun.elapsed());
}

/// Idle time is not saved up, however long it was.
#[test]
fn p9_no_credit_for_idle_time() {
    scene(|| {
        let pacer = busy(15, 8);
        thread::sleep(ms(150));
        let mut stamps = Vec::new();
        let begun = Instant::now();
        for _ in 0..3 {
            pacer.blocking_start().unwrap();
            stamps.push(Instant::now());
        }
        // The one before the pause was an interval before the first of these, at least.
        assert_apart(&pacer, begun - ms(15), &stamps, ms(15));
        assert!(stamps[2] - begun >= ms(29), "{:?}", stamps[2] - begun);
    });
}

/// Several wait, and the first is late by some intervals: the others do not catch up (case 18).
#[test]
fn p10_p12_p36_a_late_start_moves_the_next() {
    scene(|| {
        let begun = Instant::now();
        let pacer = busy(40, 8);
        let mut late = waits(pacer.start());
        let mut next = waits(pacer.start());
        let last = waits(pacer.start());
        late.bell.wait_past(0);
        // Its turn came; its caller resumes three intervals later, within the grace.
        thread::sleep(ms(120));
        // A newcomer does not overtake it.
        let newcomer = waits(pacer.start());
        holds_for(
            begun,
            GRACE,
            pacer.try_start() == Err(TryStartError::NotYet),
        );
        holds_for(begun, GRACE, next.poll().is_none());
        let resumed = Instant::now();
        late.poll().expect("it is its turn").unwrap();
        let mut stamps = vec![resumed];
        // No burst.
        holds_for(resumed, ms(40), next.poll().is_none());
        for task in [next, last, newcomer] {
            task.finish().unwrap();
            stamps.push(Instant::now());
        }
        assert_apart(&pacer, begun, &stamps, ms(40));
    });
}

/// A blocked executor is a late caller too: in-process stamps, as in case 18.
#[test]
fn p10_a_blocked_executor() {
    scene(|| {
        let begun = Instant::now();
        let pacer = busy(30, 8);
        let stamps = Arc::new(Mutex::new(Vec::new()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let tasks: Vec<_> = (0..5)
            .map(|_| {
                let (pacer, stamps) = (pacer.clone(), stamps.clone());
                runtime.spawn(async move {
                    let stamp = || async { stamps.lock().unwrap().push(Instant::now()) };
                    pacer.run(stamp).await.unwrap();
                })
            })
            .collect();
        runtime.block_on(async {
            tokio::task::yield_now().await;
            thread::sleep(ms(200));
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_apart(&pacer, begun, &stamps.lock().unwrap(), ms(30));
    });
}

/// Woken early, however often, nobody starts before it is time (case 53).
#[test]
fn p11_early_wakes_look_again() {
    scene(|| {
        let begun = Instant::now();
        let pacer = busy(60, 8);
        let mut task = waits(pacer.start());
        let thread = {
            let pacer = pacer.clone();
            thread::spawn(move || {
                pacer.blocking_start().unwrap();
                Instant::now()
            })
        };
        let mut both = false;
        until("both wait, or one has passed the other", || {
            both = pacer.stats().waiting == 2;
            both || thread.is_finished()
        });
        calm(both);
        let started = loop {
            thread.thread().unpark();
            if task.poll().is_some() {
                break Instant::now();
            }
            thread::yield_now();
        };
        assert!(started - begun >= ms(60), "{:?}", started - begun);
        while !thread.is_finished() {
            thread.thread().unpark();
            thread::yield_now();
        }
        let stamps = [started, thread.join().unwrap()];
        assert_apart(&pacer, begun, &stamps, ms(60));
    });
}

/// The source spends a start on a call that is cancelled between its grant and its operation. Here a turn is no start yet:
/// it goes to the next, at once.
#[test]
fn p13_cancelled_after_its_turn_came() {
    scene(|| {
        let pacer = busy(60, 8);
        let called = waits(pacer.start());
        let next = waits(pacer.start());
        called.bell.wait_past(0);
        let cancelled = Instant::now();
        drop(called);
        next.finish().unwrap();
        calm(cancelled.elapsed() < ms(50));
        assert_eq!(pacer.stats().started, 2);
    });
}

/// Nobody starts in place of one whose turn came and who has not resumed, for the grace of 250 ms.
#[test]
fn p14_a_turn_is_kept_for_a_while() {
    scene(|| {
        let begun = Instant::now();
        let pacer = busy(10, 8);
        let mut called = waits(pacer.start());
        let mut next = waits(pacer.start());
        called.bell.wait_past(0);
        let since = Instant::now();
        while since.elapsed() < ms(120) {
            let passed = next.poll().is_some() || pacer.try_start().is_ok();
            // Who stood still until the grace was over could not see it kept.
            holds_for(begun, GRACE, !passed);
            thread::sleep(ms(2));
        }
        called.poll().expect("its turn was kept").unwrap();
        next.finish().unwrap();
        assert_eq!(pacer.stats().started, 3);
    });
}

/// And it does not hold up the others for ever.
#[test]
fn p14_one_that_never_resumes_is_passed_over() {
    scene(|| {
        let pacer = busy(10, 8);
        let silent = waits(pacer.start());
        silent.bell.wait_past(0);
        let next = waits(pacer.start());
        let since = Instant::now();
        next.finish().unwrap();
        calm(since.elapsed() < ms(1_500));
        // It kept its place.
        assert_eq!(pacer.stats().waiting, 1);
        silent.finish().unwrap();
    });
}

#[test]
fn p15_what_a_start_at_once_needs() {
    scene(|| {
        // It is not time.
        let (begun, interval) = (Instant::now(), ms(30));
        let pacer = busy(30, 8);
        let refused = |pacer: &Pacer| pacer.try_start() == Err(TryStartError::NotYet);
        holds_for(begun, interval, refused(&pacer));
        // It is, but somebody waits.
        let mut first = waits(pacer.start());
        first.bell.wait_past(0);
        assert_eq!(pacer.stats().next_start_in, Duration::ZERO);
        holds_for(begun, GRACE, refused(&pacer));
        let started = Instant::now();
        first.poll().unwrap().unwrap();
        holds_for(started, interval, refused(&pacer));
        // Neither.
        until("time passes", || pacer.try_start().is_ok());
    });
}

#[test]
fn p16_p19_p20_no_waiting_at_all() {
    scene(|| {
        let begun = Instant::now();
        let pacer = pacer(40, 0);
        let barrier = Barrier::new(2);
        let results: Vec<_> = thread::scope(|scope| {
            let call = || {
                barrier.wait();
                let begun = Instant::now();
                (pacer.blocking_start(), begun)
            };
            [scope.spawn(call), scope.spawn(call)]
                .map(|thread| thread.join().unwrap())
                .into()
        });
        let started: Vec<_> = results
            .iter()
            .filter(|(result, _)| result.is_ok())
            .collect();
        assert!(!started.is_empty(), "{results:?}");
        // Unless one stood still for the interval.
        holds_for(begun, ms(40), started.len() == 1);
        let refused = results.iter().find_map(|(result, _)| result.clone().err());
        assert_eq!(refused, Some(QueueFull.into()));
        // Not before the interval is over, and then again; a full queue has not put it off.
        let since = started[0].1;
        loop {
            match Task::new(pacer.start()).poll().expect("it never waits") {
                Ok(()) => break,
                Err(error) => assert_eq!(error, QueueFull.into()),
            }
            assert!(since.elapsed() < FOREVER);
        }
        assert!(since.elapsed() >= ms(40), "{:?}", since.elapsed());
    });
}

#[test]
fn p17_p18_how_many_may_wait() {
    for most in [1, 2, 8] {
        let pacer = pacer(60_000, most);
        // The one that has started does not count.
        pacer.blocking_start().unwrap();
        let waiting: Vec<_> = (0..most).map(|_| Task::waiting(pacer.start())).collect();
        for _ in 0..3 {
            assert_eq!(Task::new(pacer.start()).poll(), Some(Err(QueueFull.into())));
            assert_eq!(pacer.blocking_start(), Err(QueueFull.into()));
        }
        let stats = pacer.stats();
        assert_eq!((stats.waiting, stats.rejected), (u64::from(most), 6));
        drop(waiting);
        assert_eq!(pacer.stats().waiting, 0);
    }
}

/// One that holds what others wait for finds a place beyond them, one at a time.
#[test]
fn a_holder_finds_a_place() {
    scene(|| {
        let pacer = busy(40, 1);
        let first = waits(pacer.start());
        let holder = waits(pacer.start_holding_until(FOREVER));
        let another = Task::new(pacer.start_holding_until(FOREVER)).poll();
        assert_eq!(another, Some(Err(QueueFull.into())));
        first.finish().unwrap();
        holder.finish().unwrap();
    });
}

/// Tasks and threads, and deadlines among them.
#[test]
fn p21_first_come_first_served() {
    scene(|| {
        let pacer = busy(60, 16);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        let mut tasks = Vec::new();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        for n in 0..8u64 {
            let (pacer_of_it, order) = (pacer.clone(), order.clone());
            if n % 2 == 0 {
                threads.push(thread::spawn(move || {
                    pacer_of_it.blocking_start_until(FOREVER).unwrap();
                    order.lock().unwrap().push(n);
                }));
            } else {
                tasks.push(runtime.spawn(async move {
                    pacer_of_it
                        .run(|| async { order.lock().unwrap().push(n) })
                        .await
                        .unwrap();
                }));
            }
            // Or has started already, on a slow machine.
            until("it waits", || {
                let stats = pacer.stats();
                stats.started - 1 + stats.waiting == n + 1
            });
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        tasks
            .into_iter()
            .for_each(|task| runtime.block_on(task).unwrap());
        let order = order.lock().unwrap();
        // Unless one stood still before it noted its number.
        calm(order.is_sorted());
        assert_eq!(*order, (0..8).collect::<Vec<_>>());
    });
}

#[test]
fn p22_a_retry_joins_the_tail() {
    scene(|| {
        let pacer = busy(50, 8);
        let order = Mutex::new(Vec::new());
        let call = |name| {
            let order = &order;
            pacer.run(move || async move { order.lock().unwrap().push(name) })
        };
        let a = waits(async {
            call("a").await.unwrap();
            call("a again").await.unwrap();
        });
        let b = waits(call("b"));
        let c = waits(call("c"));
        let mut a = a;
        a.bell.wait_past(0);
        until("a starts and asks again", || {
            calm(a.poll().is_none());
            !order.lock().unwrap().is_empty()
        });
        b.finish().unwrap();
        c.finish().unwrap();
        // It may have been woken before.
        a.poll().unwrap_or_else(|| a.finish());
        assert_eq!(*order.lock().unwrap(), ["a", "b", "c", "a again"]);
    });
}

/// Head, middle and tail leave; the others keep their order, and none is left asleep (case 8).
#[test]
fn p23_who_leaves_disturbs_nobody() {
    for leaves in [
        vec![0],
        vec![1],
        vec![3],
        vec![0, 1],
        vec![1, 2],
        vec![0, 2, 3],
    ] {
        scene(|| {
            // Before the first of them was called.
            let mut since = Instant::now();
            let pacer = busy(25, 4);
            let mut queue: Vec<_> = (0..4).map(|n| (n, waits(pacer.start()))).collect();
            queue.retain(|(n, _)| !leaves.contains(n));
            assert_eq!(pacer.stats().waiting, queue.len() as u64);
            assert_eq!(pacer.stats().cancelled, leaves.len() as u64);
            while !queue.is_empty() {
                for (n, task) in queue[1..].iter_mut().rev() {
                    let passed = task.poll().is_some();
                    if passed {
                        println!("{n} passed");
                    }
                    holds_for(since, GRACE, !passed);
                }
                since = Instant::now();
                queue.remove(0).1.finish().unwrap();
            }
            let stats = pacer.stats();
            assert_eq!(stats.waiting, 0);
            assert_eq!(stats.started, 1 + 4 - leaves.len() as u64);
        });
    }
}

/// By a deadline instead, of a thread and of a task.
#[test]
fn a_deadline_leaves_the_queue() {
    scene(|| {
        let pacer = busy(150, 8);
        let begun = Instant::now();
        let timed_out = Err(StartError::Failed(AcquireError::TimedOut));
        let thread = {
            let pacer = pacer.clone();
            thread::spawn(move || pacer.blocking_start_until(ms(20)))
        };
        // The deadline may be over before it is polled.
        let mut task = Task::new(pacer.start_until(ms(20)));
        let ended = task.poll();
        let stays = waits(pacer.start());
        calm(ended.unwrap_or_else(|| task.finish()) == timed_out);
        calm(thread.join().unwrap() == timed_out);
        assert!(begun.elapsed() >= ms(20));
        assert_eq!(pacer.stats().waiting, 1);
        stays.finish().unwrap();
        // In the past: not even tried for long.
        calm(Task::new(pacer.start_until(Instant::now())).poll() == Some(timed_out));
    });
}

/// What becomes of the operation does not matter.
#[test]
fn p27_p28_a_start_is_spent() {
    watch_panics();
    for ends_by in [
        "failing",
        "a panic at once",
        "a panic later",
        "drop before",
        "drop amid",
    ] {
        scene(|| {
            let at_once = || panics_of(&format!("{MEANT}at once")).len();
            let seen = at_once();
            let pacer = pacer(40, 8);
            let begun = Instant::now();
            match ends_by {
                "failing" => {
                    let failed = Task::new(pacer.run(|| async { Err::<(), _>("no") })).poll();
                    assert_eq!(failed, Some(Ok(Err("no"))));
                }
                "a panic at once" => {
                    let panics = || -> std::future::Ready<()> { panic!("{MEANT}at once") };
                    let task = std::panic::AssertUnwindSafe(|| Task::new(pacer.run(panics)).poll());
                    assert!(std::panic::catch_unwind(task).is_err());
                    assert_eq!(at_once(), seen + 1);
                }
                "a panic later" => {
                    let panics = || async { panic!("{MEANT}at its first poll") };
                    let task = std::panic::AssertUnwindSafe(|| {
                        Task::<Result<(), _>>::new(pacer.run(panics)).poll()
                    });
                    assert!(std::panic::catch_unwind(task).is_err());
                }
                "drop before" => {
                    // Never polled: it never asked, so nothing is spent.
                    drop(pacer.run(|| async {}));
                    pacer.try_start().unwrap();
                }
                _ => drop(Task::waiting(pacer.run(std::future::pending::<()>))),
            }
            let next = waits(pacer.start());
            next.finish().unwrap();
            assert!(
                begun.elapsed() >= ms(40),
                "{ends_by}: {:?}",
                begun.elapsed()
            );
            assert_eq!(pacer.stats().started, 2, "{ends_by}");
        });
    }
}

/// A panic in an operation that had waited, with others behind it.
#[test]
fn p28_a_panic_holds_up_nobody() {
    scene(|| {
        watch_panics();
        let pacer = busy(30, 8);
        let panics = || -> std::future::Ready<()> { panic!("{MEANT}with others behind") };
        let mut first = Task::new(pacer.run(panics));
        // It panics here if its time came before it was polled.
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| first.poll()));
        calm(matches!(polled, Ok(None)));
        let task = waits(pacer.start());
        let thread = {
            let pacer = pacer.clone();
            thread::spawn(move || pacer.blocking_start())
        };
        let mut all = false;
        until("all wait, or one has passed the others", || {
            all = pacer.stats().waiting == 3;
            all || thread.is_finished()
        });
        calm(all);
        first.bell.wait_past(0);
        let panicked = Instant::now();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| first.poll())).is_err());
        task.finish().unwrap();
        assert!(panicked.elapsed() >= ms(30), "{:?}", panicked.elapsed());
        ends("the thread behind", move || thread.join().unwrap().unwrap());
    });
}

#[test]
fn p29_operations_overlap() {
    scene(|| {
        let pacer = pacer(30, 8);
        let begun = Instant::now();
        let endless = Task::waiting(pacer.run(std::future::pending::<()>));
        let mut second = Task::waiting(pacer.run(std::future::pending::<()>));
        until("the second starts", || {
            assert!(second.poll().is_none());
            pacer.stats().started == 2
        });
        assert!(begun.elapsed() >= ms(30));
        let third = waits(pacer.run(|| async {})).finish();
        assert_eq!(third, Ok(()));
        drop((endless, second));
    });
}

/// Called, and its future polled, within the poll that took the start.
#[test]
fn p30_an_operation_begins_at_its_start() {
    scene(|| {
        let pacer = busy(20, 8);
        let (called, polled) = (AtomicU32::new(0), AtomicU32::new(0));
        let mut task = waits(pacer.run(|| {
            called.fetch_add(1, Ordering::Relaxed);
            std::future::poll_fn(|_| {
                polled.fetch_add(1, Ordering::Relaxed);
                std::task::Poll::<()>::Pending
            })
        }));
        calm(called.load(Ordering::Relaxed) == 0);
        until("it starts", || {
            assert!(task.poll().is_none());
            called.load(Ordering::Relaxed) == 1
        });
        assert_eq!(polled.load(Ordering::Relaxed), 1);
    });
}

/// With the queue empty nobody looks at a clock: the helper sleeps until it is rung.
#[test]
fn p31_no_timer_is_left() {
    alone("pacer::p31_no_timer_is_left", || {
        // Its name comes with it, a moment after it was started.
        let helper = || {
            let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
            tasks.map(|task| task.path()).find(|task| {
                let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
                name.trim() == "shmsched-wait"
            })
        };
        let switches = || -> u64 {
            let status = fs::read_to_string(helper().unwrap().join("status")).unwrap();
            let line = status
                .lines()
                .find(|line| line.starts_with("voluntary_ctxt"));
            let count = line.unwrap().split_whitespace().nth(1);
            count.unwrap().parse().unwrap()
        };
        let _pacer = scene(|| {
            let pacer = busy(30, 8);
            drop(waits(pacer.start()));
            pacer
        });
        until("it is there", || helper().is_some());
        let mut seen = switches();
        until("it sleeps", || {
            thread::sleep(ms(50));
            let before = std::mem::replace(&mut seen, switches());
            before == seen
        });
        // Longer than the interval, and than any watch of who stands first.
        thread::sleep(ms(1_000));
        assert_eq!(switches(), seen, "the helper has looked up");
    });
}

#[test]
fn p34_huge_intervals() {
    for interval in [1e308, 3e9] {
        let pacer = Pacer::local_ms(interval, 8.0).unwrap();
        pacer.blocking_start().unwrap();
        let timed_out = Err(StartError::Failed(AcquireError::TimedOut));
        assert_eq!(pacer.blocking_start_until(ms(20)), timed_out);
        // The deadline may be over before it is polled.
        let mut task = Task::new(pacer.start_until(ms(20)));
        let ended = task.poll();
        assert_eq!(ended.unwrap_or_else(|| task.finish()), timed_out);
        assert!(pacer.stats().next_start_in > Duration::from_secs(2_999_000));
        // Nothing overflows when it waits without an end, or is asked for the time.
        let mut endless = Task::waiting(pacer.start_until(Duration::MAX));
        assert!(endless.poll().is_none());
        assert_eq!(pacer.stats().waiting, 1);
    }
}

/// A head that leaves when it was due already: its successor goes at once, not an interval later.
#[test]
fn p35_a_due_successor_goes_at_once() {
    scene(|| {
        let pacer = busy(100, 8);
        let head = waits(pacer.start());
        let next = waits(pacer.start());
        head.bell.wait_past(0);
        thread::sleep(ms(20));
        let left = Instant::now();
        drop(head);
        next.finish().unwrap();
        calm(left.elapsed() < ms(80));
    });
}

/// One that was not due: its successor, of its member or of another, or who comes instead of it, starts when it would have
/// (case 55).
#[test]
fn p35_the_time_is_not_put_off() {
    for comes in ["behind it", "behind it in another member", "instead of it"] {
        scene(|| {
            let directory = tempfile::tempdir().unwrap();
            let location = Location::File(directory.path().join("segment"));
            let begun = Instant::now();
            let settings = Settings::new().interval(ms(100)).members(4);
            Segment::make(&location, &settings).unwrap();
            let member = || Segment::open(&location).unwrap().pacer().unwrap();
            let (own, other) = (member(), member());
            own.try_start().unwrap();
            let head = waits(own.start());
            let behind = match comes {
                "behind it" => Some(waits(own.start())),
                "behind it in another member" => Some(waits(other.start())),
                _ => None,
            };
            thread::sleep(ms(60));
            drop(head);
            let next = behind.unwrap_or_else(|| waits(own.start()));
            next.finish().unwrap();
            assert!(begun.elapsed() >= ms(100));
            // Not an interval from when the head left.
            let soon = begun.elapsed() < ms(160);
            if !soon {
                println!("{comes}: {:?}", begun.elapsed());
            }
            calm(soon);
        });
    }
}

/// The head could go but has not resumed, and the queue is full: a newcomer is refused all the same.
#[test]
fn p37_x36_a_refusal_promotes_nobody() {
    scene(|| {
        let pacer = busy(20, 1);
        let mut head = waits(pacer.start());
        head.bell.wait_past(0);
        assert_eq!(pacer.stats().next_start_in, Duration::ZERO);
        assert_eq!(Task::new(pacer.start()).poll(), Some(Err(QueueFull.into())));
        assert_eq!(pacer.stats().started, 1);
        head.poll().unwrap().unwrap();
    });
}

#[test]
fn p38_a_call_within_an_operation_is_not_immediate() {
    scene(|| {
        // Within its synchronous part.
        let pacer = pacer(30, 0);
        let nested = Task::new(pacer.run(|| {
            let nested = Task::new(pacer.run(|| async {})).poll();
            async move { nested }
        }));
        calm({ nested }.poll() == Some(Ok(Some(Err(QueueFull.into())))));
        // With room to wait it starts an interval later.
        let pacer = self::pacer(30, 1);
        let begun = Instant::now();
        let nested = waits(pacer.run(|| pacer.run(|| async { begun.elapsed() })));
        let took = nested.finish().unwrap().unwrap();
        assert!(took >= ms(30), "{took:?}");
    });
}

/// One that blocks within its operation, with another thread before it in the queue: both get on.
#[test]
fn p38_a_blocking_call_within_an_operation() {
    let pacer = busy(20, 8);
    let first = {
        let pacer = pacer.clone();
        thread::spawn(move || {
            let nested = pacer.run(|| std::future::ready(pacer.blocking_start()));
            futures_executor::block_on(nested).unwrap().unwrap();
        })
    };
    until("the first waits, or is through", || {
        pacer.stats().waiting == 1 || first.is_finished()
    });
    let second = {
        let pacer = pacer.clone();
        thread::spawn(move || pacer.blocking_start().unwrap())
    };
    ends("both", move || {
        first.join().unwrap();
        second.join().unwrap();
    });
    assert_eq!(pacer.stats().started, 4);
}

fn sources(of: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(of)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => drop(found.insert(
                    path.display().to_string(),
                    fs::read_to_string(path).unwrap_or_default(),
                )),
            }
        }
    }
    assert!(!found.is_empty());
    found
}

/// Nothing in the library reads a clock that can be set.
#[test]
fn p39_the_clock_is_monotonic() {
    for (file, text) in sources("src") {
        for clock in ["SystemTime", "ClockId::Realtime", "CLOCK_REALTIME"] {
            assert!(!text.contains(clock), "{file} names {clock}");
        }
    }
}

/// Its folder stands on the same layers as the other gates, not on them.
#[test]
fn p47_a_module_of_its_own() {
    for (file, text) in sources("src/pacer") {
        for line in text.lines().filter(|line| !line.trim().starts_with("//")) {
            for other in ["crate::scheduler", "crate::limiter"] {
                assert!(!line.contains(other), "{file}: {line}");
            }
        }
    }
}

#[test]
fn p48_a_refusal_leaves_no_trace() {
    scene(|| {
        let pacer = busy(40, 1);
        let stands = waits(pacer.start());
        for _ in 0..500 {
            assert_eq!(
                Task::new(pacer.run(|| async {})).poll(),
                Some(Err(QueueFull.into()))
            );
            assert_eq!(pacer.blocking_start(), Err(QueueFull.into()));
        }
        let stats = pacer.stats();
        assert_eq!(
            (stats.rejected, stats.waiting, stats.deferred),
            (1_000, 1, 1)
        );
        stands.finish().unwrap();
        // The place is free, once.
        let stands = waits(pacer.start());
        assert_eq!(Task::new(pacer.start()).poll(), Some(Err(QueueFull.into())));
        stands.finish().unwrap();
    });
}

/// Who waits is told of a shorter interval: its watch would be after 300 ms.
#[test]
fn a_new_interval_is_noticed_by_who_waits() {
    scene(|| {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::File(directory.path().join("segment"));
        let settings = Settings::new().interval(Duration::from_secs(3_600));
        let segment = Segment::create(&location, &settings).unwrap();
        let pacer = segment.pacer().unwrap();
        pacer.try_start().unwrap();
        let begun = Instant::now();
        let task = Task::waiting(pacer.start());
        // Until the thread that is to wake it sleeps.
        thread::sleep(ms(30));
        let set = Instant::now();
        segment.set(&Changes::new().interval(ms(60))).unwrap();
        task.finish().unwrap();
        assert!(set.elapsed() >= ms(60), "before its time");
        calm(begun.elapsed() < ms(200));
    });
}

/// Each instance counts what it did itself; the time of the next start is the segment's.
#[test]
fn stats_are_of_one_instance() {
    scene(|| {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::File(directory.path().join("segment"));
        let settings = Settings::new().interval(ms(25)).max_waiting(2).members(4);
        Segment::make(&location, &settings).unwrap();
        let member = || Segment::open(&location).unwrap().pacer().unwrap();
        let (a, b) = (member(), member());
        assert_eq!(a.stats(), PacerStats::default());
        a.try_start().unwrap();
        let (first, second) = (waits(b.start()), waits(b.start()));
        assert_eq!(a.blocking_start(), Err(QueueFull.into()));
        let next_start_in = b.stats().next_start_in;
        calm(next_start_in > Duration::ZERO);
        assert!(next_start_in <= ms(25));
        let plain = |pacer: &Pacer| {
            let stats = pacer.stats();
            assert_eq!(
                stats.deferred,
                stats.completed + stats.cancelled + stats.waiting
            );
            (
                stats.started,
                stats.rejected,
                stats.waiting,
                stats.completed,
                stats.cancelled,
            )
        };
        assert_eq!(plain(&a), (1, 1, 0, 0, 0));
        assert_eq!(plain(&b), (0, 0, 2, 0, 0));
        first.finish().unwrap();
        drop(second);
        assert_eq!(plain(&b.clone()), (1, 0, 0, 1, 1));
        // The slot's next owner begins at zero, on whatever thread.
        drop(b);
        let c = member();
        assert_eq!(plain(&c), (0, 0, 0, 0, 0));
        until("a start", || c.try_start().is_ok());
        assert_eq!(plain(&c), (1, 0, 0, 0, 0));
        let before = c.stats();
        until("another", || c.try_start().is_ok());
        assert_eq!(before.started, 1, "a snapshot");
        assert_eq!(plain(&a), (1, 1, 0, 0, 0));
    });
}
