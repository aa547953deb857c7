//! Where a segment lives: names, paths and `shm:` names.

mod directory;
mod logind;

use directory::{make_chosen, make_private};
use logind::logind_clears;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::{geteuid, getuid};
use thiserror::Error;

use crate::escape::escaped;

/// Where the kernel's POSIX shared memory objects are files.
const SHM_DIRECTORY: &str = "/dev/shm";
/// The longest name in bytes; leaves room in a file name for what a temporary one adds.
const LONGEST_NAME: usize = 200;

/// Where a segment is.
///
/// Text becomes a location by these rules ([`Location::resolve`]):
///
/// | text | location |
/// | --- | --- |
/// | `NAME` | the file `NAME` in [`Location::directory`] |
/// | has a slash | that path, as it is; need not be UTF-8 |
/// | `shm:NAME` | the POSIX shared memory object `/NAME` |
///
/// A name has 1 to 200 bytes, no control characters and no leading dot. That of a file has no leading dash either: it
/// would be taken for an option.
///
/// ```
/// use std::path::Path;
/// use shmsched::Location;
///
/// let location = Location::resolve(Some("/tmp/x.seg".as_ref()))?;
/// assert_eq!(location.path(), Path::new("/tmp/x.seg"));
/// assert_eq!(Location::resolve(Some("shm:thumbs".as_ref()))?, Location::Shm("thumbs".into()));
/// assert!(Location::resolve(Some("..".as_ref())).is_err());
/// # Ok::<(), shmsched::LocationError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A file, mapped with the crate `memmap2`.
    File(PathBuf),
    /// A POSIX shared memory object, without the leading slash; mapped with the crate `shared_memory`.
    Shm(String),
}

impl Location {
    /// Finds the location that `text` means; without a text that of `$SHMSCHED_SEGMENT`, and without that one the name
    /// `default`. An empty variable counts as absent. Touches no file.
    ///
    /// # Errors
    ///
    /// [`LocationError`] if it is not a possible name.
    pub fn resolve(text: Option<&OsStr>) -> Result<Location, LocationError> {
        match text {
            Some(text) => Location::parse(text),
            None => match variable("SHMSCHED_SEGMENT") {
                Some(text) => Location::parse(&text),
                None => Location::parse(OsStr::new("default")),
            },
        }
    }

    /// The directory in which plain names are files: `$SHMSCHED_DIR`, else `/dev/shm/shmsched-UID` of the effective user.
    pub fn directory() -> PathBuf {
        match variable("SHMSCHED_DIR") {
            Some(directory) => PathBuf::from(directory),
            None => default_directory(),
        }
    }

    /// The file that a location is, also of a `shm:` one.
    pub fn path(&self) -> PathBuf {
        match self {
            Location::File(path) => path.clone(),
            Location::Shm(name) => Path::new(SHM_DIRECTORY).join(name),
        }
    }

    /// What a person calls it, and what [`Location::resolve`] reads back if it is UTF-8: the plain name of a file in
    /// [`Location::directory`], the path of another, `shm:NAME`. Invalid UTF-8 is replaced; other characters are as they are.
    pub fn name(&self) -> String {
        match self {
            Location::Shm(name) => format!("shm:{name}"),
            Location::File(path) => match path.file_name() {
                Some(file)
                    if path.parent() == Some(Location::directory().as_path())
                        && check_file_name(file).is_ok() =>
                {
                    file.to_string_lossy().into_owned()
                }
                _ => path.to_string_lossy().into_owned(),
            },
        }
    }

    /// Makes sure that the directory of a plain name is there and safe. For a `shm:` name or a path elsewhere it does nothing.
    ///
    /// `/dev/shm/shmsched-UID` is made with mode 0700. If it is there, it must be a real directory that belongs to this user
    /// and that nobody else can write to: `/dev/shm` is open to everybody, so another user may have made it first.
    /// `$SHMSCHED_DIR` is made, with its parents, if it is missing, and otherwise taken as it is: a group may share it.
    ///
    /// # Errors
    ///
    /// [`LocationError::Directory`] if it is not safe, [`LocationError::DirectoryIo`] if it cannot be made or read.
    pub fn prepare_directory(&self) -> Result<(), LocationError> {
        let directory = Location::directory();
        match self {
            Location::File(path) if path.parent() == Some(directory.as_path()) => {
                match variable("SHMSCHED_DIR") {
                    Some(_) => make_chosen(&directory),
                    None => make_private(&directory, geteuid().as_raw()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether logind removes this segment when its user logs out for the last time (`RemoveIPC`, on by default): the segment
    /// is under `/dev/shm`, the user is a person (uid 1000 or more), logind runs here and its settings do not say otherwise.
    /// If so, gives a directory whose files stay, for `$SHMSCHED_DIR`.
    pub fn cleared_at_logout(&self) -> Option<PathBuf> {
        if !self.path().starts_with(SHM_DIRECTORY)
            || !logind_clears(Path::new("/"), getuid().as_raw())
        {
            return None;
        }
        let state = variable("XDG_STATE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        let home = variable("HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        Some(match (state, home) {
            (Some(state), _) => state.join("shmsched"),
            (None, Some(home)) => home.join(".local/state/shmsched"),
            (None, None) => PathBuf::from(format!("/var/tmp/shmsched-{}", getuid().as_raw())),
        })
    }

    fn parse(text: &OsStr) -> Result<Location, LocationError> {
        if let Some(name) = text.as_bytes().strip_prefix(b"shm:") {
            let name = OsStr::from_bytes(name);
            check_name(name)?;
            return match name.to_str() {
                Some(name) => Ok(Location::Shm(name.to_owned())),
                None => Err(LocationError::name(name, "a shm: name must be UTF-8")),
            };
        }
        if text.as_bytes().contains(&b'/') {
            return Ok(Location::File(PathBuf::from(text)));
        }
        check_file_name(text)?;
        Ok(Location::File(Location::directory().join(text)))
    }
}

/// The location as in [`Location::name`], with control characters and invisible ones escaped, so that it fits in one line
/// of a message.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(&self.name()))
    }
}

/// A segment cannot be at this place.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LocationError {
    /// The name is not a possible one.
    #[error("'{name}' is no segment name: {reason}")]
    Name {
        /// The name, shortened and escaped.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The directory of plain names is not safe to use.
    #[error("{} is not safe: {reason}; remove it, or set SHMSCHED_DIR to a directory of your own", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The directory of plain names cannot be made or read.
    #[error("cannot prepare the directory {}: {source}", path.display())]
    DirectoryIo {
        /// The directory.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
}

impl LocationError {
    fn name(name: &OsStr, reason: &'static str) -> LocationError {
        const SHOWN: usize = 40;
        let text = name.to_string_lossy();
        let mut shown: String = text.chars().take(SHOWN).collect();
        if text.chars().nth(SHOWN).is_some() {
            shown.push_str("...");
        }
        LocationError::Name {
            name: escaped(&shown),
            reason,
        }
    }

    fn io(path: &Path, source: impl Into<io::Error>) -> LocationError {
        LocationError::DirectoryIo {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

/// An environment variable that is set and not empty.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn default_directory() -> PathBuf {
    Path::new(SHM_DIRECTORY).join(format!("shmsched-{}", geteuid().as_raw()))
}

fn check_name(name: &OsStr) -> Result<(), LocationError> {
    let bytes = name.as_bytes();
    let reason = if bytes.is_empty() {
        "it is empty"
    } else if bytes.len() > LONGEST_NAME {
        "it is longer than 200 bytes"
    } else if bytes[0] == b'.' {
        "it begins with a dot"
    } else if bytes.contains(&b'/') {
        "it has a slash"
    } else if name.to_string_lossy().chars().any(char::is_control) {
        "it has control characters"
    } else {
        return Ok(());
    };
    Err(LocationError::name(name, reason))
}

/// Stricter than with `shm:` in front: `run -- NAME` has no place for one that looks like an option.
fn check_file_name(name: &OsStr) -> Result<(), LocationError> {
    match name.as_bytes().first() {
        Some(b'-') => Err(LocationError::name(
            name,
            "it begins with a dash, as options do; for a file of the current directory put ./ before it",
        )),
        _ => check_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, LocationError> {
        Location::parse(OsStr::new(text))
    }

    #[test]
    fn names_paths_and_shm() {
        assert_eq!(
            parse("thumbs").unwrap(),
            Location::File(Location::directory().join("thumbs"))
        );
        assert_eq!(
            parse("./thumbs").unwrap(),
            Location::File(PathBuf::from("./thumbs"))
        );
        assert_eq!(
            parse("/a/../b").unwrap(),
            Location::File(PathBuf::from("/a/../b"))
        );
        let shm = parse("shm:thumbs").unwrap();
        assert_eq!(shm, Location::Shm("thumbs".into()));
        assert_eq!(shm.path(), Path::new("/dev/shm/thumbs"));
        assert_eq!(
            (shm.name(), shm.to_string()),
            ("shm:thumbs".into(), "shm:thumbs".into())
        );
        assert_eq!(parse("thumbs").unwrap().name(), "thumbs");
        assert_eq!(parse("/tmp/x").unwrap().name(), "/tmp/x");
        assert_eq!(parse("/tmp/a\nb").unwrap().to_string(), "/tmp/a\\nb");
    }

    #[test]
    fn what_looks_like_an_option_is_a_path_or_nothing() {
        for text in ["-x", "-", "--"] {
            assert!(parse(text).is_err(), "{text}");
            assert!(parse(&format!("./{text}")).is_ok());
        }
        assert_eq!(parse("shm:-x").unwrap().name(), "shm:-x");
        assert_eq!(parse("x-y").unwrap().name(), "x-y");
        // What a directory has of that name is called by its path, which is read back.
        let there = Location::File(Location::directory().join("-x"));
        assert_eq!(parse(&there.name()).unwrap(), there);
    }

    #[test]
    fn invalid_utf8_is_no_error_in_a_file_name() {
        let name = OsStr::from_bytes(b"a\xffb");
        let location = Location::parse(name).unwrap();
        assert_eq!(location.path().file_name(), Some(name));
        assert_eq!(location.name(), "a\u{fffd}b");
        assert!(Location::parse(OsStr::from_bytes(b"/tmp/\xff")).is_ok());
        assert!(Location::parse(OsStr::from_bytes(b"shm:\xff")).is_err());
    }

    #[test]
    fn bad_names_give_one_short_line() {
        // case 35
        let long = "x".repeat(5000);
        for text in [
            "",
            ".",
            "..",
            ".hidden",
            "-x",
            "a\nb",
            "a\u{1b}[31m",
            "shm:",
            "shm:..",
            "shm:a/b",
            &long,
            &"y".repeat(201),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(
                error.len() < 200 && !error.chars().any(char::is_control),
                "{error}"
            );
        }
        assert!(parse(&"y".repeat(200)).is_ok());
    }

    #[test]
    fn other_places_are_left_alone() {
        Location::File(PathBuf::from("/no/such/x"))
            .prepare_directory()
            .unwrap();
        Location::Shm("x".into()).prepare_directory().unwrap();
    }

    #[test]
    fn only_shared_memory_is_cleared() {
        assert_eq!(
            Location::File(PathBuf::from("/var/tmp/x")).cleared_at_logout(),
            None
        );
    }
}
