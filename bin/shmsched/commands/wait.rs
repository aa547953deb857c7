//! `wait`: until nothing is held and nobody waits.

use shmsched::{AcquireError, Deadline};

use crate::cli::Wait;
use crate::exit::{self, Code, Failure, Outcome};

pub fn wait(arguments: &Wait) -> Outcome {
    let location = arguments.existing.locate()?;
    let deadline = arguments.timeout.map_or(Deadline::Never, Deadline::after);
    let segment = super::attach(
        &location,
        arguments.existing.trust_foreign,
        "wait",
        deadline,
    )?;
    match segment.wait_idle(deadline) {
        Ok(()) => Ok(0),
        Err(AcquireError::TimedOut) => Err(Failure::at(
            &location,
            Code::TimedOut,
            "still in use",
            "'shmsched inspect' shows by whom",
        )),
        Err(error) => Err(exit::acquiring(error, &location)),
    }
}
