//! The future of an acquire. Runs on any executor: the member's helper thread wakes it.

use super::Scheduler;
use super::wait::Attempt;
use crate::error::AcquireError;
use crate::park::waiter::{Fate, Kind, Waiter};
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::sys::mutex::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Waits for slots; dropped before it is ready, it leaves the queue and takes nothing.
///
/// A slot is taken within the poll that returns ready, never before: there is nothing to lose between a grant and
/// the next poll.
pub(crate) struct Taking<'a> {
    scheduler: &'a Scheduler,
    lane: usize,
    amount: u32,
    deadline: Option<u64>,
    waiter: Option<Arc<Waiter>>,
}

impl<'a> Taking<'a> {
    pub fn new(
        scheduler: &'a Scheduler,
        lane: usize,
        amount: u32,
        deadline: Option<u64>,
    ) -> Taking<'a> {
        Taking {
            scheduler,
            lane,
            amount,
            deadline,
            waiter: None,
        }
    }

    fn attachment(&self) -> &'a Arc<Attachment> {
        self.scheduler.attachment()
    }

    /// The first poll: takes at once, or joins the queue.
    fn begin(&mut self, waker: &Waker) -> Poll<Result<(), AcquireError>> {
        let scheduler = self.scheduler;
        let attachment = self.attachment();
        if scheduler.take_now(self.lane, self.amount)? {
            return Poll::Ready(Ok(()));
        }
        let now = clock::now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            // Not on the account of a dead one, nor of a stopped one whose turn it is.
            return Poll::Ready(match scheduler.take_at_last(self.lane, self.amount)? {
                true => Ok(()),
                false => Err(AcquireError::TimedOut),
            });
        }
        attachment.ensure_helper()?;
        let kind = Kind::Task(Mutex::new(Some(waker.clone())));
        let wish = scheduler.wish(self.lane, self.amount);
        let waiter = Arc::new(Waiter::new(kind, wish, now, self.deadline));
        attachment.enqueue(&waiter)?;
        self.waiter = Some(waiter);
        attachment.look_if_stale();
        // The helper keeps this task's watch and deadline.
        attachment.ring_helper();
        Poll::Pending
    }

    fn proceed(&mut self, waiter: Arc<Waiter>, waker: &Waker) -> Poll<Result<(), AcquireError>> {
        let attachment = self.attachment();
        if attachment.failure() == Some(AcquireError::Forked) {
            self.waiter = None;
            return Poll::Ready(Err(AcquireError::Forked));
        }
        // Swapped in below; what it replaces is dropped after the queue's lock, since a waker's drop may drop a task,
        // and with it another wait of this member.
        let mut spare = Some(waker.clone());
        let mut queue = attachment.queue.lock();
        match waiter.fate() {
            Fate::Granted => return self.done(Ok(())),
            Fate::Failed => {
                return self.done(Err(attachment.failure().unwrap_or(AcquireError::Closed)));
            }
            Fate::Waiting => {}
        }
        if let Kind::Task(slot) = &waiter.kind {
            let mut slot = slot.lock();
            if !slot.as_ref().is_some_and(|old| old.will_wake(waker)) {
                std::mem::swap(&mut *slot, &mut spare);
            }
        }
        let mut nudge = None;
        if waiter.passed.peek() != 0 {
            waiter.passed.put(0);
            nudge = queue
                .is_first(&waiter)
                .then(|| attachment.reseat(&queue, self.lane));
        }
        if let Some(failure) = attachment.wait_failure(self.amount) {
            drop(queue);
            return self.done(attachment.end_wait(&waiter, failure));
        }
        let got = if queue.is_first(&waiter) {
            waiter.called.put(0);
            match attachment.attempt(&mut queue, &waiter) {
                Attempt::Got(next) => Some(next),
                Attempt::Later { .. } => None,
            }
        } else {
            None
        };
        drop(queue);
        nudge.into_iter().for_each(|nudge| nudge.deliver());
        if let Some(next) = got {
            next.deliver();
            attachment.settled();
            return self.done(Ok(()));
        }
        if self
            .deadline
            .is_some_and(|deadline| deadline <= clock::now())
            && attachment.cancel(&waiter)
        {
            return self.done(Err(AcquireError::TimedOut));
        }
        Poll::Pending
    }

    fn done(&mut self, result: Result<(), AcquireError>) -> Poll<Result<(), AcquireError>> {
        self.waiter = None;
        Poll::Ready(result)
    }
}

impl Future for Taking<'_> {
    type Output = Result<(), AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.waiter.is_none() {
            match self.begin(context.waker()) {
                Poll::Pending => {}
                ready => return ready,
            }
        }
        let Some(waiter) = self.waiter.clone() else {
            return Poll::Pending;
        };
        self.proceed(waiter, context.waker())
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take()
            && !self.attachment().cancel(&waiter)
            && self.attachment().failure() != Some(AcquireError::Forked)
            && waiter.fate() == Fate::Granted
        {
            self.scheduler.give(self.amount);
        }
    }
}
