//! `set`: change the settings of a segment in use.

use shmsched::{Changes, Deadline};

use crate::cli::Set;
use crate::exit::{self, Code, Failure, Outcome};

pub fn set(arguments: &Set) -> Outcome {
    let location = arguments.existing.locate()?;
    let mut changes = Changes::new();
    if let Some(limit) = arguments.concurrency {
        changes = changes.concurrency(limit.0);
    }
    for target in &arguments.target {
        changes = changes.target(target.priority, target.slots);
    }
    if changes.is_empty() {
        return Err(Failure::new(
            Code::Usage,
            "nothing to set: give --concurrency or --target",
        ));
    }
    let segment = super::attach(
        &location,
        arguments.existing.trust_foreign,
        "set",
        Deadline::Never,
    )?;
    segment
        .set(&changes)
        .map_err(|error| exit::setting(error, &location))?;
    Ok(0)
}
