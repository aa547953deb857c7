//! The flow: bytes at hand, room for them, tokens, move; again until the end of the input.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::ends::Ends;
use super::watch::Watch;

/// So many chunks in a second, if the rate allows.
const PER_SECOND: u32 = 20;

/// The largest chunk: what a large pipe holds.
const LARGEST: u32 = 1 << 20;

/// The pause if bytes and room are there, but nothing moves: somebody else is quicker at the same descriptor.
const STUCK: Duration = Duration::from_millis(10);

/// Why the flow ends before its input does.
#[derive(Debug)]
pub enum Stop {
    /// This signal asks for it.
    Signal(i32),
    /// Nobody reads the output any more.
    ReaderGone,
    /// The input cannot be read.
    Input(io::Error),
    /// The output cannot be written.
    Output(io::Error),
    /// There will be no tokens.
    Tokens(shmsched::AcquireError),
}

/// Where the tokens come from.
pub trait Budget {
    /// Tokens per second, as of now.
    fn rate(&self) -> u32;

    /// Waits for so many tokens and takes them all, or none: it answers no if meanwhile the rate is so low that this is
    /// more than a chunk.
    fn take(
        &mut self,
        tokens: u32,
        watch: &mut Watch,
        output: BorrowedFd<'_>,
    ) -> Result<bool, Stop>;

    /// Gives tokens back for bytes that did not move.
    fn give_back(&mut self, tokens: u32);
}

/// How much moves at once: little enough for a steady flow, enough to be fast, and never a second's worth.
pub fn chunk(rate: u32) -> u32 {
    (rate / PER_SECOND).clamp(1, LARGEST)
}

/// Moves everything. Tokens are taken only for bytes that are there and have room, and nothing waits with tokens in hand.
pub fn run(ends: &mut Ends, budget: &mut impl Budget, watch: &mut Watch) -> Result<(), Stop> {
    let mut most = 0;
    let mut failures = 0;
    loop {
        let now = chunk(budget.rate());
        if now != most {
            most = now;
            ends.widen(most as usize);
        }
        let Some(ready) = ends.ready(most as usize, watch)? else {
            return Ok(());
        };
        let tokens = ready as u32;
        if !budget.take(tokens, watch, ends.output())? {
            continue;
        }
        let outcome = ends.advance(ready);
        let moved = outcome.as_ref().map_or(0, |moved| *moved);
        if moved < ready {
            budget.give_back(tokens - moved as u32);
        }
        watch.progress.moved(moved);
        outcome?;
        failures = if moved == 0 { failures + 1 } else { 0 };
        if failures > 1 {
            watch.look(None, None, Some(STUCK))?;
        }
    }
}
