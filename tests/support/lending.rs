//! The words of spare slots that are lent, at the offsets that docs/segment-format.md states: read and written as another
//! process does.

#![allow(unsafe_code)]

use memmap2::{MmapOptions, MmapRaw};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Phases of the word of spare slots.
pub const OFF: u32 = 0;
pub const ON: u32 = 1;
pub const RECALL: u32 = 2;
pub const LENT: u32 = 3;

/// For so long they are lent.
pub const LEND_NS: u64 = 500_000;

const RUNNING: usize = 0x104;
const SPARES: usize = 0x13c;
const RECALLED: usize = 0x1b8;
const STAMP: usize = 0x1c0;

/// These words of a segment, mapped.
pub struct Lending(MmapRaw);

impl Lending {
    pub fn of(path: &Path) -> Lending {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path);
        let map = MmapOptions::new()
            .len(0x1000)
            .map_raw(&file.expect("the segment is there"));
        Lending(map.expect("a map"))
    }

    fn long(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the map, aligned since the map begins at a page; it lives as long as self, and all go to it by
        // atomics.
        unsafe { AtomicU64::from_ptr(self.0.as_mut_ptr().add(at).cast()) }
    }

    /// Episode and phase.
    pub fn word(&self) -> &AtomicU32 {
        // SAFETY: as in `long`.
        unsafe { AtomicU32::from_ptr(self.0.as_mut_ptr().add(SPARES).cast()) }
    }

    /// RUNNING itself, spare slots and all.
    pub fn taken(&self) -> u32 {
        // SAFETY: as in `long`.
        unsafe { AtomicU32::from_ptr(self.0.as_mut_ptr().add(RUNNING).cast()) }
            .load(Ordering::SeqCst)
    }

    /// When they were lent last.
    pub fn stamp(&self) -> &AtomicU64 {
        self.long(STAMP)
    }

    /// When they were recalled last.
    pub fn recalled(&self) -> &AtomicU64 {
        self.long(RECALLED)
    }

    pub fn phase(&self) -> u32 {
        self.word().load(Ordering::SeqCst) & 3
    }

    pub fn episode(&self) -> u32 {
        self.word().load(Ordering::SeqCst) >> 2
    }

    /// Lends as a thread does that was brisk, and tells nobody: whether the phase is LENT now. Anew if it was.
    pub fn lend(&self) -> bool {
        let seen = self.word().load(Ordering::SeqCst);
        if seen & 3 != OFF && seen & 3 != LENT {
            return false;
        }
        self.stamp().store(monotonic(), Ordering::SeqCst);
        let word = self.word();
        word.compare_exchange(seen, seen | LENT, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// For how long they have been lent; `None`: they are not.
    pub fn lent_for(&self) -> Option<u64> {
        let stamp = self.stamp().load(Ordering::SeqCst);
        (self.phase() == LENT).then(|| monotonic().saturating_sub(stamp))
    }
}

fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
