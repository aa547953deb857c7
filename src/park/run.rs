//! Callbacks in a row that ask for the same.

use super::waiter::{Call, Silence};
use crate::protocol::line::Seat;
use crate::sys::thunk::Thunk;
use crate::sys::thunks::Thunks;
use std::collections::VecDeque;

/// What the calls of a run have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// What the handle adds to the segment's target.
    pub bound: u32,
    /// The handle's own overall limit.
    pub ceiling: u32,
    /// The priority's index.
    pub lane: u32,
    /// Whether anybody may be told of a panic.
    pub silence: Silence,
}

impl About {
    /// What such a call asks for.
    #[inline]
    pub fn seat(self, since: u64) -> Seat {
        Seat {
            amount: 1,
            bound: self.bound,
            ceiling: self.ceiling,
            since,
        }
    }
}

/// So many wait since then.
#[derive(Clone, Copy, Default)]
struct Stamp {
    since: u64,
    of: usize,
}

/// Since when each of a row waits.
#[derive(Default)]
struct Stamps {
    first: Stamp,
    between: VecDeque<Stamp>,
    last: Stamp,
}

impl Stamps {
    #[inline]
    fn push(&mut self, since: u64) {
        if self.last.since != since {
            self.push_another(since);
        }
        self.last.of += 1;
    }

    #[inline(never)]
    fn push_another(&mut self, since: u64) {
        let last = std::mem::replace(&mut self.last, Stamp { since, of: 0 });
        if last.of != 0 {
            self.between.push_back(last);
        }
    }

    /// Of the first; of a row of none, anything.
    #[inline(always)]
    fn front(&mut self) -> u64 {
        if self.first.of == 0 {
            self.next();
        }
        self.first.since
    }

    /// Of the first two.
    #[inline(always)]
    fn first_two(&mut self) -> (u64, u64) {
        let first = self.front();
        let second = match self.first.of {
            1 => self.between.front().unwrap_or(&self.last).since,
            _ => first,
        };
        (first, second)
    }

    #[inline(never)]
    fn next(&mut self) {
        let last = &mut self.last;
        self.first = self.between.pop_front().unwrap_or_else(|| {
            let of = std::mem::take(&mut last.of);
            Stamp { of, ..*last }
        });
    }

    /// Of the first, which goes.
    #[inline]
    fn pop(&mut self) -> u64 {
        let since = self.front();
        self.first.of -= 1;
        since
    }
}

/// Calls in order.
pub struct Run {
    /// What they have in common.
    pub about: About,
    calls: Thunks,
    stamps: Stamps,
}

impl Run {
    /// Nobody yet.
    pub fn new(about: About) -> Run {
        Run {
            about,
            calls: Thunks::new(),
            stamps: Stamps::default(),
        }
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// At the end. The thunk is empty afterwards.
    #[inline(always)]
    pub fn push(&mut self, thunk: &mut Thunk, since: u64) {
        self.calls.push(thunk);
        self.stamps.push(since);
    }

    /// Since when the first waits, if there is one.
    #[inline]
    pub fn since(&mut self) -> u64 {
        self.stamps.front()
    }

    /// Since when the first two wait, if there are two.
    #[inline(always)]
    pub fn first_two(&mut self) -> (u64, u64) {
        self.stamps.first_two()
    }

    /// The first goes, if there are two: `to` takes over what is called. Since when it waited, and the one behind it.
    #[inline(always)]
    pub fn pop_before_another(&mut self, to: &mut Thunk) -> Option<(u64, u64)> {
        let moments = self.stamps.first_two();
        self.stamps.first.of -= 1;
        self.calls.pop(to).then_some(moments)
    }

    /// The first goes, if there is one: `to` takes over what is called.
    #[inline(always)]
    pub fn pop(&mut self, to: &mut Thunk) -> bool {
        let any = self.calls.pop(to);
        if any {
            self.stamps.pop();
        }
        any
    }

    /// The first, with all that is to be known of it.
    pub fn take(&mut self) -> Option<Call> {
        let (since, about) = (self.since(), self.about);
        let mut thunk = Thunk::empty();
        self.pop(&mut thunk).then_some(Call {
            thunk,
            since,
            about,
        })
    }

    /// Gives up the room that is not used, if it is much.
    pub fn trim(&mut self) {
        self.calls.trim();
        if self.stamps.between.is_empty() {
            self.stamps.between = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_keeps_its_moment() {
        let about = About {
            bound: 1,
            ceiling: 2,
            lane: 3,
            silence: Silence::Now,
        };
        let mut run = Run::new(about);
        for round in 0..3 {
            let moments = [5, 5, 5, 7, 9, 9, 9, 9, 5, 5].map(|n| n + round);
            moments
                .iter()
                .for_each(|since| run.push(&mut Thunk::new(|| {}), *since));
            for (at, since) in moments.into_iter().enumerate() {
                assert_eq!(run.len(), moments.len() - at);
                assert_eq!(run.since(), since);
                if let Some(next) = moments.get(at + 1) {
                    assert_eq!(run.first_two(), (since, *next));
                }
                assert_eq!(run.take().unwrap().since, since);
            }
            assert!(run.take().is_none());
            run.trim();
        }
    }
}
