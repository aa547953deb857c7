//! `pipe`: standard input to standard output, one token a byte.

mod descriptor;
mod ends;
mod flow;
mod progress;
#[cfg(test)]
mod tests;
mod watch;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use shmsched::{Deadline, Limiter, Location, Priority};
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
    let segment = super::attach(&location, trust, "pipe", Deadline::Never)?;
    let limiter = segment
        .limiter()
        .map_err(|error| exit::lacking(error, &location))?;
    let priority = arguments.priority;
    let mut share = Share { limiter, priority };
    let cannot =
        |error: io::Error| Failure::new(Code::Io, format_args!("cannot catch signals: {error}"));
    let signals = Signals::catch().map_err(cannot)?;
    let (input, output) = (io::stdin(), io::stdout());
    let mut watch = Watch::new(signals, Progress::start()).map_err(cannot)?;
    let copied = Ends::new(input.as_fd(), output.as_fd())
        .and_then(|mut ends| flow::run(&mut ends, &mut share, &mut watch));
    // The progress line ends before an error begins.
    drop(watch);
    copied.map(|()| 0).map_err(|stop| failure(stop, &location))
}

/// The tokens of the segment, in turn with everybody else.
struct Share {
    limiter: Limiter,
    priority: Priority,
}

impl Budget for Share {
    fn rate(&self) -> u32 {
        self.limiter.tokens_per_second()
    }

    fn take(
        &mut self,
        tokens: u32,
        watch: &mut Watch,
        output: BorrowedFd<'_>,
    ) -> Result<bool, Stop> {
        let turn = self
            .limiter
            .acquire_until(tokens, self.priority, Deadline::Never);
        match watch.complete(turn, output, || tokens <= flow::chunk(self.rate()))? {
            None => Ok(false),
            Some(taken) => taken.map(|()| true).map_err(Stop::Tokens),
        }
    }

    fn give_back(&mut self, tokens: u32) {
        self.limiter.refund(tokens);
    }
}

fn failure(stop: Stop, location: &Location) -> Failure {
    match stop {
        Stop::Signal(signal) => Failure::dying(signal),
        Stop::ReaderGone => Failure::dying(SIGPIPE),
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
