//! Running queued callbacks: on the releasing thread, in a loop, never recursively.

use crate::park::waiter::Job;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
pub(crate) fn run_here(job: Job) -> Result<(), Job> {
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
pub(crate) fn run_alone(job: Job) {
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
