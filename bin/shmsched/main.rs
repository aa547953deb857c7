//! The `shmsched` command line: parse, dispatch, exit.

mod cli;
mod commands;
mod exit;
mod output;
mod signals;
mod units;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The standard library has opened /dev/null on whichever of 0, 1, 2 was closed, so no segment can land there.
    exit::report_panics();
    let outcome = cli::parse().and_then(commands::dispatch);
    ExitCode::from(match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(),
    })
}
