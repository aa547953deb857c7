//! What a look reads of all records: a picture of them that is consistent, and what the dead left behind.

use super::{Word, spare};
use crate::layout::{Member, Record};
use crate::protocol::mutant;
use crate::protocol::roster::{Owner, Status};
use crate::words::{I32, U32, U64};

/// What a look needs to see.
#[derive(Clone, Copy)]
pub struct Books<'a> {
    /// All member slots.
    pub roster: &'a [Member],
    /// All records: the members' common ones, one per row of `roster`, then those leased to threads.
    pub records: &'a [Record],
    /// One more than the highest member slot ever used.
    pub members_high: &'a U32,
    /// One more than the highest record ever used.
    pub records_high: &'a U32,
    /// The RUNNING word.
    pub running: &'a I32,
    /// The estate.
    pub estate: &'a U64,
}

/// A consistent picture of the books.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Net of each member slot that is LIVE, by index; `held[i]` belongs to the generation in `status[i]`.
    pub held: Vec<u32>,
    /// The roster's status words.
    pub status: Vec<u64>,
    /// Members with a bracket open.
    pub busy: Vec<bool>,
    /// RUNNING.
    pub running: i32,
    /// The estate word.
    pub estate: u64,
}

impl Picture {
    /// Slots held by the living, as far as the ledger says.
    pub fn living(&self) -> u32 {
        self.held
            .iter()
            .fold(0, |sum, held| sum.wrapping_add(*held))
    }

    /// What the dead left behind and nobody adopted yet: never more than that.
    pub fn left_behind(&self) -> u32 {
        let rest = (self.running as u32)
            .wrapping_sub(self.living())
            .wrapping_sub(Word(self.estate).net());
        (rest as i32).max(0) as u32
    }
}

impl<'a> Books<'a> {
    /// The tables up to the marks: member slots, their common records, leased records.
    fn used(&self) -> (&'a [Member], &'a [Record], &'a [Record]) {
        let all = self.roster.len();
        let members = (self.members_high.get() as usize).min(all);
        let (common, leased) = self.records.split_at(all.min(self.records.len()));
        let high = (self.records_high.get() as usize).saturating_sub(all);
        let members = members.min(common.len());
        (
            &self.roster[..members],
            &common[..members],
            &leased[..high.min(leased.len())],
        )
    }

    /// Reads the books twice around RUNNING; `None` if they changed meanwhile. Writes nothing.
    pub fn look(&self) -> Option<Picture> {
        self.read(|_, _| true)
    }

    /// The same for who goes on to adopt. What counts no more is sealed before RUNNING is read: whoever had claimed
    /// a spare of it by then is seen to have one, and nobody does later.
    pub fn look_to_adopt(&self) -> Option<Picture> {
        self.read(|record, owner| mutant("seal") || spare::seal(record, owner))
    }

    fn read(&self, seal: impl Fn(&Record, u64) -> bool) -> Option<Picture> {
        let mut picture = Picture::default();
        let (roster, common, leased) = self.used();
        let records = || common.iter().chain(leased);
        let mut words = Vec::with_capacity(common.len() + leased.len());
        picture
            .status
            .extend(roster.iter().map(|member| member.status.get()));
        picture.held.resize(picture.status.len(), 0);
        picture.busy.resize(picture.status.len(), false);
        for record in records() {
            let owner = record.owner.get();
            let (word, claimed) = match owner {
                0 => (0, 0),
                _ => (record.word.get(), record.claimed.get()), // pair: ledger-close
            };
            words.push((owner, word, claimed));
            let Some(owner) = Owner::read(owner) else {
                continue;
            };
            let at = owner.member as usize;
            if picture
                .status
                .get(at)
                .is_some_and(|status| Status(*status).is_live(owner.generation))
            {
                picture.held[at] = picture.held[at].wrapping_add(spare::net_of(word, claimed));
                picture.busy[at] |= Word(word).is_odd();
            } else if !self
                .roster
                .get(at)
                .is_some_and(|member| Status(member.status.get()).is_live(owner.generation))
                && !seal(record, owner.word())
            {
                // Not of one that attached since its status was read.
                return None;
            }
        }
        picture.running = self.running.get(); // pairs: ledger-open, ledger-close, ledger-high
        picture.estate = self.estate.get();
        if mutant("look-once") {
            return Some(picture);
        }
        for (record, (owner, word, claimed)) in records().zip(&words) {
            let same = || record.word.get() == *word && (record.claimed.get() ^ claimed) << 1 == 0;
            if record.owner.get() != *owner || *owner != 0 && !same() {
                return None; // pair: ledger-open
            }
        }
        // Whoever is in RUNNING had raised the marks over its record before: pair ledger-high.
        let (members, _, rest) = self.used();
        if !mutant("look-low") && (members.len() != roster.len() || rest.len() != leased.len()) {
            return None;
        }
        let same = roster
            .iter()
            .zip(&picture.status)
            .all(|(member, status)| member.status.get() == *status);
        same.then_some(picture)
    }

    /// Adopts what the dead left behind into the estate, exactly once whoever else looks. Returns how much.
    pub fn adopt(&self, picture: &Picture) -> u32 {
        let found = picture.left_behind();
        if found == 0 {
            return 0;
        }
        let seen = Word(picture.estate);
        if mutant("adopt-unsequenced") {
            self.estate.add(u64::from(found));
            return found;
        }
        let next = seen.next(seen.net().wrapping_add(found));
        // The sequence number is what makes it once: any adoption or inheritance since the picture changed it.
        if self.estate.replace(seen.0, next.0).is_ok() {
            found
        } else {
            0
        }
    }
}
