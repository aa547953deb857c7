//! The short way: a queue of callbacks that drains, each release handing on to the next.

use super::turn::slot_post;
use crate::error::NothingHeld;
use crate::layout::{Gate, Place};
use crate::park::queue::{Pair, Queue, Taken};
use crate::park::waiter::Fate;
use crate::protocol::ledger::{self, fits};
use crate::protocol::line::{Doing, State};
use crate::protocol::scheduler::fast_bound;
use crate::segment::attachment::Attachment;
use std::sync::Arc;

/// Who is next by it.
pub(super) struct Short<'a> {
    lane: usize,
    place: &'a Place,
    /// Whether it is a waiter, and not a call.
    is_waiter: bool,
    /// Since when it waits, and the one behind it.
    since: u64,
    after: u64,
}

impl Attachment {
    /// Gives back a slot of a callback by the short way, if that is open.
    #[inline]
    pub(super) fn hand_on_at_once(self: &Arc<Self>) -> Option<Result<(), NothingHeld>> {
        let lanes = self.own_lanes();
        // The state first: in a forked child nothing else is there.
        if lanes == 0 || self.state.peek() != 0 || self.hot().summary.peek() != lanes {
            return None;
        }
        let mut queue = self.queue.lock();
        if !self.is_well() || self.hot().hold_off.peek() != 0 {
            return None;
        }
        let short = self.next_of_ours_alone(&mut queue, 1)?;
        let counted = match queue.is_biased() {
            true => self.raw_held.sub_lent(&mut queue.lent),
            false => {
                self.raw_held.take_back(&mut queue.lent);
                self.raw_held.sub().is_ok()
            }
        };
        if !counted {
            return Some(Err(NothingHeld));
        }
        let turn = self.hand_on(&mut queue, short);
        drop(queue);
        self.run_turn(turn);
        Some(Ok(()))
    }

    /// While callbacks of one lane of this member are all that waits: the next of them has its turn, and the
    /// place stays as it stands for the one behind it. Its ticket is older than that one's arrival, but there is nobody
    /// with whom it would be compared; who joins from here on comes after it either way. The helper need not be rung for
    /// that one: whoever joined first has it rung, or found it ready, after its own try. Nothing is done yet.
    #[inline(always)]
    pub(super) fn next_of_ours_alone(&self, queue: &mut Queue, slots: u32) -> Option<Short<'_>> {
        let lanes = self.own_lanes();
        let lane = lanes.trailing_zeros() as usize;
        let line = self.views.line(Gate::Scheduler);
        let hot = self.hot();
        // None any more, if the last left before the queue's lock was had.
        if lanes.count_ones() != 1 || hot.hurry.get() != 0 || !line.is_alone(self.me, lane) {
            return None;
        }
        let place = line.place(self.me, lane)?;
        let Pair {
            seat,
            after,
            is_waiter,
        } = queue.first_of_two_alike(slot_post(lane))?;
        // What one slot may be taken up to, for the handle of these.
        let room = fast_bound(hot, lane, seat.bound.min(seat.ceiling)).min(i32::MAX as u32);
        let running = hot.running.get().wrapping_sub(1);
        // Called already means that it is served in a moment.
        let asleep = State(place.state.get()).doing() == Doing::Asleep;
        if !asleep || (slots, seat.amount) != (1, 1) || !fits(running, 1, room) {
            return None;
        }
        Some(Short {
            lane,
            place,
            is_waiter,
            since: seat.since,
            after,
        })
    }

    /// It has its turn. What is left to do, without the lock, is [`Self::run_turn`].
    #[inline(always)]
    pub(super) fn hand_on(self: &Arc<Self>, queue: &mut Queue, short: Short<'_>) -> Option<Taken> {
        let post = slot_post(short.lane);
        short.place.since.poke(short.after);
        if short.is_waiter
            && let Some(first) = queue.front_waiter(post)
        {
            first.decide(Fate::Granted);
        }
        match self.hot_record(&self.views.records) {
            Some(record) => ledger::pass_on(record, 1),
            None => ledger::pass_on(&self.own(), 1),
        }
        let now = queue.moments.now();
        self.left_served(post, short.since, now);
        self.member().held_since.put(now);
        self.take_turn(queue, post)
    }
}
