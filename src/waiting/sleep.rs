//! Sleeping: a blocked thread at a gate, and what a sleeper does when it looks up by itself.

use super::lookout::Patience;
use super::{Ask, Attempt, Later};
use crate::error::AcquireError;
use crate::layout::Gate;
use crate::park::Post;
use crate::park::waiter::{Fate, Kind, Nudge, Step, Waiter};
use crate::protocol::turn::NEVER;
use crate::segment::Scope;
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often the first two in the Scheduler's line look after things: a holder may be dead.
const WATCH_NS: u64 = 100_000_000;
/// How often those of the other lines do, where nothing is held.
const SLOW_WATCH_NS: u64 = 300_000_000;
/// How often everybody else does.
const DOZE_NS: u64 = 3_500_000_000;
/// How many stand before one that is far back.
const FAR: u32 = 256;
/// The same of those far back in a line where nothing is held.
const LONG_DOZE_NS: u64 = 20_000_000_000;
/// How long the very first in the Scheduler's line waits awake before it sleeps. Not longer than a wake-up on the same
/// processor takes: there the holder may wait for this very one.
const LINGER_NS: u64 = 2_000;
/// How often a waiter asks whether the file still has a name, in watches of the Scheduler.
const GONE_EVERY: u32 = 8;

/// Whether who stands so in the line waits awake for a moment.
pub(super) fn lingers(post: Post, rank: u32) -> bool {
    post.gate == Gate::Scheduler && rank == 0
}

impl Attachment {
    /// When a sleeper that waits since then looks up by itself.
    pub(crate) fn timer(&self, gate: Gate, now: u64, rank: u32, since: u64) -> u64 {
        let near = rank < 2;
        // So that they do not all look up at once.
        let stagger = u64::from(self.me % 64) * 8_000_000;
        let every = match gate {
            Gate::Scheduler if near => WATCH_NS,
            _ if near => SLOW_WATCH_NS,
            Gate::Limiter | Gate::Pacer if rank >= FAR => LONG_DOZE_NS + stagger,
            _ => DOZE_NS + stagger,
        };
        let owed = self.look_owed_in(since).filter(|_| !near);
        // And a tick of the coarse clock, or it would look up too early.
        let owed = owed.map_or(u64::MAX, |ms| (ms + 10) * 1_000_000);
        now.saturating_add(every.min(owed))
    }

    /// What a sleeper does when it looks up by itself. Both of the first two look for the dead: the other may be stopped,
    /// or dead itself.
    pub(crate) fn watch_duty(self: &Arc<Self>, gate: Gate, near: bool, watches: u32) {
        self.notice_damage();
        self.views.pressure(gate).checkpoint(clock::now());
        if near || self.look_owed_in(NEVER) == Some(0) || self.nobody_looks() {
            // Where nobody watched, more than the first two may be dead.
            self.look(if near { Scope::Front } else { Scope::Concerned });
            // Held back by a target with nothing running, no release will ever draw for it.
            if gate == Gate::Scheduler && self.hot().running.get() <= 0 {
                self.advance_slots(None, Some(self.draw()));
            }
        }
        if near && gate == Gate::Scheduler {
            self.look_out();
        }
        if gate != Gate::Scheduler || watches.is_multiple_of(GONE_EVERY) {
            self.notice_gone();
        }
    }

    /// Whether nobody has looked for the dead for half a second, though watchers do three to ten times a second: they are
    /// dead or stopped.
    fn nobody_looks(&self) -> bool {
        let since = (clock::coarse_ms() as u32).wrapping_sub(self.views.cold.looked.get());
        (500..u32::MAX / 2).contains(&since)
    }

    /// The very first in line stays awake for some microseconds: where slots are held as briefly as that, going to sleep
    /// and being woken would take longer than the wait. `true`: the bell rang.
    pub(super) fn linger(&self, heard: u32, until: u64) -> bool {
        let bell = &self.member().bell;
        loop {
            for _ in 0..16 {
                if bell.peek() != heard {
                    return true;
                }
                std::hint::spin_loop();
            }
            if clock::now() >= until {
                return false;
            }
        }
    }

    /// Sleeps on the bell of a post.
    fn sleep_at(&self, post: Post, heard: u32, until: u64) {
        if let Some(bit) = NonZeroU32::new(post.bit()) {
            let _ = self.member().bell.wait(heard, bit, Some(until));
        }
    }

    /// Waits on this thread until it has what it asks for.
    pub(crate) fn wait_here<A: Ask>(
        self: &Arc<Self>,
        ask: &A,
        deadline: Option<u64>,
    ) -> Result<(), A::Error> {
        let waiter = match ask.join(Kind::Thread(thread::current()), deadline) {
            Ok(waiter) => waiter,
            Err(error) => {
                ask.tell_refusal(&error);
                return Err(error);
            }
        };
        let waited = self.wait_as(&waiter);
        waiter.tell(match &waited {
            Ok(()) => Step::Dispatched,
            Err(error) => Step::Failed(error),
        });
        Ok(waited?)
    }

    /// Waits on this thread until a waiter of its own has ended.
    fn wait_as(self: &Arc<Self>, waiter: &Arc<Waiter>) -> Result<(), AcquireError> {
        let (post, deadline) = (waiter.post, waiter.deadline);
        self.look_to_wait();
        let mut watches = 0u32;
        // Kept over rings that came to nothing: on a busy segment they come more often than watches.
        let mut timer = u64::MAX;
        // Since when it sleeps; 0: it has not slept as the first of its post.
        let mut asleep = 0;
        let mut patience = Patience::default();
        loop {
            let over = deadline.is_some_and(|deadline| deadline <= clock::now());
            let heard = self.member().bell.get();
            let mut queue = self.queue.lock();
            match waiter.fate() {
                Fate::Granted => return Ok(()),
                Fate::Failed => {
                    let failure = self.failure_at(post.gate);
                    return Err(failure.unwrap_or(AcquireError::Closed));
                }
                Fate::Waiting => {}
            }
            let sits = queue.is_first(waiter);
            let mut stand = None;
            let mut lingers_now = false;
            if sits {
                if let Some(failure) = self.wait_failure(waiter) {
                    drop(queue);
                    return self.end_wait(waiter, failure);
                }
                match self.attempt(&mut queue, waiter) {
                    Attempt::Got(nudges) => {
                        if lingers(post, 0) {
                            match asleep {
                                0 => queue.brief = 0,
                                since => queue.note_sleep(clock::now().saturating_sub(since)),
                            }
                        }
                        drop(queue);
                        nudges.into_iter().for_each(Nudge::deliver);
                        self.settled(post.gate);
                        return Ok(());
                    }
                    Attempt::Later(later) => {
                        lingers_now = lingers(post, later.rank) && queue.is_awake_worth_it();
                        stand = Some(later);
                    }
                }
            }
            drop(queue);
            // Refused is only who has looked after its deadline.
            if over {
                if self.cancel(waiter) {
                    return Err(AcquireError::TimedOut);
                }
                continue;
            }
            let now = clock::now();
            let Some(later) = stand else {
                let left = deadline.map_or(Duration::from_secs(3600), |deadline| {
                    Duration::from_nanos(deadline.saturating_sub(now))
                });
                thread::park_timeout(left);
                continue;
            };
            let Later { rank, due, .. } = later;
            timer = timer.min(self.timer(post.gate, now, rank, waiter.since));
            let until = deadline.map_or(timer, |deadline| deadline.min(timer));
            let until = until.min(due);
            let until = self.bars_at(waiter, now).map_or(until, |at| at.min(until));
            let until = until.min(patience.until(post.gate, later.stands, heard, now));
            if !lingers_now || !self.linger(heard, now + LINGER_NS) {
                if asleep == 0 {
                    asleep = now;
                }
                self.sleep_at(post, heard, until);
            }
            let now = clock::now();
            if patience.is_over(heard, now) {
                self.look_out();
            }
            if now >= timer {
                timer = u64::MAX;
                watches = watches.wrapping_add(1);
                self.watch_duty(post.gate, rank < 2, watches);
            } else if later.behind && now >= due {
                self.look_if_stale();
            }
        }
    }
}
