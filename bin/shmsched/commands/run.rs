//! `run`: a command that has passed all gates of a segment, under a permit if one of them is a Scheduler.

mod child;
mod gates;
mod nested;
mod news;
mod queue;

use std::time::{Duration, Instant};

use shmsched::{CreateError, Deadline, Location, OpenError, Segment, Settings};

pub use self::child::field;
pub use self::nested::Marks;
use super::create::warn_of_differences;
use crate::cli::{Nested, Run};
use crate::exit::{self, Code, Failure, Outcome};
use crate::output::shortened;
use crate::signals::Signals;

/// How often a full member table is tried again: it has no line to wait in.
const TABLE_FULL: Duration = Duration::from_millis(100);

/// The longest command line recorded in the segment, for people to see: its field has 64 bytes.
const COMMAND: usize = 64;

pub fn run(arguments: &Run) -> Outcome {
    under_permit(arguments).map_err(|mut failure| {
        match arguments.conflict {
            Some(code) if failure.is_conflict() => failure.code = code,
            _ => {}
        }
        failure
    })
}

fn under_permit(arguments: &Run) -> Outcome {
    let location = arguments.existing.locate()?;
    let settings = arguments.settings.settings()?;
    let mut signals = Signals::catch()
        .map_err(|error| Failure::new(Code::Io, format_args!("cannot catch signals: {error}")))?;
    let deadline = arguments.timeout.map_or(Deadline::Never, Deadline::after);

    // Before attaching: with a full member table the outer permit waits for us, and we would wait for its slot.
    let mut marks = Marks::inherited();
    if let Some(outer) = marks.living(&location, arguments.existing.trust_foreign) {
        match arguments.nested {
            Nested::Wait => {}
            Nested::Fail => return Err(outer.refusal(&location)),
            Nested::Share => return child::run(&arguments.command, &marks, None, &mut signals),
        }
    }
    let segment = attach(
        arguments,
        &location,
        settings.as_ref(),
        deadline,
        &mut signals,
    )?;

    let Some(mut permit) = gates::pass(&segment, arguments, deadline, &mut signals)? else {
        // A start and tokens are spent: nothing is held that a member slot is needed for.
        drop(segment);
        return child::run(&arguments.command, &marks, None, &mut signals);
    };
    permit.count_hold();
    marks.add(&segment, arguments.slots);
    let kept = segment
        .keep_for_child()
        .map_err(|error| Failure::at(&location, Code::Io, error, ""))?;
    let outcome = child::run(&arguments.command, &marks, Some(kept), &mut signals);
    drop(permit);
    segment.expect_exit();
    outcome
}

/// Opens the segment, or makes it if settings are given and it is missing.
fn attach(
    arguments: &Run,
    location: &Location,
    settings: Option<&Settings>,
    deadline: Deadline,
    signals: &mut Signals,
) -> Result<Segment, Failure> {
    let options = super::options(arguments.existing.trust_foreign, shown(arguments));
    loop {
        let opened = match settings {
            None => Segment::open_with(location, &options).map_err(CreateError::Open),
            Some(settings) => {
                Segment::create_or_open(location, settings, &options).map(|(segment, created)| {
                    match created {
                        true => super::create::warn_of_logout(location),
                        false => warn_of_differences(location, &segment.differs(settings)),
                    }
                    segment
                })
            }
        };
        match opened {
            Err(CreateError::Open(OpenError::TableFull)) if !arguments.no_wait => {}
            other => return other.map_err(|error| exit::creating(error, location)),
        }
        if deadline.has_passed() {
            return Err(Failure::at(
                location,
                Code::TimedOut,
                "timed out: the member table is full",
                "'shmsched inspect' shows by whom",
            ));
        }
        pause(signals, deadline)?;
    }
}

/// Waits before the next try, unless a signal ends it.
fn pause(signals: &mut Signals, deadline: Deadline) -> Result<(), Failure> {
    let Deadline::At(until) = deadline.earlier(Deadline::after(TABLE_FULL)) else {
        unreachable!("a tenth of a second has an end")
    };
    loop {
        if let Some(signal) = signals.ending() {
            return Err(Failure::signal(signal));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        signals.sleep(Some(left));
    }
}

/// The command as people know it.
fn shown(arguments: &Run) -> String {
    let words: Vec<_> = arguments
        .command
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    shortened(&words.join(" "), COMMAND)
}
