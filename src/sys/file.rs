//! Opening a file that others may have had their hands on, and asking what it is.
//!
//! Making one is in [`publish()`].

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

pub use super::publish::{Publish, publish};

const ROOT: u32 = 0;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_ALL: u32 = 0o002;

/// Why a file must not be used as a segment.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Nothing has that name.
    #[error("no such file")]
    Missing,
    /// The name is a symbolic link; those are not followed.
    #[error("is a symbolic link")]
    Symlink,
    /// A directory, FIFO, socket or device.
    #[error("is not a regular file")]
    NotRegular,
    /// It has further names: removing one would not remove it.
    #[error("has more than one hard link")]
    HardLinked,
    /// In a directory where everybody may put files, it belongs to somebody else, who could truncate it.
    #[error("belongs to user {uid}, in a directory that everybody can write to")]
    ForeignOwner {
        /// Its owner.
        uid: u32,
    },
    /// The file or a directory on the way does not allow it.
    #[error("permission denied")]
    Permission,
    /// Something else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT => Self::Missing,
            Errno::LOOP => Self::Symlink,
            Errno::ISDIR | Errno::NXIO | Errno::NODEV => Self::NotRegular,
            Errno::ACCESS | Errno::PERM => Self::Permission,
            other => Self::Io(other.into()),
        }
    }
}

/// Opens the file at `path` if it may be used: a regular file with one name, that belongs to us or root, or else does not
/// lie in a sticky directory which everybody can write to (`trust_foreign` allows that too). Never creates, never follows a symbolic
/// link in the last component, never waits for the other end of a FIFO. Close-on-exec.
///
/// # Errors
/// See [`Refusal`].
pub fn open(path: &Path, writable: bool, trust_foreign: bool) -> Result<File, Refusal> {
    let (directory, name) = split(path).ok_or(Refusal::NotRegular)?;
    let access = if writable {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let directory = open_directory(directory)?;
    let file = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(error) => return Err(special(&directory, name).unwrap_or_else(|| error.into())),
    };

    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Refusal::NotRegular);
    }
    match stat.st_nlink {
        0 => return Err(Refusal::Missing),
        1 => {}
        _ => wait_for_one_name(&directory, name, &file, writable)?,
    }
    let owner = stat.st_uid;
    if !trust_foreign && owner != rustix::process::geteuid().as_raw() && owner != ROOT {
        let mode = rustix::fs::fstat(&directory)?.st_mode;
        if mode & STICKY != 0 && mode & WRITABLE_BY_ALL != 0 {
            return Err(Refusal::ForeignOwner { uid: owner });
        }
    }
    Ok(file)
}

/// Says what cannot even be opened (a socket, a directory for writing, a link) for what it is rather than by error number.
fn special(directory: &OwnedFd, name: &OsStr) -> Option<Refusal> {
    let stat = rustix::fs::statat(directory, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).ok()?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => None,
        FileType::Symlink => Some(Refusal::Symlink),
        _ => Some(Refusal::NotRegular),
    }
}

/// Where a file system can publish only by link and unlink, a file has two names for a moment, or until somebody clears up
/// if its creator died between the two.
fn wait_for_one_name(
    directory: &OwnedFd,
    name: &OsStr,
    file: &File,
    writable: bool,
) -> Result<(), Refusal> {
    for _ in 0..10 {
        if writable {
            super::publish::sweep(directory, name);
        }
        match links(file)? {
            0 => return Err(Refusal::Missing),
            1 => return Ok(()),
            2 => thread::sleep(Duration::from_millis(2)),
            _ => break,
        }
    }
    Err(Refusal::HardLinked)
}

/// Directory and last component of a path. `None` if it has none (`/`, `..`).
pub(super) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    let name = path.file_name()?;
    let directory = path
        .parent()
        .filter(|it| !it.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    Some((directory, name))
}

/// Search permission is enough.
pub(super) fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(
        CWD,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// What tells a file from every other of this boot while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Device.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

/// Which file it is.
///
/// # Errors
/// Those of `fstat`.
pub fn identity(file: &File) -> io::Result<Identity> {
    let stat: Stat = rustix::fs::fstat(file)?;
    Ok(Identity {
        dev: stat.st_dev,
        ino: stat.st_ino,
    })
}

/// How many names it has. 0 after it was unlinked.
///
/// # Errors
/// Those of `fstat`.
pub fn links(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::fstat(file)?.st_nlink as u64)
}

/// Its length in bytes.
///
/// # Errors
/// Those of `fstat`.
pub fn len(file: &File) -> io::Result<u64> {
    Ok(u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0))
}

/// What kind of file system a file is on, as far as sharing memory is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filesystem {
    /// Memory: the right place.
    Tmpfs,
    /// A local disk, by name. Works; the kernel writes pages back now and then.
    Local(&'static str),
    /// An overlay, as in containers: a file of a lower layer is copied up on the first write.
    Overlay,
    /// NFS: mappings and locks of other machines are not seen.
    Nfs,
    /// SMB or CIFS: mappings and locks of other machines are not seen.
    Smb,
    /// 9P, as between a virtual machine and its host: usually no shared mapping.
    NineP,
    /// A user-space file system: shared mappings and locks depend on it.
    Fuse,
    /// Another, by its magic number.
    Other(u64),
}

impl Filesystem {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Tmpfs => "tmpfs",
            Filesystem::Local(name) => name,
            Filesystem::Overlay => "overlay",
            Filesystem::Nfs => "nfs",
            Filesystem::Smb => "smb",
            Filesystem::NineP => "9p",
            Filesystem::Fuse => "fuse",
            Filesystem::Other(_) => "other",
        }
    }
}

/// What kind of file system `file` is on.
///
/// # Errors
/// Those of `fstatfs`.
pub fn filesystem(file: &File) -> io::Result<Filesystem> {
    // The numbers are 32 bits wide; the field's width and sign differ between architectures.
    let magic = rustix::fs::fstatfs(file)?.f_type as u64 & 0xFFFF_FFFF;
    Ok(match magic {
        0x0102_1994 => Filesystem::Tmpfs,
        0x794C_7630 => Filesystem::Overlay,
        0x6969 => Filesystem::Nfs,
        0x0102_1997 => Filesystem::NineP,
        0x517B | 0xFE53_4D42 | 0xFF53_4D42 => Filesystem::Smb,
        0x6573_5546 => Filesystem::Fuse,
        0xEF53 => Filesystem::Local("ext4"),
        0x5846_5342 => Filesystem::Local("xfs"),
        0x9123_683E => Filesystem::Local("btrfs"),
        0xF2F5_2010 => Filesystem::Local("f2fs"),
        0x2FC1_2FC1 => Filesystem::Local("zfs"),
        0xCA45_1A4E => Filesystem::Local("bcachefs"),
        0x8584_58F6 => Filesystem::Local("ramfs"),
        other => Filesystem::Other(other),
    })
}

#[cfg(test)]
mod tests;
