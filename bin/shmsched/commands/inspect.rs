//! `inspect`: the picture of a segment, once or again and again.

use std::io::{self, IsTerminal};
use std::thread;

use shmsched::Snapshot;

use crate::cli::Inspect;
use crate::exit::{self, Outcome};
use crate::output::json::{self, Form};
use crate::output::{self, Reader, style, table};

/// Moves to the top left corner and clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

pub fn inspect(arguments: &Inspect) -> Outcome {
    let location = arguments.existing.locate()?;
    let mut observer = super::observe(&location, arguments.existing.trust_foreign)?;
    let redraw = arguments.watch.is_some() && !arguments.json && io::stdout().is_terminal();
    let mut first = true;
    loop {
        let snapshot = super::snapshot(&mut observer, &location)?;
        let text = show(&snapshot, arguments);
        let text = match (redraw, arguments.json, first) {
            (true, ..) => format!("{CLEAR}{text}"),
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
