//! What the helper does for the first of a post, and what it puts off until the queue's lock is let go.

use super::{Attempt, Later};
use crate::error::AcquireError;
use crate::layout::Gate;
use crate::park::queue::Queue;
use crate::park::waiter::{Job, Kind, Nudge, Waiter};
use crate::protocol::line::{Doing, State};
use crate::protocol::turn::{GRACE_MS, Why};
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use std::sync::Arc;
use std::sync::mpsc::Sender;

impl Attachment {
    /// Looks after the first of a post. How it stands then.
    pub(super) fn tend(
        self: &Arc<Self>,
        queue: &mut Queue,
        first: &Arc<Waiter>,
        due: &mut Due,
    ) -> Later {
        if let Some(AcquireError::DoesNotFit { .. }) = self.wait_failure(first) {
            // A task finds out by itself when it is polled; a callback wants one slot, which fits.
            due.nudges.push(first.nudge());
        }
        let (spot, lane) = (self.spot(first), first.post.lane);
        let line = self.views.line(first.post.gate);
        let state = line
            .place(spot, lane)
            .map_or(State(0), |place| State(place.state.get()));
        let ms = clock::coarse_ms() as u32;
        match &first.kind {
            // Its poll takes the place up again.
            Kind::Task(_) if first.passed.peek() != 0 => Later {
                rank: u32::MAX,
                stands: u32::MAX,
                ..Later::FIRST
            },
            Kind::Task(_) if state.doing() != Doing::Called => {
                // Its parent's turn is what it waits for, and its bell will ring.
                if let Some(until) = self.held_until(first) {
                    return Later {
                        due: until,
                        ..Later::FIRST
                    };
                }
                // Not its turn, as far as anybody told us: look ourselves.
                let was = line.settle(spot, lane); // pair: line-sleep
                if was.doing() == Doing::Called {
                    // Called since it was read: give the turn back as it was.
                    line.recall(spot, lane, was);
                    return due.wake_task(first, ms);
                }
                if !line.is_announced(spot, lane) {
                    line.announce(spot, lane);
                }
                let outlook = match first.post.gate {
                    Gate::Scheduler => {
                        let found = self.recall_if_due(first.deadline); // pair: spare-join
                        self.look_for_slots(Some((self.me, lane)), found)
                    }
                    gate => self.advance(gate, Some(first), Why::Moved),
                };
                let later = self.take_note(first, outlook);
                match outlook.turn {
                    Some(_) => due.wake_task(first, ms),
                    None => later,
                }
            }
            Kind::Task(_) => {
                let called = first.called.peek();
                if called == 0 {
                    return due.wake_task(first, ms);
                }
                let left = GRACE_MS.saturating_sub(ms.wrapping_sub(called - 1));
                if left > 0 {
                    return Later {
                        due: clock::now() + u64::from(left) * 1_000_000,
                        ..Later::FIRST
                    };
                }
                // It was not polled: the next of this process goes first. With nobody else there the place is passed
                // over until the task is polled, or it would hold up every lane below.
                first.passed.put(1);
                first.called.put(0);
                let next = queue.first(first.post).cloned();
                let another = next.is_some_and(|next| next.passed.peek() == 0);
                if (!another || first.post.gate == Gate::Pacer)
                    && let Some(entry) = line.read(spot, lane)
                {
                    line.lapse(&entry, ms);
                }
                if another {
                    due.nudges.push(self.reseat(queue, first.post));
                }
                due.settle[first.post.gate as usize] = true;
                Later::FIRST
            }
            Kind::Callback(_) => {
                let Some(runner) = self.helper.lock().runner() else {
                    return Later::FIRST; // no thread now; try again at the next watch
                };
                match self.attempt(queue, first) {
                    Attempt::Got(nudges) => {
                        due.nudges.extend(nudges);
                        due.settle[first.post.gate as usize] = true;
                        due.jobs.extend(self.job_of(first).map(|job| (runner, job)));
                        Later::FIRST
                    }
                    Attempt::Later(later) => later,
                }
            }
            Kind::Thread(_) => Later::FIRST,
        }
    }
}

/// What is to be done outside the queue's lock.
#[derive(Default)]
pub(super) struct Due {
    pub nudges: Vec<Nudge>,
    jobs: Vec<(Sender<Job>, Job)>,
    /// By gate: a place changed hands.
    settle: [bool; 3],
    /// Somebody who was called may be dead.
    pub look: bool,
}

impl Due {
    pub fn is_empty(&self) -> bool {
        self.nudges
            .iter()
            .all(|nudge| matches!(nudge, Nudge::Nobody))
            && self.jobs.is_empty()
            && self.settle == [false; 3]
    }

    /// Wakes a task for its turn.
    fn wake_task(&mut self, first: &Waiter, ms: u32) -> Later {
        first.called.put(ms.wrapping_add(1).max(1));
        self.nudges.push(first.nudge());
        Later::FIRST
    }

    pub fn deliver(self, attachment: &Arc<Attachment>) {
        for nudge in self.nudges {
            nudge.deliver();
        }
        for (runner, job) in self.jobs {
            let _ = runner.send(job);
        }
        for (gate, settle) in Gate::ALL.into_iter().zip(self.settle) {
            if settle {
                attachment.settled(gate);
            }
        }
        if self.look {
            attachment.look_if_stale();
        }
    }
}
