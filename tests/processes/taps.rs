//! A bucket with its account, and children that take from it when they are told.

use crate::support::{Child, LONG, Scene, coarse_now, now, until, within};
use shmsched::{Limiter, LimiterInfo, Location, Observer, Priority, Segment, Settings};
use std::time::Duration;

pub const MS: u64 = 1_000_000;
pub const NORMAL: Priority = Priority::Normal;

/// The test's end of such a child.
pub struct Tap(pub Child);

impl Tap {
    pub fn under(wrapper: &[&str], location: &Location, how: &str) -> Tap {
        let path = location.path();
        let args = [&*path.to_string_lossy(), how];
        let mut child = Child::start_under(wrapper, "tap", &args);
        child.expect("attached");
        Tap(child)
    }

    /// Several, started together.
    pub fn several(location: &Location, how: &str, n: usize) -> Vec<Tap> {
        let path = location.path();
        let args = [&*path.to_string_lossy(), how];
        let mut taps: Vec<Tap> = (0..n).map(|_| Tap(Child::start("tap", &args))).collect();
        for tap in &mut taps {
            tap.0.expect("attached");
        }
        taps
    }

    #[track_caller]
    pub fn begin(&mut self, line: &str) {
        self.0.tell(line);
        assert_eq!(self.0.expect("="), "on");
    }

    /// What it took, of an earlier line.
    #[track_caller]
    pub fn taken(&mut self) -> u64 {
        self.0.expect("=").parse().unwrap()
    }

    #[track_caller]
    pub fn got(&mut self, id: &str) -> u64 {
        self.0.expect(&format!("got {id}")).parse().unwrap()
    }
}

pub fn info(location: &Location) -> LimiterInfo {
    let snapshot = Observer::open(location).unwrap().snapshot().unwrap();
    snapshot.limiter.expect("a limiter")
}

pub fn queued(location: &Location) -> u64 {
    info(location).queued.iter().sum()
}

#[track_caller]
pub fn in_line(location: &Location, n: u64) {
    until(LONG, "in line", || queued(location) == n);
}

/// A segment's bucket, and when it was last empty.
pub struct Bucket {
    pub location: Location,
    pub segment: Segment,
    pub limiter: Limiter,
    pub rate: u32,
    /// It was empty, less the debt, between these, ns.
    pub empty: (u64, u64),
    pub debt: i64,
}

impl Bucket {
    pub fn of(scene: &Scene, settings: &Settings) -> Bucket {
        let location = scene.segment_of("S", settings);
        let segment = Segment::open(&location).unwrap();
        let limiter = segment.limiter().unwrap();
        Bucket {
            rate: limiter.tokens_per_second(),
            location,
            segment,
            limiter,
            empty: (0, 0),
            debt: 0,
        }
    }

    pub fn new(scene: &Scene, rate: u32) -> Bucket {
        Bucket::of(scene, &Settings::new().rate(rate).members(64))
    }

    /// One that refills so slowly, and is so deep in debt, that not even who has waited a second gets on: `tokens` from
    /// 3 on wait for `tokens` - 2 seconds.
    pub fn bottomless(scene: &Scene, settings: Settings) -> Bucket {
        let mut bucket = Bucket::of(scene, &settings.rate(1));
        bucket.indebt(i32::MAX as u32 - 1);
        bucket
    }

    /// Takes all there is, from now on.
    pub fn empty(&mut self) {
        until(LONG, "no debt", || info(&self.location).tokens >= 0);
        let there = info(&self.location).tokens as u32;
        self.limiter.try_consume(there).expect("nobody else takes");
        let from = now();
        let left = info(&self.location).tokens;
        self.empty = (from, now());
        self.debt = -i64::from(left);
    }

    /// Takes all there is and so many more, from now on.
    #[track_caller]
    pub fn indebt(&mut self, debt: u32) {
        until(LONG, "full", || {
            info(&self.location).tokens == self.rate as i32
        });
        let from = now();
        let all = self.rate + debt;
        self.limiter.blocking_acquire(all, NORMAL).unwrap();
        self.empty = (from, now());
        self.debt = i64::from(debt);
    }

    /// When so many tokens will have come since it was empty, debt paid.
    pub fn due(&self, tokens: u32) -> u64 {
        let tokens = self.debt + i64::from(tokens);
        self.empty.0 + tokens as u64 * 1_000_000_000 / u64::from(self.rate)
    }

    /// What was taken since and what is there now make up what was earned. `lost`: what may have died with those who had
    /// claimed it.
    #[track_caller]
    pub fn balances(&self, taken: u64, lost: u64) {
        let from = now();
        let left = i64::from(info(&self.location).tokens);
        let to = now();
        let sum = taken as i64 + left + self.debt;
        let earned = |ns: u64| (u128::from(ns) * u128::from(self.rate) / 1_000_000_000) as i64;
        // A tick of the stamp at each end.
        let slack = 2 + i64::from(self.rate) / 5_000;
        let least = earned(from - self.empty.1) - slack - lost as i64;
        let most = earned(to - self.empty.0) + slack;
        // What came to a full bucket while everybody stood still is nowhere.
        let full = left >= i64::from(self.rate);
        assert!(
            (least..=most).contains(&sum) || full && sum < least,
            "{taken} taken, {left} left, {} owed before: {sum}, but {least} to {most} were earned",
            self.debt
        );
    }

    /// Nobody waits, nothing was miscounted, and the idle bucket fills to the brim and no further. Then it is empty.
    #[track_caller]
    pub fn comes_to_rest(&mut self) {
        within(Duration::from_secs(8), || {
            let seen = info(&self.location);
            let ended = seen.completed + seen.cancelled + seen.lost;
            let full = seen.tokens == self.rate as i32;
            match full && seen.queued == [0; 7] && seen.waiters == 0 && seen.deferred == ended {
                true => Ok(()),
                false => Err(format!("{seen:#?}")),
            }
        });
        let from = coarse_now();
        self.limiter
            .try_consume(self.rate)
            .expect("all of a full bucket, with nobody in line");
        self.empty = (from, now());
        self.debt = 0;
        // No more than has come since.
        self.balances(0, u64::from(self.rate));
    }
}

/// In so many ns from now.
pub fn after(time: Duration) -> u64 {
    now() + time.as_nanos() as u64
}
