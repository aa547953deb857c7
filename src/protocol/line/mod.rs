//! The line: where those who must wait stand in order. One way to wait for every gate.
//!
//! In the Scheduler's and the Limiter's line a member has one place per lane (priority), and behind it stands the
//! member's own queue, in process memory. In the Pacer's, of one lane, every caller has a place, which it takes and gives
//! up. A place is named by its spot (there the member's slot, here its number) and its lane:
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

use super::roster::{Owner, Status};
use crate::layout::{LANES, Member, Place};
use crate::words::{I32, U32, U64};

/// What a place is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Waits to be called.
    Asleep,
    /// It is its turn.
    Called,
    /// It was its turn, but it kept silent: skipped until it wakes.
    Lapsed,
}

/// A place's state word: coarse ms << 32 | low 29 bits of the ticket << 3 | drawn << 2 | what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(pub u64);

impl State {
    const TICKET: u64 = (1 << 29) - 1;

    fn new(doing: Doing, ticket: u64, drawn: bool, ms: u32) -> State {
        let doing = match doing {
            Doing::Asleep => 0,
            Doing::Called => 1,
            Doing::Lapsed => 2,
        };
        State(u64::from(ms) << 32 | (ticket & Self::TICKET) << 3 | u64::from(drawn) << 2 | doing)
    }

    /// What the place does. An unknown value counts as asleep.
    pub fn doing(self) -> Doing {
        match self.0 & 3 {
            1 => Doing::Called,
            2 => Doing::Lapsed,
            _ => Doing::Asleep,
        }
    }

    /// Whether it was called by a draw, and so may pass its target.
    pub fn drawn(self) -> bool {
        self.0 & 4 != 0
    }

    /// When it was called (coarse ms, wrapping).
    pub fn ms(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn is_for(self, ticket: u64) -> bool {
        self.0 >> 3 & Self::TICKET == ticket & Self::TICKET
    }
}

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

/// When a sleeper looks after the line by itself, as its place says (`Place::watching`): 0 not until it is rung, 1 at its
/// short timer, else the tick of 100 us, wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise(pub u32);

impl Promise {
    const TICK_NS: u64 = 100_000;
    /// What is further away is left to the short timer. Ticks wrap after a hundred of these.
    const FAR_NS: u64 = 3_600_000_000_000;

    /// To look at `due`, or not at all.
    pub fn new(due: Option<u64>, now: u64) -> Promise {
        Promise(match due {
            None => 0,
            Some(due) if due.saturating_sub(now) > Self::FAR_NS => 1,
            Some(_) if super::mutant("promise-time") => 1,
            Some(due) => (due.div_ceil(Self::TICK_NS) as u32).max(2),
        })
    }

    /// Whether it promises less than `other`. Who promised to look at a timer looks early enough for any.
    pub fn is_later_than(self, other: Promise) -> bool {
        match (self.0, other.0) {
            (_, 0) | (1, _) => false,
            (0, _) => true,
            (_, 1) => false,
            (own, other) => (1..u32::MAX / 2).contains(&own.wrapping_sub(other)),
        }
    }
}

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
    /// The place of a spot in a lane.
    pub fn place(&self, spot: u32, lane: usize) -> Option<&'a Place> {
        self.places.get(spot as usize * self.lanes + lane)
    }

    fn set(&self, lane: usize) -> &'a [U64] {
        self.bits
            .get(lane * self.words..(lane + 1) * self.words)
            .unwrap_or(&[])
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

    fn unset(&self, spot: u32, lane: usize) {
        if let Some(word) = self.set(lane).get(spot as usize / 64) {
            word.clear_bits(1 << (spot % 64));
        }
        self.clear_if_empty(lane);
    }

    /// Clears the lane's bit of SUMMARY if nobody stands in it; set back if somebody joined meanwhile, and read once more,
    /// since that one may have left by then.
    fn clear_if_empty(&self, lane: usize) {
        let rounds = if super::mutant("summary-once") { 1 } else { 4 };
        for _ in 0..rounds {
            if !self.is_empty(lane) {
                return;
            }
            self.summary.clear_bits(1 << lane); // pair: summary
            if super::mutant("summary-recheck") || self.is_empty(lane) {
                return;
            }
            // Somebody joined; who may have left again before this, which is why the set is read once more.
            self.summary.set_bits(1 << lane);
        }
    }

    /// Whether nobody else stands in the line, in any lane.
    pub fn is_alone(&self, spot: u32, lane: usize) -> bool {
        let own = |at: usize| match at == spot as usize / 64 {
            true => 1 << (spot % 64),
            false => 0,
        };
        let mut words = self.set(lane).iter().enumerate();
        self.summary.get() == 1 << lane && words.all(|(at, word)| word.get() == own(at))
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

    /// Whose a place is: of a member's own, the member's slot is beyond doubt.
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

    fn is_empty(&self, lane: usize) -> bool {
        self.set(lane).iter().all(|word| word.get() == 0)
    }

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
        if its && !self.by_member && super::mutant("vacate-first") {
            let _ = place.owner.replace(owner.word(), 0);
        }
        let ticket = place.ticket.get();
        if ticket != 0 && its {
            let _ = place.ticket.replace(ticket, 0);
        }
        let marked = self
            .set(lane)
            .get(spot as usize / 64)
            .is_some_and(|w| w.get() & 1 << (spot % 64) != 0);
        if marked && (its || self.by_member) {
            self.unset(spot, lane);
        }
        if its && !self.by_member {
            let _ = place.owner.replace(owner.word(), 0); // last: then it is somebody else's
        }
    }

    /// Takes a free place among `spots` for a caller, who joins it then. `None`: all are taken.
    pub fn take_spot(&self, spots: std::ops::Range<u32>, owner: Owner) -> Option<u32> {
        spots.into_iter().find(|spot| {
            self.place(*spot, 0).is_some_and(|place| {
                if super::mutant("spot-claim") && place.owner.peek() == 0 {
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

    /// The members that have a place, in line or about to be: whom to ask about before a refusal for want of places.
    pub fn owners(&self) -> Vec<u32> {
        let owners = self
            .places
            .iter()
            .map(|place| Owner::read(place.owner.get()));
        owners.flatten().map(|owner| owner.member).collect()
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
        let less = promise.is_later_than(before) || (promise.0 == 1 && before.0 > 1);
        if !less || super::mutant("promise") {
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
