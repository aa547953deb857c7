//! Queued callbacks: joining, and running on the releasing thread, in a loop, never recursively.

use super::Attempt;
use crate::error::AcquireError;
use crate::park::waiter::{Job, Kind, Nudge, Step, Told, Waiter, Wish};
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::sys::mutex::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    static NEXT: RefCell<VecDeque<Job>> = const { RefCell::new(VecDeque::new()) };
}

/// Runs a callback that has its slot on this thread; from within another callback it is left to the loop outside.
///
/// A callback that panics has given its slot back itself (`Scheduler::acquire_with` wraps it); the panic was reported
/// by the panic hook and goes no further: who released did nothing wrong (E4).
/// `Err` gives it back unrun: this thread is ending and has no loop any more.
fn run_here(job: Job) -> Result<(), Job> {
    run_among(job, None)
}

/// The runner's loop: jobs that came meanwhile take turns with those that the callbacks themselves start.
pub(crate) fn run_all(jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        if let Err(job) = run_among(job, Some(jobs)) {
            run_alone(job);
        }
    }
}

/// Runs a job by itself.
fn run_alone(job: Job) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}

fn run_among(job: Job, others: Option<&Receiver<Job>>) -> Result<(), Job> {
    let mut job = Some(job);
    let _ = NEXT.try_with(|next| {
        if let Ok(mut next) = next.try_borrow_mut() {
            next.extend(job.take());
        }
    });
    if let Some(job) = job {
        return Err(job);
    }
    if RUNNING.replace(true) {
        return Ok(());
    }
    while let Ok(Some(job)) = NEXT.try_with(|next| next.borrow_mut().pop_front()) {
        run_alone(job);
        if let Some(others) = others {
            let _ = NEXT.try_with(|next| next.borrow_mut().extend(others.try_iter()));
        }
    }
    RUNNING.set(false);
    Ok(())
}

impl Attachment {
    /// Puts a waiter of this member at the end of its post that runs `job` when its turn comes, on whatever thread, and
    /// tries it once. `Err`: it cannot wait, and the job is dropped.
    pub(crate) fn enqueue_job(
        self: &Arc<Self>,
        wish: Wish,
        job: Job,
        told: Option<Arc<dyn Told>>,
    ) -> Result<(), AcquireError> {
        self.ensure_helper()?;
        let kind = Kind::Callback(Mutex::new(Some(job)));
        let waiter = Arc::new(Waiter::new(kind, wish, clock::now(), None).told_to(told));
        let tried = {
            let mut queue = self.queue.lock();
            // Who is not first is seen to by who makes it so. Who is, is tried before the helper sees it.
            let first = self.join(&mut queue, &waiter)?;
            first.then(|| self.attempt(&mut queue, &waiter))
        };
        // At once: the one behind it may have become the first meanwhile, and nobody else has the helper rung for it.
        if let Some(Attempt::Later(later)) = &tried {
            self.have_tended(&waiter, *later);
        }
        waiter.tell(Step::Queued);
        match tried {
            Some(Attempt::Got(nudges)) => {
                nudges.into_iter().for_each(Nudge::deliver);
                self.settled(wish.post.gate);
                Attachment::job_of(&waiter)
                    .into_iter()
                    .for_each(|job| self.run_job(job));
            }
            Some(Attempt::Later(_)) => {
                self.look_if_stale();
            }
            None => {}
        }
        Ok(())
    }

    /// Takes the job of a callback that got its turn. Who runs it tells of that first.
    pub(crate) fn job_of(waiter: &Arc<Waiter>) -> Option<Job> {
        let Kind::Callback(job) = &waiter.kind else {
            return None;
        };
        let job = job.lock().take()?;
        if waiter.told.is_none() {
            return Some(job);
        }
        let waiter = waiter.clone();
        Some(Box::new(move || {
            waiter.tell(Step::Dispatched);
            job();
        }))
    }

    /// Runs a callback whose turn it is on this thread, or, if it is ending, on the member's own.
    pub(crate) fn run_job(&self, job: Job) {
        let Err(job) = run_here(job) else {
            return;
        };
        let runner = self.helper.lock().runner();
        // With no thread to be had it runs here after all: what it needs is taken.
        let unsent = match runner {
            Some(runner) => runner.send(job).err().map(|back| back.0),
            None => Some(job),
        };
        unsent.into_iter().for_each(run_alone);
    }
}
