//! Wakes that cross processes, and waits that end for no other reason.
#![allow(unsafe_code)]

use crate::puppet::Puppet;
use crate::support::{
    Args, Child, LONG, Scene, Words, figure, less, median, now, one_of, quiet, say, until,
};
use shmsched::{AcquireError, Priority, Segment};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn hand_over(rounds: usize, how: &str) -> Vec<Duration> {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let mut one = Puppet::new(&location);
    let mut two = Puppet::new(&location);
    let mut delays = Vec::new();
    for _ in 0..rounds {
        one.take("x", 1);
        two.ask(&format!("{how} w 3 1"));
        until(LONG, "in line", || words.waiters() == 1);
        let freed = one.drop("x");
        delays.push(Duration::from_nanos(two.got("w").saturating_sub(freed)));
        two.drop("w");
    }
    quiet(&location, 1);
    delays.sort_unstable();
    figure!(
        "{how}: median {:?}, worst {:?}",
        median(&delays),
        delays[rounds - 1]
    );
    delays
}

/// A fallback by polling would show as steps of 100 ms.
#[test]
fn case_31_a_release_wakes_another_process() {
    for how in ["wait", "task"] {
        let delays = hand_over(60, how);
        assert!(median(&delays) < Duration::from_millis(10), "{delays:?}");
        assert!(delays[53] < Duration::from_millis(50), "{delays:?}");
    }
}

#[test]
#[ignore = "for scripts/stress: 200 rounds each, tight"]
fn stress_case_31_a_release_wakes_another_process() {
    for how in ["wait", "task"] {
        let delays = hand_over(200, how);
        assert!(median(&delays) < Duration::from_millis(2), "{delays:?}");
        assert!(delays[199] < Duration::from_millis(50), "{delays:?}");
    }
}

/// Cancelled at the head, in the middle and at the end: those behind are served.
#[test]
fn case_08_a_cancelled_waiter_wakes_those_behind_it() {
    let scene = Scene::alone();
    let location = scene.segment(3);
    let words = Words::of(&location);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    const TIMED_OUT: &str = "failed all TimedOut";
    one_of(3, || {
        let mut delays = Vec::new();
        // Each way ends the head; it asks for all three and holds up the one slot behind it.
        for round in 0..30 {
            let mut head = Puppet::new(&location);
            let mut next = Puppet::new(&location);
            let ended = match round % 3 {
                0 => {
                    head.ask("task all 3 3");
                    until(LONG, "a mark", || words.hurry() != 0);
                    next.wait("w", 3, 1);
                    until(LONG, "in line", || words.waiters() == 2);
                    let at = now();
                    head.ask("cancel all");
                    at
                }
                1 => {
                    let at = now() + 60_000_000;
                    head.ask("wait all 3 3 60");
                    // It may have stood still until its time was over.
                    let mut over = false;
                    until(LONG, "a mark", || {
                        over = over || head.0.listen_for(TIMED_OUT, Duration::ZERO).is_ok();
                        over || words.hurry() != 0
                    });
                    next.wait("w", 3, 1);
                    if !over {
                        head.0.expect(TIMED_OUT);
                    }
                    at
                }
                _ => {
                    head.ask("task all 3 3");
                    until(LONG, "a mark", || words.hurry() != 0);
                    next.wait("w", 3, 1);
                    until(LONG, "in line", || words.waiters() == 2);
                    let at = now();
                    head.0.tell("leave");
                    at
                }
            };
            delays.push(Duration::from_nanos(next.got("w").saturating_sub(ended)));
            next.drop("w");
        }
        delays.sort_unstable();
        figure!(
            "next served after {:?}, worst {:?}",
            median(&delays),
            delays[29]
        );
        // One of them may have stood still.
        assert!(delays[28] < Duration::from_secs(1), "{delays:?}");
        // The next must not have found it by itself, 7 ms after it came.
        less(
            "next served after",
            median(&delays),
            Duration::from_millis(5),
        )
    });
    holder.drop("one");
    quiet(&location, 3);
}

#[test]
fn case_08_cancelled_in_the_middle_and_at_the_end() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    let mut waiters: Vec<_> = (0..5).map(|_| Puppet::new(&location)).collect();
    for (at, waiter) in waiters.iter_mut().enumerate() {
        waiter.ask("task w 3 1");
        until(LONG, "queued first", || waiter.ask("pending") == "1");
        waiter.ask("task behind 3 1");
        until(LONG, "in line", || words.waiters() as usize == at + 1);
    }
    for (at, id) in [(1, "w"), (2, "behind"), (4, "w"), (4, "behind"), (0, "w")] {
        waiters[at].ask(&format!("cancel {id}"));
    }
    until(LONG, "the end left", || words.waiters() == 4);
    holder.drop("one");
    let left = [
        (2, "w"),
        (3, "w"),
        (0, "behind"),
        (1, "behind"),
        (3, "behind"),
    ];
    for (at, id) in left {
        // In whatever order: each is served once the others gave back.
        waiters[at].0.tell(&format!("drop {id}"));
    }
    for (at, _) in left {
        waiters[at].0.expect("=");
    }
    quiet(&location, 1);
}

/// Random cancels against grants, on two processes.
#[test]
fn case_08_random_cancels_against_grants() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let path = location.path();
    let mut other = Child::start("impatient", &[&path.to_string_lossy(), "1500"]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let begun = Instant::now();
    let mut rounds = 0;
    runtime.block_on(async {
        let mut chance = crate::support::Chance::new();
        while begun.elapsed() < Duration::from_millis(1_500) {
            let patience = Duration::from_micros(chance.below(400));
            let call = scheduler.acquire(Priority::Normal);
            drop(tokio::time::timeout(patience, call).await);
            rounds += 1;
        }
    });
    other.expect("counted");
    other.expect("shut");
    other.kill();
    figure!("{rounds} rounds");
    assert!(rounds > 100);
    drop((scheduler, segment));
    quiet(&location, 1);
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Role: PATH. Waits 1.2 s in vain while its thread gets a thousand signals.
pub fn signalled(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    // SAFETY: the handler only adds to an atomic; no SA_RESTART, so that waits are interrupted; the rest is zero.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int) = count;
        action.sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    // SAFETY: pthread_self has no conditions.
    let waiter = unsafe { libc::pthread_self() };
    let wait = Duration::from_millis(1_200);
    let begun = Instant::now();
    let result = std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..1_000 {
                // SAFETY: the scope ends after this thread, so the waiter lives.
                unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(700));
            }
        });
        scheduler
            .blocking_acquire_until(1, Priority::Normal, wait)
            .map(drop)
    });
    let took = begun.elapsed();
    assert_eq!(result, Err(AcquireError::TimedOut));
    assert!(took >= wait, "too early: {took:?}");
    assert!(took < wait + Duration::from_secs(2), "too late: {took:?}");
    say(format!("signals {}", SIGNALS.load(Ordering::Relaxed)));
}

#[test]
fn case_53_signals_neither_grant_nor_time_out() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let held = scheduler.try_acquire(Priority::Normal).unwrap();
    let path = location.path();
    let mut child = Child::start("signalled", &[&path.to_string_lossy()]);
    let signals: u32 = child.expect("signals").parse().unwrap();
    assert!(signals > 100, "{signals}");
    child.finish();
    drop(held);
    quiet(&location, 1);
}

/// Stopped anywhere within its hottest loop, it is in nobody's way: nobody spins on it.
#[test]
fn case_53_a_process_stopped_amid_its_work_costs_others_nothing() {
    let scene = Scene::alone();
    let location = scene.segment(4);
    let path = location.path();
    let words = Words::of(&location);
    let mut spinner = Child::start("spin", &[&path.to_string_lossy()]);
    spinner.expect("spinning");
    let mut holder = Puppet::new(&location);
    let mut waiters = [Puppet::new(&location), Puppet::new(&location)];
    for round in 0..6u64 {
        std::thread::sleep(Duration::from_micros(round * 137));
        spinner.stop();
        // What it had taken stays taken; the rest is free.
        let stuck = words.running();
        assert!((0..=3).contains(&stuck), "{stuck}");
        for _ in 0..50 {
            assert!(holder.could_take());
        }
        for at in 0..4 - stuck {
            holder.take(&format!("h{at}"), 1);
        }
        for waiter in &mut waiters {
            waiter.wait("w", 3, 1);
        }
        until(LONG, "in line", || words.waiters() == 2);
        let before: Vec<_> = waiters.iter().map(|waiter| waiter.0.usage().0).collect();
        std::thread::sleep(Duration::from_millis(400));
        for (waiter, before) in waiters.iter().zip(before) {
            let spent = waiter.0.usage().0 - before;
            // 100 ms in 3 s.
            assert!(spent < Duration::from_millis(50), "{spent:?} of 400 ms");
        }
        for at in 0..4 - stuck {
            holder.drop(&format!("h{at}"));
        }
        for waiter in &mut waiters {
            waiter.got("w");
            waiter.drop("w");
        }
        spinner.go_on();
    }
    spinner.kill();
    quiet(&location, 4);
}

/// That so many sleep through a window of so long, but for those that watch, and use less than such a share of a core.
pub fn costs_little(sleepers: &[&Child], time: Duration, share: f64, watch: usize) {
    let usage = || sleepers.iter().map(|child| child.usage());
    // Some may still be on their way to sleep.
    one_of(3, || {
        let before: Vec<_> = usage().collect();
        let begun = Instant::now();
        std::thread::sleep(time);
        let after: Vec<_> = usage().collect();
        let passed = begun.elapsed();
        let both = before.iter().zip(&after);
        let spent: Duration = both.clone().map(|(before, after)| after.0 - before.0).sum();
        let mut wakeups: Vec<u64> = both.map(|(before, after)| after.1 - before.1).collect();
        wakeups.sort_unstable_by(|a, b| b.cmp(a));
        let used = spent.as_secs_f64() / passed.as_secs_f64();
        figure!(
            "{} sleep: {:.2} % of a core, most wake-ups {:?}",
            sleepers.len(),
            used * 100.0,
            &wakeups[..=watch]
        );
        less("share of a core", used, share)?;
        less("wake-ups", wakeups[watch], 6)
    });
}

/// Many waiters, one slot: idle they cost nothing, and a release wakes few of them.
fn stampede(waiters: usize) {
    let scene = Scene::alone();
    let location = scene.segment_of(
        "S",
        &shmsched::Settings::new()
            .concurrency(1)
            .members(waiters as u32 + 8),
    );
    let words = Words::of(&location);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    let path = location.path();
    let begun = Instant::now();
    let mut crowd: Vec<_> = (0..waiters)
        .map(|_| Child::start("puppet", &[&path.to_string_lossy()]))
        .collect();
    crowd
        .iter_mut()
        .for_each(|child| drop(child.expect("attached")));
    let attached = begun.elapsed();
    crowd.iter_mut().for_each(|child| child.tell("wait w 3 1"));
    until(LONG, "all in line", || words.waiters() as usize == waiters);
    let idle: Vec<_> = crowd.iter().collect();
    // Two watch, every 100 ms; of the others each looks up every four seconds or so.
    costs_little(&idle, Duration::from_secs(3), 0.03, 2);
    let rings = words.rings();
    let drain = Instant::now();
    holder.drop("one");
    for child in &mut crowd {
        child.tell("drop w");
    }
    crowd
        .iter_mut()
        .for_each(|child| drop(child.expect("got w")));
    let drain = drain.elapsed();
    until(LONG, "all out of line", || {
        words.waiters() == 0 && words.running() == 0
    });
    let per_release = (words.rings() - rings) as f64 / waiters as f64;
    let spent: Duration = crowd.iter().map(|child| child.usage().0).sum();
    figure!(
        "{waiters} attached in {attached:?}, drained in {drain:?}, {per_release:.2} wakes per release, \
         {spent:?} processor time in all"
    );
    // Two, and one more where a second became the first before it has said that it watches: it is rung again.
    assert!(per_release <= 3.5, "{per_release}");
    drop(crowd);
    quiet(&location, 1);
}

#[test]
fn case_50_many_waiters_cost_nothing_and_a_release_wakes_few() {
    stampede(60);
}

#[test]
#[ignore = "for scripts/stress: 300 processes"]
fn stress_case_50_300_waiters() {
    stampede(300);
}
