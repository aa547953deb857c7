//! A turn at the Limiter: taking tokens, at this level and those above.
//!
//! A request of a child waits among the child's own until its turn comes there. Then it takes the child's tokens and asks
//! the level above (`levels`).

use crate::layout::Gate;
use crate::park::queue::Queue;
use crate::park::waiter::{Nudge, Waiter, note};
use crate::protocol::bucket::Bucket;
use crate::protocol::line::Doing;
use crate::protocol::turn::{Outlook, Why};
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::waiting::{Attempt, Later};
use std::sync::Arc;

impl Attachment {
    pub(super) fn bucket(&self) -> Bucket<'_> {
        Bucket {
            hot: &self.views.limiter_hot,
        }
    }

    /// Whether anybody stands in the line of this level or of one above.
    pub(crate) fn somebody_waits_for_tokens(&self) -> bool {
        let above = || {
            self.parent
                .as_ref()
                .is_some_and(|parent| parent.attachment.somebody_waits_for_tokens())
        };
        self.views.limiter_hot.summary.get() != 0 || above()
    }

    /// Who stands in line and looked before tokens came reckons too late when its turn comes: pair `bucket-credit`.
    fn tell_of_credit(&self) {
        if self.views.limiter_hot.summary.get() != 0 {
            self.advance(Gate::Limiter, None, Why::Sooner);
        }
    }

    /// Gives back what this level took before one above refused.
    fn put_back(&self, tokens: u32) {
        self.bucket().credit(tokens.into());
        self.tell_of_credit();
    }

    /// What a newcomer may do: nobody passes the line. All levels, or none.
    pub(crate) fn take_tokens_now(self: &Arc<Self>, tokens: u32) -> bool {
        if self.must_queue(Gate::Limiter) {
            return false;
        }
        let bucket = self.bucket();
        bucket.refill_by(clock::now);
        if self.must_queue(Gate::Limiter) {
            self.tell_of_credit();
            return false;
        }
        if tokens != 0 && bucket.debit(tokens, tokens as i32).is_err() {
            return false;
        }
        if let Some(parent) = &self.parent
            && !parent.attachment.take_tokens_now(tokens)
        {
            self.put_back(tokens);
            return false;
        }
        self.count_tokens(tokens);
        true
    }

    /// Into debt, if need be, at this level and those above; all, or none. Whether any went into debt.
    pub(super) fn force_tokens(self: &Arc<Self>, tokens: u32) -> Option<bool> {
        let bucket = self.bucket();
        bucket.refill_by(clock::now);
        let debit = bucket.debit(tokens, i32::MIN).ok()?;
        let above = match &self.parent {
            None => false,
            Some(parent) => match parent.attachment.force_tokens(tokens) {
                Some(into_debt) => into_debt,
                None => {
                    self.put_back(tokens);
                    return None;
                }
            },
        };
        self.count_tokens(tokens);
        self.tell_of_credit();
        Some(debit.into_debt || above)
    }

    /// Gives tokens back, at this level and those above.
    pub(crate) fn give_tokens_back(self: &Arc<Self>, tokens: u32) {
        self.bucket().credit(tokens.into());
        let record = self.own();
        let consumed = record.consumed.peek();
        record.consumed.put(consumed.wrapping_sub(tokens.into()));
        drop(record);
        if let Some(parent) = &self.parent {
            parent.attachment.give_tokens_back(tokens);
        }
    }

    fn count_tokens(self: &Arc<Self>, tokens: u32) {
        let record = self.own();
        let consumed = record.consumed.peek();
        record.consumed.put(consumed.wrapping_add(tokens.into()));
    }

    /// One try of the member's first waiter of a lane: sleep, look, take. Under the queue's lock.
    pub(crate) fn attempt_tokens(
        self: &Arc<Self>,
        queue: &mut Queue,
        waiter: &Arc<Waiter>,
    ) -> Attempt {
        match self.try_tokens(queue, waiter) {
            Ok(Taken { nudges, into_debt }) => {
                if into_debt {
                    let forced = &self.member().forced[waiter.post.lane];
                    forced.put(forced.peek().wrapping_add(1));
                    waiter.notes.set_bits(note::FORCED);
                }
                Attempt::Got(nudges)
            }
            Err(later) => Attempt::Later(later),
        }
    }

    /// The same, also for a waiter of a child, which counts for itself what went into debt (X34).
    pub(super) fn try_tokens(
        self: &Arc<Self>,
        queue: &mut Queue,
        waiter: &Arc<Waiter>,
    ) -> Result<Taken, Later> {
        let (lane, amount) = (waiter.post.lane, waiter.amount);
        let gate = self.views.limiter();
        let (line, bucket) = (gate.line, gate.bucket());
        // Each round loses a race for tokens to somebody who got them.
        for _ in 0..64 {
            if !line.is_announced(self.me, lane) {
                line.announce(self.me, lane);
            }
            let was = line.settle(self.me, lane); // pair: line-sleep
            if let Some(until) = self.held_until(waiter) {
                line.stand_back(self.me, lane);
                return Err(Later {
                    due: until,
                    ..Later::FIRST
                });
            }
            let outlook = match was.doing() {
                Doing::Called => Outlook {
                    turn: Some(was.drawn()),
                    ..Outlook::default()
                },
                _ => self.advance(Gate::Limiter, Some(waiter), Why::Moved),
            };
            if outlook.turn.is_none() {
                self.leave_parent_later(waiter);
                return Err(self.take_note(waiter, outlook));
            }
            let now = clock::now();
            bucket.refill_by(clock::now);
            // Not on the word of who called: the lane may have got on since.
            let force = gate.may_force(lane, waiter.since, now);
            let least = match force {
                true => i32::MIN,
                false => bucket.enough(amount),
            };
            let mut into_debt = match amount {
                0 => false,
                _ => match bucket.debit(amount, least) {
                    Ok(debit) => debit.into_debt,
                    Err(_) => continue,
                },
            };
            let mut nudges = match self.take_above(waiter, force, &mut into_debt) {
                Ok(nudges) => nudges,
                Err(due) => {
                    // Nobody of this member looked in between, under our queue's lock.
                    bucket.credit(amount.into());
                    // The others of this member need not wait for what is above.
                    line.stand_back(self.me, lane);
                    self.advance(Gate::Limiter, None, Why::Sooner);
                    return Err(Later {
                        due,
                        ..Later::FIRST
                    });
                }
            };
            gate.got_on(lane, now);
            self.count_tokens(amount);
            if force && into_debt {
                waiter.notes.set_bits(note::STALLED);
            }
            nudges.push(self.take_out(queue, waiter, true));
            return Ok(Taken { nudges, into_debt });
        }
        // Not left called: it would count as in, and nobody would ring it.
        line.settle(self.me, lane);
        Err(Later::FIRST)
    }
}

/// A turn that was taken: whom to wake, and whether any level went into debt.
pub(super) struct Taken {
    pub nudges: Vec<Nudge>,
    pub into_debt: bool,
}
