//! Spare slots that are lent though somebody waits: who asks for one without waiting gets it, and who waits gets it soon.

#[path = "../support/lending.rs"]
#[allow(dead_code)]
mod lending;

use lending::{LEND_NS, LENT, Lending, OFF};
use shmsched::{AcquireError, Changes, Location, Permit, Priority, Scheduler, Segment, Settings};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;
const LONG: Duration = Duration::from_secs(10);
/// Far more than lending takes, and less than any watch.
const SOON: Duration = Duration::from_millis(60);

struct Scene {
    _directory: tempfile::TempDir,
    location: Location,
    segment: Segment,
    one: Scheduler,
    other: Scheduler,
    lending: Lending,
}

/// Two members of one segment.
fn scene(slots: u32) -> Scene {
    let directory = tempfile::tempdir().unwrap();
    let location = Location::File(directory.path().join("lent"));
    let segment = Segment::create(&location, &Settings::new().concurrency(slots)).unwrap();
    let other = Segment::open(&location).unwrap();
    Scene {
        one: segment.scheduler().unwrap(),
        segment,
        other: other.scheduler().unwrap(),
        lending: Lending::of(&location.path()),
        _directory: directory,
        location,
    }
}

impl Scene {
    /// Leaves a slot of this thread, lent. When that was. This thread may not have used the other member since it took it.
    fn leave(&self, held: Permit<'_>) -> Instant {
        // Before the stamp, so that it is lent for no longer than it has been since.
        let at = Instant::now();
        assert!(self.lending.lend(), "phase {}", self.lending.phase());
        drop(held);
        at
    }

    /// The same with a slot that it takes first. By its first pair it finds its record.
    fn leave_lent(&self) -> Instant {
        drop(self.one.blocking_acquire_until(1, NORMAL, LONG).unwrap());
        let at = self.leave(self.one.blocking_acquire_until(1, NORMAL, LONG).unwrap());
        assert_eq!(self.lending.taken(), 1, "it lies there");
        at
    }
}

/// Counts its wakes.
#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wakes {
    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// All but one in five. By a watch each would take 100 ms; on a busy machine some take as long.
fn are_soon(mut times: Vec<Duration>) {
    times.sort_unstable();
    println!(
        "{} judged, of {:?}",
        times.len(),
        times.first()..=times.last()
    );
    assert!(!times.is_empty(), "none judged");
    assert!(times[(times.len() - 1) * 4 / 5] < SOON, "{times:?}");
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "{what}");
        thread::yield_now();
    }
}

/// Every way to ask without waiting, or for a moment only, while it is lent and nobody holds anything.
#[test]
fn who_does_not_wait_gets_what_is_lent() {
    type Ask = fn(&Scheduler, Duration) -> bool;
    let asks: [(&str, Ask); 5] = [
        ("try", |it, _| it.try_acquire(NORMAL).is_ok()),
        ("try many", |it, _| it.try_acquire_many(1, NORMAL).is_ok()),
        ("try owned", |it, _| it.try_acquire_owned(NORMAL).is_ok()),
        ("blocking", |it, time| {
            it.blocking_acquire_until(1, NORMAL, time).is_ok()
        }),
        ("await", |it, time| {
            futures_executor::block_on(it.acquire_until(1, NORMAL, time)).is_ok()
        }),
    ];
    let scene = scene(1);
    for (how, ask) in asks {
        // From no time at all: it may be over at any point of the wait.
        for micros in 0..60 {
            scene.leave_lent();
            let got = ask(&scene.other, Duration::from_micros(micros));
            assert!(got, "{how}, {micros} us");
        }
    }
}

/// The same while it is in line already: its time runs out before what is lent comes back by itself.
#[test]
fn whose_time_runs_out_in_line_gets_what_is_lent() {
    let scene = scene(1);
    let mut judged = 0;
    for round in 0..40 {
        let held = scene.one.try_acquire(NORMAL).unwrap();
        let waiting = Duration::from_millis(4);
        thread::scope(|scope| {
            let begun = Instant::now();
            let thread = scope.spawn(|| match round % 2 {
                0 => {
                    let got = scene.other.blocking_acquire_until(1, NORMAL, waiting);
                    got.is_ok()
                }
                _ => {
                    let wait = scene.other.acquire_until(1, NORMAL, waiting);
                    futures_executor::block_on(wait).is_ok()
                }
            });
            until("in line", || {
                scene.other.stats().pending == 1 || thread.is_finished()
            });
            // Lent shortly before its time is up.
            while begun.elapsed() < waiting - Duration::from_micros(350) {
                std::hint::spin_loop();
            }
            scene.leave(held);
            let in_time = begun.elapsed() < waiting;
            let got = thread.join().unwrap();
            assert!(got || !in_time, "round {round}");
            judged += u32::from(in_time);
        });
        // With it goes what was lent.
        let _ = scene.other.try_acquire_many(1, NORMAL).map(drop);
    }
    assert!(judged > 0);
}

/// A task is called, and a newcomer takes the slot and leaves it lent before the task is polled: it looks in time all the
/// same.
#[test]
fn a_task_that_was_called_in_vain_looks_in_time() {
    let mut times = Vec::new();
    for _ in 0..100 {
        let scene = scene(1);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);
        let held = scene.one.try_acquire(NORMAL).unwrap();
        let mut task = pin!(scene.other.acquire(NORMAL));
        assert!(task.as_mut().poll(&mut context).is_pending());
        thread::sleep(Duration::from_millis(2));
        drop(held);
        until("it is called", || wakes.count() == 1);
        thread::sleep(Duration::from_millis(2));
        // Nobody holds it, and nobody bars a newcomer.
        let left = scene.leave_lent();
        let polled = task.as_mut().poll(&mut context);
        // Too late to say anything: the time was up.
        if left.elapsed().as_nanos() as u64 > LEND_NS * 9 / 10 {
            continue;
        }
        assert!(polled.is_pending());
        until("it is woken", || wakes.count() >= 2);
        times.push(left.elapsed());
        // Polled late, it may have been passed over, and is called once more.
        until("it has it", || {
            matches!(task.as_mut().poll(&mut context), Poll::Ready(Ok(_)))
        });
        if times.len() == 40 {
            break;
        }
    }
    are_soon(times);
}

/// A thread that takes a slot here, and then one there, and holds both for a while: neither is brisk.
#[test]
fn slots_that_are_held_for_long_are_not_lent_though_a_thread_uses_two_segments() {
    let scenes = [scene(2), scene(2)];
    let mut seen = 0;
    thread::scope(|scope| {
        for it in &scenes {
            // Somebody waits in each all the time: its target leaves it to a draw that names it.
            it.segment
                .set(&Changes::new().target(Priority::Lowest, 0))
                .unwrap();
            it.one.fix_draw(Some(0));
            it.other.fix_draw(Some(0));
            scope.spawn(|| {
                let got = it.other.blocking_acquire_until(1, Priority::Lowest, LONG);
                assert_eq!(got.err(), Some(AcquireError::Closed));
            });
            until("in line", || it.other.stats().pending == 1);
        }
        for at in 0..200 {
            // So that both come to a round number together, and one after the other.
            if at == 100 {
                (0..64).for_each(|_| drop(scenes[0].one.blocking_acquire(NORMAL).unwrap()));
            }
            let held = scenes
                .each_ref()
                .map(|it| it.one.blocking_acquire(NORMAL).unwrap());
            thread::sleep(Duration::from_micros(200));
            seen += scenes
                .iter()
                .filter(|it| it.lending.phase() == LENT)
                .count();
            drop(held);
        }
        scenes.iter().for_each(|it| it.other.close());
    });
    assert_eq!(seen, 0);
}

/// One thread takes, others give back what they were handed, each after a millisecond: that is not brisk either.
#[test]
fn slots_that_other_threads_give_back_after_a_while_are_not_lent() {
    let scene = scene(16);
    let over = std::sync::atomic::AtomicBool::new(false);
    let mut seen = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = scene.other.blocking_acquire_until(
                    16,
                    Priority::Lowest,
                    Duration::from_micros(300),
                );
            }
        });
        let (give, take) = std::sync::mpsc::channel::<(Instant, shmsched::OwnedPermit)>();
        scope.spawn(move || {
            for (until, permit) in take {
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                drop(permit);
            }
        });
        for _ in 0..2_000 {
            let permit = scene.one.blocking_acquire_owned(NORMAL).unwrap();
            give.send((Instant::now() + Duration::from_millis(1), permit))
                .unwrap();
            // 16 in a millisecond at most.
            thread::sleep(Duration::from_micros(1));
            seen += u32::from(scene.lending.phase() == LENT);
        }
        drop(give);
        over.store(true, Ordering::Relaxed);
    });
    println!("seen lent {seen} times");
    assert_eq!(seen, 0);
}

/// Somebody of the own process waits at a lower priority: a brisk thread gives it what it gives back.
#[test]
fn the_own_members_callback_is_not_passed_by_lent_slots() {
    let scene = scene(1);
    let mut times = Vec::new();
    for _ in 0..20 {
        let ran = Arc::new(AtomicU32::new(0));
        let held = scene.one.try_acquire(Priority::Highest).unwrap();
        let (mine, done) = (scene.one.clone(), ran.clone());
        scene.one.acquire_with(
            move |()| {
                done.store(1, Ordering::SeqCst);
                mine.release().unwrap();
            },
            Priority::Lowest,
            (),
        );
        scene.lending.lend();
        let begun = Instant::now();
        drop(held);
        until("it ran", || ran.load(Ordering::SeqCst) == 1);
        times.push(begun.elapsed());
        until("all is back", || scene.one.stats().running == 0);
    }
    are_soon(times);
}

/// Whatever a stranger writes there: no endless loop, and waiters get on.
#[test]
fn scribbled_stamps_and_phases() {
    for stamp in [0, 1, u64::MAX, u64::MAX - LEND_NS, 1 << 63] {
        for recalled in [0, stamp, u64::MAX] {
            for word in [OFF, 1, 2, LENT, u32::MAX, u32::MAX - 3, u32::MAX - 2] {
                let scene = scene(1);
                let held = scene.one.try_acquire(NORMAL).unwrap();
                scene.lending.stamp().store(stamp, Ordering::SeqCst);
                scene.lending.recalled().store(recalled, Ordering::SeqCst);
                scene.lending.word().store(word, Ordering::SeqCst);
                thread::scope(|scope| {
                    let waiting = scope.spawn(|| {
                        drop(scene.other.blocking_acquire_until(1, NORMAL, LONG).unwrap());
                    });
                    until("in line", || scene.other.stats().pending == 1);
                    drop(held);
                    // A busy one that goes on.
                    for _ in 0..300 {
                        drop(scene.one.try_acquire(Priority::Highest));
                    }
                    waiting.join().unwrap();
                });
                drop(scene.other.try_acquire(NORMAL).unwrap());
                let mut observer = shmsched::Observer::open(&scene.location).unwrap();
                let seen = observer.snapshot().unwrap().scheduler.unwrap();
                assert_eq!((seen.running, seen.waiters), (0, 0));
            }
        }
    }
}
