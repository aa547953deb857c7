//! Who is inside at once, to the instant: one word of a mapped file, a byte of it for each process.

#![allow(unsafe_code)]

use memmap2::{MmapOptions, MmapRaw};
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many processes at most.
pub const PROCESSES: usize = 8;

/// Two words that processes share: a count for each of them, and the most that were inside together.
pub struct Inside(MmapRaw);

impl Inside {
    /// Makes the file if need be.
    pub fn open(path: &Path) -> Inside {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .expect("the counts open");
        file.set_len(16).expect("room for the counts");
        Inside(MmapOptions::new().len(16).map_raw(&file).expect("a map"))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the map begins at a page, has two words, lives as long as self, and every process goes to it by atomics.
        unsafe { AtomicU64::from_ptr(self.0.as_mut_ptr().cast::<u64>().add(at)) }
    }

    /// Call it with the slots already taken. So many are inside now.
    pub fn enter(&self, process: usize, slots: u32) -> u64 {
        let more = u64::from(slots) << (8 * process);
        let word = self.word(0).fetch_add(more, Ordering::SeqCst) + more;
        let sum = word.to_le_bytes().iter().map(|n| u64::from(*n)).sum();
        self.word(1).fetch_max(sum, Ordering::Relaxed);
        sum
    }

    /// Call it before the slots go back.
    pub fn leave(&self, process: usize, slots: u32) {
        let less = u64::from(slots) << (8 * process);
        self.word(0).fetch_sub(less, Ordering::SeqCst);
    }

    /// Nobody of that process is inside any more: call it between its SIGSTOP and its SIGKILL.
    pub fn dies(&self, process: usize) {
        self.word(0)
            .fetch_and(!(0xff << (8 * process)), Ordering::SeqCst);
    }

    /// The most that ever were inside together.
    pub fn most(&self) -> u64 {
        self.word(1).load(Ordering::Relaxed)
    }
}
