//! The ledger: crash-safe counting for two plain stores.
//!
//! Every thread that uses a segment writes one record, and only it does. The record's word says how many slots the
//! thread took minus how many it gave back (`net`, wrapping: only sums over a member count) and is odd while a change
//! is under way, when it always claims the larger of the two nets:
//!
//! | step | acquire of k | release of k |
//! |---|---|---|
//! | 1. plain store | odd, net + k | odd, net |
//! | 2. read-modify-write on RUNNING | compare-exchange + k | subtract k |
//! | 3. release store | even, net + k (net if refused) | even, net - k |
//!
//! So the ledger never says less than its thread holds, and [`Books::look`] can tell what the dead left behind:
//! `RUNNING - sum(net of the living) - estate` is never more than that, and exactly that when no word was odd.
//!
//! The tables are read up to high-water marks, which are raised before what lies below them is used: pair `ledger-high`.
//!
//! Pairs: `ledger-open` (store of step 1 before RUNNING; RUNNING before the second reading of the records) and
//! `ledger-close` (RUNNING before the store of step 3; first reading of the records before RUNNING).

mod books;
pub mod spare;

pub use books::{Books, Picture};

use crate::layout::Record;
use crate::words::{I32, U64, light_fence};

/// A record's word or the estate: a sequence number and a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    /// Slots taken minus slots given back, modulo 2^32.
    #[inline(always)]
    pub fn net(self) -> u32 {
        self.0 as u32
    }

    /// Whether a change is under way.
    #[inline(always)]
    pub fn is_odd(self) -> bool {
        self.0 & (1 << 32) != 0
    }

    /// The next word, with this count.
    #[inline(always)]
    pub fn next(self, net: u32) -> Word {
        Word((self.0 & !0xffff_ffff).wrapping_add(1 << 32) | u64::from(net))
    }
}

/// Why [`take`] took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No room under the bound.
    Full,
    /// This attachment is disposed.
    Inert,
}

/// Takes `k` slots if RUNNING stays within `bound` (at most `i32::MAX`). One compare-exchange checks and takes.
///
/// `inert` is read between the odd store and RUNNING, the near side of the pair `dispose`.
#[inline(always)]
pub fn take(
    record: &Record,
    running: &I32,
    k: u32,
    bound: u32,
    inert: impl Fn() -> bool,
) -> Result<(), Refused> {
    let mut seen = running.peek();
    if !fits(seen, k, bound) {
        return Err(Refused::Full);
    }
    let before = Word(record.word.peek());
    let open = before.next(before.net().wrapping_add(k));
    if !super::mutant("ledger-open") {
        record.word.poke(open.0); // pair: ledger-open
    }
    light_fence(); // pair: dispose
    if inert() {
        record.word.put(open.next(before.net()).0);
        return Err(Refused::Inert);
    }
    loop {
        match running.replace(seen, seen.wrapping_add(k as i32)) {
            Ok(_) => break,
            Err(now) if fits(now, k, bound) => seen = now,
            Err(_) => {
                record.word.put(open.next(before.net()).0);
                return Err(Refused::Full);
            }
        }
    }
    record.word.put(open.next(open.net()).0); // pair: ledger-close
    record
        .admitted
        .poke(record.admitted.peek().wrapping_add(u64::from(k)));
    Ok(())
}

/// Whether `k` more fit. A negative RUNNING (only a scribbler makes one) counts as nothing taken.
#[inline(always)]
pub fn fits(running: i32, k: u32, bound: u32) -> bool {
    i64::from(running.max(0)) + i64::from(k) <= i64::from(bound)
}

/// Gives `k` slots back. `false`, and nothing done, if this attachment is disposed (its slots went back already).
#[inline(always)]
pub fn give(record: &Record, running: &I32, k: u32, inert: impl Fn() -> bool) -> bool {
    let given = put_back(record, running, k, inert);
    if given {
        record
            .released
            .poke(record.released.peek().wrapping_add(u64::from(k)));
    }
    given
}

/// [`give`] for slots that this member never admitted: what [`inherit`] brought. Counted as reclaimed.
pub fn give_inherited(record: &Record, running: &I32, k: u32, inert: impl Fn() -> bool) -> bool {
    let given = put_back(record, running, k, inert);
    if given {
        record
            .reclaimed
            .put(record.reclaimed.peek().wrapping_add(u64::from(k)));
    }
    given
}

/// Counts slots that go from one holder of a member to another: net and RUNNING stay.
pub fn pass_on(record: &Record, k: u32) {
    for count in [&record.admitted, &record.released] {
        count.poke(count.peek().wrapping_add(u64::from(k)));
    }
}

/// Takes `k` slots off the own net and RUNNING, in a bracket. `false`, and nothing done, if this attachment is disposed.
#[inline(always)]
pub fn put_back(record: &Record, running: &I32, k: u32, inert: impl Fn() -> bool) -> bool {
    let before = Word(record.word.peek());
    let open = before.next(before.net());
    record.word.poke(open.0); // pair: ledger-open
    light_fence(); // pair: dispose
    if inert() {
        record.word.put(open.next(before.net()).0);
        return false;
    }
    running.sub(k as i32); // pairs: ledger-open, ledger-close, line-free
    record.word.put(open.next(before.net().wrapping_sub(k)).0); // pair: ledger-close
    true
}

/// Moves the whole estate into the own record, from where it is given back like a permit. Returns how much.
///
/// The record claims it before the estate lets go of it, so that a death in between loses nothing.
pub fn inherit(record: &Record, estate: &U64, inert: impl Fn() -> bool) -> u32 {
    let seen = Word(estate.get());
    let found = seen.net();
    if found == 0 {
        return 0;
    }
    let before = Word(record.word.peek());
    let open = before.next(before.net().wrapping_add(found));
    if !super::mutant("ledger-open") {
        record.word.poke(open.0);
    }
    light_fence(); // pair: dispose
    let taken = !inert() && estate.replace(seen.0, seen.next(0).0).is_ok();
    let net = if taken { open.net() } else { before.net() };
    record.word.put(open.next(net).0);
    if taken { found } else { 0 }
}

/// The far side of the pair `dispose`, after the flag is set and the heavy fence passed: nobody of this member will
/// open a bracket any more, so each word gets even by itself; their sum is what the member holds. They are sealed, so
/// that nobody claims a spare of it meanwhile.
///
/// `None` while one is still odd.
pub fn settled_sum<'a>(records: impl Iterator<Item = &'a Record>) -> Option<u32> {
    let mut sum = 0u32;
    for record in records {
        let word = record.word.get();
        if Word(word).is_odd() {
            return None;
        }
        sum = sum.wrapping_add(spare::net_of(word, record.claimed.get()));
    }
    Some(sum)
}

/// Takes the sum of a disposed member off RUNNING, by a bracket on its common record that ends with the member's sum
/// at zero: `net` of the common record becomes what cancels the others. Those that were left as spares were counted as
/// `released` already.
pub fn give_sum(common: &Record, running: &I32, sum: u32, released: u32) {
    let before = Word(common.word.peek());
    let open = before.next(before.net());
    common.word.poke(open.0);
    light_fence();
    running.sub(sum as i32);
    common.word.put(open.next(before.net().wrapping_sub(sum)).0);
    common
        .released
        .poke(common.released.peek().wrapping_add(u64::from(released)));
}
