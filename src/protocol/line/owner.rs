//! What the owner does with its place, one thread at a time: taking one, joining, sleeping, leaving.

use super::{Doing, Line, Promise, Seat, State};
use crate::protocol::mutant;
use crate::protocol::roster::Owner;

impl Line<'_> {
    /// Takes a free place among `spots` for a caller, who joins it then. `None`: all are taken.
    pub fn take_spot(&self, spots: std::ops::Range<u32>, owner: Owner) -> Option<u32> {
        spots.into_iter().find(|spot| {
            self.place(*spot, 0).is_some_and(|place| {
                if mutant("spot-claim") && place.owner.peek() == 0 {
                    place.owner.put(owner.word());
                    return true;
                }
                place.owner.peek() == 0 && place.owner.replace(0, owner.word()).is_ok()
            })
        })
    }

    /// Gives a place up that [`Line::take_spot`] took, after [`Line::leave`].
    pub fn free_spot(&self, spot: u32, owner: Owner) {
        if let Some(place) = self.place(spot, 0) {
            let _ = place.owner.replace(owner.word(), 0);
        }
    }

    /// Stands in a place with a new ticket. Only the owner, one thread at a time. The caller looks for room afterwards.
    pub fn join(&self, spot: u32, owner: Owner, lane: usize, seat: Seat) {
        let Some(place) = self.place(spot, lane) else {
            return;
        };
        place.ticket.swap(0); // readers of the old seat notice: they read the ticket again
        place.amount.poke(seat.amount);
        place.bound.poke(seat.bound);
        place.ceiling.poke(seat.ceiling);
        place.since.poke(seat.since);
        place.owner.poke(owner.word());
        let ticket = self.ticket.add(1).wrapping_add(1).max(1);
        place
            .state
            .swap(State::new(Doing::Asleep, ticket, false, 0).0);
        place.ticket.put(ticket);
        self.announce(spot, lane);
    }

    /// Sets the place's bit and the lane's. Joining does, and every waiter again at each timer, since a cleaner or a
    /// leaver that died half-way may have taken them away.
    pub fn announce(&self, spot: u32, lane: usize) {
        if let Some(word) = self.set(lane).get(spot as usize / 64) {
            word.set_bits(1 << (spot % 64)); // pairs: summary, line-free
        }
        self.summary.set_bits(1 << lane); // pair: line-free
    }

    /// Whether the bits of a place are as [`Line::announce`] sets them.
    pub fn is_announced(&self, spot: u32, lane: usize) -> bool {
        self.summary.get() & 1 << lane != 0
            && self
                .set(lane)
                .get(spot as usize / 64)
                .is_some_and(|word| word.get() & 1 << (spot % 64) != 0)
    }

    /// The owner goes (back) to sleep, before it looks for room. Returns what it was doing.
    pub fn settle(&self, spot: u32, lane: usize) -> State {
        let Some(place) = self.place(spot, lane) else {
            return State(0);
        };
        let ticket = place.ticket.peek();
        State(
            place
                .state
                .swap(State::new(Doing::Asleep, ticket, false, 0).0),
        ) // pair: line-sleep
    }

    /// The owner takes a settling back that took a call away from it, since the turn is for somebody else of it.
    pub fn recall(&self, spot: u32, lane: usize, was: State) {
        if let Some(place) = self.place(spot, lane) {
            place.state.swap(was.0);
        }
    }

    /// The owner says when it will look by itself. `true` if that is less than it had promised: who counted on the promise
    /// rang nobody, so it looks once more.
    pub fn promise(&self, spot: u32, lane: usize, promise: Promise) -> bool {
        let Some(place) = self.place(spot, lane) else {
            return false;
        };
        let before = Promise(place.watching.peek());
        if before == promise {
            return false;
        }
        if !promise.is_later_than(before) || mutant("promise") {
            place.watching.put(promise.0);
            return false;
        }
        place.watching.swap(promise.0); // pair: line-promise
        true
    }

    /// The owner lets others pass: what it waits for is not in this line.
    pub fn stand_back(&self, spot: u32, lane: usize) {
        if let Some(place) = self.place(spot, lane) {
            let ticket = place.ticket.peek();
            let lapsed = State::new(Doing::Lapsed, ticket, false, 0);
            place.state.swap(lapsed.0);
        }
    }

    /// Gives the member's place up. The caller looks for room afterwards: a turn that it was called for, or room that
    /// a releaser left to it, is somebody else's now.
    pub fn leave(&self, spot: u32, generation: u32, lane: usize) {
        let Some(place) = self.place(spot, lane) else {
            return;
        };
        place.ticket.swap(0); // pair: line-leave
        place.watching.poke(0);
        self.unmark(spot, generation, lane);
        self.unset(spot, lane);
    }

    pub(super) fn unset(&self, spot: u32, lane: usize) {
        if let Some(word) = self.set(lane).get(spot as usize / 64) {
            word.clear_bits(1 << (spot % 64));
        }
        self.clear_if_empty(lane);
    }

    /// Clears the lane's bit of SUMMARY if nobody stands in it; set back if somebody joined meanwhile, and read once more,
    /// since that one may have left by then.
    pub(super) fn clear_if_empty(&self, lane: usize) {
        let rounds = if mutant("summary-once") { 1 } else { 4 };
        for _ in 0..rounds {
            if !self.is_empty(lane) {
                return;
            }
            self.summary.clear_bits(1 << lane); // pair: summary
            if mutant("summary-recheck") || self.is_empty(lane) {
                return;
            }
            // Somebody joined; who may have left again before this, which is why the set is read once more.
            self.summary.set_bits(1 << lane);
        }
    }
}
