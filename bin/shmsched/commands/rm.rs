//! `rm`: remove a segment that nobody uses, or retire one that somebody does.

use shmsched::{RemoveError, Segment};

use crate::cli::Rm;
use crate::exit::{self, Outcome, note};
use crate::output::counted;

pub fn rm(arguments: &Rm) -> Outcome {
    let location = arguments.segment.locate()?;
    let failed = |error| exit::removing(error, &location);
    match Segment::remove(&location, false) {
        Ok(()) => return Ok(0),
        Err(error) if !arguments.force => return Err(failed(error)),
        Err(RemoveError::InUse { members }) => {
            Segment::remove(&location, true).map_err(failed)?;
            // A new segment of the name knows nothing of what they hold.
            note(format_args!(
                "{location}: warning: in use by {}: what they run goes on, beside whatever a new segment of the name lets in",
                counted(members.into(), "process")
            ));
        }
        Err(_) => Segment::remove(&location, true).map_err(failed)?,
    }
    Ok(0)
}
