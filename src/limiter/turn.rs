//! A turn at the Limiter: taking tokens, here and at every level above.
//!
//! A request of a child waits among the child's own until its turn comes there. Then it takes the child's tokens and asks
//! the level above, where it stands in line like anybody's (its `upper` waiter); while it does, it has given the child's
//! tokens back. Locks are taken from the child up, never down: what the level above calls for rings a bell.

use crate::layout::Gate;
use crate::park::queue::Queue;
use crate::park::waiter::{Fate, Kind, Nudge, Waiter, Wish};
use crate::park::{self, HELPER_BIT};
use crate::protocol::bucket::Bucket;
use crate::protocol::limiter::GUARD_NS;
use crate::protocol::line::Doing;
use crate::protocol::turn::{Outlook, Why};
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::sys::mutex::Mutex;
use crate::waiting::{Attempt, Later};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

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

    /// What a newcomer may do: nobody passes the line. All levels, or none.
    pub(crate) fn take_tokens_now(self: &Arc<Self>, tokens: u32) -> bool {
        if self.views.limiter_hot.summary.get() != 0 {
            return false;
        }
        let bucket = self.bucket();
        bucket.refill(clock::now());
        if self.views.limiter_hot.summary.get() != 0 {
            // Who joined between our claim and our credit reckoned without it: pair `bucket-credit`.
            self.advance(Gate::Limiter, None, Why::Sooner);
            return false;
        }
        if tokens != 0 && bucket.debit(tokens, tokens as i32).is_err() {
            return false;
        }
        if let Some(parent) = &self.parent
            && !parent.attachment.take_tokens_now(tokens)
        {
            bucket.credit(tokens.into());
            return false;
        }
        self.count_tokens(tokens);
        true
    }

    /// Into debt, if need be, at this level and those above; all, or none. Whether any went into debt.
    fn force_tokens(self: &Arc<Self>, tokens: u32) -> Option<bool> {
        let bucket = self.bucket();
        bucket.refill(clock::now());
        let debit = bucket.debit(tokens, i32::MIN).ok()?;
        let above = match &self.parent {
            None => false,
            Some(parent) => match parent.attachment.force_tokens(tokens) {
                Some(into_debt) => into_debt,
                None => {
                    bucket.credit(tokens.into());
                    return None;
                }
            },
        };
        self.count_tokens(tokens);
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
                return Err(self.take_note(waiter, outlook));
            }
            let now = clock::now();
            bucket.refill(now);
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
            let Some(mut nudges) = self.take_above(waiter, force, &mut into_debt) else {
                bucket.credit(amount.into());
                line.settle(self.me, lane);
                return Err(Later {
                    due: match force {
                        true => self.fits_above(amount, now),
                        false => self.guard_of(waiter),
                    },
                    ..Later::FIRST
                });
            };
            gate.got_on(lane, now);
            self.count_tokens(amount);
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
        let progress = self.views.limiter_cold.progress[waiter.post.lane].get();
        let since = progress.min(clock::now()).max(waiter.since);
        since.saturating_add(GUARD_NS)
    }

    /// Until when a waiter of a child has nothing to do but wait for the level above.
    pub(crate) fn held_until(&self, waiter: &Waiter) -> Option<u64> {
        if waiter.held.get() == 0 {
            return None;
        }
        let until = self.guard_of(waiter);
        (until > clock::now()).then_some(until)
    }

    /// Takes the tokens of a waiter at the level above. `None`: it waits there now. What is forced there is counted here
    /// (X34).
    fn take_above(
        self: &Arc<Self>,
        waiter: &Arc<Waiter>,
        force: bool,
        into_debt: &mut bool,
    ) -> Option<Vec<Nudge>> {
        let Some(parent) = &self.parent else {
            return Some(Vec::new());
        };
        let above = &parent.attachment;
        let mut upper = waiter.upper.lock();
        if force {
            if waiter.amount != 0 {
                *into_debt |= above.force_tokens(waiter.amount)?;
            }
            // Outside our queue's lock: those behind it there are woken by foreign code.
            let (above, upper) = (above.clone(), upper.take());
            waiter.held.put(0);
            return Some(vec![Nudge::Then(Box::new(move || {
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
                return Some(Vec::new());
            }
            let wish = Wish {
                post: waiter.post,
                amount: waiter.amount,
                bound: waiter.bound,
                ceiling: waiter.ceiling,
            };
            let kind = Kind::Task(Mutex::new(Some(waker)));
            let standing = Arc::new(Waiter::new(kind, wish, clock::now(), None));
            // What fails there fails the wait here, when it is looked at next.
            if above.ensure_helper().is_err() || above.enqueue(&standing).is_err() {
                waiter.held.put(0);
                return None;
            }
            *upper = Some(standing);
            above.ring_helper();
            return None;
        };
        if let Kind::Task(slot) = &standing.kind {
            *slot.lock() = Some(waker);
        }
        let mut queue = above.queue.lock();
        if standing.fate() != Fate::Waiting {
            *upper = None;
            waiter.held.put(0);
            return None;
        }
        if standing.passed.peek() != 0 {
            standing.passed.put(0);
            if queue.is_first(&standing) {
                let _ = above.reseat(&queue, standing.post);
            }
        }
        if !queue.is_first(&standing) {
            return None;
        }
        standing.called.put(0);
        let Taken {
            mut nudges,
            into_debt: forced,
        } = above.try_tokens(&mut queue, &standing).ok()?;
        *into_debt |= forced;
        *upper = None;
        waiter.held.put(0);
        let above = above.clone();
        nudges.push(Nudge::Then(Box::new(move || above.settled(Gate::Limiter))));
        Some(nudges)
    }

    /// Leaves the level above, after a wait here ended without its tokens.
    pub(crate) fn leave_parent(&self, waiter: &Waiter) {
        let upper = waiter.upper.lock().take();
        if let (Some(upper), Some(parent)) = (upper, &self.parent) {
            parent.attachment.cancel(&upper);
        }
    }

    /// [`Attachment::notice_gone`] twice a second at most.
    pub(crate) fn notice_gone_at_times(&self) {
        let now = clock::coarse_ms();
        if now >= self.asked_gone.get().saturating_add(500) {
            self.asked_gone.put(now);
            self.notice_gone();
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
