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
        Err(failure) => {
            let dies_of = failure.dies_of;
            let code = failure.report();
            // To process 1 of a namespace the default of a signal is nothing.
            if let Some(signal) = dies_of.filter(|_| std::process::id() != 1) {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            code
        }
    })
}
