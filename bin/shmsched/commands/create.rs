//! `create`: make a segment, without attaching to it.

use shmsched::{CreateError, Location, Segment, Settings};

use crate::cli::Create;
use crate::exit::{self, Code, Failure, Outcome, note};

/// How often it looks again if others make and remove it all the time.
const ATTEMPTS: u32 = 100;

pub fn create(arguments: &Create) -> Outcome {
    let location = arguments.segment.locate()?;
    let settings = arguments.settings.settings()?.ok_or_else(|| {
        Failure::new(
            Code::Usage,
            "create needs at least one of --concurrency, --rate, --interval",
        )
    })?;
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match Segment::make(&location, &settings) {
            Ok(()) => {
                warn_of_logout(&location);
                return Ok(0);
            }
            Err(CreateError::Exists) if arguments.if_missing => match keep(&location, &settings) {
                // Removed since.
                Err(failure) if failure.code == Code::NoSegment as u8 && left > 0 => {}
                kept => return kept.map(|()| 0),
            },
            Err(error) => return Err(exit::creating(error, &location)),
        }
    }
}

/// Leaves the segment that is there alone, and says where it differs from what was asked for. Read-only: a full member
/// table is no reason to fail.
fn keep(location: &Location, settings: &Settings) -> Result<(), Failure> {
    let observer =
        super::observer(location, false).map_err(|error| exit::opening(error, location))?;
    warn_of_differences(location, &observer.differs(settings));
    Ok(())
}

/// Says in which settings an existing segment differs from those asked for.
pub fn warn_of_differences(location: &Location, differences: &[String]) {
    if !differences.is_empty() {
        let text = differences.join(", ");
        note(format_args!(
            "{location}: warning: the segment exists and is left as it is: {text}; see 'shmsched set'"
        ));
    }
}

/// Says so if the segment will be deleted behind the backs of its users.
pub fn warn_of_logout(location: &Location) {
    if let Some(stays) = location.cleared_at_logout() {
        note(format_args!(
            "{location}: warning: your last log-out deletes it (RemoveIPC of logind); one below {} stays, see SHMSCHED_DIR",
            stays.display()
        ));
    }
}
