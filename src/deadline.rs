//! Until when a caller is ready to wait.

use std::time::{Duration, Instant};

/// The end of a wait: never, or a moment of the monotonic clock.
///
/// Made from a [`Duration`] (from now on) or an [`Instant`]. A duration too long for the clock is [`Deadline::Never`].
///
/// A wait whose deadline has passed takes what can be had at once, and else ends with
/// [`TimedOut`](crate::AcquireError::TimedOut).
///
/// ```
/// use std::time::{Duration, Instant};
/// use shmsched::Deadline;
///
/// let soon: Deadline = Duration::from_millis(50).into();
/// assert!(!soon.has_passed());
/// assert_eq!(Deadline::from(Duration::MAX), Deadline::Never);
/// assert!(Deadline::from(Instant::now()).has_passed());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deadline {
    /// Wait as long as it takes.
    #[default]
    Never,
    /// Wait until this moment at most. In the past: do not wait at all.
    At(Instant),
}

impl Deadline {
    /// The moment `wait` from now, or [`Deadline::Never`] if the clock cannot say that.
    pub fn after(wait: Duration) -> Deadline {
        Instant::now()
            .checked_add(wait)
            .map_or(Deadline::Never, Deadline::At)
    }

    /// What is left of the wait: zero when it has passed, `None` when it never does.
    pub fn remaining(self) -> Option<Duration> {
        match self {
            Deadline::Never => None,
            Deadline::At(moment) => Some(moment.saturating_duration_since(Instant::now())),
        }
    }

    /// The moment in the units of the segment's clock; `None` never comes.
    pub(crate) fn stamp(self) -> Option<u64> {
        let left = self.remaining()?;
        let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        Some(crate::sys::clock::now().saturating_add(left))
    }

    /// Whether the moment has come.
    pub fn has_passed(self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// The earlier of the two.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use shmsched::Deadline;
    ///
    /// let (soon, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    /// assert_eq!(Deadline::At(later).earlier(Deadline::At(soon)), Deadline::At(soon));
    /// assert_eq!(Deadline::Never.earlier(Deadline::At(soon)), Deadline::At(soon));
    /// ```
    #[must_use]
    pub fn earlier(self, other: Deadline) -> Deadline {
        match (self, other) {
            (Deadline::Never, one) | (one, Deadline::Never) => one,
            (Deadline::At(a), Deadline::At(b)) => Deadline::At(a.min(b)),
        }
    }
}

impl From<Duration> for Deadline {
    fn from(wait: Duration) -> Deadline {
        Deadline::after(wait)
    }
}

impl From<Instant> for Deadline {
    fn from(moment: Instant) -> Deadline {
        Deadline::At(moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_never_passes() {
        assert!(!Deadline::Never.has_passed());
        assert_eq!(Deadline::Never.remaining(), None);
        assert_eq!(Deadline::default(), Deadline::Never);
    }

    #[test]
    fn zero_has_passed_at_once() {
        assert!(Deadline::after(Duration::ZERO).has_passed());
        let left = Deadline::after(Duration::from_secs(60))
            .remaining()
            .unwrap();
        assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60));
    }

    #[test]
    fn longer_than_the_clock_is_never() {
        assert_eq!(Deadline::after(Duration::MAX), Deadline::Never);
    }
}
