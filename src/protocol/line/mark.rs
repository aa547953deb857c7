//! The hurry mark: who bars newcomers, set and cleared.

use super::{Doing, Line};
use crate::layout::LANES;

/// The hurry word: bars newcomers. low generation << 21 | place << 4 | drawn << 3 | lane + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub u32);

impl Mark {
    /// The mark of a place.
    pub fn new(member: u32, generation: u32, lane: usize, drawn: bool) -> Mark {
        let place = member * LANES as u32 + lane as u32;
        Mark(
            generation << 21
                | (place & 0x1_ffff) << 4
                | u32::from(drawn) << 3
                | (lane as u32 + 1) & 7,
        )
    }

    /// Whether a newcomer of this lane must join.
    #[inline]
    pub fn bars(self, lane: usize) -> bool {
        self.0 != 0 && (self.drawn() || lane < (self.0 & 7) as usize)
    }

    /// Set by a winner of the draw.
    #[inline]
    pub fn drawn(self) -> bool {
        self.0 & 8 != 0
    }

    /// Index of the place.
    pub fn place(self) -> usize {
        (self.0 >> 4 & 0x1_ffff) as usize
    }

    /// The member slot.
    pub fn member(self) -> u32 {
        (self.place() / LANES) as u32
    }

    fn is_of(self, member: u32, generation: u32) -> bool {
        self.0 != 0 && self.member() == member && self.0 >> 21 == generation & 0x7ff
    }

    fn breadth(self) -> u32 {
        if self.0 == 0 {
            0
        } else {
            u32::from(self.drawn()) * 8 + (self.0 & 7)
        }
    }
}

impl Line<'_> {
    /// Sets the mark of a place, unless a wider bar stands.
    pub fn mark(&self, mark: Mark) {
        let mut seen = self.hurry.get();
        while Mark(seen).breadth() < mark.breadth() {
            match self.hurry.replace(seen, mark.0) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Clears the mark of a place, if it stands.
    pub fn unmark(&self, member: u32, generation: u32, lane: usize) {
        let seen = self.hurry.get();
        let mark = Mark(seen);
        if mark.is_of(member, generation) && mark.place() % LANES == lane {
            let _ = self.hurry.replace(seen, 0);
        }
    }

    /// Clears a mark whose place is absent or lapsed, or asks for more than there will ever be: its owner died, or is
    /// stopped, or a scribbler set it.
    pub fn tidy_mark(&self, can_ever_fit: impl Fn(u32) -> bool) {
        let seen = self.hurry.get();
        if seen == 0 {
            return;
        }
        let mark = Mark(seen);
        let stands = self
            .read(mark.member(), mark.place() % LANES)
            .is_some_and(|entry| {
                mark.is_of(entry.member, entry.generation)
                    && entry.state.doing() != Doing::Lapsed
                    && can_ever_fit(entry.seat.amount)
            });
        if !stands {
            let _ = self.hurry.replace(seen, 0);
        }
    }
}
