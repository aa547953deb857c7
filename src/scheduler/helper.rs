//! The helper: one thread per member, started by the first task or callback that waits. It sleeps on the member's bell
//! for every lane whose first is no thread, wakes tasks for their turns and at their deadlines, and keeps the watches.

use super::wait::Attempt;
use crate::error::AcquireError;
use crate::layout::LANES;
use crate::park::queue::Queue;
use crate::park::waiter::{Job, Kind, Nudge, Waiter};
use crate::park::{helper_bit, lane_bit};
use crate::protocol::line::{Doing, State};
use crate::protocol::scheduler::GRACE_MS;
use crate::segment::attachment::Attachment;
use crate::sys::{clock, threads};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// What a member has of the helper.
#[derive(Default)]
pub(crate) struct Helper {
    started: bool,
    /// Runs callbacks whose turn came by another process's release.
    runner: Option<Sender<Job>>,
}

impl Helper {
    /// Lets the runner end. The helper itself sees the queue shut, once it is rung: whether there is one.
    pub fn stop(&mut self) -> bool {
        self.runner = None;
        self.started
    }

    /// Leaves the helper to the end of the process: nobody rings it any more.
    pub fn abandon(&mut self) {
        self.started = false;
    }

    pub fn runner(&mut self) -> Option<Sender<Job>> {
        if self.runner.is_none() {
            let (sender, jobs) = channel::<Job>();
            thread::Builder::new()
                .name("shmsched-jobs".into())
                .spawn(move || {
                    threads::leave_signals_to_others();
                    super::jobs::run_all(&jobs);
                })
                .ok()?;
            self.runner = Some(sender);
        }
        self.runner.clone()
    }
}

impl Attachment {
    /// Starts the helper unless it runs.
    ///
    /// # Errors
    ///
    /// The system gives no thread.
    pub(crate) fn ensure_helper(self: &Arc<Self>) -> Result<(), AcquireError> {
        let mut helper = self.helper.lock();
        if !helper.started {
            let this = self.clone();
            thread::Builder::new()
                .name("shmsched-wait".into())
                .stack_size(256 * 1024)
                .spawn(move || this.help())
                .map_err(|error| AcquireError::NoThread(error.to_string()))?;
            helper.started = true;
        }
        Ok(())
    }

    /// Has the helper look at the queue again.
    pub(crate) fn ring_helper(&self) {
        self.member().bell.ring(helper_bit());
    }

    fn help(self: Arc<Self>) {
        threads::leave_signals_to_others();
        let mut rounds = [Round::default(); LANES];
        loop {
            let mut queue = self.queue.lock();
            if queue.shut {
                return;
            }
            // After the check: a shut member's slot may belong to somebody else.
            let heard = self.member().bell.get();
            let now = clock::now();
            let mut due = Due::default();
            // A task gives up itself when it is polled after its deadline.
            due.nudges
                .extend(queue.expired(now).iter().map(|waiter| waiter.nudge()));
            if let Some(failure) = self.failure() {
                drop(queue);
                std::mem::take(&mut due).deliver(&self);
                self.fail_everybody(false);
                if matches!(failure, AcquireError::Lost) {
                    return;
                }
                queue = self.queue.lock();
            }
            let mut bits = helper_bit().get();
            let mut until = queue.earliest;
            let mut duty = None;
            for (lane, round) in rounds.iter_mut().enumerate() {
                let Some(first) = queue
                    .first(lane)
                    .filter(|first| !first.is_thread())
                    .cloned()
                else {
                    continue;
                };
                bits |= lane_bit(lane).get();
                self.tend(&mut queue, &first, round, &mut due);
                let next = self.timer(now, round.rank < 2);
                if now >= round.timer {
                    round.timer = next;
                    round.watches = round.watches.wrapping_add(1);
                    let near = round.rank < 2;
                    duty = match duty {
                        Some((true, _)) => duty,
                        _ => Some((near, round.watches)),
                    };
                }
                round.timer = round.timer.min(next);
                let at = self
                    .bars_at(&first, now)
                    .unwrap_or(u64::MAX)
                    .min(round.timer);
                until = Some(until.map_or(at, |until: u64| until.min(at)));
            }
            drop(queue);
            let again = !due.is_empty();
            due.deliver(&self);
            if let Some((near, watches)) = duty {
                self.watch_duty(near, watches);
            }
            if !again {
                let bits = NonZeroU32::new(bits).unwrap_or(helper_bit());
                let _ = self.member().bell.wait(heard, bits, until);
            }
        }
    }

    /// Looks after the first of a lane.
    fn tend(
        self: &Arc<Self>,
        queue: &mut Queue,
        first: &Arc<Waiter>,
        round: &mut Round,
        due: &mut Due,
    ) {
        if let Some(AcquireError::DoesNotFit { .. }) = self.wait_failure(first.amount) {
            // A task finds out by itself when it is polled; a callback wants one slot, which fits.
            due.nudges.push(first.nudge());
        }
        let line = self.views.line();
        let state = line
            .place(self.me, first.lane)
            .map_or(State(0), |place| State(place.state.get()));
        let ms = clock::coarse_ms() as u32;
        match &first.kind {
            // Its poll takes the place up again.
            Kind::Task(_) if first.passed.peek() != 0 => round.rank = u32::MAX,
            Kind::Task(_) if state.doing() != Doing::Called => {
                // Not its turn, as far as anybody told us: look ourselves.
                let was = line.settle(self.me, first.lane); // pair: line-sleep
                if was.doing() == Doing::Called {
                    // Called since it was read: give the turn back as it was.
                    line.recall(self.me, first.lane, was);
                    wake_task(first, ms, round, due);
                    return;
                }
                if !line.is_announced(self.me, first.lane) {
                    line.announce(self.me, first.lane);
                }
                let outlook = self.advance(Some(first.lane), None);
                round.rank = self.take_note(first, outlook);
                if outlook.turn.is_some() {
                    wake_task(first, ms, round, due);
                }
            }
            Kind::Task(_) => {
                let called = first.called.peek();
                if called == 0 {
                    wake_task(first, ms, round, due);
                } else if ms.wrapping_sub(called - 1) >= GRACE_MS {
                    // It was not polled: the next of this process goes first. With nobody else there the place is
                    // passed over until the task is polled, or it would hold up every lane below.
                    first.passed.put(1);
                    first.called.put(0);
                    let next = queue.first(first.lane).cloned();
                    if next.is_some_and(|next| next.passed.peek() == 0) {
                        due.nudges.push(self.reseat(queue, first.lane));
                    } else if let Some(entry) = line.read(self.me, first.lane) {
                        line.lapse(&entry, ms);
                    }
                    due.settle = true;
                }
            }
            Kind::Callback(_) => {
                let Some(runner) = self.helper.lock().runner() else {
                    round.rank = 0; // no thread now; try again at the next watch
                    return;
                };
                match self.attempt(queue, first) {
                    Attempt::Got(nudge) => {
                        due.nudges.push(nudge);
                        due.settle = true;
                        due.jobs
                            .extend(Attachment::job_of(first).map(|job| (runner, job)));
                    }
                    Attempt::Later { rank } => round.rank = rank,
                }
            }
            Kind::Thread(_) => {}
        }
    }
}

fn wake_task(first: &Waiter, ms: u32, round: &mut Round, due: &mut Due) {
    first.called.put(ms.wrapping_add(1).max(1));
    due.nudges.push(first.nudge());
    round.rank = 0;
}

/// What the helper remembers of a lane.
#[derive(Clone, Copy, Default)]
struct Round {
    timer: u64,
    rank: u32,
    watches: u32,
}

/// What is to be done outside the queue's lock.
#[derive(Default)]
struct Due {
    nudges: Vec<Nudge>,
    jobs: Vec<(Sender<Job>, Job)>,
    settle: bool,
}

impl Due {
    fn is_empty(&self) -> bool {
        self.nudges
            .iter()
            .all(|nudge| matches!(nudge, Nudge::Nobody))
            && self.jobs.is_empty()
            && !self.settle
    }

    fn deliver(self, attachment: &Attachment) {
        for nudge in self.nudges {
            // A waker is foreign code: its panic was reported, and must not end this thread.
            let _ = catch_unwind(AssertUnwindSafe(|| nudge.deliver()));
        }
        for (runner, job) in self.jobs {
            let _ = runner.send(job);
        }
        if self.settle {
            attachment.settled();
        }
    }
}
