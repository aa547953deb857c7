//! Getting the permit: at once, or in the line, where signals and the deadline end the wait.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use shmsched::{
    AcquireError, Deadline, MemberInfo, MemberState, Permit, Scheduler, Segment, TryAcquireError,
};

use crate::cli::Run;
use crate::commands::observer;
use crate::exit::{self, Code, Failure, note};
use crate::output::{counted, json, limit, shortened, time};
use crate::signals::Signals;

/// After so long a wait it says whom it waits for.
const SILENCE: Duration = Duration::from_secs(1);

/// How many holders it names.
const NAMED: usize = 3;

/// The longest command it quotes.
const COMMAND: usize = 40;

/// Takes the slots without waiting; before it refuses, it looks whether dead members held some.
pub fn take_now<'a>(
    segment: &Segment,
    scheduler: &'a Scheduler,
    arguments: &Run,
) -> Result<Permit<'a>, Failure> {
    let attempt = || scheduler.try_acquire_many(arguments.slots, arguments.priority);
    let taken = match attempt() {
        Err(TryAcquireError::NoPermits) => {
            segment.look();
            attempt()
        }
        other => other,
    };
    taken.map_err(|error| match error {
        TryAcquireError::Failed(error) => exit::acquiring(error, segment.location()),
        _ => Failure::at(
            segment.location(),
            Code::WouldWait,
            "no slot is free",
            "'shmsched inspect' shows who holds them",
        ),
    })
}

/// Takes the slots when it is their turn.
pub fn take<'a>(
    segment: &Segment,
    scheduler: &'a Scheduler,
    arguments: &Run,
    deadline: Deadline,
    signals: &mut Signals,
) -> Result<Permit<'a>, Failure> {
    let begun = Instant::now();
    let failed = |error: AcquireError| exit::acquiring(error, segment.location());
    let mut wait = pin!(scheduler.acquire_until(arguments.slots, arguments.priority, deadline));
    // Mostly this is all: no alarm, no thread.
    if let Poll::Ready(taken) = wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return taken.map_err(failed);
    }

    let alarm = signals
        .alarm()
        .map_err(|error| Failure::new(Code::Io, error))?;
    let waker = Waker::from(alarm.clone());
    let mut context = Context::from_waker(&waker);
    let mut silent = arguments.verbose || io::stderr().is_terminal();
    loop {
        if let Some(signal) = signals.ending() {
            // Dropping the wait leaves the line.
            return Err(Failure::signal(signal));
        }
        if alarm.has_rung()
            && let Poll::Ready(taken) = wait.as_mut().poll(&mut context)
        {
            if arguments.verbose && taken.is_ok() {
                note(format_args!(
                    "{}: its turn came after {}",
                    segment.location(),
                    time(begun.elapsed().as_millis() as u64)
                ));
            }
            return taken.map_err(failed);
        }
        let left = silent.then(|| SILENCE.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            silent = false;
            tell(segment, arguments);
            continue;
        }
        signals.sleep(left);
    }
}

/// Says whom it waits for, if that can be seen.
fn tell(segment: &Segment, arguments: &Run) {
    let location = segment.location();
    let own = segment.member().index;
    let Ok(mut observer) = observer(location, arguments.existing.trust_foreign) else {
        return;
    };
    let snapshot = observer.snapshot().ok();
    let Some((scheduler, members)) =
        snapshot.and_then(|snapshot| Some((snapshot.scheduler?, snapshot.members)))
    else {
        return;
    };
    let wanted = counted(arguments.slots.into(), "slot");
    let ahead = members
        .iter()
        .flat_map(|member| &member.waiting)
        .count()
        .saturating_sub(1);
    let others = if ahead == 0 {
        String::new()
    } else {
        format!(", {} wait too", counted(ahead as u64, "other"))
    };
    let holders: Vec<&MemberInfo> = members
        .iter()
        .filter(|member| member.held > 0 && member.member != own)
        .collect();
    note(format_args!(
        "{location}: waiting for {wanted}, {} of {} taken{others}{}",
        scheduler.running,
        limit(scheduler.concurrency),
        held_by(&holders, |member| observer.keepers(member))
    ));
}

/// `; held by pid 7 'make' for 12s, ...`. `keepers` are the processes that keep an orphan's permit.
fn held_by(holders: &[&MemberInfo], keepers: impl Fn(u32) -> Vec<(u32, String)>) -> String {
    if holders.is_empty() {
        return String::new();
    }
    let mut named: Vec<String> = holders
        .iter()
        .take(NAMED)
        .map(|holder| describe(holder, &keepers))
        .collect();
    if holders.len() > NAMED {
        named.push(format!("{} more", holders.len() - NAMED));
    }
    format!("; held by {}", named.join(", "))
}

/// One holder: who, how many, since when, and what is odd about it.
fn describe(holder: &MemberInfo, keepers: impl Fn(u32) -> Vec<(u32, String)>) -> String {
    let (mut pid, mut command) = (holder.pid, holder.command.clone());
    let slots = if holder.held == 1 {
        String::new()
    } else {
        format!(" {} slots", holder.held)
    };
    let age = time(holder.held_ms.unwrap_or(holder.age_ms));
    let mut odd = Vec::new();
    match holder.state {
        MemberState::Alive => {}
        MemberState::Orphaned => {
            if let Some(keeper) = keepers(holder.member).into_iter().next() {
                (pid, command) = keeper;
            }
            odd.push("its run was killed, the command lives");
        }
        MemberState::Exiting => odd.push("exiting or dumping core"),
        state => odd.push(json::state(state)),
    }
    if !holder.same_namespace {
        odd.push("other pid namespace");
    }
    let odd = if odd.is_empty() {
        String::new()
    } else {
        format!(" ({})", odd.join(", "))
    };
    format!(
        "pid {pid} '{}'{slots} for {age}{odd}",
        shortened(&command, COMMAND)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::samples;

    #[test]
    fn holders_are_named() {
        // case 51
        let mut members = samples::busy().members;
        members[1].held = 1;
        members[1].command = "x".repeat(50);
        let holders: Vec<&MemberInfo> = members.iter().collect();
        let expected = format!(
            "; held by pid 101 'sleep 60' 2 slots for 1m00s, pid 102 '{}...' for 2.0s (stopped, other pid namespace)",
            "x".repeat(37)
        );
        let none = |_| Vec::new();
        assert_eq!(held_by(&holders, none), expected);
        let many = [holders[0]; 5];
        assert!(held_by(&many, none).ends_with(", 2 more"));
        assert_eq!(held_by(&[], none), "");

        members[0].state = MemberState::Orphaned;
        let text = held_by(&[&members[0]], |member| vec![(member + 7, "sh".into())]);
        assert_eq!(
            text,
            "; held by pid 7 'sh' 2 slots for 1m00s (its run was killed, the command lives)"
        );
    }
}
