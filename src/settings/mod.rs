//! What a segment is made with.

mod changes;

pub use changes::Changes;

use std::time::Duration;

use thiserror::Error;

use crate::concurrency::{Concurrency, InvalidConcurrency};

/// What a segment is made with. A gate whose setting is `None` is absent; at least one must be there.
///
/// ```
/// use std::time::Duration;
/// use shmsched::{Concurrency, Priority, Settings};
///
/// let settings = Settings::new().concurrency(Concurrency::max(8).target(Priority::Low, 2)).members(64).mode(0o660);
/// assert!(settings.validate().is_ok());
/// assert!(Settings::new().validate().is_err(), "no gate");
/// assert!(Settings::new().interval(Duration::ZERO).validate().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// The Scheduler: how many slots, and the targets.
    pub concurrency: Option<Concurrency>,
    /// The Limiter: tokens per second, 1..=2147483647 (H3, H4).
    pub rate: Option<u32>,
    /// The Pacer: the least time between two starts, from a nanosecond to [`Settings::LONGEST_INTERVAL`] (P2).
    pub interval: Option<Duration>,
    /// How many callers may wait for the Pacer, 0..=65536; fixed at creation. 1,024 unless set.
    pub max_waiting: u32,
    /// How many attachments the segment has room for, 1..=16384; fixed at creation. 1,024 unless set.
    pub members: u32,
    /// The permission bits of the file, within 0o777, exactly (no umask); fixed at creation. 0o600 unless set.
    pub mode: u32,
}

impl Settings {
    /// The most callers that may wait for a Pacer.
    pub const MOST_WAITING: u32 = 65_536;
    /// The most members that a segment may have room for.
    pub const MOST_MEMBERS: u32 = 16_384;
    /// The longest interval of a Pacer: a hundred years of 365 days.
    pub const LONGEST_INTERVAL: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

    /// No gates yet; the defaults for the rest.
    pub const fn new() -> Settings {
        Settings {
            concurrency: None,
            rate: None,
            interval: None,
            max_waiting: 1_024,
            members: 1_024,
            mode: 0o600,
        }
    }

    /// With a Scheduler.
    #[must_use]
    pub fn concurrency(mut self, concurrency: impl Into<Concurrency>) -> Settings {
        self.concurrency = Some(concurrency.into());
        self
    }

    /// With a Limiter of so many tokens per second.
    #[must_use]
    pub const fn rate(mut self, tokens_per_second: u32) -> Settings {
        self.rate = Some(tokens_per_second);
        self
    }

    /// With a Pacer of this interval; one over [`Settings::LONGEST_INTERVAL`] is that.
    #[must_use]
    pub const fn interval(mut self, interval: Duration) -> Settings {
        self.interval = Some(at_most_longest(interval));
        self
    }

    /// With room for so many callers that wait for the Pacer.
    #[must_use]
    pub const fn max_waiting(mut self, callers: u32) -> Settings {
        self.max_waiting = callers;
        self
    }

    /// With room for so many members.
    #[must_use]
    pub const fn members(mut self, members: u32) -> Settings {
        self.members = members;
        self
    }

    /// With these permission bits.
    #[must_use]
    pub const fn mode(mut self, mode: u32) -> Settings {
        self.mode = mode;
        self
    }

    /// Checks every number, before anything is made.
    ///
    /// # Errors
    ///
    /// [`InvalidSettings`]: the first one that is out of its range, or that there is no gate.
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        if self.concurrency.is_none() && self.rate.is_none() && self.interval.is_none() {
            return Err(InvalidSettings::NoGate);
        }
        if let Some(concurrency) = &self.concurrency {
            concurrency.validate()?;
        }
        check_rate(self.rate)?;
        check_interval(self.interval)?;
        if self.max_waiting > Self::MOST_WAITING {
            return Err(InvalidSettings::MaxWaiting {
                given: u64::from(self.max_waiting),
            });
        }
        if !(1..=Self::MOST_MEMBERS).contains(&self.members) {
            return Err(InvalidSettings::Members {
                given: self.members,
            });
        }
        if self.mode & !0o777 != 0 {
            return Err(InvalidSettings::Mode { given: self.mode });
        }
        Ok(())
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::new()
    }
}

fn check_rate(rate: Option<u32>) -> Result<(), InvalidSettings> {
    match rate {
        Some(given) if !(1..=i32::MAX as u32).contains(&given) => {
            Err(InvalidSettings::Rate { given })
        }
        _ => Ok(()),
    }
}

const fn at_most_longest(interval: Duration) -> Duration {
    if interval.as_nanos() > Settings::LONGEST_INTERVAL.as_nanos() {
        Settings::LONGEST_INTERVAL
    } else {
        interval
    }
}

fn check_interval(interval: Option<Duration>) -> Result<(), InvalidSettings> {
    match interval {
        Some(given) if given.is_zero() || given > Settings::LONGEST_INTERVAL => {
            Err(InvalidSettings::Interval { given })
        }
        _ => Ok(()),
    }
}

/// A setting is out of its range, or there is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidSettings {
    /// No gate is asked for.
    #[error("no gate: give at least one of concurrency, rate, interval")]
    NoGate,
    /// A limit or a target is too large.
    #[error(transparent)]
    Concurrency(#[from] InvalidConcurrency),
    /// The rate is out of 1..=2147483647 (H4).
    #[error("rate {given} is out of range: 1 to 2147483647 tokens per second")]
    Rate {
        /// What was asked for.
        given: u32,
    },
    /// The interval is zero or longer than [`Settings::LONGEST_INTERVAL`] (P2).
    #[error("interval {given:?} is out of range: longer than 0, at most 100 years")]
    Interval {
        /// What was asked for.
        given: Duration,
    },
    /// The interval of [`Settings::pacing_ms`] is infinite, not positive, or no number (P2).
    #[error("intervalMs must be finite and positive")]
    IntervalMs,
    /// The count of [`Settings::pacing_ms`] is negative, above 2^53 - 1, a fraction, or no number (P3).
    #[error("maxWaiting must be a non-negative safe integer")]
    SafeInteger,
    /// The queue of the Pacer is longer than [`Settings::MOST_WAITING`].
    #[error("max-waiting {given} is out of range: 0 to 65536")]
    MaxWaiting {
        /// What was asked for.
        given: u64,
    },
    /// The threshold of [`Scheduler::with_trace_threshold_ms`](crate::Scheduler::with_trace_threshold_ms) is negative,
    /// infinite, or no number (A9).
    #[error("traceTaskThresholdMs must be finite and non-negative")]
    TraceThresholdMs,
    /// The member table is empty or larger than [`Settings::MOST_MEMBERS`].
    #[error("members {given} is out of range: 1 to 16384")]
    Members {
        /// What was asked for.
        given: u32,
    },
    /// The mode has other bits than permissions.
    #[error("mode {given:o} is out of range: octal, at most 777")]
    Mode {
        /// What was asked for.
        given: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Priority;

    #[test]
    fn the_ranges_of_case_17() {
        let base = || Settings::new().concurrency(2);
        let good = [
            base(),
            Settings::new().concurrency(0),
            Settings::new().rate(1),
            Settings::new().rate(2147483647),
            Settings::new().interval(Duration::from_nanos(1)),
            Settings::new().interval(Settings::LONGEST_INTERVAL),
            Settings::new().interval(Duration::MAX),
            base().max_waiting(0),
            base().max_waiting(65_536),
            base().members(1),
            base().members(16_384),
            base().mode(0o777),
            base().mode(0),
        ];
        for settings in good {
            assert_eq!(settings.validate(), Ok(()), "{settings:?}");
        }
        let bad = [
            Settings::new(),
            Settings::new().rate(0),
            Settings::new().rate(2147483648),
            Settings::new().interval(Duration::ZERO),
            Settings {
                interval: Some(Duration::MAX),
                ..Settings::new()
            },
            Settings::new().concurrency(2147483648),
            Settings::new().concurrency(Concurrency::max(1).target(Priority::Low, 2147483648)),
            base().max_waiting(65_537),
            base().members(0),
            base().members(16_385),
            base().mode(0o1000),
        ];
        for settings in bad {
            let error = settings
                .validate()
                .expect_err(&format!("{settings:?}"))
                .to_string();
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn the_defaults() {
        let settings = Settings::default();
        assert_eq!(
            (settings.max_waiting, settings.members, settings.mode),
            (1_024, 1_024, 0o600)
        );
    }
}
