//! What the tests of the Limiter share: segments with a rate, balances that time goes on filling, who ran when.

use crate::calm::calm;
use crate::support::{FOREVER, NORMAL};
use shmsched::{
    AcquireError, Limiter, LimiterInfo, LimiterStats, Location, Observer, Priority, Segment,
    Settings,
};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The most tokens that one request may ask for.
pub const MOST: u32 = 2_147_483_647;

pub fn limiter(rate: u32) -> Limiter {
    Limiter::local(rate).unwrap()
}

/// A segment with a rate in a temporary directory; every `member` is an attachment of its own.
pub struct Rated {
    _directory: TempDir,
    pub location: Location,
}

impl Rated {
    pub fn new(rate: u32) -> Rated {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::File(directory.path().join("segment"));
        Segment::make(&location, &Settings::new().rate(rate).members(16)).unwrap();
        Rated {
            _directory: directory,
            location,
        }
    }

    pub fn open(&self) -> Segment {
        Segment::open(&self.location).unwrap()
    }

    pub fn member(&self) -> Limiter {
        self.open().limiter().unwrap()
    }

    /// What an observer sees.
    pub fn info(&self) -> LimiterInfo {
        let mut observer = Observer::open(&self.location).unwrap();
        observer.snapshot().unwrap().limiter.unwrap()
    }

    /// For a child process.
    pub fn path(&self) -> String {
        self.location.path().display().to_string()
    }
}

pub fn open(path: &str) -> Limiter {
    let segment = Segment::open(&Location::File(path.into())).unwrap();
    segment.limiter().unwrap()
}

/// The balance at a moment that lies between two readings of the clock.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub tokens: i64,
    before: Instant,
    after: Instant,
}

impl Reading {
    /// How long ago it began.
    pub fn age(&self) -> Duration {
        self.before.elapsed()
    }

    /// The time before it was made.
    pub fn at(&self) -> Instant {
        self.before
    }

    /// The time after it was made.
    pub fn after(&self) -> Instant {
        self.after
    }
}

pub fn read(limiter: &Limiter) -> Reading {
    let look = || {
        let before = Instant::now();
        let tokens = limiter.stats().tokens.into();
        Reading {
            tokens,
            before,
            after: Instant::now(),
        }
    };
    let narrow = |reading: &Reading| reading.after - reading.before < Duration::from_millis(1);
    let mut last = look();
    // Who stands still between the clock and the balance learns little.
    for _ in 0..8 {
        if narrow(&last) {
            break;
        }
        last = look();
    }
    last
}

/// What `rate` earned in a time, as a whole number of tokens too low and too high: of a tick at either end nobody knows.
pub fn earned(rate: u32, time: Duration) -> (i64, i64) {
    let tick = Duration::from_micros(100);
    let of = |time: Duration| (time.as_nanos() * u128::from(rate) / 1_000_000_000) as i64;
    (of(time.saturating_sub(tick)) - 1, of(time + tick) + 1)
}

/// Nothing was lost and nothing made up: `taken` since `then` is what the balance lacks of what was earned. The bucket must
/// not have been full in between.
#[track_caller]
pub fn conserved(rate: u32, then: Reading, taken: i64, now: Reading) {
    let (least, _) = earned(rate, now.before - then.after);
    let (_, most) = earned(rate, now.after - then.before);
    let got = now.tokens - then.tokens + taken;
    assert!(
        (least..=most).contains(&got),
        "{got} of {least} to {most} were earned: {then:?}, then {taken} were taken, {now:?}"
    );
}

/// Takes all but `leave` of a bucket that is full, or nearly.
pub fn drain_to(limiter: &Limiter, leave: u32) -> Reading {
    let tokens = u32::try_from(limiter.stats().tokens).unwrap();
    limiter.try_consume(tokens - leave).unwrap();
    read(limiter)
}

/// Takes more than a full bucket holds.
pub fn into_debt(limiter: &Limiter, debt: u32) -> Reading {
    let rate = limiter.tokens_per_second();
    assert_eq!(limiter.stats().tokens, rate as i32);
    limiter.blocking_acquire(rate + debt, NORMAL).unwrap();
    let reading = read(limiter);
    calm(reading.tokens < 0);
    reading
}

/// Notes which callback ran, and when.
pub struct Log<T> {
    sender: Sender<(T, Instant)>,
    ran: Receiver<(T, Instant)>,
}

impl<T: Send + 'static> Log<T> {
    pub fn new() -> Log<T> {
        let (sender, ran) = channel();
        Log { sender, ran }
    }

    /// A callback that notes its value.
    pub fn note(&self) -> impl FnOnce(T) + Send + 'static + use<T> {
        let sender = self.sender.clone();
        move |value| {
            // Unless the test is over.
            let _ = sender.send((value, Instant::now()));
        }
    }

    /// Queues one, or runs it at once: what the call said.
    pub fn consume(
        &self,
        limiter: &Limiter,
        tokens: u32,
        priority: Priority,
        value: T,
    ) -> Result<bool, AcquireError> {
        limiter.consume(self.note(), tokens, priority, value)
    }

    /// Queues one that must wait, unless its tokens came meanwhile.
    #[track_caller]
    pub fn queue(&self, limiter: &Limiter, tokens: u32, priority: Priority, value: T) {
        let ran = self.consume(limiter, tokens, priority, value).unwrap();
        calm(!ran);
    }

    /// The next that runs.
    #[track_caller]
    pub fn next(&self) -> (T, Instant) {
        self.ran.recv_timeout(FOREVER).expect("no callback ran")
    }

    /// The next so many, in order.
    #[track_caller]
    pub fn take(&self, count: usize) -> Vec<T> {
        (0..count).map(|_| self.next().0).collect()
    }

    /// Whether none ran since.
    pub fn is_silent(&self) -> bool {
        self.ran.try_recv().is_err()
    }
}

/// Fills the bucket for those in line, one after the other: who runs, in order. Each of them wants the whole bucket, and
/// whatever gives the tokens back does it well within the second after which one would be served without.
pub fn one_by_one<T: Send + 'static>(limiter: &Limiter, log: &Log<T>, count: usize) -> Vec<T> {
    let fill = || {
        limiter.refund(limiter.tokens_per_second());
        log.next().0
    };
    (0..count).map(|_| fill()).collect()
}

/// The identities of the counters that hold at any time, per priority and in total.
#[track_caller]
pub fn check(stats: &LimiterStats) {
    let mut sum = shmsched::QueueStats::default();
    for queue in stats.queues.map(|queue| queue.queue) {
        assert_eq!(
            queue.deferred,
            queue.completed + queue.cancelled + queue.count
        );
        sum.count += queue.count;
        sum.deferred += queue.deferred;
        sum.completed += queue.completed;
        sum.cancelled += queue.cancelled;
    }
    assert_eq!(sum, stats.total);
    assert_eq!(stats.pending, stats.total.count);
}
