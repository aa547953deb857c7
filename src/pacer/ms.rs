//! Numbers as the source takes them: an interval in milliseconds that may have a fraction, and a count that may be
//! anything.

use super::Pacer;
use crate::error::CreateError;
use crate::segment::local;
use crate::settings::{InvalidSettings, Settings};
use std::time::Duration;

/// 2^53 - 1: up to here every whole number is a double of its own.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

impl Settings {
    /// With a Pacer, in the numbers of a configuration file or another language: milliseconds and callers, both checked here
    /// and the interval first (P4).
    ///
    /// The interval is rounded to a nanosecond, of which it is at least one, and at most
    /// [`Settings::LONGEST_INTERVAL`], so that every finite and positive number is one (P2, P34).
    ///
    /// ```
    /// use shmsched::{InvalidSettings, Settings};
    /// use std::time::Duration;
    ///
    /// let settings = Settings::new().pacing_ms(0.5, 8.0)?;
    /// assert_eq!(settings.interval, Some(Duration::from_micros(500)));
    /// assert_eq!(settings.max_waiting, 8);
    /// assert_eq!(Settings::new().pacing_ms(f64::NAN, 8.0), Err(InvalidSettings::IntervalMs));
    /// # Ok::<(), InvalidSettings>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidSettings::IntervalMs`] unless the interval is finite and positive (P2),
    /// [`InvalidSettings::SafeInteger`] unless `max_waiting` is a whole number from 0 to 2^53 - 1 (P3),
    /// [`InvalidSettings::MaxWaiting`] if it is one, but more than a segment has places for (X46).
    pub fn pacing_ms(
        mut self,
        interval_ms: f64,
        max_waiting: f64,
    ) -> Result<Settings, InvalidSettings> {
        if !interval_ms.is_finite() || interval_ms <= 0.0 {
            return Err(InvalidSettings::IntervalMs);
        }
        if max_waiting.fract() != 0.0 || !(0.0..=MAX_SAFE_INTEGER).contains(&max_waiting) {
            return Err(InvalidSettings::SafeInteger);
        }
        if max_waiting > f64::from(Self::MOST_WAITING) {
            return Err(InvalidSettings::MaxWaiting {
                given: max_waiting as u64,
            });
        }
        let longest = Self::LONGEST_INTERVAL.as_nanos() as f64;
        let nanos = (interval_ms * 1e6).round().clamp(1.0, longest);
        self.interval = Some(Duration::from_nanos(nanos as u64));
        self.max_waiting = max_waiting as u32;
        Ok(self)
    }
}

impl Pacer {
    /// [`Pacer::local`] in the source's numbers, see [`Settings::pacing_ms`]: `Pacer::local_ms(100.0, 8.0)`.
    ///
    /// # Errors
    ///
    /// [`CreateError::Invalid`] as there, or the system has no memory.
    pub fn local_ms(interval_ms: f64, max_waiting: f64) -> Result<Pacer, CreateError> {
        let settings = Settings::new().pacing_ms(interval_ms, max_waiting)?;
        Ok(Pacer::of(local(settings, None)?))
    }
}
