//! Group H: what a Limiter is made of, and what it is when nobody asks for anything.

use crate::calm::{calm, scene, waits};
use crate::limiter_support::{
    Log, MOST, Rated, conserved, drain_to, earned, into_debt, limiter, open, read,
};
use crate::support::{NORMAL, Task, alone, child, ends, told, until};
use shmsched::{
    AcquireError, CreateError, InvalidSettings, Limiter, LimiterStats, Location, NoGate, Priority,
    Segment, Settings, TryAcquireError,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A token is whatever its users say: the same share of the rate takes the same time.
#[test]
fn h1_a_token_is_any_unit() {
    for rate in [20, 20_000, 2_000_000_000] {
        // What a full bucket earns before somebody looks may count later.
        let before = Instant::now();
        let limiter = limiter(rate);
        let empty = drain_to(&limiter, 0);
        for _ in 0..5 {
            limiter.blocking_acquire(rate / 20, NORMAL).unwrap();
        }
        assert!(before.elapsed() >= Duration::from_micros(249_800));
        conserved(rate, empty, i64::from(rate / 4), read(&limiter));
    }
}

/// It cannot be left out, and a segment that was made without has no Limiter.
#[test]
fn h2_the_rate_is_mandatory() {
    let _: fn(u32) -> Result<Limiter, CreateError> = Limiter::local;
    let directory = tempfile::tempdir().unwrap();
    let location = Location::File(directory.path().join("segment"));
    let segment = Segment::create(&location, &Settings::new().concurrency(1)).unwrap();
    let missing = segment.limiter().err();
    assert_eq!(missing, Some(NoGate("limiter")));
}

#[test]
fn h3_x32_from_1_to_2147483647() {
    for rate in [1, 2, MOST - 1, MOST] {
        assert_eq!(limiter(rate).tokens_per_second(), rate);
        assert_eq!(Rated::new(rate).member().tokens_per_second(), rate);
    }
}

/// Negative, fractional and infinite rates cannot be written.
#[test]
fn h4_x32_other_rates_are_refused() {
    let parent = limiter(5);
    let directory = tempfile::tempdir().unwrap();
    for given in [0, MOST + 1, u32::MAX] {
        let path = directory.path().join("segment");
        let location = Location::File(path.clone());
        let refusals = [
            Limiter::local(given).err(),
            parent.child(given).err(),
            Segment::make(&location, &Settings::new().rate(given)).err(),
        ];
        for refusal in refusals {
            let Some(CreateError::Invalid(invalid)) = refusal else {
                panic!("{given}: {refusal:?}");
            };
            assert_eq!(invalid, InvalidSettings::Rate { given });
        }
        assert!(!path.exists());
    }
}

#[test]
fn h6_h15_processes_open_the_same_rate() {
    const NAME: &str = "limiter_basics::h6_h15_processes_open_the_same_rate";
    if let Some(path) = told(NAME) {
        let own = open(&path);
        assert_eq!(own.tokens_per_second(), 123_456);
        own.try_consume(100_000).unwrap();
        return;
    }
    let shared = Rated::new(123_456);
    let own = shared.member();
    assert_eq!(own.tokens_per_second(), 123_456);
    child(NAME, &shared.path());
    assert_eq!(shared.info().consumed, 100_000);
    assert_eq!(shared.member().tokens_per_second(), 123_456);
}

/// Full at the start, and full is as full as it gets.
#[test]
fn h7_x4_the_rate_is_the_capacity() {
    for limiter in [limiter(50), Rated::new(50).member()] {
        assert_eq!(limiter.tokens_per_second(), 50);
        assert_eq!(limiter.stats().tokens, 50);
        limiter.try_consume(10).unwrap();
        until("it is full again", || limiter.stats().tokens == 50);
        // Ten more would come in this time.
        thread::sleep(Duration::from_millis(200));
        assert_eq!(limiter.stats().tokens, 50);
        assert_eq!(limiter.try_consume(51), Err(TryAcquireError::NoTokens));
        limiter.try_consume(50).unwrap();
        assert!(limiter.try_consume(50).is_err());
    }
}

/// Attaching does not fill it.
#[test]
fn h7_x4_full_once() {
    let shared = Rated::new(10);
    let begun = Instant::now();
    shared.member().try_consume(10).unwrap();
    for _ in 0..5 {
        let tokens = i64::from(shared.member().stats().tokens);
        assert!(tokens <= earned(10, begun.elapsed()).1, "{tokens}");
    }
}

/// Nobody calls anything, and what waits gets on; who calls finds what time has earned.
#[test]
fn h8_refills_come_by_themselves() {
    scene(|| {
        // What a full bucket earns before somebody looks may count later.
        let before = Instant::now();
        let limiter = limiter(1_000);
        drain_to(&limiter, 0);
        let log = Log::new();
        log.queue(&limiter, 100, NORMAL, "queued");
        let (_, ran) = log.next();
        let waited = ran - before;
        assert!(waited >= Duration::from_micros(99_800), "{waited:?}");
        calm(waited < Duration::from_secs(1));
        let empty = drain_to(&limiter, 0);
        thread::sleep(Duration::from_millis(60));
        limiter.try_consume(50).unwrap();
        conserved(1_000, empty, 50, read(&limiter));
    });
}

/// There is no call that refills; what was not used can be given back, at most up to the capacity.
#[test]
fn h9_refund_is_no_refill() {
    let limiter = limiter(100);
    limiter.refund(50);
    assert_eq!(limiter.stats().tokens, 100);
    let full = read(&limiter);
    limiter.try_consume(80).unwrap();
    limiter.refund(70);
    let now = read(&limiter);
    assert!(now.tokens >= 90 && now.tokens <= 90 + earned(100, full.age()).1);
    limiter.refund(u32::MAX);
    assert_eq!(limiter.stats().tokens, 100);
    limiter.refund(0);
    assert_eq!(limiter.stats().tokens, 100);
    // A debt is paid by it.
    let debt = into_debt(&limiter, 500);
    limiter.refund(450);
    conserved(100, debt, -450, read(&limiter));
}

/// What was given back goes to who waits, of whichever member.
#[test]
fn h9_refund_wakes() {
    scene(|| {
        let shared = Rated::new(100);
        let (a, b) = (shared.member(), shared.member());
        into_debt(&a, 1_000);
        let begun = Instant::now();
        let mut waiting = [waits(a.acquire(5, NORMAL)), waits(b.acquire(5, NORMAL))];
        a.refund(1_010);
        for task in &mut waiting {
            until("it was called", || task.poll().is_some());
        }
        // Neither by time, nor by the guard.
        calm(begun.elapsed() < Duration::from_secs(1));
        calm((a.stats().forced, b.stats().forced) == (1, 0));
    });
}

/// A program that only queues and then waits for what it queued loses nothing.
#[test]
fn h10_drain_waits_for_what_is_queued() {
    alone("limiter_basics::h10_drain_waits_for_what_is_queued", || {
        scene(|| {
            let limiter = limiter(1_000);
            let ran = Arc::new(AtomicU32::new(0));
            drain_to(&limiter, 0);
            for _ in 0..5 {
                let ran = ran.clone();
                let slowly = move |()| {
                    thread::sleep(Duration::from_millis(10));
                    ran.fetch_add(1, Ordering::SeqCst);
                };
                calm(limiter.consume(slowly, 20, NORMAL, ()) == Ok(false));
            }
            limiter.blocking_drain();
            assert_eq!(ran.load(Ordering::SeqCst), 5);
            limiter.blocking_drain();
        })
    });
}

/// The same as a future, beside those that wait otherwise, and from several places at once.
#[test]
fn h10_drain_as_a_future() {
    scene(|| {
        let limiter = limiter(1_000);
        drain_to(&limiter, 0);
        let log = Log::new();
        log.queue(&limiter, 50, NORMAL, 1);
        log.queue(&limiter, 50, Priority::Low, 2);
        let mut drains = [waits(limiter.drain()), waits(limiter.drain())];
        drop(waits(limiter.drain()));
        let own = limiter.clone();
        let blocks = thread::spawn(move || own.blocking_drain());
        let waiting = waits(limiter.acquire(50, Priority::Lowest));
        assert_eq!(log.take(2), [1, 2]);
        assert!(drains[0].poll().is_none(), "one waits still");
        waiting.finish().unwrap();
        for task in drains {
            task.finish();
        }
        ends("the drain", || blocks.join().unwrap());
        assert!(Task::new(limiter.drain()).poll().is_some());
        assert_eq!(limiter.stats().pending, 0);
    });
}

/// Without it the queue goes with the last handle: nothing runs, nothing is taken (X33).
#[test]
fn h10_x33_the_last_handle_drops_the_queue() {
    let shared = Rated::new(1_000);
    let (own, other) = (shared.member(), shared.member());
    // Deep enough that nothing is there for them, however long this takes.
    let debt = into_debt(&own, 50_000);
    let alive = Arc::new(());
    for _ in 0..3 {
        let never = |_: Arc<()>| panic!("it ran");
        assert_eq!(own.consume(never, 500, NORMAL, alive.clone()), Ok(false));
    }
    drop(own);
    assert_eq!(Arc::strong_count(&alive), 1);
    let info = shared.info();
    assert_eq!((info.waiters, info.queued), (0, [0; 7]));
    assert_eq!((info.deferred, info.cancelled), (4, 3));
    conserved(1_000, debt, 0, read(&other));
    other.try_consume(0).unwrap();
}

/// Neither an idle Limiter nor a queue that nobody waits for keeps a process.
#[test]
fn h11_nothing_keeps_the_process_alive() {
    const NAME: &str = "limiter_basics::h11_nothing_keeps_the_process_alive";
    let begun = Instant::now();
    alone(NAME, || {
        let idle = limiter(10);
        std::mem::forget(idle);
        let served = limiter(1_000);
        drain_to(&served, 0);
        futures_executor::block_on(served.acquire(1, NORMAL)).unwrap();
        std::mem::forget(served);
        let stuck = limiter(1);
        into_debt(&stuck, MOST - 1);
        let never = |()| panic!("it ran");
        assert_eq!(stuck.consume(never, MOST, NORMAL, ()), Ok(false));
        let own = stuck.clone();
        thread::spawn(move || own.blocking_acquire(MOST, Priority::Low));
        until("it waits", || stuck.stats().pending == 2);
        std::mem::forget(stuck);
    });
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// The stall is real time in tenths of a second: no calls move it, none hold it up.
#[test]
fn h12_m10_x42_the_stall_follows_time() {
    let limiter = limiter(1);
    into_debt(&limiter, 1_000_000);
    let before = Instant::now();
    let waiting = Task::waiting(limiter.acquire(1, NORMAL));
    let since = Instant::now();
    for _ in 0..9 {
        thread::sleep(Duration::from_millis(95));
        let least = since.elapsed().as_millis() / 100;
        let stats = limiter.stats();
        let most = before.elapsed().as_millis() / 100;
        let stall = u128::from(stats.queues[3].stall);
        // Unless it was forced meanwhile.
        if stats.forced == 1 {
            assert!((least..=most).contains(&stall), "{least} {stall} {most}");
        }
    }
    drop(waiting);
}

#[test]
#[expect(deprecated)]
fn h13_the_former_name() {
    let limiter: shmsched::Throttle = shmsched::Throttle::local(7).unwrap();
    let _: &Limiter = &limiter;
    assert_eq!(limiter.tokens_per_second(), 7);
}

#[test]
fn h14_x4_new_or_idle_it_says_true() {
    let limiter = limiter(1_000);
    assert_eq!(limiter.consume(drop, 1_000, NORMAL, ()), Ok(true));
    thread::sleep(Duration::from_micros(1_000_200));
    assert_eq!(limiter.consume(drop, 1_000, NORMAL, ()), Ok(true));
    assert_eq!(limiter.stats().total.deferred, 0);
}

/// Both ends of the signed word.
#[test]
fn h16_the_balance_is_signed() {
    let limiter = limiter(MOST);
    assert_eq!(limiter.stats().tokens, i32::MAX);
    limiter.try_consume(MOST).unwrap();
    let slow = crate::limiter_support::limiter(1);
    into_debt(&slow, MOST - 1);
    let tokens = slow.stats().tokens;
    assert!(
        (-2_147_483_646..-2_147_483_600).contains(&tokens),
        "{tokens}"
    );
}

/// The members with the argument orders of the source; it compiles or it does not.
#[test]
fn h17_the_public_surface() {
    let _: fn(&Limiter, u32) -> Result<(), TryAcquireError> = Limiter::try_consume;
    let _: fn(&Limiter) -> u32 = Limiter::tokens_per_second;
    let _: fn(&Limiter) -> LimiterStats = Limiter::stats;
    let _: fn(&Limiter, u32) -> Result<Limiter, CreateError> = Limiter::child;
    let _: fn(&Segment) -> Result<Limiter, NoGate> = Segment::limiter;
    let _: fn(&Limiter, u32) = Limiter::refund;
    let _: fn(&Limiter, u32, Priority) -> Result<(), AcquireError> = Limiter::blocking_acquire;
    let limiter = limiter(10);
    let ran: Result<bool, AcquireError> =
        limiter.consume(|opaque: u8| assert_eq!(opaque, 3), 1, Priority::High, 3);
    assert_eq!(ran, Ok(true));
    futures_executor::block_on(limiter.acquire(1, Priority::High)).unwrap();
    assert!(format!("{limiter:?}").contains("10"));
}
