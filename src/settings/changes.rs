//! What may be changed of a segment that is in use.

use super::{InvalidSettings, at_most_longest, check_interval, check_rate};
use crate::concurrency::{Concurrency, check_targets};
use std::time::Duration;

/// What to change in a living segment; everything that is not named stays.
///
/// ```
/// use shmsched::{Changes, Priority};
///
/// let changes = Changes::new().concurrency(Some(16)).target(Priority::Low, 4);
/// assert!(!changes.is_empty());
/// assert!(changes.validate().is_ok());
/// assert!(Changes::new().is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// The overall limit, 0..=2147483647; `Some(None)` makes it unlimited.
    pub concurrency: Option<Option<u32>>,
    /// The targets that change, 0..=2147483647, lowest first.
    pub targets: [Option<u32>; 7],
    /// The tokens per second, 1..=2147483647.
    pub rate: Option<u32>,
    /// The interval between starts, from a nanosecond to
    /// [`Settings::LONGEST_INTERVAL`](crate::Settings::LONGEST_INTERVAL).
    pub interval: Option<Duration>,
}

impl Changes {
    /// Changes nothing yet.
    pub const fn new() -> Changes {
        Changes {
            concurrency: None,
            targets: [None; 7],
            rate: None,
            interval: None,
        }
    }

    /// Sets the overall limit; `None` is unlimited.
    #[must_use]
    pub const fn concurrency(mut self, max: Option<u32>) -> Changes {
        self.concurrency = Some(max);
        self
    }

    /// Sets the target of one priority.
    #[must_use]
    pub const fn target(mut self, priority: crate::Priority, target: u32) -> Changes {
        self.targets[priority.index()] = Some(target);
        self
    }

    /// Sets the tokens per second.
    #[must_use]
    pub const fn rate(mut self, tokens_per_second: u32) -> Changes {
        self.rate = Some(tokens_per_second);
        self
    }

    /// Sets the interval between starts; one over [`Settings::LONGEST_INTERVAL`](crate::Settings::LONGEST_INTERVAL) is that.
    #[must_use]
    pub const fn interval(mut self, interval: Duration) -> Changes {
        self.interval = Some(at_most_longest(interval));
        self
    }

    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        *self == Changes::new()
    }

    /// Checks every number, by the rules of [`Settings::validate`](crate::Settings::validate).
    ///
    /// # Errors
    ///
    /// [`InvalidSettings`]: the first one that is out of its range. No change at all is no error.
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        if let Some(max) = self.concurrency {
            Concurrency {
                max,
                targets: [None; 7],
            }
            .validate()?;
        }
        check_targets(&self.targets)?;
        check_rate(self.rate)?;
        check_interval(self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Priority;

    #[test]
    fn changes_follow_the_same_ranges() {
        let good = [
            Changes::new(),
            Changes::new().concurrency(None),
            Changes::new().concurrency(Some(0)),
            Changes::new().rate(5).interval(Duration::from_millis(1)),
        ];
        for changes in good {
            assert_eq!(changes.validate(), Ok(()));
        }
        let bad = [
            Changes::new().concurrency(Some(2147483648)),
            Changes::new().target(Priority::High, 2147483648),
            Changes::new().rate(0),
            Changes::new().interval(Duration::ZERO),
        ];
        for changes in bad {
            assert!(!changes.is_empty());
            assert!(changes.validate().is_err());
        }
    }
}
