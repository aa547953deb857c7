//! Spare slots: a thread that gives a slot back and takes one again at once need not tell anybody.
//!
//! A **spare** is a slot that RUNNING and its thread's net still count, and that no permit holds. Its thread takes it
//! and leaves it by plain stores to its own record; whoever needs it *recalls* it.
//!
//! | word | who writes it | what |
//! |---|---|---|
//! | `Record::spare` | the thread that leases the record | a number that grows by one at each taking and leaving; odd: there is a spare of this number |
//! | `Record::claimed` | anybody, by compare-exchange | the number of the spare that was settled last: odd if another thread has it, even once its own has it; and the seal |
//! | `SchedulerHot::spares` | anybody, by compare-exchange | episode and phase: OFF (there are none), ON and LENT (there may be some), RECALL |
//!
//! Who leaves or takes a spare stores the number, then reads the phase (a compiler fence between). Who recalls leaves ON
//! or LENT, passes the heavy fence, then reads the numbers. So either the owner sees the recall, or the recaller the owner's last
//! number: pair `spare`. Where both see each other they settle it by one compare-exchange on `claimed`.
//!
//! Another's claim moves the slot between two records while RUNNING stays: a bracket of the claimer, as an inheritance
//! from the estate is. What the record holds is its net, less one while a claim is not absorbed ([`net_of`]).
//!
//! A step of the owner counts only if it lay in one time of ON or LENT, episode and all; else it settles. Numbers never
//! come back:
//! a record that is leased again goes on from higher ones. So a claimer may sleep as long as it will between reading a
//! number, when it sees that its recall still lasts, and claiming it. Before spares are ON again, another has swept every
//! record, and claimed that number if it was left by then; and a step that began before ON came back settles. Either
//! changes `claimed`, and the late claim fails.

use super::{Word, put_back};
use crate::layout::Record;
use crate::protocol::mutant;
use crate::words::{I32, U32, heavy_fence, light_fence};

/// There are no spares.
pub const OFF: u32 = 0;
/// There may be, while nobody waits.
pub const ON: u32 = 1;
/// Somebody recalls them.
pub const RECALL: u32 = 2;
/// There may be, though somebody waits: the first in line looks by itself in time, and recalls them.
pub const LENT: u32 = 3;
const PHASE: u32 = 3;

/// In `claimed`: the member has ended, nothing of this record can be claimed any more.
const SEAL: u64 = 1 << 63;

/// The phase in a [`SchedulerHot::spares`](crate::layout::SchedulerHot::spares) word.
#[inline(always)]
pub fn phase(spares: u32) -> u32 {
    spares & PHASE
}

/// Whether threads leave and take spares.
#[inline(always)]
fn is_open(spares: u32) -> bool {
    const { assert!(ON & 1 != 0 && LENT & 1 != 0 && (OFF | RECALL) & 1 == 0) };
    spares & 1 != 0
}

/// What a plain step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Done.
    Done,
    /// Nothing was changed: there is no spare to take, or one already, or they are OFF.
    Not,
    /// Somebody recalls, or has claimed it, or something else is against it: [`settle`].
    Contested,
}

/// Takes the own spare, if nothing is against it: `usual` is asked last, with the phase.
#[inline(always)]
pub fn take(record: &Record, spares: &U32, usual: impl Fn(u32) -> bool) -> Step {
    let number = record.spare.peek();
    if number & 1 == 0 {
        return Step::Not;
    }
    let before = spares.get();
    if !is_open(before) {
        return Step::Contested;
    }
    record.spare.poke(number.wrapping_add(1));
    light_fence(); // pair: spare
    // Claimed in an earlier episode, and not noticed until now?
    let known = || mutant("spare-claimed") || record.claimed.peek() != number;
    if !is_still(spares, before) || !usual(phase(before)) || !known() {
        return Step::Contested;
    }
    record.admitted.poke(record.admitted.peek().wrapping_add(1));
    Step::Done
}

/// Leaves a slot as the own spare, if the phase is ON or LENT and nothing is against it: `usual` is asked last, with the
/// phase.
#[inline(always)]
pub fn leave(record: &Record, spares: &U32, usual: impl Fn(u32) -> bool) -> Step {
    let (number, before) = (record.spare.peek(), spares.get());
    if number & 1 != 0 || !is_open(before) {
        return Step::Not;
    }
    record.spare.put(number.wrapping_add(1)); // pair: spare
    light_fence();
    if !is_still(spares, before) || !usual(phase(before)) {
        return Step::Contested;
    }
    count_released(record);
    Step::Done
}

/// Counts a slot as given back: one that was left, in whatever way it went on.
pub fn count_released(record: &Record) {
    record.released.poke(record.released.peek().wrapping_add(1));
}

/// Whether the step lay in one and the same time of ON or LENT. One that reaches from before a recall into the next such time is
/// settled: who sweeps may have passed the record by before its number was stored.
#[inline(always)]
fn is_still(spares: &U32, before: u32) -> bool {
    spares.get() == before // pairs: spare, spare-join
}

/// After [`Step::Contested`]: the slot is in hand, out of the spare, to be given back by [`put_back`] (`true`), or
/// another has it (`false`).
#[cold]
pub fn settle(record: &Record, inert: impl Fn() -> bool) -> bool {
    let next = record.spare.peek().wrapping_add(1) & !1;
    // Left and taken back: an odd number is still there.
    record.spare.poke(next);
    let number = next.wrapping_sub(1);
    let mut seen = record.claimed.get();
    // Changed by one claimer and one who seals at most.
    for _ in 0..4 {
        if mutant("settle-unsettled") {
            return true;
        }
        if seen & !SEAL == number {
            absorb(record, number, inert);
            return false;
        }
        match record.claimed.replace(seen, next | seen & SEAL) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// Takes a claimed spare out of the own net.
fn absorb(record: &Record, number: u64, inert: impl Fn() -> bool) {
    let before = Word(record.word.peek());
    let open = before.next(before.net());
    record.word.poke(open.0); // pair: ledger-open
    light_fence(); // pair: dispose
    let mut net = before.net();
    if !inert() && !mutant("absorb") {
        // It may be sealed in between.
        for claimed in [number, number | SEAL] {
            if record
                .claimed
                .replace(claimed, claimed.wrapping_add(1))
                .is_ok()
            {
                net = net.wrapping_sub(1);
                break;
            }
        }
    }
    record.word.put(open.next(net).0); // pair: ledger-close
}

/// Claims the spare of `from` for `own`, whose bracket claims it before the other lets go.
///
/// After the heavy fence of a recall, and while it lasts: `lasts` is asked once the number is read. What is left after
/// that is no business of this recall's.
fn claim(own: &Record, from: &Record, lasts: impl Fn() -> bool, inert: impl Fn() -> bool) -> bool {
    let seen = from.claimed.get();
    let number = from.spare.get(); // pair: spare
    // As it is while sealed, or claimed and not absorbed.
    if number & 1 == 0 || seen & (SEAL | 1) != 0 || seen >= number || !lasts() {
        return false;
    }
    let before = Word(own.word.peek());
    let open = before.next(before.net().wrapping_add(1));
    if !mutant("ledger-open") {
        own.word.poke(open.0); // pair: ledger-open
    }
    light_fence(); // pair: dispose
    let won = !inert() && from.claimed.replace(seen, number).is_ok();
    let net = if won { open.net() } else { before.net() };
    own.word.put(open.next(net).0); // pair: ledger-close
    won
}

/// Recalls all spares and gives them back, so that RUNNING says what is held. Returns how many.
///
/// Before a caller is refused for lack of room, and after one has joined the line (whose bit in `summary` comes before
/// the phase is read here: pair `spare-join`). Any number of threads at once, any of which may die anywhere: the phase
/// stays RECALL until one has come through.
///
/// `None`: the fence is not to be had, or this attachment is disposed. Nobody leaves a spare any more then, and another
/// recalls those that are left.
///
/// `records` is asked once the fence is passed: every record that could have a spare by then.
pub fn recall<'a>(
    spares: &U32,
    running: &I32,
    own: &Record,
    records: impl FnOnce() -> &'a [Record],
    inert: impl Fn() -> bool,
) -> Option<u32> {
    let mut seen = spares.get(); // pair: spare-join
    // Another may begin, and end, and a third allow them again, but that seldom.
    let mut rounds = 0..4;
    while is_open(seen) {
        rounds.next()?;
        let next = (seen & !PHASE).wrapping_add(PHASE + 1) | RECALL;
        seen = match spares.replace(seen, next) {
            Ok(_) => next,
            Err(now) => now,
        };
        if mutant("recall-half") {
            break;
        }
    }
    if phase(seen) == OFF {
        return Some(0);
    }
    heavy_fence().ok()?; // pair: spare
    let mut found = 0;
    let lasts = || spares.get() == seen;
    for record in records() {
        if claim(own, record, lasts, &inert) {
            put_back(own, running, 1, &inert);
            found += 1;
        }
    }
    // What it could not claim is somebody else's to recall.
    if inert() {
        return None;
    }
    // Of this episode only: a later one has spares of its own.
    let _ = spares.replace(seen, seen & !PHASE | OFF);
    Some(found)
}

/// Lets threads leave spares from now on. The caller has seen that nobody waits; who joins meanwhile is seen by who leaves
/// one, since the phase is read before `summary` there: pair `spare-join`.
pub fn allow(spares: &U32) {
    begin(spares, ON);
}

/// Lets threads leave spares though somebody waits. The caller then looks at the line, and rings its first if that would
/// not look by itself in time; who comes to be the first reads the phase, or is rung by whom left: pair `spare-lend`.
/// Whether it was done.
pub fn lend(spares: &U32) -> bool {
    begin(spares, LENT)
}

fn begin(spares: &U32, phase_then: u32) -> bool {
    let seen = spares.get();
    phase(seen) == OFF && spares.replace(seen, seen | phase_then).is_ok()
}

/// What a record holds: its net, less a spare that another has claimed.
pub fn net_of(word: u64, claimed: u64) -> u32 {
    Word(word).net().wrapping_sub((claimed & 1) as u32)
}

/// Whether a spare lies there. For people, and for room that is counted: it may be gone at once.
pub fn lies_at(record: &Record) -> bool {
    let seen = record.claimed.get();
    let number = record.spare.get();
    number & 1 != 0 && seen & SEAL == 0 && seen < number
}

/// Whether a spare lay in a record that is sealed: its leaving was counted as a release already.
pub fn lay_at(record: &Record) -> bool {
    let number = record.spare.get();
    number & 1 != 0 && record.claimed.get() & !SEAL < number
}

/// Seals the record of an owner that has ended: nothing of it can be claimed any more. Before it is left out of a sum for
/// good. `false` if that could not be done.
pub fn seal(record: &Record, owner: u64) -> bool {
    // Changed by one claimer and the owner at most. What is read before the owner is of that owner's time, and numbers
    // never come back, so the seal never falls on the next one's.
    for _ in 0..4 {
        let seen = record.claimed.get();
        if seen & SEAL != 0
            || record.owner.get() != owner
            || record.claimed.replace(seen, seen | SEAL).is_ok()
        {
            return true;
        }
    }
    false
}

/// Ready for the next lease: sealed, without a spare, and with numbers that were never used. By who cleans up after the
/// owner.
pub fn clear(record: &Record, owner: u64) {
    seal(record, owner);
    let (number, claimed) = (record.spare.get(), record.claimed.get());
    let next = number.max(claimed & !SEAL).wrapping_add(2) & !1 & !SEAL;
    record.spare.put(next);
    record.claimed.put(next | SEAL);
}

/// Of a lease that has just begun.
pub fn unseal(record: &Record) {
    record.claimed.clear_bits(SEAL);
}
