//! The future of a wait. Runs on any executor: the member's helper thread wakes it.

use super::sleep::lingers;
use super::{Ask, Attempt, Later};
use crate::error::AcquireError;
use crate::layout::Gate;
use crate::park::waiter::{Fate, Kind, Nudge, Step, Waiter};
use crate::protocol::turn::NEVER;
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::sys::mutex::Mutex;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How long the poll of the very first in line waits awake, once in a wait. A wake of a sleeping processor takes longer,
/// and a poll may take so long: executors ask for less than 10 to 100 us between awaits.
const AWAKE_NS: u64 = 10_000;

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
    /// Since when it sleeps.
    asleep: u64,
}

impl<A: Ask> Taking<A> {
    pub fn new(ask: A, deadline: Option<u64>) -> Taking<A> {
        Taking {
            ask,
            deadline,
            waiter: None,
            waited: false,
            fresh: false,
            asleep: 0,
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
        if self.is_over() {
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
        attachment.look_to_wait();
        Poll::Pending
    }

    /// Looks. In the poll in which it joined it waits awake for a moment first and looks again, as a blocked thread does;
    /// only then the helper is to sleep for it, so that a turn that comes at once wakes nobody.
    fn proceed(&mut self, waiter: &Arc<Waiter>, waker: &Waker) -> Poll<Result<(), AcquireError>> {
        let attachment = self.ask.attachment().clone();
        // First of all: there is no segment to be read in a child.
        if attachment.failure() == Some(AcquireError::Forked) {
            return self.done(Err(AcquireError::Forked));
        }
        let fresh = std::mem::take(&mut self.fresh);
        let (mut lingers, mut until) = (fresh, None);
        loop {
            let over = self.is_over();
            let heard = attachment.member().bell.get();
            let later = match self.look(&attachment, waiter, waker, lingers) {
                ControlFlow::Continue(later) => later,
                ControlFlow::Break(result) => return self.done(result),
            };
            if waiter.awake.peek() != 0 {
                let until = *until.get_or_insert_with(|| clock::now() + AWAKE_NS);
                if attachment.linger(heard, until) {
                    lingers = clock::now() < until;
                    continue;
                }
            }
            if fresh {
                self.asleep = clock::now();
            }
            // The helper keeps this task's watch and deadline. One that was called in vain, and found slots lent, promised
            // to look when their time is up, of which the helper knows nothing.
            let promised = waiter.post.gate == Gate::Scheduler && later.due != NEVER;
            if fresh || promised {
                attachment.have_tended(waiter, later);
            }
            // Refused is only who has looked after its deadline.
            if over && attachment.cancel(waiter) {
                return self.done(Err(AcquireError::TimedOut));
            }
            if over || !self.is_over() {
                return Poll::Pending;
            }
            lingers = false;
        }
    }

    fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= clock::now())
    }

    /// One look of a task's poll at its own wait: how it ended, or how it stands. The first in line that may linger is awake
    /// from here on, which the helper sees: it neither tends it nor sleeps for it.
    fn look(
        &self,
        attachment: &Arc<Attachment>,
        waiter: &Arc<Waiter>,
        waker: &Waker,
        may_linger: bool,
    ) -> ControlFlow<Result<(), AcquireError>, Later> {
        let post = waiter.post;
        let gate = post.gate;
        // Swapped in below; what it replaces is dropped after the queue's lock, since a waker's drop may drop a task,
        // and with it another wait of this member.
        let mut spare = Some(waker.clone());
        let mut queue = attachment.queue.lock();
        match waiter.fate() {
            Fate::Granted => return ControlFlow::Break(Ok(())),
            Fate::Failed => {
                let failure = attachment.failure_at(gate);
                return ControlFlow::Break(Err(failure.unwrap_or(AcquireError::Closed)));
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
            return ControlFlow::Break(attachment.end_wait(waiter, failure));
        }
        let tried = queue.is_first(waiter).then(|| {
            waiter.called.put(0);
            attachment.attempt(&mut queue, waiter)
        });
        let stays = match &tried {
            Some(Attempt::Later(later)) if may_linger && lingers(post, later.rank) => {
                waiter.awake.peek() != 0 || queue.is_awake_worth_it()
            }
            Some(Attempt::Got(_)) if waiter.awake.peek() != 0 => {
                queue.spared |= post.bit();
                queue.brief = 0;
                false
            }
            Some(Attempt::Got(_)) if self.asleep != 0 && lingers(post, 0) => {
                queue.note_sleep(clock::now().saturating_sub(self.asleep));
                false
            }
            _ => false,
        };
        waiter.awake.put(stays.into());
        drop(queue);
        nudge.into_iter().for_each(Nudge::deliver);
        match tried {
            Some(Attempt::Got(nudges)) => {
                nudges.into_iter().for_each(Nudge::deliver);
                attachment.settled(gate);
                ControlFlow::Break(Ok(()))
            }
            Some(Attempt::Later(later)) => ControlFlow::Continue(later),
            None => ControlFlow::Continue(Later::FIRST),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::park::waiter::Wish;
    use crate::{Priority, Scheduler};
    use std::task::Wake;
    use std::thread;
    use std::time::{Duration, Instant};

    #[derive(Default)]
    struct Wakes(std::sync::Mutex<usize>);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() += 1;
        }
    }

    impl Wakes {
        fn count(&self) -> usize {
            *self.0.lock().unwrap()
        }
    }

    struct One(Arc<Attachment>, Wish);

    impl Ask for One {
        type Error = AcquireError;
        fn attachment(&self) -> &Arc<Attachment> {
            &self.0
        }
        fn wish(&self) -> Wish {
            self.1
        }
        fn teller(&self) -> Option<crate::trace::Teller> {
            None
        }
        fn take_now(&self) -> Result<bool, AcquireError> {
            self.0.take_slots_now(self.1)
        }
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(15), "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A task that has joined behind a held slot, and is awake in its poll; the helper slept for its post before.
    fn awake() -> (Scheduler, Taking<One>, Arc<Waiter>, Arc<Wakes>) {
        let scheduler = Scheduler::local(1).unwrap();
        let attachment = scheduler.attachment().clone();
        let post = crate::park::Post {
            gate: crate::layout::Gate::Scheduler,
            lane: Priority::Normal.index(),
        };
        let wish = Wish {
            post,
            amount: 1,
            bound: i32::MAX as u32,
            ceiling: i32::MAX as u32,
        };
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);

        let held = scheduler.try_acquire(Priority::Normal).unwrap();
        let mut before = Box::pin(Taking::new(One(attachment.clone(), wish), None));
        assert!(before.as_mut().poll(&mut context).is_pending());
        assert_eq!(
            before.waiter.as_ref().unwrap().awake.peek(),
            0,
            "it sleeps now"
        );
        let sleeps = || attachment.queue.lock().covered.0 & post.bit() != 0;
        until("the helper sleeps for it", sleeps);
        drop(held);
        until("it is woken", || wakes.count() == 1);
        // Polled late, it may have been passed over, and has its turn a moment later.
        until("it has it", || {
            before.as_mut().poll(&mut context).is_ready()
        });
        // Of what is to come.
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());

        // The slot that it took is what the next waits for.
        let mut taking = Taking::new(One(attachment.clone(), wish), None);
        assert!(taking.begin(&waker).is_pending());
        let waiter = taking.waiter.clone().unwrap();
        let looked = taking.look(&attachment, &waiter, &waker, true);
        assert!(matches!(looked, ControlFlow::Continue(_)));
        assert_eq!(waiter.awake.peek(), 1);
        (scheduler, taking, waiter, wakes)
    }

    #[test]
    fn who_is_called_while_awake_takes_it_and_nobody_is_woken() {
        let (scheduler, taking, waiter, wakes) = awake();
        let attachment = scheduler.attachment();
        attachment.give(1);
        // The ring wakes the helper too, which is not ready for that post any more.
        until("the helper lets it be", || {
            attachment.queue.lock().covered.0 & waiter.post.bit() == 0
        });
        let waker = Waker::from(wakes.clone());
        let looked = taking.look(attachment, &waiter, &waker, true);
        assert_eq!(looked.break_value(), Some(Ok(())));
        assert_eq!(wakes.count(), 0);
        assert_eq!(attachment.queue.lock().spared, waiter.post.bit());
        attachment.ring_helper();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(attachment.queue.lock().covered.0 & waiter.post.bit(), 0);
        attachment.give(1);
    }

    #[test]
    fn who_is_called_while_awake_and_does_not_look_again_is_woken() {
        let (scheduler, mut taking, waiter, wakes) = awake();
        let attachment = scheduler.attachment();
        attachment.give(1);
        until("the helper lets it be", || {
            attachment.queue.lock().covered.0 & waiter.post.bit() == 0
        });
        attachment.have_tended(&waiter, Later::FIRST);
        until("it is woken", || wakes.count() > 0);
        let waker = Waker::from(wakes.clone());
        until("it has it", || {
            let polled = Pin::new(&mut taking).poll(&mut Context::from_waker(&waker));
            assert!(!matches!(polled, Poll::Ready(Err(_))));
            polled.is_ready()
        });
        attachment.give(1);
    }

    #[test]
    fn who_goes_while_awake_leaves_the_turn_to_the_next() {
        let (scheduler, taking, waiter, wakes) = awake();
        let mut next = Box::pin(scheduler.acquire(Priority::Normal));
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);
        assert!(next.as_mut().poll(&mut context).is_pending());
        scheduler.attachment().give(1);
        assert_eq!(waiter.awake.peek(), 1);
        drop(taking);
        until("the next is woken", || wakes.count() > 0);
        until("it has it", || next.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn who_is_awake_when_it_is_closed_sees_it() {
        let (scheduler, taking, waiter, wakes) = awake();
        let attachment = scheduler.attachment();
        let heard = attachment.member().bell.get();
        scheduler.close();
        assert!(attachment.linger(heard, clock::now() + AWAKE_NS), "it rang");
        let waker = Waker::from(wakes);
        let looked = taking.look(attachment, &waiter, &waker, true);
        assert_eq!(looked.break_value(), Some(Err(AcquireError::Closed)));
    }
}
