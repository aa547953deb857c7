//! Kinds of failure that others had with rate limits, each as a test of its own.

use crate::calm::{calm, scene};
use crate::limiter_support::{
    Log, MOST, Rated, check, conserved, drain_to, earned, into_debt, limiter, open, read,
};
use crate::support::{Dice, FOREVER, NORMAL, Task, alone, child, told, until};
use shmsched::{
    AcquireError, Changes, CreateError, Deadline, Limiter, Location, Priority, QueueFull,
    Scheduler, Segment, SetError, Settings, StartError,
};
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(100);

/// How a wait is given up.
#[derive(Clone, Copy, Debug)]
enum How {
    Dropped,
    Selected,
    TaskTimesOut,
    ThreadTimesOut,
}

/// Waits for tokens and gives up 80 ms after it began; when that was. `None` if they came first.
fn gives_up(limiter: &Limiter, tokens: u32, how: How) -> Option<Instant> {
    let soon = Duration::from_millis(80);
    let late = match how {
        How::Dropped => {
            let mut task = Task::new(limiter.acquire(tokens, NORMAL));
            if task.poll().is_some() {
                return None;
            }
            thread::sleep(soon);
            if task.poll().is_some() {
                return None;
            }
            let now = Instant::now();
            drop(task);
            return Some(now);
        }
        How::Selected => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            let gave_up = runtime.block_on(async {
                tokio::select! {
                    _ = limiter.acquire(tokens, NORMAL) => false,
                    () = tokio::time::sleep(soon) => true,
                }
            });
            return gave_up.then(Instant::now);
        }
        How::TaskTimesOut => {
            futures_executor::block_on(limiter.acquire_until(tokens, NORMAL, soon))
        }
        How::ThreadTimesOut => limiter.blocking_acquire_until(tokens, NORMAL, soon),
    };
    (late == Err(AcquireError::TimedOut)).then(Instant::now)
}

/// Two wait before or behind one that gives up. How long after that the last one was served.
fn around(how: How, at: usize, tokens: u32, left: u32, other: bool) -> Duration {
    let shared = Rated::new(1_000);
    let own = shared.member();
    let leaver = if other { shared.member() } else { own.clone() };
    drain_to(&own, left);
    let log = Log::new();
    let small = [120, 10];
    let gave_up = thread::scope(|scope| {
        small[..at]
            .iter()
            .for_each(|tokens| log.queue(&own, *tokens, NORMAL, *tokens));
        let leaver = scope.spawn(|| gives_up(&leaver, tokens, how));
        let mut stands = false;
        until("it waits or has left", || {
            stands = shared.info().queued[3] == at as u64 + 1;
            stands || leaver.is_finished()
        });
        calm(stands);
        small[at..]
            .iter()
            .for_each(|tokens| log.queue(&own, *tokens, NORMAL, *tokens));
        leaver.join().unwrap()
    });
    calm(gave_up.is_some());
    let gave_up = gave_up.unwrap();
    let (first, _) = log.next();
    let (second, done) = log.next();
    assert_eq!([first, second], small);
    own.blocking_drain();
    let info = shared.info();
    assert_eq!((info.queued, info.waiters), ([0; 7], 0));
    calm(info.forced == 0);
    assert_eq!(info.cancelled, 1);
    let took = done.saturating_duration_since(gave_up);
    // Neither by the guard nor by a watch.
    calm(took < Duration::from_millis(700));
    took
}

/// The head, one in the middle, the tail leaves: those behind it go on when their own tokens are there.
#[test]
fn case_8_who_gives_up_leaves_nobody_asleep() {
    let hows = [
        How::Dropped,
        How::Selected,
        How::TaskTimesOut,
        How::ThreadTimesOut,
    ];
    let took: Vec<Duration> = thread::scope(|scope| {
        let rounds = hows.map(|how| {
            scope.spawn(move || {
                let mut took = Vec::new();
                // As head it holds up those that have theirs, or those who reckon with what it would take.
                for (at, tokens, left) in
                    [(0, 5_000, 150), (0, 900, 0), (1, 5_000, 0), (2, 5_000, 0)]
                {
                    took.extend([false, true].map(|other| {
                        let mut tries =
                            (0..3).map(|_| scene(|| around(how, at, tokens, left, other)));
                        // One that was late may have stood still.
                        tries.find(|took| *took <= SOON).unwrap_or(SECOND)
                    }));
                }
                took
            })
        });
        rounds
            .into_iter()
            .flat_map(|rounds| rounds.join().unwrap())
            .collect()
    });
    let late = took.iter().filter(|took| **took > SOON).count();
    assert!(late * 4 <= took.len(), "{took:?}");
}

/// Grants and cancels at random, by two members: nothing is lost, nobody is left.
#[test]
fn case_8_a_storm_of_cancels_and_grants() {
    const RATE: u32 = 50_000;
    let shared = Rated::new(RATE);
    let members = [shared.member(), shared.member()];
    let start = drain_to(&members[0], 0);
    let taken = AtomicI64::new(0);
    let end = Instant::now() + SECOND;
    thread::scope(|scope| {
        for n in 0..8 {
            let (members, taken) = (&members, &taken);
            scope.spawn(move || {
                let mut dice = Dice::new(n);
                while Instant::now() < end {
                    let limiter = &members[dice.below(2)];
                    let (tokens, priority) = (dice.below(100) as u32, dice.priority());
                    let short = Duration::from_micros(dice.below(3_000) as u64);
                    let got = match dice.below(3) {
                        0 => limiter
                            .blocking_acquire_until(tokens, priority, short)
                            .is_ok(),
                        1 => {
                            let future = limiter.acquire_until(tokens, priority, short);
                            futures_executor::block_on(future).is_ok()
                        }
                        _ => {
                            let mut task = Task::new(limiter.acquire(tokens, priority));
                            let mut got = task.poll().is_some();
                            if !got {
                                thread::sleep(short);
                                got = task.poll().is_some();
                            }
                            got
                        }
                    };
                    if got {
                        taken.fetch_add(tokens.into(), Ordering::SeqCst);
                    }
                }
            });
        }
    });
    conserved(RATE, start, taken.load(Ordering::SeqCst), read(&members[0]));
    let info = shared.info();
    assert_eq!((info.waiters, info.queued, info.lost), (0, [0; 7], 0));
    assert_eq!(info.deferred, info.completed + info.cancelled);
    assert!(info.cancelled > 100 && info.completed > 100, "{info:?}");
    members.iter().for_each(|member| check(&member.stats()));
    members[1].try_consume(0).unwrap();
}

/// Processes and threads that spin get what time earned and no more; idle, it fills to the capacity exactly.
#[test]
fn case_12_spinning_consumers_get_the_rate() {
    scene(|| {
        const NAME: &str = "limiter_cases::case_12_spinning_consumers_get_the_rate";
        const RATE: u32 = 50_000;
        let spin = |own: &Limiter, time: Duration| {
            let end = Instant::now() + time;
            let mut taken = 0;
            // Something, at least, by who stands still for all the time.
            let longest = end + FOREVER;
            while Instant::now() < end || taken == 0 && Instant::now() < longest {
                taken += i64::from(own.try_consume(1).is_ok());
                // Not all of it, or a child would hardly begin.
                taken += 37 * i64::from(own.try_consume(37).is_ok());
            }
            taken
        };
        if let Some(path) = told(NAME) {
            let own = open(&path);
            assert!(spin(&own, Duration::from_millis(400)) > 0);
            own.blocking_acquire(37, NORMAL).unwrap();
            return;
        }
        let shared = Rated::new(RATE);
        let own = shared.member();
        let start = drain_to(&own, 0);
        thread::scope(|scope| {
            for n in 0..4 {
                let path = shared.path();
                let shared = &shared;
                match n {
                    0 | 1 => scope.spawn(move || child(NAME, &path)),
                    _ => scope.spawn(move || {
                        spin(&shared.member(), Duration::from_millis(900));
                    }),
                };
            }
        });
        let now = read(&own);
        let taken = (shared.info().consumed - u64::from(RATE)) as i64;
        calm(now.tokens < i64::from(RATE));
        conserved(RATE, start, taken, now);
        let whole = earned(RATE, now.at() - start.at()).0;
        calm(taken * 100 >= whole * 60);
        until("it is full", || own.stats().tokens >= RATE as i32);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(own.stats().tokens, RATE as i32);
        own.try_consume(RATE).unwrap();
    });
}

/// More than the bucket holds: admitted when it is full, into a debt that the next ones pay, but for one a second.
#[test]
fn case_16_a_request_larger_than_the_bucket() {
    scene(|| {
        let limiter = limiter(1_000);
        let begun = Instant::now();
        limiter.blocking_acquire(3_500, NORMAL).unwrap();
        calm(begun.elapsed() < Duration::from_millis(900));
        let debt = read(&limiter);
        calm((-2_500..-1_500).contains(&debt.tokens));
        limiter.blocking_acquire(1, NORMAL).unwrap();
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_micros(999_800), "{waited:?}");
        calm(waited < Duration::from_millis(2_800));
        assert_eq!(limiter.stats().forced, 2);
        conserved(1_000, debt, 1, read(&limiter));
        // Refused, and nothing changed.
        let refused = limiter.blocking_acquire(MOST + 1, NORMAL);
        assert_eq!(
            refused,
            Err(AcquireError::TooManyTokens { amount: MOST + 1 })
        );
        conserved(1_000, debt, 1, read(&limiter));
    });
}

/// Near the end of the word it waits for room; the balance never turns positive.
#[test]
fn case_16_a_debt_near_the_end_of_the_word() {
    let limiter = limiter(1_000);
    let debt = into_debt(&limiter, MOST - 1_000);
    let short = Duration::from_millis(1_300);
    let late = limiter.blocking_acquire_until(MOST, NORMAL, short);
    assert_eq!(late, Err(AcquireError::TimedOut));
    conserved(1_000, debt, 0, read(&limiter));
    assert!(limiter.stats().tokens < 0);
    // A small one still finds room.
    limiter.blocking_acquire(1_000, Priority::Low).unwrap();
    conserved(1_000, debt, 1_000, read(&limiter));
}

/// Settings out of their range are refused as a whole, by each way to give them, and leave nothing.
#[test]
fn case_17_absurd_settings() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("segment");
    let location = Location::File(path.clone());
    let bad = [
        Settings::new().rate(0),
        Settings::new().rate(MOST + 1),
        Settings::new().rate(5).interval(Duration::ZERO),
        Settings::new().rate(5).max_waiting(65_537),
        Settings::new().rate(5).concurrency(MOST + 1),
    ];
    for settings in bad {
        let refused = Segment::make(&location, &settings).unwrap_err();
        assert!(matches!(refused, CreateError::Invalid(_)), "{refused:?}");
        let text = refused.to_string();
        assert!(!text.is_empty() && !text.contains('\n'), "{text}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
    let settings = Settings::new()
        .rate(5)
        .concurrency(0)
        .interval(Duration::from_secs(60))
        .max_waiting(0);
    let segment = Segment::create(&location, &settings).unwrap();
    let limiter = segment.limiter().unwrap();
    for changes in [
        Changes::new().rate(0),
        Changes::new().rate(MOST + 1),
        Changes::new().rate(7).interval(Duration::ZERO),
        Changes::new().rate(7).concurrency(Some(MOST + 1)),
    ] {
        let refused = segment.set(&changes).unwrap_err();
        assert!(
            matches!(refused, SetError::Invalid(_) | SetError::Concurrency(_)),
            "{refused:?}"
        );
        assert_eq!(limiter.tokens_per_second(), 5);
        assert_eq!(limiter.stats().tokens, 5);
    }
    // Zero is no limit's absence: at a gate of none nothing runs, and nobody waits where nobody may.
    let scheduler: Scheduler = segment.scheduler().unwrap();
    assert_eq!(
        scheduler.run_blocking(|| (), NORMAL),
        Err(AcquireError::Zero)
    );
    let pacer = segment.pacer().unwrap();
    pacer.blocking_start().unwrap();
    let full = pacer.blocking_start();
    assert_eq!(full, Err(StartError::QueueFull(QueueFull)));
}

/// A deadline ends a wait when it comes: neither sooner, whatever wakes it, nor later; nothing was taken.
#[test]
fn case_47_deadlines() {
    scene(|| {
        let limiter = limiter(10);
        let debt = into_debt(&limiter, 100_000);
        let long = Duration::from_millis(500);
        let timed = |wait: &mut dyn FnMut() -> Result<(), AcquireError>| {
            let begun = Instant::now();
            assert_eq!(wait(), Err(AcquireError::TimedOut));
            begun.elapsed()
        };
        let (sender, threads) = channel();
        let ended = thread::scope(|scope| {
            let own = &limiter;
            let blocks = scope.spawn(move || {
                sender.send(thread::current()).unwrap();
                timed(&mut || own.blocking_acquire_until(5, NORMAL, long))
            });
            let behind =
                scope.spawn(move || timed(&mut || own.blocking_acquire_until(5, NORMAL, long)));
            let polls = scope.spawn(move || {
                timed(&mut || futures_executor::block_on(own.acquire_until(5, NORMAL, long)))
            });
            let at = scope.spawn(move || {
                let at = Instant::now() + long;
                timed(&mut || own.blocking_acquire_until(5, Priority::Low, at))
            });
            // Woken for nothing, fifty times, by name and by whoever leaves.
            let thread = threads.recv().unwrap();
            for _ in 0..50 {
                thread.unpark();
                drop(Task::waiting(own.acquire(5, NORMAL)));
                thread::sleep(Duration::from_millis(5));
            }
            [blocks, behind, polls, at].map(|waits| waits.join().unwrap())
        });
        for took in ended {
            assert!(took >= long - Duration::from_micros(200), "{took:?}");
            calm(took < long + SECOND / 2);
        }
        // In the past: no wait at all, and no place in the queue is kept.
        for until in [
            Deadline::from(Duration::ZERO),
            Deadline::from(Instant::now()),
        ] {
            let begun = Instant::now();
            let late = limiter.blocking_acquire_until(5, NORMAL, until);
            assert_eq!(late, Err(AcquireError::TimedOut));
            let late = futures_executor::block_on(limiter.acquire_until(5, NORMAL, until));
            assert_eq!(late, Err(AcquireError::TimedOut));
            calm(begun.elapsed() < SECOND / 2);
        }
        let stats = limiter.stats();
        check(&stats);
        assert_eq!((stats.pending, stats.forced), (0, 1));
        conserved(10, debt, 0, read(&limiter));
        // What is there is taken, whatever the deadline.
        limiter.refund(200_000);
        limiter
            .blocking_acquire_until(5, NORMAL, Duration::ZERO)
            .unwrap();
        let taken = limiter.acquire_until(2, NORMAL, Duration::ZERO);
        futures_executor::block_on(taken).unwrap();
        // A duration counts from the call, not from the first poll.
        let late = limiter.acquire_until(5, NORMAL, Duration::from_millis(20));
        thread::sleep(Duration::from_millis(30));
        into_empty(&limiter);
        let begun = Instant::now();
        calm(futures_executor::block_on(late) == Err(AcquireError::TimedOut));
        calm(begun.elapsed() < SECOND / 2);
    });
}

fn into_empty(limiter: &Limiter) {
    while limiter.try_consume(1).is_ok() {}
}

/// A deadline that comes after the tokens does not end the wait.
#[test]
fn case_47_in_time() {
    let limiter = limiter(1_000);
    let empty = drain_to(&limiter, 0);
    limiter
        .blocking_acquire_until(100, NORMAL, SECOND * 5)
        .unwrap();
    let future = limiter.acquire_until(100, NORMAL, Instant::now() + SECOND * 5);
    futures_executor::block_on(future).unwrap();
    limiter
        .blocking_acquire_until(10, NORMAL, Deadline::Never)
        .unwrap();
    conserved(1_000, empty, 210, read(&limiter));
    assert_eq!(limiter.stats().total.cancelled, 0);
}

/// A hundred thousand rounds of queueing and giving up, each way: no memory, no place, no count is left.
#[test]
fn case_55_giving_up_leaves_nothing() {
    alone("limiter_cases::case_55_giving_up_leaves_nothing", || {
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
            pages * 4_096
        };
        let shared = Rated::new(1_000);
        let limiter = shared.member();
        let child = limiter.child(10_000).unwrap();
        drain_to(&limiter, 0);
        into_debt_of(&limiter);
        let head = Task::waiting(limiter.acquire(2, Priority::Highest));
        let rounds = |count: usize| {
            for n in 0..count {
                let priority = Priority::ALL[n % 7];
                match n % 4 {
                    0 => drop(Task::waiting(limiter.acquire(5, priority))),
                    1 => {
                        let late = limiter.blocking_acquire_until(5, priority, Duration::ZERO);
                        assert_eq!(late, Err(AcquireError::TimedOut));
                    }
                    2 => {
                        // Behind another of its own.
                        let first = Task::waiting(limiter.acquire(5, priority));
                        let second = Task::waiting(limiter.acquire(5, priority));
                        drop((first, second));
                    }
                    _ => drop(Task::waiting(child.acquire(5, priority))),
                }
            }
        };
        rounds(4_000);
        let before = resident();
        for _ in 0..19 {
            rounds(4_000);
            let info = shared.info();
            let queued: u64 = info.queued.iter().sum();
            assert_eq!(queued, limiter.stats().pending);
            assert_eq!(
                info.deferred,
                info.completed + info.cancelled + info.lost + queued
            );
            check(&limiter.stats());
            check(&child.stats());
        }
        let grown = resident().saturating_sub(before);
        assert!(grown < 1 << 20, "{grown} bytes");
        drop(head);
        let info = shared.info();
        assert_eq!((info.queued, info.waiters), ([0; 7], 0));
        // The next one starts at once.
        limiter.refund(u32::MAX);
        limiter.refund(u32::MAX);
        limiter.try_consume(5).unwrap();
        child.try_consume(5).unwrap();
    });
}

/// So deep that nobody who waits is admitted by time, and to the end of the word, so that the guard admits nobody.
fn into_debt_of(limiter: &Limiter) {
    until("it is full", || limiter.stats().tokens == 1_000);
    into_debt(limiter, 2_000_000_000);
    limiter.blocking_acquire(147_483_600, NORMAL).unwrap();
}

/// The same load by eight threads of one member and by one thread of each of eight: the same total.
#[test]
fn case_56_one_limit_however_the_work_is_spread() {
    const RATE: u32 = 100_000;
    let totals = [1, 4, 8].map(|members| {
        let shared = Rated::new(RATE);
        let members: Vec<_> = (0..members).map(|_| shared.member()).collect();
        let start = drain_to(&members[0], 0);
        let end = Instant::now() + Duration::from_millis(700);
        let taken = AtomicI64::new(0);
        let empty = thread::scope(|scope| {
            let threads = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| {
                let (member, taken) = (&members[n % members.len()], &taken);
                scope.spawn(move || {
                    while Instant::now() < end {
                        member.blocking_acquire(50, NORMAL).unwrap();
                        taken.fetch_add(50, Ordering::SeqCst);
                    }
                    // What was left over while the machine was busy with others.
                    // Nobody took anything after the moment before the last that found none.
                    loop {
                        let before = Instant::now();
                        if member.try_consume(50).is_err() {
                            return before;
                        }
                        taken.fetch_add(50, Ordering::SeqCst);
                    }
                })
            });
            let ended = threads.map(|thread| thread.join().unwrap());
            ended.into_iter().max().unwrap()
        });
        let taken = taken.load(Ordering::SeqCst);
        let now = read(&members[0]);
        conserved(RATE, start, taken, now);
        assert_eq!(shared.info().consumed, u64::from(RATE) + taken as u64);
        (taken - start.tokens) as f64 / (empty - start.at()).as_secs_f64()
    });
    for total in totals {
        let ratio = total / totals[0];
        assert!((0.95..=1.05).contains(&ratio), "{totals:?}");
    }
}

/// Fifty come at once for ten tokens: nobody gets on without tokens of his own, and who gives up takes none.
#[test]
fn case_45_each_that_gets_on_has_paid() {
    let limiter = limiter(20);
    let together = Barrier::new(50);
    let start = drain_to(&limiter, 10);
    let got_on = AtomicI64::new(0);
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                together.wait();
                let soon = Duration::from_millis(300);
                match limiter.blocking_acquire_until(1, NORMAL, soon) {
                    Ok(()) => drop(got_on.fetch_add(1, Ordering::SeqCst)),
                    Err(error) => assert_eq!(error, AcquireError::TimedOut),
                }
            });
        }
    });
    let got_on = got_on.load(Ordering::SeqCst);
    assert!((10..50).contains(&got_on), "{got_on}");
    conserved(20, start, got_on, read(&limiter));
    assert_eq!(limiter.stats().forced, 0);
}
