//! The moments of what happens in bursts.

use crate::sys::clock;

/// So many moments one reading of the clock serves, at most.
const RUN: u32 = 32;
/// It serves more than one only if the last reading, of as many, was so short a time ago.
const BURST_NS: u64 = 16_000;

/// A clock that is read once for up to 32 moments which follow each other closely: to read it takes longer than all
/// else that is done to a queued callback. Who asks it alone gets the time; in a burst, a moment up to one tick of the
/// kernel's coarse clock ago, which is looked at each time.
#[derive(Default)]
pub struct Moments {
    /// The last reading, and the tick before it.
    read: u64,
    tick: u64,
    /// How many moments it still serves, within that tick.
    left: u32,
}

impl Moments {
    /// The time; never before what it said last.
    #[inline(always)]
    pub fn now(&mut self) -> u64 {
        if self.left != 0 && clock::tick() == self.tick {
            self.left -= 1;
            return self.read;
        }
        self.look()
    }

    #[inline(never)]
    fn look(&mut self) -> u64 {
        // Before the reading: what it serves in the same tick is less than a tick later.
        self.tick = clock::tick();
        let now = clock::now();
        let burst = now.saturating_sub(self.read) <= BURST_NS;
        self.left = if burst { RUN - 1 } else { 0 };
        self.read = now;
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;
    use std::time::Duration;

    #[test]
    fn alone_it_is_the_time() {
        let mut moments = Moments::default();
        for _ in 0..3 {
            let before = clock::now();
            let now = moments.now();
            assert!(before <= now && now <= clock::now());
            sleep(Duration::from_micros(100));
        }
    }

    #[test]
    fn in_a_burst_it_is_at_most_a_tick_ago() {
        let mut moments = Moments::default();
        let mut last = 0;
        for _ in 0..100_000 {
            let tick = clock::coarse_now();
            let now = moments.now();
            assert!(last <= now && now <= clock::now());
            assert!(now >= tick, "of the tick before");
            last = now;
        }
        // However long the pause: one that is seen to be another tick.
        let tick = clock::tick();
        while clock::tick() == tick {
            sleep(Duration::from_millis(1));
        }
        let before = clock::now();
        assert!(moments.now() >= before);
    }
}
