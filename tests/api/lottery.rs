//! Group D: the lottery, with the draw injected. Draws are 0..127, weights 64, 32, 16, 8, 4, 2, 1 from highest to lowest.

use crate::support::{NORMAL, Shared, Task, local, until};
use shmsched::{Concurrency, Priority, Scheduler};
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The draws that name a priority, lowest first.
const DRAWS: [Range<u32>; 7] = [
    126..127,
    124..126,
    120..124,
    112..120,
    96..112,
    64..96,
    0..64,
];

/// Callbacks that wait at priorities; they keep their slots.
struct Backlog {
    scheduler: Scheduler,
    served: Arc<Mutex<Vec<usize>>>,
}

impl Backlog {
    /// `busy` slots are held by callbacks of their own.
    fn new(concurrency: impl Into<Concurrency>, busy: u32) -> Backlog {
        let scheduler = local(concurrency);
        for _ in 0..busy {
            assert!(scheduler.acquire_with(drop, Priority::Highest, ()));
        }
        Backlog {
            scheduler,
            served: Arc::default(),
        }
    }

    fn queue(&self, priority: Priority) {
        let served = self.served.clone();
        let push = move |index| served.lock().unwrap().push(index);
        assert!(
            !self
                .scheduler
                .acquire_with(push, priority, priority.index())
        );
    }

    /// Frees a slot under a fixed draw; what that started.
    fn release(&self, draw: u32) -> Option<usize> {
        self.scheduler.fix_draw(Some(draw));
        let before = self.served.lock().unwrap().len();
        let pending = self.scheduler.stats().pending;
        self.scheduler.release().unwrap();
        if self.scheduler.stats().pending < pending {
            until("it ran", || self.served.lock().unwrap().len() > before);
        }
        self.served.lock().unwrap().get(before).copied()
    }
}

#[test]
fn x13_every_priority_has_its_weight() {
    let weights = DRAWS.map(|draws| draws.len());
    assert_eq!(weights, [1, 2, 4, 8, 16, 32, 64]);
    for (index, draws) in DRAWS.iter().enumerate() {
        for draw in [draws.start, draws.end - 1] {
            let backlog = Backlog::new(1, 1);
            Priority::ALL.into_iter().for_each(|p| backlog.queue(p));
            assert_eq!(backlog.release(draw), Some(index), "draw {draw}");
        }
    }
}

/// A drawn priority ignores its target, not the limit.
#[test]
fn d1_d6_r6_a_drawn_priority_passes_its_target() {
    let backlog = Backlog::new(Concurrency::max(10).target(Priority::Lowest, 1), 8);
    for _ in 0..5 {
        backlog.queue(Priority::Lowest);
    }
    for lowest_running in 1..=5 {
        assert_eq!(backlog.release(0), None, "only a draw of its own");
        assert_eq!(backlog.release(126), Some(0));
        // More of the lowest run than its target says.
        assert!(backlog.scheduler.acquire_with(drop, NORMAL, ()));
        assert_eq!(backlog.served.lock().unwrap().len(), lowest_running);
        assert!(backlog.scheduler.stats().running <= 10);
    }
}

#[test]
fn d1_the_draw_never_passes_the_limit() {
    let shared = Shared::new(3);
    let segment = shared.open();
    let scheduler = segment.scheduler().unwrap();
    scheduler.fix_draw(Some(126));
    let held = scheduler.try_acquire_many(3, NORMAL).unwrap();
    let waiting = Task::waiting(scheduler.acquire(Priority::Lowest));
    segment
        .set(&shmsched::Changes::new().concurrency(Some(1)))
        .unwrap();
    let mut held = held;
    drop(held.split(1));
    drop(held.split(1));
    let mut waiting = waiting;
    assert!(waiting.poll().is_none(), "one runs, one is allowed");
    drop(held);
    assert!(waiting.finish().is_ok());
}

/// Everybody makes progress under an endless stream of the highest.
#[test]
fn d2_each_backlogged_priority_makes_progress() {
    let scheduler = local(
        Concurrency::max(2)
            .target(Priority::Lowest, 0)
            .target(Priority::Lower, 1),
    );
    let turns = Arc::new(AtomicU32::new(0));
    let left = Arc::new(AtomicI32::new(7 * 3));
    // Two streams that queue themselves again as long as anybody waits.
    fn stream(own: Scheduler, turns: Arc<AtomicU32>, left: Arc<AtomicI32>) {
        let again = move |own: Scheduler| {
            turns.fetch_add(1, Ordering::SeqCst);
            if left.load(Ordering::SeqCst) > 0 {
                stream(own.clone(), turns, left);
            }
            own.release().unwrap();
        };
        own.acquire_with(again, Priority::Highest, own.clone());
    }
    let mut held = scheduler.try_acquire_many(2, Priority::Highest).unwrap();
    for _ in 0..3 {
        for priority in Priority::ALL {
            let (left, own) = (left.clone(), scheduler.clone());
            let done = move |()| {
                left.fetch_sub(1, Ordering::SeqCst);
                own.release().unwrap();
            };
            assert!(!scheduler.acquire_with(done, priority, ()));
        }
    }
    // Queued behind the three of its priority.
    for _ in 0..2 {
        stream(scheduler.clone(), turns.clone(), left.clone());
    }
    // The streams run on this thread until nobody is left.
    drop(held.split(1));
    drop(held);
    until("all were served", || left.load(Ordering::SeqCst) == 0);
    // Three turns of weight 1 in 127: the chance to need more is below e^-60.
    let turns = turns.load(Ordering::SeqCst);
    assert!(turns < 127 * 90, "{turns} turns");
    until("the streams ended", || scheduler.stats().running == 0);
}

#[test]
fn d3_r14_never_above_the_limit() {
    let scheduler = local(
        Concurrency::max(5)
            .target(Priority::Low, 2)
            .target(Priority::Lowest, 1),
    );
    let running = AtomicI32::new(0);
    let highest = AtomicI32::new(0);
    thread::scope(|scope| {
        for n in 0..12 {
            let (scheduler, running, highest) = (&scheduler, &running, &highest);
            scope.spawn(move || {
                for k in 0..300 {
                    let permit = scheduler
                        .blocking_acquire(Priority::ALL[(n + k) % 7])
                        .unwrap();
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    highest.fetch_max(now, Ordering::SeqCst);
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    let highest = highest.load(Ordering::SeqCst);
    assert!((1..=5).contains(&highest), "{highest} at once");
}

#[test]
fn d4_an_empty_priority_gives_its_draw_to_the_most_urgent() {
    // Normal is drawn and empty; low is its lower neighbour.
    for draw in DRAWS[3].clone() {
        let backlog = Backlog::new(1, 1);
        for priority in [Priority::Lowest, Priority::Low, Priority::High] {
            backlog.queue(priority);
        }
        assert_eq!(backlog.release(draw), Some(Priority::High.index()));
    }
    // Also if only less urgent ones wait, and without passing their target.
    let backlog = Backlog::new(Concurrency::max(4).target(Priority::Low, 1), 4);
    backlog.queue(Priority::Lower);
    backlog.queue(Priority::Low);
    assert_eq!(backlog.release(0), None);
    assert_eq!(backlog.release(0), None);
    assert_eq!(backlog.release(0), None);
    assert_eq!(backlog.release(0), Some(Priority::Low.index()));
}

/// Of all 127 draws the lowest wins one, however many of the others are empty.
#[test]
fn d5_empty_priorities_do_not_help_the_low() {
    let wins = |backlogged: &[Priority]| {
        (0..127)
            .filter(|draw| {
                let backlog = Backlog::new(1, 1);
                backlogged.iter().for_each(|p| backlog.queue(*p));
                backlog.release(*draw) == Some(0)
            })
            .count()
    };
    assert_eq!(wins(&Priority::ALL), 1);
    assert_eq!(wins(&[Priority::Highest, Priority::Lowest]), 1);
}

/// One draw per turn, whatever kinds of callers wait: a callback at the lowest gets no second chance when the first
/// draw named a task.
#[test]
fn d5_one_draw_per_turn() {
    const TURNS: u32 = 12_000;
    let scheduler = local(1);
    let wins = Arc::new(AtomicU32::new(0));
    let mut held = Some(scheduler.try_acquire_owned(NORMAL).unwrap());
    let queue = || {
        let (wins, own) = (wins.clone(), scheduler.clone());
        let won = move |()| {
            wins.fetch_add(1, Ordering::SeqCst);
            own.release().unwrap();
        };
        assert!(!scheduler.acquire_with(won, Priority::Lowest, ()));
    };
    queue();
    for _ in 0..TURNS {
        let mut waiting = Task::waiting(scheduler.acquire_owned(Priority::Highest));
        let before = wins.load(Ordering::SeqCst);
        drop(held.take());
        // Either the callback ran here, or it is the task's turn.
        held = match waiting.poll() {
            Some(permit) => Some(permit.unwrap()),
            None => Some(waiting.finish().unwrap()),
        };
        if wins.load(Ordering::SeqCst) > before {
            queue();
        }
    }
    // 94 on average, deviation 9.7; with a second draw it would be 188.
    let wins = wins.load(Ordering::SeqCst);
    assert!((45..=143).contains(&wins), "{wins} of {TURNS}");
}

#[test]
fn d7_a_try_never_profits() {
    let scheduler = local(Concurrency::max(10).target(Priority::Low, 3));
    let _held = scheduler.try_acquire_many(3, NORMAL).unwrap();
    scheduler.fix_draw(Some(120));
    for _ in 0..10_000 {
        assert!(scheduler.try_acquire(Priority::Low).is_err());
    }
    // Neither does the first attempt of an acquire.
    assert!(!scheduler.acquire_with(drop, Priority::Low, ()));
    let waiting = Task::waiting(scheduler.acquire(Priority::Low));
    assert_eq!(scheduler.stats().pending, 2);
    drop(waiting);
}

/// A winner that lacks room under the limit and has waited half a millisecond bars everybody, then is served.
#[test]
fn d1_a_winner_without_room_bars_everybody() {
    let scheduler = local(2);
    let (one, two) = (
        scheduler.try_acquire(NORMAL).unwrap(),
        scheduler.try_acquire(NORMAL).unwrap(),
    );
    let waiting = Task::waiting(scheduler.acquire_many(2, Priority::Lowest));
    let patience = Instant::now() + Duration::from_millis(2);
    while Instant::now() < patience {
        thread::yield_now();
    }
    scheduler.fix_draw(Some(126));
    drop(one);
    for priority in Priority::ALL {
        assert!(
            scheduler.try_acquire(priority).is_err(),
            "{priority} passed"
        );
    }
    drop(two);
    drop(waiting.finish().unwrap());
    assert!(scheduler.try_acquire(Priority::Lowest).is_ok());
}

/// Without the draw: the most urgent whose target permits.
#[test]
fn x14_a_blocked_priority_holds_up_nobody() {
    let targets = Concurrency::max(4)
        .target(NORMAL, 3)
        .target(Priority::High, 1);
    assert_eq!(targets.resolve().map(Option::unwrap), [3, 3, 3, 3, 1, 4, 4]);
    let backlog = Backlog::new(targets, 3);
    backlog.queue(Priority::High);
    backlog.queue(NORMAL);
    backlog.queue(Priority::Low);
    assert_eq!(backlog.release(0), Some(NORMAL.index()));
    assert_eq!(backlog.release(0), Some(Priority::Low.index()));
    assert_eq!(backlog.release(0), None);
    assert_eq!(backlog.release(0), None);
    assert_eq!(backlog.release(0), Some(Priority::High.index()));
}
