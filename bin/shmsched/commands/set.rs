//! `set`: change the settings of a segment in use.

use shmsched::{Changes, Deadline, Segment};

use crate::cli::Set;
use crate::exit::{self, Code, Failure, Outcome, note};
use crate::output::counted;

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
    if changes.concurrency == Some(Some(0)) {
        warn_of_waiters(&segment, arguments.existing.trust_foreign);
    }
    Ok(0)
}

/// Says so if somebody stands in line for slots, of which there are none now. The dead do not count.
fn warn_of_waiters(segment: &Segment, trust_foreign: bool) {
    let location = segment.location();
    let seen = super::observer(location, trust_foreign).and_then(|mut it| it.snapshot());
    let waiters = seen.ok().and_then(|seen| seen.scheduler);
    let waiters = waiters.map_or(0, |scheduler| scheduler.waiters);
    if waiters > 0 {
        note(format_args!(
            "{location}: warning: no slot for {} until the concurrency is raised again with 'shmsched set --concurrency'",
            counted(waiters.into(), "waiter")
        ));
    }
}

/// Targets alone make no Scheduler: it would have no limit, which nobody has asked for.
fn targets_have_slots(segment: &Segment, changes: &Changes) -> Result<(), Failure> {
    let alone = changes.targets != Changes::new().targets && changes.concurrency.is_none();
    match segment.scheduler() {
        Err(error) if alone => Err(exit::lacking(error, segment.location())),
        _ => Ok(()),
    }
}
