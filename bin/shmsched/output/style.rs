//! Whether to colour, and how: only on a terminal that can, and without NO_COLOR. Text is painted by the line, after it
//! was aligned.

use std::env;
use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

/// How text for people looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    pub colour: bool,
    /// The width of the terminal; what is no terminal is as wide as it takes.
    pub columns: Option<usize>,
}

impl Style {
    /// Nothing but the text.
    pub const PLAIN: Style = Style {
        colour: false,
        columns: None,
    };

    pub fn bold(self, text: &str) -> String {
        self.painted("1", text)
    }

    pub fn warning(self, text: &str) -> String {
        self.painted("33", text)
    }

    pub fn alarm(self, text: &str) -> String {
        self.painted("31", text)
    }

    fn painted(self, code: &str, text: &str) -> String {
        match self.colour && !text.is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// The style of standard output.
pub fn of_stdout() -> Style {
    // As https://no-color.org has it: set and not empty.
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Style {
        colour: io::stdout().is_terminal()
            && !refused
            && !is_dumb()
            && !super::screen::is_monochrome(),
        columns: screen().map(|(columns, _)| columns),
    }
}

/// The columns and rows of the terminal that standard output is, if it is one and knows.
pub fn screen() -> Option<(usize, usize)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    let (columns, rows) = (size.ws_col.into(), size.ws_row.into());
    (columns > 0 && rows > 0).then_some((columns, rows))
}

/// The text without its paint.
pub fn bare(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut bare = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        bare.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    bare
}

/// Whether the terminal is one that knows no codes, or not said to be any other.
pub fn is_dumb() -> bool {
    env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_is_closed_again() {
        let colour = Style {
            colour: true,
            columns: None,
        };
        assert_eq!(bare(&(colour.bold("a") + "b" + &colour.alarm("c"))), "abc");
        assert_eq!(colour.bold("a"), "\u{1b}[1ma\u{1b}[0m");
        assert_eq!(colour.alarm(""), "");
        assert_eq!(Style::PLAIN.warning("a"), "a");
    }
}
