//! When a watcher has waited for so long that it asks for the lookout. No clock and no kernel.

use crate::layout::Gate;
use crate::protocol::turn::NEVER;

/// How long a watcher waits first, by where it stands: who gets its turn before that asks for nothing. The second has two
/// turns to wait for.
const FIRST_NS: [u64; 2] = [7_000_000, 10_000_000];
/// How long after its bell rang in vain: others hold slots then.
const AGAIN_NS: u64 = 20_000_000;

/// One wait's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// When it asks next.
    pub at: u64,
    /// The bell when it asked last.
    asked: Option<u32>,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            at: NEVER,
            asked: None,
        }
    }
}

impl Patience {
    /// Until when it sleeps at most, with the bell as it was heard.
    pub fn until(&mut self, gate: Gate, stands: u32, heard: u32, now: u64) -> u64 {
        let first = match gate {
            Gate::Scheduler => FIRST_NS.get(stands as usize),
            // Nothing is held there.
            Gate::Limiter | Gate::Pacer => None,
        };
        match (first, self.asked) {
            (None, _) => *self = Patience::default(),
            (Some(first), None) => self.at = self.at.min(now + first),
            (_, Some(asked)) if asked != heard => self.at = self.at.min(now + AGAIN_NS),
            _ => {}
        }
        self.at
    }

    /// Whether it is to ask now.
    pub fn is_over(&mut self, heard: u32, now: u64) -> bool {
        let over = self.at <= now;
        if over {
            self.at = NEVER;
            self.asked = Some(heard);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: Gate = Gate::Scheduler;

    #[test]
    fn it_asks_once_and_again_only_after_a_ring() {
        let mut patience = Patience::default();
        let now = 100 + FIRST_NS[0];
        assert_eq!(patience.until(SLOTS, 0, 1, 100), now);
        // A ring in vain does not begin it anew.
        assert_eq!(patience.until(SLOTS, 0, 2, 1_000), now);
        assert!(!patience.is_over(2, now - 1));
        assert!(patience.is_over(2, now));
        assert!(!patience.is_over(2, now));
        assert_eq!(patience.until(SLOTS, 0, 2, now), NEVER);
        let later = now + AGAIN_NS;
        assert_eq!(patience.until(SLOTS, 0, 3, now), later);
        assert_eq!(patience.until(SLOTS, 0, 4, now + 1), later);
        assert!(patience.is_over(4, later));
    }

    #[test]
    fn the_second_waits_for_longer_and_less_once_it_is_first() {
        let mut patience = Patience::default();
        assert_eq!(patience.until(SLOTS, 1, 1, 100), 100 + FIRST_NS[1]);
        assert_eq!(patience.until(SLOTS, 0, 2, 200), 200 + FIRST_NS[0]);
        assert_eq!(patience.until(SLOTS, 1, 2, 300), 200 + FIRST_NS[0]);
    }

    #[test]
    fn who_does_not_watch_asks_for_nothing() {
        let mut patience = Patience::default();
        for (gate, stands) in [(SLOTS, 2), (Gate::Limiter, 0), (Gate::Pacer, 1)] {
            assert_eq!(patience.until(gate, stands, 1, 100), NEVER);
        }
        assert!(!patience.is_over(1, NEVER - 1));
        let _ = patience.until(SLOTS, 0, 1, 100);
        assert_eq!(patience.until(SLOTS, 2, 1, 200), NEVER);
        assert_eq!(patience.until(SLOTS, 0, 1, 300), 300 + FIRST_NS[0]);
    }
}
