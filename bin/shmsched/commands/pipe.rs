//! `pipe`: standard input to standard output, one token a byte.

mod descriptor;
mod ends;
mod flow;
mod progress;
#[cfg(test)]
mod tests;
mod watch;

use std::io;
use std::os::fd::AsFd;

use shmsched::{Deadline, Location, NoGate};
use signal_hook::consts::signal::SIGPIPE;

use self::ends::Ends;
use self::flow::{Budget, Stop};
use self::progress::Progress;
use self::watch::Watch;
use crate::cli::Pipe;
use crate::exit::{self, Code, Failure, Outcome};
use crate::signals::Signals;

pub fn pipe(arguments: &Pipe) -> Outcome {
    let location = arguments.existing.locate()?;
    let trust = arguments.existing.trust_foreign;
    let _segment = super::attach(&location, trust, "pipe", Deadline::Never)?;
    Err(exit::lacking(NoGate("Limiter"), &location))
}

/// Copies all of it.
#[expect(dead_code, reason = "until a segment can have a Limiter")]
fn copy(budget: &mut impl Budget, location: &Location) -> Outcome {
    let cannot =
        |error: io::Error| Failure::new(Code::Io, format_args!("cannot catch signals: {error}"));
    let signals = Signals::catch().map_err(cannot)?;
    let (input, output) = (io::stdin(), io::stdout());
    let mut watch = Watch::new(signals, Progress::start()).map_err(cannot)?;
    let copied = Ends::new(input.as_fd(), output.as_fd())
        .and_then(|mut ends| flow::run(&mut ends, budget, &mut watch));
    // The progress line ends before an error begins.
    drop(watch);
    copied.map(|()| 0).map_err(|stop| failure(stop, location))
}

fn failure(stop: Stop, location: &Location) -> Failure {
    match stop {
        Stop::Signal(signal) => Failure::signal(signal),
        Stop::ReaderGone => Failure::signal(SIGPIPE),
        Stop::Input(error) => Failure::new(
            Code::Io,
            format_args!("cannot read standard input: {error}"),
        ),
        Stop::Output(error) => Failure::new(
            Code::Io,
            format_args!("cannot write to standard output: {error}"),
        ),
        Stop::Tokens(error) => exit::acquiring(error, location),
    }
}
