//! The gates of a segment, in the order in which a run passes them: a slot, its start, tokens.

use shmsched::{
    Deadline, Gate, Limiter, Location, NoGate, OwnedPermit, Pacer, Priority, Scheduler, Segment,
    StartError, TryAcquireError, TryStartError,
};

use super::news::{self, Sight};
use super::queue::{Door, Queue, Refusal};
use crate::cli::Run;
use crate::exit::{self, Code, Failure};
use crate::signals::Signals;

/// Passes all that the segment has. Should it fail at one, the slot is given back; a start is spent.
pub fn pass(
    segment: &Segment,
    arguments: &Run,
    deadline: Deadline,
    signals: &mut Signals,
) -> Result<Option<OwnedPermit>, Failure> {
    let location = segment.location();
    let (scheduler, pacer, limiter) = (segment.scheduler(), segment.pacer(), segment.limiter());
    let tokens = tokens(arguments, lacks(&scheduler), lacks(&pacer), lacks(&limiter))
        .map_err(|lacking| exit::lacking(lacking, location))?;
    let priority = arguments.priority;

    let mut queue = Queue::new(segment, arguments, deadline, signals);
    let mut permit = None;
    if let Ok(scheduler) = &scheduler {
        let slots = arguments.slots;
        permit = Some(queue.pass(&Slots {
            scheduler,
            slots,
            priority,
            location,
        })?);
    }
    if let Ok(pacer) = &pacer {
        let holds = permit.is_some();
        queue.pass(&Start {
            pacer,
            location,
            holds,
        })?;
    }
    if let (Ok(limiter), 1..) = (&limiter, tokens) {
        queue.pass(&Tokens {
            limiter,
            tokens,
            priority,
            location,
        })?;
    }
    Ok(permit)
}

fn lacks<T>(gate: &Result<T, NoGate>) -> Option<NoGate> {
    gate.as_ref().err().copied()
}

/// How many tokens to take; an error for a gate that was asked for and is not there.
fn tokens(
    arguments: &Run,
    no_scheduler: Option<NoGate>,
    no_pacer: Option<NoGate>,
    no_limiter: Option<NoGate>,
) -> Result<u32, NoGate> {
    match no_scheduler {
        Some(lacking) if arguments.slots != 1 => return Err(lacking),
        _ => {}
    }
    let only_tokens = no_scheduler.is_some() && no_pacer.is_some();
    match (arguments.tokens, no_limiter) {
        (None, _) if !only_tokens => Ok(0),
        (_, Some(lacking)) => Err(lacking),
        (asked, None) => Ok(asked.unwrap_or(1)),
    }
}

/// So many slots at once.
struct Slots<'a> {
    scheduler: &'a Scheduler,
    slots: u32,
    priority: Priority,
    location: &'a Location,
}

impl Door for Slots<'_> {
    type Pass = OwnedPermit;

    fn at_once(&self) -> Result<OwnedPermit, Refusal> {
        let taken = self
            .scheduler
            .try_acquire_many_owned(self.slots, self.priority);
        taken.map_err(|error| refused(error, Gate::Scheduler, self.location))
    }

    async fn in_turn(&self, until: Deadline) -> Result<OwnedPermit, Refusal> {
        let taken = self
            .scheduler
            .acquire_owned_until(self.slots, self.priority, until);
        taken
            .await
            .map_err(|error| Refusal::Final(exit::passing(error, Gate::Scheduler, self.location)))
    }

    fn news(&self, sight: &Sight) -> Option<String> {
        news::slots(sight, self.slots)
    }
}

/// Its turn to start.
struct Start<'a> {
    pacer: &'a Pacer,
    location: &'a Location,
    /// Whether others wait for a slot that it holds: then it waits whatever the length of the queue.
    holds: bool,
}

impl Door for Start<'_> {
    type Pass = ();

    fn at_once(&self) -> Result<(), Refusal> {
        self.pacer.try_start().map_err(|error| match error {
            TryStartError::Failed(error) => {
                Refusal::Final(exit::passing(error, Gate::Pacer, self.location))
            }
            _ => Refusal::Busy(exit::would_wait(Gate::Pacer, self.location)),
        })
    }

    async fn in_turn(&self, until: Deadline) -> Result<(), Refusal> {
        let started = match self.holds {
            true => self.pacer.start_holding_until(until).await,
            false => self.pacer.start_until(until).await,
        };
        started.map_err(|error| match error {
            StartError::Failed(error) => {
                Refusal::Final(exit::passing(error, Gate::Pacer, self.location))
            }
            // The library has looked for the dead before it refused.
            _ => Refusal::Final(exit::queue_full(self.location)),
        })
    }

    fn news(&self, sight: &Sight) -> Option<String> {
        news::start(sight)
    }
}

/// So many tokens at once.
struct Tokens<'a> {
    limiter: &'a Limiter,
    tokens: u32,
    priority: Priority,
    location: &'a Location,
}

impl Door for Tokens<'_> {
    type Pass = ();

    fn at_once(&self) -> Result<(), Refusal> {
        let taken = self.limiter.try_consume(self.tokens);
        let most = self.limiter.tokens_per_second();
        taken.map_err(|error| match error {
            TryAcquireError::NoTokens if self.tokens > most => Refusal::Final(Failure::at(
                self.location,
                Code::WouldWait,
                format_args!("{} tokens are more than the bucket ever holds", self.tokens),
                "only one that waits gets so many: leave out --no-wait",
            )),
            error => refused(error, Gate::Limiter, self.location),
        })
    }

    async fn in_turn(&self, until: Deadline) -> Result<(), Refusal> {
        let taken = self
            .limiter
            .acquire_until(self.tokens, self.priority, until);
        taken
            .await
            .map_err(|error| Refusal::Final(exit::passing(error, Gate::Limiter, self.location)))
    }

    fn news(&self, sight: &Sight) -> Option<String> {
        news::tokens(sight, self.tokens)
    }
}

fn refused(error: TryAcquireError, gate: Gate, location: &Location) -> Refusal {
    match error {
        TryAcquireError::Failed(error) => Refusal::Final(exit::passing(error, gate, location)),
        _ => Refusal::Busy(exit::would_wait(gate, location)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    /// `tokens` of a run with these options on a segment with the gates named: s, p, l.
    fn wanted(options: &str, gates: &str) -> Result<u32, &'static str> {
        let line = format!("shmsched run S {options} -- true");
        let Verb::Run(run) = Cli::parse_from(line.split_whitespace()).verb else {
            unreachable!("it says run")
        };
        let gate = |letter, name| (!gates.contains(letter)).then_some(NoGate(name));
        tokens(
            &run,
            gate('s', "scheduler"),
            gate('p', "pacer"),
            gate('l', "limiter"),
        )
        .map_err(|lacking| lacking.0)
    }

    #[test]
    fn one_token_where_there_is_nothing_else() {
        assert_eq!(wanted("", "l"), Ok(1));
        for gates in ["s", "p", "sp", "sl", "pl", "spl"] {
            assert_eq!(wanted("", gates), Ok(0), "{gates}");
        }
        for gates in ["l", "sl", "pl", "spl"] {
            assert_eq!(wanted("--tokens 7", gates), Ok(7), "{gates}");
            assert_eq!(wanted("--tokens 0", gates), Ok(0), "{gates}");
        }
    }

    #[test]
    fn a_gate_asked_for_must_be_there() {
        for gates in ["s", "p", "sp"] {
            assert_eq!(wanted("--tokens 7", gates), Err("limiter"), "{gates}");
            assert_eq!(wanted("--tokens 0", gates), Err("limiter"), "{gates}");
        }
        for gates in ["l", "p", "pl"] {
            assert_eq!(wanted("--slots 2", gates), Err("scheduler"), "{gates}");
            assert!(wanted("--slots 1", gates).is_ok(), "{gates}");
        }
        assert_eq!(wanted("--slots 2", "spl"), Ok(0));
        assert_eq!(wanted("", ""), Err("limiter"));
    }
}
