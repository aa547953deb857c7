//! A release that is left to the loop which runs the callback.
//!
//! The slot that a callback gives back goes to the next of its queue, if nobody else waits, and that one runs on the same
//! thread once the callback has returned, never within it. So the release need only be noted. The loop hands the slot on
//! afterwards, or gives it back the usual way if it cannot.
//!
//! One word of the thread says what the callback that runs on it may do and did:
//!
//! | word | what it says | next |
//! |---|---|---|
//! | 0, or parted alone | no callback runs here whose release may be left | open, when one begins |
//! | member | open: it gave nothing back yet | given; parted; 0 |
//! | member, given | a slot was given back, and still counts as held | parted; 0 |
//! | any, parted | something else had its turn on this thread meanwhile, and comes before the next | as before |
//!
//! When the callback returns it becomes what it was outside of it. When the callback gives back a second slot it becomes 0: what
//! was given before is given back the usual way first.

use std::cell::Cell;

/// Added to the member's key, which is the address of something aligned to four bytes or more.
const GIVEN: usize = 1;
const PARTED: usize = 2;

thread_local! {
    static LINK: Cell<usize> = const { Cell::new(0) };
}

/// What a release finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// No callback of this member whose release may be left.
    Closed,
    /// One, and it gave nothing back.
    Open,
    /// One slot is given back already.
    Given,
    /// Also, but something else has its turn before the next.
    Parted,
}

impl Link {
    #[inline(always)]
    fn of(word: usize, member: usize) -> Link {
        match word ^ member {
            0 => Link::Open,
            GIVEN => Link::Given,
            word if word == GIVEN | PARTED => Link::Parted,
            _ => Link::Closed,
        }
    }
}

/// A callback of this member begins. Returns what was outside of it, for [`end`].
#[inline(always)]
pub(crate) fn begin(member: usize) -> usize {
    LINK.replace(member)
}

/// It has returned.
#[inline(always)]
pub(crate) fn end(member: usize, outside: usize) -> Link {
    Link::of(LINK.replace(outside), member)
}

/// What may be done with a release of this member.
#[inline(always)]
pub(crate) fn seen(member: usize) -> Link {
    Link::of(LINK.get(), member)
}

/// The release is left to the loop.
#[inline(always)]
pub(crate) fn give(member: usize) {
    LINK.set(member | GIVEN);
}

/// Something else has its turn on this thread.
pub(crate) fn part() {
    LINK.set(LINK.get() | PARTED);
}

/// No release is left any more.
pub(crate) fn close() {
    LINK.set(0);
}
