//! A holder is killed while somebody waits: from the moment the kernel lets go of its lock to the next admission.

use crate::bench::{Bench, failed, segment};
use crate::children::{Child, orders, say};
use crate::peers::ByteLock;
use crate::report::{Measured, Row};
use crate::rounds::{at, percentiles, sorted};
use serde_json::json;
use shmsched::{Priority, Scheduler, Settings};
use std::fs::File;
use std::path::Path;
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

fn measure(bench: &Bench) -> Result<Measured, String> {
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
    let latency = percentiles(took.clone());
    let took = sorted(took);
    let aimed = took.iter().filter(|took| **took <= AIM).count();
    Ok(Measured::new(at(&took, 99.0), BOUND)
        .with("latency_ns", json!({ "ours": latency }))
        .with("rounds", json!(took.len()))
        .with("within_10_ms", json!(aimed)))
}

pub fn rows(bench: &Bench) -> Vec<Row<'_>> {
    vec![
        Row::new("recovery of a dead holder's slot, p99", "bound of 150 ms", || measure(bench))
            .goal(1.0)
            .note("from the moment the kernel lets go of its lock to the admission of who waits; the aim is 10 ms, a ratio of 0.067"),
    ]
}
