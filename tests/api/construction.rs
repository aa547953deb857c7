//! Group A: making a Scheduler, what is refused, what it reports.

use crate::support::{NORMAL, Shared, Task, alone, local};
use shmsched::{
    AcquireError, Changes, Concurrency, CreateError, NothingHeld, Permit, Priority, Scheduler,
    Segment, Settings, Stats, TryAcquireError,
};

/// How many single slots fit at a priority; permits are kept until the end.
fn room(scheduler: &Scheduler, priority: Priority, most: usize) -> usize {
    let held: Vec<_> = (0..most)
        .map_while(|_| scheduler.try_acquire(priority).ok())
        .collect();
    held.len()
}

#[test]
fn a1_unlimited_by_default() {
    let scheduler = local(Concurrency::default());
    let held: Vec<_> = (0..10_000)
        .map(|_| scheduler.try_acquire(NORMAL).unwrap())
        .collect();
    assert_eq!(scheduler.concurrency(), None);
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.total.deferred), (10_000, 0));
    assert_eq!(scheduler.available_permits(), 2_147_483_647 - 10_000);
    drop(held);
    assert_eq!(scheduler.stats().running, 0);
}

#[test]
fn a2_a_number_is_the_limit() {
    let scheduler = local(4);
    let held: Vec<_> = (0..4)
        .map(|_| scheduler.try_acquire(NORMAL).unwrap())
        .collect();
    let refused = scheduler.try_acquire(Priority::Highest).unwrap_err();
    assert_eq!(refused, TryAcquireError::NoPermits);
    drop(held);
    assert_eq!(room(&scheduler, NORMAL, 9), 4);
}

/// Every combination of the eight keys, checked by filling slots.
#[test]
fn a3_all_combinations_of_keys() {
    for keys in 0..256u32 {
        let mut concurrency = Concurrency::unlimited();
        if keys & 128 != 0 {
            concurrency.max = Some(9);
        }
        for priority in Priority::ALL {
            let at = priority.index();
            if keys & 1 << at != 0 {
                concurrency = concurrency.target(priority, [3, 6, 2, 11, 4, 8, 5][at]);
            }
        }
        let scheduler = local(concurrency.clone());
        assert_eq!(scheduler.concurrency(), concurrency.max);
        let resolved = concurrency.resolve();
        for priority in Priority::ALL {
            let expected = resolved[priority.index()].unwrap_or(12).min(12) as usize;
            assert_eq!(
                room(&scheduler, priority, 12),
                expected,
                "{priority} of {concurrency:?}"
            );
        }
    }
}

#[test]
fn a4_targets_without_max_leave_it_unlimited() {
    let scheduler = local(Concurrency::unlimited().target(Priority::Low, 20));
    assert_eq!(room(&scheduler, NORMAL, 1_000), 1_000);
    assert_eq!(room(&scheduler, Priority::Low, 1_000), 20);
    assert_eq!(scheduler.concurrency(), None);
}

#[test]
fn a5_made_from_shared_state() {
    let shared = Shared::new(8);
    assert_eq!(shared.member().concurrency(), Some(8));
    assert_eq!(room(&shared.member(), NORMAL, 100), 8);
}

#[test]
fn a6_targets_of_one_instance_only() {
    let shared = Shared::new(100);
    let [own, other] = [shared.member(), shared.member()];
    let own = own.with(
        Concurrency::unlimited()
            .target(Priority::Low, 20)
            .target(Priority::Lowest, 5),
    );
    let rooms = |scheduler: &Scheduler| Priority::ALL.map(|p| room(scheduler, p, 200));
    assert_eq!(rooms(&own), [5, 5, 20, 100, 100, 100, 100]);
    assert_eq!(rooms(&other), [100; 7]);
}

/// The design keeps targets in the segment: there they hold for all.
#[test]
fn a6_targets_of_the_segment_hold_for_all() {
    let shared = Shared::new(Concurrency::max(10).target(Priority::Low, 2));
    for member in [shared.member(), shared.member()] {
        assert_eq!(room(&member, Priority::Low, 20), 2);
        // A handle may lower them, never raise them.
        let own = member.with(Concurrency::unlimited().target(Priority::Low, 5));
        assert_eq!(room(&own, Priority::Low, 20), 2);
        let own = own.with(Concurrency::unlimited().target(Priority::Low, 1));
        assert_eq!(room(&own, Priority::Low, 20), 1);
    }
}

#[test]
fn a10_x16_the_range_of_numbers() {
    for good in [None, Some(0), Some(1), Some(2_147_483_647)] {
        let concurrency = Concurrency {
            max: good,
            targets: [good; 7],
        };
        assert_eq!(local(concurrency.clone()).concurrency(), good);
        assert_eq!(Shared::new(concurrency).member().concurrency(), good);
    }
    for bad in [2_147_483_648, u32::MAX] {
        assert!(matches!(
            Scheduler::local(bad),
            Err(CreateError::Invalid(_))
        ));
        for priority in Priority::ALL {
            let target = Concurrency::max(5).target(priority, bad);
            assert!(matches!(
                Scheduler::local(target),
                Err(CreateError::Invalid(_))
            ));
        }
        // Nothing is left behind, nothing is changed.
        let shared = Shared::new(5);
        let path = shared.directory.path().join("other");
        let location = shmsched::Location::File(path.clone());
        let settings = Settings::new().concurrency(bad);
        assert!(matches!(
            Segment::make(&location, &settings),
            Err(CreateError::Invalid(_))
        ));
        assert!(!path.exists());
        assert_eq!(
            std::fs::read_dir(shared.directory.path()).unwrap().count(),
            1
        );
        let segment = shared.open();
        assert!(segment.set(&Changes::new().concurrency(Some(bad))).is_err());
        assert!(segment.set(&Changes::new().target(NORMAL, bad)).is_err());
        assert_eq!(segment.scheduler().unwrap().concurrency(), Some(5));
        assert_eq!(room(&segment.scheduler().unwrap(), NORMAL, 9), 5);
    }
}

#[test]
fn a11_x24_the_largest_number_is_not_unlimited() {
    let largest = Shared::new(2_147_483_647);
    assert_eq!(largest.member().concurrency(), Some(2_147_483_647));
    assert_eq!(
        Shared::new(Concurrency::unlimited()).member().concurrency(),
        None
    );
    // The whole range can be taken, and not one more.
    let scheduler = largest.member();
    let all = scheduler.try_acquire_many(2_147_483_647, NORMAL).unwrap();
    assert_eq!(
        scheduler.try_acquire(NORMAL).unwrap_err(),
        TryAcquireError::NoPermits
    );
    assert_eq!(
        largest.member().stats().shared.unwrap().running,
        2_147_483_647
    );
    drop(all);
    // Unlimited ends where the word does, and does not wrap.
    let scheduler = Shared::new(Concurrency::unlimited()).member();
    let all = scheduler.try_acquire_many(2_147_483_647, NORMAL).unwrap();
    assert_eq!(
        scheduler.try_acquire(NORMAL).unwrap_err(),
        TryAcquireError::NoPermits
    );
    drop(all);
    assert_eq!(scheduler.stats().shared.unwrap().running, 0);
    for amount in [2_147_483_648, u32::MAX] {
        let failed = scheduler.try_acquire_many(amount, NORMAL).unwrap_err();
        assert!(matches!(
            failed,
            TryAcquireError::Failed(AcquireError::DoesNotFit { .. })
        ));
    }
}

#[test]
fn a12_concurrency_is_the_configured_limit() {
    assert_eq!(local(7).concurrency(), Some(7));
    let with_targets = Concurrency::max(100).target(Priority::Low, 20);
    assert_eq!(local(with_targets).concurrency(), Some(100));
    assert_eq!(local(Concurrency::unlimited()).concurrency(), None);
}

#[test]
fn a13_a14_x25_x44_an_own_max_governs_but_is_not_reported() {
    let shared = Shared::new(100);
    let own = shared.member().with(10);
    let free = shared.member();
    assert_eq!(own.concurrency(), Some(100));
    assert_eq!(own.stats().concurrency, Some(100));
    let held = free.try_acquire_many(10, NORMAL).unwrap();
    // Global running counts, not the instance's own.
    let waiting = Task::waiting(own.acquire(Priority::Highest));
    assert!(free.try_acquire(NORMAL).is_ok());
    drop(held);
    assert!(waiting.finish().is_ok());
    // Above the shared one it changes nothing.
    assert_eq!(room(&free.with(1_000), NORMAL, 200), 100);
}

#[test]
fn a15_zero_is_legal() {
    for scheduler in [local(0), Shared::new(0).member()] {
        assert_eq!(scheduler.concurrency(), Some(0));
        assert_eq!(scheduler.available_permits(), 0);
        let failed = scheduler.run_blocking(|| (), NORMAL).unwrap_err();
        assert_eq!(failed, AcquireError::Zero);
    }
}

/// The members with the argument orders of the source; it compiles or it does not.
#[test]
fn a16_a17_the_public_surface() {
    let _: fn(&Scheduler, Priority) -> Result<Permit<'_>, TryAcquireError> = Scheduler::try_acquire;
    let _: fn(&Scheduler) -> Result<(), NothingHeld> = Scheduler::release;
    let _: fn(&Scheduler) -> Option<u32> = Scheduler::concurrency;
    let _: fn(&Scheduler) -> Stats = Scheduler::stats;
    let _: fn(&Scheduler) = Scheduler::dispose;
    let _: fn(&Segment) -> Result<Scheduler, shmsched::NoGate> = Segment::scheduler;
    let _: fn(&str) -> Result<Priority, shmsched::ParsePriorityError> = shmsched::parse_priority;
    let scheduler = local(1);
    assert_eq!(scheduler.run_blocking(|| 1, NORMAL), Ok(1));
    let ran = futures_executor::block_on(scheduler.run(|| async { 2 }, NORMAL));
    assert_eq!(ran, Ok(2));
    let _: bool = scheduler.acquire_with(|opaque: u8| assert_eq!(opaque, 3), NORMAL, 3);
    scheduler.release().unwrap();
}

/// It has the gates that were asked for and no others.
#[test]
fn a17_a_segment_is_made_with_all_its_gates() {
    let shared = Shared::new(1);
    let second = std::time::Duration::from_secs(1);
    for (at, (settings, has)) in [
        (Settings::new().concurrency(1), [true, false, false]),
        (Settings::new().rate(5), [false, true, false]),
        (Settings::new().interval(second), [false, false, true]),
        (
            Settings::new().concurrency(1).rate(5).interval(second),
            [true; 3],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let path = shared.directory.path().join(format!("gates{at}"));
        let location = shmsched::Location::File(path);
        let segment = Segment::create(&location, &settings).unwrap();
        let found = [
            segment.scheduler().is_ok(),
            segment.limiter().is_ok(),
            segment.pacer().is_ok(),
        ];
        assert_eq!(found, has);
    }
}

/// Interactive work is not behind a flood of less important work.
#[test]
fn a18_capacity_is_held_back_for_urgent_work() {
    let scheduler = local(
        Concurrency::max(100)
            .target(Priority::Low, 20)
            .target(Priority::Lowest, 5),
    );
    let mut flood: Vec<_> = (0..1_000)
        .map(|n| Task::new(scheduler.acquire([Priority::Low, Priority::Lowest][n % 2])))
        .collect();
    let running: Vec<_> = flood.iter_mut().filter_map(Task::poll).collect();
    assert_eq!(running.len(), 20);
    assert_eq!(scheduler.stats().pending, 980);
    let urgent: Vec<_> = (0..80)
        .map(|_| scheduler.try_acquire(NORMAL).unwrap())
        .collect();
    assert!(scheduler.try_acquire(NORMAL).is_err());
    drop(urgent);
}

/// A handle costs a mapping and gives it back.
#[test]
fn a1_dropping_a_scheduler_leaves_nothing() {
    alone(
        "construction::a1_dropping_a_scheduler_leaves_nothing",
        || {
            let maps = || {
                std::fs::read_to_string("/proc/self/maps")
                    .unwrap()
                    .lines()
                    .count()
            };
            drop(local(1));
            let before = maps();
            for _ in 0..200 {
                let scheduler = local(2);
                drop(scheduler.try_acquire(NORMAL).unwrap());
            }
            assert!(maps() < before + 20, "{before} became {}", maps());
        },
    );
}
