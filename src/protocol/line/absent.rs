//! What is put right after the dead, and after scribblers.

use super::Line;
use crate::layout::Place;
use crate::protocol::mutant;
use crate::protocol::roster::{Owner, Status};

impl Line<'_> {
    /// Clears what a GONE member left in the line. Idempotent.
    pub fn absent(&self, member: u32, generation: u32) {
        let owner = Owner { member, generation };
        if self.by_member {
            for lane in 0..self.lanes {
                self.unmark(member, generation, lane);
                self.vacate(member, lane, owner);
            }
        } else {
            for spot in 0..self.places.len() as u32 {
                self.vacate(spot, 0, owner);
            }
        }
    }

    /// Nobody of this owner stands in this place any more, and a place that is taken is nobody's.
    fn vacate(&self, spot: u32, lane: usize, owner: Owner) {
        let Some(place) = self.place(spot, lane) else {
            return;
        };
        let its = place.owner.get() == owner.word();
        if its && !self.by_member && mutant("vacate-first") {
            let _ = place.owner.replace(owner.word(), 0);
        }
        let ticket = place.ticket.get();
        if ticket != 0 && its {
            let _ = place.ticket.replace(ticket, 0);
        }
        let announced = self
            .set(lane)
            .get(spot as usize / 64)
            .is_some_and(|w| w.get() & 1 << (spot % 64) != 0);
        if announced && (its || self.by_member) {
            self.unset(spot, lane);
        }
        if its && !self.by_member {
            let _ = place.owner.replace(owner.word(), 0); // last: then it is somebody else's
        }
    }

    /// Members of places whose bit is set though nobody stands there: they are joining or leaving, or died at it.
    pub fn half_left(&self) -> Vec<u32> {
        let mut members = Vec::new();
        for lane in 0..self.lanes {
            for spot in self.taken(lane) {
                let empty = |place: &&Place| place.ticket.get() == 0;
                if let Some(place) = self.place(spot, lane).filter(empty) {
                    members.extend(self.whose(spot, place).map(|owner| owner.member));
                }
            }
        }
        members
    }

    /// Clears the bits of SUMMARY whose set is empty: a leaver died between the two.
    pub fn tidy_summary(&self) {
        let summary = self.summary.get();
        let beyond = summary & !((1 << self.lanes) - 1);
        if beyond != 0 {
            self.summary.clear_bits(beyond); // a scribbler's
        }
        for lane in (0..self.lanes).filter(|lane| summary & 1 << lane != 0) {
            self.clear_if_empty(lane);
        }
    }

    /// The members that have a place, in line or about to be: whom to ask about before a refusal for want of places.
    pub fn owners(&self) -> Vec<u32> {
        let owners = self
            .places
            .iter()
            .map(|place| Owner::read(place.owner.get()));
        owners.flatten().map(|owner| owner.member).collect()
    }

    /// Frees places whose owner is nobody that is or was just attached: a scribbler's.
    pub fn evict_strangers(&self) {
        for place in self.places.iter().filter(|_| !self.by_member) {
            let word = place.owner.get();
            if word == 0 {
                continue;
            }
            let known = Owner::read(word).is_some_and(|owner| {
                let status = self.roster.get(owner.member as usize);
                status.is_some_and(|member| {
                    let status = Status(member.status.get());
                    status.is_live(owner.generation) || status.gone() == Some(owner.generation)
                })
            });
            if !known {
                let _ = place.owner.replace(word, 0);
            }
        }
    }
}
