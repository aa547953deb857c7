//! When a watcher has waited for so long that it asks for the lookout. No clock and no kernel.

use crate::protocol::turn::NEVER;

/// How long a watcher waits first: who gets its turn before that asks for nothing.
const FIRST_NS: u64 = 5_000_000;
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
    pub fn until(&mut self, watches: bool, heard: u32, now: u64) -> u64 {
        if !watches {
            *self = Patience::default();
        } else if self.at == NEVER {
            self.at = match self.asked {
                None => now + FIRST_NS,
                Some(asked) if asked != heard => now + AGAIN_NS,
                Some(_) => NEVER,
            };
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

    #[test]
    fn it_asks_once_and_again_only_after_a_ring() {
        let mut patience = Patience::default();
        assert_eq!(patience.until(true, 1, 100), 100 + FIRST_NS);
        // A ring in vain does not begin it anew.
        assert_eq!(patience.until(true, 2, 1_000), 100 + FIRST_NS);
        assert!(!patience.is_over(2, 99 + FIRST_NS));
        let now = 100 + FIRST_NS;
        assert!(patience.is_over(2, now));
        assert!(!patience.is_over(2, now));
        assert_eq!(patience.until(true, 2, now), NEVER);
        assert_eq!(patience.until(true, 3, now), now + AGAIN_NS);
        assert!(patience.is_over(3, now + AGAIN_NS));
    }

    #[test]
    fn who_does_not_watch_asks_for_nothing() {
        let mut patience = Patience::default();
        assert_eq!(patience.until(false, 1, 100), NEVER);
        assert!(!patience.is_over(1, NEVER - 1));
        let _ = patience.until(true, 1, 100);
        assert_eq!(patience.until(false, 1, 200), NEVER);
        assert_eq!(patience.until(true, 1, 300), 300 + FIRST_NS);
    }
}
