//! Who is stopped or dead in the line of a Limiter or a Pacer, and what others get meanwhile.

use crate::support::{Child, LONG, Scene, figure, less, now, one_of, until};
use shmsched::{
    AcquireError, Limiter, LimiterInfo, Location, Observer, Pacer, PacerInfo, Priority, Segment,
    Settings, Snapshot, StartError,
};
use std::time::{Duration, Instant};

const MS: u64 = 1_000_000;
const NORMAL: Priority = Priority::Normal;
const HOUR: Duration = Duration::from_secs(3_600);

/// Another process, with all gates: its lines are those of [`crate::tokens::play`].
struct Other(Child);

impl Other {
    fn new(location: &Location) -> Other {
        let mut child = Child::start("tap", &[&location.path().to_string_lossy()]);
        child.expect("attached");
        Other(child)
    }

    #[track_caller]
    fn asks(&mut self, line: &str) {
        self.0.tell(line);
        assert_eq!(self.0.expect("="), "on");
    }

    #[track_caller]
    fn got(&mut self, id: &str) -> u64 {
        self.0.expect(&format!("got {id}")).parse().unwrap()
    }
}

/// A segment with all gates, of which a bucket of 1,000 a second is full, and what this process has of it.
struct Place {
    location: Location,
    segment: Segment,
    limiter: Limiter,
    pacer: Pacer,
}

impl Place {
    fn of(scene: &Scene, name: &str, interval: Duration, max_waiting: u32) -> Place {
        let settings = Settings::new()
            .concurrency(1)
            .rate(1_000)
            .interval(interval)
            .max_waiting(max_waiting)
            .members(16);
        let location = scene.segment_of(name, &settings);
        let segment = Segment::open(&location).unwrap();
        Place {
            limiter: segment.limiter().unwrap(),
            pacer: segment.pacer().unwrap(),
            location,
            segment,
        }
    }

    fn seen(&self) -> Snapshot {
        let mut observer = Observer::open(&self.location).unwrap();
        observer.snapshot().unwrap()
    }

    fn tokens(&self) -> LimiterInfo {
        self.seen().limiter.unwrap()
    }

    fn starts(&self) -> PacerInfo {
        self.seen().pacer.unwrap()
    }

    #[track_caller]
    fn in_line(&self, n: u64) {
        until(LONG, "in line", || {
            self.tokens().queued.iter().sum::<u64>() == n
        });
    }

    /// Takes all there is and so many more, so that the first token comes in so many ms: when that is, at the earliest.
    #[track_caller]
    fn indebt(&self, debt: u32) -> u64 {
        until(LONG, "full", || self.tokens().tokens == 1_000);
        let begun = now();
        self.limiter.blocking_acquire(1_000 + debt, NORMAL).unwrap();
        begun + u64::from(debt) * MS
    }
}

/// Stops another in line, which comes there by `asks`. It may have stood still there until its turn came: then once more.
#[track_caller]
fn stopped_in_line(other: &mut Other, waits: impl Fn() -> bool, mut asks: impl FnMut(&mut Other)) {
    one_of(5, || {
        asks(other);
        let mut got = false;
        until(LONG, "in line", || {
            got = got || other.0.listen_for("got w", Duration::ZERO).is_ok();
            got || waits()
        });
        other.0.stop_all();
        if waits() {
            return Ok(());
        }
        other.0.go_on();
        if !got {
            other.got("w");
        }
        Err("its turn came before it was stopped".to_owned())
    });
}

/// It is refused while a stopped one's turn may still be taken, and from then on nobody is refused on his account, though
/// he stays in line.
#[track_caller]
fn passes(what: &str, mut attempt: impl FnMut() -> bool) {
    let begun = Instant::now();
    until(Duration::from_secs(2), what, &mut attempt);
    figure!("{what} after {:?}", begun.elapsed());
    for _ in 0..50 {
        assert!(attempt(), "{what}: refused again");
    }
}

/// He was called and kept silent: who tries, and who waits, gets what is there, and he gets his own when he goes on.
#[test]
fn a_stopped_waiter_for_tokens_does_not_make_a_try_fail() {
    let scene = Scene::new();
    let place = Place::of(&scene, "S", HOUR, 4);
    let mut stopped = Other::new(&place.location);
    let waits = || place.tokens().queued.iter().sum::<u64>() == 1;
    stopped_in_line(&mut stopped, waits, |stopped| {
        place.indebt(200);
        stopped.asks("wait w 3 100");
    });
    until(LONG, "full", || place.tokens().tokens == 1_000);
    passes("a token", || place.limiter.try_consume(1).is_ok());
    let child = place.limiter.child(1_000).unwrap();
    child.try_consume(1).unwrap();
    place
        .limiter
        .blocking_acquire_until(1, NORMAL, Duration::from_millis(500))
        .unwrap();
    assert_eq!(place.tokens().queued.iter().sum::<u64>(), 1);
    stopped.0.go_on();
    stopped.got("w");
    place.in_line(0);
}

#[test]
fn a_stopped_waiter_for_a_start_does_not_make_a_try_fail() {
    let interval = Duration::from_millis(300);
    let scene = Scene::new();
    let place = Place::of(&scene, "S", interval, 4);
    let mut stopped = Other::new(&place.location);
    let waits = || place.starts().waiting == 1;
    stopped_in_line(&mut stopped, waits, |stopped| {
        place.pacer.blocking_start().unwrap();
        stopped.asks("start w");
    });
    // Its start is due and nobody takes it, until it has been called for long enough.
    until(LONG, "due", || place.starts().next_start_in.is_zero());
    let begun = Instant::now();
    until(Duration::from_secs(2), "a start", || {
        place.pacer.try_start().is_ok()
    });
    figure!("a start after {:?}", begun.elapsed());
    // Again as soon as the next is due.
    until(LONG, "due", || place.starts().next_start_in.is_zero());
    assert_eq!(place.pacer.try_start(), Ok(()));
    assert_eq!(place.starts().waiting, 1);
    stopped.0.go_on();
    stopped.got("w");
    until(LONG, "nobody", || place.starts().waiting == 0);
}

/// Who has disposed of its Scheduler looks for the dead at the other gates all the same.
#[test]
fn a_member_without_a_scheduler_finds_the_dead() {
    let scene = Scene::new();
    let place = Place::of(&scene, "S", HOUR, 1);
    let mut dead = Other::new(&place.location);
    place.segment.scheduler().unwrap().dispose();
    place.pacer.try_start().unwrap();
    place.indebt(200);
    dead.asks("start s");
    dead.asks("wait w 3 900");
    place.in_line(1);
    until(LONG, "in line", || place.starts().waiting == 1);
    let soon = Duration::from_millis(5);
    let waits = || {
        for _ in 0..100 {
            let before = place.pacer.stats().deferred;
            match place.pacer.blocking_start_until(soon) {
                Err(StartError::QueueFull(_)) => return false,
                Err(StartError::Failed(AcquireError::TimedOut)) => {}
                other => panic!("{other:?}"),
            }
            // Its time may have been over before it asked for a place.
            if place.pacer.stats().deferred != before {
                return true;
            }
        }
        panic!("it never asks for a place");
    };
    assert!(!waits(), "the only place is taken");
    dead.0.kill();
    // It may have looked just before.
    until(Duration::from_secs(1), "a place at the Pacer", waits);
    assert_eq!((place.tokens().lost, place.starts().lost), (1, 1));

    // At the Limiter, where it is not refused on the account of a dead one that was never called.
    let mut dead = Other::new(&place.location);
    place.indebt(200);
    dead.asks("wait w 3 900");
    place.in_line(1);
    dead.0.kill();
    until(LONG, "a token", || place.tokens().tokens > 0);
    until(Duration::from_secs(1), "it is buried", || {
        let _ = place.limiter.try_consume(1);
        place.tokens().lost == 2
    });
    until(LONG, "a token", || place.tokens().tokens > 0);
    place.limiter.try_consume(1).unwrap();
}

/// A process dies at the head of the line, right after the one behind it looked for the dead; `dies` ms after that one
/// joined. How long after the death, or after its own turn if that is later, the other was served.
fn behind_a_dead_head(place: &Place, how: &str, amounts: [u32; 2], dies: u64) -> Duration {
    for _ in 0..5 {
        let [mut dead, mut next] = [(); 2].map(|()| Other::new(&place.location));
        let begins = place.indebt(60);
        dead.asks(&format!("wait w 3 {}", amounts[0]));
        place.in_line(1);
        next.asks(&format!("{how} w 3 {}", amounts[1]));
        place.in_line(2);
        let joined = now();
        until(LONG, "time", || now() >= joined + dies * MS);
        // A try that fails looks first, unless somebody of its process just has.
        next.0.tell(&format!("try 2000 {}", now() + 3 * MS));
        assert_eq!(next.0.expect("="), "0");
        dead.0.kill();
        let due = begins + u64::from(amounts[1]) * MS;
        let from = now().max(due);
        let got = next.got("w");
        if dead.0.listen_for("got w", Duration::ZERO).is_err() {
            assert!(got + MS >= due, "too soon");
            return Duration::from_nanos(got.saturating_sub(from));
        }
        // It had its turn before it was killed: the machine was too slow.
    }
    panic!("too slow");
}

#[test]
fn case_08_a_dead_head_holds_up_for_less_than_half_a_second() {
    let scene = Scene::alone();
    std::thread::scope(|scope| {
        let threads: Vec<_> = [
            // Far from its own turn: nobody would call it for long.
            ("wait", [950, 80], 0),
            ("task", [950, 80], 0),
            // Right before its turn, with no tokens for both.
            ("wait", [900, 900], 820),
            ("task", [900, 900], 820),
        ]
        .into_iter()
        .enumerate()
        .map(|(at, (how, amounts, dies))| {
            let place = Place::of(&scene, &format!("S{at}"), HOUR, 4);
            scope.spawn(move || {
                one_of(3, || {
                    let held_up = behind_a_dead_head(&place, how, amounts, dies);
                    figure!("held up for {held_up:?}");
                    less("held up for", held_up, Duration::from_millis(400))
                });
            })
        })
        .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}
