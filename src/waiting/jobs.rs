//! Queued callbacks: joining, and running on the releasing thread, in a loop, never recursively.

use super::{Attempt, link};
use crate::error::AcquireError;
use crate::park::Post;
use crate::park::queue::{Queue, Taken};
use crate::park::waiter::{Call, Job, Kind, Nudge, Silence, Step, Told, Waiter, Wish, Work};
use crate::segment::Handle;
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::sys::mutex::Mutex;
use crate::sys::thunk::Thunk;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    static TURNS: RefCell<Turns> = const { RefCell::new(Turns::new()) };
}

/// So many calls may follow one at once where others may come that are not seen meanwhile.
const AMONG_OTHERS: u32 = 15;

/// How many calls may follow one at once: none before those that have their turn already.
fn may_follow(among_others: bool) -> u32 {
    let any = TURNS.try_with(|turns| turns.try_borrow().is_ok_and(|turns| turns.next.is_empty()));
    match any {
        Ok(true) if among_others => AMONG_OTHERS,
        Ok(true) => u32::MAX,
        _ => 0,
    }
}

/// A callback that has its turn.
pub(crate) struct Turn {
    /// What is called.
    pub thunk: Thunk,
    /// Its priority's index.
    pub lane: u32,
    /// Whether anybody may be told of its panic.
    pub silence: Silence,
}

impl Turn {
    /// The lane of what is no member's call.
    const NOBODY: u32 = u32::MAX;

    /// A job, where calls are.
    fn of_nobody(job: Job) -> Turn {
        Turn {
            thunk: Thunk::new(job),
            lane: Turn::NOBODY,
            silence: Silence::ForEver,
        }
    }

    /// Whether it is that.
    #[inline]
    fn is_nobodys(&self) -> bool {
        self.lane == Turn::NOBODY
    }
}

impl From<Call> for Turn {
    fn from(call: Call) -> Turn {
        Turn {
            thunk: call.thunk,
            lane: call.about.lane,
            silence: call.about.silence,
        }
    }
}

/// What has its turn on this thread. All are of one kind: a job is a call of [nobody](Turn::of_nobody).
struct Turns {
    next: VecDeque<Turn>,
    /// How many of them are a member's.
    calls: usize,
    /// The member whose calls they are, or were.
    whose: Weak<Handle>,
}

impl Turns {
    const fn new() -> Turns {
        Turns {
            next: VecDeque::new(),
            calls: 0,
            whose: Weak::new(),
        }
    }

    /// Whether a call of this member can be put there. Calls of two members do not go together.
    fn admit(&mut self, whose: &Weak<Handle>) -> bool {
        if !Weak::ptr_eq(&self.whose, whose) {
            if self.calls != 0 {
                return false;
            }
            self.whose = whose.clone();
        }
        true
    }

    fn push_job(&mut self, job: Job) {
        self.push(Turn::of_nobody(job));
    }

    fn push_call(&mut self, turn: Turn) {
        self.calls += 1;
        self.push(turn);
    }

    fn push(&mut self, turn: Turn) {
        link::part();
        self.next.push_back(turn);
    }

    /// The first goes, if there is one.
    fn pop(&mut self) -> Option<Turn> {
        let turn = self.next.pop_front()?;
        self.calls -= usize::from(!turn.is_nobodys());
        Some(turn)
    }
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
fn run_alone(job: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}

fn run_among(job: Job, others: Option<&Receiver<Job>>) -> Result<(), Job> {
    let mut job = Some(job);
    let _ = TURNS.try_with(|turns| {
        if let Ok(mut turns) = turns.try_borrow_mut() {
            job.take().into_iter().for_each(|job| turns.push_job(job));
        }
    });
    if let Some(job) = job {
        return Err(job);
    }
    run_turns(others);
    Ok(())
}

/// Runs what has its turn here, unless that is being done outside.
fn run_turns(others: Option<&Receiver<Job>>) {
    if RUNNING.replace(true) {
        return;
    }
    // Its calls run here, one after the other, and keep it attached while they do.
    let mut member: Option<Arc<Handle>> = None;
    loop {
        // A call may have dropped all handles but this one.
        if member.as_ref().is_some_and(|it| Arc::strong_count(it) == 1) {
            run_alone(|| drop(member.take()));
        }
        let mut other = false;
        let turn = TURNS.try_with(|turns| {
            let mut turns = turns.borrow_mut();
            other = member.as_ref().map(Arc::as_ptr) != Some(turns.whose.as_ptr());
            turns.pop()
        });
        let Ok(Some(mut turn)) = turn else {
            if member.is_none() {
                break;
            }
            run_alone(|| drop(member.take()));
            continue;
        };
        if turn.is_nobodys() {
            run_alone(|| drop(member.take()));
            run_alone(|| turn.thunk.call());
        } else {
            if other {
                run_alone(|| drop(member.take()));
                member = TURNS.with(|turns| turns.borrow().whose.upgrade());
            }
            match &member {
                Some(handle) if !handle.attachment.is_inert() => {
                    let more = may_follow(others.is_some());
                    handle.attachment.call_now(&mut turn, more);
                }
                // Disposed since it got its turn, or all handles went, or this is a forked child: it has no slot.
                _ => run_alone(|| drop(turn)),
            }
        }
        if let Some(others) = others {
            let _ = TURNS.try_with(|turns| {
                let mut turns = turns.borrow_mut();
                others.try_iter().for_each(|job| turns.push_job(job));
            });
        }
    }
    RUNNING.set(false);
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
        // Before the helper hears of it, which reckons with a look that is owed.
        self.look_to_wait();
        let kind = Kind::Callback(Mutex::new(Some(Work::Job(job))));
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
                self.job_of(&waiter)
                    .into_iter()
                    .for_each(|job| self.run_job(job));
            }
            Some(Attempt::Later(_)) | None => {}
        }
        Ok(())
    }

    /// Takes the job of a callback that got its turn. Who runs it tells of that first.
    pub(crate) fn job_of(&self, waiter: &Arc<Waiter>) -> Option<Job> {
        let Kind::Callback(work) = &waiter.kind else {
            return None;
        };
        let job = match work.lock().take()? {
            Work::Job(job) => job,
            Work::Call(call) => return Some(self.job_of_call(*call)),
        };
        if waiter.told.is_none() {
            return Some(job);
        }
        let waiter = waiter.clone();
        Some(Box::new(move || {
            waiter.tell(Step::Dispatched);
            job();
        }))
    }

    /// A call that says itself whose it is.
    fn job_of_call(&self, call: Call) -> Job {
        let mut turn = Turn::from(call);
        let whose = self.handle().clone();
        Box::new(move || {
            if let Some(handle) = whose.upgrade()
                && !handle.attachment.is_inert()
            {
                handle.attachment.call_now(&mut turn, may_follow(true));
            }
        })
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

    /// Takes the very first of a post out, a callback that got its turn: a call goes to this thread's loop, if it has one.
    /// What is left to do is [`Self::run_turn`].
    pub(crate) fn take_turn(&self, queue: &mut Queue, post: Post) -> Option<Taken> {
        let call = match queue.take_first(post)? {
            Taken::Call(call) => call,
            waiter => return Some(waiter),
        };
        let mut call = Some(call);
        let _ = TURNS.try_with(|turns| {
            if let Ok(mut turns) = turns.try_borrow_mut()
                && turns.admit(self.handle())
                && let Some(call) = call.take()
            {
                turns.push_call(call.into());
            }
        });
        call.map(Taken::Call)
    }

    /// Runs the callback that [`Self::take_turn`] took out.
    pub(crate) fn run_turn(&self, taken: Option<Taken>) {
        let job = match taken {
            None if RUNNING.get() => return,
            None => return run_turns(None),
            Some(Taken::Call(call)) => Some(self.job_of_call(call)),
            Some(Taken::Waiter(waiter)) => self.job_of(&waiter),
        };
        job.into_iter().for_each(|job| self.run_job(job));
    }
}
