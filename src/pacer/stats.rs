//! Counters of one member, as plain values.

use super::Pacer;
use crate::error::AcquireError;
use crate::layout::Gate;
use crate::sys::clock;
use std::time::Duration;

/// A snapshot of a [`Pacer`]; later changes do not show in it.
///
/// `deferred = completed + cancelled + waiting`, and `started - completed` is how many did not have to wait. A call that was
/// refused is counted by `rejected` alone. What all processes did together is in
/// [`PacerInfo`](crate::PacerInfo).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacerStats {
    /// Waiting, of this member; operations that have begun are not in it (P18).
    pub waiting: u64,
    /// Starts of this member.
    pub started: u64,
    /// Refused because the queue was full.
    pub rejected: u64,
    /// Ever put into the queue.
    pub deferred: u64,
    /// Started from the queue.
    pub completed: u64,
    /// Given up in the queue: cancelled, dropped, timed out, or the segment ended.
    pub cancelled: u64,
    /// Until when no call starts, from now on, in any process; zero: the next one could start now.
    pub next_start_in: Duration,
}

impl Pacer {
    /// Counters of this member: of all clones of the handle. `next_start_in` is the segment's, the same for
    /// all. All zero in a forked child.
    ///
    /// Takes the member's queue lock: poll with moderation.
    ///
    /// ```
    /// # use shmsched::Pacer;
    /// # use std::time::Duration;
    /// let pacer = Pacer::local(Duration::from_secs(60), 0)?;
    /// pacer.try_start()?;
    /// let stats = pacer.stats();
    /// assert_eq!((stats.started, stats.waiting, stats.rejected), (1, 0, 0));
    /// assert!(stats.next_start_in > Duration::from_secs(50));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> PacerStats {
        let attachment = self.attachment();
        if attachment.failure() == Some(AcquireError::Forked) {
            return PacerStats::default();
        }
        let [queue, ..] = attachment.queue_stats(Gate::Pacer);
        let now = clock::now();
        let next_start = attachment.views.pacer().next_start(now);
        PacerStats {
            waiting: queue.count,
            started: attachment.starts.get(),
            rejected: attachment.refusals.get(),
            deferred: queue.deferred,
            completed: queue.completed,
            cancelled: queue.cancelled,
            next_start_in: Duration::from_nanos(next_start.saturating_sub(now)),
        }
    }
}
