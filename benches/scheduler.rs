//! Acquire and release in one process: ratios to two bare atomic instructions on the same kind of line, in one run.
//!
//! `cargo bench --bench scheduler`. Criterion measures each alone; the ratios that the project promises are printed at
//! the end from interleaved rounds, since neighbours on a noisy machine disturb both sides of a round alike.

mod common;

use common::interleaved;
use criterion::{Criterion, Throughput};
use shmsched::{Concurrency, Location, OpenOptions, Priority, Scheduler, Segment, Settings};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

#[repr(align(128))]
struct Line(AtomicI32);

static BARE: Line = Line(AtomicI32::new(0));

#[inline(always)]
fn bare() {
    black_box(&BARE.0).fetch_add(1, Ordering::SeqCst);
    black_box(&BARE.0).fetch_sub(1, Ordering::SeqCst);
}

#[inline(always)]
fn ours(scheduler: &Scheduler) {
    drop(black_box(scheduler.try_acquire(Priority::Normal)).expect("room"));
}

/// As many callbacks as wait at once, one after the other through one slot; each gives it back.
fn drain(scheduler: &Scheduler, batch: usize) {
    let permit = scheduler.try_acquire(Priority::Normal).expect("room");
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..batch {
        let (ran, own) = (ran.clone(), scheduler.clone());
        let callback = move |()| {
            ran.fetch_add(1, Ordering::Relaxed);
            own.release().expect("its slot");
        };
        assert!(!scheduler.acquire_with(callback, Priority::Normal, ()));
    }
    drop(permit);
    while ran.load(Ordering::Relaxed) < batch {
        std::hint::spin_loop();
    }
}

struct Shared {
    _directory: tempfile::TempDir,
    scheduler: Scheduler,
}

fn shared() -> Shared {
    let directory = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory");
    let location = Location::File(directory.path().join("bench"));
    let settings = Settings::new().concurrency(1 << 20);
    let (segment, _) =
        Segment::create_or_open(&location, &settings, &OpenOptions::new()).expect("a segment");
    Shared {
        _directory: directory,
        scheduler: segment.scheduler().expect("a scheduler"),
    }
}

fn benches(c: &mut Criterion) {
    let shared = shared();
    let local = Scheduler::local(Concurrency::max(1 << 20)).expect("local");
    let mut group = c.benchmark_group("uncontended");
    group.bench_function("bare fetch_add + fetch_sub", |b| b.iter(bare));
    group.bench_function("shared try_acquire + drop", |b| {
        b.iter(|| ours(&shared.scheduler))
    });
    group.bench_function("local try_acquire + drop", |b| b.iter(|| ours(&local)));
    let unlimited = Scheduler::local(Concurrency::unlimited()).expect("local");
    group.bench_function("local try_acquire + drop, unlimited", |b| {
        b.iter(|| ours(&unlimited))
    });
    group.bench_function("local run_blocking of nothing", |b| {
        b.iter(|| local.run_blocking(|| black_box(()), Priority::Normal))
    });
    group.finish();

    const BATCH: usize = 1_000;
    let one = Scheduler::local(1).expect("local");
    let mut group = c.benchmark_group("queued");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("1,000 callbacks through one slot", |b| {
        b.iter(|| drain(&one, BATCH))
    });
    group.finish();
}

#[allow(missing_docs)]
mod group {
    use super::benches;
    criterion::criterion_group!(uncontended, benches);
}
use group::uncontended;

fn main() {
    uncontended();
    Criterion::default().configure_from_args().final_summary();
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let shared = shared();
    let (ours, bare, ratio) = interleaved(|| ours(&shared.scheduler), bare);
    println!(
        "ratio shared acquire+release / bare pair: {ratio:.3} ({ours:.2} ns / {bare:.2} ns; goal 1.3)"
    );
}
