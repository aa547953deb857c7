//! What is summed over all records, or over all members that ever were.

use crate::layout::{Record, Took};
use crate::protocol::ledger::spare;
use crate::protocol::roster::Owner;
use crate::segment::views::Views;
use crate::snapshot::Durations;

/// Slots held by one generation of a member slot, as far as a plain reading says.
pub(crate) fn held_by(views: &Views, member: u32, generation: u32) -> u32 {
    let owner = Owner { member, generation }.word();
    let mine = used_records(views).filter(|record| record.owner.get() == owner);
    mine.fold(0u32, |sum, record| {
        sum.wrapping_add(spare::net_of(record.word.get(), record.claimed.get()))
    })
}

/// The records that were ever used.
pub(super) fn used_records(views: &Views) -> impl Iterator<Item = &Record> {
    let common = &views.records[..views.members().len()];
    common.iter().chain(views.leased())
}

pub(super) fn records_used(views: &Views) -> u32 {
    let records = used_records(views);
    records.filter(|record| record.owner.get() != 0).count() as u32
}

/// How long something took, over all members that ever were.
pub(super) fn durations(views: &Views, what: Took) -> Durations {
    let mut durations = Durations::default();
    for member in views.members() {
        let from = what as usize * durations.buckets.len();
        let counts = member.histograms[from..].iter();
        for (sum, count) in durations.buckets.iter_mut().zip(counts) {
            *sum = sum.wrapping_add(count.get().into());
        }
        let longest = member.longest[what as usize].get();
        durations.longest_us = durations.longest_us.max(longest);
        let sum = member.sums[what as usize].get();
        durations.sum_us = durations.sum_us.wrapping_add(sum);
    }
    durations
}
