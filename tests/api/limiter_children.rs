//! Group K: a Limiter on top of another.

use crate::calm::{calm, scene, undisturbed, waits};
use crate::limiter_support::{
    Log, MOST, Rated, Reading, conserved, drain_to, earned, into_debt, limiter, one_by_one, read,
};
use crate::support::{NORMAL, Task, ends, until};
use rustix::time::{ClockId, clock_gettime};
use shmsched::{AcquireError, Changes, Limiter, Priority, Segment, TryAcquireError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_micros(200);

#[test]
fn k1_a_rate_on_top_of_the_parents() {
    let parent = limiter(1_000_000);
    let child = parent.child(100_000).unwrap();
    assert_eq!(child.tokens_per_second(), 100_000);
    let empty = drain_to(&child, 0);
    let mut taken = 0;
    while empty.age() < Duration::from_millis(600) {
        child.blocking_acquire(1_000, NORMAL).unwrap();
        taken += 1_000;
    }
    // What was left over while this thread stood still.
    while child.try_consume(1_000).is_ok() {
        taken += 1_000;
    }
    conserved(100_000, empty, taken, read(&child));
    assert!(taken >= 50_000, "{taken}");
    // Who asks the parent itself is not held to the child's rate.
    parent.try_consume(500_000).unwrap();
}

/// No sooner after a reading than this there are so many.
fn comes(rate: u32, then: Reading, tokens: i64) -> Instant {
    let missing = u64::try_from(tokens - then.tokens - 1).unwrap_or(0);
    then.at() + Duration::from_secs(missing) / rate
}

/// Credit at both levels, or it waits, with none taken.
#[test]
fn k2_credit_at_every_level() {
    scene(|| {
        // The child has credit, the parent has not.
        let parent = limiter(1_000);
        let child = parent.child(500).unwrap();
        let empty = drain_to(&parent, 0);
        calm(child.try_consume(200) == Err(TryAcquireError::NoTokens));
        assert_eq!(child.stats().tokens, 500);
        let log = Log::new();
        log.queue(&child, 200, NORMAL, ());
        let (_, at) = log.next();
        assert!(at >= comes(1_000, empty, 200));
        calm(at - empty.at() < SECOND);
        conserved(1_000, empty, 200, read(&parent));
        // The parent has credit, the child has not.
        let parent = limiter(1_000_000);
        let child = parent.child(1_000).unwrap();
        let empty = drain_to(&child, 0);
        let left = parent.stats().tokens;
        calm(child.try_consume(200).is_err());
        assert!(parent.stats().tokens >= left);
        log.queue(&child, 200, NORMAL, ());
        let (_, at) = log.next();
        assert!(at >= comes(1_000, empty, 200));
        conserved(1_000, empty, 200, read(&child));
        calm(child.stats().forced + parent.stats().forced == 0);
    });
}

#[test]
fn k3_every_level_pays() {
    let shared = Rated::new(1_000);
    let parent = shared.member();
    let child = parent.child(500).unwrap();
    let starts = [read(&parent), read(&child)];
    child.try_consume(300).unwrap();
    assert_eq!(shared.info().consumed, 300);
    let lower = |of: &Limiter, full: i64, start: crate::limiter_support::Reading| {
        let now = read(of).tokens;
        assert!(now >= full - 300 && now <= full - 300 + earned(1_000, start.age()).1);
    };
    lower(&parent, 1_000, starts[0]);
    lower(&child, 500, starts[1]);
    // And gets back what it did not use.
    child.refund(300);
    assert_eq!((child.stats().tokens, shared.info().consumed), (500, 0));
    assert_eq!(parent.stats().tokens, 1_000);
}

/// Order and guard are each level's own.
#[test]
fn k4_priorities_and_the_guard_at_a_child() {
    let parent = limiter(100_000);
    undisturbed(|| {
        let child = parent.child(10).unwrap();
        drain_to(&child, 0);
        let log = Log::new();
        for n in 0..21 {
            log.queue(&child, 10, Priority::ALL[(n * 5) % 7], n);
        }
        calm(child.stats().pending == 21);
        let order = one_by_one(&child, &log, 21);
        if child.stats().forced > 0 {
            return false;
        }
        let lane = |n: usize| (n * 5) % 7;
        assert!(order.is_sorted_by_key(|n| (6 - lane(*n), *n)), "{order:?}");
        true
    });
    // A debt that lasts, and the guard of the child.
    scene(|| {
        let child = parent.child(10).unwrap();
        let log = Log::new();
        into_debt(&child, 10_000);
        let begun = Instant::now();
        log.queue(&child, 10, NORMAL, 0);
        let (_, at) = log.next();
        let waited = at - begun;
        assert!(waited >= SECOND - TICK, "{waited:?}");
        calm(waited < SECOND * 2);
        assert_eq!((child.stats().forced, parent.stats().forced), (2, 0));
    });
}

/// The urgent ones of a child go first at its parent, and its parent's own go by the same order.
#[test]
fn k4_priorities_at_the_parent() {
    undisturbed(|| {
        let parent = limiter(10);
        let child = parent.child(1_000_000).unwrap();
        let other = parent.child(1_000_000).unwrap();
        drain_to(&parent, 0);
        let log = Log::new();
        log.queue(&child, 10, Priority::Low, "child low");
        log.queue(&parent, 10, NORMAL, "parent normal");
        log.queue(&other, 10, Priority::Higher, "other higher");
        log.queue(&child, 10, Priority::High, "child high");
        calm(parent.stats().pending == 4);
        let order = one_by_one(&parent, &log, 4);
        if [&parent, &child, &other].map(|of| of.stats().forced) != [0; 3] {
            return false;
        }
        let expected = ["other higher", "child high", "parent normal", "child low"];
        assert_eq!(order, expected);
        true
    });
}

/// More than the child's capacity, as each way in takes it: in debt at all levels, counted by the child.
#[test]
fn k5_x34_a_forced_item_is_charged_to_all() {
    scene(|| {
        let parent = limiter(1_000);
        let child = parent.child(500).unwrap();
        child.blocking_acquire(3_000, NORMAL).unwrap();
        let both = [child.stats(), parent.stats()];
        calm(both[0].tokens < -2_000 && both[1].tokens < -1_000);
        assert_eq!([both[0].forced, both[1].forced], [1, 0]);
        // In debt, by the guard of the child.
        let begun = Instant::now();
        let waiting = waits(child.acquire(100, NORMAL));
        waiting.finish().unwrap();
        let waited = begun.elapsed();
        assert!(waited >= SECOND - TICK, "{waited:?}");
        calm(waited < SECOND * 2);
        assert_eq!([child.stats().forced, parent.stats().forced], [2, 0]);
        for of in [&child, &parent] {
            let stats = of.stats();
            assert_eq!((stats.pending, stats.queues[3].stall), (0, 0));
        }
    });
}

/// The child is full, its parent is in debt: what the child can pay it waits for at the parent, and not beyond its second.
#[test]
fn k5_x34_forced_at_the_parent_for_a_child() {
    scene(|| {
        for rate in [500, 1_000_000] {
            let parent = limiter(1_000);
            let child = parent.child(rate).unwrap();
            into_debt(&parent, 50_000);
            let log = Log::new();
            let begun = Instant::now();
            log.queue(&child, 400, NORMAL, ());
            let (_, at) = log.next();
            let waited = at - begun;
            assert!(waited >= SECOND - TICK, "{waited:?}");
            calm(waited < SECOND * 2);
            assert_eq!((child.stats().forced, parent.stats().forced), (1, 1));
            calm(parent.stats().tokens < -49_000);
            until("it left the parent", || parent.stats().pending == 0);
        }
    });
}

/// Each level pays its debt at its own rate.
#[test]
fn k6_each_level_trends_to_its_rate() {
    let parent = limiter(2_000);
    let child = parent.child(1_000).unwrap();
    let full = read(&child);
    child.blocking_acquire(4_000, NORMAL).unwrap();
    let debts = [read(&child), read(&parent)];
    let most = |rate: u32| earned(rate, full.age()).1 + i64::from(rate) - 4_000;
    assert!(debts[0].tokens <= most(1_000) && debts[1].tokens <= most(2_000));
    thread::sleep(Duration::from_millis(500));
    conserved(1_000, debts[0], 0, read(&child));
    conserved(2_000, debts[1], 0, read(&parent));
}

/// Nobody calls anything, at either level.
#[test]
fn k7_a_childs_queue_drains_by_itself() {
    scene(|| {
        let parent = limiter(1_000_000);
        let child = parent.child(1_000).unwrap();
        drain_to(&child, 0);
        let log = Log::new();
        for n in 0..5 {
            log.queue(&child, 20, NORMAL, n);
        }
        drop((child.clone(), parent));
        assert_eq!(log.take(5), [0, 1, 2, 3, 4]);
        assert_eq!(child.stats().total.completed, 5);
    });
}

/// Dropped with its queue, of which some stand in the parent's line: nothing is left there.
#[test]
fn k8_a_parent_keeps_no_record_of_its_children() {
    let shared = Rated::new(1_000);
    let parent = shared.member();
    // Deep enough that nothing is there for them, however long this takes.
    let debt = into_debt(&parent, 50_000);
    let alive = Arc::new(());
    for _ in 0..20 {
        let child = parent.child(5_000).unwrap();
        for priority in [Priority::High, NORMAL, NORMAL] {
            let never = |_: Arc<()>| panic!("it ran");
            assert_eq!(
                child.consume(never, 900, priority, alive.clone()),
                Ok(false)
            );
        }
        assert_eq!((child.stats().pending, parent.stats().pending), (3, 2));
        drop(child);
        assert_eq!(parent.stats().pending, 0);
        assert_eq!(Arc::strong_count(&alive), 1);
    }
    let info = shared.info();
    assert_eq!((info.waiters, info.queued), (0, [0; 7]));
    // The debt was the other.
    assert_eq!((info.deferred, info.completed), (info.cancelled + 1, 1));
    assert_eq!(parent.try_consume(0), Ok(()));
    conserved(1_000, debt, 0, read(&parent));
    // A child keeps its parent, and the parent its segment.
    let child = parent.child(10).unwrap();
    drop(parent);
    child.try_consume(0).unwrap();
    assert_eq!(shared.member().stats().forced, 0);
}

/// Who gives up at a child leaves all levels, and those behind it get on.
#[test]
fn k8_giving_up_leaves_all_levels() {
    scene(|| {
        let parent = limiter(1_000);
        let child = parent.child(5_000).unwrap();
        let grandchild = child.child(50_000).unwrap();
        drain_to(&parent, 100);
        for _ in 0..5 {
            let mut big = waits(grandchild.acquire(900, NORMAL));
            // Each level passes it on when it is polled.
            until("it stands at the top", || {
                calm(big.poll().is_none());
                parent.stats().pending == 1
            });
            let mut behind = [
                waits(parent.acquire(1, NORMAL)),
                waits(child.acquire(1, NORMAL)),
                waits(grandchild.acquire(1, NORMAL)),
            ];
            let begun = Instant::now();
            drop(big);
            for task in &mut behind {
                until("it is served", || task.poll().is_some());
            }
            calm(begun.elapsed() < SECOND / 2);
        }
        let timeout = Duration::from_millis(30);
        let late = grandchild.blocking_acquire_until(900, NORMAL, timeout);
        calm(late == Err(AcquireError::TimedOut));
        for of in [&parent, &child, &grandchild] {
            calm(of.stats().forced == 0);
            assert_eq!(of.stats().pending, 0);
        }
    });
}

#[test]
fn k9_three_levels() {
    let top = limiter(100_000);
    let middle = top.child(20_000).unwrap();
    let bottom = middle.child(50_000).unwrap();
    // The least of the three is the rate.
    drain_to(&middle, 0);
    let [of_top, of_middle, of_bottom] = [&top, &middle, &bottom].map(read);
    let mut taken = 0;
    while of_middle.age() < Duration::from_millis(500) {
        bottom.blocking_acquire(500, NORMAL).unwrap();
        taken += 500;
    }
    // What was left over while this thread stood still.
    while bottom.try_consume(500).is_ok() {
        taken += 500;
    }
    conserved(20_000, of_middle, taken, read(&middle));
    assert!(taken >= 8_000);
    // All of them paid.
    assert!(read(&top).tokens <= of_top.tokens - taken + earned(100_000, of_top.age()).1);
    assert!(read(&bottom).tokens <= of_bottom.tokens - taken + earned(50_000, of_bottom.age()).1);
    assert_eq!([&top, &middle, &bottom].map(|of| of.stats().forced), [0; 3]);
    // And all of them go into debt.
    bottom.blocking_acquire(400_000, NORMAL).unwrap();
    for of in [&top, &middle, &bottom] {
        assert!(of.stats().tokens < -200_000);
    }
    assert_eq!(
        [&top, &middle, &bottom].map(|of| of.stats().forced),
        [0, 0, 1]
    );
}

/// A child of a shared parent is its process's own.
#[test]
fn k10_a_childs_bucket_is_local() {
    scene(|| {
        let shared = Rated::new(1_000);
        let members = [shared.member(), shared.member()];
        let children = members.each_ref().map(|member| member.child(400).unwrap());
        children[0].try_consume(400).unwrap();
        assert_eq!(children[1].stats().tokens, 400);
        calm(children[0].try_consume(300).is_err());
        children[1].try_consume(400).unwrap();
        assert_eq!(shared.info().consumed, 800);
        // The parent's line is one for both.
        let waiting = children
            .each_ref()
            .map(|child| waits(child.acquire(350, NORMAL)));
        for task in waiting {
            task.finish().unwrap();
        }
        assert_eq!(shared.info().consumed, 1_500);
    });
}

/// A parent that is no use any more ends its children's waits.
#[test]
fn k10_a_retired_parent_ends_the_waits() {
    let shared = Rated::new(1);
    let parent = shared.member();
    let child = parent.child(5_000).unwrap();
    // No time that passes here serves them.
    into_debt(&parent, MOST - 1);
    let task = Task::waiting(child.acquire(900, NORMAL));
    let own = child.clone();
    let blocks = thread::spawn(move || own.blocking_acquire(900, Priority::High));
    until("it waits", || child.stats().pending == 2);
    Segment::remove(&shared.location, true).unwrap();
    assert_eq!(
        ends("the thread", || blocks.join().unwrap()),
        Err(AcquireError::Retired)
    );
    assert_eq!(task.finish(), Err(AcquireError::Retired));
    assert_eq!(child.try_consume(0), Err(AcquireError::Retired.into()));
    assert_eq!((child.stats().pending, parent.stats().pending), (0, 0));
}

/// A change of the parent's rate reaches who waits there for a child.
#[test]
fn k10_a_new_rate_of_the_parent() {
    scene(|| {
        let shared = Rated::new(1_000);
        let segment = shared.open();
        let child = segment.limiter().unwrap().child(1_000_000).unwrap();
        drain_to(&segment.limiter().unwrap(), 0);
        let begun = Instant::now();
        let waiting = waits(child.acquire(900, NORMAL));
        segment.set(&Changes::new().rate(1_000_000)).unwrap();
        waiting.finish().unwrap();
        calm(begun.elapsed() < Duration::from_millis(800));
        calm(child.stats().forced == 0);
    });
}

/// The rate is mandatory and has its range; any above the parent's will do.
#[test]
fn k11_x34_the_rate_of_a_child() {
    let parent = limiter(10);
    let _: fn(&Limiter, u32) -> Result<Limiter, shmsched::CreateError> = Limiter::child;
    for rate in [0, MOST + 1, u32::MAX] {
        assert!(parent.child(rate).is_err());
    }
    for rate in [1, 10, 11, MOST] {
        let child = parent.child(rate).unwrap();
        assert_eq!(child.tokens_per_second(), rate);
        assert_eq!(child.stats().tokens, rate as i32);
    }
    assert_eq!(parent.stats().tokens, 10);
}

#[test]
fn k13_a_child_is_a_limiter() {
    scene(|| {
        let parent = limiter(10_000);
        let child: Limiter = parent.child(1_000).unwrap();
        let log = Log::new();
        assert_eq!(log.consume(&child, 100, NORMAL, 1), Ok(true));
        child.try_consume(100).unwrap();
        futures_executor::block_on(child.acquire(100, NORMAL)).unwrap();
        let stats = child.stats();
        assert!(stats.tokens >= 700);
        calm(stats.tokens < 1_000);
        assert_eq!(stats.tokens_per_second, 1_000);
        drain_to(&child, 0);
        log.queue(&child, 50, Priority::High, 2);
        let stats = child.stats();
        calm((stats.pending, stats.queues[4].queue.count) == (1, 1));
        assert_eq!(parent.stats().pending, 0, "it waits for its own tokens");
        futures_executor::block_on(child.drain());
        assert_eq!(log.take(2), [1, 2]);
        assert_eq!(parent.stats().total, Default::default());
        let clone = child.clone();
        assert_eq!(clone.stats().total.completed, 1);
        assert!(clone.child(5).is_ok());
    });
}

/// What the parent's word cannot hold waits there: it does not spin, nor does the child lose its tokens by it.
#[test]
fn k5_i17_a_debt_that_the_parents_word_cannot_hold() {
    let parent = limiter(1);
    let child = parent.child(1_000).unwrap();
    into_debt(&parent, MOST - 1);
    let own = child.clone();
    let blocks = thread::spawn(move || {
        let cpu = || {
            let used = clock_gettime(ClockId::ThreadCPUTime);
            Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
        };
        let before = cpu();
        let long = Duration::from_millis(1_600);
        let ended = own.blocking_acquire_until(1_000_000, NORMAL, long);
        (ended, cpu() - before)
    });
    let (ended, used) = ends("the wait", || blocks.join().unwrap());
    assert_eq!(ended, Err(AcquireError::TimedOut));
    assert_eq!((child.stats().forced, parent.stats().forced), (0, 1));
    assert_eq!((child.stats().tokens, parent.stats().pending), (1_000, 0));
    assert!(used < Duration::from_millis(100), "{used:?} of CPU");
}

/// Many threads at three levels at once: nothing is lost at any level, nobody hangs.
#[test]
fn k3_traffic_at_all_levels_adds_up() {
    let rates = [40_000, 20_000, 30_000];
    let top = limiter(rates[0]);
    let middle = top.child(rates[1]).unwrap();
    let bottom = middle.child(rates[2]).unwrap();
    let levels = [top, middle, bottom];
    // The lowest first, since draining it takes from all.
    levels[2].try_consume(20_000).unwrap();
    levels[0].try_consume(20_000).unwrap();
    levels[2].try_consume(0).unwrap();
    let starts = levels.each_ref().map(read);
    let taken = [const { AtomicI64::new(0) }; 3];
    let stop = AtomicBool::new(false);
    let end = Instant::now() + Duration::from_millis(800);
    thread::scope(|scope| {
        for n in 0..9usize {
            let (levels, taken, stop) = (&levels, &taken, &stop);
            scope.spawn(move || {
                let mut round = n;
                while Instant::now() < end && !stop.load(Ordering::SeqCst) {
                    round += 1;
                    let (level, tokens) = (n % 3, 20 + n as u32);
                    let priority = Priority::ALL[round % 7];
                    let got = match round % 4 {
                        0 => levels[level].try_consume(tokens).is_ok(),
                        1 => {
                            let short = Duration::from_millis(3);
                            levels[level]
                                .blocking_acquire_until(tokens, priority, short)
                                .is_ok()
                        }
                        2 => levels[level].blocking_acquire(tokens, priority).is_ok(),
                        _ => {
                            let future = levels[level].acquire(tokens, priority);
                            futures_executor::block_on(future).is_ok()
                        }
                    };
                    if got {
                        taken[level].fetch_add(tokens.into(), Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let mut below = 0;
    for level in [2, 1, 0] {
        below += taken[level].load(Ordering::SeqCst);
        let (start, now) = (starts[level], read(&levels[level]));
        let most = earned(rates[level], start.age()).1;
        assert!(now.tokens - start.tokens + below <= most, "level {level}");
        let stats = levels[level].stats();
        assert_eq!(stats.pending, 0);
        crate::limiter_support::check(&stats);
    }
    // The one that was never full is exact.
    let all: i64 = taken.iter().map(|taken| taken.load(Ordering::SeqCst)).sum();
    conserved(rates[0], starts[0], all, read(&levels[0]));
}
