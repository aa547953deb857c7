//! Making a complete file appear under its name at once.
//!
//! The usual way is a file without a name (`O_TMPFILE`) that is linked when it is done: a creator that dies leaves nothing.
//! Where the file system or a missing `/proc` does not allow that, the file is built as `.NAME.PID.RANDOM.tmp` and renamed
//! without replacing, or linked and unlinked. Its creator holds a lock on it meanwhile, so what a dead one left is known
//! by the lock being free, and the next creator of the same name removes it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FallocateFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use super::file::{links, open_directory, split};
use super::{clock, lock};

/// The byte that the creator of a named temporary locks. Beyond what any segment has, so that a published file has no
/// trace of it.
const BUILDING: u64 = i64::MAX as u64 - 1;
const ATTEMPTS: usize = 8;

/// Why a file was not published. Nothing of it is left then.
#[derive(Debug, thiserror::Error)]
pub enum Publish {
    /// The name is taken.
    #[error("the name exists already")]
    Exists,
    /// The file system is full, or a quota or file-size limit is in the way.
    #[error("no space left for it")]
    NoSpace,
    /// The directory does not exist.
    #[error("the directory does not exist")]
    MissingDirectory,
    /// The directory or file system does not allow it.
    #[error("permission denied")]
    Permission,
    /// Something else, or what `fill` returned.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for Publish {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::EXIST) => Self::Exists,
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::NoSpace,
            Some(Errno::NOENT | Errno::NOTDIR) => Self::MissingDirectory,
            Some(Errno::ACCESS | Errno::PERM) => Self::Permission,
            _ => Self::Io(error),
        }
    }
}

impl From<Errno> for Publish {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// Makes a file of `len` bytes, all of them reserved and zero, lets `fill` write to it, and gives it its name. Its
/// permissions are exactly `mode`, whatever the umask. Returns the open file, readable and writable, close-on-exec.
///
/// The kernel goes on calling the returned description by its nameless origin (in `/proc/PID/maps` and the like); who minds
/// opens the file by its name.
///
/// `fill` may be called a second time, with another file, if the first could not be named.
///
/// # Errors
/// See [`Publish`]; nothing remains of the attempt. A name that is taken already is told before anything is built.
pub fn publish(
    path: &Path,
    len: u64,
    mode: u32,
    fill: &mut dyn FnMut(&File) -> io::Result<()>,
) -> Result<File, Publish> {
    let (directory, name) = split(path).ok_or(Publish::Exists)?;
    let directory = open_directory(directory)?;
    sweep(&directory, name);
    if rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Publish::Exists);
    }
    let job = Job {
        directory: &directory,
        name,
        len,
        mode: Mode::from_raw_mode(mode & 0o777),
    };
    match job.unnamed(fill)? {
        Some(file) => Ok(file),
        None => job.named(fill),
    }
}

struct Job<'a> {
    directory: &'a OwnedFd,
    name: &'a OsStr,
    len: u64,
    mode: Mode,
}

impl Job<'_> {
    /// `None` if this system cannot do it.
    fn unnamed(
        &self,
        fill: &mut dyn FnMut(&File) -> io::Result<()>,
    ) -> Result<Option<File>, Publish> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(self.directory, ".", flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => File::from(fd),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        self.build(&file, fill)?;
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        match rustix::fs::linkat(CWD, own, self.directory, self.name, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::EXIST) => Err(Publish::Exists),
            // Whatever it is: the other way either works or has a better reason.
            Err(_) => Ok(None),
        }
    }

    fn named(&self, fill: &mut dyn FnMut(&File) -> io::Result<()>) -> Result<File, Publish> {
        let (file, temporary) = self.create_temporary()?;
        let result = self
            .build(&file, fill)
            .and_then(|()| self.give_name(&temporary));
        if !matches!(result, Ok(Named::Renamed)) {
            let _ = rustix::fs::unlinkat(self.directory, &temporary, AtFlags::empty());
        }
        result?;
        lock::unlock(file.as_fd(), BUILDING)?;
        Ok(file)
    }

    fn create_temporary(&self) -> Result<(File, OsString), Publish> {
        for _ in 0..ATTEMPTS {
            let random = u128::from_ne_bytes(clock::random_id()?) as u64;
            let mut temporary = prefix(self.name);
            temporary.push(format!("{}.{random:016x}.tmp", std::process::id()));
            let flags =
                OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = match rustix::fs::openat(
                self.directory,
                &temporary,
                flags,
                Mode::RUSR | Mode::WUSR,
            ) {
                Ok(fd) => File::from(fd),
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            };
            // A sweep may have come between creation and lock, and removes it then.
            match lock::try_lock(file.as_fd(), BUILDING, lock::Mode::Exclusive) {
                Ok(true) if links(&file)? > 0 => return Ok((file, temporary)),
                Ok(_) => {}
                Err(error) => {
                    let _ = rustix::fs::unlinkat(self.directory, &temporary, AtFlags::empty());
                    return Err(error.into());
                }
            }
        }
        Err(Publish::Io(io::ErrorKind::ResourceBusy.into()))
    }

    fn build(
        &self,
        file: &File,
        fill: &mut dyn FnMut(&File) -> io::Result<()>,
    ) -> Result<(), Publish> {
        // Beyond this limit the kernel would not only refuse but send SIGXFSZ, which kills.
        if getrlimit(Resource::Fsize)
            .current
            .is_some_and(|limit| limit < self.len)
        {
            return Err(Publish::NoSpace);
        }
        rustix::fs::fchmod(file, self.mode)?;
        match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, self.len)) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, self.len)?,
            Err(error) => return Err(error.into()),
        }
        fill(file).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Publish::NoSpace,
            // Other errors mean something else there than they would of the directory.
            _ => Publish::Io(error),
        })
    }

    fn give_name(&self, temporary: &OsStr) -> Result<Named, Publish> {
        let directory = self.directory;
        match rustix::fs::renameat_with(
            directory,
            temporary,
            directory,
            self.name,
            RenameFlags::NOREPLACE,
        ) {
            Ok(()) => return Ok(Named::Renamed),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        rustix::fs::linkat(directory, temporary, directory, self.name, AtFlags::empty())?;
        Ok(Named::Linked)
    }
}

enum Named {
    Renamed,
    /// The temporary name is still there too.
    Linked,
}

fn write_zeros(file: &File, len: u64) -> io::Result<()> {
    let zeros = [0; 64 * 1024];
    let mut at = 0;
    while at < len {
        let piece = (len - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..piece as usize], at)?;
        at += piece;
    }
    Ok(())
}

fn prefix(name: &OsStr) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    prefix
}

/// Whether `entry` is what [`Job::create_temporary`] makes for the name behind `prefix`.
fn is_temporary(entry: &[u8], prefix: &OsStr) -> bool {
    let Some(rest) = entry
        .strip_prefix(prefix.as_bytes())
        .and_then(|it| it.strip_suffix(b".tmp"))
    else {
        return false;
    };
    let mut parts = rest.split(|byte| *byte == b'.');
    let (pid, random, end) = (parts.next(), parts.next(), parts.next());
    pid.is_some_and(|it| !it.is_empty() && it.iter().all(u8::is_ascii_digit))
        && random.is_some_and(|it| it.len() == 16 && it.iter().all(u8::is_ascii_hexdigit))
        && end.is_none()
}

/// Removes what dead creators of `name` left in the directory. Best effort.
pub(super) fn sweep(directory: &OwnedFd, name: &OsStr) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(readable) = rustix::fs::openat(directory, ".", flags, Mode::empty()) else {
        return;
    };
    let Ok(entries) = Dir::new(readable) else {
        return;
    };
    let prefix = prefix(name);
    for entry in entries.map_while(Result::ok) {
        if !is_temporary(entry.file_name().to_bytes(), &prefix) {
            continue;
        }
        let flags =
            OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let Ok(fd) = rustix::fs::openat(directory, entry.file_name(), flags, Mode::empty()) else {
            continue;
        };
        let regular = rustix::fs::fstat(&fd)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if regular && lock::try_lock(fd.as_fd(), BUILDING, lock::Mode::Exclusive).unwrap_or(false) {
            let _ = rustix::fs::unlinkat(directory, entry.file_name(), AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests;
