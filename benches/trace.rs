//! What tracing costs where nobody listens: the same work with and without it, in one run.
//!
//! `cargo bench --bench trace`. Interleaved medians, see benches/scheduler.rs. A ratio within a few percent of 1 is noise:
//! the first line, of a thing to itself, says how much of it there is.

mod common;

use common::interleaved;
use shmsched::trace::{Trace, Writer};
use shmsched::{Limiter, Priority, Scheduler};
use std::hint::black_box;

#[inline(always)]
fn pair(scheduler: &Scheduler) {
    drop(
        black_box(scheduler)
            .try_acquire(Priority::Normal)
            .expect("room"),
    );
}

#[inline(always)]
fn consume(limiter: &Limiter) {
    black_box(black_box(limiter).try_consume(1)).expect("tokens");
}

#[inline(always)]
fn run(scheduler: &Scheduler) {
    let ran = scheduler.run_blocking(|| black_box(()), Priority::Normal);
    ran.expect("room");
}

/// A `run` before there was tracing.
#[inline(always)]
fn run_bare(scheduler: &Scheduler) {
    let permit = scheduler.blocking_acquire(Priority::Normal).expect("room");
    black_box(());
    drop(permit);
}

fn compare(what: &str, first: impl Fn(), second: impl Fn()) {
    let (first, second, ratio) = interleaved(first, second);
    println!("ratio {what}: {ratio:.3} ({first:.2} ns / {second:.2} ns)");
}

fn main() {
    let bare = Scheduler::local(1 << 20).expect("local");
    let limiter = Limiter::local(i32::MAX as u32).expect("local");
    let silent = Writer::new(|_, _| ());
    silent.switch(false);
    let off = [
        ("default, none there", Trace::Default),
        ("disabled", Trace::Disabled),
        ("writer switched off", Trace::Writer(silent)),
    ];
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    compare("acquire+release, to itself", || pair(&bare), || pair(&bare));
    for (name, trace) in &off[1..] {
        let off = bare.with_trace(trace.clone());
        compare(
            &format!("acquire+release, {name} / default"),
            || pair(&off),
            || pair(&bare),
        );
    }
    for (name, trace) in &off[1..] {
        let off = limiter.with_trace(trace.clone());
        compare(
            &format!("try_consume(1), {name} / default"),
            || consume(&off),
            || consume(&limiter),
        );
    }
    for (name, trace) in &off {
        let off = bare.with_trace(trace.clone());
        compare(
            &format!("run_blocking, {name} / acquire, call, release"),
            || run(&off),
            || run_bare(&bare),
        );
    }
    let told = bare.with_trace(Trace::Writer(Writer::new(|document, _| {
        black_box(document);
    })));
    compare(
        "run_blocking, told / acquire, call, release",
        || run(&told),
        || run_bare(&bare),
    );
}
