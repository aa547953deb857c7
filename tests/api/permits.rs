//! Permits: the grid of names and what can be done with what one holds.

use crate::calm::undisturbed;
use crate::support::{
    FOREVER, MERGING, NORMAL, Shared, Task, local, panics_of, until, watch_panics,
};
use shmsched::{AcquireError, OwnedPermit, Permit, Priority, Scheduler, TryAcquireError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Every way to take slots, each giving `n` of them or failing alike.
fn ways(scheduler: &Scheduler, n: u32) -> Vec<(&'static str, Result<u32, String>)> {
    let block =
        |future: &mut dyn FnMut() -> Result<u32, AcquireError>| future().map_err(|e| e.to_string());
    let one = n == 1;
    let mut all = vec![
        (
            "try_acquire_many",
            scheduler
                .try_acquire_many(n, NORMAL)
                .map(|p| p.num_permits())
                .map_err(|e| e.to_string()),
        ),
        (
            "try_acquire_many_owned",
            scheduler
                .try_acquire_many_owned(n, NORMAL)
                .map(|p| p.num_permits())
                .map_err(|e| e.to_string()),
        ),
        (
            "acquire_many",
            block(&mut || {
                futures_executor::block_on(scheduler.acquire_many(n, NORMAL))
                    .map(|p| p.num_permits())
            }),
        ),
        (
            "acquire_many_owned",
            block(&mut || {
                futures_executor::block_on(scheduler.acquire_many_owned(n, NORMAL))
                    .map(|p| p.num_permits())
            }),
        ),
        (
            "acquire_until",
            block(&mut || {
                futures_executor::block_on(scheduler.acquire_until(n, NORMAL, FOREVER))
                    .map(|p| p.num_permits())
            }),
        ),
        (
            "blocking_acquire_many",
            block(&mut || {
                scheduler
                    .blocking_acquire_many(n, NORMAL)
                    .map(|p| p.num_permits())
            }),
        ),
        (
            "blocking_acquire_until",
            block(&mut || {
                scheduler
                    .blocking_acquire_until(n, NORMAL, FOREVER)
                    .map(|p| p.num_permits())
            }),
        ),
    ];
    if one {
        all.push((
            "try_acquire",
            scheduler
                .try_acquire(NORMAL)
                .map(|p| p.num_permits())
                .map_err(|e| e.to_string()),
        ));
        all.push((
            "try_acquire_owned",
            scheduler
                .try_acquire_owned(NORMAL)
                .map(|p| p.num_permits())
                .map_err(|e| e.to_string()),
        ));
        all.push((
            "acquire",
            block(&mut || {
                futures_executor::block_on(scheduler.acquire(NORMAL)).map(|p| p.num_permits())
            }),
        ));
        all.push((
            "acquire_owned",
            block(&mut || {
                futures_executor::block_on(scheduler.acquire_owned(NORMAL)).map(|p| p.num_permits())
            }),
        ));
        all.push((
            "blocking_acquire",
            block(&mut || scheduler.blocking_acquire(NORMAL).map(|p| p.num_permits())),
        ));
        all.push((
            "blocking_acquire_owned",
            block(&mut || {
                scheduler
                    .blocking_acquire_owned(NORMAL)
                    .map(|p| p.num_permits())
            }),
        ));
    }
    all
}

#[test]
fn the_whole_grid_takes_and_gives_back() {
    let shared = Shared::new(5);
    for scheduler in [local(5), shared.member()] {
        for n in [1, 2, 5] {
            for (way, taken) in ways(&scheduler, n) {
                assert_eq!(taken, Ok(n), "{way}");
                assert_eq!(scheduler.available_permits(), 5, "{way}");
            }
        }
        for (way, taken) in ways(&scheduler, 6) {
            let expected = "6 slots do not fit into a concurrency of 5".to_owned();
            assert_eq!(taken, Err(expected), "{way}");
        }
        scheduler.close();
        for (way, taken) in ways(&scheduler, 1) {
            assert_eq!(taken, Err("Scheduler is closed".to_owned()), "{way}");
        }
        assert_eq!(scheduler.stats().running, 0);
    }
}

#[test]
fn zero_slots_are_no_slots() {
    let scheduler = local(1);
    let _held = scheduler.try_acquire(NORMAL).unwrap();
    for (way, taken) in ways(&scheduler, 0) {
        assert_eq!(taken, Ok(0), "{way}");
    }
    let nothing = scheduler.try_acquire_many(0, NORMAL).unwrap();
    nothing.forget();
    assert_eq!(scheduler.stats().running, 1);
}

#[test]
fn forget_keeps_the_slots() {
    let shared = Shared::new(4);
    let watcher = shared.member();
    let running = || watcher.stats().shared.unwrap().running;
    let member = shared.member();
    member.try_acquire(NORMAL).unwrap().forget();
    let mut owned = member.try_acquire_many_owned(3, NORMAL).unwrap();
    drop(owned.split(1));
    owned.forget();
    assert_eq!((running(), member.stats().running), (3, 3));
    // Also when the last handle goes: until the process ends.
    drop(member);
    assert_eq!(running(), 3);
    watcher.look();
    assert_eq!(running(), 3);
}

#[test]
fn split_takes_off() {
    let scheduler = local(10);
    let mut permit = scheduler.try_acquire_many(7, NORMAL).unwrap();
    let three = permit.split(3).unwrap();
    assert_eq!((permit.num_permits(), three.num_permits()), (4, 3));
    assert!(permit.split(5).is_none());
    assert_eq!(permit.num_permits(), 4);
    assert_eq!(scheduler.stats().running, 7);
    let all = permit.split(4).unwrap();
    assert_eq!((permit.num_permits(), all.num_permits()), (0, 4));
    drop(permit);
    assert_eq!(scheduler.stats().running, 7);
    drop(three);
    assert_eq!(scheduler.stats().running, 4);
    drop(all);
    assert_eq!(scheduler.stats().running, 0);

    let mut owned = scheduler.try_acquire_many_owned(2, NORMAL).unwrap();
    let one = owned.split(1).unwrap();
    assert!(owned.split(2).is_none());
    drop(owned);
    assert_eq!(scheduler.stats().running, 1);
    drop(one);
    assert_eq!(scheduler.stats().running, 0);
}

#[test]
fn merge_joins() {
    let scheduler = local(10);
    let mut permit = scheduler.try_acquire(NORMAL).unwrap();
    permit.merge(scheduler.try_acquire_many(4, NORMAL).unwrap());
    assert_eq!(permit.num_permits(), 5);
    drop(permit);
    assert_eq!(scheduler.stats().running, 0);
    // Of a clone or a lowered handle: the same member.
    let lowered = scheduler.with(5);
    let mut owned = scheduler.try_acquire_owned(NORMAL).unwrap();
    owned.merge(lowered.try_acquire_many_owned(2, NORMAL).unwrap());
    owned.merge(scheduler.clone().try_acquire_owned(NORMAL).unwrap());
    assert_eq!(owned.num_permits(), 4);
    drop(owned);
    assert_eq!(scheduler.stats().running, 0);
}

/// The panic is at the caller's line, and both permits give back what they held.
#[test]
fn merge_of_different_members_panics_at_the_caller() {
    watch_panics();
    let shared = Shared::new(4);
    let (a, b) = (shared.member(), shared.member());
    let (c, d) = (local(1), local(1));
    let line = line!() + 3;
    let borrowed = catch_unwind(AssertUnwindSafe(|| {
        let mut one = a.try_acquire(NORMAL).unwrap();
        one.merge(b.try_acquire(NORMAL).unwrap());
    }));
    let owned = catch_unwind(AssertUnwindSafe(|| {
        let mut one = c.try_acquire_owned(NORMAL).unwrap();
        one.merge(d.try_acquire_owned(NORMAL).unwrap());
    }));
    assert!(borrowed.is_err() && owned.is_err());
    let seen = panics_of(MERGING);
    assert_eq!(seen.len(), 2);
    for (seen, line) in seen.iter().zip([line, line + 4]) {
        assert!(seen.ends_with(&format!(" at {}:{line}", file!())), "{seen}");
    }
    assert_eq!(a.stats().shared.unwrap().running, 0);
    assert_eq!((c.available_permits(), d.available_permits()), (1, 1));
}

#[test]
fn available_permits_counts_the_limit_alone() {
    let scheduler = local(shmsched::Concurrency::max(5).target(Priority::Low, 1));
    assert_eq!(scheduler.available_permits(), 5);
    let permit = scheduler.try_acquire_many(2, NORMAL).unwrap();
    assert_eq!(scheduler.available_permits(), 3);
    assert!(scheduler.try_acquire(Priority::Low).is_err());
    drop(permit);
    assert_eq!(scheduler.available_permits(), 5);
}

#[test]
fn an_owned_permit_keeps_its_scheduler() {
    let scheduler = local(1);
    let permit: OwnedPermit = scheduler.try_acquire_owned(NORMAL).unwrap();
    drop(scheduler);
    let back = thread::spawn(move || {
        assert!(format!("{permit:?}").contains("slots: 1"));
        permit
    });
    drop(back.join().unwrap());
}

/// The futures of owned permits need no borrow that outlives the task.
#[test]
fn owned_futures_are_static_with_an_arc() {
    let scheduler = Arc::new(local(1));
    let held = scheduler.try_acquire_owned(NORMAL).unwrap();
    let own = scheduler.clone();
    let waiting: Task<'static, _> = Task::waiting(async move { own.acquire_owned(NORMAL).await });
    drop(held);
    let permit: OwnedPermit = waiting.finish().unwrap();
    assert_eq!(permit.num_permits(), 1);
}

/// A large request holds up the smaller ones behind it, of less urgency too.
#[test]
fn amounts_hold_up_who_is_behind() {
    let scheduler = local(4);
    // The lottery lets a small one of another priority pass.
    scheduler.fix_draw(Some(0));
    let mut held = scheduler.try_acquire_many(4, NORMAL).unwrap();
    let mut three = Task::waiting(scheduler.acquire_many(3, NORMAL));
    let mut one: Task<'_, Result<Permit<'_>, AcquireError>> =
        Task::waiting(scheduler.acquire(NORMAL));
    let mut low = Task::waiting(scheduler.acquire(Priority::Low));
    drop(held.split(2));
    for task in [&mut three, &mut one, &mut low] {
        assert!(task.poll().is_none());
    }
    drop(held.split(1));
    let three = three.finish().unwrap();
    assert_eq!(three.num_permits(), 3);
    assert!(one.poll().is_none());
    drop(three);
    assert!(one.finish().is_ok());
    assert!(low.finish().is_ok());
}

#[test]
fn deadlines_of_every_kind() {
    let scheduler = local(1);
    let held = scheduler.try_acquire(NORMAL).unwrap();
    let wait = Duration::from_millis(30);
    let block =
        |until: shmsched::Deadline| scheduler.blocking_acquire_until(1, NORMAL, until).map(drop);
    let task = |until: shmsched::Deadline| {
        futures_executor::block_on(scheduler.acquire_until(1, NORMAL, until)).map(drop)
    };
    let passed = Instant::now();
    for way in [&block as &dyn Fn(shmsched::Deadline) -> _, &task] {
        // In the past: does not wait; from now; at a moment.
        assert_eq!(way(passed.into()), Err(AcquireError::TimedOut));
        assert_eq!(way(Duration::ZERO.into()), Err(AcquireError::TimedOut));
        for moment in [false, true] {
            let begun = Instant::now();
            let until = match moment {
                false => wait.into(),
                true => (begun + wait).into(),
            };
            assert_eq!(way(until), Err(AcquireError::TimedOut));
            let took = begun.elapsed();
            assert!(took >= wait && took < FOREVER / 4, "{took:?}");
        }
    }
    assert_eq!(scheduler.stats().pending, 0);
    drop(held);
    // A slot that is free is taken whatever the deadline.
    for way in [&block as &dyn Fn(shmsched::Deadline) -> _, &task] {
        assert_eq!(way(passed.into()), Ok(()));
        assert_eq!(way(Duration::MAX.into()), Ok(()));
    }
}

/// A timed-out waiter in front passes on what it held up.
#[test]
fn a_deadline_lets_those_behind_pass() {
    undisturbed(a_deadline_ends_a_wait_in_front);
}

/// Whether both waited: the time of the one in front may be up before the other has come.
fn a_deadline_ends_a_wait_in_front() -> bool {
    let scheduler = local(2);
    let _held = scheduler.try_acquire(NORMAL).unwrap();
    let (begun, wait) = (Instant::now(), Duration::from_millis(40));
    let mut large = Task::new(scheduler.acquire_until(2, NORMAL, wait));
    let mut small = Task::new(scheduler.acquire(NORMAL));
    let neither = large.poll().is_none() & small.poll().is_none();
    if begun.elapsed() >= wait {
        return false;
    }
    assert!(neither, "it did not have to wait");
    thread::scope(|scope| {
        let large = scope.spawn(|| large.finish().map(drop));
        assert!(small.finish().is_ok());
        assert_eq!(large.join().unwrap(), Err(AcquireError::TimedOut));
    });
    until("nobody waits", || scheduler.stats().pending == 0);
    assert_eq!(
        scheduler.try_acquire_many(2, NORMAL).unwrap_err(),
        TryAcquireError::NoPermits
    );
    true
}

/// Every way in has a form with a deadline, for several slots, and one whose permit is owned.
#[test]
fn owned_permits_by_a_deadline() {
    let scheduler = Scheduler::local(3).unwrap();
    let two = scheduler
        .blocking_acquire_owned_until(2, NORMAL, Duration::from_secs(60))
        .unwrap();
    let short = Duration::from_millis(20);
    let late = scheduler.blocking_acquire_owned_until(2, NORMAL, short);
    assert_eq!(late.unwrap_err(), AcquireError::TimedOut);
    let late = futures_executor::block_on(scheduler.acquire_owned_until(2, NORMAL, short));
    assert_eq!(late.unwrap_err(), AcquireError::TimedOut);
    drop(two);
    let three =
        futures_executor::block_on(scheduler.acquire_owned_until(3, NORMAL, short)).unwrap();
    drop(scheduler);
    assert_eq!(three.num_permits(), 3);
}

/// A permit that was emptied has no hold to count.
#[test]
fn holds_are_counted_once() {
    let shared = Shared::new(9);
    let scheduler = shared.member();
    let holds = || {
        let seen = shmsched::Observer::open(&shared.location)
            .unwrap()
            .snapshot();
        seen.unwrap().scheduler.unwrap().holds.count()
    };
    let timed = || {
        let mut permit = scheduler.try_acquire_owned(NORMAL).unwrap();
        permit.count_hold();
        permit
    };
    timed().forget();
    assert_eq!(holds(), 0);
    let mut both = timed();
    both.merge(timed());
    assert_eq!(holds(), 0);
    drop(both);
    assert_eq!(holds(), 1);
    let mut empty = timed();
    let all = empty.split(1).unwrap();
    drop(empty);
    assert_eq!(holds(), 1);
    drop(all);
    assert_eq!(holds(), 1, "what was split off is not timed");
}
