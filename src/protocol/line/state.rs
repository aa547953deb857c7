//! What a place's words say: what it does, and when its sleeper looks by itself.

/// What a place is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Waits to be called.
    Asleep,
    /// It is its turn.
    Called,
    /// It was its turn, but it kept silent: skipped until it wakes.
    Lapsed,
}

/// A place's state word: coarse ms << 32 | low 29 bits of the ticket << 3 | drawn << 2 | what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(pub u64);

impl State {
    const TICKET: u64 = (1 << 29) - 1;

    pub(super) fn new(doing: Doing, ticket: u64, drawn: bool, ms: u32) -> State {
        let doing = match doing {
            Doing::Asleep => 0,
            Doing::Called => 1,
            Doing::Lapsed => 2,
        };
        State(u64::from(ms) << 32 | (ticket & Self::TICKET) << 3 | u64::from(drawn) << 2 | doing)
    }

    /// What the place does. An unknown value counts as asleep.
    pub fn doing(self) -> Doing {
        match self.0 & 3 {
            1 => Doing::Called,
            2 => Doing::Lapsed,
            _ => Doing::Asleep,
        }
    }

    /// Whether it was called by exception: by the Scheduler's draw, past its target, or by the Limiter's guard, into debt.
    pub fn drawn(self) -> bool {
        self.0 & 4 != 0
    }

    /// When it was called (coarse ms, wrapping).
    pub fn ms(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn is_for(self, ticket: u64) -> bool {
        self.0 >> 3 & Self::TICKET == ticket & Self::TICKET
    }
}

/// When a sleeper looks after the line by itself, as its place says (`Place::watching`): 0 not until it is rung, 1 at its
/// short timer, else the tick of 100 us, wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise(pub u32);

impl Promise {
    const TICK_NS: u64 = 100_000;
    /// What is further away is left to the short timer. Ticks wrap after a hundred of these.
    const FAR_NS: u64 = 3_600_000_000_000;

    /// To look at `due`, or not at all.
    pub fn new(due: Option<u64>, now: u64) -> Promise {
        Promise(match due {
            None => 0,
            Some(due) if due.saturating_sub(now) > Self::FAR_NS => 1,
            Some(_) if crate::protocol::mutant("promise-time") => 1,
            Some(due) => (due.div_ceil(Self::TICK_NS) as u32).max(2),
        })
    }

    /// Whether it promises less than `other`: a timer less than a time, since that is near.
    pub fn is_later_than(self, other: Promise) -> bool {
        match (self.0, other.0) {
            (_, 0) | (1, 1) => false,
            (0 | 1, _) => true,
            (_, 1) => false,
            (own, other) => (1..u32::MAX / 2).contains(&own.wrapping_sub(other)),
        }
    }
}
