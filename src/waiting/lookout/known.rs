//! What the lookout knows of the processes it was told of. No clock and no kernel.

/// One attachment of one member slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whom {
    pub member: u32,
    pub generation: u32,
}

/// When to look again for one that has ended and was not found: the kernel may let go of its lock a moment later.
const AGAIN_NS: [u64; 3] = [1_000_000, 2_000_000, 4_000_000];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its end is waited for.
    Lives,
    /// It has ended, and is to be looked for then; so many looks have not found it.
    Ended { at: u64, looks: usize },
    /// Left to the timer: its end cannot be waited for, or its lock is somebody else's.
    Left,
}

/// Them all.
#[derive(Debug, Default)]
pub(super) struct Known(Vec<(Whom, Phase)>);

impl Known {
    fn phase(&self, whom: Whom) -> Option<Phase> {
        let found = self.0.iter().find(|(other, _)| *other == whom);
        found.map(|(_, phase)| *phase)
    }

    fn set(&mut self, whom: Whom, phase: Phase) {
        match self.0.iter_mut().find(|(other, _)| *other == whom) {
            Some((_, known)) => *known = phase,
            None => self.0.push((whom, phase)),
        }
    }

    pub fn has(&self, whom: Whom) -> bool {
        self.phase(whom).is_some()
    }

    pub fn lives(&self, whom: Whom) -> bool {
        self.phase(whom) == Some(Phase::Lives)
    }

    pub fn begin(&mut self, whom: Whom) {
        self.set(whom, Phase::Lives);
    }

    pub fn ended(&mut self, whom: Whom, now: u64) {
        self.set(whom, Phase::Ended { at: now, looks: 0 });
    }

    pub fn leave(&mut self, whom: Whom) {
        self.set(whom, Phase::Left);
    }

    pub fn forget(&mut self, whom: Whom) {
        self.0.retain(|(other, _)| *other != whom);
    }

    /// Forgets who is attached no more, and, of those that are not wanted, as many as have no room beside those that are.
    pub fn keep(&mut self, wanted: &[Whom], most: usize, is_live: impl Fn(Whom) -> bool) {
        self.0.retain(|(whom, _)| is_live(*whom));
        let mut room = most.saturating_sub(wanted.len());
        self.0.retain(|(whom, _)| {
            if wanted.contains(whom) {
                return true;
            }
            let stays = room > 0;
            room = room.saturating_sub(1);
            stays
        });
    }

    /// Whether somebody is to be looked for now.
    pub fn is_look_due(&self, now: u64) -> bool {
        self.next_look() <= now
    }

    /// When somebody is to be looked for.
    pub fn next_look(&self) -> u64 {
        let at = self.0.iter().map(|(_, phase)| match phase {
            Phase::Ended { at, .. } => *at,
            _ => u64::MAX,
        });
        at.min().unwrap_or(u64::MAX)
    }

    /// After a look: who was not found is looked for again, a few times.
    pub fn looked(&mut self, now: u64, is_live: impl Fn(Whom) -> bool) {
        self.0.retain(|(whom, phase)| match phase {
            Phase::Ended { .. } => is_live(*whom),
            _ => true,
        });
        for (_, phase) in &mut self.0 {
            if let Phase::Ended { at, looks } = phase
                && *at <= now
            {
                *phase = match AGAIN_NS.get(*looks) {
                    Some(pause) => Phase::Ended {
                        at: now + pause,
                        looks: *looks + 1,
                    },
                    None => Phase::Left,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whom(member: u32) -> Whom {
        Whom {
            member,
            generation: 1,
        }
    }

    #[test]
    fn one_that_is_not_found_is_looked_for_four_times_and_left() {
        let mut known = Known::default();
        known.begin(whom(1));
        assert!(!known.is_look_due(u64::MAX - 1));
        known.ended(whom(1), 10);
        let mut now = 10;
        let mut looks = Vec::new();
        while known.next_look() != u64::MAX {
            assert!(!known.is_look_due(known.next_look() - 1));
            now = known.next_look();
            looks.push(now);
            known.looked(now, |_| true);
        }
        assert_eq!(looks, [10, 1_000_010, 3_000_010, 7_000_010]);
        // And is not begun with again.
        assert!(known.has(whom(1)) && !known.lives(whom(1)));
        assert!(!known.is_look_due(now + 1_000_000_000));
    }

    #[test]
    fn one_that_is_found_is_forgotten() {
        let mut known = Known::default();
        known.ended(whom(1), 10);
        known.ended(whom(2), 10);
        known.begin(whom(3));
        known.looked(10, |other| other == whom(2));
        assert!(!known.has(whom(1)) && known.has(whom(2)) && known.lives(whom(3)));
    }

    #[test]
    fn those_that_are_not_wanted_stay_while_there_is_room() {
        let mut known = Known::default();
        (0..4).for_each(|member| known.begin(whom(member)));
        known.keep(&[whom(3), whom(9)], 4, |other| other != whom(0));
        let stay: Vec<u32> = (0..10).filter(|at| known.has(whom(*at))).collect();
        assert_eq!(stay, [1, 2, 3]);
        known.keep(&[whom(3), whom(8), whom(9)], 4, |_| true);
        let stay: Vec<u32> = (0..10).filter(|at| known.has(whom(*at))).collect();
        assert_eq!(stay, [1, 3]);
    }
}
