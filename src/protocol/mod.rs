//! The algorithms, over borrowed records. No unsafe, no clock, no pid, no kernel: time, the owner and who is alive are
//! arguments, so the same code runs in a mapping, in a unit test and under loom.
//!
//! Rules for code here:
//!
//! 1. A value read from a record is input from a stranger: indices are checked, loops are bounded, nothing panics.
//! 2. A store that another process acts on is followed by what makes it visible: `put`, or a read-modify-write.
//! 3. Announce-then-look pairs use the fencing operations of `words` on both sides. Each pair has a name, and both
//!    ends carry it in a comment (`pair: NAME`). The names are listed in docs/design.md.
//! 4. Whatever a dead process may leave half done is either repeated without harm or taken out of account at once by
//!    the one compare-exchange that marks its member GONE.

#![forbid(unsafe_code)]

pub mod bucket;
pub mod ledger;
pub mod limiter;
pub mod line;
pub mod pacer;
pub mod pressure;
pub mod roster;
pub mod scheduler;
pub mod turn;

/// Whether the named step is left out: only in a model run that must then fail (`scripts/loom`).
#[inline(always)]
pub fn mutant(_name: &str) -> bool {
    #[cfg(all(shmsched_loom, feature = "mutants"))]
    {
        crate::words::mutant(_name)
    }
    #[cfg(not(all(shmsched_loom, feature = "mutants")))]
    false
}

#[cfg(all(test, not(shmsched_loom)))]
mod tests;
