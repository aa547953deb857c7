//! Group E: release, dispose, close, and what errors say.

use crate::support::{
    FOREVER, MEANT, NORMAL, Shared, Task, alone, child, ends, local, panics_of, told, until,
    watch_panics,
};
use shmsched::{
    AcquireError, Changes, Concurrency, Location, NothingHeld, Priority, Segment, TryAcquireError,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

fn running(scheduler: &shmsched::Scheduler) -> u32 {
    scheduler.stats().shared.unwrap().running
}

#[test]
fn e1_e2_e3_a_panic_within_the_call() {
    watch_panics();
    let scheduler = local(2);
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    let meant = format!("{MEANT}e3");
    let caught = catch_unwind(AssertUnwindSafe(|| {
        scheduler.acquire_with(|text: String| panic!("{text}"), NORMAL, meant.clone())
    }));
    // The payload is the callback's own.
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&meant));
    assert_eq!(panics_of(&meant).len(), 1);
    assert_eq!(scheduler.stats().running, 1);
    // Exactly one slot is free.
    let free = scheduler.try_acquire(NORMAL).unwrap();
    assert!(scheduler.try_acquire(NORMAL).is_err());
    drop(free);
    scheduler.release().unwrap();
    assert_eq!(scheduler.release(), Err(NothingHeld));
}

/// From a queued callback it ends at the panic hook; who released sees nothing and the next ones run.
#[test]
fn e4_a_panic_of_a_queued_callback() {
    watch_panics();
    let scheduler = local(1);
    let meant = format!("{MEANT}e4");
    let ran = Arc::new(AtomicU32::new(0));
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    for n in 0..5 {
        let (ran, own, text) = (ran.clone(), scheduler.clone(), meant.clone());
        let callback = move |()| {
            ran.fetch_add(1, Ordering::SeqCst);
            assert!(n % 2 != 0, "{text}");
            own.release().unwrap();
        };
        assert!(!scheduler.acquire_with(callback, NORMAL, ()));
    }
    scheduler.release().unwrap();
    until("all ran", || ran.load(Ordering::SeqCst) == 5);
    until("all came back", || scheduler.available_permits() == 1);
    assert_eq!(panics_of(&meant).len(), 3);
    assert_eq!(scheduler.release(), Err(NothingHeld));
}

#[test]
fn e5_x21_release_without_a_slot() {
    let shared = Shared::new(2);
    let (a, b) = (shared.member(), shared.member());
    assert_eq!(a.release(), Err(NothingHeld));
    assert_eq!(NothingHeld.to_string(), "release without a slot to release");
    // Neither permits nor slots of others count: they give themselves back.
    let _permit = a.try_acquire(NORMAL).unwrap();
    assert!(b.acquire_with(drop, NORMAL, ()));
    assert_eq!(a.release(), Err(NothingHeld));
    assert_eq!(running(&a), 2);
    assert_eq!(b.release(), Ok(()));
    assert_eq!(b.release(), Err(NothingHeld));
    assert_eq!(running(&a), 1);
}

#[test]
fn e6_a_later_failure_keeps_the_slot() {
    let scheduler = local(1);
    let (sender, failed) = std::sync::mpsc::channel();
    let took = scheduler.acquire_with(
        move |()| {
            thread::spawn(move || sender.send(Err::<(), _>("failed later")));
        },
        NORMAL,
        (),
    );
    assert!(took);
    assert!(failed.recv_timeout(FOREVER).unwrap().is_err());
    assert_eq!(scheduler.stats().running, 1);
    assert!(scheduler.try_acquire(NORMAL).is_err());
    scheduler.release().unwrap();
    assert_eq!(scheduler.stats().running, 0);
}

#[test]
fn e7_e13_e17_f16_r5_dispose_gives_all_back_at_once() {
    let shared = Shared::new(3);
    let (a, b) = (shared.member(), shared.member());
    let permit = a.try_acquire(NORMAL).unwrap();
    let many = a.try_acquire_many_owned(1, NORMAL).unwrap();
    assert!(a.acquire_with(drop, NORMAL, ()));
    assert_eq!(running(&b), 3);
    a.dispose();
    assert_eq!((running(&b), a.stats().running), (0, 0));
    // Others come in while the work goes on.
    let _b = b.try_acquire_many(3, NORMAL).unwrap();
    // It ends later and changes nothing.
    assert_eq!(a.release(), Err(NothingHeld));
    drop((permit, many));
    assert_eq!(running(&b), 3);
    drop(a);
    assert_eq!(running(&b), 3);
    assert_eq!(b.stats().running, 3);
}

#[test]
fn e8_dispose_ends_waits() {
    let scheduler = local(1);
    let _held = scheduler.try_acquire(NORMAL).unwrap();
    let runs: Vec<_> = (0..5)
        .map(|_| Task::waiting(scheduler.run(|| async { panic!("it ran") }, NORMAL)))
        .collect();
    let blocked: Vec<_> = (0..5)
        .map(|_| {
            let own = scheduler.clone();
            thread::spawn(move || own.run_blocking(|| panic!("it ran"), Priority::Low))
        })
        .collect();
    until("all wait", || scheduler.stats().pending == 10);
    let begun = Instant::now();
    scheduler.dispose();
    let mut failures: Vec<AcquireError> = runs
        .into_iter()
        .map(|run| run.finish().unwrap_err())
        .collect();
    failures.extend(blocked.into_iter().map(|thread| {
        let ended: Result<(), AcquireError> = ends("a disposed wait", || thread.join().unwrap());
        ended.unwrap_err()
    }));
    // Those behind the first two would look by themselves after 3.5 s.
    assert!(begun.elapsed() < Duration::from_secs(3));
    for failure in failures {
        assert_eq!(failure, AcquireError::Disposed);
        assert_eq!(failure.to_string(), "Scheduler is disposed");
    }
    let stats = scheduler.stats();
    assert_eq!((stats.pending, stats.total.cancelled), (0, 10));
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn e9_dispose_lets_go_of_every_wait() {
    alone("errors::e9_dispose_lets_go_of_every_wait", || {
        let before = threads();
        let shared = Shared::new(1);
        let (a, b) = (shared.member(), shared.member());
        let _held = b.try_acquire(NORMAL).unwrap();
        let waiting = Task::waiting(a.acquire(NORMAL));
        assert!(!a.acquire_with(drop, Priority::Low, ()));
        let waiters = || b.stats().shared.unwrap().waiters;
        until("it waits", || waiters() == 1 && threads() > before);
        a.dispose();
        until("it has left the line", || waiters() == 0);
        until("no thread is left", || threads() <= before);
        assert_eq!(waiting.finish().unwrap_err(), AcquireError::Disposed);
    });
}

/// Also if at that moment nobody waits, after tasks and callbacks have had their threads.
#[test]
fn e9_dispose_ends_idle_threads() {
    alone("errors::e9_dispose_ends_idle_threads", || {
        let before = threads();
        let shared = Shared::new(1);
        let holder = shared.member();
        let members: Vec<_> = (0..10)
            .map(|_| {
                let member = shared.member();
                let held = holder.try_acquire(NORMAL).unwrap();
                drop(Task::waiting(member.acquire(NORMAL)));
                assert!(!member.acquire_with(drop, NORMAL, ()));
                drop(held);
                until("the callback ran", || member.release().is_ok());
                member
            })
            .collect();
        until("they have threads", || threads() >= before + members.len());
        members.iter().for_each(shmsched::Scheduler::dispose);
        until("no thread is left", || threads() <= before);
    });
}

#[test]
fn e10_e11_after_dispose_everything_is_refused() {
    for scheduler in [local(2), Shared::new(2).member()] {
        scheduler.dispose();
        let never = || panic!("it ran");
        assert!(!scheduler.acquire_with(move |()| never(), NORMAL, ()));
        let failed = || TryAcquireError::Failed(AcquireError::Disposed);
        assert_eq!(scheduler.try_acquire(NORMAL).unwrap_err(), failed());
        assert_eq!(scheduler.try_acquire_many(2, NORMAL).unwrap_err(), failed());
        assert_eq!(scheduler.try_acquire_owned(NORMAL).unwrap_err(), failed());
        let begun = Instant::now();
        let run = futures_executor::block_on(scheduler.run(|| async { never() }, NORMAL));
        assert_eq!(run.unwrap_err().to_string(), "Scheduler is disposed");
        let run: Result<(), _> = scheduler.run_blocking(never, NORMAL);
        assert_eq!(run.unwrap_err(), AcquireError::Disposed);
        let blocked = scheduler.blocking_acquire(NORMAL).unwrap_err();
        assert_eq!(blocked, AcquireError::Disposed);
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert!(scheduler.is_closed());
        assert_eq!(scheduler.stats().running, 0);
    }
}

/// Clones and lowered handles are the same member.
#[test]
fn e10_dispose_concerns_the_whole_member() {
    let scheduler = local(2);
    let (clone, lowered) = (scheduler.clone(), scheduler.with(1));
    clone.dispose();
    for handle in [&scheduler, &lowered] {
        let refused = handle.try_acquire(NORMAL).unwrap_err();
        assert_eq!(refused, TryAcquireError::Failed(AcquireError::Disposed));
    }
}

#[test]
fn e12_x18_x27_run_with_a_limit_of_zero() {
    let shared = Shared::new(0);
    for scheduler in [
        local(0),
        shared.member(),
        local(5).with(0),
        Shared::new(5).member().with(0),
    ] {
        let run = futures_executor::block_on(scheduler.run(|| async {}, NORMAL));
        assert_eq!(run.unwrap_err().to_string(), "Scheduler concurrency is 0");
        let run = scheduler.run_blocking(|| (), Priority::Highest);
        assert_eq!(run, Err(AcquireError::Zero));
        let refused = scheduler.try_acquire(NORMAL).unwrap_err();
        assert_eq!(refused, TryAcquireError::Failed(AcquireError::Zero));
        let stats = scheduler.stats();
        assert_eq!((stats.pending, stats.total.deferred), (0, 0));
    }
}

/// The callback form queues at zero; it is dropped on dispose, or runs when the limit is raised.
#[test]
fn x19_callbacks_queue_at_zero() {
    let shared = Shared::new(0);
    let segment = shared.open();
    let scheduler = segment.scheduler().unwrap();
    let ran = Arc::new(AtomicBool::new(false));
    let flag = ran.clone();
    let took = scheduler.acquire_with(move |()| flag.store(true, Ordering::SeqCst), NORMAL, ());
    assert!(!took);
    assert_eq!(scheduler.stats().pending, 1);
    scheduler.look();
    assert!(!ran.load(Ordering::SeqCst));
    segment.set(&Changes::new().concurrency(Some(1))).unwrap();
    until("it runs", || ran.load(Ordering::SeqCst));

    let scheduler = local(0);
    assert!(!scheduler.acquire_with(|()| panic!("it ran"), NORMAL, ()));
    scheduler.dispose();
    assert_eq!(scheduler.stats().pending, 0);
}

/// A limit set to zero pauses who waits and refuses who comes.
#[test]
fn e12_setting_zero_pauses() {
    let shared = Shared::new(1);
    let segment = shared.open();
    let scheduler = segment.scheduler().unwrap();
    let held = scheduler.try_acquire(NORMAL).unwrap();
    let mut waiting = Task::waiting(scheduler.acquire(NORMAL));
    segment.set(&Changes::new().concurrency(Some(0))).unwrap();
    drop(held);
    assert!(waiting.poll().is_none());
    assert_eq!(
        scheduler.blocking_acquire(NORMAL).unwrap_err(),
        AcquireError::Zero
    );
    segment.set(&Changes::new().concurrency(Some(1))).unwrap();
    assert!(waiting.finish().is_ok());
}

/// Who can no longer fit fails and holds nobody up.
#[test]
fn e12_a_limit_that_shrinks() {
    let shared = Shared::new(4);
    let segment = shared.open();
    let scheduler = segment.scheduler().unwrap();
    let held = scheduler.try_acquire(NORMAL).unwrap();
    let (large, small) = thread::scope(|scope| {
        let large = Task::waiting(scheduler.acquire_many(4, NORMAL));
        let blocked = scope.spawn(|| {
            let failed = scheduler.blocking_acquire_many(4, Priority::Lower);
            failed.map(drop).unwrap_err()
        });
        until("it waits", || scheduler.stats().pending == 2);
        let small = Task::waiting(scheduler.acquire_many(2, NORMAL));
        segment.set(&Changes::new().concurrency(Some(2))).unwrap();
        let expected = AcquireError::DoesNotFit {
            amount: 4,
            concurrency: 2,
        };
        let failed = large.finish().map(drop);
        assert_eq!(blocked.join().unwrap(), expected);
        (failed, small)
    });
    assert_eq!(
        large.unwrap_err().to_string(),
        "4 slots do not fit into a concurrency of 2"
    );
    drop(held);
    assert_eq!(small.finish().unwrap().num_permits(), 2);
}

#[test]
fn e14_a_second_dispose_does_nothing() {
    let shared = Shared::new(2);
    let (a, b) = (shared.member(), shared.member());
    let permits = a.try_acquire_many(2, NORMAL).unwrap();
    a.dispose();
    let held = b.try_acquire_many(2, NORMAL).unwrap();
    a.dispose();
    a.clone().dispose();
    assert_eq!(running(&b), 2);
    drop((permits, held));
    assert_eq!(running(&b), 0);
}

/// The scope is the last handle's: leaving it detaches.
#[test]
fn e15_leaving_the_scope_disposes() {
    let shared = Shared::new(3);
    let b = shared.member();
    let called = Arc::new(AtomicBool::new(false));
    let held = Arc::new(());
    {
        let a = shared.member();
        std::mem::forget(a.try_acquire(NORMAL).unwrap());
        assert!(a.acquire_with(drop, NORMAL, ()));
        let full = b.try_acquire(NORMAL).unwrap();
        let (flag, inside) = (called.clone(), held.clone());
        let callback = move |_: Arc<()>| flag.store(true, Ordering::SeqCst);
        assert!(!a.acquire_with(callback, NORMAL, inside));
        assert_eq!(running(&b), 3);
        until("it waits", || b.stats().shared.unwrap().waiters == 1);
        drop(full);
        // It may have run by now; then its slot is one of those that come back.
    }
    until("all is given back", || running(&b) == 0);
    until("nobody waits", || b.stats().shared.unwrap().waiters == 0);
    until("the callback is gone", || Arc::strong_count(&held) == 1);
}

/// A process that ends without dispose leaks nothing.
#[test]
fn e16_an_orderly_exit_gives_slots_back() {
    const NAME: &str = "errors::e16_an_orderly_exit_gives_slots_back";
    if let Some(path) = told(NAME) {
        let segment = Segment::open(&Location::File(path.into())).unwrap();
        let scheduler = segment.scheduler().unwrap();
        scheduler.try_acquire_many(3, NORMAL).unwrap().forget();
        assert!(!scheduler.acquire_with(|()| panic!("it ran"), NORMAL, ()));
        assert_eq!(scheduler.stats().running, 3);
        // Alive until the process ends.
        std::mem::forget((scheduler, segment));
        return;
    }
    let shared = Shared::new(3);
    let survivor = shared.member();
    child(NAME, shared.location.path().to_str().unwrap());
    // A refusal is preceded by a look that is not older than 100 ms.
    let ended = Instant::now();
    let permit = loop {
        match survivor.try_acquire_many(3, NORMAL) {
            Ok(permit) => break permit,
            Err(_) => assert!(ended.elapsed() < Duration::from_secs(5)),
        }
    };
    assert_eq!(running(&survivor), 3);
    drop(permit);
    assert_eq!(running(&survivor), 0);
}

#[test]
fn e18_a_thousand_abandoned_instances() {
    alone("errors::e18_a_thousand_abandoned_instances", || {
        let count = |what: &str| {
            std::fs::read_dir(format!("/proc/self/{what}"))
                .unwrap()
                .count()
        };
        let maps = || {
            std::fs::read_to_string("/proc/self/maps")
                .unwrap()
                .lines()
                .count()
        };
        let shared = Shared::new(1);
        let holder = shared.member();
        let _held = holder.try_acquire(NORMAL).unwrap();
        let abandon = || {
            let parked = shared.member();
            let waiting = Task::waiting(parked.acquire(NORMAL));
            assert!(!parked.acquire_with(|()| panic!("it ran"), NORMAL, ()));
            until("it waits", || holder.stats().shared.unwrap().waiters == 1);
            parked.dispose();
            until("it left the line", || {
                holder.stats().shared.unwrap().waiters == 0
            });
            drop(waiting);
        };
        let before = (threads(), count("fd"), maps());
        (0..1_000).for_each(|_| abandon());
        // Each left would be a thousand. The C library keeps stacks of 40 MB, which are 320 lines, if threads end so late that
        // there were as many at once; and two lines for each of 16 heaps.
        let end = Instant::now() + FOREVER;
        loop {
            let now = (threads(), count("fd"), maps());
            if now.0 <= before.0 && now.1 < before.1 + 5 && now.2 < before.2 + 500 {
                break;
            }
            assert!(Instant::now() < end, "{before:?} became {now:?}");
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(running(&holder), 1);
    });
}

#[test]
fn e19_stats_after_dispose() {
    let scheduler = local(1);
    let _held = scheduler.try_acquire(NORMAL).unwrap();
    let waiting = Task::waiting(scheduler.acquire(NORMAL));
    scheduler.dispose();
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.pending), (0, 0));
    assert_eq!(stats.concurrency, Some(1));
    drop(waiting);
    let _ = format!("{scheduler:?}");
    scheduler.look();
    assert_eq!(scheduler.available_permits(), 1);
}

#[test]
fn e20_pairs_return_to_zero() {
    let scheduler = local(7);
    thread::scope(|scope| {
        for n in 0..4 {
            let scheduler = &scheduler;
            scope.spawn(move || {
                for k in 0..500 {
                    if scheduler.acquire_with(drop, Priority::ALL[(n + k) % 7], ()) {
                        scheduler.release().unwrap();
                    }
                }
            });
        }
    });
    // Queued ones were served by releases of others and are still held.
    until("nobody waits", || {
        while scheduler.release().is_ok() {}
        scheduler.stats().pending == 0
    });
    while scheduler.release().is_ok() {}
    assert_eq!(scheduler.stats().running, 0);
}

/// Queued callbacks are dropped, not called, and their destructors may use the Scheduler.
#[test]
fn x20_dispose_drops_queued_callbacks() {
    struct Uses(shmsched::Scheduler, Arc<AtomicU32>);
    impl Drop for Uses {
        fn drop(&mut self) {
            assert_eq!(self.0.stats().pending, 0);
            assert!(self.0.try_acquire(NORMAL).is_err());
            self.0.dispose();
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicU32::new(0));
    let seen = dropped.clone();
    ends("dispose", move || {
        let scheduler = local(1);
        assert!(scheduler.acquire_with(drop, NORMAL, ()));
        for n in 0..5 {
            let uses = Uses(scheduler.clone(), seen.clone());
            assert!(!scheduler.acquire_with(|_: Uses| panic!("it ran"), Priority::ALL[n], uses));
        }
        scheduler.dispose();
        assert_eq!(scheduler.stats().pending, 0);
    });
    assert_eq!(dropped.load(Ordering::SeqCst), 5);
}

/// Dispose while eight threads take and give: nothing is given back twice, nothing stays.
#[test]
fn e7_dispose_amid_traffic() {
    let shared = Shared::new(1_000);
    let watcher = shared.member();
    let base = watcher.try_acquire_many(7, NORMAL).unwrap();
    for _ in 0..60 {
        let member = shared.member();
        let kept = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for n in 0..4 {
                let (member, kept) = (&member, &kept);
                scope.spawn(move || {
                    for k in 0.. {
                        match member.try_acquire_many_owned(1 + k % 3, NORMAL) {
                            Ok(permit) if (k + n) % 5 == 0 => kept.lock().unwrap().push(permit),
                            Ok(permit) => drop(permit),
                            Err(TryAcquireError::NoPermits) => kept.lock().unwrap().clear(),
                            Err(_) => break,
                        }
                    }
                });
            }
            until("traffic", || kept.lock().unwrap().len() > 3);
            member.dispose();
            assert_eq!(running(&watcher), 7);
        });
        assert_eq!(running(&watcher), 7);
        drop(kept);
        assert_eq!(running(&watcher), 7);
    }
    drop(base);
}

#[test]
fn close_ends_waits_and_keeps_permits() {
    let scheduler = local(Concurrency::max(1));
    let held = scheduler.try_acquire(NORMAL).unwrap();
    let waiting = Task::waiting(scheduler.acquire(NORMAL));
    let dropped = Arc::new(());
    assert!(!scheduler.acquire_with(|_| panic!("it ran"), NORMAL, dropped.clone()));
    assert!(!scheduler.is_closed());
    scheduler.close();
    scheduler.close();
    assert!(scheduler.is_closed());
    let failed = waiting.finish().unwrap_err();
    assert_eq!(failed.to_string(), "Scheduler is closed");
    assert_eq!(Arc::strong_count(&dropped), 1);
    assert_eq!(
        scheduler.try_acquire(NORMAL).unwrap_err(),
        TryAcquireError::Failed(AcquireError::Closed)
    );
    assert!(!scheduler.acquire_with(|()| panic!("it ran"), NORMAL, ()));
    assert_eq!(
        scheduler.blocking_acquire(NORMAL).unwrap_err(),
        AcquireError::Closed
    );
    assert_eq!(scheduler.stats().running, 1);
    drop(held);
    assert_eq!(scheduler.available_permits(), 1);
    scheduler.dispose();
    assert_eq!(
        scheduler.try_acquire(NORMAL).unwrap_err(),
        TryAcquireError::Failed(AcquireError::Disposed)
    );
}

/// Removed by force: waiters fail at once, users at their next acquire, slots stay.
#[test]
fn a_retired_segment_refuses() {
    let shared = Shared::new(1);
    let (a, b) = (shared.member(), shared.member());
    let held = a.try_acquire(NORMAL).unwrap();
    let waiting = Task::waiting(b.acquire(NORMAL));
    assert!(Segment::remove(&shared.location, false).is_err());
    Segment::remove(&shared.location, true).unwrap();
    assert_eq!(waiting.finish().unwrap_err(), AcquireError::Retired);
    assert_eq!(running(&a), 1);
    drop(held);
    assert_eq!(running(&a), 0);
    let refused = a.try_acquire(NORMAL).unwrap_err();
    assert_eq!(refused.to_string(), "the segment was retired");
}
