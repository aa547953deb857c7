//! Running queued callbacks: on the releasing thread, in a loop, never recursively.

use crate::park::waiter::Job;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    static NEXT: RefCell<VecDeque<Job>> = const { RefCell::new(VecDeque::new()) };
}

/// Runs a callback that has its slot on this thread; from within another callback it is left to the loop outside.
///
/// A callback that panics has given its slot back itself (`Scheduler::acquire_with` wraps it); the panic was reported
/// by the panic hook and goes no further: who released did nothing wrong (E4).
pub(crate) fn run_here(job: Job) {
    let mut job = Some(job);
    let _ = NEXT.try_with(|next| {
        if let Ok(mut next) = next.try_borrow_mut() {
            next.extend(job.take());
        }
    });
    // A thread that is ending has no loop any more.
    if let Some(job) = job {
        let _ = catch_unwind(AssertUnwindSafe(job));
        return;
    }
    if RUNNING.replace(true) {
        return;
    }
    while let Ok(Some(job)) = NEXT.try_with(|next| next.borrow_mut().pop_front()) {
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
    RUNNING.set(false);
}
