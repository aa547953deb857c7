//! How many slots callbacks hold: taken by `acquire_with`, not yet released.
//!
//! The word counts them. While a queue of callbacks drains, each release hands on to the next and counts one down and one up
//! again; so that this needs no locked instruction, a part of the count is *lent* to whoever holds the queue's lock: the
//! highest bit of the word says that [`Lent`] is to be added, which may be below zero. With the bit set anybody may still
//! count up by the word; who counts down must have the lock.

use crate::protocol::mutant;
use crate::words::U32;

const LENT: u32 = 1 << 31;

/// The count, for anybody.
#[derive(Default)]
pub struct Held {
    word: U32,
}

/// The part of it that is under the queue's lock.
#[derive(Default)]
pub struct Lent {
    on: bool,
    more: i32,
}

/// Why one cannot be counted down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// None is held.
    Nothing,
    /// A part is lent: it must be [taken back](Held::take_back) first.
    Lent,
}

impl Held {
    /// One more.
    #[inline]
    pub fn add(&self) {
        self.word.add(1);
    }

    /// One less.
    ///
    /// # Errors
    ///
    /// Nothing was changed.
    #[inline]
    pub fn sub(&self) -> Result<(), Refused> {
        let mut seen = self.word.get();
        loop {
            if seen & LENT != 0 && !mutant("held-unasked") {
                return Err(Refused::Lent);
            }
            if seen & !LENT == 0 {
                return Err(Refused::Nothing);
            }
            let left = seen - 1;
            match self.word.replace(seen, left) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// One more, if a part is lent.
    #[inline]
    pub fn add_lent(&self, lent: &mut Lent) -> bool {
        lent.more += i32::from(lent.on);
        lent.on
    }

    /// One less, by what is lent, which begins now if it has not. `false`: none is held, and nothing was changed.
    #[inline]
    pub fn sub_lent(&self, lent: &mut Lent) -> bool {
        if !lent.on {
            self.word.set_bits(LENT);
            lent.on = true;
        }
        // Others count up only.
        let held = (self.word.get() & !LENT) as i32;
        let any = held.wrapping_add(lent.more) > 0;
        lent.more -= i32::from(any);
        any
    }

    /// Nothing is lent any more.
    pub fn take_back(&self, lent: &mut Lent) {
        if std::mem::take(&mut lent.on) {
            let more = std::mem::take(&mut lent.more);
            let mut seen = self.word.get();
            while let Err(now) = self
                .word
                .replace(seen, (seen & !LENT).wrapping_add_signed(more))
            {
                seen = now;
            }
        }
    }

    /// None is held any more.
    pub fn clear(&self, lent: &mut Lent) {
        *lent = Lent::default();
        self.word.put(0);
    }
}

#[cfg(all(test, not(shmsched_loom)))]
mod tests {
    use super::*;

    #[test]
    fn lent_or_not_the_count_is_the_same() {
        let (held, mut lent) = (Held::default(), Lent::default());
        assert_eq!(held.sub(), Err(Refused::Nothing));
        assert!(!held.sub_lent(&mut lent));
        assert_eq!(held.sub(), Err(Refused::Lent));
        held.add();
        assert!(held.sub_lent(&mut lent));
        assert!(!held.sub_lent(&mut lent), "none is left");
        assert!(held.add_lent(&mut lent));
        held.take_back(&mut lent);
        assert!(!held.add_lent(&mut lent), "nothing is lent any more");
        assert_eq!(held.sub(), Ok(()));
        assert_eq!(held.sub(), Err(Refused::Nothing));
        held.add();
        held.clear(&mut lent);
        assert_eq!(held.sub(), Err(Refused::Nothing));
    }
}
