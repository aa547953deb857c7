//! The helper: one thread per member, started by the first task or callback that waits. It sleeps on the member's bell
//! for every post whose first is no thread, wakes tasks for their turns and at their deadlines, and keeps the watches.

use super::Later;
use super::lookout::{Patience, READY_NS};
use super::tend::Due;
use crate::error::AcquireError;
use crate::layout::Gate;
use crate::park::waiter::Job;
use crate::park::{HELPER_BIT, Post};
use crate::protocol::turn::NEVER;
use crate::segment::attachment::{Attachment, state};
use crate::sys::{clock, threads};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// What a member has of the helper.
#[derive(Default)]
pub(crate) struct Helper {
    started: bool,
    /// Runs callbacks whose turn came by another process's release, or by time.
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

    fn help(self: Arc<Self>) {
        threads::leave_signals_to_others();
        let mut rounds = [Round::default(); Post::COUNT];
        loop {
            let mut queue = self.queue.lock();
            if queue.shut || self.is_over() {
                drop(queue);
                let mut helper = self.helper.lock();
                helper.stop();
                helper.started = false;
                return;
            }
            // After the check: a shut member's row of the roster may belong to somebody else.
            let heard = self.member().bell.get();
            let now = clock::now();
            let mut due = Due::default();
            // A task gives up itself when it is polled after its deadline.
            due.nudges
                .extend(queue.expired(now).iter().map(|waiter| waiter.nudge()));
            let failed = Gate::ALL.map(|gate| self.failure_at(gate));
            if failed.iter().any(Option::is_some) {
                drop(queue);
                std::mem::take(&mut due).deliver(&self);
                for (gate, failure) in Gate::ALL.into_iter().zip(&failed) {
                    if failure.is_some() {
                        self.fail_everybody(gate);
                    }
                }
                if failed.contains(&Some(AcquireError::Lost)) {
                    return;
                }
                queue = self.queue.lock();
            }
            let mut bits = HELPER_BIT;
            let mut until = queue.earliest.unwrap_or(NEVER);
            let mut duties: [Option<(bool, u32)>; 3] = [None; 3];
            let mut look_out = false;
            for (post, round) in Post::all().zip(&mut rounds) {
                let first = queue.first(post).cloned();
                let thread = first.as_ref().is_some_and(|first| first.is_thread());
                // Who is awake looks by itself, and has the helper tend it before it sleeps.
                let awake = first.as_ref().is_some_and(|first| first.awake.peek() != 0);
                let Some(first) = first.filter(|first| !first.is_thread() && !awake) else {
                    *round = round.without_anybody(now);
                    let spared = awake || queue.spared & post.bit() != 0;
                    if !thread && !spared && round.timer != NEVER && post.gate == Gate::Scheduler {
                        bits |= post.bit();
                        // Who joins does not ring it: so that it sees soon that somebody has waited for a while.
                        until = until.min(round.timer).min(now + READY_NS);
                    } else {
                        *round = Round::default();
                        queue.trim(post);
                    }
                    continue;
                };
                bits |= post.bit();
                queue.spared &= !post.bit();
                round.later = self.tend(&mut queue, &first, &mut due);
                let near = round.later.rank < 2;
                let next = self.timer(post.gate, now, round.later.rank, first.since);
                if now >= round.timer {
                    round.timer = next;
                    round.watches = round.watches.wrapping_add(1);
                    let duty = &mut duties[post.gate as usize];
                    if !matches!(duty, Some((true, _))) {
                        *duty = Some((near, round.watches));
                    }
                }
                round.timer = round.timer.min(next);
                if round.whose != first.since {
                    round.whose = first.since;
                    round.patience = Patience::default();
                }
                look_out |= round.patience.is_over(heard, now);
                let stands = round.later.stands;
                until = until.min(round.patience.until(post.gate, stands, heard, now));
                let bars = self.bars_at(&first, now).unwrap_or(NEVER);
                due.look |= round.later.behind && round.look_at <= now;
                round.look_at = round.later.due;
                until = until.min(round.timer).min(bars).min(round.later.due);
            }
            queue.covered = (bits, until);
            drop(queue);
            // A watch may have found a dead one, and called somebody: how it stands now is another matter.
            let again = !due.is_empty() || duties.iter().any(Option::is_some);
            due.deliver(&self);
            for (gate, duty) in Gate::ALL.into_iter().zip(duties) {
                if let Some((near, watches)) = duty {
                    self.watch_duty(gate, near, watches);
                }
            }
            if look_out {
                self.look_out();
            }
            if !again {
                let bits = NonZeroU32::new(bits).unwrap_or(NonZeroU32::MAX);
                let _ = self.member().bell.wait(heard, bits, Some(until));
            }
        }
    }

    /// Disposed, with no other gate that anybody could wait at.
    fn is_over(&self) -> bool {
        let others = Gate::Limiter.bit() | Gate::Pacer.bit();
        self.state.get() & state::DISPOSED != 0 && self.views.header.gates.get() & others == 0
    }
}

/// What the helper remembers of a post.
#[derive(Clone, Copy)]
struct Round {
    timer: u64,
    later: Later,
    /// When it looks for the dead if it still stands behind one who was called.
    look_at: u64,
    watches: u32,
    patience: Patience,
    /// Since when the one waits whose patience it is.
    whose: u64,
}

impl Default for Round {
    fn default() -> Round {
        Round {
            timer: NEVER,
            later: Later::FIRST,
            look_at: NEVER,
            watches: 0,
            patience: Patience::default(),
            whose: 0,
        }
    }
}

impl Round {
    /// Nobody stands there any more. The next often comes soon: until the timer the helper stays ready for him, so that he
    /// need not ring it.
    fn without_anybody(self, now: u64) -> Round {
        match self.timer > now {
            true => Round {
                later: Later::FIRST,
                look_at: NEVER,
                whose: 0,
                ..self
            },
            false => Round::default(),
        }
    }
}
