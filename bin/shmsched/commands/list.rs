//! `list`: the segments of the directory.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

use shmsched::{Location, OpenError};

use crate::cli::List;
use crate::exit::{Code, Failure, Outcome, note};
use crate::output::{self, json, style, table};

pub fn list(arguments: &List) -> Outcome {
    if arguments.names {
        return names();
    }
    let directory = Location::directory();
    let segments = locations()?.iter().filter_map(look).collect::<Vec<_>>();
    let text = match arguments.json {
        true => json::text(
            &json::List::new(directory.to_string_lossy().into_owned(), segments),
            json::Form::Pretty,
        ),
        false if is_mistaken(&directory) => {
            note(format_args!(
                "SHMSCHED_DIR: there is no directory {}; 'shmsched create' makes it",
                directory.display()
            ));
            return Ok(0);
        }
        false if segments.is_empty() => format!(
            "no segments in {}\n",
            output::literal_os(directory.as_os_str())
        ),
        false => table::list(&segments, style::of_stdout()),
    };
    output::print(&text)?;
    Ok(0)
}

/// Whether the user chose a directory that is not there. The usual one is made with the first segment.
fn is_mistaken(directory: &Path) -> bool {
    let is_chosen = std::env::var_os("SHMSCHED_DIR").is_some_and(|value| !value.is_empty());
    is_chosen && std::fs::metadata(directory).is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

/// The names as a command line takes them, unchanged, since a shell asks for them. Not those of files that no segment
/// can have, so none with a line break.
fn names() -> Outcome {
    let mut lines = Vec::new();
    for location in locations()? {
        let path = location.path();
        let name = path.file_name().unwrap_or_default();
        if Location::resolve(Some(name)).is_ok_and(|named| named == location) {
            lines.extend_from_slice(name.as_encoded_bytes());
            lines.push(b'\n');
        }
    }
    output::print_bytes(&lines)?;
    Ok(0)
}

/// Everything in the directory that may be a segment, in order of the names.
pub fn locations() -> Result<Vec<Location>, Failure> {
    let directory = Location::directory();
    let mut names: Vec<OsString> = match std::fs::read_dir(&directory) {
        // What begins with a dot is no name, but perhaps a segment being made.
        Ok(entries) => entries
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| !name.as_encoded_bytes().starts_with(b"."))
            .collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let code = if error.kind() == ErrorKind::PermissionDenied {
                Code::Permission
            } else {
                Code::Io
            };
            return Err(Failure::new(
                code,
                format_args!("cannot read {}: {error}", directory.display()),
            ));
        }
    };
    names.sort();
    let files = names
        .into_iter()
        .map(|name| Location::File(directory.join(name)));
    Ok(files.collect())
}

/// One line of the list; nothing for a file that is gone by now.
fn look(location: &Location) -> Option<json::Listed> {
    let found = match super::observer(location, false) {
        Err(OpenError::NotFound) => return None,
        opened => opened.and_then(|mut observer| observer.snapshot()),
    };
    let found = found.as_ref().map_err(|error| error.to_string());
    Some(json::Listed::new(location.name(), &location.path(), found))
}
