//! Counters of one member, as plain values (groups F and G).

use super::{NO_BOUND, Scheduler};
use crate::error::AcquireError;
use crate::layout::{Gate, LANES};
use crate::park::Post;
use crate::segment::attachment::Attachment;

/// One priority's queue, or the sum of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Waiting now (G5).
    pub count: u64,
    /// Ever put into the queue; work that never waited is not in it (G6, G11).
    pub deferred: u64,
    /// Dispatched from the queue (G7).
    pub completed: u64,
    /// Given up: cancelled, timed out, closed or disposed.
    pub cancelled: u64,
}

impl QueueStats {
    pub(crate) fn plus(self, queue: &QueueStats) -> QueueStats {
        QueueStats {
            count: self.count + queue.count,
            deferred: self.deferred.wrapping_add(queue.deferred),
            completed: self.completed.wrapping_add(queue.completed),
            cancelled: self.cancelled.wrapping_add(queue.cancelled),
        }
    }
}

impl Attachment {
    /// The counters of this member's queue at a gate, since it attached.
    pub(crate) fn queue_stats(&self, gate: Gate) -> [QueueStats; LANES] {
        let mut stats = [QueueStats::default(); LANES];
        let queue = self.queue.lock();
        for (post, stats) in Post::of(gate).zip(&mut stats) {
            let before = self.baseline[post.index()];
            let Some(counts) = self.member().queue(post.gate, post.lane) else {
                continue;
            };
            let since = |which: usize| counts[which].get().wrapping_sub(before[which]);
            *stats = QueueStats {
                count: queue.len(post) as u64,
                deferred: since(0),
                completed: since(1),
                cancelled: since(2),
            };
        }
        stats
    }
}

/// What all processes see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedStats {
    /// Slots taken, by anybody (F10).
    pub running: u32,
    /// Members with somebody waiting (F10, X41).
    pub waiters: u32,
}

/// A snapshot of a [`Scheduler`]; later changes do not show in it (G13). `deferred = completed + cancelled + count`,
/// per priority and in total (G9, G10; the source has no `cancelled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Slots taken by this member (G2).
    pub running: u32,
    /// The configured limit; `None` is unlimited (G3).
    pub concurrency: Option<u32>,
    /// Waiting, of this member (G4).
    pub pending: u64,
    /// Sums over the priorities (G8).
    pub total: QueueStats,
    /// Lowest priority first (B20).
    pub queues: [QueueStats; LANES],
    /// Of a shared Scheduler (G12).
    pub shared: Option<SharedStats>,
}

impl Scheduler {
    /// The target of every priority for this handle, lowest first, resolved from its own settings and the segment's, as they
    /// are now; `None` is unlimited. What [`Sample::scheduler`](crate::pressure::Sample::scheduler) wants (N11).
    pub fn targets(&self) -> [Option<u32>; LANES] {
        let attachment = self.attachment();
        if attachment.failure() == Some(AcquireError::Forked) {
            return [None; LANES];
        }
        let hot = attachment.hot();
        std::array::from_fn(|lane| {
            // None is a negative one in the segment, the largest number in the handle.
            let segment = u32::try_from(hot.targets[lane].get()).ok();
            let own = self.bounds[lane];
            let own = (own != NO_BOUND).then_some(own);
            [segment, own].into_iter().flatten().min()
        })
    }

    /// Counters of this member: of all clones of the handle.
    ///
    /// Takes the member's queue lock and reads its records: poll with moderation. All zero in a forked child.
    ///
    /// ```
    /// # use shmsched::{Priority, Scheduler};
    /// let scheduler = Scheduler::local(4)?;
    /// let _permit = scheduler.try_acquire(Priority::Normal)?;
    /// let stats = scheduler.stats();
    /// assert_eq!((stats.running, stats.pending, stats.total.deferred), (1, 0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let attachment = self.attachment();
        if attachment.failure() == Some(AcquireError::Forked) {
            return Stats {
                running: 0,
                concurrency: None,
                pending: 0,
                total: QueueStats::default(),
                queues: Default::default(),
                shared: None,
            };
        }
        let queues = attachment.queue_stats(Gate::Scheduler);
        let total = queues.iter().fold(QueueStats::default(), QueueStats::plus);
        let hot = attachment.hot();
        let shared = attachment.location.is_some().then(|| SharedStats {
            running: attachment.views.running().max(0) as u32,
            waiters: hot.waiters.get().max(0) as u32,
        });
        let running = if attachment.is_inert() {
            0
        } else {
            attachment.held()
        };
        Stats {
            running,
            concurrency: self.concurrency(),
            pending: total.count,
            total,
            queues,
            shared,
        }
    }
}
