//! A full fence in every running thread of every process that has registered for it, paid by the caller.
//!
//! The frequent side of a store-load pair gets by with a compiler fence; the rare side calls [`barrier`].

use std::io;

use rustix::thread::{MembarrierCommand, membarrier};

/// Tells the kernel to include this process in everybody's [`barrier`]. Needed once per process; repeating it is cheap, and the
/// registration survives a fork but not an exec.
///
/// # Errors
/// `ENOSYS` where the kernel has no membarrier or a filter forbids it.
pub fn register() -> io::Result<()> {
    membarrier(MembarrierCommand::RegisterGlobalExpedited)?;
    // Soon, since the first time is dear once there are more threads.
    let _ = is_at_hand();
    Ok(())
}

/// Returns after each running thread of each process that called [`register`] has passed a full memory barrier.
///
/// # Errors
/// `ENOSYS` as there.
pub fn barrier() -> io::Result<()> {
    Ok(membarrier(MembarrierCommand::GlobalExpedited)?)
}

/// Whether [`barrier_here`] can be had in this process, which it is for from here on. Cheap if it was asked before.
pub fn is_at_hand() -> bool {
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}

/// Returns after each running thread of this process has passed a full memory barrier. [`is_at_hand`] comes first.
///
/// # Errors
/// `ENOSYS` as there.
pub fn barrier_here() -> io::Result<()> {
    Ok(membarrier(MembarrierCommand::PrivateExpedited)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_again_and_fences() {
        register().unwrap();
        register().unwrap();
        barrier().unwrap();
        assert!(is_at_hand());
        barrier_here().unwrap();
    }
}
