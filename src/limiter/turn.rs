//! A turn at the Limiter: taking tokens, here and at every level above.
//!
//! A request of a child waits among the child's own until its turn comes there. Then it takes the child's tokens and asks
//! the level above, where it stands in line like anybody's (its `upper` waiter); while it does, it has given the child's
//! tokens back. Locks are taken from the child up, never down: what the level above calls for rings a bell.

use crate::layout::Gate;
use crate::park::queue::Queue;
use crate::park::waiter::{Fate, Kind, Nudge, Waiter, Wish, note};
use crate::park::{self, HELPER_BIT};
use crate::protocol::bucket::Bucket;
use crate::protocol::limiter::guard;
use crate::protocol::line::Doing;
use crate::protocol::turn::{Outlook, Why};
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::sys::mutex::Mutex;
use crate::waiting::{Attempt, Later};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

/// When one that could not wait above tries again.
const RETRY_NS: u64 = 10_000_000;

impl Attachment {
    fn bucket(&self) -> Bucket<'_> {
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
    fn force_tokens(self: &Arc<Self>, tokens: u32) -> Option<bool> {
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
    fn try_tokens(
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

    /// When every level above can hold the debt of so many tokens (I17). Not at once, or who asks would spin.
    fn fits_above(&self, amount: u32, now: u64) -> u64 {
        let mut at = now.saturating_add(1_000_000);
        let mut level = &self.parent;
        while let Some(parent) = level {
            let least = i64::from(amount) + i64::from(i32::MIN);
            at = at.max(parent.attachment.bucket().due(least, now));
            level = &parent.attachment.parent;
        }
        at
    }

    /// When a waiter may go into debt.
    fn guard_of(&self, waiter: &Waiter) -> u64 {
        let progress = &self.views.limiter_cold.progress[waiter.post.lane];
        guard(progress, waiter.since, clock::now())
    }

    /// Until when a waiter of a child has nothing to do but wait for the level above.
    pub(crate) fn held_until(&self, waiter: &Waiter) -> Option<u64> {
        if waiter.held.get() == 0 {
            return None;
        }
        let until = self.guard_of(waiter);
        (until > clock::now()).then_some(until)
    }

    /// Takes the tokens of a waiter at the level above. `Err`: it waits there now; when to look again at the latest. What is
    /// forced there is counted here (X34).
    fn take_above(
        self: &Arc<Self>,
        waiter: &Arc<Waiter>,
        force: bool,
        into_debt: &mut bool,
    ) -> Result<Vec<Nudge>, u64> {
        let Some(parent) = &self.parent else {
            return Ok(Vec::new());
        };
        let above = &parent.attachment;
        let mut upper = waiter.upper.lock();
        if force {
            if waiter.amount != 0 {
                let forced = above.force_tokens(waiter.amount);
                let fits = || self.fits_above(waiter.amount, clock::now());
                *into_debt |= forced.ok_or_else(fits)?;
            }
            // Outside our queue's lock: those behind it there are woken by foreign code.
            let (above, upper) = (above.clone(), upper.take());
            waiter.held.put(0);
            return Ok(vec![Nudge::Then(Box::new(move || {
                if let Some(upper) = &upper {
                    above.cancel(upper);
                }
            }))]);
        }
        let waker = Waker::from(Arc::new(Call {
            member: Arc::downgrade(self),
            waiter: Arc::downgrade(waiter),
        }));
        // Before the look: a call from now on takes it away again.
        waiter.held.put(1);
        let Some(standing) = upper.clone() else {
            if above.take_tokens_now(waiter.amount) {
                waiter.held.put(0);
                return Ok(Vec::new());
            }
            let wish = Wish {
                post: waiter.post,
                amount: waiter.amount,
                bound: waiter.bound,
                ceiling: waiter.ceiling,
            };
            let kind = Kind::Task(Mutex::new(Some(waker)));
            let standing = Arc::new(Waiter::new(kind, wish, clock::now(), None));
            // What fails there fails the wait here, when it is looked at next; with no thread to be had it tries again.
            if above.ensure_helper().is_err() || above.enqueue(&standing).is_err() {
                waiter.held.put(0);
                return Err(clock::now().saturating_add(RETRY_NS));
            }
            *upper = Some(standing);
            above.ring_helper();
            return Err(self.guard_of(waiter));
        };
        if let Kind::Task(slot) = &standing.kind {
            *slot.lock() = Some(waker);
        }
        let mut queue = above.queue.lock();
        if standing.fate() != Fate::Waiting {
            *upper = None;
            waiter.held.put(0);
            return Err(clock::now().saturating_add(RETRY_NS));
        }
        if standing.passed.peek() != 0 {
            standing.passed.put(0);
            if queue.is_first(&standing) {
                let _ = above.reseat(&queue, standing.post);
            }
        }
        if !queue.is_first(&standing) {
            return Err(self.guard_of(waiter));
        }
        standing.called.put(0);
        let Taken {
            mut nudges,
            into_debt: forced,
        } = above
            .try_tokens(&mut queue, &standing)
            .map_err(|_| self.guard_of(waiter))?;
        *into_debt |= forced;
        waiter.notes.set_bits(standing.notes.get() & note::STALLED);
        *upper = None;
        waiter.held.put(0);
        let above = above.clone();
        nudges.push(Nudge::Then(Box::new(move || above.settled(Gate::Limiter))));
        Ok(nudges)
    }

    /// Leaves the level above, if it called there and there is no turn here: it would be waited for there. By another
    /// thread, since whom that wakes is foreign code, and our queue is locked.
    fn leave_parent_later(&self, waiter: &Waiter) {
        if self.parent.is_none() || waiter.held.get() != 0 {
            return;
        }
        let mut upper = waiter.upper.lock();
        if upper.is_none() {
            return;
        }
        // With no thread to be had it stays there, and lapses.
        let Some(runner) = self.helper.lock().runner() else {
            return;
        };
        if let (Some(upper), Some(parent)) = (upper.take(), self.parent.clone()) {
            let _ = runner.send(Box::new(move || {
                parent.attachment.cancel(&upper);
            }));
        }
    }

    /// Leaves the level above, after a wait here ended without its tokens.
    pub(crate) fn leave_parent(&self, waiter: &Waiter) {
        let upper = waiter.upper.lock().take();
        if let (Some(upper), Some(parent)) = (upper, &self.parent) {
            parent.attachment.cancel(&upper);
        }
    }
}

/// A turn that was taken: whom to wake, and whether any level went into debt.
struct Taken {
    nudges: Vec<Nudge>,
    into_debt: bool,
}

/// What the level above wakes: the child's waiter, whatever it is.
struct Call {
    member: Weak<Attachment>,
    waiter: Weak<Waiter>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        if let (Some(member), Some(waiter)) = (self.member.upgrade(), self.waiter.upgrade()) {
            waiter.held.put(0);
            park::ring(&member.member().bell, waiter.post.bit() | HELPER_BIT);
        }
    }
}
