//! A member's queue and its places in the lines: joining, leaving, and what is left to others by that.

use crate::error::AcquireError;
use crate::layout::{Gate, Member};
use crate::park::Post;
use crate::park::queue::Queue;
use crate::park::run::About;
use crate::park::waiter::{Nudge, Step, Waiter};
use crate::protocol::pressure::Pressure;
use crate::protocol::turn::Why;
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::sys::thunk::Thunk;

use crate::words::U64;
use std::sync::Arc;

/// Which counter of a member's queue.
#[derive(Clone, Copy)]
pub(super) enum Count {
    Deferred,
    Completed,
    Cancelled,
}

#[inline(always)]
fn count(member: &Member, post: Post, which: Count) {
    let counts = member.queue(post.gate, post.lane);
    let count: Option<&U64> = counts.map(|counts| counts[which as usize]);
    if let Some(count) = count {
        count.put(count.peek().wrapping_add(1));
    }
}

/// Counts one that left the queue with what it wanted. Under the queue's lock.
#[inline(always)]
pub(crate) fn served(member: &Member, pressure: Pressure<'_>, post: Post, since: u64, now: u64) {
    count(member, post, Count::Completed);
    pressure.progress(now);
    member.took(post.gate.into(), now.saturating_sub(since));
}

impl Attachment {
    #[inline(always)]
    pub(super) fn count(&self, post: Post, which: Count) {
        count(self.member(), post, which);
    }

    /// The place of a waiter that acts for the member.
    pub(crate) fn spot(&self, waiter: &Waiter) -> u32 {
        match waiter.post.gate {
            Gate::Pacer => waiter.spot,
            _ => self.me,
        }
    }

    /// Joins the member's queue, and the line if it is the first of its post, or has a place of its own.
    pub(crate) fn enqueue(&self, waiter: &Arc<Waiter>) -> Result<(), AcquireError> {
        self.join(&mut self.queue.lock(), waiter)?;
        waiter.tell(Step::Queued);
        Ok(())
    }

    /// [`Self::enqueue`] under the queue's lock, for who goes on with it, and tells of it afterwards: whether it is the
    /// first of its post.
    pub(super) fn join(
        &self,
        queue: &mut Queue,
        waiter: &Arc<Waiter>,
    ) -> Result<bool, AcquireError> {
        if let Some(failure) = self.wait_failure(waiter) {
            return Err(failure);
        }
        let gate = waiter.post.gate;
        if queue.shut || self.is_barred(gate) {
            return Err(self.failure_at(gate).unwrap_or(AcquireError::Disposed));
        }
        queue.push(waiter.clone());
        self.count(waiter.post, Count::Deferred);
        let first = queue.is_first(waiter);
        if first {
            self.own_posts.set_bits(waiter.post.bit());
        }
        if first || gate == Gate::Pacer {
            let line = self.views.line(gate);
            let lane = waiter.post.lane;
            line.join(self.spot(waiter), self.owner(), lane, waiter.seat());
            line.recount();
            self.views.pressure(gate).begin(clock::now());
        }
        Ok(first)
    }

    /// Puts a call behind a callback of this member and lane, if one waits there and nothing is the matter. The thunk is
    /// empty afterwards.
    #[inline(always)]
    pub(crate) fn join_behind(&self, about: About, thunk: &mut Thunk) -> bool {
        let lane = about.lane as usize;
        let gate = Gate::Scheduler;
        let post = Post { gate, lane };
        if self.own_posts.peek() & post.bit() == 0 {
            return false;
        }
        let hot = self.hot();
        let mut queue = self.queue.lock();
        // First whether it is well: in a forked child nothing else is there.
        let joined = self.is_well()
            && !queue.shut
            && hot.concurrency.get() != 0
            && hot.hold_off.peek() == 0
            && queue.push_call(about, thunk);
        if joined {
            self.count(post, Count::Deferred);
        }
        joined
    }

    /// Takes a waiter out of the queue, served or not; the next of its post takes the place, with a new ticket.
    pub(crate) fn take_out(&self, queue: &mut Queue, waiter: &Arc<Waiter>, served: bool) -> Nudge {
        let was_first = queue.is_first(waiter);
        if !queue.remove(waiter) {
            return Nudge::Nobody;
        }
        match served {
            true => self.left_served(waiter.post, waiter.since, clock::now()),
            false => self.count(waiter.post, Count::Cancelled),
        }
        self.give_up_spot(waiter);
        if was_first {
            self.reseat(queue, waiter.post)
        } else {
            Nudge::Nobody
        }
    }

    /// Counts one that left the queue with what it wanted. Under the queue's lock.
    #[inline(always)]
    pub(crate) fn left_served(&self, post: Post, since: u64, now: u64) {
        served(
            self.member(),
            self.views.pressure(post.gate),
            post,
            since,
            now,
        );
    }

    /// Gives up the place of a waiter that has one of its own.
    pub(super) fn give_up_spot(&self, waiter: &Waiter) {
        if waiter.post.gate == Gate::Pacer {
            let line = self.views.line(Gate::Pacer);
            line.leave(waiter.spot, self.generation, 0); // pair: line-leave
            line.free_spot(waiter.spot, self.owner());
        }
    }

    /// Gives the post's place to whoever is first now, or up.
    pub(crate) fn reseat(&self, queue: &mut Queue, post: Post) -> Nudge {
        let line = self.views.line(post.gate);
        match queue.first(post) {
            Some(first) => {
                first.called.put(0);
                if post.gate != Gate::Pacer {
                    line.unmark(self.me, self.generation, post.lane);
                    line.join(self.me, self.owner(), post.lane, first.seat());
                }
                if first.is_thread() {
                    first.nudge()
                } else {
                    self.ring_helper();
                    Nudge::Nobody
                }
            }
            None => {
                if post.gate != Gate::Pacer {
                    line.leave(self.me, self.generation, post.lane); // pair: line-leave
                }
                self.own_posts.clear_bits(post.bit());
                Nudge::Nobody
            }
        }
    }

    /// After a place changed hands or was given up, outside the queue's lock: room left to it is somebody's.
    pub(crate) fn settled(&self, gate: Gate) {
        self.moved(gate, Why::Moved);
    }

    pub(super) fn moved(&self, gate: Gate, why: Why) {
        self.advance(gate, None, why);
        self.views.line(gate).recount();
        self.end_pressure(gate);
        if gate == Gate::Limiter {
            let drained = self.queue.lock().drained();
            drained.into_iter().for_each(Nudge::deliver);
        }
    }

    /// If nobody waits any more, that is when waiting ended; who joined in between begins it anew.
    fn end_pressure(&self, gate: Gate) {
        let line = self.views.line(gate);
        if line.summary.get() == 0 {
            let pressure = self.views.pressure(gate);
            pressure.end(clock::now());
            if line.summary.get() != 0 {
                pressure.begin(clock::now());
            }
        }
    }
}
