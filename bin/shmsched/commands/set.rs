//! `set`: change the settings of a segment in use.

use shmsched::{Changes, Deadline, Segment};

use crate::cli::Set;
use crate::exit::{self, Code, Failure, Outcome};

pub fn set(arguments: &Set) -> Outcome {
    let location = arguments.existing.locate()?;
    let changes = arguments.gates.changes();
    if changes.is_empty() {
        return Err(Failure::new(
            Code::Usage,
            "nothing to set: give --concurrency, --target, --rate or --interval",
        ));
    }
    let segment = super::attach(
        &location,
        arguments.existing.trust_foreign,
        "set",
        Deadline::Never,
    )?;
    targets_have_slots(&segment, &changes)?;
    segment
        .set(&changes)
        .map_err(|error| exit::setting(error, &location))?;
    Ok(0)
}

/// Targets alone make no Scheduler: it would have no limit, which nobody has asked for.
fn targets_have_slots(segment: &Segment, changes: &Changes) -> Result<(), Failure> {
    let alone = changes.targets != Changes::new().targets && changes.concurrency.is_none();
    match segment.scheduler() {
        Err(error) if alone => Err(exit::lacking(error, segment.location())),
        _ => Ok(()),
    }
}
