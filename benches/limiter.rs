//! Taking a token that is at hand, in one process: ratios to governor's in-process check, in one run.
//!
//! `cargo bench --bench limiter`. As benches/scheduler.rs.

mod common;

use common::interleaved;
use criterion::Criterion;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use shmsched::{Limiter, Location, OpenOptions, Pacer, Segment, Settings};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

const RATE: u32 = i32::MAX as u32;
/// Long enough that a start is not old before its operation begins.
const INTERVAL: Duration = Duration::from_micros(3);

#[inline(always)]
fn ours(limiter: &Limiter) {
    black_box(black_box(limiter).try_consume(1)).expect("tokens");
}

#[inline(always)]
fn theirs(governor: &DefaultDirectRateLimiter) {
    black_box(black_box(governor).check()).expect("cells");
}

struct Shared {
    _directory: tempfile::TempDir,
    limiter: Limiter,
    pacer: Pacer,
}

fn shared() -> Shared {
    let directory = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory");
    let location = Location::File(directory.path().join("bench"));
    let settings = Settings::new().rate(RATE).interval(INTERVAL);
    let (segment, _) =
        Segment::create_or_open(&location, &settings, &OpenOptions::new()).expect("a segment");
    Shared {
        _directory: directory,
        limiter: segment.limiter().expect("a limiter"),
        pacer: segment.pacer().expect("a pacer"),
    }
}

fn governor() -> DefaultDirectRateLimiter {
    RateLimiter::direct(Quota::per_second(NonZeroU32::MAX))
}

fn benches(c: &mut Criterion) {
    let shared = shared();
    let local = Limiter::local(RATE).expect("local");
    let governor = governor();
    let mut group = c.benchmark_group("tokens at hand");
    group.bench_function("governor check", |b| b.iter(|| theirs(&governor)));
    group.bench_function("shared try_consume(1)", |b| {
        b.iter(|| ours(&shared.limiter))
    });
    group.bench_function("local try_consume(1)", |b| b.iter(|| ours(&local)));
    group.finish();
}

#[allow(missing_docs)]
mod group {
    use super::benches;
    criterion::criterion_group!(at_hand, benches);
}
use group::at_hand;

fn main() {
    at_hand();
    Criterion::default().configure_from_args().final_summary();
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let (shared, governor) = (shared(), governor());
    let (mine, theirs, ratio) = interleaved(|| ours(&shared.limiter), || theirs(&governor));
    println!(
        "ratio shared try_consume(1) / governor check: {ratio:.3} ({mine:.2} ns / {theirs:.2} ns; goal 1.5)"
    );
    // One at a time, since none is due right after another: between two clock reads, less what these take by themselves.
    let (mut starts, mut nothing) = (Vec::new(), Vec::new());
    for _ in 0..100_000 {
        let due = Instant::now() + INTERVAL + INTERVAL;
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        let begun = Instant::now();
        shared.pacer.try_start().expect("due");
        starts.push(begun.elapsed());
        let begun = Instant::now();
        nothing.push(begun.elapsed());
    }
    let median = |of: &mut Vec<Duration>| {
        of.sort_unstable();
        of[of.len() / 2].as_nanos() as f64
    };
    let (start, clock) = (median(&mut starts), median(&mut nothing));
    println!(
        "a start that is due, less the clock read: {:.0} ns ({:.0} ns less {clock:.0} ns; goal 60 ns)",
        start - clock - clock,
        start - clock
    );
}
