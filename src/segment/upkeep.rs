//! What is done about a segment beside using its gates: the dead, orphans, waiting for its end.

use super::{Looked, Scope, Segment, observe};
use crate::deadline::Deadline;
use crate::error::{AcquireError, EvictError};
use crate::protocol::roster::{self, Status};
use crate::sys::process::{self, Seen};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

impl Segment {
    /// Looks for the dead now, among all members, and gives their slots back. Waiters and refusals do so by themselves.
    /// Finds nothing in a forked child.
    pub fn look(&self) -> Looked {
        self.attachment().look(Scope::Everybody)
    }

    /// Blocks this thread until no slot is held and nobody waits at any gate, looking for the dead meanwhile. Reads 20 times
    /// a second: there is no place in the line for this. It holds nothing back: others may come the moment after.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`]; or the segment is retired, gone or damaged, or the handle is of before a fork.
    pub fn wait_idle(&self, until: impl Into<Deadline>) -> Result<(), AcquireError> {
        let until = until.into();
        let attachment = self.attachment();
        loop {
            if let Some(failure) = attachment.failure() {
                return Err(failure);
            }
            attachment.look_if_stale();
            let lines = attachment.views.lines();
            // Counted without what threads keep, but exactly: nobody holds anything at the moment of the reading.
            if attachment.views.running() <= 0 {
                attachment.recall_spares();
            }
            if attachment.hot().running.get() <= 0
                && lines.iter().all(|line| line.entries().is_empty())
            {
                // So does a file that was cut short or overwritten with zeros.
                attachment.notice_damage();
                return attachment.failure().map_or(Ok(()), Err);
            }
            if until.has_passed() {
                return Err(AcquireError::TimedOut);
            }
            attachment.notice_gone();
            std::thread::sleep(
                until
                    .remaining()
                    .unwrap_or(Duration::MAX)
                    .min(Duration::from_millis(50)),
            );
        }
    }

    /// Frees an orphan: a member whose process is gone but whose lock lives on, because a command that inherited it
    /// (of a killed `shmsched run`) still runs. Returns the slots it held. The command goes on, without a permit.
    ///
    /// # Errors
    ///
    /// [`EvictError`] for anybody else; nothing was changed then.
    pub fn evict(&self, member: u32) -> Result<u32, EvictError> {
        let attachment = self.attachment();
        if let Some(failure) = attachment.failure() {
            return Err(failure.into());
        }
        let views = &attachment.views;
        // This member is here only to evict.
        let found = views
            .members()
            .get(member as usize)
            .filter(|_| member != attachment.me)
            .ok_or(EvictError::NoSuchMember)?;
        let generation = Status(found.status.get())
            .live()
            .ok_or(EvictError::NoSuchMember)?;
        if found.namespace.get() != process::me().namespace {
            return Err(EvictError::OtherNamespace(member));
        }
        if !matches!(
            process::look(found.pid.get(), found.start.get()),
            Seen::Gone | Seen::Zombie
        ) {
            return Err(EvictError::Living(member));
        }
        let dead = attachment
            .files
            .lock()
            .as_mut()
            .is_none_or(|files| files.probe.is_dead(member));
        if dead {
            return Err(EvictError::NotOrphaned(member));
        }
        let held = observe::held_by(views, member, generation);
        if !roster::retire(found, generation) {
            return Err(EvictError::NoSuchMember);
        }
        attachment.look(Scope::Concerned);
        Ok(held)
    }

    /// A duplicate of the descriptor whose description is this member's lock, for a command that is to keep the
    /// member's slots should this process be killed: inherited on exec, numbered 100 or above where the limit allows.
    /// The lock ends when every copy is closed, or when this member detaches.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn keep_for_child(&self) -> io::Result<OwnedFd> {
        let files = self.attachment().files.lock();
        let lock = files
            .as_ref()
            .and_then(|files| files.lock())
            .ok_or(io::ErrorKind::Unsupported)?;
        use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
        let copy = match fcntl_dupfd_cloexec(lock, 100) {
            Ok(copy) => copy,
            // The limit is below 100: the highest there is.
            Err(_) => {
                let most = rustix::process::getrlimit(rustix::process::Resource::Nofile)
                    .current
                    .unwrap_or(64);
                (3..most.min(100) as i32)
                    .rev()
                    .find_map(|least| fcntl_dupfd_cloexec(lock, least).ok())
                    .ok_or(io::Error::from(rustix::io::Errno::MFILE))?
            }
        };
        fcntl_setfd(&copy, FdFlags::empty())?;
        Ok(copy)
    }

    /// Says that this process ends right after its last handle is dropped, so that the detach need not wake the threads
    /// that waited for its tasks and watched the holders: a wake less for each. In a process that goes on after all the first
    /// stays until its end, the second for a second.
    pub fn expect_exit(&self) {
        self.attachment().helper.lock().abandon();
        self.attachment().lookout.lock().abandon();
    }
}
