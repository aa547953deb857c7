//! The end of other processes as something to sleep for: a process as a descriptor, a poll of many, and what breaks it
//! off.
//!
//! A program may close descriptors that it did not open, and a number may be used again for another file. So each is
//! looked at before it is written to, believed or closed: it is what it was, or nobody's of ours.
#![allow(unsafe_code)]

use super::clock;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open};

/// How many descriptors are left to the program, and to whom liveness is asked through.
const LEFT: u64 = 16;

/// A descriptor, and what it led to when it was made.
struct Kept {
    fd: Option<OwnedFd>,
    led_to: (u64, u64),
}

impl Kept {
    /// # Errors
    ///
    /// It is among the last that this process may have: it was given back.
    fn new(fd: OwnedFd) -> Result<Kept, Errno> {
        // The lowest that is free is given.
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if fd.as_raw_fd() as u64 + LEFT >= most {
            return Err(Errno::MFILE);
        }
        let led_to = leads_to(fd.as_fd())?;
        Ok(Kept {
            fd: Some(fd),
            led_to,
        })
    }

    /// The descriptor, if it leads where it did.
    fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref()?.as_fd();
        leads_to(fd)
            .is_ok_and(|found| found == self.led_to)
            .then_some(fd)
    }

    fn number(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, OwnedFd::as_raw_fd)
    }

    /// Somebody else closes it, or has.
    fn leave(&mut self) {
        mem::forget(self.fd.take());
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.get().is_none() {
            self.leave();
        }
    }
}

fn leads_to(fd: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    let found = rustix::fs::fstat(fd)?;
    Ok((found.st_dev, found.st_ino))
}

/// Why a process has no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such process.
    Nobody,
    /// There are no descriptors left, or no memory.
    NotNow,
    /// It is not allowed, or unknown to the system.
    Never,
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Refusal {
        match error {
            Errno::SRCH => Refusal::Nobody,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Refusal::NotNow,
            _ => Refusal::Never,
        }
    }
}

/// Another process. Its descriptor can be read from once all its threads have ended, waited for by its parent or not.
pub struct Process(Kept);

impl Process {
    /// Who has this pid now, in this process's pid namespace. It may be another than the one that is meant: see
    /// [`super::process::is_still`].
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub fn open(pid: u32) -> Result<Process, Refusal> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(Refusal::Never)?;
        Ok(Process(Kept::new(pidfd_open(pid, PidfdFlags::empty())?)?))
    }

    /// What [`poll`] takes.
    pub fn number(&self) -> RawFd {
        self.0.number()
    }

    /// Whether the descriptor is a process still. Before Linux 6.9 all of them have the inode of every nameless file, so
    /// that is not enough.
    pub fn is_ours(&self) -> bool {
        self.0.get().is_some_and(is_process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_ours() {
            self.0.leave();
        }
    }
}

/// Asks by the signal that is none; only a descriptor of another kind is refused so.
fn is_process(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: the call takes no memory of ours: no signal, no information with it.
    let told = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            fd.as_raw_fd(),
            0,
            ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    told == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EBADF)
}

/// Breaks off a [`poll`] of another thread. A pair of sockets: each has an inode of its own, and what is sent by mistake to
/// a file of another kind is refused, without a signal.
pub struct Waker {
    near: Kept,
    far: Kept,
}

impl Waker {
    /// # Errors
    ///
    /// No descriptors left.
    pub fn new() -> Result<Waker, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        Ok(Waker {
            near: Kept::new(near)?,
            far: Kept::new(far)?,
        })
    }

    /// Has the poll end, this one or the next.
    pub fn wake(&self) {
        if let Some(near) = self.near.get() {
            // Full: it wakes as it is.
            let _ = send(near, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    /// Takes what woke the poll. `false`: it is no use any more, and a poll would end at once.
    pub fn clear(&self) -> bool {
        let both = self.near.get().is_some().then(|| self.far.get()).flatten();
        let Some(far) = both else {
            return false;
        };
        let mut taken = [0; 8];
        while recv(far, &mut taken, RecvFlags::DONTWAIT).is_ok_and(|(read, _)| read > 0) {}
        true
    }

    /// What [`poll`] takes.
    pub fn number(&self) -> RawFd {
        self.far.number()
    }
}

/// Sleeps until one of these can be read from, or is none, at the latest until `until`. Which ones, by their index.
pub fn poll(numbers: &[RawFd], until: u64) -> Vec<usize> {
    let mut polled: Vec<_> = numbers
        .iter()
        .map(|fd| libc::pollfd {
            fd: *fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let left = until.saturating_sub(clock::now());
    let left = libc::timespec {
        tv_sec: (left / 1_000_000_000) as libc::time_t,
        tv_nsec: (left % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the array is as long as is said, and both live through the call. A number that is closed, or another file's
    // by now, is answered for in `revents`.
    let found = unsafe {
        libc::ppoll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            &left,
            ptr::null(),
        )
    };
    if found <= 0 {
        return Vec::new();
    }
    let ready = polled.iter().enumerate();
    ready
        .filter(|(_, polled)| polled.revents != 0)
        .map(|(at, _)| at)
        .collect()
}

#[cfg(test)]
mod tests;
