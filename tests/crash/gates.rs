//! The Limiter and the Pacer: death after every single write of what is done at them.
//!
//! After each death at most one window of the bucket is lost and nothing paid twice, the next caller gets on, places and
//! bits are clean after a look, and no wait is unaccounted for.

use crate::gate_bench::{Bench, SOON, holds_one_bucketful, outcome};
use crate::gate_operations::{AMOUNT, INTERVAL, MORE, NORMAL, PLACES, RATE, settings};
use crate::support::{Child, LONG, Scene, figure, until};
use shmsched::{Changes, Location, Observer, Priority, Segment};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// A debt that is not paid while a test goes on.
const DEEP: u32 = 60 * RATE;
/// No operation writes so often.
const MOST: u64 = 400;
/// Of so many children at a time each has a segment of its own.
const AT_ONCE: u64 = 6;

/// Runs `scenario` with each write deadly in turn until the operation got through. It gives back whether the child was
/// killed; `None`: once more, the machine was too slow. `least`: an operation has at least so many writes, else the hook
/// does not work.
#[track_caller]
fn sweep(name: &str, least: u64, scenario: impl Fn(&mut Bench, u64) -> Option<bool> + Sync) {
    let one = |n: u64| {
        for _ in 0..10 {
            let mut bench = Bench::new();
            let killed = scenario(&mut bench, n);
            bench.is_usable(&format!("{name}, write {n}, killed {killed:?}"));
            if let Some(killed) = killed {
                return killed;
            }
        }
        panic!("{name}, write {n}: too slow, ten times");
    };
    let begun = Instant::now();
    let mut deaths = 0;
    for from in (1..MOST).step_by(AT_ONCE as usize) {
        let killed: Vec<bool> = std::thread::scope(|scope| {
            let one = &one;
            let benches: Vec<_> = (from..from + AT_ONCE)
                .map(|n| scope.spawn(move || one(n)))
                .collect();
            let join = |bench: std::thread::ScopedJoinHandle<'_, bool>| match bench.join() {
                Ok(killed) => killed,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            benches.into_iter().map(join).collect()
        });
        deaths += killed.iter().filter(|killed| **killed).count() as u64;
        if killed.ends_with(&[false, false]) {
            figure!("{deaths} deaths in {:?}", begun.elapsed());
            assert!(deaths >= least, "{name} died only {deaths} times");
            return;
        }
    }
    panic!("{name} never got through");
}

/// An operation at a bucket that is neither empty nor full, and earns while it goes on.
fn at_the_bucket(operation: &str, least: u64, asked: u32, refunded: u32) {
    sweep(operation, least, |bench, n| {
        let mut child = bench.child(operation, n);
        // Not full again for almost a second.
        bench.limiter.try_consume(RATE - 4 * AMOUNT).unwrap();
        bench.note();
        std::thread::sleep(Duration::from_millis(10));
        child.tell("go");
        let killed = outcome(&mut child);
        bench.balances(operation, asked, refunded);
        killed
    });
}

#[test]
fn case_12_refill_and_debit() {
    at_the_bucket("try", 3, AMOUNT, 0);
}

#[test]
fn case_12_refund() {
    at_the_bucket("refund", 2, AMOUNT, AMOUNT);
}

#[test]
fn case_12_a_child_takes_from_both() {
    at_the_bucket("child", 5, AMOUNT, 0);
}

/// An operation of a child that waits, with somebody behind it, who gets on whatever becomes of it.
fn in_debt(operation: &str, least: u64, debt: u32) {
    sweep(operation, least, |bench, n| {
        let mut child = bench.child(operation, n);
        bench.indebt(debt);
        child.tell("go");
        bench.waits_or_ended(&mut child);
        let behind = bench.limiter.clone();
        let got = behind.blocking_acquire_until(AMOUNT, NORMAL, SOON);
        got.unwrap_or_else(|error| panic!("{operation}, write {n}: behind it: {error}"));
        let killed = outcome(&mut child);
        bench.balances(operation, 2 * AMOUNT, 0);
        killed
    });
}

#[test]
fn case_12_acquire_that_waits() {
    in_debt("wait", 15, 40);
}

#[test]
fn case_12_acquire_that_times_out() {
    in_debt("timeout", 10, 40);
}

#[test]
fn case_55_acquire_that_is_cancelled() {
    in_debt("cancel", 10, 40);
}

#[test]
fn case_12_queued_callback() {
    in_debt("callback", 15, 40);
}

#[test]
fn case_12_a_child_waits_for_its_parent() {
    in_debt("child_waits", 20, 40);
}

#[test]
fn case_55_a_child_that_waits_for_its_parent_is_cancelled() {
    in_debt("child_cancel", 15, 40);
}

#[test]
fn case_55_detach_with_a_callback_that_waits() {
    sweep("detach", 8, |bench, n| {
        let begun = Instant::now();
        bench.indebt(DEEP);
        let mut child = bench.child("detach", n);
        child.tell("go");
        let killed = outcome(&mut child);
        // What waits for a second goes into debt.
        let asked = match begun.elapsed() < Duration::from_secs(1) {
            true => 0,
            false => AMOUNT,
        };
        bench.balances("detach", asked, 0);
        bench.limiter.refund(DEEP);
        killed
    });
}

/// What a second's wait admits into debt.
#[test]
fn case_12_forced_into_debt() {
    sweep("guard", 8, |bench, n| {
        let mut child = bench.child("guard", n);
        bench.indebt(3 * RATE);
        child.tell("go");
        let killed = outcome(&mut child);
        bench.balances("guard", AMOUNT, 0);
        bench.limiter.refund(3 * RATE);
        killed
    });
}

#[test]
fn case_12_more_than_the_bucket_holds() {
    sweep("debt", 10, |bench, n| {
        let mut child = bench.child("debt", n);
        bench.limiter.refund(RATE);
        bench.note();
        child.tell("go");
        let killed = outcome(&mut child);
        bench.balances("debt", MORE, 0);
        killed
    });
}

#[test]
fn case_45_a_start_that_is_due() {
    sweep("start", 3, |bench, n| {
        let mut child = bench.child("start", n);
        child.tell("go");
        outcome(&mut child)
    });
}

/// A start that is not due yet; somebody behind it gets on whatever becomes of it.
fn not_due(operation: &str, least: u64) {
    sweep(operation, least, |bench, n| {
        let mut child = bench.child(operation, n);
        bench.just_started();
        child.tell("go");
        bench.waits_or_ended(&mut child);
        let got = bench.pacer.blocking_start_until(SOON);
        got.unwrap_or_else(|error| panic!("{operation}, write {n}: behind it: {error}"));
        outcome(&mut child)
    });
}

#[test]
fn case_45_a_start_that_waits() {
    not_due("start_wait", 12);
}

#[test]
fn case_45_a_run_that_waits() {
    not_due("start_run", 12);
}

#[test]
fn case_55_a_start_that_is_cancelled() {
    not_due("start_cancel", 10);
}

#[test]
fn case_55_a_start_that_times_out() {
    not_due("start_timeout", 10);
}

/// With the queue full: refused, or in its own place.
fn with_a_full_queue(operation: &str, least: u64) {
    sweep(operation, least, |bench, n| {
        let mut child = bench.child(operation, n);
        bench.just_started();
        let mut context = Context::from_waker(Waker::noop());
        let mut full: Vec<_> = (0..PLACES).map(|_| Box::pin(bench.pacer.start())).collect();
        // One that was due already found nobody to wait for.
        if !full
            .iter_mut()
            .all(|start| start.as_mut().poll(&mut context).is_pending())
        {
            return None;
        }
        child.tell("go");
        if operation == "start_spare" {
            let spare = PLACES as u32 + 1;
            until(LONG, "in line or dead", || {
                child.poll().is_some() || bench.snapshot().pacer.unwrap().waiting == spare
            });
            futures_executor::block_on(async {
                for start in full {
                    start.await.unwrap();
                }
            });
            return outcome(&mut child);
        }
        let killed = outcome(&mut child);
        drop(full);
        killed
    });
}

#[test]
fn case_55_a_start_that_is_refused() {
    with_a_full_queue("start_full", 1);
}

#[test]
fn case_55_a_start_in_the_place_of_its_own() {
    with_a_full_queue("start_spare", 12);
}

#[test]
fn case_12_set_rate_while_somebody_waits() {
    sweep("set_rate", 4, |bench, n| {
        let mut child = bench.child("set_rate", n);
        bench.indebt(400);
        let waiter = bench.limiter.clone();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.blocking_acquire_until(AMOUNT, NORMAL, SOON));
            until(LONG, "queued", || {
                bench.limiter.stats().pending == 1 || waiting.is_finished()
            });
            child.tell("go");
            let killed = outcome(&mut child);
            waiting.join().unwrap().expect("who waits gets on");
            bench.balances("set_rate", AMOUNT, 0);
            let rate = bench.limiter.tokens_per_second();
            assert!([RATE, 2 * RATE].contains(&rate), "{rate}");
            killed
        })
    });
}

#[test]
fn case_45_set_interval_while_somebody_waits() {
    sweep("set_interval", 2, |bench, n| {
        let mut child = bench.child("set_interval", n);
        bench.just_started();
        let waiter = bench.pacer.clone();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.blocking_start_until(SOON));
            until(LONG, "queued", || {
                bench.snapshot().pacer.unwrap().waiting == 1 || waiting.is_finished()
            });
            child.tell("go");
            let killed = outcome(&mut child);
            waiting.join().unwrap().expect("who waits gets on");
            let interval = bench.pacer.interval();
            assert!([INTERVAL, INTERVAL * 2].contains(&interval), "{interval:?}");
            killed
        })
    });
}

/// Where there was only a Scheduler: whole, or not there yet, and the next `set` makes it so.
#[test]
fn case_12_set_adds_gates() {
    let mut through = 0;
    for n in 1..MOST {
        let scene = Scene::new();
        let location = scene.segment(1);
        let path = location.path();
        let args = [&*path.to_string_lossy(), "add", &n.to_string()];
        let mut child = Child::start("gates", &args);
        child.expect("ready");
        child.tell("go");
        let killed = child.was_killed();
        let segment = Segment::open(&location).unwrap();
        let there = (segment.limiter().is_ok(), segment.pacer().is_ok());
        assert!(killed || there == (true, true), "{there:?}");
        let added = segment.set(&Changes::new().rate(RATE).interval(INTERVAL));
        added.unwrap();
        let (limiter, pacer) = (segment.limiter().unwrap(), segment.pacer().unwrap());
        assert_eq!(limiter.tokens_per_second(), RATE);
        // The first bucketful may have died, as any window may.
        holds_one_bucketful(&limiter, SOON, &format!("write {n}"));
        assert_eq!(pacer.interval(), INTERVAL);
        assert_eq!(pacer.try_start(), Ok(()), "write {n}: due at once");
        through = if killed { 0 } else { through + 1 };
        if through == 2 {
            assert!(n > 6, "died only {n} times");
            return;
        }
    }
    panic!("never got through");
}

/// Nothing, or all of it.
#[test]
fn case_20_create_with_all_gates() {
    let mut through = 0;
    for n in 1..MOST {
        let scene = Scene::new();
        let location = Location::File(scene.path("S"));
        let path = location.path();
        let args = [&*path.to_string_lossy(), "create", &n.to_string()];
        let mut child = Child::start("gates", &args);
        child.expect("ready");
        child.tell("go");
        let killed = child.was_killed();
        assert_eq!(path.exists(), !killed, "write {n}");
        if killed {
            Segment::make(&location, &settings()).unwrap();
        }
        let segment = Segment::open(&location).unwrap();
        assert_eq!(segment.differs(&settings()), Vec::<String>::new());
        assert_eq!(segment.limiter().unwrap().try_consume(RATE), Ok(()));
        assert_eq!(segment.pacer().unwrap().try_start(), Ok(()));
        through = if killed { 0 } else { through + 1 };
        if through == 2 {
            assert!(n > 20, "died only {n} times");
            return;
        }
    }
    panic!("never got through");
}

/// The picture of a segment in use, as an earlier boot left it.
fn of_an_earlier_boot(scene: &Scene) -> Vec<u8> {
    let interval = Duration::from_secs(10);
    let settings = settings().interval(interval).members(2);
    let location = scene.segment_of("used", &settings);
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let (limiter, pacer) = (segment.limiter().unwrap(), segment.pacer().unwrap());
    let _held = scheduler.try_acquire_many(2, NORMAL).unwrap();
    limiter.blocking_acquire(RATE + DEEP, NORMAL).unwrap();
    pacer.try_start().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut slots = pin!(scheduler.acquire(NORMAL));
    let mut tokens = pin!(limiter.acquire(900, Priority::High));
    let mut start = pin!(pacer.start());
    assert!(slots.as_mut().poll(&mut context).is_pending());
    assert!(tokens.as_mut().poll(&mut context).is_pending());
    assert!(start.as_mut().poll(&mut context).is_pending());
    let mut image = std::fs::read(location.path()).unwrap();
    // Its boot id, see docs/segment-format.md.
    image[64] ^= 0x55;
    image
}

/// Who resets it may die anywhere: the next does it again, and settings stay.
fn reset(every: u64) {
    let scene = Scene::new();
    let image = of_an_earlier_boot(&scene);
    let one = |n: u64| {
        let location = Location::File(scene.path(&format!("S{n}")));
        let path = location.path();
        std::fs::write(&path, &image).unwrap();
        let args = [&*path.to_string_lossy(), "attach", &n.to_string()];
        let mut child = Child::start("operate", &args);
        child.expect("ready");
        child.tell("go");
        let killed = child.was_killed();
        let segment = Segment::open(&location).unwrap();
        let snapshot = Observer::open(&location).unwrap().snapshot().unwrap();
        let (slots, tokens, starts) = (
            snapshot.scheduler.unwrap(),
            snapshot.limiter.unwrap(),
            snapshot.pacer.unwrap(),
        );
        let of_slots = [slots.deferred, slots.admitted, slots.lost, slots.reclaimed];
        let of_tokens = [tokens.deferred, tokens.consumed, tokens.lost, tokens.forced];
        let of_starts = [
            starts.deferred,
            starts.started,
            starts.lost,
            starts.rejected,
        ];
        let counters = [of_slots, of_tokens, of_starts];
        assert_eq!(counters, [[0; 4]; 3], "write {n}, killed {killed}");
        assert_eq!((slots.running_raw, slots.waiters), (0, 0));
        assert_eq!((tokens.tokens, tokens.waiters), (RATE as i32, 0));
        assert_eq!(starts.waiting, 0);
        assert_eq!(starts.interval, Duration::from_secs(10));
        let (scheduler, limiter) = (segment.scheduler().unwrap(), segment.limiter().unwrap());
        let all = scheduler.try_acquire_many(2, NORMAL);
        assert!(all.is_ok(), "write {n}: {all:?}");
        holds_one_bucketful(&limiter, Duration::ZERO, &format!("write {n}"));
        assert_eq!(segment.pacer().unwrap().try_start(), Ok(()), "write {n}");
        std::fs::remove_file(path).unwrap();
        killed
    };
    let (mut n, mut deaths) = (1, 0);
    loop {
        let step = if n < 40 { 1 } else { every };
        let picks: Vec<u64> = (0..AT_ONCE).map(|at| n + at * step).collect();
        let killed: Vec<bool> = std::thread::scope(|scope| {
            let all: Vec<_> = picks.iter().map(|n| scope.spawn(|| one(*n))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        deaths += killed.iter().filter(|killed| **killed).count();
        n += AT_ONCE * step;
        if killed.iter().all(|killed| !killed) {
            break;
        }
    }
    // The last ones once more, each: the boot id is among them.
    for n in n.saturating_sub(2 * AT_ONCE * every)..n {
        if every > 1 && one(n) {
            deaths += 1;
        }
    }
    figure!("{deaths} deaths before write {n}");
    assert!(deaths > 80, "died only {deaths} times");
}

#[test]
fn case_20_reset_after_a_reboot() {
    reset(11);
}

#[test]
#[ignore = "for scripts/stress: each write of a reset"]
fn stress_case_20_reset_after_a_reboot() {
    reset(1);
}
