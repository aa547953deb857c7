//! The short way: a queue of callbacks that drains, each release handing on to the next.
//!
//! While callbacks of one lane of this member are all that waits: the next of them has its turn, and the place stays as it
//! stands for the one behind it. Its ticket is older than that one's arrival, but there is nobody with whom it would be
//! compared; who joins from here on comes after it either way. The helper need not be rung for that one: whoever joined
//! first has it rung, or found it ready, after its own try.

use super::turn::slot_post;
use crate::layout::{Gate, Member, Place, Record, SchedulerHot};
use crate::park::queue::{Pair, Queue, Taken};
use crate::park::waiter::Fate;
use crate::protocol::ledger::{self, fits};
use crate::protocol::line::{Doing, Line, Seat, State};
use crate::protocol::pressure::Pressure;
use crate::protocol::scheduler::fast_bound;
use crate::segment::attachment::Attachment;
use crate::waiting::jobs::Turn;
use crate::waiting::places::served;
use std::sync::Arc;

/// Who is next by it.
pub(super) struct Short {
    /// Whether it is a waiter, and not a call.
    is_waiter: bool,
    /// Since when it waits, and the one behind it.
    since: u64,
    after: u64,
}

/// What the short way looks at, for callbacks of one lane.
pub(super) struct ShortWay<'a> {
    attachment: &'a Arc<Attachment>,
    hot: &'a SchedulerHot,
    line: Line<'a>,
    place: &'a Place,
    member: &'a Member,
    pressure: Pressure<'a>,
    /// This thread's own, if it has one.
    record: Option<&'a Record>,
    lane: usize,
}

/// Whether who asks for this in a lane would fit if a slot were given back.
#[inline(always)]
fn has_room(hot: &SchedulerHot, lane: usize, seat: Seat) -> bool {
    // What one slot may be taken up to, for the handle of these.
    let bound = fast_bound(hot, lane, seat.bound.min(seat.ceiling));
    let room = bound.min(i32::MAX as u32);
    seat.amount == 1 && fits(hot.running.get().wrapping_sub(1), 1, room)
}

impl<'a> ShortWay<'a> {
    /// `None`: there is no such lane.
    #[inline(always)]
    pub(super) fn new(attachment: &'a Arc<Attachment>, lane: usize) -> Option<ShortWay<'a>> {
        let line = attachment.views.line(Gate::Scheduler);
        Some(ShortWay {
            attachment,
            hot: attachment.hot(),
            place: attachment.places.get(lane)?,
            line,
            member: attachment.member(),
            pressure: attachment.views.pressure(Gate::Scheduler),
            record: attachment.hot_record(&attachment.views.records),
            lane,
        })
    }

    /// Whether it is open. Under the lock of the queue.
    #[inline(always)]
    fn is_open(&self) -> bool {
        // Called already means that it is served in a moment.
        let asleep = State(self.place.state.get()).doing() == Doing::Asleep;
        asleep
            && self.attachment.own_lanes() == 1 << self.lane
            && self.line.is_alone(self.attachment.me, self.lane)
            && self.attachment.is_well()
            && self.hot.hurry.get() | self.hot.hold_off.get() == 0
    }

    /// Who is next by it, if it is open. Nothing is done yet.
    pub(super) fn next(&self, queue: &mut Queue) -> Option<Short> {
        if !self.is_open() {
            return None;
        }
        let Pair {
            seat,
            after,
            is_waiter,
        } = queue.first_of_two_alike(slot_post(self.lane))?;
        has_room(self.hot, self.lane, seat).then_some(Short {
            is_waiter,
            since: seat.since,
            after,
        })
    }

    /// The next has the slot, and `after` is since when the one behind it waits.
    #[inline(always)]
    fn serve(&self, queue: &mut Queue, since: u64, after: u64) {
        self.place.since.poke(after);
        match self.record {
            Some(record) => ledger::pass_on(record, 1),
            None => ledger::pass_on(&self.attachment.own(), 1),
        }
        let now = queue.moments.now();
        served(self.member, self.pressure, slot_post(self.lane), since, now);
        self.member.held_since.put(now);
    }

    /// It has its turn. What is left to do, without the lock, is [`Attachment::run_turn`].
    pub(super) fn hand_on(&self, queue: &mut Queue, short: &Short) -> Option<Taken> {
        let post = slot_post(self.lane);
        if short.is_waiter
            && let Some(first) = queue.front_waiter(post)
        {
            first.decide(Fate::Granted);
        }
        self.serve(queue, short.since, short.after);
        self.attachment.take_turn(queue, post)
    }

    /// The next call in line has the slot that the last one on this thread gave back: `turn` becomes it. `false`: nothing was
    /// done, and the slot is still to be given back.
    #[inline(always)]
    pub(super) fn follow(&self, turn: &mut Turn) -> bool {
        // In a forked child nothing but the state is there; and a call may have dropped all handles but that of its loop.
        // What was given back another may have given back already.
        if self.attachment.state.peek() != 0
            || self.attachment.handle().strong_count() < 2
            || self.attachment.raw_held.get() == 0
        {
            return false;
        }
        let mut queue = self.attachment.queue.lock();
        if !self.is_open() {
            return false;
        }
        let Some(run) = queue.front_run(slot_post(self.lane)) else {
            return false;
        };
        let about = run.about;
        if !has_room(self.hot, self.lane, about.seat(0)) {
            return false;
        }
        let Some((since, after)) = run.pop_before_another(&mut turn.thunk) else {
            return false;
        };
        turn.silence = about.silence;
        queue.popped(slot_post(self.lane));
        self.serve(&mut queue, since, after);
        true
    }
}

impl Attachment {
    /// Whether a slot that a callback gives back now goes to a callback of this member, as far as can be seen at a glance:
    /// they are all that waits, and the first of them fits.
    #[inline(always)]
    pub(super) fn is_callback_next(&self) -> bool {
        let lanes = self.own_lanes();
        // The state first: in a forked child nothing else is there.
        if !lanes.is_power_of_two()
            || self.state.peek() != 0
            || self.askers.get() != 0
            || self.raw_held.get() == 0
        {
            return false;
        }
        let (hot, lane) = (self.hot(), lanes.trailing_zeros() as usize);
        let place = self.places.get(lane);
        let seat = |place: &Place| Seat {
            amount: place.amount.peek(),
            bound: place.bound.peek(),
            ceiling: place.ceiling.peek(),
            since: 0,
        };
        hot.summary.get() == lanes
            && hot.waiters.get() == 1
            && place.is_some_and(|place| has_room(hot, lane, seat(place)))
    }
}
