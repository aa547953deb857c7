//! The descriptors of a segment and the bytes that are locked on them.
//!
//! Locks lie far behind the segment's end, one byte each: [`ATTACHING`], shared by whoever attaches, exclusive for
//! who resets or removes; and one per member slot, held by the member for as long as it lives.

use super::views::Views;
use crate::error::OpenError;
use crate::layout::{Checked, Header, Unusable};
use crate::location::Location;
use crate::sys::file::{self, Identity, Refusal};
use crate::sys::lock::{self, Mode};
use crate::sys::mapping::{Mapping, lend};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
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

/// The header of an opened file, checked against its length.
pub(crate) fn check(file: &File, writable: bool) -> Result<(Arc<Mapping>, Checked), OpenError> {
    let length = file::len(file)?;
    if length < size_of::<Header>() as u64 {
        let what = if length == 0 {
            "the file is empty"
        } else {
            "the file is too short"
        };
        return Err(OpenError::NotASegment(what.into()));
    }
    let map = Mapping::file(file, size_of::<Header>(), writable)?;
    let header =
        lend::<Header>(&map, 0).ok_or_else(|| OpenError::Damaged("it cannot be mapped".into()))?;
    let checked = header.check(length).map_err(unusable)?;
    Ok((map, checked))
}

fn unusable(why: Unusable) -> OpenError {
    match why {
        Unusable::NotASegment(what) => OpenError::NotASegment(what.into()),
        Unusable::Format { found, supported } => OpenError::Format { found, supported },
        Unusable::Layout => OpenError::Layout,
        Unusable::Damaged(what) => OpenError::Damaged(what.into()),
    }
}

/// Maps the whole of a checked segment through the description `file` (so the mapping itself keeps its locks alive).
pub(crate) fn map(
    location: &Location,
    file: &File,
    checked: &Checked,
    writable: bool,
) -> Result<Views, OpenError> {
    let length = usize::try_from(checked.bytes).map_err(|_| OpenError::Layout)?;
    let map = match location {
        Location::Shm(name) if writable => Mapping::shm(name, file, length)?,
        _ => Mapping::file(file, length, writable)?,
    };
    Views::checked(map, checked)
        .ok_or_else(|| OpenError::Damaged("it is shorter than its header says".into()))
}

/// Asks whether members' bytes are locked, through a description that holds none of them; also cleans through it.
///
/// A user may close all descriptors of a process, and a number may be used again: the description is compared with
/// the segment's inode before and after a question, and opened afresh if it is another.
#[derive(Debug)]
pub(crate) struct Probe {
    path: PathBuf,
    identity: Identity,
    file: Option<File>,
    writable: bool,
}

impl Probe {
    pub fn new(path: PathBuf, identity: Identity, writable: bool) -> Probe {
        Probe {
            path,
            identity,
            file: None,
            writable,
        }
    }

    fn is_ours(&self, file: &File) -> bool {
        file::identity(file).is_ok_and(|identity| identity == self.identity)
    }

    fn file(&mut self) -> Option<&File> {
        if self.file.as_ref().is_some_and(|file| !self.is_ours(file)) {
            // The number belongs to somebody else by now: closing it would harm him.
            std::mem::forget(self.file.take());
        }
        if self.file.is_none() {
            // Not file::open: the segment may be unlinked or hard linked by now, and is still ours.
            let file = file::open(&self.path, self.writable, true).ok()?;
            if !self.is_ours(&file) {
                return None;
            }
            self.file = Some(file);
        }
        self.file.as_ref()
    }

    /// Whether the member is certainly dead: its byte can be asked about, and is free.
    pub fn is_dead(&mut self, member: u32) -> bool {
        let Some(file) = self.file() else {
            return false;
        };
        let free = matches!(
            lock::is_locked(file.as_fd(), MEMBERS + u64::from(member), 1),
            Ok(None)
        );
        free && self.file.as_ref().is_some_and(|file| self.is_ours(file))
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

    /// Whether the segment's file has certainly lost its name. `lock` is the member's own description, which may be
    /// closed or somebody else's by now. A path that cannot be seen (another root directory) proves nothing.
    pub fn is_gone(&self, lock: &File) -> bool {
        use std::os::unix::fs::MetadataExt;
        if self.is_ours(lock) {
            return file::links(lock).is_ok_and(|links| links == 0);
        }
        std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| found.dev() != self.identity.dev || found.ino() != self.identity.ino)
    }
}
