//! Waits that end without what they were for: given up, failed, the member gone.

use super::places::Count;
use crate::error::AcquireError;
use crate::layout::Gate;
use crate::park::queue::Entry;
use crate::park::waiter::{Fate, Kind, Nudge, Step, Waiter, note};
use crate::park::{self, Post};
use crate::protocol::turn::Why;
use crate::segment::attachment::{Attachment, state};
use crate::sys::clock;
use std::sync::Arc;

impl Attachment {
    /// Gives up waiting. `false` if the wait had ended already: look at its fate.
    pub(crate) fn cancel(self: &Arc<Self>, waiter: &Arc<Waiter>) -> bool {
        if self.state.get() & state::FORKED != 0 {
            return false;
        }
        let gate = waiter.post.gate;
        let nudge = {
            let mut queue = self.queue.lock();
            if waiter.fate() != Fate::Waiting {
                return false;
            }
            waiter.decide(Fate::Failed);
            waiter.notes.set_bits(note::CANCELLED);
            if gate == Gate::Limiter && queue.is_first(waiter) {
                let limiter = self.views.limiter();
                if limiter.line.is_front(self.me, waiter.post.lane) {
                    // Another is the front now: its second begins.
                    limiter.got_on(waiter.post.lane, clock::now());
                }
            }
            self.take_out(&mut queue, waiter, false)
        };
        nudge.deliver();
        self.leave_parent(waiter);
        // Those behind it reckoned with what it would have taken.
        self.moved(gate, Why::Sooner);
        true
    }

    /// Ends a wait that cannot go on; a reason that concerns the whole member ends all of them. `Ok` if a releaser was
    /// faster.
    pub(crate) fn end_wait(
        self: &Arc<Self>,
        waiter: &Arc<Waiter>,
        failure: AcquireError,
    ) -> Result<(), AcquireError> {
        if matches!(failure, AcquireError::DoesNotFit { .. }) {
            self.cancel(waiter);
        } else {
            self.fail_everybody(waiter.post.gate);
        }
        match waiter.fate() {
            Fate::Granted => Ok(()),
            _ => Err(failure),
        }
    }

    /// Ends every wait of this member at a gate: it was closed or disposed, or the segment is no use any more. The
    /// callbacks are dropped without being called.
    pub(crate) fn fail_everybody(self: &Arc<Self>, gate: Gate) {
        let (entries, nudges) = {
            let mut queue = self.queue.lock();
            let entries = queue.drain(gate);
            if entries.is_empty() {
                return;
            }
            let mut nudges = Vec::new();
            for entry in &entries {
                (0..entry.len()).for_each(|_| self.count(entry.post(), Count::Cancelled));
                if let Some(waiter) = entry.waiter() {
                    waiter.decide(Fate::Failed);
                    self.give_up_spot(waiter);
                    nudges.push(waiter.nudge());
                }
            }
            let posts = self.own_posts.get();
            for post in Post::of(gate).filter(|post| posts & post.bit() != 0) {
                let _ = self.reseat(&mut queue, post);
            }
            (entries, nudges)
        };
        nudges.into_iter().for_each(Nudge::deliver);
        park::ring_everybody(&self.member().bell);
        let waiters = || entries.iter().filter_map(Entry::waiter);
        for waiter in waiters() {
            self.leave_parent(waiter);
        }
        self.moved(gate, Why::Sooner);
        for waiter in waiters() {
            if let (Kind::Callback(_), Some(_)) = (&waiter.kind, &waiter.told) {
                match self.failure_at(gate) {
                    Some(failure) => waiter.tell(Step::Failed(&failure)),
                    None => waiter.tell(Step::Dropped),
                }
            }
        }
        drop(entries);
    }

    /// Ends the member's waits and its helper: the last handle is gone.
    pub(crate) fn shut_down(self: &Arc<Self>) {
        if self.state.get() & state::FORKED != 0 {
            return;
        }
        self.queue.lock().shut = true;
        for gate in Gate::ALL {
            self.fail_everybody(gate);
        }
        if self.helper.lock().stop() {
            self.ring_helper();
        }
        self.lookout.lock().stop();
    }

    /// Why a wait cannot go on.
    pub(crate) fn wait_failure(&self, waiter: &Waiter) -> Option<AcquireError> {
        let failure = self.failure_at(waiter.post.gate);
        failure.or_else(|| match waiter.post.gate {
            Gate::Scheduler => self.never_fits(waiter.amount),
            _ => None,
        })
    }
}
