//! `demo`: six processes share two slots over real work, hashing files, and one of them is killed on the way.

mod crew;
mod files;
mod report;
mod worker;

use std::io::{self, IsTerminal};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use shmsched::{Location, Segment, Settings};

use self::crew::Crew;
use self::report::Report;
pub use self::worker::worker;
use crate::exit::{self, Code, Failure, Outcome, note};
use crate::output::{self, Reader};
use crate::signals::Signals;

/// The slots of the budget.
const BUDGET: u32 = 2;
/// The processes that share it.
const WORKERS: usize = 6;
/// How long new jobs are handed out.
const SHIFT: Duration = Duration::from_secs(6);
/// When one of the workers is killed.
const KILL: Duration = Duration::from_secs(2);
/// When the demo gives up on jobs that do not end.
const END: Duration = Duration::from_secs(13);
/// How often it shows the counters on a terminal, and elsewhere.
const REDRAW: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

pub fn demo() -> Outcome {
    let mut signals = Signals::catch().map_err(|error| Failure::new(Code::Io, error))?;
    let segment = Temporary::create()?;
    let location = &segment.0;
    let trouble = |error: io::Error| Failure::at(location, Code::Io, error, "");
    let mut crew = Crew::hire(location, WORKERS).map_err(trouble)?;
    let mut observer = super::observe(location, false)?;
    let mut report = Report::new(io::stdout().is_terminal());
    let mut reader = output::print(&format!(
        "{WORKERS} processes hash files; at most {BUDGET} at once, the urgent first, says the segment \"{location}\".\n\
         Meanwhile, in another terminal: shmsched inspect {location} --watch\n\n"
    ))?;

    let begun = Instant::now();
    let pause = if report.redraws() { REDRAW.0 } else { REDRAW.1 };
    let mut due = Duration::ZERO;
    while begun.elapsed() < END {
        if let Some(signal) = signals.ending() {
            return Err(Failure::signal(signal));
        }
        let now = begun.elapsed();
        if now < SHIFT {
            crew.hand_out_jobs();
        } else if crew.is_idle() {
            break;
        }
        if now >= KILL && crew.killed.is_none() {
            crew.kill_one().map_err(trouble)?;
        }
        match crew.hear(Duration::from_millis(20)) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        crew.replace_the_dead(location).map_err(trouble)?;
        if now >= due && reader == Reader::Listens {
            due = now + pause;
            let snapshot = super::snapshot(&mut observer, location)?;
            reader = output::print(&report.progress(&crew, &snapshot, now))?;
        }
    }

    let done = crew.is_idle();
    let last = super::snapshot(&mut observer, location)?;
    let reclaimed = last
        .scheduler
        .as_ref()
        .map_or(0, |scheduler| scheduler.reclaimed);
    let verdict = crew.verdict(BUDGET, done, reclaimed);
    let last = if report.redraws() {
        report.progress(&crew, &last, begun.elapsed())
    } else {
        String::new()
    };
    drop(crew);
    drop(segment);
    if reader == Reader::Listens {
        output::print(&(last + &verdict.text()))?;
    }
    if verdict.is_good() {
        Ok(0)
    } else {
        Err(Failure::new(Code::Found, "the demo went wrong, see above"))
    }
}

/// A segment that is removed in the end, whatever the end is.
struct Temporary(Location);

impl Temporary {
    fn create() -> Result<Temporary, Failure> {
        let name = format!("demo-{}", std::process::id());
        let location =
            Location::resolve(Some(name.as_ref())).map_err(|error| exit::locating(&error))?;
        Segment::make(&location, &Settings::new().concurrency(BUDGET))
            .map_err(|error| exit::creating(error, &location))?;
        Ok(Temporary(location))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = Segment::remove(&self.0, true) {
            note(format_args!("{}: left behind: {error}", self.0));
        }
    }
}
