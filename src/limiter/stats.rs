//! Counters of one member, as plain values (group M).

use super::Limiter;
use crate::error::AcquireError;
use crate::layout::{Gate, LANES};
use crate::park::Post;
use crate::protocol::bucket::Bucket;
use crate::protocol::limiter::STALL_TICK_NS;
use crate::scheduler::QueueStats;
use crate::sys::clock;

/// One priority's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimiterQueueStats {
    /// As the Scheduler's.
    pub queue: QueueStats,
    /// For how many ticks of 100 ms its front has been held up for want of tokens (M5); at 10 it is admitted into debt.
    pub stall: u64,
}

/// A snapshot of a [`Limiter`]; later changes do not show in it (M8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimiterStats {
    /// The balance now: negative in debt. Above the rate it is no fault, but only a race with `set` leaves it so (M2, M11).
    pub tokens: i32,
    /// The rate (M3).
    pub tokens_per_second: u32,
    /// Waiting, of this member (M9).
    pub pending: u64,
    /// Admissions of this member into debt (M4).
    pub forced: u64,
    /// Sums over the priorities, without the stalls (M6, M7).
    pub total: QueueStats,
    /// Lowest priority first.
    pub queues: [LimiterQueueStats; LANES],
}

impl Limiter {
    /// Counters of this member: of all clones of the handle. `tokens` is the segment's, the same for all (J12).
    ///
    /// Takes the member's queue lock: poll with moderation. All zero in a forked child.
    ///
    /// ```
    /// # use shmsched::Limiter;
    /// let limiter = Limiter::local(10)?;
    /// limiter.try_consume(10)?;
    /// let stats = limiter.stats();
    /// assert_eq!((stats.tokens_per_second, stats.pending, stats.forced), (10, 0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> LimiterStats {
        let attachment = self.attachment();
        if attachment.failure() == Some(AcquireError::Forked) {
            return LimiterStats {
                tokens: 0,
                tokens_per_second: 0,
                pending: 0,
                forced: 0,
                total: QueueStats::default(),
                queues: Default::default(),
            };
        }
        let counts = attachment.queue_stats(Gate::Limiter);
        let total = counts.iter().fold(QueueStats::default(), QueueStats::plus);
        let now = clock::now();
        let progress = &attachment.views.limiter_cold.progress;
        let mut queue = attachment.queue.lock();
        let queues = std::array::from_fn(|lane| {
            let gate = Gate::Limiter;
            let first = queue.first(Post { gate, lane });
            let stalled = first.filter(|first| first.amount != 0).map(|first| {
                let since = progress[lane].get().min(now).max(first.since);
                now.saturating_sub(since) / STALL_TICK_NS
            });
            LimiterQueueStats {
                queue: counts[lane],
                stall: stalled.unwrap_or(0),
            }
        });
        drop(queue);
        let forced = attachment.member().forced.iter();
        let forced = forced
            .zip(attachment.forced_before)
            .map(|(count, before)| count.get().wrapping_sub(before));
        let bucket = Bucket { hot: &self.hot };
        LimiterStats {
            tokens: bucket.balance(now),
            tokens_per_second: bucket.rate(),
            pending: total.count,
            forced: forced.fold(0, u64::wrapping_add),
            total,
            queues,
        }
    }
}
