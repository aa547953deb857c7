//! Byte locks that belong to an open file description (`F_OFD_SETLK`).
//!
//! The kernel drops such a lock when the last descriptor and mapping of the description are gone, and so at the latest
//! when its process has died. Unlike POSIX record locks they do not vanish when any other descriptor of the same file is
//! closed, and they work between threads. rustix has no byte ranges for them; hence libc.
//!
//! **A query through the description that itself holds the lock answers "free".** Ask through a second description, which
//! may be read-only. Nothing here ever waits.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How a byte is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Many descriptions may hold it. Needs a descriptor open for reading.
    Shared,
    /// One description holds it. Needs a descriptor open for writing.
    Exclusive,
}

/// Locks the byte at `offset` for the description of `fd`, or changes the mode of the lock that it has there. `false` if
/// another description is in the way.
///
/// # Errors
/// `EBADF` if the descriptor is not open for what `mode` needs, `EINVAL` for an offset beyond `i64`, `ENOLCK`.
pub fn try_lock(fd: BorrowedFd<'_>, offset: u64, mode: Mode) -> io::Result<bool> {
    let kind = match mode {
        Mode::Shared => libc::F_RDLCK,
        Mode::Exclusive => libc::F_WRLCK,
    };
    match control(fd, libc::F_OFD_SETLK, &mut range(kind, offset, 1)?) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Unlocks the byte at `offset`, for all descriptors that share the description of `fd`, whether it was locked or not.
///
/// # Errors
/// As [`try_lock`].
pub fn unlock(fd: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
    control(fd, libc::F_OFD_SETLK, &mut range(libc::F_UNLCK, offset, 1)?)
}

/// The first byte at which some *other* description's lock, shared or exclusive, touches the `len` bytes from `offset`;
/// `None` if there is none. Which lock is told first is the kernel's choice.
///
/// # Errors
/// As [`try_lock`], but any descriptor will do.
pub fn is_locked(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Option<u64>> {
    if len == 0 {
        return Ok(None); // To fcntl a length of zero means "to the end".
    }
    let mut asked = range(libc::F_WRLCK, offset, len)?;
    control(fd, libc::F_OFD_GETLK, &mut asked)?;
    if asked.l_type == libc::F_UNLCK as libc::c_short {
        return Ok(None);
    }
    Ok(Some(
        u64::try_from(asked.l_start).map_or(offset, |start| start.max(offset)),
    ))
}

fn range(kind: libc::c_int, offset: u64, len: u64) -> io::Result<libc::flock> {
    let too_far = |_| io::Error::from_raw_os_error(libc::EINVAL);
    Ok(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: i64::try_from(offset).map_err(too_far)?,
        l_len: i64::try_from(len).map_err(too_far)?,
        l_pid: 0, // The kernel refuses anything else.
    })
}

fn control(fd: BorrowedFd<'_>, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: each of the three commands takes a pointer to one valid flock, and the kernel keeps none.
        if unsafe { libc::fcntl(fd.as_raw_fd(), command, std::ptr::from_mut(lock)) } != -1 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
pub(in crate::sys) mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// A process that another test forks has copies of all descriptors for as long as it lives.
    pub fn until_free(file: &File, byte: u64) {
        let begin = Instant::now();
        while is_locked(file.as_fd(), byte, 1).unwrap().is_some() {
            assert!(begin.elapsed() < Duration::from_secs(20), "still locked");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn excludes_and_tells() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (one, two) = (file.reopen().unwrap(), file.reopen().unwrap());
        let reader = File::open(file.path()).unwrap();

        assert!(try_lock(one.as_fd(), 7, Mode::Exclusive).unwrap());
        assert!(!try_lock(two.as_fd(), 7, Mode::Shared).unwrap());
        assert!(try_lock(two.as_fd(), 8, Mode::Exclusive).unwrap());
        assert_eq!(is_locked(reader.as_fd(), 0, 8).unwrap(), Some(7));
        assert_eq!(is_locked(reader.as_fd(), 0, 7).unwrap(), None);
        assert_eq!(
            is_locked(one.as_fd(), 7, 1).unwrap(),
            None,
            "the holder itself is told that it is free"
        );
        assert_eq!(is_locked(reader.as_fd(), 7, 0).unwrap(), None);

        unlock(one.as_fd(), 7).unwrap();
        assert!(try_lock(one.as_fd(), 7, Mode::Shared).unwrap());
        assert!(try_lock(two.as_fd(), 7, Mode::Shared).unwrap());
        drop(one);
        drop(two);
        until_free(&reader, 7);
        until_free(&reader, 8);
    }

    #[test]
    fn wrong_use_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reader = File::open(file.path()).unwrap();
        let error = try_lock(reader.as_fd(), 0, Mode::Exclusive).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        assert!(is_locked(reader.as_fd(), u64::MAX, 1).is_err());
    }
}
