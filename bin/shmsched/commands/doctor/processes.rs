//! What `/proc` tells of other processes, as far as it may be read.

use std::fs;

use shmsched::Observer;

use crate::commands::run::{Marks, field};

/// Where answers about processes come from.
pub trait Processes {
    /// The state letter of a process, such as `Z`.
    fn state(&self, pid: u32) -> Option<char>;
    /// The parent of a process.
    fn parent(&self, pid: u32) -> Option<u32>;
    /// The processes that keep the lock of a member, with what they run.
    fn keepers(&self, member: u32) -> Vec<(u32, String)>;
    /// The permits that a process was started under: segment id, member and generation.
    fn marks(&self, pid: u32) -> Marks;
}

/// The kernel's answers about the users of one segment.
pub struct Proc<'a>(pub &'a Observer);

impl Processes for Proc<'_> {
    fn state(&self, pid: u32) -> Option<char> {
        field(pid, 0)?.chars().next()
    }

    fn parent(&self, pid: u32) -> Option<u32> {
        field(pid, 1)?.parse().ok().filter(|parent| *parent != 0)
    }

    fn keepers(&self, member: u32) -> Vec<(u32, String)> {
        self.0.keepers(member)
    }

    fn marks(&self, pid: u32) -> Marks {
        Marks::of_environment(&fs::read(format!("/proc/{pid}/environ")).unwrap_or_default())
    }
}
