//! `rm`: remove a segment that nobody uses, or retire one that somebody does.

use shmsched::Segment;

use crate::cli::Rm;
use crate::exit::{self, Outcome};

pub fn rm(arguments: &Rm) -> Outcome {
    let location = arguments.segment.locate()?;
    Segment::remove(&location, arguments.force)
        .map_err(|error| exit::removing(error, &location))?;
    Ok(0)
}
