//! `inspect`: the picture of a segment, once or again and again.

use std::io::{self, IsTerminal};
use std::thread;

use shmsched::Snapshot;

use crate::cli::Inspect;
use crate::exit::{self, Outcome};
use crate::output::json::{self, Form};
use crate::output::{self, Reader, counted, fitted, style, table, width};

/// Moves to the top left corner of the terminal and clears everything from there on; what has scrolled away stays.
const CLEAR: &str = "\x1b[H\x1b[J";

pub fn inspect(arguments: &Inspect) -> Outcome {
    let location = arguments.existing.locate()?;
    let mut observer = super::observe(&location, arguments.existing.trust_foreign)?;
    let redraw = arguments.watch.is_some()
        && !arguments.json
        && io::stdout().is_terminal()
        && !style::is_dumb();
    let mut first = true;
    loop {
        let snapshot = super::snapshot(&mut observer, &location)?;
        let text = show(&snapshot, arguments);
        let text = match (redraw, arguments.json, first) {
            (true, _, first) => redrawn(&text, style::screen(), first),
            (false, false, false) => format!("\n{text}"),
            _ => text,
        };
        first = false;
        let reader = output::print(&text)?;
        let Some(pause) = arguments.watch else {
            return Ok(0);
        };
        if reader == Reader::Gone {
            return Ok(0);
        }
        thread::sleep(pause);
        if observer.segment_gone() {
            return Err(exit::removed(&location));
        }
        // The first write of anybody makes another file of it, with the old name and inode: this one shows nothing more.
        if snapshot.segment.filesystem.starts_with("overlay") {
            observer = super::observe(&location, arguments.existing.trust_foreign)?;
        }
    }
}

fn show(snapshot: &Snapshot, arguments: &Inspect) -> String {
    match (arguments.json, arguments.watch) {
        (false, _) => table::inspect(snapshot, style::of_stdout()),
        (true, None) => json::text(&json::Inspect::new(snapshot), Form::Pretty),
        (true, Some(_)) => json::text(&json::Inspect::new(snapshot), Form::Line),
    }
}

/// The text in place of what is on the screen, as much of it as there is room for. What was there before the first goes where
/// the terminal keeps what has scrolled away, and that stays.
fn redrawn(text: &str, screen: Option<(usize, usize)>, first: bool) -> String {
    let text = match screen {
        Some((columns, rows)) => cut(text, columns, rows),
        None => text.to_owned(),
    };
    let away = match screen {
        Some((_, rows)) if first => "\n".repeat(rows),
        _ => String::new(),
    };
    format!("{away}{CLEAR}{text}")
}

/// The lines for which a screen has room, and one that says if that is not all. Its last row is left to the cursor.
fn cut(text: &str, columns: usize, rows: usize) -> String {
    let height = |line: &str| width(&style::bare(line)).div_ceil(columns).max(1);
    let room = rows.saturating_sub(1);
    if text.lines().map(height).sum::<usize>() <= room {
        return text.to_owned();
    }
    let mut used = 0;
    let fits = |line: &&str| {
        used += height(line);
        used < room
    };
    let shown: Vec<&str> = text.lines().take_while(fits).collect();
    let left = counted((text.lines().count() - shown.len()) as u64, "more line");
    let more = fitted(&format!("... {left}: the window is too low"), columns);
    let lines = shown.into_iter().chain([more.as_str()]);
    lines.map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_window_has_the_beginning_and_says_so() {
        let text = "one\n\ntwo\nthree four five\nsix\n";
        assert_eq!(cut(text, 80, 6), text);
        assert_eq!(
            cut(text, 40, 5),
            "one\n\ntwo\n... 2 more lines: the window is too low\n"
        );
        // A line that needs two rows.
        assert_eq!(cut(text, 10, 6), "one\n\ntwo\n... 2 m...\n");
        assert_eq!(cut(text, 10, 7), text);
        let paint = style::Style {
            colour: true,
            columns: None,
        };
        let painted = paint.bold("0123456789") + "\n";
        assert_eq!(cut(&painted, 10, 2), painted, "paint takes no room");
        for rows in 0..3 {
            assert_eq!(
                cut(text, 40, rows),
                "... 5 more lines: the window is too low\n"
            );
        }
    }

    #[test]
    fn what_has_scrolled_away_stays() {
        let text = redrawn("a\nb\n", Some((80, 3)), true);
        assert_eq!(text, "\n\n\n\x1b[H\x1b[Ja\nb\n");
        let again = redrawn("a\nb\n", Some((80, 3)), false);
        assert_eq!(again, text.trim_start());
        assert_eq!(redrawn("a\n", None, true), "\x1b[H\x1b[Ja\n");
    }
}
