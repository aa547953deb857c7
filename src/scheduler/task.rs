//! What is told of a `run`: how long it waited, how long it ran, how it ended.

use super::Scheduler;
use crate::Priority;
use crate::error::AcquireError;
use crate::layout::Gate;
use crate::sys::clock;
use crate::trace::{Document, Outcome, Teller, since};
use std::time::Duration;

const TASK: &str = "scheduler:task";

/// One `run`, from the call to its end; dropped after its slot was given back.
pub(super) struct Task<'a> {
    scheduler: &'a Scheduler,
    priority: Priority,
    /// Where somebody listens.
    told: Option<Box<Timed>>,
    /// Whether the caller's code runs now: a task that is dropped meanwhile panicked.
    within: bool,
}

struct Timed {
    teller: Teller,
    asked: u64,
    started: Option<u64>,
    wait: Duration,
    execution: Option<Duration>,
    outcome: Outcome,
}

impl<'a> Task<'a> {
    /// To whom a task of this handle is told, if anybody listens.
    #[inline]
    pub fn heard(scheduler: &Scheduler) -> Option<Teller> {
        let attachment = scheduler.attachment();
        scheduler.trace.teller_of(TASK, attachment)
    }

    pub fn new(scheduler: &'a Scheduler, priority: Priority, heard: Option<Teller>) -> Task<'a> {
        Task {
            scheduler,
            priority,
            told: heard.map(Timed::begin),
            within: false,
        }
    }

    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// It did not come to run.
    pub fn failed(&mut self, error: &AcquireError) {
        if let Some(told) = &mut self.told {
            told.wait = since(told.asked);
            told.outcome = Outcome::Failed(error.clone());
        }
    }

    /// It has its slot.
    pub fn start(&mut self, waited: bool) {
        if let Some(told) = &mut self.told {
            told.start(waited);
        }
    }

    /// Calls its code.
    pub fn call<T>(&mut self, f: impl FnOnce() -> T) -> T {
        self.within = true;
        let result = f();
        self.within = false;
        result
    }

    /// It has returned.
    pub fn complete(&mut self) {
        if let Some(told) = &mut self.told {
            told.end(Outcome::Completed);
        }
    }

    #[cold]
    pub fn tell_panic(&mut self) {
        if let Some(told) = &mut self.told {
            told.end(Outcome::Panicked);
        }
        // Who listens to errors need not listen to tasks.
        let teller = self.scheduler.trace.teller(self.scheduler.attachment());
        if let Some(teller) = teller {
            teller.panicked(Gate::Scheduler, self.priority, 1);
        }
    }
}

impl Drop for Task<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.within {
            self.tell_panic();
        }
        if let Some(told) = self.told.take() {
            told.tell(self.priority, self.scheduler.trace.threshold);
        }
    }
}

impl Timed {
    #[cold]
    fn begin(teller: Teller) -> Box<Timed> {
        Box::new(Timed {
            teller,
            asked: clock::now(),
            started: None,
            wait: Duration::ZERO,
            execution: None,
            outcome: Outcome::Cancelled,
        })
    }

    #[cold]
    fn start(&mut self, waited: bool) {
        let now = clock::now();
        self.started = Some(now);
        if waited {
            self.wait = Duration::from_nanos(now.saturating_sub(self.asked));
        }
    }

    #[cold]
    fn end(&mut self, outcome: Outcome) {
        self.execution = self.started.map(since);
        self.outcome = outcome;
    }

    #[cold]
    fn tell(mut self, priority: Priority, threshold: Duration) {
        if self.outcome == Outcome::Cancelled {
            match self.started {
                Some(_) => self.end(Outcome::Cancelled),
                None => self.wait = since(self.asked),
            }
        }
        if self.outcome == Outcome::Completed && is_quick(threshold, self.wait, self.execution) {
            return;
        }
        self.teller
            .tell(TASK, Gate::Scheduler, |document| Document {
                priority: Some(priority),
                queue_wait: Some(self.wait),
                execution: self.execution,
                outcome: Some(self.outcome),
                ..document
            });
    }
}

/// Both below the threshold (O10).
fn is_quick(threshold: Duration, wait: Duration, execution: Option<Duration>) -> bool {
    wait < threshold && execution.is_none_or(|execution| execution < threshold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o10_only_what_is_quick_in_both_is_quick() {
        let ms = Duration::from_millis;
        let quick = |threshold, wait, ran| is_quick(ms(threshold), ms(wait), Some(ms(ran)));
        assert!(quick(50, 0, 10) && quick(50, 49, 49));
        assert!(!quick(50, 0, 60) && !quick(50, 60, 0) && !quick(50, 50, 10) && !quick(50, 10, 50));
        assert!(!quick(0, 0, 0), "strictly below (O11)");
    }
}
