//! A child's waiter at the level above, where it stands in line like anybody's: its `upper` waiter. While it stands there
//! it has given the child's tokens back, and is *held* here.
//!
//! Locks are taken from the child up, never down: what the level above calls for rings a bell.

use super::turn::Taken;
use crate::layout::Gate;
use crate::park::waiter::{Fate, Kind, Nudge, Waiter, Wish, note};
use crate::park::{self, HELPER_BIT};
use crate::protocol::limiter::guard;
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::sys::mutex::Mutex;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

/// When one that could not wait above tries again.
const RETRY_NS: u64 = 10_000_000;

impl Attachment {
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
    pub(super) fn take_above(
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
                let _ = above.reseat(&mut queue, standing.post);
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

    /// Leaves the level above, if it called there and there is no turn here: it would be waited for there. By another
    /// thread, since whom that wakes is foreign code, and our queue is locked.
    pub(super) fn leave_parent_later(&self, waiter: &Waiter) {
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
