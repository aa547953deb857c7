//! A holder is killed while somebody waits: from the moment the kernel lets go of its lock to the next admission.

use crate::bench::{Bench, failed, segment};
use crate::children::{Child, orders, say};
use crate::peers::ByteLock;
use crate::report::{Measured, Row};
use crate::rounds::{at, percentiles, sorted};
use serde_json::{Value, json};
use shmsched::{Priority, Scheduler, Settings};
use std::cell::OnceCell;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The byte that member 0 holds as long as it lives; docs/segment-format.md.
const BYTES: i64 = (1 << 40) + 1;
const MOST: Duration = Duration::from_secs(10);
const BOUND: f64 = 150e6;
const AIM: f64 = 10e6;

/// Takes the only slot and keeps it.
pub fn holder(path: &str) -> Result<(), String> {
    let _orders = orders();
    let segment = segment(Path::new(path), &Settings::new().concurrency(1))?;
    let scheduler = segment.scheduler().map_err(failed)?;
    let _permit = scheduler
        .blocking_acquire(Priority::Normal)
        .map_err(failed)?;
    say(segment.member().index)?;
    loop {
        std::thread::park();
    }
}

fn once(
    path: &str,
    scheduler: &Scheduler,
    locks: &ByteLock,
    pause: Duration,
) -> Result<Duration, String> {
    let mut holder = Child::start("holder", &[path])?;
    let member: i64 = holder.hear()?.parse().map_err(failed)?;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let permit = scheduler.blocking_acquire_until(1, Priority::Normal, MOST);
            permit
                .map(|permit| (Instant::now(), permit))
                .map_err(failed)
        });
        while scheduler.stats().pending == 0 && !waiter.is_finished() {
            std::thread::yield_now();
        }
        std::thread::sleep(pause);
        if !locks.is_held(BYTES + member) {
            return Err(failed("the holder's lock is not where it was looked for"));
        }
        holder.kill();
        let end = Instant::now() + MOST;
        while locks.is_held(BYTES + member) && Instant::now() < end {
            std::hint::spin_loop();
        }
        let free = Instant::now();
        let (admitted, _permit) = waiter.join().map_err(|_| failed("the waiter"))??;
        Ok(admitted.saturating_duration_since(free))
    })
}

/// How long it took, in order of size, and how the percentiles say it.
#[derive(Clone)]
struct Took {
    sorted: Vec<f64>,
    percentiles: Value,
}

impl Took {
    fn beside(&self, bound: f64) -> Measured {
        let within = self.sorted.iter().filter(|took| **took <= AIM).count();
        Measured::new(at(&self.sorted, 99.0), bound)
            .with("latency_ns", json!({ "ours": self.percentiles }))
            .with("rounds", json!(self.sorted.len()))
            .with("within_10_ms", json!(within))
    }
}

fn measure(bench: &Bench) -> Result<Took, String> {
    let path = bench.directory.join("killed");
    let scheduler = bench.segment("killed", &Settings::new().concurrency(1))?;
    let scheduler = scheduler.scheduler().map_err(failed)?;
    let locks = File::options().read(true).write(true).open(&path);
    let locks = ByteLock(locks.map_err(failed)?);
    let path = path.to_str().ok_or("a path that is no text")?;
    let mut took = Vec::new();
    let begun = Instant::now();
    let (most, long) = bench.size.pick((300, 40), (40, 5), (2, 5));
    while took.len() < most && begun.elapsed() < Duration::from_secs(long) {
        // At any moment of the waiter's timer.
        let pause = Duration::from_micros(took.len() as u64 * 7_919 % 100_000);
        let pause = bench.size.pick(pause, pause, Duration::ZERO);
        took.push(once(path, &scheduler, &locks, pause)?.as_nanos() as f64);
    }
    Ok(Took {
        percentiles: percentiles(took.clone()),
        sorted: sorted(took),
    })
}

/// One measurement beside two numbers: what is promised, and what is aimed at.
pub fn rows(bench: &Bench) -> Vec<Row<'_>> {
    let took = Rc::new(OnceCell::new());
    let bounds = [("bound of 150 ms", BOUND), ("aim of 10 ms", AIM)];
    let rows = bounds.into_iter().map(|(peer, bound)| {
        let took = took.clone();
        let measure = move || {
            let took: &Result<Took, String> = took.get_or_init(|| measure(bench));
            took.clone().map(|took| took.beside(bound))
        };
        Row::new("recovery of a dead holder's slot, p99", peer, measure)
            .goal(1.0)
            .note("from the moment the kernel lets go of its lock to the admission of who waits")
    });
    rows.collect()
}
