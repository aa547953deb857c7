//! What the tests with real processes share: a scene (temporary segments, whose turn it is), children made by
//! re-executing the test binary, a recorder that trusts none of our counters, and the check that a segment is quiet.
//!
//! Nothing here sleeps and hopes: whatever is waited for is polled until a deadline, and a child that hangs is killed
//! and its output shown.

// Each test binary uses a part of it.
#![allow(dead_code, unused_macros, unused_imports)]

mod child;
mod inside;
pub mod lending;
mod recorder;
mod scene;
mod words;

pub use child::{Args, Child, Role, enter, hear, heard_by, say};
pub use inside::Inside;
pub use recorder::{Recorder, peak};
pub use scene::{Scene, quiet, quiet_within};
pub use words::{Words, coarse_now, now};

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Longer than anything takes that is not stuck, also on a busy machine.
pub const LONG: Duration = Duration::from_secs(20);

/// Says why a test did not run, past libtest's capture, so that it can be counted.
macro_rules! skipped {
    ($($why:tt)*) => {{
        use std::io::Write;
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {}", format_args!($($why)*));
        return;
    }};
}
pub(crate) use skipped;

/// A figure for whoever reads the log, past libtest's capture.
macro_rules! figure {
    ($($what:tt)*) => {{
        use std::io::Write;
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        let _ = writeln!(std::io::stderr(), "FIGURE {name}: {}", format_args!($($what)*));
    }};
}
pub(crate) use figure;

/// Polls until `probe` is satisfied. The last probe begins after the time is up: whoever stood still in the one before asks
/// once more.
///
/// # Panics
///
/// With the last reason if it is not within `time`.
#[track_caller]
pub fn within<T, E: Display>(time: Duration, mut probe: impl FnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        let last = begun.elapsed() >= time;
        match probe() {
            Ok(found) => return found,
            Err(why) if last => panic!("not within {time:?}: {why}"),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Plays a scene that comes out otherwise if somebody stands still at the wrong moment: one of so many times it must come
/// out as it should. Code that is wrong spoils all of them.
#[track_caller]
pub fn one_of(times: u32, mut scene: impl FnMut() -> Result<(), String>) {
    for left in (0..times).rev() {
        match scene() {
            Ok(()) => return,
            Err(why) if left == 0 => panic!("none of {times} times; the last: {why}"),
            Err(why) => figure!("once more: {why}"),
        }
    }
}

/// Whether it was less, as a scene says it.
pub fn less<T: PartialOrd + std::fmt::Debug>(what: &str, it: T, bound: T) -> Result<(), String> {
    match it < bound {
        true => Ok(()),
        false => Err(format!("{what}: {it:?}, not below {bound:?}")),
    }
}

/// [`within`] for a plain condition.
#[track_caller]
pub fn until(time: Duration, what: &str, mut met: impl FnMut() -> bool) {
    within(time, || if met() { Ok(()) } else { Err(what) });
}

/// The middle of some measurements.
pub fn median<T: Copy + Ord>(of: &[T]) -> T {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// A small generator (xorshift64*) whose seed a failing test shows; SHMSCHED_TEST_SEED repeats it.
pub struct Chance(u64);

impl Chance {
    pub fn new() -> Chance {
        let fixed = std::env::var("SHMSCHED_TEST_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = fixed.unwrap_or_else(now);
        println!("SHMSCHED_TEST_SEED={seed}");
        Chance::seeded(seed)
    }

    pub fn seeded(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end.max(1)
    }
}
