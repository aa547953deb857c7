//! Pressure: for how long anybody waited, and for how long of that nothing moved. As the kernel's pressure files say it.
//!
//! | word | who writes | how |
//! |---|---|---|
//! | began | who joins an empty line | compare-exchange 0 -> now |
//! | began | who sees the line empty, or still waits | compare-exchange to 0, or to now; then adds what it took |
//! | progress | who releases or spends while somebody waits | exchange for now; then adds what it took |
//! | totals, averages | who took an interval | addition; compare-exchange |
//!
//! Every interval is taken by one compare-exchange or exchange, so it is added once; who dies in between loses that one, and
//! nobody invents any. No timer: the signal is constant between changes, so an average is exact whenever it is looked
//! at. Intervals may be added in any order, as each one's share of an average at a later moment is known by itself.
//!
//! A line that only the dead stand in is nobody's waiting: who clears it drops what was running. Those who wait take
//! what has run so far at their watches, so that is little.

use crate::layout::PressureWords;
use crate::words::U64;
// Not the C library's, which would be one more shared library to load at each start of the command.
use libm::exp;

/// `full` is the time in which nothing was released or spent for so long.
pub const QUIET_NS: u64 = 200_000_000;
/// The averages are over so many seconds each.
pub const WINDOWS: [u64; 3] = [10, 60, 300];
/// A running interval is taken once it is so long.
const CHECKPOINT_NS: u64 = 1_000_000_000;
/// Progress is noted so often at most: the word is shared by all who release.
const GRAIN_NS: u64 = 5_000_000;

/// The pressure words of one gate.
#[derive(Clone, Copy)]
pub struct Pressure<'a> {
    /// Where they are.
    pub words: &'a PressureWords,
}

/// What one of the two signals came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signal {
    /// Shares of the time, 0 to 1: averages that decay over 10, 60 and 300 seconds.
    pub averages: [f64; 3],
    /// Nanoseconds in all.
    pub total: u64,
}

impl Pressure<'_> {
    /// Somebody waits now.
    pub fn begin(&self, now: u64) {
        if self.words.began.get() == 0 && self.words.began.replace(0, now.max(1)).is_ok() {
            self.words.progress.put(now);
        }
    }

    /// Nobody waits any more. The caller has just read the line, and reads it again: who joined in between saw a stall
    /// that was running.
    pub fn end(&self, now: u64) {
        let began = self.words.began.get();
        if began != 0 && self.words.began.replace(began, 0).is_ok() {
            self.take(began, now);
        }
    }

    /// Nobody alive waits: since when is not known.
    pub fn drop_running(&self) {
        let began = self.words.began.get();
        if began != 0 {
            let _ = self.words.began.replace(began, 0);
        }
    }

    /// Still waiting: takes what has run so far.
    pub fn checkpoint(&self, now: u64) {
        let began = self.words.began.get();
        if began != 0
            && now.saturating_sub(began) >= CHECKPOINT_NS
            && self.words.began.replace(began, now).is_ok()
        {
            self.add(Which::Some, began, now);
            self.quiet(began, now, false);
        }
    }

    /// Something was released or spent while somebody waits.
    #[inline(always)]
    pub fn progress(&self, now: u64) {
        let began = self.words.began.get();
        if began != 0 && now.saturating_sub(self.words.progress.get()) >= GRAIN_NS {
            self.quiet(began, now, true);
        }
    }

    fn take(&self, began: u64, now: u64) {
        self.add(Which::Some, began, now);
        self.quiet(began, now, true);
    }

    /// Takes the quiet time of a stall up to now. Without progress it goes on: what is taken of it then must not be taken again, so
    /// the last progress is moved to where it would leave only what is to come.
    fn quiet(&self, began: u64, now: u64, progress: bool) {
        let next = match progress {
            true => now,
            false => now.saturating_sub(QUIET_NS),
        };
        let last = self.words.progress.get();
        if next <= last || self.words.progress.replace(last, next).is_err() {
            return;
        }
        // Who began may have died before it said that this is when progress ended.
        let from = last.saturating_add(QUIET_NS).max(began);
        if from < now {
            self.add(Which::Full, from, now);
        }
    }

    fn add(&self, which: Which, from: u64, to: u64) {
        let Some(length @ 1..) = to.checked_sub(from) else {
            return;
        };
        let (total, averages) = which.of(self.words);
        total.add(length);
        for (word, window) in averages.iter().zip(WINDOWS) {
            // Each round loses to another interval.
            let mut seen = word.get();
            for _ in 0..64 {
                match word.replace(seen, Average(seen).with(from, to, window).0) {
                    Ok(_) => break,
                    Err(now) => seen = now,
                }
            }
        }
    }

    /// The two signals now. The averages include what is running, unless nobody alive waits; the totals are what was taken
    /// by now, which is all but the last second or so.
    pub fn read(&self, now: u64, anybody: bool) -> [Signal; 2] {
        let began = match anybody {
            true => self.words.began.get(),
            false => 0,
        };
        let some = (began != 0 && began < now).then_some((began, now));
        let quiet = self
            .words
            .progress
            .get()
            .saturating_add(QUIET_NS)
            .max(began);
        let full = (some.is_some() && quiet < now).then_some((quiet, now));
        [(Which::Some, some), (Which::Full, full)].map(|(which, running)| {
            let (total, averages) = which.of(self.words);
            Signal {
                averages: std::array::from_fn(|at| {
                    let average = Average(averages[at].get());
                    average.at(running, now, WINDOWS[at])
                }),
                // Without what is running, which its waiters may take with them when they die: it never goes back.
                total: total.get(),
            }
        })
    }
}

#[derive(Clone, Copy)]
enum Which {
    Some,
    Full,
}

impl Which {
    fn of(self, words: &PressureWords) -> (&U64, &[U64; 3]) {
        match self {
            Which::Some => (&words.some, &words.some_averages),
            Which::Full => (&words.full, &words.full_averages),
        }
    }
}

/// An exponentially weighted average at a moment: ms of it, wrapping, << 32 | share in 2^32 parts.
#[derive(Clone, Copy)]
struct Average(u64);

impl Average {
    fn share(self) -> f64 {
        f64::from(self.0 as u32) / f64::from(u32::MAX)
    }

    /// How long ago it was, in ms; none if it is a little ahead.
    fn age(self, now_ms: u64) -> f64 {
        let age = (now_ms as u32).wrapping_sub((self.0 >> 32) as u32);
        // A minute ahead can only be another's clock; more than that is an average of weeks ago.
        match age > u32::MAX - 60_000 {
            true => -f64::from(u32::MAX - age) - 1.0,
            false => f64::from(age),
        }
    }

    /// With an interval (ns) added, in which the signal was 1.
    fn with(self, from: u64, to: u64, window: u64) -> Average {
        let tau = window as f64 * 1e3;
        let to_ms = to.div_ceil(1_000_000);
        let age = self.age(to_ms);
        // The later of the two moments.
        let (at_ms, old) = match age < 0.0 {
            true => (to_ms + (-age) as u64, self.share()),
            false => (to_ms, self.share() * exp(-age / tau)),
        };
        let back = |ns: u64| exp(-(at_ms as f64 - ns as f64 / 1e6) / tau);
        let share = (old + back(to) - back(from)).clamp(0.0, 1.0);
        Average((at_ms as u32 as u64) << 32 | (share * f64::from(u32::MAX)).round() as u64)
    }

    /// What it is now, with what is running.
    fn at(self, running: Option<(u64, u64)>, now: u64, window: u64) -> f64 {
        let tau = window as f64 * 1e3;
        let age = self.age(now / 1_000_000).max(0.0);
        let running = running.map_or(0.0, |(from, _)| {
            1.0 - exp(-(now.saturating_sub(from) as f64 / 1e6) / tau)
        });
        (self.share() * exp(-age / tau) + running).clamp(0.0, 1.0)
    }
}

#[cfg(all(test, not(shmsched_loom)))]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn pressure(words: &PressureWords) -> Pressure<'_> {
        Pressure { words }
    }

    /// The average by definition: steps of a millisecond.
    fn by_hand(stalls: &[(u64, u64)], now: u64, window: u64) -> f64 {
        let a = 1.0 - (-1.0 / (window as f64 * 1e3)).exp();
        let step = 1_000_000;
        (0..now / step).fold(0.0, |average, at| {
            let middle = at * step + step / 2;
            let on = stalls
                .iter()
                .any(|(from, to)| (from..to).contains(&&middle));
            average + a * (f64::from(u8::from(on)) - average)
        })
    }

    #[test]
    fn averages_are_exact_at_any_moment() {
        let words = PressureWords::default();
        let p = pressure(&words);
        let stalls = [(S, 3 * S), (4 * S, 4 * S + 500_000_000), (9 * S, 30 * S)];
        for (from, to) in stalls {
            p.begin(from);
            p.progress(to);
            p.end(to);
        }
        for now in [30 * S, 31 * S, 60 * S, 200 * S] {
            let [some, _] = p.read(now, false);
            for (at, window) in WINDOWS.into_iter().enumerate() {
                let expected = by_hand(&stalls, now, window);
                assert!(
                    (some.averages[at] - expected).abs() < 1e-3,
                    "{now} {window}: {} {expected}",
                    some.averages[at]
                );
            }
            assert_eq!(some.total, 23 * S + 500_000_000);
        }
    }

    #[test]
    fn in_any_order() {
        let [one, other] = [(); 2].map(|()| PressureWords::default());
        for (words, order) in [(&one, [0, 1, 2]), (&other, [2, 0, 1])] {
            let stalls = [(S, 2 * S), (5 * S, 9 * S), (10 * S, 11 * S)];
            for at in order {
                pressure(words).add(Which::Some, stalls[at].0, stalls[at].1);
            }
        }
        let [one, other] = [&one, &other].map(|words| pressure(words).read(20 * S, false)[0]);
        assert_eq!(one.total, other.total);
        for (a, b) in one.averages.iter().zip(other.averages) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
    }

    #[test]
    fn what_runs_is_read_and_taken_once() {
        let words = PressureWords::default();
        let p = pressure(&words);
        p.begin(10 * S);
        let running = p.read(13 * S, true);
        assert_eq!(running[0].total, 0, "not taken yet");
        let share = 1.0 - (-0.3f64).exp();
        assert!((running[0].averages[0] - share).abs() < 1e-6);
        assert!(running[1].averages[0] > 0.2 && running[1].averages[0] < share);
        let dead = p.read(13 * S, false);
        assert_eq!(dead, [Signal::default(); 2], "the dead do not wait");
        p.checkpoint(13 * S);
        let [some, full] = p.read(13 * S, false);
        assert_eq!((some.total, full.total), (3 * S, 3 * S - QUIET_NS));
        assert!((p.read(13 * S, true)[0].averages[0] - share).abs() < 1e-6);
        p.progress(15 * S);
        p.progress(15 * S + QUIET_NS / 2);
        p.end(15 * S + QUIET_NS);
        let [some, full] = p.read(20 * S, true);
        assert_eq!(
            (some.total, full.total),
            (5 * S + QUIET_NS, 5 * S - QUIET_NS)
        );
    }

    #[test]
    fn a_stall_of_the_dead_is_dropped() {
        let words = PressureWords::default();
        let p = pressure(&words);
        p.begin(S);
        p.drop_running();
        p.begin(100 * S);
        p.end(101 * S);
        assert_eq!(p.read(101 * S, true)[0].total, S);
    }

    #[test]
    fn busy_without_backlog_is_no_pressure() {
        let words = PressureWords::default();
        let p = pressure(&words);
        p.progress(5 * S);
        assert_eq!(p.read(60 * S, true), [Signal::default(); 2]);
    }

    #[test]
    fn scribbled_words_do_no_harm() {
        let words = PressureWords::default();
        for value in [0, 1, u64::MAX, u64::MAX / 2, 1 << 63] {
            for word in [&words.began, &words.progress, &words.some_averages[0]] {
                word.put(value);
            }
            let p = pressure(&words);
            p.begin(S);
            p.progress(2 * S);
            p.checkpoint(4 * S);
            p.end(5 * S);
            for signal in p.read(6 * S, true) {
                assert!(
                    signal
                        .averages
                        .iter()
                        .all(|share| (0.0..=1.0).contains(share))
                );
            }
        }
    }
}
