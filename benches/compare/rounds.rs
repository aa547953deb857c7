//! Two things measured in turn: ours, the peer, ours, the peer, so that a neighbour on a noisy machine disturbs both
//! sides of a round alike. What counts is the median of the rounds' ratios.
#![allow(unsafe_code)]

use crate::report::Measured;
use serde_json::json;
use std::arch::asm;
use std::time::{Duration, Instant};

/// How long a side of a round runs: long beside a clock read and an interrupt, short beside a neighbour's burst.
const STRETCH: f64 = 1.5e6;

/// So many calls, and the nanoseconds that they took together.
pub trait Side: FnMut(u64) -> Result<f64, String> {}
impl<F: FnMut(u64) -> Result<f64, String>> Side for F {}

/// A loop over `f`, of the same shape for everybody.
pub fn looped(mut f: impl FnMut()) -> impl Side {
    once(move |calls| {
        let begun = Instant::now();
        for _ in 0..calls {
            f();
        }
        Ok(begun.elapsed().as_nanos() as f64)
    })
}

/// A side that is compiled once: where it is inlined into several callers, each may come out differently.
pub fn once(mut side: impl Side) -> impl Side {
    #[inline(never)]
    fn apart(side: &mut impl Side, calls: u64) -> Result<f64, String> {
        side(calls)
    }
    move |calls| apart(&mut side, calls)
}

/// The same reference, about which the compiler knows nothing any more: it reads everything anew, as a caller would
/// who is not in a loop. Unlike `black_box` it costs no instruction and goes through no memory.
#[inline(always)]
pub fn anew<T>(reference: &T) -> &T {
    let mut pointer: *const T = reference;
    // SAFETY: no instruction; the pointer stays what it was, to what is borrowed for as long.
    unsafe {
        asm!("/* {0} */", inout(reg) pointer, options(nostack, preserves_flags));
        &*pointer
    }
}

/// What is done with a slot: nothing that the compiler can see through or move something over.
#[inline(always)]
pub fn work() {
    // SAFETY: no instruction; it only counts as one that may read and write memory.
    unsafe { asm!("", options(nostack, preserves_flags)) }
}

/// The calls that take about `wanted` nanoseconds, which also warms the side up.
fn calls_for(wanted: f64, side: &mut impl Side) -> Result<u64, String> {
    let mut calls = 1;
    loop {
        let took = side(calls)?;
        if took >= wanted / 4.0 || calls > 1 << 40 {
            return Ok(((calls as f64 * wanted / took.max(1.0)) as u64).max(1));
        }
        calls *= 4;
    }
}

/// Rounds of both, for about so long, each side as many calls as fit its stretch.
pub fn pair(
    allowed: Duration,
    ours: &mut impl Side,
    peer: &mut impl Side,
) -> Result<Measured, String> {
    let wanted = STRETCH.min(allowed.as_nanos() as f64 / 20.0);
    let calls = (calls_for(wanted, ours)?, calls_for(wanted, peer)?);
    counted(allowed, calls, ours, peer)
}

/// The same with the number of calls of each side given, where they belong together (a batch).
pub fn counted(
    allowed: Duration,
    (our_calls, peer_calls): (u64, u64),
    ours: &mut impl Side,
    peer: &mut impl Side,
) -> Result<Measured, String> {
    let mut rounds = Vec::new();
    let begun = Instant::now();
    while rounds.len() < 3 || (begun.elapsed() < allowed && rounds.len() < 1_001) {
        let mine = ours(our_calls)? / our_calls as f64;
        rounds.push((mine, peer(peer_calls)? / peer_calls as f64));
    }
    Ok(settled(&rounds))
}

/// Medians of what the rounds measured, and the quartiles of their ratios.
pub fn settled(rounds: &[(f64, f64)]) -> Measured {
    let of = |f: &dyn Fn(&(f64, f64)) -> f64| sorted(rounds.iter().map(f).collect());
    let (ours, peer) = (of(&|round| round.0), of(&|round| round.1));
    let ratios = of(&|round| round.0 / round.1);
    let mut measured = Measured::new(between(&ours, 0.5), between(&peer, 0.5));
    measured.ratio = between(&ratios, 0.5);
    measured.spread = Some((between(&ratios, 0.25), between(&ratios, 0.75)));
    measured.with("rounds", json!(rounds.len()))
}

pub fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The value at such a share of the way through them, between two if it falls there.
pub fn between(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() - 1) as f64 * share;
    let below = sorted[place as usize];
    let above = sorted[place.ceil() as usize];
    below + (above - below) * place.fract()
}

/// The value below which so many percent of them lie: nearest rank, of values in order.
pub fn at(sorted: &[f64], percent: f64) -> f64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// A distribution in few numbers, for a plot.
pub fn percentiles(values: Vec<f64>) -> serde_json::Value {
    let values = sorted(values);
    let points = [
        0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0,
    ];
    let of = |percent: f64| (format!("p{percent}"), json!(at(&values, percent)));
    points.into_iter().map(of).collect()
}
