//! The bucket: a balance that grows with time, exact over all processes.
//!
//! | word | who writes | how |
//! |---|---|---|
//! | TOKENS | a debit | one compare-exchange checks and takes, never below -2147483648 |
//! | TOKENS | who claimed a window, or gives tokens back | compare-exchange, up to the capacity and no further |
//! | stamp | who claims the time since it | compare-exchange, then credits what the window earned |
//! | rate | `set` | claims at the old rate first, then stores, then cuts the balance to the new capacity |
//!
//! The stamp says up to when refills were paid. A window is paid by whoever moved the stamp over it, so by one, however
//! many notice it (J6); a death between the claim and the credit loses that one window. What is left of a token stays
//! in the stamp, so no fraction is lost at any rate (I30). A stamp is moved only when a whole token was earned.
//!
//! Nobody needs to be woken by a refill: who waits knows when its tokens will be there.

use crate::layout::LimiterHot;

/// A tick of the stamp, in ns.
pub const TICK_NS: u64 = 100_000;
/// The stamp counts fractions of a token in so many parts: one token per second earns one part per tick.
pub const PARTS: u64 = 10_000;
const PART_BITS: u32 = 14;
const TICKS_PER_SECOND: u64 = 1_000_000_000 / TICK_NS;

/// Up to when refills were paid: ticks << 14 | parts of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Nothing earned at `now` (ns).
    pub fn at(now: u64) -> Stamp {
        Stamp::new(now / TICK_NS, 0)
    }

    fn new(ticks: u64, parts: u64) -> Stamp {
        Stamp(ticks << PART_BITS | parts)
    }

    fn ticks(self) -> u64 {
        self.0 >> PART_BITS
    }

    /// A scribble may say more than a token; it counts as just less than one.
    fn parts(self) -> u64 {
        (self.0 & ((1 << PART_BITS) - 1)).min(PARTS - 1)
    }

    /// What the time up to `now` earned: tokens, and the stamp that says it was paid.
    fn earned(self, now: u64, rate: u32) -> (u64, Stamp) {
        let ticks = now / TICK_NS;
        // Ahead of now, nothing has elapsed.
        let parts = ticks
            .saturating_sub(self.ticks())
            .saturating_mul(u64::from(rate))
            .saturating_add(self.parts());
        (parts / PARTS, Stamp::new(ticks, parts % PARTS))
    }

    /// Over a second ahead of now, which no clock that goes forward makes: a restored snapshot, or a scribbler.
    fn is_absurd(self, now: u64) -> bool {
        self.ticks() > now / TICK_NS + TICKS_PER_SECOND
    }
}

/// The words of one bucket.
#[derive(Clone, Copy)]
pub struct Bucket<'a> {
    /// The Limiter's hot line.
    pub hot: &'a LimiterHot,
}

impl Bucket<'_> {
    /// Gives a bucket its first rate; `false`: it has one. Its words are 0 then: the window since the clock began fills it,
    /// and whoever claims that pays it, so that of many who add a Limiter at once none fills it after another has taken.
    pub fn begin(&self, rate: u32, clock: impl Fn() -> u64) -> bool {
        let first = self.hot.rate.replace(0, rate as i32).is_ok();
        if first && super::mutant("begin-fills") {
            self.hot.stamp.put(Stamp::at(clock()).0);
            self.credit(rate.into());
        } else if first {
            self.refill_by(clock);
        }
        first
    }

    /// A new one, full.
    pub fn fill(&self, rate: u32, now: u64) {
        self.hot.rate.put(rate as i32);
        self.hot.tokens.put(rate as i32);
        self.hot.stamp.put(Stamp::at(now).0);
    }

    /// Tokens per second, and the capacity. Below 1 (only a scribbler makes one) counts as 1.
    #[inline(always)]
    pub fn rate(&self) -> u32 {
        self.hot.rate.peek().max(1) as u32
    }

    /// The balance as it stands.
    #[inline(always)]
    pub fn tokens(&self) -> i32 {
        self.hot.tokens.get()
    }

    /// Whether nothing was earned since the stamp, as far as a clock that may be late says.
    #[inline(always)]
    pub fn is_fresh(&self, coarse_now: u64) -> bool {
        coarse_now / TICK_NS <= self.hot.stamp.peek() >> PART_BITS
    }

    /// [`Bucket::refill_by`] a clock that stands still.
    #[cfg(any(test, shmsched_loom))]
    pub fn refill(&self, now: u64) {
        self.refill_by(|| now);
    }

    /// Pays what was earned since the stamp, if nobody else does. The clock is read after the stamp: with a time from
    /// before, the stamp of somebody who paid in between would look too far ahead, however long this one was stopped.
    pub fn refill_by(&self, clock: impl Fn() -> u64) {
        let seen = Stamp(self.hot.stamp.get());
        let now = clock();
        if seen.is_absurd(now) {
            let _ = self.hot.stamp.replace(seen.0, Stamp::at(now).0);
            return;
        }
        let (tokens, paid) = seen.earned(now, self.rate());
        // If not, its window, or a newer one, is paid by who was faster.
        if tokens != 0 && self.claim(seen, paid) {
            self.credit(tokens);
        }
    }

    /// Moves the stamp, unless somebody did: what was earned since is this caller's to pay.
    fn claim(&self, seen: Stamp, paid: Stamp) -> bool {
        if super::mutant("bucket-claim") {
            self.hot.stamp.put(paid.0);
            return true;
        }
        self.hot.stamp.replace(seen.0, paid.0).is_ok()
    }

    /// Adds tokens, up to the capacity. Never takes any: a balance above it stays.
    pub fn credit(&self, tokens: u64) {
        let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
        let mut seen = self.hot.tokens.get();
        loop {
            let most = i64::from(self.rate()).max(seen.into());
            let sum = i64::from(seen).saturating_add(tokens).min(most) as i32;
            if sum == seen {
                return;
            }
            if super::mutant("bucket-credit") {
                self.hot.tokens.put(sum);
                return;
            }
            match self.hot.tokens.replace(seen, sum) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes `amount` if the balance is `least` or more, and stays representable (I17).
    #[inline(always)]
    pub fn debit(&self, amount: u32, least: i32) -> Result<Debit, Short> {
        let mut seen = self.hot.tokens.peek();
        loop {
            let left = i64::from(seen) - i64::from(amount);
            if seen < least || left < i64::from(i32::MIN) {
                return Err(Short);
            }
            if super::mutant("bucket-debit") {
                self.hot.tokens.put(left as i32);
                return Ok(Debit { into_debt: false });
            }
            match self.hot.tokens.replace(seen, left as i32) {
                Ok(_) => {
                    return Ok(Debit {
                        into_debt: amount != 0 && left < 0,
                    });
                }
                Err(now) => seen = now,
            }
        }
    }

    /// The balance that admits so much: all of it, or a full bucket (I20).
    pub fn enough(&self, amount: u32) -> i32 {
        amount.min(self.rate()) as i32
    }

    /// When the balance will be `tokens`, if nobody takes any; now if it is.
    pub fn due(&self, tokens: i64, now: u64) -> u64 {
        due(
            Stamp(self.hot.stamp.get()),
            self.rate(),
            tokens.saturating_sub(self.tokens().into()),
            now,
        )
    }

    /// The balance with what was earned and not yet paid, for who only looks.
    pub fn balance(&self, now: u64) -> i32 {
        let tokens = i64::from(self.tokens());
        let stamp = Stamp(self.hot.stamp.get());
        let (earned, _) = stamp.earned(now, self.rate());
        let most = i64::from(self.rate()).max(tokens);
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        tokens.saturating_add(earned).min(most) as i32
    }

    /// Changes the rate from now on: what was earned before is paid at the old one, a balance above the new capacity is
    /// cut to it, a debt stays.
    pub fn set_rate(&self, rate: u32, now: u64) {
        self.refill_by(|| now);
        // Less than a token leaves the stamp where it is. That time is the old rate's too.
        for _ in 0..4 {
            let seen = Stamp(self.hot.stamp.get());
            let (tokens, paid) = seen.earned(now, self.rate());
            if seen.ticks() >= paid.ticks() || super::mutant("set-unclaimed") {
                break;
            }
            if self.claim(seen, paid) {
                self.credit(tokens);
            }
        }
        self.hot.rate.put(rate as i32);
        let mut seen = self.hot.tokens.get();
        while seen > rate as i32 {
            if super::mutant("set-cut") {
                self.hot.tokens.put(rate as i32);
                return;
            }
            match self.hot.tokens.replace(seen, rate as i32) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

/// A debit was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debit {
    /// It left the balance below zero.
    pub into_debt: bool,
}

/// The balance did not allow it; nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

/// When `missing` more tokens than the balance of this stamp have been earned.
fn due(stamp: Stamp, rate: u32, missing: i64, now: u64) -> u64 {
    let Ok(missing @ 1..) = u64::try_from(missing) else {
        return now;
    };
    let parts = missing.saturating_mul(PARTS) - stamp.parts();
    // The next refill sets an absurd one to now.
    let from = match stamp.is_absurd(now) {
        true => now / TICK_NS,
        false => stamp.ticks(),
    };
    from.saturating_add(parts.div_ceil(u64::from(rate.max(1))))
        .saturating_mul(TICK_NS)
}
