//! The line: where those who must wait stand in order. One way to wait for every gate.
//!
//! In the Scheduler's and the Limiter's line a member has one place per lane (priority), and behind it stands the
//! member's own queue, in process memory. In the Pacer's, of one lane, every caller has a place, which it takes and gives
//! up. A place is named by its spot (there the member slot, here its number) and its lane:
//!
//! | word | who writes | when |
//! |---|---|---|
//! | ticket | the owner; a cleaner to 0 | 0 is nobody; published last on joining, cleared first on leaving |
//! | state: asleep(t) | the owner | before every look for room |
//! | state: asleep(t) -> called(t) | anyone, compare-exchange, then rings | when it is its turn |
//! | state: called(t) -> lapsed(t) | anyone, compare-exchange | when it was called and silent for the grace |
//!
//! The state is stamped with the ticket, so nobody calls the successor of whom he meant.
//!
//! Pairs: `line-free` (who frees room writes RUNNING, then reads SUMMARY and the places; who joins writes its place,
//! its bit and SUMMARY, then reads RUNNING), `line-sleep` (a sleeper writes asleep, then reads RUNNING), `line-leave`
//! (who leaves clears its place, then reads RUNNING, since a releaser that still saw it called woke nobody),
//! `summary` (who clears a bit of SUMMARY reads the set again; who joins sets its bit before SUMMARY).

mod absent;
mod mark;
mod owner;
mod state;

pub use mark::Mark;
pub use state::{Doing, Promise, State};

use super::roster::{Owner, Status};
use crate::layout::{Member, Place};
use crate::words::{I32, U32, U64};

/// What a waiter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Slots wanted.
    pub amount: u32,
    /// What its handle adds to the segment's target.
    pub bound: u32,
    /// Its handle's own overall limit.
    pub ceiling: u32,
    /// Since when it waits.
    pub since: u64,
}

/// One taken place, as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which place of the lane.
    pub spot: u32,
    /// Member slot.
    pub member: u32,
    /// Its generation.
    pub generation: u32,
    /// Priority index.
    pub lane: usize,
    /// Order of arrival.
    pub ticket: u64,
    /// What it asks for.
    pub seat: Seat,
    /// Its state word.
    pub state: State,
    /// When its sleeper looks by itself.
    pub promise: Promise,
}

/// The words of one gate's line.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// Which lanes have anybody.
    pub summary: &'a U32,
    /// The [`Mark`].
    pub hurry: &'a U32,
    /// Members in line, for people.
    pub waiters: &'a I32,
    /// Last ticket drawn.
    pub ticket: &'a U64,
    /// How many lanes.
    pub lanes: usize,
    /// As many bit sets over the spots.
    pub bits: &'a [U64],
    /// Words of one bit set.
    pub words: usize,
    /// Spot x lanes + lane.
    pub places: &'a [Place],
    /// Spots are members, not callers.
    pub by_member: bool,
    /// All member slots.
    pub roster: &'a [Member],
}

impl<'a> Line<'a> {
    /// The place of a spot in a lane, if there is such a lane.
    pub fn place(&self, spot: u32, lane: usize) -> Option<&'a Place> {
        let at = spot as usize * self.lanes + lane;
        self.places.get(at).filter(|_| lane < self.lanes)
    }

    fn set(&self, lane: usize) -> &'a [U64] {
        self.bits
            .get(lane * self.words..(lane + 1) * self.words)
            .unwrap_or(&[])
    }

    /// The spots of a lane whose bit is set.
    fn taken(&self, lane: usize) -> impl Iterator<Item = u32> {
        let words = self.set(lane).iter().enumerate();
        words.flat_map(|(at, word)| {
            let mut bits = word.get();
            std::iter::from_fn(move || {
                (bits != 0).then(|| {
                    let spot = at as u32 * 64 + bits.trailing_zeros();
                    bits &= bits - 1;
                    spot
                })
            })
        })
    }

    /// Whose a place is: of a member's own, the member is beyond doubt.
    fn whose(&self, spot: u32, place: &Place) -> Option<Owner> {
        let owner = Owner::read(place.owner.get());
        match self.by_member {
            true => Some(Owner {
                member: spot,
                generation: owner.map_or(0, |owner| owner.generation),
            }),
            false => owner,
        }
    }

    fn is_empty(&self, lane: usize) -> bool {
        self.set(lane).iter().all(|word| word.get() == 0)
    }

    /// Everybody in line, the most urgent first, within a lane in order of arrival. Members that are not LIVE count
    /// as absent. An entry that changes while it is read is left out: its owner looks for room after the change.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        let summary = self.summary.get();
        let lanes = (0..self.lanes).rev();
        for lane in lanes.filter(|lane| summary & 1 << lane != 0) {
            let from = entries.len();
            entries.extend(self.taken(lane).filter_map(|spot| self.read(spot, lane)));
            entries[from..].sort_unstable_by_key(|entry: &Entry| entry.ticket);
        }
        entries
    }

    /// One place, if a LIVE member stands there.
    pub fn read(&self, spot: u32, lane: usize) -> Option<Entry> {
        let place = self.place(spot, lane)?;
        let ticket = place.ticket.get();
        let Owner { member, generation } = self.whose(spot, place)?;
        if ticket == 0
            || !Status(self.roster.get(member as usize)?.status.get()).is_live(generation)
        {
            return None;
        }
        let seat = Seat {
            amount: place.amount.get(),
            bound: place.bound.get(),
            ceiling: place.ceiling.get(),
            since: place.since.get(),
        };
        let state = State(place.state.get());
        let promise = Promise(place.watching.get());
        let same = place.ticket.get() == ticket && state.is_for(ticket);
        same.then_some(Entry {
            spot,
            member,
            generation,
            lane,
            ticket,
            seat,
            state,
            promise,
        })
    }

    /// Whether nobody else stands in the line, in any lane.
    #[inline(always)]
    pub fn is_alone(&self, spot: u32, lane: usize) -> bool {
        let bit = 1 << (spot % 64);
        let own = |at: usize| match at == spot as usize / 64 {
            true => bit,
            false => 0,
        };
        self.summary.get() == 1 << lane
            && match self.set(lane) {
                // Up to 64 members, which is the usual case.
                [only] => only.get() == bit,
                words => words
                    .iter()
                    .enumerate()
                    .all(|(at, word)| word.get() == own(at)),
            }
    }

    /// Whether anybody stands here who has not lapsed: whom a newcomer may not pass.
    pub fn is_anybody_awake(&self) -> bool {
        let summary = self.summary.get();
        let lanes = (0..self.lanes).filter(|lane| summary & 1 << lane != 0);
        lanes.into_iter().any(|lane| {
            let mut entries = self.taken(lane).filter_map(|spot| self.read(spot, lane));
            entries.any(|entry| entry.state.doing() != Doing::Lapsed)
        })
    }

    /// Whether this place is the first of its lane that has not lapsed.
    pub fn is_front(&self, spot: u32, lane: usize) -> bool {
        let in_lane = self.taken(lane).filter_map(|spot| self.read(spot, lane));
        let awake = in_lane.filter(|entry| entry.state.doing() != Doing::Lapsed);
        let first = awake.min_by_key(|entry| entry.ticket);
        first.is_some_and(|first| first.spot == spot)
    }

    /// Calls a place that is asleep. `true` if this call did it; the caller rings its member then.
    pub fn call(&self, entry: &Entry, drawn: bool, ms: u32) -> bool {
        let Some(place) = self.place(entry.spot, entry.lane) else {
            return false;
        };
        let called = State::new(Doing::Called, entry.ticket, drawn, ms);
        entry.state.doing() == Doing::Asleep && place.state.replace(entry.state.0, called.0).is_ok()
    }

    /// Passes over a place that was called and kept silent.
    pub fn lapse(&self, entry: &Entry, ms: u32) -> bool {
        let Some(place) = self.place(entry.spot, entry.lane) else {
            return false;
        };
        let lapsed = State::new(Doing::Lapsed, entry.ticket, false, ms);
        let done = entry.state.doing() == Doing::Called
            && place.state.replace(entry.state.0, lapsed.0).is_ok();
        if done {
            self.unmark(entry.member, entry.generation, entry.lane);
        }
        done
    }

    /// Writes WAITERS anew: how many members (of the Pacer: callers) stand in line. Whoever stores last has read the final sets.
    pub fn recount(&self) {
        for _ in 0..4 {
            let count = self.members_in_line();
            self.waiters.swap(count);
            if self.members_in_line() == count {
                return;
            }
        }
    }

    /// A member whose lane is not in SUMMARY yet counts itself when it is.
    fn members_in_line(&self) -> i32 {
        let summary = self.summary.get();
        if summary == 0 {
            return 0;
        }
        let word = |at: usize| {
            (0..self.lanes)
                .filter(|lane| summary & 1 << lane != 0)
                .fold(0, |bits, lane| {
                    bits | self.set(lane).get(at).map_or(0, |word| word.get())
                })
        };
        (0..self.words).map(|at| word(at).count_ones() as i32).sum()
    }
}
