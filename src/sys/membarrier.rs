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
    Ok(membarrier(MembarrierCommand::RegisterGlobalExpedited)?)
}

/// Returns after each running thread of each process that called [`register`] has passed a full memory barrier.
///
/// # Errors
/// `ENOSYS` as there.
pub fn barrier() -> io::Result<()> {
    Ok(membarrier(MembarrierCommand::GlobalExpedited)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_again_and_fences() {
        register().unwrap();
        register().unwrap();
        barrier().unwrap();
    }
}
