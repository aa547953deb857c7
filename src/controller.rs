//! The controller behind [`crate::pressure`]: pure arithmetic on samples and on the time it is told (group N).

use crate::limiter::LimiterStats;
use crate::protocol::limiter::{GUARD_NS, STALL_TICK_NS};
use crate::scheduler::Stats;
use std::ops::Deref;
use std::time::{Duration, Instant};

/// How often to sample, in milliseconds; any other pace gives the same averages, coarser or finer (N6, N26).
pub const SAMPLE_MS: u64 = 200;
/// Over how many milliseconds the averages reach, as the 10 second average of the kernel (N7).
pub const TAU_MS: u64 = 10_000;
/// From so many ticks of [`LimiterQueueStats::stall`](crate::LimiterQueueStats::stall) on a queue is stalled: when the
/// Limiter itself admits its front into debt (N8).
pub const STALL_TICKS: u64 = GUARD_NS / STALL_TICK_NS;
/// Above this share of `some` it is time to shed (N9).
pub const SOME_HI: f64 = 0.5;
/// Below this one no longer (N9).
pub const SOME_LO: f64 = 0.2;
/// Above this share of `full` it is time to pause (N10).
pub const FULL_HI: f64 = 0.3;
/// Below this one no longer (N10).
pub const FULL_LO: f64 = 0.1;

/// Of what a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Scheduler.
    Scheduler,
    /// A Limiter.
    Limiter,
}

/// What a [`Controller`] is told of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Of what.
    pub kind: Kind,
    /// Whether anybody is delayed.
    pub some: bool,
    /// A counter of what has got on, ever (N15, N19).
    pub completed: u64,
    /// A counter of admissions into debt, ever; 0 of a Scheduler.
    pub forced: u64,
    /// Whether the balance is negative; false of a Scheduler.
    pub in_debt: bool,
}

impl Sample {
    /// Of a Scheduler, with its [`targets`](crate::Scheduler::targets) and how much of the work given to it has ended, well
    /// or not, queued or not: a counter of the application's own, since the queues do not count what never waited (N15, N16).
    ///
    /// Somebody is delayed if a queue has anybody and as many slots are taken as its target is (N12); by all processes, if
    /// the Scheduler is shared (N14). Without a target nobody is (N13). Who asks for several slots is delayed a little
    /// before this sees it.
    pub fn scheduler(stats: &Stats, targets: &[Option<u32>; 7], completed: u64) -> Sample {
        let running = stats.shared.map_or(stats.running, |shared| shared.running);
        let held_back = |target: &Option<u32>| target.is_some_and(|target| running >= target);
        let mut queues = stats.queues.iter().zip(targets);
        Sample {
            kind: Kind::Scheduler,
            some: queues.any(|(queue, target)| queue.count > 0 && held_back(target)),
            completed,
            forced: 0,
            in_debt: false,
        }
    }

    /// Of a Limiter. Somebody is delayed if a front has been held up for [`STALL_TICKS`] (N17), or if there is a debt to
    /// pay first (N18).
    pub fn limiter(stats: &LimiterStats) -> Sample {
        let mut queues = stats.queues.iter();
        let stalled = queues.any(|lane| lane.queue.count > 0 && lane.stall >= STALL_TICKS);
        let in_debt = stats.tokens < 0;
        Sample {
            kind: Kind::Limiter,
            some: stalled || in_debt,
            completed: stats.total.completed,
            forced: stats.forced,
            in_debt,
        }
    }

    /// Whether nothing has got on since the sample before. Of a Limiter also: because of a debt (N23 to N25, N41, N44).
    fn full_since(&self, before: &Sample) -> bool {
        let stuck = self.some && self.completed <= before.completed;
        match self.kind {
            Kind::Scheduler => stuck,
            Kind::Limiter => stuck && (self.in_debt || self.forced > before.forced),
        }
    }
}

/// Two averages of what the samples say, and two latches that follow them: [`shed`](Controller::shed) and
/// [`paused`](Controller::paused). See [the module](crate::pressure).
///
/// One for each Scheduler and each Limiter: counters of different ones tell nothing together (N35, N42).
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    some: f64,
    full: f64,
    shed: bool,
    paused: bool,
    before: Option<Sample>,
    sampled: Duration,
}

impl Controller {
    /// A quiet one. `now` is the time since any moment that stays the same, as in [`Controller::update`] (N20).
    pub const fn new(now: Duration) -> Controller {
        Controller {
            some: 0.0,
            full: 0.0,
            shed: false,
            paused: false,
            before: None,
            sampled: now,
        }
    }

    /// Takes a sample of now, which holds for all the time since the one before. A clock that went back tells of no time
    /// (N26). The first sample cannot tell what has got on, so it is never `full` (N22).
    pub fn update(&mut self, sample: &Sample, now: Duration) {
        let full = self.before.is_some_and(|before| sample.full_since(&before));
        let passed = now.saturating_sub(self.sampled).as_secs_f64() * 1e3;
        let weight = -libm::expm1(-passed / TAU_MS as f64);
        let share = |on: bool| f64::from(u8::from(on));
        self.some += weight * (share(sample.some) - self.some);
        self.full += weight * (share(full) - self.full);
        self.shed = latch(self.shed, self.some, SOME_LO, SOME_HI);
        self.paused = latch(self.paused, self.full, FULL_LO, FULL_HI);
        self.before = Some(*sample);
        self.sampled = now;
    }

    /// The share of the time in which somebody was delayed, 0 to 1: an average over ten seconds that decays, so that what
    /// is longer ago counts less, and nothing is ever quite forgotten.
    pub fn some(&self) -> f64 {
        self.some
    }

    /// The share in which nothing got on, too: the same kind of average.
    pub fn full(&self) -> f64 {
        self.full
    }

    /// Whether to turn away work that can be done without: from `some` above [`SOME_HI`] until it is below [`SOME_LO`].
    pub fn shed(&self) -> bool {
        self.shed
    }

    /// Whether to take on nothing at all: from `full` above [`FULL_HI`] until it is below [`FULL_LO`].
    pub fn paused(&self) -> bool {
        self.paused
    }
}

/// Goes on above `high`, off below `low`, and stays as it is between (N30, N31).
fn latch(on: bool, share: f64, low: f64, high: f64) -> bool {
    match on {
        true => share >= low,
        false => share > high,
    }
}

/// A [`Controller`] that takes the time from the monotonic clock.
#[derive(Clone, Debug)]
pub struct Clocked {
    controller: Controller,
    begun: Instant,
}

impl Clocked {
    /// A quiet one, from now on.
    pub fn new() -> Clocked {
        Clocked {
            controller: Controller::new(Duration::ZERO),
            begun: Instant::now(),
        }
    }

    /// Takes a sample of now.
    pub fn update(&mut self, sample: &Sample) {
        self.controller.update(sample, self.begun.elapsed());
    }
}

impl Default for Clocked {
    fn default() -> Clocked {
        Clocked::new()
    }
}

impl Deref for Clocked {
    type Target = Controller;

    fn deref(&self) -> &Controller {
        &self.controller
    }
}
