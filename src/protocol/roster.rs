//! The roster: who is attached.
//!
//! | status | meaning | who changes it | to |
//! |---|---|---|---|
//! | FREE (g) | nobody; the member's byte may be locked by a claimer or a cleaner | who holds the byte | LIVE (g + 1) |
//! | LIVE (g) | attached; its byte is locked until it dies | itself, or whoever found its byte free | GONE (g) |
//! | GONE (g) | out of every sum, places and marks absent; being cleaned | who holds the byte | FREE (g) |
//!
//! Only bytes of FREE slots are locked by claimers, so LIVE with a free byte stays dead. Everything that refers to a
//! member carries its generation.

use super::ledger::spare;
use super::line::Line;
use crate::layout::{Member, Record};
use crate::words::U64;

/// generation << 32 | state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u64);

const FREE: u32 = 0;
const LIVE: u32 = 1;
const GONE: u32 = 2;

impl Status {
    /// Which attachment of this member slot it is about.
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn with(self, generation: u32, state: u32) -> Status {
        Status(u64::from(generation) << 32 | u64::from(state))
    }

    /// Attached, in this generation.
    #[inline]
    pub fn is_live(self, generation: u32) -> bool {
        self.0 == u64::from(generation) << 32 | u64::from(LIVE)
    }

    /// Attached, whoever it is.
    pub fn live(self) -> Option<u32> {
        (self.0 as u32 == LIVE).then(|| self.generation())
    }

    /// Dead or detaching, not cleaned yet.
    pub fn gone(self) -> Option<u32> {
        (self.0 as u32 == GONE).then(|| self.generation())
    }

    /// Nobody's. Anything but LIVE and GONE counts as free: a scribble must not make a member slot unusable for ever.
    pub fn is_free(self) -> bool {
        !matches!(self.0 as u32, LIVE | GONE)
    }
}

/// The owner word of a record: generation << 32 | member + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Member slot.
    pub member: u32,
    /// Its generation.
    pub generation: u32,
}

impl Owner {
    /// `None` for a free record.
    pub fn read(word: u64) -> Option<Owner> {
        Some(Owner {
            member: (word as u32).checked_sub(1)?,
            generation: (word >> 32) as u32,
        })
    }

    /// As stored.
    pub fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.member.wrapping_add(1))
    }
}

/// Makes a FREE member slot LIVE. The caller holds its byte and has filled in who it is. Returns the generation.
pub fn claim(member: &Member) -> Option<u32> {
    let seen = Status(member.status.get());
    if !seen.is_free() {
        return None;
    }
    let generation = seen.generation().wrapping_add(1).max(1);
    member
        .status
        .replace(seen.0, seen.with(generation, LIVE).0)
        .is_ok()
        .then_some(generation)
}

/// LIVE -> GONE: takes all records of the member out of the sum at once. `false` if somebody else did, or it is
/// another generation by now.
pub fn retire(member: &Member, generation: u32) -> bool {
    let live = Status(0).with(generation, LIVE);
    member
        .status
        .replace(live.0, live.with(generation, GONE).0)
        .is_ok()
}

/// Cleans a GONE member and frees its member slot. The caller holds its byte. Idempotent up to the last step, so that a
/// cleaner may die anywhere.
pub fn clean<'a>(
    index: u32,
    member: &Member,
    generation: u32,
    records: impl Iterator<Item = &'a Record>,
    lines: &[Line<'_>],
) {
    if Status(member.status.get()).gone() != Some(generation) {
        return;
    }
    for line in lines {
        line.absent(index, generation);
    }
    for [deferred, completed, cancelled, lost] in member.queues() {
        let settled = completed.get().wrapping_add(cancelled.get());
        lost.put(deferred.get().wrapping_sub(settled));
    }
    let owner = Owner {
        member: index,
        generation,
    }
    .word();
    for record in records.filter(|record| record.owner.get() == owner) {
        free_record(record, owner);
    }
    let gone = Status(0).with(generation, GONE);
    let _ = member.status.replace(gone.0, gone.with(generation, FREE).0);
}

/// A record is zero before it can be leased; its sequence goes on.
fn free_record(record: &Record, owner: u64) {
    spare::clear(record, owner);
    let word = super::ledger::Word(record.word.get());
    if word.net() != 0 || word.is_odd() {
        let even = if word.is_odd() {
            word.next(0)
        } else {
            word.next(0).next(0)
        };
        let _ = record.word.replace(word.0, even.0);
    }
    let _ = record.owner.replace(owner, 0);
}

/// Leases a free record to `owner`; `None` if all of `records` are taken.
pub fn lease(records: &[Record], owner: Owner) -> Option<usize> {
    records.iter().position(|record| {
        record.owner.peek() == 0 && record.owner.replace(0, owner.word()).is_ok()
    })
}

/// Raises a high-water mark before what lies below it is used, so that no reader stops short of it.
pub fn raise(mark: &crate::words::U32, at_least: u32) {
    let mut seen = mark.get();
    while seen < at_least {
        match mark.replace(seen, at_least) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Stores a command line into its words: UTF-8, cut at a character, zero padded.
pub fn put_command(words: &[U64; 8], command: &str) {
    let mut bytes = [0u8; 64];
    let mut end = command.len().min(bytes.len());
    while !command.is_char_boundary(end) {
        end -= 1;
    }
    bytes[..end].copy_from_slice(&command.as_bytes()[..end]);
    for (word, chunk) in words.iter().zip(bytes.chunks_exact(8)) {
        word.put(u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
    }
}

/// The command line a member left; whatever is not UTF-8 is replaced.
pub fn command(words: &[U64; 8]) -> String {
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word| word.get().to_le_bytes())
        .collect();
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
