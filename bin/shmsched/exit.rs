//! How the program ends: one table of exit codes, and one line of text for every error.

mod errors;

use std::fmt::Display;
use std::io::{self, Write};

use shmsched::Location;

pub use self::errors::{acquiring, creating, evicting, lacking, listening, locating, opening};
pub use self::errors::{passing, queue_full, removed, removing, setting, would_wait};
use crate::output::escaped;

/// What a command gives back: the exit code, or the failure to report.
pub type Outcome = Result<u8, Failure>;

/// The exit codes that are ours; `run` otherwise passes on the code of its command, or 128+n for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// `doctor` found something, or `pressure` is above.
    Found = 1,
    /// The command line is wrong, or asks for a gate that the segment lacks.
    Usage = 64,
    /// The file is no segment, or damaged.
    Data = 65,
    /// There is no such segment.
    NoSegment = 66,
    /// It can never work as things are.
    Unavailable = 69,
    /// A bug of ours.
    Bug = 70,
    /// The queue of the Pacer is full.
    QueueFull = 71,
    /// The segment cannot be made.
    CannotCreate = 73,
    /// The system refused something else.
    Io = 74,
    /// It would have to wait, or it is in use.
    WouldWait = 75,
    /// The segment is of another format version.
    Format = 76,
    /// The system does not permit it.
    Permission = 77,
    /// Inside a permit of the same segment already.
    Nested = 78,
    /// The time to wait is over, as timeout(1).
    TimedOut = 124,
    /// The command cannot be run, as env(1).
    CannotRun = 126,
    /// The command was not found, as env(1).
    NotFound = 127,
}

/// Every code with its meaning, in order: the help and the tests read it.
pub const TABLE: [(Code, &str); 16] = [
    (
        Code::Found,
        "doctor: something is wrong or left; pressure: above the threshold",
    ),
    (
        Code::Usage,
        "usage, or a gate asked for that the segment lacks",
    ),
    (Code::Data, "not a segment, damaged, or lost"),
    (Code::NoSegment, "no such segment"),
    (
        Code::Unavailable,
        "unavailable: concurrency 0, does not fit, member table full, segment retired",
    ),
    (Code::Bug, "a bug of shmsched"),
    (
        Code::QueueFull,
        "queue full: as many wait for their start as --max-waiting allows",
    ),
    (Code::CannotCreate, "cannot create: it exists, or no space"),
    (Code::Io, "input or output error"),
    (
        Code::WouldWait,
        "would have to wait (--no-wait), or in use (rm, evict)",
    ),
    (Code::Format, "segment of another format version"),
    (Code::Permission, "permission denied"),
    (Code::Nested, "already inside a permit of this segment"),
    (Code::TimedOut, "timed out waiting"),
    (Code::CannotRun, "the command cannot be run"),
    (Code::NotFound, "the command was not found"),
];

/// The codes by which a command says something that the others do not; any may end with the other codes, too.
pub fn own_codes(verb: &str) -> &'static [Code] {
    use Code::*;
    match verb {
        "create" => &[CannotCreate],
        "run" => &[
            Unavailable,
            QueueFull,
            WouldWait,
            Nested,
            TimedOut,
            CannotRun,
            NotFound,
        ],
        "wait" => &[TimedOut],
        "pressure" | "doctor" => &[Found],
        "evict" | "rm" => &[WouldWait],
        _ => &[],
    }
}

/// The table as text for the help.
pub fn table_text() -> String {
    let mut text = String::from(
        "Exit codes (run otherwise passes on that of its command, or 128+n if signal n ended it):\n",
    );
    for (code, meaning) in TABLE {
        text.push_str(&format!("  {:>3}  {meaning}\n", code as u8));
    }
    text
}

/// An error to report: what goes to stderr, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What to say; empty to say nothing.
    text: String,
    /// The signal to die of, so that a shell's loop ends with it.
    pub dies_of: Option<i32>,
}

impl Failure {
    /// A failure that concerns no particular segment.
    pub fn new(code: Code, text: impl Display) -> Failure {
        Failure {
            code: code as u8,
            text: text.to_string(),
            dies_of: None,
        }
    }

    /// A failure of one segment: what, which segment, what to do (which may be empty).
    pub fn at(location: &Location, code: Code, what: impl Display, to_do: &str) -> Failure {
        let separator = if to_do.is_empty() { "" } else { "; " };
        Failure::new(code, format_args!("{location}: {what}{separator}{to_do}"))
    }

    /// Ends by the convention for signal `n`, silently: who sent it knows.
    pub fn signal(n: i32) -> Failure {
        Failure {
            code: 128 + n as u8,
            text: String::new(),
            dies_of: None,
        }
    }

    /// Dies of signal `n` as if it had never been caught.
    pub fn dying(n: i32) -> Failure {
        Failure {
            dies_of: Some(n),
            ..Failure::signal(n)
        }
    }

    /// No failure: everything was said and done, as after --help.
    pub fn done() -> Failure {
        Failure {
            code: 0,
            text: String::new(),
            dies_of: None,
        }
    }

    /// Whether the code is one of those that `run -E` replaces.
    pub fn is_conflict(&self) -> bool {
        self.code == Code::WouldWait as u8 || self.code == Code::TimedOut as u8
    }

    /// Writes the one line to stderr and gives the exit code.
    pub fn report(&self) -> u8 {
        if !self.text.is_empty() {
            note(&self.text);
        }
        self.code
    }
}

/// Writes one line to stderr, as errors and warnings are: in one write, control characters escaped, never a panic.
pub fn note(text: impl Display) {
    let line = format!("shmsched: {}\n", escaped(&text.to_string()));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Makes a panic, which would be a bug of ours, one line and exit code 70.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        note(format_args!(
            "internal error, please report it: {}",
            panic.to_string().replace('\n', " ")
        ));
        std::process::exit(Code::Bug as u8 as i32);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_table_is_complete_and_collides_with_nothing() {
        // case 36: none of them can be taken for success, a common code of a command, or a signal
        let codes: Vec<u8> = TABLE.iter().map(|(code, _)| *code as u8).collect();
        assert_eq!(
            codes,
            [
                1, 64, 65, 66, 69, 70, 71, 73, 74, 75, 76, 77, 78, 124, 126, 127
            ]
        );
        assert_eq!(codes.iter().collect::<HashSet<_>>().len(), codes.len());
        assert!(codes.iter().all(|code| *code < 128));
        for (code, meaning) in TABLE {
            assert!(table_text().contains(&format!("{:>3}  {meaning}", code as u8)));
        }
    }

    #[test]
    fn only_conflicts_are_replaced() {
        for (code, _) in TABLE {
            let replaced = matches!(code, Code::WouldWait | Code::TimedOut);
            assert_eq!(Failure::new(code, "x").is_conflict(), replaced);
        }
    }
}
