//! The future of a wait. Runs on any executor: the member's helper thread wakes it.

use super::{Ask, Attempt, Later};
use crate::error::AcquireError;
use crate::park::waiter::{Fate, Kind, Nudge, Step, Waiter};
use crate::sys::clock;
use crate::sys::mutex::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Waits for what it asks for; dropped before it is ready, it leaves the queue and takes nothing.
///
/// It is taken within the poll that returns ready, never before: there is nothing to lose between a grant and the next
/// poll.
pub(crate) struct Taking<A: Ask> {
    ask: A,
    deadline: Option<u64>,
    waiter: Option<Arc<Waiter>>,
    waited: bool,
    /// It has just joined.
    fresh: bool,
}

impl<A: Ask> Taking<A> {
    pub fn new(ask: A, deadline: Option<u64>) -> Taking<A> {
        Taking {
            ask,
            deadline,
            waiter: None,
            waited: false,
            fresh: false,
        }
    }

    /// Whether it has stood in the queue.
    pub fn has_waited(&self) -> bool {
        self.waited
    }

    /// The first poll: takes at once, or joins the queue.
    fn begin(&mut self, waker: &Waker) -> Poll<Result<(), A::Error>> {
        if self.ask.take_now()? {
            return Poll::Ready(Ok(()));
        }
        if self
            .deadline
            .is_some_and(|deadline| deadline <= clock::now())
        {
            // Not on the account of a dead one, nor of a stopped one whose turn it is.
            return Poll::Ready(match self.ask.take_at_last()? {
                true => Ok(()),
                false => Err(AcquireError::TimedOut.into()),
            });
        }
        let attachment = self.ask.attachment();
        let kind = Kind::Task(Mutex::new(Some(waker.clone())));
        let helped = attachment.ensure_helper().map_err(A::Error::from);
        let joined = helped.and_then(|()| self.ask.join(kind, self.deadline));
        if let Err(error) = &joined {
            self.ask.tell_refusal(error);
        }
        self.waiter = Some(joined?);
        (self.waited, self.fresh) = (true, true);
        attachment.look_if_stale();
        Poll::Pending
    }

    fn proceed(&mut self, waiter: &Arc<Waiter>, waker: &Waker) -> Poll<Result<(), AcquireError>> {
        let attachment = self.ask.attachment().clone();
        let gate = waiter.post.gate;
        if attachment.failure() == Some(AcquireError::Forked) {
            return self.done(Err(AcquireError::Forked));
        }
        // Swapped in below; what it replaces is dropped after the queue's lock, since a waker's drop may drop a task,
        // and with it another wait of this member.
        let mut spare = Some(waker.clone());
        let mut queue = attachment.queue.lock();
        match waiter.fate() {
            Fate::Granted => return self.done(Ok(())),
            Fate::Failed => {
                let failure = attachment.failure_at(gate);
                return self.done(Err(failure.unwrap_or(AcquireError::Closed)));
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
                .is_first(waiter)
                .then(|| attachment.reseat(&mut queue, waiter.post));
        }
        if let Some(failure) = attachment.wait_failure(waiter) {
            drop(queue);
            return self.done(attachment.end_wait(waiter, failure));
        }
        let tried = queue.is_first(waiter).then(|| {
            waiter.called.put(0);
            attachment.attempt(&mut queue, waiter)
        });
        drop(queue);
        nudge.into_iter().for_each(Nudge::deliver);
        let later = match tried {
            Some(Attempt::Got(nudges)) => {
                nudges.into_iter().for_each(Nudge::deliver);
                attachment.settled(gate);
                return self.done(Ok(()));
            }
            Some(Attempt::Later(later)) => later,
            None => Later::FIRST,
        };
        if std::mem::take(&mut self.fresh) {
            // The helper keeps this task's watch and deadline.
            attachment.have_tended(waiter, later);
        }
        if self
            .deadline
            .is_some_and(|deadline| deadline <= clock::now())
            && attachment.cancel(waiter)
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

impl<A: Ask + Unpin> Future for Taking<A> {
    type Output = Result<(), A::Error>;

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
        let polled = self.proceed(&waiter, context.waker());
        match &polled {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => waiter.tell(Step::Dispatched),
            Poll::Ready(Err(error)) => waiter.tell(Step::Failed(error)),
        }
        polled.map_err(A::Error::from)
    }
}

impl<A: Ask> Drop for Taking<A> {
    fn drop(&mut self) {
        let attachment = self.ask.attachment();
        let Some(waiter) = &self.waiter else {
            return;
        };
        if !attachment.cancel(waiter) {
            if attachment.failure() == Some(AcquireError::Forked) {
                return;
            }
            if waiter.fate() == Fate::Granted {
                self.ask.give_back();
            }
        }
        waiter.tell(Step::Dropped);
    }
}
