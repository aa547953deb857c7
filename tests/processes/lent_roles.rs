//! Processes that are brisk, and such that wait behind them.

use crate::support::{Args, Chance, Child, Inside, LONG, hear, median, say, until};
use shmsched::{Deadline, Location, Priority, Scheduler, Segment};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;

/// Role: PATH COUNTS PROCESS PRIORITY. A thread that takes and gives back slots as fast as it can, once it is told "go",
/// until it is told "idle". `for US`: so long, then idle.
pub fn brisk(args: &Args) {
    let scheduler = Segment::open(&args.location())
        .unwrap()
        .scheduler()
        .unwrap();
    let inside = Inside::open(Path::new(args.text(1)));
    let process = args.number(2) as usize;
    let priority = Priority::from_index(args.number(3) as usize).unwrap();
    let (goes, idle, pairs) = (
        AtomicBool::new(false),
        AtomicBool::new(true),
        AtomicU64::new(0),
    );
    say("ready");
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                if !goes.load(Ordering::SeqCst) {
                    idle.store(true, Ordering::SeqCst);
                    while !goes.load(Ordering::SeqCst) {
                        thread::park_timeout(Duration::from_millis(1));
                    }
                }
                idle.store(false, Ordering::SeqCst);
                for _ in 0..32 {
                    let Ok(_permit) = scheduler.blocking_acquire(priority) else {
                        return;
                    };
                    inside.enter(process, 1);
                    inside.leave(process, 1);
                }
                pairs.fetch_add(32, Ordering::Relaxed);
            }
        });
        let rests = || until(LONG, "idle", || idle.load(Ordering::SeqCst));
        loop {
            let line = hear();
            match &*line.split(' ').collect::<Vec<_>>() {
                ["go"] => {
                    goes.store(true, Ordering::SeqCst);
                    until(LONG, "going", || !idle.load(Ordering::SeqCst));
                }
                ["for", us] => {
                    goes.store(true, Ordering::SeqCst);
                    let begun = Instant::now();
                    let time = Duration::from_micros(us.parse().unwrap());
                    while begun.elapsed() < time || idle.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    goes.store(false, Ordering::SeqCst);
                    rests();
                }
                // The lottery names the top alone.
                ["draws", "top"] => scheduler.fix_draw(Some(0)),
                ["idle"] => {
                    goes.store(false, Ordering::SeqCst);
                    rests();
                }
                _ => panic!("what is {line:?}?"),
            }
            say(format!("= {}", pairs.load(Ordering::Relaxed)));
        }
    });
}

/// Another process that is brisk.
pub(super) struct Brisk(pub(super) Child);

impl Brisk {
    pub(super) fn at(
        location: &Location,
        counts: &Path,
        process: usize,
        priority: Priority,
    ) -> Brisk {
        let path = location.path();
        let args = [
            &*path.to_string_lossy(),
            &*counts.to_string_lossy(),
            &process.to_string(),
            &priority.index().to_string(),
        ];
        let mut child = Child::start("brisk", &args);
        child.expect("ready");
        Brisk(child)
    }

    pub(super) fn new(location: &Location, counts: &Path, process: usize) -> Brisk {
        Brisk::at(location, counts, process, NORMAL)
    }

    #[track_caller]
    pub(super) fn asks(&mut self, line: &str) -> u64 {
        self.0.tell(line);
        self.0.expect("=").parse().unwrap()
    }
}

/// Waits for one slot, by a thread, a task or a callback: for how long.
pub(super) fn wait(
    scheduler: &Scheduler,
    how: usize,
    priority: Priority,
    held: impl Fn() + Send + Sync,
) -> Duration {
    let begun = Instant::now();
    match how {
        0 => {
            let _permit = scheduler.blocking_acquire(priority).unwrap();
            let took = begun.elapsed();
            held();
            took
        }
        1 => {
            let _permit = futures_executor::block_on(scheduler.acquire(priority)).unwrap();
            let took = begun.elapsed();
            held();
            took
        }
        _ => {
            let (sender, ran) = channel();
            scheduler.acquire_with(move |()| _ = sender.send(begun.elapsed()), priority, ());
            let took = ran.recv().unwrap();
            held();
            scheduler.release().unwrap();
            took
        }
    }
}

/// Role: PATH COUNTS PROCESS SEED MOST_US. Threads that wait in every way, again and again, with pauses.
pub fn waits(args: &Args) {
    let scheduler = Segment::open(&args.location())
        .unwrap()
        .scheduler()
        .unwrap();
    let inside = Inside::open(Path::new(args.text(1)));
    let (process, most) = (args.number(2) as usize, args.number(4));
    let (over, took) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for how in 0..3 {
            let (scheduler, inside, over, took) = (&scheduler, &inside, &over, &took);
            let mut chance = Chance::seeded(args.number(3) * 7 + how as u64);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let priority = Priority::from_index(chance.below(7) as usize).unwrap();
                    if how == 0 && chance.below(3) == 0 {
                        let until = Deadline::from(Duration::from_micros(chance.below(2_000)));
                        if let Ok(_permit) = scheduler.blocking_acquire_until(1, priority, until) {
                            inside.enter(process, 1);
                            inside.leave(process, 1);
                        }
                    } else {
                        let waited = wait(scheduler, how, priority, || {
                            inside.enter(process, 1);
                            inside.leave(process, 1);
                        });
                        took.lock().unwrap().push(waited.as_micros() as u64);
                    }
                    thread::sleep(Duration::from_micros(chance.below(most)));
                }
            });
        }
        say("waiting");
        hear();
        over.store(true, Ordering::Relaxed);
    });
    let mut took = took.into_inner().unwrap();
    took.sort_unstable();
    let last = took.last().copied().unwrap_or(0);
    let middle = if took.is_empty() { 0 } else { median(&took) };
    let most = took.get(took.len() * 49 / 50).copied().unwrap_or(0);
    say(format!("took {} {middle} {most} {last}", took.len()));
}

pub(super) fn waiting(
    location: &Location,
    counts: &Path,
    process: usize,
    seed: u64,
    most_us: u64,
) -> Child {
    let path = location.path();
    let args = [
        &*path.to_string_lossy(),
        &*counts.to_string_lossy(),
        &process.to_string(),
        &seed.to_string(),
        &most_us.to_string(),
    ];
    let mut child = Child::start("waits", &args);
    child.expect("waiting");
    child
}

/// What a child says of its waits.
#[derive(Debug)]
pub(super) struct Took {
    /// How many.
    pub(super) waits: u64,
    pub(super) median: Duration,
    /// What one in fifty exceeds: who stands still is slow, and seldom.
    pub(super) most: Duration,
    pub(super) longest: Duration,
}

#[track_caller]
pub(super) fn over(child: &mut Child) -> Took {
    child.tell("over");
    let took = child.expect("took");
    let took: Vec<u64> = took.split(' ').map(|n| n.parse().unwrap()).collect();
    let [median, most, longest] = [1, 2, 3].map(|at| Duration::from_micros(took[at]));
    Took {
        waits: took[0],
        median,
        most,
        longest,
    }
}

/// Says so when it is dropped, also by a panic.
pub(super) struct Ends<'a>(pub(super) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
