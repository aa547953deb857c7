//! A full fence in every running thread of this process, paid by the caller.
//!
//! The frequent side of a store-load pair gets by with a compiler fence; the rare side calls [`barrier`].

use std::io;

use rustix::thread::{MembarrierCommand, membarrier};

/// Tells the kernel that this process will call [`barrier`]. Needed once per process; repeating it is cheap, and the
/// registration survives a fork but not an exec.
///
/// # Errors
/// `ENOSYS` where the kernel has no membarrier or a filter forbids it.
pub fn register() -> io::Result<()> {
    Ok(membarrier(MembarrierCommand::RegisterPrivateExpedited)?)
}

/// Returns after each running thread of this process has passed a full memory barrier.
///
/// # Errors
/// `EPERM` before [`register`]; `ENOSYS` as there.
pub fn barrier() -> io::Result<()> {
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
    }
}
