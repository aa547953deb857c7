//! One caller that waits, as its own process sees it.

use super::Post;
use super::run::About;
use crate::layout::Gate;
use crate::protocol::line::Seat;
use crate::sys::mutex::Mutex;
use crate::sys::thunk::Thunk;
use crate::words::{U32, U64};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread::Thread;

/// A queued callback: takes nothing, its value is inside.
pub type Job = Box<dyn FnOnce() + Send>;

/// A callback of the Scheduler that was queued behind another, for one slot and without a deadline, and of which nobody is
/// told, taken out of its [`Run`](super::run::Run). Once it acts for its member it becomes a [`Waiter`].
pub struct Call {
    /// What is called.
    pub thunk: Thunk,
    /// Since when it waits.
    pub since: u64,
    /// What it had in common with others.
    pub about: About,
}

/// Whether somebody may come to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Silence {
    /// Who listens by default then is told.
    Now,
    /// Nobody is told.
    ForEver,
}

impl Call {
    /// The same as one that acts for its member.
    pub fn into_waiter(self) -> Waiter {
        let (since, About { bound, ceiling, .. }) = (self.since, self.about);
        let wish = Wish {
            post: Post {
                gate: Gate::Scheduler,
                lane: self.about.lane as usize,
            },
            amount: 1,
            bound,
            ceiling,
        };
        let work = Work::Call(Box::new(self));
        let kind = Kind::Callback(Mutex::new(Some(work)));
        Waiter::new(kind, wish, since, None)
    }
}

/// What a callback's waiter runs.
pub enum Work {
    /// A job that says everything itself.
    Job(Job),
    /// What was queued as a call.
    Call(Box<Call>),
}

/// How the caller is woken.
pub enum Kind {
    /// A blocked thread.
    Thread(Thread),
    /// A future; the waker of its last poll.
    Task(Mutex<Option<Waker>>),
    /// A callback that runs when its turn comes.
    Callback(Mutex<Option<Work>>),
}

/// How a wait ended, decided under the queue's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not yet.
    Waiting,
    /// A releaser of the same member handed its slots over.
    Granted,
    /// The handle was closed or disposed, or the segment is no use any more: see the attachment.
    Failed,
}

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Where.
    pub post: Post,
    /// Slots or tokens wanted.
    pub amount: u32,
    /// What the handle adds to the segment's target.
    pub bound: u32,
    /// The handle's own overall limit.
    pub ceiling: u32,
}

/// What became of a wait, for who is told of it.
pub enum Step<'a> {
    /// It joined the queue.
    Queued,
    /// It has what it asked for.
    Dispatched,
    /// Its caller gave it up without a word.
    Dropped,
    /// It ended with this error.
    Failed(&'a (dyn std::error::Error + 'static)),
}

/// Is told how a wait goes; never under a lock.
pub trait Told: Send + Sync {
    /// This happened.
    fn tell(&self, waiter: &Waiter, step: Step<'_>);
}

/// Bits of [`Waiter::notes`].
pub mod note {
    /// It left its member without any waiter at the gate.
    pub const LAST: u32 = 1;
    /// It was taken out from outside, by whom its caller gave the right to.
    pub const CANCELLED: u32 = 2;
    /// Its tokens went into debt.
    pub const FORCED: u32 = 4;
    /// They did since it had not got on for a second.
    pub const STALLED: u32 = 8;
}

/// One caller in its process's queue.
pub struct Waiter {
    /// Slots or tokens wanted.
    pub amount: u32,
    /// What the handle adds to the segment's target.
    pub bound: u32,
    /// The handle's own overall limit.
    pub ceiling: u32,
    /// Where it waits.
    pub post: Post,
    /// Its own place in the Pacer's line; elsewhere the place is its member's.
    pub spot: u32,
    /// Since when.
    pub since: u64,
    /// Until when, `sys::clock::now` units.
    pub deadline: Option<u64>,
    /// How it is woken.
    pub kind: Kind,
    fate: U32,
    /// Coarse ms + 1 at which a task was woken for its turn; 0: it was not.
    pub called: U32,
    /// A task that did not come for its turn within the grace: the next of its process goes first, until it is polled.
    pub passed: U32,
    /// 1 while the poll of a task that stands first waits awake; written under the queue's lock.
    pub awake: U32,
    /// Of a child's Limiter: who waits for it at the parent.
    pub upper: Mutex<Option<Arc<Waiter>>>,
    /// 1 while that one has not been called.
    pub held: U32,
    /// Of the Pacer: up to when the start that it took keeps others away.
    pub start: U64,
    /// Who is told how it goes.
    pub told: Option<Arc<dyn Told>>,
    /// What there is to tell: [`note`] bits.
    pub notes: U32,
    /// How many of its member waited at the gate when it had joined, itself among them.
    pub pending: U32,
}

impl Waiter {
    /// A caller that begins to wait.
    pub fn new(kind: Kind, wish: Wish, since: u64, deadline: Option<u64>) -> Waiter {
        Waiter::at(0, kind, wish, since, deadline)
    }

    /// One with a place of its own.
    pub fn at(spot: u32, kind: Kind, wish: Wish, since: u64, deadline: Option<u64>) -> Waiter {
        let Wish {
            post,
            amount,
            bound,
            ceiling,
        } = wish;
        let [fate, called, passed, awake, held, notes, pending] = [const { U32::new(0) }; 7];
        Waiter {
            amount,
            bound,
            ceiling,
            post,
            spot,
            since,
            deadline,
            kind,
            fate,
            called,
            passed,
            awake,
            upper: Mutex::new(None),
            held,
            start: U64::new(0),
            told: None,
            notes,
            pending,
        }
    }

    /// One whose steps are told.
    pub fn told_to(self, told: Option<Arc<dyn Told>>) -> Waiter {
        Waiter { told, ..self }
    }

    /// Tells of a step, if anybody listens. Outside the locks.
    #[inline]
    pub fn tell(&self, step: Step<'_>) {
        if let Some(told) = &self.told {
            told.tell(self, step);
        }
    }

    /// What it asks for, as its place says it.
    pub fn seat(&self) -> Seat {
        Seat {
            amount: self.amount,
            bound: self.bound,
            ceiling: self.ceiling,
            since: self.since,
        }
    }

    /// How it stands.
    pub fn fate(&self) -> Fate {
        match self.fate.get() {
            0 => Fate::Waiting,
            1 => Fate::Granted,
            _ => Fate::Failed,
        }
    }

    /// Ends the wait; under the queue's lock, by who took it out of the queue.
    pub fn decide(&self, fate: Fate) {
        self.fate.put(match fate {
            Fate::Waiting => 0,
            Fate::Granted => 1,
            Fate::Failed => 2,
        });
    }

    /// Whether it is a blocked thread.
    pub fn is_thread(&self) -> bool {
        matches!(self.kind, Kind::Thread(_))
    }

    /// What to do, outside the queue's lock, to have it look again.
    pub fn nudge(&self) -> Nudge {
        match &self.kind {
            Kind::Thread(thread) => Nudge::Thread(thread.clone()),
            Kind::Task(waker) => waker.lock().take().map_or(Nudge::Nobody, Nudge::Task),
            Kind::Callback(_) => Nudge::Nobody,
        }
    }
}

/// A wake-up that is due: given out under the queue's lock, delivered after it.
#[must_use]
pub enum Nudge {
    /// Nothing to wake.
    Nobody,
    /// Unpark.
    Thread(Thread),
    /// Wake.
    Task(Waker),
    /// What is to be done beside.
    Then(Box<dyn FnOnce() + Send + Sync>),
}

impl Nudge {
    /// Wakes. A waker is foreign code: its panic was reported, and must not keep others from being woken.
    pub fn deliver(self) {
        match self {
            Nudge::Nobody => {}
            Nudge::Thread(thread) => thread.unpark(),
            Nudge::Task(waker) => {
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
            Nudge::Then(job) => job(),
        }
    }
}
