//! Group I: who gets tokens at once, who waits, in which order, and what goes into debt.

use crate::calm::{calm, scene, undisturbed, waits};
use crate::limiter_support::{
    Log, MOST, Rated, conserved, drain_to, earned, into_debt, limiter, one_by_one, open, read,
};
use crate::support::{
    Dice, FOREVER, MEANT, NORMAL, Task, child, ends, panics_of, told, until, watch_panics,
};
use rustix::time::{ClockId, clock_gettime};
use shmsched::{AcquireError, Changes, Limiter, Priority, TryAcquireError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const TOO_FEW: Result<(), TryAcquireError> = Err(TryAcquireError::NoTokens);

/// As the library's clock sees it, an interval may be shorter by this.
const TICK: Duration = Duration::from_micros(200);

/// The value itself arrives, once, on both paths; the tokens go when it starts.
#[test]
fn i1_i2_i3_consume_calls_with_the_value() {
    scene(|| {
        let shared = Rated::new(1_000);
        let limiter = shared.member();
        let log = Log::new();
        let value = Arc::new(5);
        assert_eq!(log.consume(&limiter, 900, NORMAL, value.clone()), Ok(true));
        assert_eq!(shared.info().consumed, 900);
        // It ran within the call.
        let at_once = log.next().0;
        log.queue(&limiter, 300, NORMAL, value.clone());
        calm(limiter.stats().pending == 1 && shared.info().consumed == 900);
        let later = log.next().0;
        assert_eq!(shared.info().consumed, 1_200);
        assert!(Arc::ptr_eq(&at_once, &value) && Arc::ptr_eq(&later, &value));
        limiter.blocking_drain();
        assert!(log.is_silent());
    });
}

#[test]
fn i3_true_means_on_this_thread() {
    let limiter = limiter(100);
    let here = thread::current().id();
    let ran = limiter.consume(
        move |()| assert_eq!(thread::current().id(), here),
        1,
        NORMAL,
        (),
    );
    assert_eq!(ran, Ok(true));
}

/// A call sees what was earned since the last one.
#[test]
fn i4_i25_a_call_refills_first() {
    let limiter = limiter(1_000);
    let empty = drain_to(&limiter, 0);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(limiter.consume(drop, 100, NORMAL, ()), Ok(true));
    assert_eq!(limiter.try_consume(80), Ok(()));
    conserved(1_000, empty, 180, read(&limiter));
}

/// False, and it ran before the call returned: more than the capacity waits, for no time when the bucket is full.
#[test]
fn i5_x30_false_says_nothing_about_later() {
    let limiter = limiter(100);
    let here = thread::current().id();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let push = ran.clone();
    let note = move |()| push.lock().unwrap().push(thread::current().id());
    assert_eq!(limiter.consume(note, 150, NORMAL, ()), Ok(false));
    assert_eq!(*ran.lock().unwrap(), [here]);
    let stats = limiter.stats();
    assert_eq!((stats.total.deferred, stats.total.completed), (1, 1));
    assert_eq!((stats.forced, stats.pending), (1, 0));
    limiter.blocking_drain();
    assert_eq!(ran.lock().unwrap().len(), 1);
}

/// Every way in refuses more than a word can hold, and changes nothing.
#[test]
fn i6_i7_x29_amounts_out_of_range() {
    let limiter = limiter(1_000);
    limiter.try_consume(0).unwrap();
    let before = limiter.stats();
    for amount in [MOST + 1, u32::MAX] {
        let refused = AcquireError::TooManyTokens { amount };
        let alive = Arc::new(());
        let never = |_: Arc<()>| panic!("it ran");
        assert_eq!(
            limiter.consume(never, amount, NORMAL, alive.clone()),
            Err(refused.clone())
        );
        assert_eq!(Arc::strong_count(&alive), 1);
        assert_eq!(
            limiter.blocking_acquire(amount, NORMAL),
            Err(refused.clone())
        );
        let future = futures_executor::block_on(limiter.acquire(amount, NORMAL));
        assert_eq!(future, Err(refused.clone()));
        let until = futures_executor::block_on(limiter.acquire_until(amount, NORMAL, SECOND));
        assert_eq!(until, Err(refused.clone()));
        assert_eq!(limiter.try_consume(amount), Err(refused.clone().into()));
        let child = limiter.child(5).unwrap();
        assert_eq!(child.try_consume(amount), Err(refused.into()));
        assert_eq!(limiter.stats(), before);
    }
    // Nor with somebody in line.
    into_debt(&limiter, 1_000);
    let waiting = Task::waiting(limiter.acquire(1, NORMAL));
    let pending = limiter.stats().total;
    assert!(
        limiter
            .try_consume(MOST + 1)
            .is_err_and(|e| e != TryAcquireError::NoTokens)
    );
    assert!(limiter.consume(drop, u32::MAX, NORMAL, ()).is_err());
    assert_eq!(limiter.stats().total, pending);
    drop(waiting);
    // The largest there is.
    let largest = crate::limiter_support::limiter(MOST);
    largest.try_consume(MOST).unwrap();
}

/// In debt, with nobody in line, nothing costs nothing.
#[test]
fn i8_x29_zero_tokens_wait_for_none() {
    let limiter = limiter(10);
    let debt = into_debt(&limiter, 100);
    let log = Log::new();
    assert_eq!(log.consume(&limiter, 0, NORMAL, "ran"), Ok(true));
    assert_eq!(limiter.try_consume(0), Ok(()));
    limiter.blocking_acquire(0, Priority::Lowest).unwrap();
    futures_executor::block_on(limiter.acquire(0, Priority::Highest)).unwrap();
    conserved(10, debt, 0, read(&limiter));
    assert_eq!(limiter.stats().total.deferred, 1, "only what made the debt");
}

/// One starved item of the lowest priority, and nothing at all is queued behind it; but it runs promptly.
#[test]
fn i9_i10_zero_tokens_of_another_priority() {
    scene(|| {
        let limiter = limiter(10);
        let debt = into_debt(&limiter, 1_000);
        let log = Log::new();
        let begun = Instant::now();
        log.queue(&limiter, 5, Priority::Lowest, "starved");
        log.queue(&limiter, 0, Priority::Highest, "nothing");
        calm(limiter.try_consume(0) == TOO_FEW);
        let next = log.next().0;
        calm(next != "starved");
        assert_eq!(next, "nothing");
        futures_executor::block_on(limiter.acquire(0, Priority::Lower)).unwrap();
        limiter.blocking_acquire(0, Priority::High).unwrap();
        // Before the guard of the other.
        let (now, pending) = (read(&limiter), limiter.stats().pending);
        calm(begun.elapsed() < SECOND);
        conserved(10, debt, 0, now);
        assert_eq!(pending, 1);
        // Less urgent than the starved one, too.
        let starved = waits(limiter.acquire(5, Priority::High));
        log.queue(&limiter, 0, NORMAL, "less urgent");
        let next = log.next().0;
        calm(next != "starved");
        assert_eq!(next, "less urgent");
        drop(starved);
    });
}

/// Of its own priority it waits its turn.
#[test]
fn i11_zero_tokens_behind_their_own_priority() {
    scene(|| {
        let limiter = limiter(1_000);
        drain_to(&limiter, 0);
        let log = Log::new();
        log.queue(&limiter, 100, NORMAL, "big");
        log.queue(&limiter, 0, NORMAL, "zero");
        log.queue(&limiter, 0, Priority::Low, "elsewhere");
        let order = log.take(3);
        // Unless the tokens of the big one came before it was there.
        calm(order[0] == "elsewhere");
        assert_eq!(order[1..], ["big", "zero"]);
        let mut first = waits(limiter.acquire(200, NORMAL));
        let second = waits(limiter.acquire(0, NORMAL));
        calm(first.poll().is_none() && second.bell.wakes() == 0);
        first.finish().unwrap();
        second.finish().unwrap();
    });
}

#[test]
fn i12_zero_tokens_run_before_a_starved_item() {
    let limiter = limiter(10);
    into_debt(&limiter, 1_000);
    for lane in (0..7).filter(|lane| *lane != 3) {
        let log = Log::new();
        let starved = Task::waiting(limiter.acquire(5, NORMAL));
        log.queue(&limiter, 0, Priority::ALL[lane], "zero");
        assert_eq!(log.next().0, "zero");
        let stats = limiter.stats();
        assert_eq!((stats.pending, stats.forced), (1, 1));
        drop(starved);
    }
}

/// Strictly by priority, with no lottery (X15).
#[test]
fn i13_x15_the_most_urgent_first() {
    for round in 0..3 {
        undisturbed(|| {
            let limiter = limiter(10);
            drain_to(&limiter, 0);
            let log = Log::new();
            for n in 0..30 {
                log.queue(&limiter, 10, Priority::ALL[(n * 5 + round) % 7], n);
            }
            calm(limiter.stats().pending == 30);
            let order = one_by_one(&limiter, &log, 30);
            if limiter.stats().forced > 0 {
                return false;
            }
            let lane = |n: usize| (n * 5 + round) % 7;
            assert!(order.is_sorted_by_key(|n| (6 - lane(*n), *n)), "{order:?}");
            true
        });
    }
}

#[test]
fn i14_first_in_first_out() {
    scene(|| {
        let limiter = limiter(10_000);
        drain_to(&limiter, 0);
        let log = Log::new();
        let mut dice = Dice::new(14);
        log.queue(&limiter, 6_000, NORMAL, 0);
        for n in 1..100 {
            log.queue(&limiter, dice.below(60) as u32, NORMAL, n);
        }
        let order = log.take(100);
        assert!(order.is_sorted(), "{order:?}");
    });
}

/// Callbacks, tasks and threads of one priority are served in the order they came.
#[test]
fn i14_kinds_of_callers_share_one_order() {
    scene(|| {
        let limiter = limiter(10);
        drain_to(&limiter, 0);
        let log = Log::new();
        let order = thread::scope(|scope| {
            for n in 0..12u64 {
                let note = log.note();
                match n % 3 {
                    0 => calm(limiter.consume(note, 10, NORMAL, n) == Ok(false)),
                    1 => {
                        let task = waits(limiter.acquire(10, NORMAL));
                        scope.spawn(move || {
                            task.finish().unwrap();
                            note(n);
                        });
                    }
                    _ => {
                        let limiter = &limiter;
                        scope.spawn(move || {
                            limiter.blocking_acquire(10, NORMAL).unwrap();
                            note(n);
                        });
                        let mut stands = false;
                        until("it waits, or some were served", || {
                            let total = limiter.stats().total;
                            stands = total.count == n + 1;
                            stands || total.completed > 0
                        });
                        calm(stands);
                    }
                }
            }
            calm(limiter.stats().pending == 12);
            one_by_one(&limiter, &log, 12)
        });
        assert!(order.is_sorted(), "{order:?}");
    });
}

/// Stops a flood, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Keeps somebody more urgent in line all the time until it is told to stop.
fn flood(limiter: &Limiter, tokens: u32, priority: Priority, stop: &AtomicBool) {
    let mut waiting = None;
    while !stop.load(Ordering::SeqCst) {
        let mut next = Task::new(limiter.acquire(tokens, priority));
        if next.poll().is_some_and(|taken| taken.is_ok()) {
            continue;
        }
        // The next stands in line before the last is served.
        if let Some(last) = waiting.replace(next) {
            Task::finish(last).unwrap();
        }
    }
}

/// Plays while the most urgent work takes every refill, until it drops what it is given.
fn while_flooded(limiter: &Limiter, play: impl FnOnce(Stop)) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| flood(limiter, 10, Priority::Highest, &stop));
        let stops = Stop(&stop);
        until("it is flooded", || {
            limiter.stats().queues[6].queue.completed > 3
        });
        play(stops);
    });
}

/// Urgent work takes every refill; what it starves is admitted into debt after a second, not before, and once.
#[test]
fn i15_i16_i28_the_guard_admits_what_is_starved() {
    scene(|| {
        let limiter = limiter(1_000);
        drain_to(&limiter, 0);
        while_flooded(&limiter, |stops| {
            let begun = Instant::now();
            let starved = waits(limiter.acquire(800, Priority::Low));
            let mut stall = 0;
            while starved.bell.wakes() == 0 {
                // In this order: a stall that is read before the front is forced.
                let stats = limiter.stats();
                if stats.queues[2].queue.count == 1 && starved.bell.wakes() == 0 {
                    assert_eq!(stats.queues[2].queue.completed, 0);
                    stall = stats.queues[2].stall;
                }
                assert!(begun.elapsed() < FOREVER);
                thread::sleep(Duration::from_millis(2));
            }
            let called = begun.elapsed();
            starved.finish().unwrap();
            let waited = begun.elapsed();
            calm(limiter.stats().tokens < 0);
            drop(stops);
            assert!(called >= SECOND - TICK, "called after {called:?}");
            calm(waited < SECOND * 2);
            calm((8..=12).contains(&stall));
        });
        let stats = limiter.stats();
        assert_eq!(stats.queues[2].queue.completed, 1);
        assert!(stats.forced >= 1);
    });
}

/// Who gives up behind the front, in another process, does not put the front's second off.
#[test]
fn i15_x31_others_that_give_up_do_not_put_the_guard_off() {
    scene(|| {
        let shared = Rated::new(1_000);
        let [stands, floods, gives_up] = [shared.member(), shared.member(), shared.member()];
        drain_to(&stands, 0);
        while_flooded(&floods, |stops| {
            let begun = Instant::now();
            let mut starved = waits(stands.acquire(800, Priority::Low));
            while starved.poll().is_none() && begun.elapsed() < SECOND * 5 / 2 {
                let timeout = Duration::from_millis(50);
                let late = gives_up.blocking_acquire_until(700, Priority::Low, timeout);
                assert!(late.is_err() || begun.elapsed() > SECOND);
            }
            let waited = begun.elapsed();
            drop(stops);
            calm(waited < SECOND * 2);
        });
    });
}

/// What no word can hold stays in line, however long, and spins for nothing.
#[test]
fn i17_i21_a_debt_that_no_word_can_hold() {
    let limiter = limiter(1);
    into_debt(&limiter, MOST - 1);
    let own = limiter.clone();
    let blocks = thread::spawn(move || {
        let cpu = || {
            let used = clock_gettime(ClockId::ThreadCPUTime);
            Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
        };
        let before = cpu();
        let long = Duration::from_millis(1_600);
        let ended = own.blocking_acquire_until(MOST, Priority::High, long);
        (ended, cpu() - before)
    });
    let waiting = Task::waiting(limiter.acquire(MOST, NORMAL));
    let since = Instant::now();
    let log = Log::new();
    log.queue(&limiter, MOST - 1, Priority::Low, ());
    let (ended, used) = ends("the wait", || blocks.join().unwrap());
    assert_eq!(ended, Err(AcquireError::TimedOut));
    assert!(used < Duration::from_millis(100), "{used:?} of CPU");
    until("it passes 15", || {
        since.elapsed() >= Duration::from_millis(1_500)
    });
    let stats = limiter.stats();
    assert_eq!((stats.forced, stats.pending), (1, 2));
    assert!(stats.queues[3].stall >= 15, "it goes on accruing (X31)");
    assert!(stats.tokens < -2_147_483_600);
    assert_eq!(waiting.bell.wakes(), 0);
    assert!(log.is_silent());
    drop(waiting);
}

/// Refills make room, and then it goes into debt at once.
#[test]
fn i17_refills_make_room() {
    scene(|| {
        let begun = Instant::now();
        let limiter = limiter(1_000);
        // 1,001 tokens are left to the end of the word.
        into_debt(&limiter, MOST - 1_000);
        limiter.blocking_acquire(2_600, NORMAL).unwrap();
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_micros(1_598_000), "{waited:?}");
        calm(waited < Duration::from_millis(2_600));
        assert!(limiter.stats().tokens < -2_147_483_000);
        assert_eq!(limiter.stats().forced, 2);
    });
}

/// At the end of the word, seven that would all push it over: none does.
#[test]
fn i21_racers_do_not_wrap_it() {
    let limiter = limiter(MOST);
    let begun = Barrier::new(7);
    let taken = AtomicI64::new(0);
    let start = read(&limiter);
    thread::scope(|scope| {
        for priority in Priority::ALL {
            let (begun, limiter, taken) = (&begun, &limiter, &taken);
            scope.spawn(move || {
                begun.wait();
                for _ in 0..2 {
                    let short = Duration::from_millis(1_200);
                    if limiter
                        .blocking_acquire_until(MOST, priority, short)
                        .is_ok()
                    {
                        taken.fetch_add(i64::from(MOST), Ordering::SeqCst);
                    }
                }
            });
        }
    });
    // It is full now and then: at most what was earned.
    let now = read(&limiter);
    let taken = taken.load(Ordering::SeqCst);
    assert!(taken >= 3 * i64::from(MOST));
    let (_, most) = earned(MOST, start.age());
    assert!(now.tokens + taken <= start.tokens + most);
}

/// One forced item a second from any one priority, each of the seven by itself.
#[test]
fn i19_one_a_second_from_each_priority() {
    scene(|| {
        let limiter = limiter(100);
        let begun = Instant::now();
        into_debt(&limiter, 100_000);
        let log = Log::new();
        for n in 0..3 {
            for lane in 0..7 {
                log.queue(&limiter, 1_000, Priority::ALL[lane], (lane, n));
            }
        }
        let mut ran: [Vec<Instant>; 7] = Default::default();
        for _ in 0..14 {
            let ((lane, n), at) = log.next();
            assert_eq!(n, ran[lane].len());
            ran[lane].push(at);
        }
        calm(begun.elapsed() < SECOND * 3);
        for times in &ran {
            assert_eq!(times.len(), 2);
            // Noted on the thread that runs them, so a moment late.
            assert!(times[0] - begun >= SECOND - TICK);
            assert!(times[1] - begun >= SECOND * 2 - TICK * 2);
        }
        let stats = limiter.stats();
        calm((stats.forced, stats.pending) == (15, 7));
    });
}

/// Refills pay the debt first; the average comes back to the rate.
#[test]
fn i18_j4_a_debt_is_paid_first() {
    scene(|| {
        let limiter = limiter(1_000);
        let full = read(&limiter);
        let before = Instant::now();
        let debt = into_debt(&limiter, 300);
        let after = debt.at();
        // Each try is bounded from both sides.
        loop {
            let begun = Instant::now();
            let taken = limiter.try_consume(1).is_ok();
            let ended = Instant::now();
            if taken {
                // A part of the first token was earned before.
                assert!(ended - before >= Duration::from_micros(299_900));
                break;
            }
            let late = begun.saturating_duration_since(after);
            assert!(
                late < Duration::from_micros(301_200),
                "refused after {late:?}"
            );
        }
        into_debt_is_over(&limiter, full, 1_301);
    });
}

fn into_debt_is_over(limiter: &Limiter, full: crate::limiter_support::Reading, taken: i64) {
    let now = read(limiter);
    // It began full: what was earned before the first debit is lost.
    assert!(now.tokens + taken <= full.tokens + earned(1_000, full.age()).1);
    assert_eq!(limiter.stats().forced, 1);
}

/// More than the capacity: when the bucket is full, at the latest by the guard; and those behind it go on.
#[test]
fn i20_i22_more_than_the_capacity() {
    scene(|| {
        let begun = Instant::now();
        let limiter = limiter(1_000);
        drain_to(&limiter, 0);
        let log = Log::new();
        log.queue(&limiter, 1_500, NORMAL, "oversize");
        log.queue(&limiter, 1, NORMAL, "behind");
        let (first, at) = log.next();
        assert_eq!(first, "oversize");
        let waited = at - begun;
        assert!(waited >= Duration::from_micros(998_000), "{waited:?}");
        calm(waited < SECOND * 2);
        let (behind, later) = log.next();
        assert_eq!(behind, "behind");
        // When the debt is paid.
        assert!(later - begun >= Duration::from_micros(1_498_000));
        calm(later - at < SECOND * 2);
        calm(limiter.stats().forced == 1);
    });
}

/// The guard is the segment's: it admits the front of whichever member, and the other goes on.
#[test]
fn i23_the_guard_of_another_member() {
    scene(|| {
        let shared = Rated::new(1_000);
        let (floods, starves) = (shared.member(), shared.member());
        drain_to(&floods, 0);
        while_flooded(&floods, |stops| {
            let begun = Instant::now();
            starves.blocking_acquire(500, Priority::Lowest).unwrap();
            let waited = begun.elapsed();
            drop(stops);
            calm(starves.stats().forced == 1);
            assert!(waited >= SECOND - TICK, "{waited:?}");
            calm(waited < SECOND * 2);
        });
        assert_eq!(starves.stats().forced, 1);
    });
}

/// Backlog of any priority, of any member, refuses a try; and so does more than there is. Nothing is counted.
#[test]
fn i24_x6_x30_a_try_needs_tokens_and_no_backlog() {
    scene(|| {
        let shared = Rated::new(1_000);
        let (own, other) = (shared.member(), shared.member());
        assert_eq!(own.try_consume(1_001), TOO_FEW);
        drain_to(&own, 500);
        for member in [&own, &other] {
            for priority in Priority::ALL {
                let waiting = waits(member.acquire(1_100, priority));
                let before = own.stats().total;
                assert_eq!(own.try_consume(1), TOO_FEW);
                assert_eq!(own.try_consume(0), TOO_FEW);
                assert_eq!(own.stats().total, before);
                drop(waiting);
                assert_eq!(own.try_consume(1), Ok(()));
            }
        }
        // A more urgent newcomer is queued, and runs when its turn comes (X6).
        let waiting = waits(other.acquire(1_100, Priority::Low));
        let log = Log::new();
        log.queue(&own, 1, Priority::High, ());
        log.next();
        drop(waiting);
    });
}

/// Racers take what is there, and not once more.
#[test]
fn i25_racers_take_each_token_once() {
    let shared = Rated::new(100);
    let members: Vec<_> = (0..8).map(|_| shared.member()).collect();
    for _ in 0..10 {
        let begun = Barrier::new(8);
        let start = read(&members[0]);
        let taken = AtomicI64::new(0);
        let empty = thread::scope(|scope| {
            let threads: Vec<_> = members
                .iter()
                .map(|member| {
                    let (begun, taken) = (&begun, &taken);
                    scope.spawn(move || {
                        begun.wait();
                        // The moment before the try that was refused.
                        let mut before = Instant::now();
                        while member.try_consume(30).is_ok() {
                            taken.fetch_add(30, Ordering::SeqCst);
                            before = Instant::now();
                        }
                        assert!(member.stats().tokens >= 0);
                        before
                    })
                })
                .collect();
            let ended = threads.into_iter().map(|thread| thread.join().unwrap());
            ended.max().unwrap()
        });
        let taken = taken.load(Ordering::SeqCst);
        let now = read(&members[0]);
        assert!(now.tokens < 30 + earned(100, now.after() - empty).1);
        let got = now.tokens + taken - start.tokens;
        assert!(got <= earned(100, start.age()).1, "{got} too many");
    }
}

/// What fits goes in and out without a debt, a force or a loss.
#[test]
fn i26_i27_moderate_load_makes_no_debt() {
    let limiter = limiter(100_000);
    let empty = drain_to(&limiter, 20_000);
    let end = Instant::now() + SECOND;
    let taken = AtomicI64::new(0);
    thread::scope(|scope| {
        for n in 0..4 {
            let (limiter, taken) = (&limiter, &taken);
            scope.spawn(move || {
                let mut dice = Dice::new(n);
                while Instant::now() < end {
                    let tokens = dice.below(500) as u32;
                    limiter.blocking_acquire(tokens, dice.priority()).unwrap();
                    taken.fetch_add(tokens.into(), Ordering::SeqCst);
                    assert!(limiter.stats().tokens >= 0);
                }
            });
        }
    });
    conserved(100_000, empty, taken.load(Ordering::SeqCst), read(&limiter));
    assert_eq!(limiter.stats().forced, 0);
    until("it is full", || limiter.stats().tokens == 100_000);
    limiter.blocking_acquire(100_001, NORMAL).unwrap();
    assert_eq!(limiter.stats().forced, 1);
}

/// Saturated by threads, tasks and callbacks: not a token more than time earned, and none less.
#[test]
fn i29_the_rate_in_the_long_run() {
    scene(|| {
        const RATE: u32 = 200_000;
        let limiter = limiter(RATE);
        let empty = drain_to(&limiter, 0);
        let end = Instant::now() + SECOND;
        let taken = Arc::new(AtomicI64::new(0));
        thread::scope(|scope| {
            for n in 0..6 {
                let (limiter, taken) = (&limiter, &taken);
                scope.spawn(move || {
                    while Instant::now() < end {
                        match n % 3 {
                            0 => limiter.blocking_acquire(100, NORMAL).unwrap(),
                            1 => {
                                futures_executor::block_on(limiter.acquire(100, NORMAL)).unwrap();
                            }
                            _ => {
                                let taken = taken.clone();
                                let count = move |()| {
                                    taken.fetch_add(100, Ordering::SeqCst);
                                };
                                limiter.consume(count, 100, NORMAL, ()).unwrap();
                                thread::sleep(Duration::from_millis(1));
                                continue;
                            }
                        }
                        taken.fetch_add(100, Ordering::SeqCst);
                    }
                });
            }
        });
        limiter.blocking_drain();
        let now = read(&limiter);
        let taken = taken.load(Ordering::SeqCst);
        conserved(RATE, empty, taken, now);
        let whole = earned(RATE, now.at() - empty.at()).0;
        calm(taken * 100 >= whole * 90);
    });
}

/// Asked every millisecond, at rates where a millisecond earns a thousandth of a token: no fraction is lost.
#[test]
fn i30_no_fraction_is_lost() {
    let begun = Instant::now();
    let limiters: Vec<_> = (1..=9).map(limiter).collect();
    let empty: Vec<_> = limiters
        .iter()
        .map(|limiter| drain_to(limiter, 0))
        .collect();
    let mut taken = [0i64; 9];
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while begun.elapsed() < Duration::from_millis(2_300) {
        for (limiter, taken) in limiters.iter().zip(&mut taken) {
            *taken += i64::from(limiter.try_consume(1).is_ok());
        }
        thread::sleep(Duration::from_millis(1));
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    for (n, limiter) in limiters.iter().enumerate() {
        let rate = limiter.tokens_per_second();
        let now = read(limiter);
        let got = now.tokens + taken[n];
        let most = (now.after() - begun).as_secs_f64() * f64::from(rate);
        let least = (now.at() - empty[n].after()).as_secs_f64() * f64::from(rate);
        // Nobody comes for so long, and it is full meanwhile: what is earned then is lost, once before each that was taken.
        let full = 1.0 - 1.0 / f64::from(rate);
        let lost =
            (longest.as_secs_f64() - full).max(0.0) * (taken[n] + 1) as f64 * f64::from(rate);
        assert!(
            (got as f64) <= most + 0.1 && got as f64 >= least - 1.1 - lost,
            "{got} of {least} to {most}"
        );
    }
}

/// A token is a byte: a megabyte a second, in chunks of all sizes.
#[test]
fn i31_bytes_through_a_megabyte_a_second() {
    scene(|| {
        let data = vec![0u8; 1_500_000];
        let begun = Instant::now();
        let limiter = limiter(1_000_000);
        let mut dice = Dice::new(31);
        let mut rest = &data[..];
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at((1 + dice.below(65_536)).min(rest.len()));
            limiter
                .blocking_acquire(chunk.len() as u32, NORMAL)
                .unwrap();
            rest = after;
        }
        let took = begun.elapsed();
        // A full bucket at first.
        assert!(took >= Duration::from_micros(499_800), "{took:?}");
        calm(took < Duration::from_millis(1_500));
    });
}

/// Within the call a panic goes to the caller, the tokens are spent.
#[test]
fn x28_a_panic_within_the_call() {
    watch_panics();
    let begun = Instant::now();
    let limiter = limiter(100);
    let meant = format!("{MEANT}x28 within");
    let caught = catch_unwind(AssertUnwindSafe(|| {
        limiter.consume(|text: String| panic!("{text}"), 60, NORMAL, meant.clone())
    }));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&meant));
    let left = i64::from(limiter.stats().tokens);
    assert!(left <= 40 + earned(100, begun.elapsed()).1, "{left}");
    limiter.blocking_drain();
    assert_eq!(limiter.consume(drop, 30, NORMAL, ()), Ok(true));
}

/// From a queued one it goes to the hook; the tokens are spent, and the next ones run.
#[test]
fn x28_a_panic_of_a_queued_callback() {
    watch_panics();
    let shared = Rated::new(1_000);
    let limiter = shared.member();
    // A debt, so that all of them are queued before the first runs.
    into_debt(&limiter, 800);
    let meant = format!("{MEANT}x28 queued");
    let log = Log::new();
    for n in 0..3 {
        let panics = |text: String| panic!("{text}");
        assert_eq!(
            limiter.consume(panics, 50, NORMAL, meant.clone()),
            Ok(false)
        );
        log.queue(&limiter, 10, NORMAL, n);
    }
    assert_eq!(log.take(3), [0, 1, 2]);
    limiter.blocking_drain();
    assert_eq!(panics_of(&meant).len(), 3);
    assert_eq!(shared.info().consumed, 1_800 + 180);
    // Also one that was queued and ran within the call.
    until("it is full", || limiter.stats().tokens == 1_000);
    let panics = |text: String| panic!("{text}");
    assert_eq!(
        limiter.consume(panics, 1_001, NORMAL, meant.clone()),
        Ok(false)
    );
    assert_eq!(panics_of(&meant).len(), 4);
    limiter.blocking_drain();
}

/// A callback may queue more, and the Limiter waits for those too.
#[test]
fn i5_callbacks_may_queue_more() {
    fn again(limiter: &Limiter, left: u32, ran: Arc<AtomicU32>) {
        let own = limiter.clone();
        let callback = move |left: u32| {
            ran.fetch_add(1, Ordering::SeqCst);
            if left > 0 {
                again(&own, left - 1, ran);
            }
        };
        limiter.consume(callback, 1, NORMAL, left).unwrap();
    }
    let limiter = limiter(10_000);
    drain_to(&limiter, 0);
    let ran = Arc::new(AtomicU32::new(0));
    again(&limiter, 500, ran.clone());
    ends("the chain", {
        let limiter = limiter.clone();
        move || limiter.blocking_drain()
    });
    assert_eq!(ran.load(Ordering::SeqCst), 501);
}

/// A rate that changes counts from then on, and who waits is told.
#[test]
fn i29_a_new_rate_counts_from_now() {
    scene(|| {
        let shared = Rated::new(1_000);
        let segment = shared.open();
        let limiter = segment.limiter().unwrap();
        let empty = drain_to(&limiter, 0);
        let log = Log::new();
        let begun = Instant::now();
        log.queue(&limiter, 900, NORMAL, ());
        thread::sleep(Duration::from_millis(100));
        segment.set(&Changes::new().rate(100_000)).unwrap();
        let (_, at) = log.next();
        // Who waits is told: its watch would be after 300 ms.
        calm(at - begun < Duration::from_millis(250));
        assert!(read(&limiter).tokens + 900 <= 100 + earned(100_000, empty.age()).1);
        until("it is full", || limiter.stats().tokens == 100_000);
        segment.set(&Changes::new().rate(50)).unwrap();
        assert_eq!(limiter.stats().tokens, 50);
        assert_eq!(limiter.tokens_per_second(), 50);
    });
}

/// Another process's callers stand in the same line.
#[test]
fn i14_processes_share_one_order() {
    const NAME: &str = "limiter_consume::i14_processes_share_one_order";
    if let Some(path) = told(NAME) {
        let own = open(&path);
        let begun = Instant::now();
        own.blocking_acquire(700, Priority::Low).unwrap();
        assert!(begun.elapsed() >= SECOND - TICK);
        own.blocking_acquire(1, Priority::High).unwrap();
        return;
    }
    let shared = Rated::new(1_000);
    let limiter = shared.member();
    drain_to(&limiter, 0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| flood(&limiter, 10, NORMAL, &stop));
        let stops = Stop(&stop);
        child(NAME, &shared.path());
        drop(stops);
    });
    // The less urgent one of the child needed the guard; the debt that it left may have held up others.
    let forced = shared.info().forced - limiter.stats().forced;
    assert!((1..=2).contains(&forced), "{forced}");
}
