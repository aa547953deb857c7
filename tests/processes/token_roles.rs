//! What the children of [`crate::tokens`] do.

use crate::forks::{fork, reap};
use crate::support::{Args, Chance, LONG, hear, heard_by, now, say, until};
use crate::taps::NORMAL;
use shmsched::{
    AcquireError, Changes, Limiter, OpenOptions, Priority, Segment, TryAcquireError, TryStartError,
};
use std::collections::HashMap;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// More than comes while anybody stands still.
const OWED: u32 = 60_000;

fn priority(index: &str) -> Priority {
    Priority::from_index(index.parse().unwrap()).unwrap()
}

/// Role: PATH [survive]. Does what the test says, line by line.
///
/// | line | answer | later |
/// |---|---|---|
/// | `wait ID P N` or `task ID P N` | `= on` | `got ID NS` or `failed ID WHY` |
/// | `start ID` or `start_task ID`, at the Pacer | `= on` | the same |
/// | `cancel ID` (a task) | `= off` | |
/// | `try N UNTIL`: as fast as it can, until then | `= TOKENS` | |
/// | `block THREADS P N UNTIL`: each thread again and again | `= TOKENS` | |
/// | `restless N US UNTIL`: the same, giving up after US each time | `= TOKENS` | |
pub fn play(args: &Args) {
    let options = OpenOptions::new().survive_truncation(args.text(1) == "survive");
    let segment = Segment::open_with(&args.location(), &options).unwrap();
    let limiter = segment.limiter().unwrap();
    let pacer = segment.pacer().ok();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut tasks = HashMap::<String, tokio::task::JoinHandle<()>>::new();
    fn tell<E: std::fmt::Debug>(id: &str, result: Result<(), E>) {
        match result {
            Ok(()) => say(format!("got {id} {}", now())),
            Err(error) => say(format!("failed {id} {error:?}")),
        }
    }
    say("attached");
    loop {
        let line = hear();
        let words: Vec<&str> = line.split(' ').collect();
        let id = words.get(1).copied().unwrap_or_default().to_owned();
        let limiter = limiter.clone();
        let pacer = pacer.clone();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[..] {
            ["wait", _, p, n] => {
                let (p, n) = (priority(p), n.parse().unwrap());
                std::thread::spawn(move || tell(&id, limiter.blocking_acquire(n, p)));
                say("= on");
            }
            ["task", _, p, n] => {
                let (p, n, key) = (priority(p), n.parse().unwrap(), id.clone());
                let task = runtime.spawn(async move { tell(&id, limiter.acquire(n, p).await) });
                tasks.insert(key, task);
                say("= on");
            }
            ["start", _] => {
                std::thread::spawn(move || tell(&id, pacer.unwrap().blocking_start()));
                say("= on");
            }
            ["start_task", _] => {
                runtime.spawn(async move { tell(&id, pacer.unwrap().start().await) });
                say("= on");
            }
            ["cancel", _] => {
                let task = tasks.remove(&id).unwrap();
                task.abort();
                let _ = runtime.block_on(task);
                say("= off");
            }
            ["try", n, _] => {
                let (n, end) = (n.parse().unwrap(), number(2));
                let mut taken = 0u64;
                while now() < end {
                    match limiter.try_consume(n) {
                        Ok(()) => taken += u64::from(n),
                        Err(TryAcquireError::NoTokens) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                say(format!("= {taken}"));
            }
            ["block", _, p, n, _] => {
                let (threads, p, n, end) = (number(1), priority(p), n.parse().unwrap(), number(4));
                let limiter = &limiter;
                let taken: u64 = std::thread::scope(|scope| {
                    let threads: Vec<_> = (0..threads)
                        .map(|_| scope.spawn(move || block(limiter, n, p, end)))
                        .collect();
                    threads.into_iter().map(|t| t.join().unwrap()).sum()
                });
                say(format!("= {taken}"));
            }
            ["restless", n, _, _] => {
                let (n, wait, end) = (n.parse().unwrap(), number(2), number(3));
                let mut taken = 0u64;
                while now() < end {
                    let wait = Duration::from_micros(wait);
                    match limiter.blocking_acquire_until(n, NORMAL, wait) {
                        Ok(()) => taken += u64::from(n),
                        Err(AcquireError::TimedOut) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                say(format!("= {taken}"));
            }
            ["leave"] => return,
            _ => panic!("what is {line:?}?"),
        }
    }
}

/// Takes `n` again and again until then: how many in all.
fn block(limiter: &Limiter, n: u32, priority: Priority, end: u64) -> u64 {
    let mut taken = 0;
    loop {
        let left = end.saturating_sub(now());
        match limiter.blocking_acquire_until(n, priority, Duration::from_nanos(left)) {
            Ok(()) if left == 0 => return taken + u64::from(n),
            Ok(()) => taken += u64::from(n),
            Err(AcquireError::TimedOut) => return taken,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Role: PATH TALLY INDEX. Takes by every way in, as fast as it can, and notes what it was given; until it is told.
pub fn drip(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let limiter = segment.limiter().unwrap();
    let tally = std::fs::OpenOptions::new()
        .write(true)
        .open(args.text(1))
        .unwrap();
    let index = args.number(2);
    let mut chance = Chance::seeded(index + 1);
    let mut taken = 0u64;
    say("dripping");
    while heard_by(Duration::ZERO).is_none() {
        let n = [1, 1, 37, 400][chance.below(4) as usize];
        let priority = Priority::from_index(chance.below(7) as usize).unwrap();
        let wait = Duration::from_micros(chance.below(3_000));
        let got = match chance.below(5) {
            0 => limiter.try_consume(n).is_ok(),
            1 => limiter.blocking_acquire(n, priority).is_ok(),
            2 => limiter.blocking_acquire_until(n, priority, wait).is_ok(),
            3 => futures_executor::block_on(limiter.acquire_until(n, priority, wait)).is_ok(),
            _ => {
                let mut call = pin!(limiter.acquire(n, priority));
                let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                polled == Poll::Ready(Ok(()))
            }
        };
        if got {
            taken += u64::from(n);
            tally.write_all_at(&taken.to_le_bytes(), index * 8).unwrap();
        }
    }
}

/// Role: PATH. With waiters of all kinds in its queue a process forks: the child is told so, and can open afresh.
pub fn fork_tokens(args: &Args) {
    let location = args.location();
    let segment = Segment::open(&location).unwrap();
    let limiter = segment.limiter().unwrap();
    let pacer = segment.pacer().unwrap();
    let child = limiter.child(5).unwrap();
    limiter.blocking_acquire(OWED, NORMAL).unwrap();
    pacer.try_start().unwrap();
    let waiter = limiter.clone();
    let thread = std::thread::spawn(move || waiter.blocking_acquire(100, NORMAL));
    until(LONG, "queued", || limiter.stats().pending == 1);
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = Box::pin(limiter.acquire(100, NORMAL));
    let mut upper = Box::pin(child.acquire(3, NORMAL));
    let mut starting = Box::pin(pacer.start());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    assert!(upper.as_mut().poll(&mut context).is_pending());
    assert!(starting.as_mut().poll(&mut context).is_pending());
    assert!(!limiter.consume(|()| {}, 100, NORMAL, ()).unwrap());
    let forked = AcquireError::Forked;
    let step = |name: &str, inside: &mut dyn FnMut() -> bool| {
        let ended = reap(fork(|| u8::from(!inside())), LONG);
        say(match ended {
            Some(0) => format!("step {name} good"),
            other => format!("step {name} bad {other:?}"),
        });
    };
    step("tokens", &mut || {
        limiter.try_consume(1) == Err(forked.clone().into())
            && limiter.blocking_acquire(1, NORMAL) == Err(forked.clone())
            && limiter.consume(|()| {}, 1, NORMAL, ()) == Err(forked.clone())
            && child.try_consume(1) == Err(forked.clone().into())
            && child.blocking_acquire(1, NORMAL) == Err(forked.clone())
    });
    step("starts", &mut || {
        pacer.try_start() == Err(TryStartError::Failed(forked.clone()))
            && pacer.blocking_start() == Err(forked.clone().into())
            && pacer.interval() == Duration::ZERO
    });
    step("polls", &mut || {
        let mut context = Context::from_waker(Waker::noop());
        waiting.as_mut().poll(&mut context) == Poll::Ready(Err(forked.clone()))
            && upper.as_mut().poll(&mut context) == Poll::Ready(Err(forked.clone()))
            && starting.as_mut().poll(&mut context) == Poll::Ready(Err(forked.clone().into()))
    });
    step("quiet", &mut || {
        limiter.refund(50);
        limiter.blocking_drain();
        let text = format!("{limiter:?} {pacer:?} {child:?}");
        limiter.stats().pending == 0 && limiter.tokens_per_second() == 0 && !text.is_empty()
    });
    step("new_child", &mut || {
        let grandchild = limiter.child(5);
        grandchild.is_ok_and(|new| new.try_consume(1) == Err(forked.clone().into()))
    });
    let mut inherited = Some((waiting, upper, starting));
    let mut afresh = |asks: &dyn Fn(&Limiter) -> bool| {
        let pid = fork(|| {
            drop(inherited.take());
            let fresh = Segment::open(&location).unwrap();
            let own = fresh.limiter().unwrap();
            u8::from(!(asks(&own) && fresh.member() != segment.member()))
        });
        reap(pid, LONG)
    };
    // Behind the parent's.
    let refused = afresh(&|own| own.try_consume(1) == Err(TryAcquireError::NoTokens));
    limiter.refund(OWED);
    let got = afresh(&|own| own.blocking_acquire(1, NORMAL).is_ok());
    say(match (refused, got) {
        (Some(0), Some(0)) => "step drop_and_open good".to_owned(),
        other => format!("step drop_and_open bad {other:?}"),
    });
    let soon = Changes::new().interval(Duration::from_millis(50));
    segment.set(&soon).unwrap();
    thread.join().unwrap().unwrap();
    say("served");
    // What stays behind in the parent goes on.
    let (waiting, upper, starting) = inherited.take().unwrap();
    futures_executor::block_on(async {
        waiting.await.unwrap();
        upper.await.unwrap();
        starting.await.unwrap();
    });
    limiter.blocking_drain();
    say("done");
}
