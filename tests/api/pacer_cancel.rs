//! Calls of the Pacer that a token ends, and the token itself.

use crate::calm::{calm, scene, waits};
use crate::pacer::{busy, ms, pacer};
use crate::support::{Bell, Dice, MEANT, Task, alone, ends, until, watch_panics};
use shmsched::{AcquireError, CallError, CancelToken, Pacer, QueueFull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Told apart by identity alone.
type Reason = Arc<&'static str>;

fn cancelled<T: PartialEq + std::fmt::Debug>(
    reason: &Reason,
    outcome: Option<Result<T, CallError<Reason>>>,
) {
    match outcome {
        Some(Err(CallError::Cancelled(why))) => assert!(Arc::ptr_eq(&why, reason), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// The head leaves, the one in the middle and the last: at once, by the very reason that was given, with no start spent.
#[test]
fn p24_cancelled_in_the_queue() {
    for leaves in 0..3 {
        scene(|| {
            let begun = Instant::now();
            let pacer = busy(60, 3);
            let ran = AtomicU32::new(0);
            let tokens: [CancelToken<Reason>; 3] = Default::default();
            let call = |token| {
                pacer.run_cancellable(token, |_| async {
                    ran.fetch_add(1, Ordering::Relaxed);
                })
            };
            let mut queue: Vec<_> = tokens.iter().map(|token| waits(call(token))).collect();
            assert_eq!(tokens[leaves].listeners(), 1);
            assert_eq!(Task::new(pacer.start()).poll(), Some(Err(QueueFull.into())));
            let before = pacer.stats().next_start_in;
            let reason = Reason::new("enough");
            assert!(tokens[leaves].cancel(reason.clone()));
            // Before it is polled its place is free.
            let stats = pacer.stats();
            assert_eq!((stats.waiting, stats.cancelled, stats.started), (2, 1, 1));
            assert!(stats.next_start_in <= before);
            let last = waits(pacer.start());
            assert_eq!(Task::new(pacer.start()).poll(), Some(Err(QueueFull.into())));
            assert_eq!(tokens[leaves].listeners(), 0);
            let mut left = queue.remove(leaves);
            left.bell.wait_past(0);
            cancelled(&reason, left.poll());
            for task in queue {
                task.finish().unwrap();
            }
            last.finish().unwrap();
            assert_eq!(ran.load(Ordering::Relaxed), 2);
            // Three starts after the first, none lost.
            assert!(begun.elapsed() >= ms(179), "{:?}", begun.elapsed());
            assert!(tokens.iter().all(|token| token.listeners() == 0));
        });
    }
}

#[test]
fn p25_cancelled_beforehand() {
    let reason = Reason::new("already");
    let token = CancelToken::new();
    token.cancel(reason.clone());
    // The queue is full, and still it is the reason that comes.
    let full = busy(60_000, 0);
    cancelled(
        &reason,
        Task::new(full.run_cancellable(&token, |_| async {})).poll(),
    );
    cancelled(&reason, Some(full.blocking_start_cancellable(&token)));
    let stats = full.stats();
    assert_eq!(
        (stats.rejected, stats.deferred, token.listeners()),
        (0, 0, 0)
    );
    // Nothing hinders it, and the start is not spent.
    let idle = pacer(60_000, 8);
    cancelled(
        &reason,
        Task::new(idle.run_cancellable(&token, |_| async {})).poll(),
    );
    assert_eq!(idle.stats().started, 0);
    idle.try_start().unwrap();
    // Cancelled after it was made, and before it was polled.
    let idle = pacer(60_000, 8);
    let token = CancelToken::new();
    let mut task = Task::new(idle.run_cancellable(&token, |_| async {}));
    token.cancel(reason.clone());
    cancelled(&reason, task.poll());
    assert_eq!(idle.stats().started, 0);
}

/// Its turn had come, and it was cancelled before it resumed.
#[test]
fn p26_cancelled_when_its_turn_came() {
    scene(|| {
        let pacer = busy(30, 8);
        let token = CancelToken::new();
        let ran = AtomicU32::new(0);
        let mut called = waits(pacer.run_cancellable(&token, |_| async {
            ran.fetch_add(1, Ordering::Relaxed);
        }));
        let next = waits(pacer.start());
        called.bell.wait_past(0);
        let reason = Reason::new("so late");
        token.cancel(reason.clone());
        cancelled(&reason, called.poll());
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        next.finish().unwrap();
        assert_eq!((pacer.stats().started, token.listeners()), (2, 0));
    });
}

/// Cancelled at any moment, by another thread: either the operation ran, or the reason came back, and never both.
#[test]
fn p26_p27_cancelling_races_with_starting() {
    let pacer = Pacer::local(Duration::from_micros(50), 4).unwrap();
    let mut dice = Dice::new(7);
    let [mut ran_ones, mut cancelled_ones] = [0; 2];
    let barrier = Arc::new(Barrier::new(2));
    let (sender, tokens) = std::sync::mpsc::channel::<(CancelToken<u32>, u32, usize)>();
    let canceller = {
        let barrier = barrier.clone();
        thread::spawn(move || {
            for (token, n, spins) in tokens {
                barrier.wait();
                (0..spins).for_each(|_| std::hint::spin_loop());
                assert!(token.cancel(n));
            }
        })
    };
    for n in 0..3_000 {
        let token = CancelToken::new();
        sender.send((token.clone(), n, dice.below(20_000))).unwrap();
        barrier.wait();
        let ran = AtomicU32::new(0);
        let outcome = match n % 2 {
            0 => {
                let call = pacer.run_cancellable(&token, |_| async {
                    ran.fetch_add(1, Ordering::Relaxed);
                });
                futures_executor::block_on(call)
            }
            _ => pacer.blocking_start_cancellable(&token).inspect(|()| {
                ran.fetch_add(1, Ordering::Relaxed);
            }),
        };
        match outcome {
            Ok(()) => ran_ones += 1,
            Err(CallError::Cancelled(why)) => {
                assert_eq!(why, n);
                cancelled_ones += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!(ran.load(Ordering::Relaxed), u32::from(outcome.is_ok()));
        assert_eq!(token.listeners(), 0);
    }
    drop(sender);
    canceller.join().unwrap();
    let stats = pacer.stats();
    assert_eq!(stats.waiting, 0);
    // A start that was taken is spent, so there may be more of them than operations.
    assert!(stats.started >= ran_ones, "{stats:?}");
    assert!(
        ran_ones > 0 && cancelled_ones > 0,
        "{ran_ones} {cancelled_ones}"
    );
    until("a start", || pacer.try_start().is_ok());
}

/// The operation is handed the token; cancelling is its own business from then on.
#[test]
fn p27_p30_p32_cancelled_while_the_operation_runs() {
    scene(|| {
        let begun = Instant::now();
        let pacer = busy(30, 2);
        let token: CancelToken<&str> = CancelToken::new();
        let at_start = AtomicU32::new(u32::MAX);
        let mut operation = waits(pacer.run_cancellable(&token, |handed| {
            at_start.store(handed.listeners() as u32, Ordering::Relaxed);
            async move { handed.cancelled().await }
        }));
        let other = CancelToken::<()>::new();
        let waits = waits(pacer.run_cancellable(&other, |_| async {}));
        until("it starts", || {
            assert!(operation.poll().is_none());
            at_start.load(Ordering::Relaxed) != u32::MAX
        });
        assert_eq!(
            at_start.load(Ordering::Relaxed),
            0,
            "the queue listens no more"
        );
        assert_eq!(token.listeners(), 1, "the operation does");
        let (waiting, seen) = (pacer.stats().waiting, operation.bell.wakes());
        token.cancel("stop");
        assert_eq!(
            pacer.stats().waiting,
            waiting,
            "cancelling has touched the queue"
        );
        operation.bell.wait_past(seen);
        assert_eq!(operation.poll(), Some(Ok("stop")));
        waits.finish().unwrap();
        assert!(begun.elapsed() >= ms(59), "its start was given back");
        assert_eq!(pacer.stats().started, 3);
    });
}

#[test]
fn p28_a_panic_leaves_nothing_in_the_token() {
    scene(|| {
        watch_panics();
        let pacer = busy(20, 8);
        let token = CancelToken::<()>::new();
        let panics = |_| -> std::future::Ready<()> { panic!("{MEANT}under a token") };
        let mut task = Task::new(pacer.run_cancellable(&token, panics));
        // It panics here if its time came before it was polled.
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| task.poll()));
        calm(matches!(polled, Ok(None)));
        let next = waits(pacer.run_cancellable(&token, |_| async {}));
        task.bell.wait_past(0);
        let panicked = Instant::now();
        let poll = std::panic::AssertUnwindSafe(|| task.poll());
        assert!(std::panic::catch_unwind(poll).is_err());
        next.finish().unwrap();
        assert!(panicked.elapsed() >= ms(20));
        assert_eq!((token.listeners(), pacer.stats().waiting), (0, 0));
    });
}

#[test]
fn p33_only_the_first_cancel_counts() {
    let pacer = busy(60_000, 8);
    let token = CancelToken::new();
    let tasks: Vec<_> = (0..4)
        .map(|_| Task::waiting(pacer.run_cancellable(&token, |_| async {})))
        .collect();
    assert!(!token.is_cancelled());
    let racers: Vec<_> = (0..4)
        .map(|n| {
            let token = token.clone();
            thread::spawn(move || token.cancel(n))
        })
        .collect();
    let won: Vec<_> = racers
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
    let first = won.iter().position(|won| *won).unwrap();
    assert_eq!(token.reason(), Some(&first));
    assert!(!token.cancel(9));
    for task in tasks {
        assert_eq!(task.finish(), Err(CallError::Cancelled(first)));
    }
    assert_eq!(pacer.stats().cancelled, 4);
}

/// Threads too: the first, which sleeps on a futex, and the one behind it, which is parked.
#[test]
fn a_blocked_thread_is_cancelled() {
    let pacer = busy(60_000, 8);
    let tokens: [CancelToken<usize>; 3] = Default::default();
    let threads: Vec<_> = tokens
        .iter()
        .enumerate()
        .map(|(n, token)| {
            let (of_it, token) = (pacer.clone(), token.clone());
            let thread = thread::spawn(move || of_it.blocking_start_cancellable(&token));
            until("it waits", || pacer.stats().waiting == n as u64 + 1);
            thread
        })
        .collect();
    let order = [0, 2, 1];
    for n in order {
        tokens[n].cancel(n);
    }
    assert_eq!(pacer.stats().waiting, 0);
    ends("cancelled threads", move || {
        for (n, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), Err(CallError::Cancelled(n)));
        }
    });
}

#[test]
fn a_call_under_a_token_runs_like_any_other() {
    scene(|| {
        let pacer = busy(20, 1);
        let token = CancelToken::<()>::default();
        let first = waits(pacer.run_cancellable(&token, |_| async { 7 }));
        let full = CallError::QueueFull(QueueFull);
        assert_eq!(
            Task::new(pacer.run_cancellable(&token, |_| async {})).poll(),
            Some(Err(full.clone()))
        );
        assert_eq!(pacer.blocking_start_cancellable(&token), Err(full.clone()));
        assert_eq!(full.to_string(), "Shared limiter waiting queue is full");
        assert_eq!(CallError::<()>::Cancelled(()).to_string(), "cancelled");
        assert_eq!(token.listeners(), 1);
        assert_eq!(first.finish(), Ok(7));
        ends("a thread under a token", move || {
            pacer.blocking_start_cancellable(&token)
        })
        .unwrap();
    });
}

/// What ends every wait is reported as that, and the token is rid of it.
#[test]
fn a_segment_that_ends() {
    use shmsched::{Location, Segment, Settings};
    let directory = tempfile::tempdir().unwrap();
    let location = Location::File(directory.path().join("segment"));
    Segment::make(&location, &Settings::new().interval(ms(60_000))).unwrap();
    let pacer = Segment::open(&location).unwrap().pacer().unwrap();
    pacer.try_start().unwrap();
    let token = CancelToken::<()>::new();
    let task = Task::waiting(pacer.run_cancellable(&token, |_| async {}));
    Segment::remove(&location, true).unwrap();
    assert_eq!(task.finish(), Err(CallError::Failed(AcquireError::Retired)));
    assert_eq!(token.listeners(), 0);
}

/// A waker that does as it pleases when it is told of a cancellation.
struct Wild<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Wild<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

#[test]
fn wakers_may_panic_or_use_the_token() {
    watch_panics();
    let token = CancelToken::<u32>::new();
    let panics = Waker::from(Arc::new(Wild(|| panic!("{MEANT}in a waker"))));
    let mut first = Task::new(token.cancelled());
    assert!(first.poll_with(&panics).is_none());
    let uses = token.clone();
    let uses = Waker::from(Arc::new(Wild(move || {
        assert!(!uses.cancel(2));
        assert_eq!((uses.reason(), uses.listeners()), (Some(&1), 0));
    })));
    let mut second = Task::new(token.cancelled());
    assert!(second.poll_with(&uses).is_none());
    let mut third = Task::waiting(token.cancelled());
    assert_eq!(token.listeners(), 3);
    let cancel = std::panic::AssertUnwindSafe(|| token.cancel(1));
    assert!(
        std::panic::catch_unwind(cancel).is_err(),
        "it is not swallowed"
    );
    third.bell.wait_past(0);
    for task in [&mut first, &mut second, &mut third] {
        assert_eq!(task.poll(), Some(1));
    }
}

/// The last poll's waker counts, and a dropped future leaves none.
#[test]
fn awaiting_a_cancellation() {
    let token = CancelToken::<&str>::new();
    let mut moved = Task::waiting(token.cancelled());
    let dropped = Task::waiting(token.cancelled());
    let later: Arc<Bell> = Arc::default();
    assert!(moved.poll_with(&Waker::from(later.clone())).is_none());
    assert_eq!(token.listeners(), 2);
    drop(dropped);
    assert_eq!(token.listeners(), 1);
    token.cancel("now");
    later.wait_past(0);
    assert_eq!(moved.bell.wakes(), 0);
    assert_eq!(moved.poll(), Some("now"));
    assert_eq!(Task::new(token.cancelled()).poll(), Some("now"));
    assert_eq!(format!("{token:?}"), "CancelToken { cancelled: true, .. }");
}

/// Resident memory, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Queue and cancel, against a token that lives on and one that does not, by dropping and by cancelling.
fn case_55(rounds: u32) {
    let pacer = busy(50, 8);
    let token = CancelToken::<u32>::new();
    let round = |n: u32| {
        // The interval is over now and then: it may not have to wait.
        let mut call = Task::new(pacer.run_cancellable(&token, |_| async {}));
        let mut other = None;
        if call.poll().is_none() {
            let short = CancelToken::new();
            let mut call = Task::new({
                let (pacer, short) = (pacer.clone(), short.clone());
                async move { pacer.run_cancellable(&short, |_| async {}).await }
            });
            if call.poll().is_none() {
                short.cancel(n);
                other = call.poll();
                assert!(other.is_some());
            }
        }
        drop((call, other));
    };
    (0..rounds / 10).for_each(round);
    let before = resident();
    (0..rounds).for_each(round);
    let grown = resident().saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} bytes");
    let stats = pacer.stats();
    assert_eq!((stats.waiting, token.listeners()), (0, 0));
    assert_eq!(stats.deferred, stats.completed + stats.cancelled);
    assert!(stats.cancelled >= u64::from(rounds));
    // Nobody is in the way of the next.
    scene(|| {
        until("a start", || pacer.try_start().is_ok());
        let all: Vec<_> = (0..8).map(|_| waits(pacer.start())).collect();
        assert_eq!(Task::new(pacer.start()).poll(), Some(Err(QueueFull.into())));
        drop(all);
    });
}

#[test]
fn case_55_cancelling_leaks_nothing() {
    alone("pacer_cancel::case_55_cancelling_leaks_nothing", || {
        case_55(20_000)
    });
}

#[test]
#[ignore = "for scripts/stress: a million rounds"]
fn stress_case_55_cancelling_leaks_nothing() {
    case_55(1_000_000);
}
