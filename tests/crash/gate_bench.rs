//! The survivor of [`crate::gates`]: what it finds after each death.

use crate::gate_operations::{AMOUNT, INTERVAL, NORMAL, PLACES, RATE, settings};
use crate::support::{Child, LONG, Scene, coarse_now, now, until, within};
use shmsched::{Changes, Limiter, Location, Observer, Pacer, Segment, Snapshot, StartError};
use std::fs::File;
use std::future::{Future, poll_fn};
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How soon a survivor gets on.
pub const SOON: Duration = Duration::from_secs(3);

/// What a child says in the end: whether it was killed. `None`: it got through without what was to be tested, since the
/// machine was too slow.
#[track_caller]
pub fn outcome(child: &mut Child) -> Option<bool> {
    let killed = child.was_killed();
    (killed || child.expect("survived") == "as meant").then_some(killed)
}

/// A full bucket is there within that time, and no more than that: what is left has come since it was taken.
#[track_caller]
pub fn holds_one_bucketful(limiter: &Limiter, time: Duration, after: &str) {
    let before = within(time, || {
        let before = coarse_now();
        let all = limiter.try_consume(RATE);
        all.map(|()| before)
            .map_err(|error| format!("{after}: a full bucket: {error}"))
    });
    let left = i64::from(limiter.stats().tokens);
    let passed = Duration::from_nanos(now() - before).as_secs_f64();
    let earned = (passed * f64::from(RATE)) as i64 + 2;
    assert!(left <= earned, "{after}: {left} left, {earned} earned");
}

/// The survivor and its segment.
pub struct Bench {
    _scene: Scene,
    pub location: Location,
    pub segment: Segment,
    pub limiter: Limiter,
    pub pacer: Pacer,
    /// The balance, and a time before it was read: what is earned since then is all that may be there more.
    base: (i64, u64),
}

impl Bench {
    pub fn new() -> Bench {
        let scene = Scene::new();
        let location = scene.segment_of("S", &settings());
        let segment = Segment::open(&location).unwrap();
        let mut bench = Bench {
            limiter: segment.limiter().unwrap(),
            pacer: segment.pacer().unwrap(),
            _scene: scene,
            location,
            segment,
            base: (0, 0),
        };
        bench.note();
        bench
    }

    pub fn tokens(&self) -> i64 {
        i64::from(self.limiter.stats().tokens)
    }

    pub fn note(&mut self) {
        let at = now();
        // What was earned before is paid by this one.
        let _ = self.limiter.try_consume(1);
        self.base = (self.tokens(), at);
    }

    /// A child that is ready to do its operation, which others hear of when it is told to.
    pub fn child(&self, operation: &str, n: u64) -> Child {
        let path = self.location.path();
        let args = [&*path.to_string_lossy(), operation, &n.to_string()];
        let mut child = Child::start("gates", &args);
        child.expect("ready");
        child
    }

    /// So many tokens owed, from a full bucket.
    pub fn indebt(&mut self, debt: u32) {
        self.limiter.refund(RATE);
        self.limiter.blocking_acquire(RATE + debt, NORMAL).unwrap();
        self.note();
    }

    /// Nobody may start for an interval from now.
    pub fn just_started(&self) {
        self.pacer.blocking_start().unwrap();
    }

    /// Until the child stands in line, or is dead, or through with it.
    pub fn waits_or_ended(&self, child: &mut Child) {
        until(LONG, "in line or dead", || {
            let queued = self.snapshot();
            let queued = (
                queued.limiter.unwrap().waiters,
                queued.pacer.unwrap().waiting,
            );
            queued != (0, 0) || child.poll().is_some()
        });
    }

    pub fn snapshot(&self) -> Snapshot {
        Observer::open(&self.location).unwrap().snapshot().unwrap()
    }

    /// Nothing was paid twice since the balance was noted, and no more lost than was asked for. `refunded`: what may have
    /// been given back. A window that died with who had claimed it was earned since then, so the balance is not below
    /// what it was.
    #[track_caller]
    pub fn balances(&self, after: &str, asked: u32, refunded: u32) {
        let (before, at) = self.base;
        let tokens = self.tokens();
        let passed = Duration::from_nanos(now() - at).as_secs_f64();
        let rate = self.limiter.tokens_per_second();
        let earned = (passed * f64::from(rate)) as i64 + 2;
        let most = before + earned + i64::from(refunded);
        let least = before - i64::from(asked);
        assert!(
            (least..=most).contains(&tokens),
            "{after}: {before} were there, now {tokens}; {earned} earned, {asked} asked for, {refunded} given back"
        );
    }

    /// The next callers get on, everything is clean, and the bucket holds what it may.
    #[track_caller]
    pub fn is_usable(&self, after: &str) {
        let got = self.limiter.blocking_acquire_until(AMOUNT, NORMAL, SOON);
        got.unwrap_or_else(|error| panic!("{after}: tokens: {error}"));
        // It is granted within the last poll: whoever is preempted after that is not told of too short a gap.
        let mut before = now();
        let mut start = pin!(self.pacer.start_until(SOON));
        let got = futures_executor::block_on(poll_fn(|context| {
            before = now();
            start.as_mut().poll(context)
        }));
        got.unwrap_or_else(|error| panic!("{after}: a start: {error}"));
        let got = self.pacer.blocking_start_until(SOON);
        let gap = Duration::from_nanos(now() - before);
        got.unwrap_or_else(|error| panic!("{after}: another start: {error}"));
        let apart = gap + Duration::from_millis(1) >= self.pacer.interval();
        assert!(apart, "{after}: {gap:?} between two starts");
        within(SOON, || {
            self.segment.look();
            self.is_clean().map_err(|why| format!("{after}: {why}"))
        });
        self.segment
            .set(&Changes::new().rate(RATE).interval(INTERVAL))
            .unwrap();
        self.limiter.refund(3 * RATE);
        assert_eq!(self.tokens(), i64::from(RATE), "{after}: a full bucket");
        // All places at the Pacer are there, and no more.
        let long = Changes::new().interval(Duration::from_secs(60));
        self.segment.set(&long).unwrap();
        self.just_started();
        let places: Vec<_> = (0..=PLACES).map(|_| Box::pin(self.pacer.start())).collect();
        let mut context = Context::from_waker(Waker::noop());
        let mut polled = places
            .into_iter()
            .map(|mut start| (start.as_mut().poll(&mut context), start));
        let polled: Vec<_> = polled.by_ref().collect();
        let (last, places) = polled.split_last().unwrap();
        assert!(
            matches!(last.0, Poll::Ready(Err(StartError::QueueFull(_)))),
            "{after}: more places than there are"
        );
        assert!(
            places.iter().all(|(poll, _)| poll.is_pending()),
            "{after}: a place is missing"
        );
    }

    fn is_clean(&self) -> Result<(), String> {
        let file = File::open(self.location.path()).unwrap();
        let word = |at: u64| {
            let mut bytes = [0; 4];
            file.read_exact_at(&mut bytes, at).unwrap();
            u32::from_le_bytes(bytes)
        };
        // WAITERS, summary and hurry of both gates; then all bit sets (of 8 members and their places: one word a lane).
        let hot = [0x208, 0x20c, 0x210, 0x310, 0x314, 0x318].map(word);
        let bits: Vec<u32> = (0x1000..0x1000 + 3 * 128).step_by(4).map(word).collect();
        if hot != [0; 6] || bits.iter().any(|bits| *bits != 0) {
            return Err(format!("{hot:x?}, {bits:x?}"));
        }
        let snapshot = self.snapshot();
        let (limiter, pacer) = (
            snapshot.limiter.as_ref().unwrap(),
            snapshot.pacer.as_ref().unwrap(),
        );
        let ended = [
            limiter.completed + limiter.cancelled + limiter.lost,
            pacer.completed + pacer.cancelled + pacer.lost,
        ];
        let nobody = limiter.queued == [0; 7] && pacer.waiting == 0;
        match nobody && [limiter.deferred, pacer.deferred] == ended {
            true => Ok(()),
            false => Err(format!("{snapshot:#?}")),
        }
    }
}
