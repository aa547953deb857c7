//! `evict`: free the slots of an orphan.

use shmsched::{Deadline, Location};

use crate::cli::Evict;
use crate::exit::{self, Outcome};
use crate::output;

pub fn evict(arguments: &Evict) -> Outcome {
    let location =
        Location::resolve(Some(&arguments.segment)).map_err(|error| exit::locating(&error))?;
    let segment = super::attach(&location, arguments.trust_foreign, "evict", Deadline::Never)?;
    let freed = segment
        .evict(arguments.member)
        .map_err(|error| exit::evicting(error, &location))?;
    output::print(&format!(
        "{location}: member {} evicted, {} freed\n",
        arguments.member,
        output::counted(freed.into(), "slot")
    ))?;
    Ok(0)
}
