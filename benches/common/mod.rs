//! Ratios of two things in one run.

use std::time::Instant;

/// Medians over rounds taken in turn: nanoseconds per call of each, and of the rounds' ratios.
pub fn interleaved(first: impl Fn(), second: impl Fn()) -> (f64, f64, f64) {
    const CALLS: u32 = 20_000;
    let time = |f: &dyn Fn()| {
        let begun = Instant::now();
        f();
        begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    let rounds: Vec<(f64, f64)> = (0..501)
        .map(|_| {
            let first = time(&|| (0..CALLS).for_each(|_| first()));
            (first, time(&|| (0..CALLS).for_each(|_| second())))
        })
        .collect();
    let median = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    (median(&|r| r.0), median(&|r| r.1), median(&|r| r.0 / r.1))
}
