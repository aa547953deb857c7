//! Group N: the controller that says when to back off.

use crate::calm::{calm, scene};
use crate::limiter_support::into_debt;
use crate::support::{NORMAL, Shared, Task, alone, local, until};
use shmsched::pressure::{
    Clocked, Controller, FULL_HI, FULL_LO, Kind, SAMPLE_MS, SOME_HI, SOME_LO, STALL_TICKS, Sample,
    TAU_MS,
};
use shmsched::{
    Concurrency, Limiter, LimiterQueueStats, LimiterStats, Priority, QueueStats, SharedStats, Stats,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The example of the source: {max: 100, low: 20, lowest: 5}.
const TARGETS: [Option<u32>; 7] = [
    Some(5),
    Some(5),
    Some(20),
    Some(100),
    Some(100),
    Some(100),
    Some(100),
];

const LOW: usize = 2;

/// A Scheduler of this process alone that runs so many, with so many queued at a lane.
fn slots(running: u32, lane: usize, count: u64) -> Stats {
    let mut queues = [QueueStats::default(); 7];
    queues[lane].count = count;
    Stats {
        running,
        concurrency: Some(100),
        pending: count,
        total: queues[lane],
        queues,
        shared: None,
    }
}

/// A Limiter with one lane in use.
fn rate(tokens: i32, count: u64, stall: u64) -> LimiterStats {
    let mut queues = [LimiterQueueStats::default(); 7];
    queues[3].queue.count = count;
    queues[3].stall = stall;
    LimiterStats {
        tokens,
        tokens_per_second: 100,
        pending: count,
        forced: 0,
        total: queues[3].queue,
        queues,
    }
}

/// A Scheduler's sample.
fn scheduler(some: bool, completed: u64) -> Sample {
    Sample {
        kind: Kind::Scheduler,
        some,
        completed,
        forced: 0,
        in_debt: false,
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A controller and its clock, which goes on by a sample's pace.
struct Run {
    controller: Controller,
    now: u64,
}

impl Run {
    fn new() -> Run {
        // Any moment will do.
        let now = 5_000;
        let controller = Controller::new(ms(now));
        Run { controller, now }
    }

    fn step(&mut self, sample: Sample) -> &Controller {
        self.after(SAMPLE_MS, sample)
    }

    fn after(&mut self, passed: u64, sample: Sample) -> &Controller {
        self.now += passed;
        self.controller.update(&sample, ms(self.now));
        &self.controller
    }

    /// How many such samples it takes; at most 10,000.
    fn count(&mut self, sample: Sample, until: impl Fn(&Controller) -> bool) -> u32 {
        let mut counts = 1..10_000;
        counts
            .find(|_| until(self.step(sample)))
            .expect("it never came true")
    }
}

#[test]
fn n1_busy_without_backlog_is_no_pressure() {
    let (mut run, busy) = (Run::new(), slots(100, LOW, 0));
    for second in 0..60 * 5 {
        let now = run.step(Sample::scheduler(&busy, &TARGETS, second));
        assert_eq!((now.some(), now.full()), (0.0, 0.0));
        assert!(!now.shed() && !now.paused());
    }
}

#[test]
fn n2_an_empty_queue_is_nobody_delayed() {
    for running in [0, 20, 100, 1_000] {
        assert!(!Sample::scheduler(&slots(running, LOW, 0), &TARGETS, 0).some);
    }
}

#[test]
fn n3_n34_some_sheds_and_full_pauses() {
    let mut run = Run::new();
    // Delayed, but something gets on in every window.
    for completed in 1..200 {
        run.step(scheduler(true, completed));
        assert!(!run.controller.paused() && run.controller.full() == 0.0);
    }
    assert!(run.controller.shed());
    // Long enough after that nothing gets on.
    let mut run = Run::new();
    run.count(scheduler(true, 0), Controller::paused);
    assert!(!run.controller.shed() && run.controller.some() < SOME_HI);
}

/// No thread, no time but what it is told.
#[test]
fn n5_it_acts_only_in_update() {
    alone("pressure::n5_it_acts_only_in_update", || {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        let mut controller = Controller::new(Duration::ZERO);
        let mut clocked = Clocked::new();
        controller.update(&scheduler(true, 0), ms(200));
        clocked.update(&scheduler(true, 0));
        let (then, clocked_then) = (controller.clone(), clocked.clone());
        thread::sleep(ms(50));
        assert_eq!(controller, then);
        assert_eq!(clocked.some(), clocked_then.some());
        assert!(threads() <= before);
    });
}

#[test]
fn n6_n7_n9_n10_constants() {
    assert_eq!((SAMPLE_MS, TAU_MS), (200, 10_000));
    assert_eq!((SOME_HI, SOME_LO), (0.5, 0.2));
    assert_eq!((FULL_HI, FULL_LO), (0.3, 0.1));
}

/// The engine admits a front into debt when its stall says so, and no sooner.
#[test]
fn n8_a_stall_is_what_the_engine_forces() {
    scene(|| {
        assert_eq!(STALL_TICKS, 10);
        let limiter = Limiter::local(10).unwrap();
        let forced = |limiter: &Limiter| limiter.stats().forced;
        into_debt(&limiter, 1_000_000);
        let before = forced(&limiter);
        let waits = limiter.clone();
        let waiting = thread::spawn(move || waits.blocking_acquire(1, NORMAL));
        let mut longest = 0;
        until("it is forced", || {
            let stats = limiter.stats();
            longest = longest.max(stats.queues[3].stall);
            stats.forced > before
        });
        waiting.join().unwrap().unwrap();
        // The last look may have been before the last tick, or a little after it.
        calm((STALL_TICKS - 1..=STALL_TICKS + 2).contains(&longest));
        assert_eq!(forced(&limiter), before + 1);
    });
}

#[test]
fn n11_targets_are_resolved_and_clamped() {
    let configured = Concurrency::max(100)
        .target(Priority::Low, 20)
        .target(Priority::Lowest, 5);
    let whole = local(configured.clone());
    assert_eq!(whole.targets(), configured.resolve());
    assert_eq!(whole.targets(), TARGETS);
    // A max of its own, below the shared one that `concurrency` tells of.
    let own = whole.with(Concurrency::max(10).target(Priority::Low, 3));
    assert_eq!(own.concurrency(), Some(100));
    assert_eq!(own.targets(), [3, 3, 3, 10, 10, 10, 10].map(Some));
    // The segment's are never exceeded.
    let wider = whole.with(Concurrency::max(500));
    assert_eq!(wider.targets(), TARGETS);
    // Unlimited is not the largest number.
    assert_eq!(local(Concurrency::unlimited()).targets(), [None; 7]);
    let most = Concurrency::LARGEST;
    assert_eq!(local(most).targets(), [Some(most); 7]);
    // As they are now.
    let shared = Shared::new(Concurrency::max(8));
    let member = shared.member();
    assert_eq!(member.targets(), [Some(8); 7]);
    let changes = shmsched::Changes::new().concurrency(Some(4));
    shared.open().set(&changes).unwrap();
    assert_eq!(member.targets(), [Some(4); 7]);
}

#[test]
fn n12_n13_who_is_delayed_for_slots() {
    for (target, running, count, some) in [
        (Some(20), 20, 1, true),
        (Some(20), 21, 1, true),
        (Some(20), 19, 1, false),
        (Some(20), 20, 0, false),
        (Some(0), 0, 1, true),
        (None, 20, 1, false),
        (None, u32::MAX, 9, false),
    ] {
        let mut targets = [None; 7];
        targets[LOW] = target;
        let sample = Sample::scheduler(&slots(running, LOW, count), &targets, 0);
        assert_eq!(sample.some, some, "{target:?} {running} {count}");
    }
}

#[test]
fn n14_all_processes_count() {
    let mut stats = slots(0, 3, 1);
    assert!(!Sample::scheduler(&stats, &TARGETS, 0).some);
    let waiters = 1;
    for (running, some) in [(100, true), (99, false)] {
        stats.shared = Some(SharedStats { running, waiters });
        assert_eq!(Sample::scheduler(&stats, &TARGETS, 0).some, some);
    }
    // The other way round: what runs here is not what counts.
    stats.running = 100;
    assert!(!Sample::scheduler(&stats, &TARGETS, 0).some);
    // And for real.
    let shared = Shared::new(1);
    let [here, there] = [shared.member(), shared.member()];
    let _held = there.try_acquire(NORMAL).unwrap();
    let _waiting = Task::waiting(here.acquire(NORMAL));
    assert_eq!(here.stats().running, 0);
    assert!(Sample::scheduler(&here.stats(), &here.targets(), 0).some);
    assert!(!Sample::scheduler(&there.stats(), &there.targets(), 0).some);
}

#[test]
fn n15_work_that_never_waited_is_progress() {
    let stats = slots(20, LOW, 1);
    let sample = Sample::scheduler(&stats, &TARGETS, 7);
    assert_eq!(sample, scheduler(true, 7));
    let mut run = Run::new();
    for completed in [7, 8, 9] {
        // The queues' own counters stand still.
        assert_eq!(stats.total.completed, 0);
        let now = run.step(Sample::scheduler(&stats, &TARGETS, completed));
        assert_eq!(now.full(), 0.0);
    }
    assert!(
        run.step(Sample::scheduler(&stats, &TARGETS, 9)).full() > 0.0,
        "nothing ended"
    );
}

/// The counting of `examples/backoff.rs`: at the end of each run, whatever the end is.
#[test]
fn n16_n38_the_count_is_the_callers() {
    let (scheduler, ended) = (local(1), AtomicU64::new(0));
    let submit = |task: fn() -> Result<(), ()>| {
        let done = scheduler.run_blocking(task, NORMAL).unwrap();
        ended.fetch_add(1, Ordering::Relaxed);
        done
    };
    assert_eq!(submit(|| Ok(())), Ok(()));
    assert_eq!(submit(|| Err(())), Err(()));
    assert_eq!(ended.load(Ordering::Relaxed), 2);
    // Neither waited, so the Scheduler knows of none.
    assert_eq!(scheduler.stats().total.completed, 0);
}

#[test]
fn n17_who_is_delayed_for_tokens() {
    for (count, stall, some) in [
        (1, STALL_TICKS - 1, false),
        (1, STALL_TICKS, true),
        (0, STALL_TICKS, false),
        (5, 100, true),
    ] {
        let sample = Sample::limiter(&rate(0, count, stall));
        assert_eq!(sample.some, some, "{count} {stall}");
    }
}

#[test]
fn n18_a_debt_delays() {
    assert!(Sample::limiter(&rate(-1, 0, 0)).some);
    assert!(!Sample::limiter(&rate(0, 0, 0)).some);
}

#[test]
fn n19_a_limiters_sample() {
    let mut stats = rate(-3, 2, 0);
    stats.total.completed = 11;
    stats.forced = 4;
    let expected = Sample {
        kind: Kind::Limiter,
        some: true,
        completed: 11,
        forced: 4,
        in_debt: true,
    };
    assert_eq!(Sample::limiter(&stats), expected);
    let calm = Sample::limiter(&rate(0, 2, 0));
    assert!(!calm.some && !calm.in_debt);
}

#[test]
fn n20_a_fresh_one() {
    for fresh in [Controller::new(ms(77)), (*Clocked::new()).clone()] {
        assert_eq!((fresh.some(), fresh.full()), (0.0, 0.0));
        assert!(!fresh.shed() && !fresh.paused());
    }
    // Made then, so the first sample holds for the time since, and no longer.
    let mut fresh = Controller::new(ms(77));
    fresh.update(&scheduler(true, 0), ms(277));
    assert!((fresh.some() - 0.0198013).abs() < 1e-7, "{}", fresh.some());
}

#[test]
fn n21_asking_changes_nothing() {
    let mut run = Run::new();
    run.count(scheduler(true, 0), Controller::shed);
    let before = run.controller.clone();
    for _ in 0..1_000 {
        assert!(run.controller.shed() && run.controller.paused());
    }
    assert_eq!(run.controller, before);
}

#[test]
fn n22_the_first_is_never_full() {
    let mut run = Run::new();
    let now = run.step(scheduler(true, 0));
    assert!(now.some() > 0.0 && now.full() == 0.0);
    let limiter = Sample::limiter(&rate(-1, 1, 10));
    let now = Run::new().step(limiter).full();
    assert_eq!(now, 0.0);
}

/// Whether a second sample is full.
fn full(first: Sample, second: Sample) -> bool {
    let mut run = Run::new();
    run.step(first);
    run.step(second).full() > 0.0
}

#[test]
fn n23_progress_is_strictly_more() {
    for (then, now, stuck) in [(5, 5, true), (5, 6, false), (5, 4, true)] {
        assert_eq!(full(scheduler(true, then), scheduler(true, now)), stuck);
    }
}

#[test]
fn n24_full_of_a_limiter() {
    for bits in 0..16u8 {
        let [some, progressed, in_debt, forced] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let at = |completed, forced| Sample {
            kind: Kind::Limiter,
            some,
            completed,
            forced,
            in_debt,
        };
        let second = at(3 + u64::from(progressed), 8 + u64::from(forced));
        let expected = some && !progressed && (in_debt || forced);
        assert_eq!(full(at(3, 8), second), expected, "{second:?}");
    }
}

#[test]
fn n25_full_of_a_scheduler() {
    for (some, progressed) in [(false, false), (false, true), (true, false), (true, true)] {
        let second = scheduler(some, 3 + u64::from(progressed));
        assert_eq!(full(scheduler(true, 3), second), some && !progressed);
    }
}

#[test]
fn n26_a_clock_that_steps_back() {
    let mut run = Run::new();
    run.count(scheduler(true, 0), |now| now.some() > 0.3);
    let before = run.controller.clone();
    run.controller
        .update(&scheduler(true, 0), ms(run.now - 3_000));
    assert_eq!(run.controller.some(), before.some());
    assert_eq!(run.controller.full(), before.full());
    // From there on time counts again.
    run.controller
        .update(&scheduler(false, 0), ms(run.now - 2_800));
    assert!(run.controller.some() < before.some());
    // So long that nothing of the past is left, and no overflow.
    run.controller.update(&scheduler(true, 0), Duration::MAX);
    assert_eq!(run.controller.some(), 1.0);
}

#[test]
fn n27_the_weight_of_a_sample() {
    let mut run = Run::new();
    let some = run.step(scheduler(true, 0)).some();
    assert!((some - 0.019_801_326_693_244_747).abs() < 1e-15, "{some}");
    let weight = 1.0 - f64::exp(-1.0);
    let some = Run::new().after(TAU_MS, scheduler(true, 0)).some();
    assert!((some - weight).abs() < 1e-15);
}

#[test]
fn n28_averages_over_a_script() {
    let mut run = Run::new();
    let (mut some, mut full, mut last) = (0.0, 0.0, None);
    for at in 0..500u64 {
        let passed = [200, 100, 100, 950, 1, 0][at as usize % 6];
        let (stalled, completed) = (at % 7 < 4, at / 3);
        run.after(passed, scheduler(stalled, completed));
        let stuck = stalled && last.is_some_and(|last| completed <= last);
        let a = 1.0 - f64::exp(-(passed as f64) / 10_000.0);
        some += a * (f64::from(u8::from(stalled)) - some);
        full += a * (f64::from(u8::from(stuck)) - full);
        last = Some(completed);
        assert!((run.controller.some() - some).abs() < 1e-12);
        assert!((run.controller.full() - full).abs() < 1e-12);
    }
    assert!(some > 0.1 && full > 0.01, "{some} {full}");
    // Two steps of 100 ms are one of 200.
    let [mut once, mut twice] = [Run::new(), Run::new()];
    once.step(scheduler(true, 0));
    twice.after(100, scheduler(true, 0));
    twice.after(100, scheduler(true, 0));
    let apart = once.controller.some() - twice.controller.some();
    assert!(apart.abs() < 1e-15, "{apart}");
}

#[test]
fn n29_progress_counts_once() {
    let mut run = Run::new();
    run.step(scheduler(true, 1));
    assert_eq!(run.step(scheduler(true, 2)).full(), 0.0);
    // The window after: nothing.
    assert!(run.step(scheduler(true, 2)).full() > 0.0);
    // Of forces too.
    let forced = |forced| Sample {
        kind: Kind::Limiter,
        forced,
        ..scheduler(true, 0)
    };
    let mut run = Run::new();
    run.step(forced(1));
    let once = run.step(forced(2)).full();
    assert!(once > 0.0);
    assert!(run.step(forced(2)).full() < once);
}

/// How a share that is exactly reached by one sample from nothing.
fn reach(share: f64) -> Duration {
    // 1 - exp(-dt / tau) = share, as near as a clock of nanoseconds gets.
    Duration::from_secs_f64(-(1.0 - share).ln() * TAU_MS as f64 / 1e3)
}

#[test]
fn n30_n31_thresholds_are_strict() {
    let nanosecond = Duration::from_nanos(1);
    // Just below does nothing, just above does, and within a nanosecond there is no third.
    let mut below = Controller::new(Duration::ZERO);
    below.update(&scheduler(true, 0), reach(SOME_HI) - nanosecond);
    assert!(below.some() <= SOME_HI && !below.shed());
    let mut above = Controller::new(Duration::ZERO);
    above.update(&scheduler(true, 0), reach(SOME_HI) + nanosecond * 2);
    assert!(above.some() > SOME_HI && above.shed());
    // It holds all the way down to the low one.
    let mut down = above.clone();
    let low = reach(SOME_HI) + Duration::from_secs_f64((SOME_HI / SOME_LO).ln() * 10.0);
    down.update(&scheduler(false, 1), low - nanosecond * 10);
    assert!(down.some() >= SOME_LO && down.some() < SOME_HI && down.shed());
    down.update(&scheduler(false, 1), low + nanosecond * 20);
    assert!(down.some() < SOME_LO && !down.shed());
    // And on the way up again it holds too.
    let mut up = down.clone();
    up.update(&scheduler(true, 1), low + Duration::from_secs(3));
    assert!(up.some() > SOME_LO && !up.shed());

    let start = |passed: Duration| {
        let mut controller = Controller::new(Duration::ZERO);
        controller.update(&scheduler(true, 0), Duration::ZERO);
        controller.update(&scheduler(true, 0), passed);
        controller
    };
    let below = start(reach(FULL_HI) - nanosecond);
    assert!(below.full() <= FULL_HI && !below.paused());
    let mut above = start(reach(FULL_HI) + nanosecond * 2);
    assert!(above.full() > FULL_HI && above.paused());
    let low = reach(FULL_HI) + Duration::from_secs_f64((FULL_HI / FULL_LO).ln() * 10.0);
    above.update(&scheduler(true, 1), low - nanosecond * 10);
    assert!(above.full() >= FULL_LO && above.paused());
    above.update(&scheduler(true, 2), low + nanosecond * 20);
    assert!(above.full() < FULL_LO && !above.paused());
}

#[test]
fn n32_how_long_it_takes() {
    let (stuck, clear) = (scheduler(true, 0), scheduler(false, 0));
    // Engaging: 7.0 s, and 3.6 s after the first sample, which is no baseline yet.
    let mut sheds = Run::new();
    assert_eq!(sheds.count(stuck, Controller::shed), 35);
    let mut pauses = Run::new();
    assert_eq!(pauses.count(stuck, Controller::paused), 19);
    // Releasing right after.
    assert_eq!(sheds.count(clear, |now| !now.shed()), 47);
    assert_eq!(pauses.count(clear, |now| !now.paused()), 56);
    // Releasing from all there is.
    for (released, samples) in [
        ((|now| !now.shed()) as fn(&Controller) -> bool, 81),
        (|now| !now.paused(), 116),
    ] {
        let mut run = Run::new();
        run.step(stuck);
        let now = run.after(1 << 40, stuck);
        assert_eq!((now.some(), now.full()), (1.0, 1.0));
        assert_eq!(run.count(clear, released), samples);
    }
}

#[test]
fn n33_a_blip_does_nothing() {
    let (stuck, clear) = (scheduler(true, 0), scheduler(false, 0));
    let mut run = Run::new();
    run.step(clear);
    let now = run.step(stuck);
    assert!(now.some() > 0.0 && !now.shed() && !now.paused());
    run.count(stuck, Controller::shed);
    let now = run.step(clear);
    assert!(now.shed() && now.paused());
}

#[test]
fn n35_n42_each_has_its_own() {
    let [mut one, mut other] = [Run::new(), Run::new()];
    let mut alone = Run::new();
    for step in 0..60 {
        one.step(scheduler(true, 0));
        other.step(Sample::limiter(&rate(step, 1, 0)));
        alone.step(scheduler(true, 0));
    }
    assert_eq!(one.controller, alone.controller);
    assert_eq!(
        (other.controller.some(), other.controller.full()),
        (0.0, 0.0)
    );
}

/// A loop on a thread of its own does not hold up the end: the child ends with it.
#[test]
fn n36_the_loop_does_not_hold_up_the_end() {
    alone("pressure::n36_the_loop_does_not_hold_up_the_end", || {
        static CONTROLLER: Mutex<Option<Clocked>> = Mutex::new(None);
        let scheduler = local(1);
        *CONTROLLER.lock().unwrap() = Some(Clocked::new());
        thread::spawn(move || {
            loop {
                let sample = Sample::scheduler(&scheduler.stats(), &scheduler.targets(), 0);
                let mut controller = CONTROLLER.lock().unwrap();
                controller.as_mut().unwrap().update(&sample);
                drop(controller);
                thread::sleep(ms(SAMPLE_MS / 100));
            }
        });
        thread::sleep(ms(20));
    });
}

/// The gate that `examples/backoff.rs` puts before its work.
#[test]
fn n37_who_may_submit() {
    let let_in = |controller: &Controller, priority: Priority| {
        !controller.paused() && (priority > Priority::Low || !controller.shed())
    };
    let calm = Controller::new(Duration::ZERO);
    let mut shed = Run::new();
    for completed in 1..40 {
        shed.step(scheduler(true, completed));
    }
    let mut paused = Run::new();
    paused.count(scheduler(true, 0), Controller::shed);
    for (controller, low, normal) in [
        (&calm, true, true),
        (&shed.controller, false, true),
        (&paused.controller, false, false),
    ] {
        assert_eq!(let_in(controller, Priority::Low), low);
        assert_eq!(let_in(controller, NORMAL), normal);
    }
    // The example says the same.
    let example = include_str!("../../examples/backoff.rs");
    assert!(example.contains("priority > Priority::Low"));
}

#[test]
fn n39_a_lottery_win_is_no_relief() {
    let mut run = Run::new();
    // The backlog stands at its target, and now and then one of it is drawn.
    for step in 0..100 {
        let stats = slots(20 + (step % 10 == 0) as u32, LOW, 8);
        run.step(Sample::scheduler(&stats, &TARGETS, u64::from(step as u32)));
    }
    assert!(run.controller.some() > 0.8 && run.controller.shed());
    assert_eq!(run.controller.full(), 0.0);
}

#[test]
fn n40_a_target_delays_while_others_have_room() {
    assert!(Sample::scheduler(&slots(20, LOW, 1), &TARGETS, 0).some);
    assert!(!Sample::scheduler(&slots(20, 3, 1), &TARGETS, 0).some);
}

#[test]
fn n41_forces_count_as_a_difference() {
    let at = |forced| Sample {
        kind: Kind::Limiter,
        forced,
        ..scheduler(true, 0)
    };
    assert!(!full(at(1_000_000), at(1_000_000)));
    assert!(full(at(1_000_000), at(1_000_001)));
}

#[test]
fn n44_draining_is_not_full() {
    let mut run = Run::new();
    for step in 0..100 {
        // A queue that is served as fast as the tokens come, and now and then nobody in a window.
        let mut stats = rate(0, 3, STALL_TICKS);
        stats.total.completed = step / 2;
        let now = run.step(Sample::limiter(&stats));
        assert_eq!(now.full(), 0.0);
    }
    assert!(run.controller.some() > 0.5);
}
