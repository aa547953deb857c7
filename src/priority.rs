//! The seven priorities (B1 to B7).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// How urgent a piece of work is: seven levels, from -3 to 3 (B1).
///
/// Every gate uses the same levels. The greater value is the more urgent one, so `Priority::High > Priority::Normal`. Where a
/// caller names none it is [`Priority::Normal`] (B4).
///
/// ```
/// use shmsched::Priority;
///
/// let header: Option<&str> = Some("high");
/// let priority = header.map_or(Ok(Priority::Normal), str::parse)?;
/// assert_eq!(priority.value(), 1);
/// # Ok::<(), shmsched::ParsePriorityError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i8)]
pub enum Priority {
    /// -3
    Lowest = -3,
    /// -2
    Lower = -2,
    /// -1
    Low = -1,
    /// 0, the default
    #[default]
    Normal = 0,
    /// 1
    High = 1,
    /// 2
    Higher = 2,
    /// 3
    Highest = 3,
}

impl Priority {
    /// All levels, lowest first: the order of every array per priority (B20).
    pub const ALL: [Priority; 7] = [
        Priority::Lowest,
        Priority::Lower,
        Priority::Low,
        Priority::Normal,
        Priority::High,
        Priority::Higher,
        Priority::Highest,
    ];

    /// The level as a number in -3..=3.
    pub const fn value(self) -> i32 {
        self as i32
    }

    /// The place of this level in an array per priority: [`value`](Self::value) + 3, so 0..=6 (B20).
    ///
    /// ```
    /// use shmsched::Priority;
    ///
    /// for (index, priority) in Priority::ALL.into_iter().enumerate() {
    ///     assert_eq!(priority.index(), index);
    ///     assert_eq!(Priority::from_index(index), Some(priority));
    /// }
    /// assert_eq!(Priority::from_index(7), None);
    /// ```
    pub const fn index(self) -> usize {
        (self as i32 + 3) as usize
    }

    /// The level at a place of an array per priority; `None` from 7 on.
    pub const fn from_index(index: usize) -> Option<Priority> {
        match index {
            0 => Some(Priority::Lowest),
            1 => Some(Priority::Lower),
            2 => Some(Priority::Low),
            3 => Some(Priority::Normal),
            4 => Some(Priority::High),
            5 => Some(Priority::Higher),
            6 => Some(Priority::Highest),
            _ => None,
        }
    }

    /// The name, in lower case: `lowest`, `lower`, `low`, `normal`, `high`, `higher`, `highest`.
    pub const fn name(self) -> &'static str {
        match self {
            Priority::Lowest => "lowest",
            Priority::Lower => "lower",
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
            Priority::Higher => "higher",
            Priority::Highest => "highest",
        }
    }
}

/// Reads a priority from text that came from outside, such as a request header (B5, B6).
///
/// Accepted are the seven names exactly as [`Priority::name`] writes them, and one decimal digit 0 to 3 with an optional sign
/// (X22). There is no fallback: what an absent value means is for the caller to say.
///
/// ```
/// use shmsched::{Priority, parse_priority};
///
/// assert_eq!(parse_priority("lowest"), Ok(Priority::Lowest));
/// assert_eq!(parse_priority("-3"), Ok(Priority::Lowest));
/// assert!(parse_priority("urgent").is_err());
/// assert!(parse_priority("4").is_err());
/// ```
///
/// # Errors
///
/// [`ParsePriorityError`] for everything else: other letter case, blanks, fractions, numbers out of range.
pub fn parse_priority(text: &str) -> Result<Priority, ParsePriorityError> {
    text.parse()
}

impl FromStr for Priority {
    type Err = ParsePriorityError;

    fn from_str(text: &str) -> Result<Priority, ParsePriorityError> {
        if let Some(named) = Priority::ALL.into_iter().find(|p| p.name() == text) {
            return Ok(named);
        }
        let value = match text.as_bytes() {
            [digit @ b'0'..=b'3'] | [b'+', digit @ b'0'..=b'3'] => i32::from(digit - b'0'),
            [b'-', digit @ b'0'..=b'3'] => -i32::from(digit - b'0'),
            _ => return Err(ParsePriorityError::new(text)),
        };
        Priority::try_from(value)
    }
}

impl TryFrom<i32> for Priority {
    type Error = ParsePriorityError;

    fn try_from(value: i32) -> Result<Priority, ParsePriorityError> {
        Priority::ALL
            .into_iter()
            .find(|p| p.value() == value)
            .ok_or_else(|| ParsePriorityError::new(&value.to_string()))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text or number is no priority.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' is no priority: use a name from lowest to highest, or -3 to 3")]
pub struct ParsePriorityError {
    text: String,
}

impl ParsePriorityError {
    /// Keeps what was given, shortened and without control characters, so that the message stays one readable line.
    fn new(text: &str) -> ParsePriorityError {
        const SHOWN: usize = 40;
        let mut shown: String = text
            .chars()
            .take(SHOWN)
            .flat_map(char::escape_debug)
            .collect();
        if text.chars().nth(SHOWN).is_some() {
            shown.push_str("...");
        }
        ParsePriorityError { text: shown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_places_agree() {
        // B1, B2, B20
        let names = [
            "lowest", "lower", "low", "normal", "high", "higher", "highest",
        ];
        for (index, name) in names.into_iter().enumerate() {
            let value = index as i32 - 3;
            let priority: Priority = name.parse().unwrap();
            assert_eq!(priority.to_string(), name);
            assert_eq!(priority.value(), value);
            assert_eq!(priority.index(), index);
            assert_eq!(Priority::from_index(index), Some(priority));
            assert_eq!(Priority::try_from(value), Ok(priority));
            assert_eq!(value.to_string().parse(), Ok(priority));
        }
        assert_eq!(Priority::from_index(7), None);
        assert_eq!(Priority::default(), Priority::Normal);
        assert!(Priority::ALL.is_sorted());
        assert!(Priority::Highest > Priority::Lowest);
        assert_eq!("+1".parse(), Ok(Priority::High));
    }

    #[test]
    fn everything_else_is_refused() {
        // X22
        let long = "x".repeat(5000);
        let wrong = [
            "", " ", "High", "LOW", "urgent", "4", "-4", "1.0", "01", "-", "+", "--1", " 1", "1 ",
            "nan", "\u{0661}", "hi\ngh", &long,
        ];
        for text in wrong {
            let error = text.parse::<Priority>().unwrap_err().to_string();
            assert!(error.len() < 200 && !error.contains('\n'), "{error}");
        }
        for value in [-4, 4, i32::MIN, i32::MAX] {
            assert!(Priority::try_from(value).is_err());
        }
    }

    #[test]
    fn padding_is_honoured() {
        assert_eq!(format!("{:<8}|", Priority::Low), "low     |");
    }
}
