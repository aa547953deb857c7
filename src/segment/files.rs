//! The descriptors of a segment and the bytes that are locked on them.
//!
//! Locks lie far behind the segment's end, one byte each: [`ATTACHING`], shared by whoever attaches, exclusive for
//! who resets or removes; and one per member slot, held by the member for as long as it lives.

use super::views::Views;
use crate::error::OpenError;
use crate::layout::{Checked, Header, Map, Unusable};
use crate::location::Location;
use crate::sys::file::{self, Identity, Refusal};
use crate::sys::lock::{self, Mode};
use crate::sys::mapping::{Mapping, lend};
use crate::sys::sigbus;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The byte of those who attach, reset or remove.
pub(crate) const ATTACHING: u64 = 1 << 40;
/// The byte of member slot 0.
pub(crate) const MEMBERS: u64 = ATTACHING + 1;

/// Opens a segment's file, as one that we may use.
pub(crate) fn open(location: &Location, writable: bool, trust: bool) -> Result<File, OpenError> {
    file::open(&location.path(), writable, trust).map_err(refused)
}

pub(crate) fn refused(refusal: Refusal) -> OpenError {
    match refusal {
        Refusal::Missing => OpenError::NotFound,
        Refusal::Permission => OpenError::Permission,
        Refusal::ForeignOwner { uid } => OpenError::Foreign { uid },
        Refusal::Io(error) => OpenError::Io(error),
        other => OpenError::NotASegment(other.to_string()),
    }
}

/// Takes the attaching byte, waiting for short holders; a stopped one makes it an error.
pub(crate) fn lock_attaching(file: &File, mode: Mode) -> Result<bool, io::Error> {
    let until = Instant::now() + Duration::from_secs(2);
    let mut pause = Duration::from_micros(200);
    loop {
        if lock::try_lock(file.as_fd(), ATTACHING, mode)? {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// A file that was opened, mapped and checked.
pub(crate) struct Mapped {
    pub views: Views,
    pub checked: Checked,
    /// Where it was asked for: the file cut short is no SIGBUS.
    pub watch: Option<sigbus::Watch>,
}

/// Maps an opened file whole and checks its header: nothing is read twice, and what was checked is what is used. The
/// mapping goes through `file`'s description, so it keeps that one's locks alive.
pub(crate) fn map(
    location: &Location,
    file: &File,
    writable: bool,
    survive_truncation: bool,
) -> Result<Mapped, OpenError> {
    let length = file::len(file)?;
    if length < size_of::<Header>() as u64 {
        let what = if length == 0 {
            "the file is empty"
        } else {
            "the file is too short"
        };
        return Err(OpenError::NotASegment(what.into()));
    }
    // No segment is longer; a file that is may still begin with a header that says something else is wrong.
    let mapped = length.min(Map::LARGEST) as usize;
    let map = match location {
        Location::Shm(name) if writable => Mapping::shm(name, file, mapped)?,
        _ => Mapping::file(file, mapped, writable)?,
    };
    // Before the first read.
    let watch = match survive_truncation {
        true => {
            sigbus::install()?;
            Some(sigbus::watch(&map))
        }
        false => None,
    };
    let cannot = || OpenError::Damaged("it cannot be mapped".into());
    let header = lend::<Header>(&map, 0).ok_or_else(cannot)?;
    let checked = header.check(length).map_err(unusable)?;
    let views = Views::new(map, checked.geometry).ok_or_else(cannot)?;
    Ok(Mapped {
        views,
        checked,
        watch,
    })
}

fn unusable(why: Unusable) -> OpenError {
    match why {
        Unusable::NotASegment(what) => OpenError::NotASegment(what.into()),
        Unusable::Format { found, supported } => OpenError::Format { found, supported },
        Unusable::Layout => OpenError::Layout,
        Unusable::Damaged(what) => OpenError::Damaged(what.into()),
    }
}

/// The descriptors of an attachment.
pub(crate) struct Files {
    /// Holds the member's byte; it is the description that is mapped.
    lock: Ours,
    /// Asks about others.
    pub probe: Probe,
}

impl Files {
    pub fn new(lock: File, probe: Probe) -> Files {
        Files {
            lock: Ours {
                file: Some(lock),
                identity: probe.identity,
            },
            probe,
        }
    }

    /// The description that holds the member's byte, if the process has it still.
    pub fn lock(&self) -> Option<&File> {
        self.lock.get()
    }

    /// Unlocks the member's byte, explicitly: a command that outlived `run` may have inherited the description.
    pub fn unlock(&self, member: u32) {
        if let Some(file) = self.lock() {
            let _ = lock::unlock(file.as_fd(), MEMBERS + u64::from(member));
        }
    }

    /// Whether the file was certainly cut shorter than `bytes`.
    pub fn is_cut(&self, bytes: u64) -> bool {
        self.lock()
            .is_some_and(|file| file::len(file).is_ok_and(|length| length < bytes))
    }

    /// Whether the file has certainly lost its name. A path that cannot be seen (another root directory) proves
    /// nothing.
    pub fn is_gone(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let Some(file) = self.lock() else {
            let ours = self.probe.identity;
            return std::fs::symlink_metadata(&self.probe.path)
                .is_ok_and(|found| found.dev() != ours.dev || found.ino() != ours.ino);
        };
        file::links(file).is_ok_and(|links| links == 0)
    }
}

/// A descriptor that may be closed behind our back, and its number used again for another file: it is looked at before
/// every use, and closed only if it is still ours.
#[derive(Debug)]
struct Ours {
    file: Option<File>,
    identity: Identity,
}

impl Ours {
    fn get(&self) -> Option<&File> {
        let same =
            |file: &&File| file::identity(file).is_ok_and(|identity| identity == self.identity);
        self.file.as_ref().filter(same)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if self.get().is_none() {
            std::mem::forget(self.file.take());
        }
    }
}

/// Asks whether members' bytes are locked, through a description that holds none of them; also cleans through it.
///
/// A user may close all descriptors of a process, and a number may be used again: the description is compared with
/// the segment's inode before and after a question, and opened afresh if it is another.
#[derive(Debug)]
pub(crate) struct Probe {
    path: PathBuf,
    identity: Identity,
    ours: Ours,
    writable: bool,
}

impl Probe {
    pub fn new(path: PathBuf, identity: Identity, writable: bool) -> Probe {
        Probe {
            path,
            identity,
            ours: Ours {
                file: None,
                identity,
            },
            writable,
        }
    }

    fn file(&mut self) -> Option<&File> {
        if self.ours.get().is_none() {
            // Closed if it is ours, else left alone.
            self.ours = Ours {
                file: None,
                identity: self.identity,
            };
            let file = file::open(&self.path, self.writable, true).ok()?;
            // Another file by that name is closed again here.
            if file::identity(&file).is_ok_and(|identity| identity == self.identity) {
                self.ours.file = Some(file);
            }
        }
        self.ours.get()
    }

    /// Those of the suspects, slots with their generations, that are certainly dead: their byte can be asked about, and
    /// is free. The descriptor is looked at before and after all questions: asked of another file the answer would
    /// be "free" for everybody.
    pub fn dead_among(&mut self, suspects: impl Iterator<Item = (u32, u32)>) -> Vec<(u32, u32)> {
        let mut suspects = suspects.peekable();
        if suspects.peek().is_none() {
            return Vec::new();
        }
        let Some(file) = self.file() else {
            return Vec::new();
        };
        let is_free = |member: u32| lock::is_locked(file.as_fd(), MEMBERS + u64::from(member), 1);
        let dead = suspects
            .filter(|(member, _)| matches!(is_free(*member), Ok(None)))
            .collect();
        match self.ours.get() {
            Some(_) => dead,
            None => Vec::new(),
        }
    }

    /// Whether the member is certainly dead.
    pub fn is_dead(&mut self, member: u32) -> bool {
        !self.dead_among([(member, 0)].into_iter()).is_empty()
    }

    /// Whether any of the first `count` members is certainly alive.
    pub fn anybody(&mut self, count: u32) -> bool {
        let Some(file) = self.file() else { return true };
        !matches!(
            lock::is_locked(file.as_fd(), MEMBERS, u64::from(count.max(1))),
            Ok(None)
        )
    }

    /// Runs `clean` while holding the member's byte; `false` if somebody else holds it.
    pub fn holding(&mut self, member: u32, clean: impl FnOnce()) -> bool {
        let Some(file) = self.file() else {
            return false;
        };
        let byte = MEMBERS + u64::from(member);
        if !lock::try_lock(file.as_fd(), byte, Mode::Exclusive).unwrap_or(false) {
            return false;
        }
        clean();
        let _ = lock::unlock(file.as_fd(), byte);
        true
    }
}
