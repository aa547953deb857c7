//! The same load spread over processes and threads in different ways.

use crate::support::{
    Args, Child, Recorder, Scene, figure, hear, less, now, one_of, peak, quiet, say,
};
use shmsched::{Location, Priority, Scheduler, Segment};
use std::path::Path;
use std::time::Duration;

const HOLD: Duration = Duration::from_millis(5);

fn work(scheduler: &Scheduler, log: &Recorder, until: u64) -> u64 {
    let mut done = 0;
    while now() < until {
        let permit = scheduler.blocking_acquire(Priority::Normal).unwrap();
        log.start(1);
        std::thread::sleep(HOLD);
        log.end(1);
        drop(permit);
        done += 1;
    }
    done
}

/// Role: PATH LOG THREADS. Says how many units it did between the start and the end that it is told.
pub fn steady(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let log = Recorder::open(Path::new(args.text(1)));
    say("ready");
    let until: u64 = hear().parse().unwrap();
    let done: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.number(2))
            .map(|_| scope.spawn(|| work(&scheduler, &log, until)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    say(format!("done {done}"));
}

/// Role: PATH LOG WORKERS. Forks its workers: half of them before it opens the segment, half after; each opens its own.
#[allow(unsafe_code)]
pub fn forked_steady(args: &Args) {
    let worker = |until: u64, out: &std::io::PipeWriter| {
        let segment = Segment::open(&args.location()).unwrap();
        let scheduler = segment.scheduler().unwrap();
        let log = Recorder::open(Path::new(args.text(1)));
        let done = work(&scheduler, &log, until);
        use std::io::Write;
        let mut out = out;
        out.write_all(&done.to_le_bytes()).unwrap();
    };
    let (mut reader, writer) = std::io::pipe().unwrap();
    say("ready");
    let until: u64 = hear().parse().unwrap();
    let fork_half = || {
        (0..args.number(2) / 2).for_each(|_| {
            // SAFETY: the child opens the segment afresh, works, writes to a pipe and ends by _exit.
            if unsafe { libc::fork() } == 0 {
                // SAFETY: no worker outlives the test.
                unsafe { libc::alarm(60) };
                worker(until, &writer);
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(0) };
            }
        });
    };
    fork_half();
    let segment = Segment::open(&args.location()).unwrap();
    let held = segment
        .scheduler()
        .unwrap()
        .try_acquire_owned(Priority::Normal);
    drop(held);
    fork_half();
    drop(writer);
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut all).unwrap();
    let done: u64 = all
        .chunks_exact(8)
        .map(|done| u64::from_le_bytes(done.try_into().unwrap()))
        .sum();
    say(format!("done {done}"));
}

fn run(location: &Location, log: &Path, spread: &[(&str, u32)], time: Duration) -> u64 {
    let path = location.path();
    let log = log.to_string_lossy();
    let mut children: Vec<_> = spread
        .iter()
        .map(|(role, threads)| {
            Child::start(role, &[&path.to_string_lossy(), &log, &threads.to_string()])
        })
        .collect();
    children
        .iter_mut()
        .for_each(|child| drop(child.expect("ready")));
    let until = now() + time.as_nanos() as u64;
    children
        .iter_mut()
        .for_each(|child| child.tell(&until.to_string()));
    children
        .iter_mut()
        .map(|child| child.expect("done").parse::<u64>().unwrap())
        .sum()
}

#[test]
fn case_56_one_limit_however_the_work_is_spread() {
    const SLOTS: u32 = 3;
    let scene = Scene::alone();
    let time = Duration::from_millis(1_500);
    let spreads: [&[(&str, u32)]; 4] = [
        &[("steady", 8)],
        &[("steady", 1); 8],
        &[("steady", 2); 4],
        &[("forked_steady", 8)],
    ];
    // The most of some runs each: who stands still does less.
    let mut totals = [0; 4];
    let mut run_no = 0;
    one_of(3, || {
        for (total, spread) in totals.iter_mut().zip(spreads) {
            run_no += 1;
            let location = scene.segment_of(
                &format!("S{run_no}"),
                &shmsched::Settings::new().concurrency(SLOTS),
            );
            let log = scene.path(&format!("log{run_no}"));
            let done = run(&location, &log, spread, time);
            let (most, units) = peak(&log);
            assert_eq!(most, SLOTS, "spread {spread:?}");
            assert_eq!(units as u64, done, "the recorder agrees");
            quiet(&location, SLOTS);
            *total = done.max(*total);
        }
        figure!("units by 1x8, 8x1, 4x2, 8 forked: {totals:?}");
        let (least, most) = (*totals.iter().min().unwrap(), *totals.iter().max().unwrap());
        less("the most, of the least", most * 3, least * 4)
    });
}

/// A worker that comes and goes each tenth of a second changes nothing for the rest.
#[test]
fn case_56_workers_that_are_killed_and_restarted() {
    const SLOTS: u32 = 3;
    let scene = Scene::alone();
    let location = scene.segment(SLOTS);
    let path = location.path();
    let log = Recorder::open(&scene.path("log"));
    let start = |_| {
        let log = log.path().to_string_lossy();
        let mut child = Child::start("steady", &[&path.to_string_lossy(), &log, "1"]);
        child.expect("ready");
        child.tell(&(now() + 60_000_000_000).to_string());
        child
    };
    let mut workers: Vec<_> = (0..8).map(start).collect();
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(250));
        for worker in &mut workers[..4] {
            log.dies(worker.pid());
            worker.kill();
            *worker = start(0);
        }
    }
    for worker in &mut workers {
        log.dies(worker.pid());
        worker.kill();
    }
    let (most, units) = peak(log.path());
    figure!("{units} units");
    assert_eq!(most, SLOTS);
    assert!(units > 400, "slots of the killed came back: {units}");
    quiet(&location, SLOTS);
}

#[test]
fn case_56_spellings_of_a_path_are_one_segment() {
    let scene = Scene::new();
    let location = scene.segment(1);
    std::os::unix::fs::symlink(location.path().parent().unwrap(), scene.path("link")).unwrap();
    let linked = Location::File(scene.path("link").join("S"));
    let doubled = Location::File(scene.path("./S"));
    let one = Segment::open(&location).unwrap();
    let held = one
        .scheduler()
        .unwrap()
        .try_acquire_owned(Priority::Normal)
        .unwrap();
    for other in [linked, doubled] {
        let other = Segment::open(&other).unwrap();
        assert_eq!(other.id(), one.id());
        assert!(
            other
                .scheduler()
                .unwrap()
                .try_acquire(Priority::Normal)
                .is_err()
        );
    }
    drop(held);
    quiet(&location, 1);
}
