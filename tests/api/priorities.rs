//! Group B: priorities, targets, and how the one resolves from the other.

use crate::support::{NORMAL, Shared, Task, local, until};
use shmsched::{Concurrency, Priority, QueueStats, Scheduler, Stats, parse_priority};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const NAMES: [&str; 7] = [
    "lowest", "lower", "low", "normal", "high", "higher", "highest",
];

fn hold(scheduler: &Scheduler, slots: u32) -> shmsched::Permit<'_> {
    scheduler
        .try_acquire_many(slots, Priority::Highest)
        .unwrap()
}

#[test]
fn b1_b2_seven_levels() {
    for (index, name) in NAMES.into_iter().enumerate() {
        let value = index as i32 - 3;
        let priority = Priority::try_from(value).unwrap();
        assert_eq!(priority.value(), value);
        assert_eq!(priority.name(), name);
        assert_eq!(priority.to_string(), name);
        assert_eq!(name.parse(), Ok(priority));
        assert_eq!(priority.index(), index);
    }
    for value in [-4, 4, i32::MIN, i32::MAX] {
        assert!(Priority::try_from(value).is_err());
    }
}

#[test]
fn b2_name_and_number_share_a_queue() {
    let scheduler = local(1);
    let _held = hold(&scheduler, 1);
    let waiting = [
        Task::waiting(scheduler.acquire("high".parse().unwrap())),
        Task::waiting(scheduler.acquire(1.try_into().unwrap())),
    ];
    assert_eq!(scheduler.stats().queues[4].count, 2);
    drop(waiting);
}

#[test]
fn b3_constants() {
    let all = [
        Priority::Lowest,
        Priority::Lower,
        Priority::Low,
        Priority::Normal,
        Priority::High,
        Priority::Higher,
        Priority::Highest,
    ];
    assert_eq!(all, Priority::ALL);
    assert_eq!(all.map(|priority| priority as i8), [-3, -2, -1, 0, 1, 2, 3]);
    assert!(all.is_sorted());
}

#[test]
fn b4_x23_the_default_is_normal() {
    let scheduler = local(1);
    let _held = hold(&scheduler, 1);
    let waiting = Task::waiting(scheduler.acquire(Priority::default()));
    assert_eq!(scheduler.stats().queues[3].deferred, 1);
    drop(waiting);
}

#[test]
fn b5_b6_x22_priorities_from_outside() {
    for (index, name) in NAMES.into_iter().enumerate() {
        let value = index as i32 - 3;
        assert_eq!(parse_priority(name).unwrap().value(), value);
        assert_eq!(parse_priority(&value.to_string()).unwrap().value(), value);
    }
    for wrong in [
        "High", "HIGH", " high", "high ", "", "urgent", "4", "-4", "0.5", "1e0", "NaN", "03",
    ] {
        let error = parse_priority(wrong).unwrap_err().to_string();
        assert!(error.contains(wrong) && !error.contains('\n'), "{error}");
    }
    // A header that is absent is for the caller to say.
    let header: Option<&str> = None;
    assert_eq!(header.map_or(Ok(NORMAL), parse_priority), Ok(NORMAL));
    assert_eq!(
        Some("high").map_or(Ok(NORMAL), parse_priority),
        Ok(Priority::High)
    );
}

/// The type is the seven levels and nothing else: the match has no wildcard.
#[test]
fn b7_the_type_has_seven_values() {
    for priority in Priority::ALL {
        let place = match priority {
            Priority::Lowest => 0,
            Priority::Lower => 1,
            Priority::Low => 2,
            Priority::Normal => 3,
            Priority::High => 4,
            Priority::Higher => 5,
            Priority::Highest => 6,
        };
        assert_eq!(Priority::from_index(place), Some(priority));
    }
}

#[test]
fn b8_b9_b22_a_target_counts_everything_that_runs() {
    let scheduler = local(Concurrency::max(100).target(Priority::Low, 20));
    // None of these is low.
    let held: Vec<_> = (0..19)
        .map(|_| scheduler.try_acquire(NORMAL).unwrap())
        .collect();
    let twentieth = scheduler.try_acquire(Priority::Low).unwrap();
    let low = Task::waiting(scheduler.acquire(Priority::Low));
    let lowest = Task::waiting(scheduler.acquire(Priority::Lowest));
    assert!(scheduler.try_acquire(NORMAL).is_ok());
    assert!(scheduler.try_acquire(Priority::High).is_ok());
    drop((low, lowest, twentieth));
    assert!(scheduler.try_acquire(Priority::Low).is_ok());
    let _twentieth = scheduler.try_acquire(NORMAL).unwrap();
    assert!(scheduler.try_acquire(Priority::Low).is_err());
    drop(held);
}

#[test]
fn b10_max_holds_at_every_priority() {
    let scheduler = local(6);
    for priority in Priority::ALL {
        let held: Vec<_> = (0..6)
            .map(|_| scheduler.try_acquire(priority).unwrap())
            .collect();
        for other in Priority::ALL {
            drop(Task::waiting(scheduler.acquire(other)));
        }
        drop(held);
    }
}

/// `-1` is not given, and in the result unlimited.
#[test]
fn b11_b12_b13_b14_b15_b16_resolution() {
    let vectors: &[(i64, [i64; 7], [i64; 7])] = &[
        (
            100,
            [-1, -1, 20, -1, 50, -1, -1],
            [20, 20, 20, 20, 50, 100, 100],
        ),
        (
            100,
            [-1, -1, 20, -1, -1, -1, -1],
            [20, 20, 20, 100, 100, 100, 100],
        ),
        (
            100,
            [-1, -1, -1, 50, -1, -1, -1],
            [50, 50, 50, 50, 100, 100, 100],
        ),
        (
            100,
            [5, -1, 20, -1, -1, -1, -1],
            [5, 5, 20, 100, 100, 100, 100],
        ),
        (10, [-1, -1, -1, -1, 50, -1, -1], [10; 7]),
        (100, [-1; 7], [100; 7]),
        (8, [-1; 7], [8; 7]),
        (
            100,
            [-1, 7, -1, -1, -1, -1, -1],
            [7, 7, 100, 100, 100, 100, 100],
        ),
        (100, [-1, -1, -1, -1, -1, -1, 50], [50; 7]),
        (100, [5, -1, -1, -1, -1, -1, 60], [5, 5, 5, 5, 5, 5, 60]),
        (
            100,
            [-1, -1, 20, 10, -1, -1, -1],
            [20, 20, 20, 10, 100, 100, 100],
        ),
        (-1, [5, -1, 20, -1, -1, -1, -1], [5, 5, 20, -1, -1, -1, -1]),
        (-1, [5, -1, -1, -1, -1, -1, -1], [5, -1, -1, -1, -1, -1, -1]),
    ];
    let given = |n: i64| u32::try_from(n).ok();
    for (max, targets, expected) in vectors {
        let concurrency = Concurrency {
            max: given(*max),
            targets: targets.map(given),
        };
        assert_eq!(
            concurrency.resolve(),
            expected.map(given),
            "{concurrency:?}"
        );
        // What resolves is what governs: the n-th slot is granted, the next is not.
        let scheduler = local(concurrency);
        for priority in Priority::ALL {
            let Some(target) = given(expected[priority.index()]) else {
                continue;
            };
            let held = hold(&scheduler, target - 1);
            let last = scheduler.try_acquire(priority).unwrap();
            assert!(scheduler.try_acquire(priority).is_err());
            drop((held, last));
        }
    }
}

#[test]
fn b17_the_smaller_overall_value_clamps() {
    for (shared, max, low, expected) in [(10, 50, 20, 10), (100, 50, 80, 50)] {
        let own = Concurrency::max(max).target(Priority::Low, low);
        assert_eq!(own.resolve_under(Some(shared)), [Some(expected); 7]);
        let segment = Shared::new(shared);
        let (own, other) = (segment.member().with(own), segment.member());
        for priority in Priority::ALL {
            let held = hold(&other, expected - 1);
            let last = own.try_acquire(priority).unwrap();
            assert!(own.try_acquire(priority).is_err());
            drop((held, last));
        }
    }
}

#[test]
fn b18_each_instance_obeys_its_own_targets() {
    let shared = Shared::new(100);
    let member = |low| {
        shared
            .member()
            .with(Concurrency::unlimited().target(Priority::Low, low))
    };
    let (a, b) = (member(3), member(7));
    let mut held = Vec::new();
    while let Ok(permit) = a.try_acquire_owned(Priority::Low) {
        held.push(permit);
    }
    assert_eq!(held.len(), 3);
    while let Ok(permit) = b.try_acquire_owned(Priority::Low) {
        held.push(permit);
    }
    assert_eq!(held.len(), 7);
}

/// A waiter carries its handle's targets into the line: a release by anybody obeys them.
#[test]
fn b18_a_place_in_the_line_carries_its_target() {
    let shared = Shared::new(10);
    let strict = shared
        .member()
        .with(Concurrency::unlimited().target(Priority::High, 2));
    let other = shared.member();
    other.fix_draw(Some(0));
    let mut held: Vec<_> = (0..10)
        .map(|_| other.try_acquire_owned(NORMAL).unwrap())
        .collect();
    let mut waiting = Task::waiting(strict.acquire(Priority::High));
    while held.len() > 2 {
        held.pop();
        // Also when it looks for itself.
        assert!(waiting.poll().is_none(), "admitted at {}", held.len());
    }
    held.pop();
    assert!(waiting.finish().is_ok());
}

/// The statistics name no targets: this pattern is complete.
#[test]
fn b19_stats_have_no_targets() {
    let scheduler = local(Concurrency::max(5).target(Priority::Low, 2));
    let Stats {
        running,
        concurrency,
        pending,
        total,
        queues,
        shared,
    } = scheduler.stats();
    assert_eq!((running, concurrency, pending), (0, Some(5), 0));
    assert_eq!(total, QueueStats::default());
    assert_eq!(queues, [QueueStats::default(); 7]);
    assert_eq!(shared, None);
}

#[test]
fn b20_arrays_are_lowest_first() {
    let scheduler = local(1);
    let _held = hold(&scheduler, 1);
    for (index, priority) in Priority::ALL.into_iter().enumerate() {
        let waiting = Task::waiting(scheduler.acquire(priority));
        let counts = scheduler.stats().queues.map(|queue| queue.count);
        let expected: [u64; 7] = std::array::from_fn(|at| u64::from(at == index));
        assert_eq!(counts, expected);
        drop(waiting);
    }
}

/// Target 0 lets its priority in by the lottery only, and is not the overall zero.
#[test]
fn x17_a_target_of_zero() {
    let scheduler = local(
        Concurrency::max(5)
            .target(Priority::Lowest, 0)
            .target(Priority::Lower, 5),
    );
    assert!(scheduler.try_acquire(Priority::Lowest).is_err());
    let ran = Arc::new(AtomicU32::new(0));
    let counted = ran.clone();
    let held = hold(&scheduler, 2);
    let took = scheduler.acquire_with(
        move |()| {
            counted.fetch_add(1, Ordering::SeqCst);
        },
        Priority::Lowest,
        (),
    );
    assert!(!took);
    // A draw of an empty priority does not help it, its own does.
    scheduler.fix_draw(Some(0));
    drop(hold(&scheduler, 1));
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    assert_eq!(scheduler.stats().pending, 1);
    scheduler.fix_draw(Some(126));
    drop(hold(&scheduler, 1));
    until("it is drawn", || ran.load(Ordering::SeqCst) == 1);
    drop(held);
    scheduler.release().unwrap();
}
