//! The lookout: a thread of a member that sleeps until the process of somebody who holds slots ends, and then looks.
//!
//! It runs while one of the first two in the Scheduler's line is of this member and has waited for a while. What it
//! misses is found at the timer of those two, which it does not replace: a process of another pid namespace, or one that
//! left its lock to a command, a descriptor that is not to be had.

mod known;
mod patience;

pub(super) use patience::Patience;

use crate::protocol::roster::Status;
use crate::segment::attachment::{Attachment, state};
use crate::segment::{Scope, concerned};
use crate::sys::pidfd::{self, Process, Refusal, Waker};
use crate::sys::process::{self, Identity};
use crate::sys::{clock, fork, threads};
use known::{Known, Whom};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::thread;

/// How often a helper looks up that is ready for tasks which do not ring it.
pub(super) const READY_NS: u64 = 20_000_000;
/// How long it stays after it was last asked for: longer than the timer of who asks.
const STAYS_NS: u64 = 1_000_000_000;
/// 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// Of how many processes it waits for the end.
const MOST: usize = 64;

/// What a member has of it. Descriptors are made and closed under its lock, which a fork holds.
#[derive(Default)]
pub(crate) struct Lookout {
    /// While the thread runs.
    waker: Option<Waker>,
    /// Whose end it waits for. Only the thread changes it.
    processes: Vec<(Whom, Process)>,
    /// When it was last asked for.
    asked: u64,
    /// Whose end the thread read that it is to wait for, as [`Attachment::concerned_now`] says it.
    whose: u64,
    /// That is to be read anew: they are others by now.
    stale: bool,
    /// Somebody's descriptor was not to be had, or is no more.
    lacking: bool,
    /// Nobody may start it any more.
    over: bool,
}

impl Lookout {
    /// Ends the thread, and lets none begin.
    pub fn stop(&mut self) {
        if !self.over {
            self.over = true;
            self.waker.as_ref().inspect(|waker| waker.wake());
        }
    }

    /// Leaves the thread to the end of the process: nobody wakes it for that.
    pub fn abandon(&mut self) {
        self.over = true;
    }

    /// In a forked child: the thread is not here, its descriptors are.
    pub fn forked(&mut self) {
        *self = Lookout {
            over: true,
            ..Lookout::default()
        };
    }

    /// The thread's, when it ends.
    fn end(&mut self) {
        self.processes.clear();
        self.waker = None;
    }

    /// What the thread is to do: whether to read anew who holds. `None`: it ends.
    fn task(&mut self, now: u64) -> Option<bool> {
        let useful = self.waker.as_ref().is_some_and(Waker::clear);
        let wanted = !self.over && now < self.asked.saturating_add(STAYS_NS);
        if !useful || !wanted {
            self.end();
            return None;
        }
        let stale = std::mem::take(&mut self.stale);
        self.lacking &= !stale;
        Some(stale)
    }

    /// What the thread sleeps for: the waker first. And until when.
    fn polled(&self) -> (Vec<RawFd>, u64) {
        let waker = self.waker.iter().map(Waker::number);
        let processes = self.processes.iter().map(|(_, process)| process.number());
        let until = self.asked.saturating_add(STAYS_NS);
        (waker.chain(processes).collect(), until)
    }
}

impl Attachment {
    /// Asks for the lookout, from now on for a while: a watcher of this member waits at the Scheduler. Where no thread
    /// and no descriptor is to be had, its timer does.
    pub(super) fn look_out(self: &Arc<Self>) {
        if self.is_over_for_lookout() || self.views.members().len() < 2 {
            return;
        }
        let whose = self.concerned_now(|_| {});
        let mut lookout = self.lookout.lock();
        if lookout.over {
            return;
        }
        lookout.asked = clock::now();
        let same = lookout.whose == whose && !lookout.lacking;
        // At most timers nothing has changed, and the thread sleeps on.
        if lookout.waker.is_some() && same {
            return;
        }
        lookout.stale = true;
        if let Some(waker) = &lookout.waker {
            return waker.wake();
        }
        let Ok(waker) = Waker::new() else { return };
        let this = self.clone();
        let started = thread::Builder::new()
            .name("shmsched-look".into())
            .stack_size(256 * 1024)
            .spawn(move || this.keep_lookout());
        if started.is_ok() {
            lookout.waker = Some(waker);
        }
    }

    /// Calls `each` with everybody whom a watcher asks about at its timer: who holds slots, and who stands before it and
    /// holds them next. The number is another one, as good as ever, if they are others.
    fn concerned_now(&self, mut each: impl FnMut(Whom)) -> u64 {
        let mut sum = 0u64;
        concerned(&self.views, Scope::Front, |member| {
            if let Some(whom) = self.whom(member) {
                each(whom);
                let one = u64::from(whom.generation) << 32 | u64::from(member);
                let mixed = (one ^ one >> 29).wrapping_add(1).wrapping_mul(MIX);
                sum = sum.wrapping_add((mixed ^ mixed >> 32).wrapping_mul(MIX));
            }
        });
        sum
    }

    fn is_over_for_lookout(&self) -> bool {
        self.state.get() & (state::FORKED | state::LOST | state::DETACHED) != 0
    }

    /// The thread.
    fn keep_lookout(self: Arc<Self>) {
        threads::leave_signals_to_others();
        let mut known = Known::default();
        loop {
            let task = self.lookout.lock().task(clock::now());
            let Some(stale) = task else { return };
            if self.is_over_for_lookout() {
                return self.lookout.lock().end();
            }
            if stale {
                self.read_anew(&mut known);
            }
            if known.is_look_due(clock::now()) {
                self.look(Scope::Front);
                known.looked(clock::now(), |whom| self.is_live(whom));
            }
            let (numbers, until) = self.lookout.lock().polled();
            let ready = pidfd::poll(&numbers, until.min(known.next_look()));
            self.note_ended(&mut known, &ready);
        }
    }

    /// Finds out whose end is to be waited for. Others are kept while there is room: they often hold again.
    fn read_anew(&self, known: &mut Known) {
        let mut wanted: Vec<Whom> = Vec::new();
        let whose = self.concerned_now(|whom| {
            let new = whom.member != self.me && !wanted.contains(&whom);
            if new && wanted.len() < MOST {
                wanted.push(whom);
            }
        });
        known.keep(&wanted, MOST, |whom| self.is_live(whom));
        {
            let mut lookout = self.lookout.lock();
            lookout.whose = whose;
            lookout.processes.retain(|(whom, _)| known.lives(*whom));
        }
        for whom in wanted {
            if !known.has(whom) {
                self.begin_with(known, whom);
            }
        }
    }

    /// Who is attached in a member slot.
    fn whom(&self, member: u32) -> Option<Whom> {
        let status = self.views.members().get(member as usize)?.status.get();
        let generation = Status(status).live()?;
        Some(Whom { member, generation })
    }

    fn is_live(&self, whom: Whom) -> bool {
        self.whom(whom.member) == Some(whom)
    }

    /// The process of a member, if it says so and is attached still.
    fn process_of(&self, whom: Whom) -> Option<Identity> {
        let member = self.views.members().get(whom.member as usize)?;
        let identity = Identity {
            pid: member.pid.get(),
            start: member.start.get(),
            namespace: member.namespace.get(),
        };
        self.is_live(whom).then_some(identity)
    }

    /// Has the end of somebody's process waited for.
    fn begin_with(&self, known: &mut Known, whom: Whom) {
        let Some(theirs) = self.process_of(whom) else {
            return;
        };
        if !can_be_waited_for(theirs, process::me()) {
            return known.leave(whom);
        }
        let opened = {
            let mut lookout = self.lookout.lock();
            Process::open(theirs.pid).map(|process| lookout.processes.push((whom, process)))
        };
        match opened {
            Ok(()) => self.begin_if_still(known, whom, theirs),
            Err(Refusal::Nobody) => known.ended(whom, clock::now()),
            Err(Refusal::NotNow) => self.lookout.lock().lacking = true,
            Err(Refusal::Never) => known.leave(whom),
        }
    }

    /// The descriptor is in hand: if its pid is that one's now, it was then.
    fn begin_if_still(&self, known: &mut Known, whom: Whom, theirs: Identity) {
        let still = {
            // What it opens for a moment is no child's.
            let _no_fork = fork::hold_off();
            process::is_still(theirs.pid, theirs.start)
        };
        match still {
            Some(true) => return known.begin(whom),
            // Another process has the pid, or nobody.
            Some(false) => known.ended(whom, clock::now()),
            None => known.leave(whom),
        }
        self.close(whom);
    }

    fn close(&self, whom: Whom) {
        self.lookout
            .lock()
            .processes
            .retain(|(other, _)| *other != whom);
    }

    /// Whose processes have ended, by their indices among what was polled.
    fn note_ended(&self, known: &mut Known, ready: &[usize]) {
        let now = clock::now();
        let mut lookout = self.lookout.lock();
        for at in ready.iter().rev().filter_map(|at| at.checked_sub(1)) {
            if at >= lookout.processes.len() {
                continue;
            }
            let (whom, process) = lookout.processes.swap_remove(at);
            match process.is_ours() {
                // Who left in good order needs no look.
                true if self.is_live(whom) => known.ended(whom, now),
                true => known.forget(whom),
                // Closed behind our back.
                false => {
                    known.forget(whom);
                    lookout.lacking = true;
                }
            }
        }
    }
}

/// Whether a process can be found by the pid that it says it has, and is not this one.
fn can_be_waited_for(theirs: Identity, ours: Identity) -> bool {
    let same = theirs.namespace != 0 && theirs.namespace == ours.namespace;
    same && theirs.start != 0 && theirs.pid != 0 && theirs.pid != ours.pid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_pid_namespace_that_says_when_it_started_is_waited_for() {
        let ours = Identity {
            pid: 7,
            start: 100,
            namespace: 1,
        };
        let theirs = Identity { pid: 8, ..ours };
        assert!(can_be_waited_for(theirs, ours));
        let not = [
            ours,
            Identity { start: 90, ..ours },
            Identity { pid: 0, ..theirs },
            Identity { start: 0, ..theirs },
            Identity {
                namespace: 2,
                ..theirs
            },
            Identity {
                namespace: 0,
                ..theirs
            },
        ];
        for theirs in not {
            assert!(!can_be_waited_for(theirs, ours), "{theirs:?}");
        }
        let unknown = Identity {
            namespace: 0,
            ..ours
        };
        let theirs = Identity { pid: 8, ..unknown };
        assert!(!can_be_waited_for(theirs, unknown));
    }
}
