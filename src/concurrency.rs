//! How many at once, and the targets per priority (A1 to A4, B8 to B17).

use thiserror::Error;

use crate::Priority;

/// How many slots there are, and how far each priority may fill them.
///
/// `max` counts everything that runs, whatever its priority. A target holds a priority back earlier than `max` does: a caller is
/// let in only while fewer slots are taken **in all** than its target says (B8, B9). So `{max: 100, low: 20}` keeps 80 slots for
/// what is more urgent than low.
///
/// Units are slots. Every number is in 0..=2147483647 (A10). `max` 0 is legal and pauses everything (A15); a target 0 lets its
/// priority in by the lottery only (X17).
///
/// ```
/// use shmsched::{Concurrency, Priority};
///
/// let concurrency = Concurrency::max(100).target(Priority::Low, 20).target(Priority::Lowest, 5);
/// let resolved = concurrency.resolve().map(|target| target.unwrap());
/// assert_eq!(resolved, [5, 5, 20, 100, 100, 100, 100]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Concurrency {
    /// The overall limit; `None` is unlimited (A1, A4).
    pub max: Option<u32>,
    /// The configured target of each priority, lowest first; `None` follows from the others by [`resolve`](Self::resolve).
    pub targets: [Option<u32>; 7],
}

impl Concurrency {
    /// The largest number that a limit or a target may have (A10, A11).
    pub const LARGEST: u32 = i32::MAX as u32;

    /// No limit and no targets: the default (A1).
    pub const fn unlimited() -> Concurrency {
        Concurrency {
            max: None,
            targets: [None; 7],
        }
    }

    /// A limit for all priorities together, without targets (A2).
    pub const fn max(max: u32) -> Concurrency {
        Concurrency {
            max: Some(max),
            targets: [None; 7],
        }
    }

    /// Sets the target of one priority (A3).
    #[must_use]
    pub const fn target(mut self, priority: Priority, target: u32) -> Concurrency {
        self.targets[priority.index()] = Some(target);
        self
    }

    /// Checks that every number is in 0..=2147483647 (A10, X16).
    ///
    /// # Errors
    ///
    /// [`InvalidConcurrency`] names the first number that is too large.
    ///
    /// ```
    /// use shmsched::Concurrency;
    ///
    /// assert!(Concurrency::max(2147483647).validate().is_ok());
    /// assert!(Concurrency::max(2147483648).validate().is_err());
    /// ```
    pub fn validate(&self) -> Result<(), InvalidConcurrency> {
        check("concurrency", self.max)?;
        for priority in Priority::ALL {
            check(target_name(priority), self.targets[priority.index()])?;
        }
        Ok(())
    }

    /// The target of every priority, lowest first; `None` is unlimited.
    ///
    /// - A priority without a target of its own copies its neighbour just below (B11).
    /// - Above the highest configured one it takes `max` (B12).
    /// - Below the lowest configured one it takes that one's value (B13).
    /// - Nothing exceeds `max` (B15). The order among targets is not repaired (B16).
    ///
    /// A pure function of the configuration (B19).
    ///
    /// ```
    /// use shmsched::{Concurrency, Priority};
    ///
    /// let only_normal = Concurrency::max(100).target(Priority::Normal, 50);
    /// assert_eq!(only_normal.resolve().map(Option::unwrap), [50, 50, 50, 50, 100, 100, 100]);
    /// assert_eq!(Concurrency::unlimited().resolve(), [None; 7]);
    /// ```
    pub const fn resolve(&self) -> [Option<u32>; 7] {
        self.resolve_under(None)
    }

    /// As [`resolve`](Self::resolve), where `outer` is a limit of others that holds too: the smaller of it and `max` is what
    /// limits (B17). This is how a handle's own settings combine with those of its segment.
    ///
    /// ```
    /// use shmsched::{Concurrency, Priority};
    ///
    /// let own = Concurrency::max(50).target(Priority::Low, 20);
    /// assert_eq!(own.resolve_under(Some(10)), [Some(10); 7]);
    /// ```
    pub const fn resolve_under(&self, outer: Option<u32>) -> [Option<u32>; 7] {
        let limit = smaller(self.max, outer);
        let mut first = 0;
        while first < 7 && self.targets[first].is_none() {
            first += 1;
        }
        if first == 7 {
            return [limit; 7];
        }
        let mut last = 6;
        while self.targets[last].is_none() {
            last -= 1;
        }

        let mut resolved = [limit; 7];
        let mut below = self.targets[first];
        let mut index = 0;
        while index <= last {
            if self.targets[index].is_some() {
                below = self.targets[index];
            }
            resolved[index] = smaller(below, limit);
            index += 1;
        }
        resolved
    }
}

impl From<u32> for Concurrency {
    fn from(max: u32) -> Concurrency {
        Concurrency::max(max)
    }
}

/// The smaller of two limits, where `None` limits nothing.
const fn smaller(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a < b { a } else { b }),
        (Some(one), None) | (None, Some(one)) => Some(one),
        (None, None) => None,
    }
}

fn check(what: &'static str, value: Option<u32>) -> Result<(), InvalidConcurrency> {
    match value {
        Some(value) if value > Concurrency::LARGEST => Err(InvalidConcurrency { what, value }),
        _ => Ok(()),
    }
}

/// Checks targets outside a [`Concurrency`], with the same limits and the same words.
pub(crate) fn check_targets(targets: &[Option<u32>; 7]) -> Result<(), InvalidConcurrency> {
    Concurrency {
        max: None,
        targets: *targets,
    }
    .validate()
}

const fn target_name(priority: Priority) -> &'static str {
    match priority {
        Priority::Lowest => "target of lowest",
        Priority::Lower => "target of lower",
        Priority::Low => "target of low",
        Priority::Normal => "target of normal",
        Priority::High => "target of high",
        Priority::Higher => "target of higher",
        Priority::Highest => "target of highest",
    }
}

/// A limit or a target is too large (A10).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} {value} is too large: at most 2147483647, or unlimited")]
pub struct InvalidConcurrency {
    what: &'static str,
    value: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: Option<u32> = None;

    /// Builds from `[lowest, lower, low, normal, high, higher, highest]`, where -1 is "not given".
    fn of(max: Option<u32>, targets: [i64; 7]) -> Concurrency {
        Concurrency {
            max,
            targets: targets.map(|t| u32::try_from(t).ok()),
        }
    }

    #[test]
    fn the_vectors_of_the_source() {
        let some = |v: [u32; 7]| v.map(Some);
        let m = Some(100);
        let table: [(Concurrency, [Option<u32>; 7]); 16] = [
            (
                of(m, [-1, -1, 20, -1, 50, -1, -1]),
                some([20, 20, 20, 20, 50, 100, 100]),
            ), // B11, B16
            (
                of(m, [-1, -1, 20, -1, -1, -1, -1]),
                some([20, 20, 20, 100, 100, 100, 100]),
            ), // B12
            (
                of(m, [-1, -1, -1, 50, -1, -1, -1]),
                some([50, 50, 50, 50, 100, 100, 100]),
            ), // B13
            (
                of(m, [5, -1, 20, -1, -1, -1, -1]),
                some([5, 5, 20, 100, 100, 100, 100]),
            ), // B14
            (of(Some(10), [-1, -1, -1, -1, 50, -1, -1]), some([10; 7])), // B15
            (of(m, [-1; 7]), some([100; 7])),                            // B16
            (Concurrency::from(8), some([8; 7])),                        // B16
            (
                of(m, [-1, 7, -1, -1, -1, -1, -1]),
                some([7, 7, 100, 100, 100, 100, 100]),
            ), // B16
            (of(m, [-1, -1, -1, -1, -1, -1, 50]), some([50; 7])),        // B16
            (
                of(m, [5, -1, -1, -1, -1, -1, 60]),
                some([5, 5, 5, 5, 5, 5, 60]),
            ), // B16
            (
                of(m, [-1, -1, 20, 10, -1, -1, -1]),
                some([20, 20, 20, 10, 100, 100, 100]),
            ), // B16
            (
                of(INF, [5, -1, 20, -1, -1, -1, -1]),
                [Some(5), Some(5), Some(20), INF, INF, INF, INF],
            ), // B16
            (
                of(INF, [5, -1, -1, -1, -1, -1, -1]),
                [Some(5), INF, INF, INF, INF, INF, INF],
            ), // B16
            (
                of(m, [0, -1, -1, -1, -1, -1, -1]),
                some([0, 100, 100, 100, 100, 100, 100]),
            ), // X17
            (of(Some(0), [-1, -1, 20, -1, -1, -1, -1]), some([0; 7])),   // A15
            (Concurrency::default(), [INF; 7]),                          // A1
        ];
        for (configured, expected) in table {
            assert_eq!(configured.resolve(), expected, "{configured:?}");
        }
    }

    #[test]
    fn the_smaller_overall_value_limits() {
        // B17
        let own = Concurrency::max(50).target(Priority::Low, 20);
        assert_eq!(own.resolve_under(Some(10)), [Some(10); 7]);
        let own = Concurrency::max(50).target(Priority::Low, 80);
        assert_eq!(own.resolve_under(Some(100)), [Some(50); 7]);
        // B14 in a handle that names no max of its own (A6)
        let own = Concurrency::unlimited()
            .target(Priority::Low, 20)
            .target(Priority::Lowest, 5);
        assert_eq!(
            own.resolve_under(Some(100)),
            [5, 5, 20, 100, 100, 100, 100].map(Some)
        );
    }

    #[test]
    fn every_key_alone_and_in_any_combination() {
        // A3: whatever is given is what its own priority gets, and nothing exceeds max.
        for mask in 0u32..128 {
            let mut configured = Concurrency::max(100);
            for (i, priority) in Priority::ALL.into_iter().enumerate() {
                if mask & (1 << i) != 0 {
                    configured = configured.target(priority, 10 * (7 - i as u32));
                }
            }
            let resolved = configured.resolve();
            for (resolved, given) in resolved.into_iter().zip(configured.targets) {
                assert!(resolved.unwrap() <= 100);
                assert!(given.is_none() || given == resolved);
            }
        }
    }

    #[test]
    fn too_large_is_refused_by_name() {
        // A10, X16
        for ok in [0, 1, 2147483647] {
            assert_eq!(Concurrency::max(ok).validate(), Ok(()));
            assert_eq!(
                Concurrency::unlimited()
                    .target(Priority::Low, ok)
                    .validate(),
                Ok(())
            );
        }
        let error = Concurrency::max(2147483648).validate().unwrap_err();
        assert_eq!(
            error.to_string(),
            "concurrency 2147483648 is too large: at most 2147483647, or unlimited"
        );
        let error = check_targets(
            &Concurrency::unlimited()
                .target(Priority::Higher, u32::MAX)
                .targets,
        )
        .unwrap_err();
        assert!(
            error.to_string().starts_with("target of higher 4294967295"),
            "{error}"
        );
    }
}
