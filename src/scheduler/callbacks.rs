//! The callback form: a slot with a call, given back by hand.

use super::Scheduler;
use super::short::ShortWay;
use crate::Priority;
use crate::error::{AcquireError, NothingHeld};
use crate::layout::Gate;
use crate::park::run::About;
use crate::park::waiter::{Job, Silence};
use crate::segment::attachment::Attachment;
use crate::sys::thunk::Thunk;
use crate::trace::{Teller, Tracer};
use crate::waiting::jobs::Turn;
use crate::waiting::link::{self, Link};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

impl Scheduler {
    /// The callback form: calls `f(value)` with a slot that `f`, or what it starts, gives back by
    /// [`Scheduler::release`] exactly once.
    ///
    /// `true`: a slot was free and `f` ran within this call (C5). `false`: it was queued, and runs on the thread that
    /// releases a slot, in a loop, never recursively; or, if another process released, on a thread of their own; maybe
    /// before this returns (C7). `false` also after dispose or close, when `f` is dropped (C6, E10).
    ///
    /// The slot of a callback that has released and goes on is the next one's, which waits for this thread: do not wait there
    /// for another slot.
    ///
    /// There is no error: why nothing was queued, [`Scheduler::is_closed`] says, or an acquire. The last handle being
    /// dropped drops what is queued, uncalled.
    ///
    /// ```
    /// # use shmsched::{Priority, Scheduler};
    /// use std::sync::mpsc::channel;
    ///
    /// let scheduler = Scheduler::local(1)?;
    /// let (done, names) = channel();
    /// for name in ["first", "second"] {
    ///     let (done, giver) = (done.clone(), scheduler.clone());
    ///     let work = move |name| {
    ///         done.send(name).unwrap();
    ///         giver.release().unwrap();
    ///     };
    ///     assert!(scheduler.acquire_with(work, Priority::Normal, name)); // a slot was free both times
    /// }
    /// assert_eq!([names.recv()?, names.recv()?], ["first", "second"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// A panic of `f` gives the slot back; within this call it goes on to the caller (E3), from a queued `f` it ends at
    /// the panic hook (E4). Do not release then (E2).
    pub fn acquire_with<T: Send + 'static>(
        &self,
        f: impl FnOnce(T) + Send + 'static,
        priority: Priority,
        value: T,
    ) -> bool {
        let f = move || f(value);
        let lane = priority.index();
        // Who waits there already is not passed.
        if self.attachment().own_lanes() & 1 << lane == 0 && self.take_fast(lane, 1) {
            called_back(self.attachment(), &self.trace, f, priority);
            return true;
        }
        self.call_or_queue(Thunk::new(f), priority)
    }

    /// Without a slot at hand.
    #[inline(never)]
    fn call_or_queue(&self, mut f: Thunk, priority: Priority) -> bool {
        let lane = priority.index();
        let attachment = self.attachment();
        // Where a callback of this member and priority waits already and nobody is told, that is all: a newcomer does not
        // pass it, and whoever that is has seen to it that they are looked after.
        if let Some(silence) = self.trace.silence() {
            let about = About {
                bound: self.bounds[lane],
                ceiling: self.max,
                lane: lane as u32,
                silence,
            };
            if attachment.join_behind(about, &mut f) {
                return false;
            }
        }
        self.call_or_wait(f, priority)
    }

    #[cold]
    fn call_or_wait(&self, mut f: Thunk, priority: Priority) -> bool {
        let lane = priority.index();
        let attachment = self.attachment();
        match self.take_now(lane, 1) {
            Ok(true) => {
                called_back(attachment, &self.trace, || f.call(), priority);
                return true;
            }
            // A concurrency of zero queues (X19).
            Ok(false) | Err(AcquireError::Zero) => {}
            Err(failure) => {
                self.tell_refusal(lane, 1, &failure);
                return false;
            }
        }
        // The queue must not keep the member attached, or it would never end.
        let weak = Arc::downgrade(&self.handle);
        let trace = self.trace.pinned();
        let job: Job = Box::new(move || {
            let Some(handle) = weak.upgrade() else { return };
            // Disposed since it got its turn, or in a forked child, it has no slot.
            if handle.attachment.is_inert() {
                return;
            }
            called_back(&handle.attachment, &trace, || f.call(), priority);
        });
        let told = self.trace.teller(attachment).map(Teller::shared);
        if let Err(failure) = attachment.enqueue_job(self.wish(lane, 1), job, told) {
            self.tell_refusal(lane, 1, &failure);
        }
        false
    }

    /// Gives back a slot that [`Scheduler::acquire_with`] took, and starts who is next (C17). On whatever thread.
    ///
    /// Within a queued callback, behind which only others of its kind wait, the slot goes to the next of them once this one
    /// has returned, and counts as taken until then.
    ///
    /// # Errors
    ///
    /// [`NothingHeld`], and nothing changed, if this member holds no such slot (X21), is disposed, or is of before a fork.
    /// One release too many while other callbacks run gives back theirs: prefer permits (E5).
    pub fn release(&self) -> Result<(), NothingHeld> {
        self.attachment().release()
    }
}

/// Runs a callback whose slot is taken; a panic gives the slot back first.
fn called_back(attachment: &Arc<Attachment>, trace: &Tracer, f: impl FnOnce(), priority: Priority) {
    attachment.raw_held.add(1);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        let _ = attachment.release();
        if let Some(teller) = trace.teller(attachment) {
            teller.panicked(Gate::Scheduler, priority, 1);
        }
        resume_unwind(panic);
    }
}

impl Attachment {
    /// What [`link`] knows this member by.
    #[inline(always)]
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Gives back a slot that a callback was started with.
    pub(crate) fn release(self: &Arc<Self>) -> Result<(), NothingHeld> {
        match link::seen(self.key()) {
            Link::Open if self.is_callback_next() => {
                link::give(self.key());
                Ok(())
            }
            Link::Open | Link::Closed => self.release_now(),
            Link::Given | Link::Parted => {
                link::close();
                let _ = self.release_now();
                self.release_now()
            }
        }
    }

    #[inline(never)]
    fn release_now(self: &Arc<Self>) -> Result<(), NothingHeld> {
        if self.is_inert() {
            return Err(NothingHeld);
        }
        let mut held = self.raw_held.get();
        while held != 0 {
            match self.raw_held.replace(held, held - 1) {
                Ok(_) => {
                    self.give(1);
                    return Ok(());
                }
                Err(now) => held = now,
            }
        }
        Err(NothingHeld)
    }

    /// Runs a call that has its slot, and up to `more` that have the slot after it. A panic was reported by the panic hook and
    /// goes no further (E4).
    pub(crate) fn call_now(self: &Arc<Self>, turn: &mut Turn, more: u32) {
        self.raw_held.add(1);
        let way = ShortWay::new(self, turn.lane as usize);
        for left in (0..=more).rev() {
            let outside = link::begin(self.key());
            let called = catch_unwind(AssertUnwindSafe(|| turn.thunk.call()));
            let link = link::end(self.key(), outside);
            let given = matches!(link, Link::Given | Link::Parted);
            let goes_on = called.is_ok() && link == Link::Given && left != 0;
            if goes_on && way.as_ref().is_some_and(|way| way.follow(turn)) {
                continue;
            }
            if given {
                let _ = self.release_now();
            }
            // What it gave back may have been another's: its own comes back too.
            if let Err(panic) = called {
                self.panicked(turn, panic);
            }
            return;
        }
    }

    #[cold]
    fn panicked(self: &Arc<Self>, turn: &Turn, panic: Box<dyn Any + Send>) {
        let _ = self.release_now();
        if let (Silence::Now, Some(priority)) =
            (turn.silence, Priority::from_index(turn.lane as usize))
            && let Some(teller) = Tracer::default().teller(self)
        {
            teller.panicked(Gate::Scheduler, priority, 1);
        }
        // What it panicked with may panic itself.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
    }
}
