//! Words of a segment read from its file, at the offsets that docs/segment-format.md states: what no API tells.

use shmsched::Location;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// CLOCK_MONOTONIC in nanoseconds: the same for all processes of a test.
pub fn now() -> u64 {
    nanos(rustix::time::ClockId::Monotonic)
}

/// The same by the coarse clock, which the fast way to tokens reads: late by a tick, and by more where the machine stood
/// still. A bucket that was full by it may have earned since then what is paid only after it was emptied.
pub fn coarse_now() -> u64 {
    nanos(rustix::time::ClockId::MonotonicCoarse)
}

fn nanos(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Reads single words of a segment, without being a member.
pub struct Words(File);

impl Words {
    pub fn of(location: &Location) -> Words {
        Words(File::open(location.path()).expect("the segment is there"))
    }

    fn u32(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.0
            .read_exact_at(&mut bytes, at)
            .expect("within the file");
        u32::from_le_bytes(bytes)
    }

    fn u64(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0
            .read_exact_at(&mut bytes, at)
            .expect("within the file");
        u64::from_le_bytes(bytes)
    }

    /// Slots that are held: RUNNING, less the spare ones.
    pub fn running(&self) -> i32 {
        self.taken() - self.spare() as i32
    }

    /// RUNNING itself.
    pub fn taken(&self) -> i32 {
        self.u32(0x104) as i32
    }

    /// Slots that threads keep though nobody holds them.
    pub fn spare(&self) -> usize {
        let members = u64::from(self.u32(32));
        let high = u64::from(self.u32(0x180 + 48));
        let records = self.roster() + members * 1408;
        (members..high)
            .map(|record| records + record * 128)
            .filter(|at| {
                let (number, claimed) = (self.u64(at + 56), self.u64(at + 64));
                number & 1 != 0 && claimed < number
            })
            .count()
    }

    fn roster(&self) -> u64 {
        let members = u64::from(self.u32(32));
        let max_waiting = u64::from(self.u32(40));
        let up = |n: u64| n.next_multiple_of(128);
        let sets = up(7 * members.div_ceil(64) * 8);
        up(0x1000 + 2 * sets + (members + max_waiting).div_ceil(64) * 8)
    }

    pub fn waiters(&self) -> i32 {
        self.u32(0x108) as i32
    }

    /// Which priorities have anybody in line.
    pub fn summary(&self) -> u32 {
        self.u32(0x10c)
    }

    pub fn hurry(&self) -> u32 {
        self.u32(0x110)
    }

    pub fn hold_off(&self) -> u32 {
        self.u32(0x114)
    }

    /// Slots adopted from the dead and not yet given back.
    pub fn estate(&self) -> u32 {
        self.u64(0x180) as u32
    }

    /// How often anybody was rung, over all members: each ring is one futex wake.
    pub fn rings(&self) -> u64 {
        let members = u64::from(self.u32(32));
        let used = u64::from(self.u32(0x180 + 44)).min(members);
        (0..used)
            .map(|member| u64::from(self.u32(self.roster() + member * 1408 + 128)))
            .sum()
    }
}
