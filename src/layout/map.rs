//! Where each part of a segment lies, from its geometry.

use super::{
    Geometry, LANES, LimiterCold, LimiterHot, Member, PacerCold, PacerHot, Place, PressureWords,
    Record, SchedulerCold, SchedulerHot,
};

/// Offset of the header.
pub const HEADER_AT: usize = 0;
/// Offset of the Scheduler's hot line.
pub const SCHEDULER_HOT_AT: usize = 0x100;
/// Offset of the Scheduler's cold line.
pub const SCHEDULER_COLD_AT: usize = 0x180;
/// Offset of the Limiter's hot line.
pub const LIMITER_HOT_AT: usize = 0x200;
/// Offset of the Limiter's cold line.
pub const LIMITER_COLD_AT: usize = 0x280;
/// Offset of the Pacer's hot line.
pub const PACER_HOT_AT: usize = 0x300;
/// Offset of the Pacer's cold line.
pub const PACER_COLD_AT: usize = 0x380;
/// Offset of the pressure words of the three gates.
pub const PRESSURE_AT: usize = 0x400;
const TABLES_AT: usize = 0x1000;

/// Offsets of the tables and the length of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// Bit sets of the Scheduler's line: [`LANES`] x [`Map::words`] words.
    pub scheduler_bits: usize,
    /// Bit sets of the Limiter's line, as many.
    pub limiter_bits: usize,
    /// Words of one bit set of these two.
    pub words: usize,
    /// The bit set of the Pacer's line: [`Map::pacer_words`] words.
    pub pacer_bits: usize,
    /// Words of it.
    pub pacer_words: usize,
    /// The roster.
    pub roster: usize,
    /// The records.
    pub records: usize,
    /// Places of the Scheduler's line: member x [`LANES`] + priority index.
    pub scheduler_places: usize,
    /// Places of the Limiter's line, likewise.
    pub limiter_places: usize,
    /// Places of the Pacer's line: one per member, then those that callers take.
    pub pacer_places: usize,
    /// How many of them.
    pub pacer_seats: usize,
    /// Length of the segment.
    pub bytes: u64,
}

const fn up(n: usize) -> usize {
    n.next_multiple_of(128)
}

impl Map {
    /// Length of the largest segment there can be.
    pub const LARGEST: u64 = Map::of(Geometry {
        members: Geometry::MAX_MEMBERS,
        records: Geometry::MAX_RECORDS,
        max_waiting: Geometry::MAX_WAITING,
    })
    .bytes;

    /// The map of a segment of this (checked) geometry. Cannot overflow: the largest geometry makes about 60 MB.
    pub const fn of(geometry: Geometry) -> Map {
        let members = geometry.members as usize;
        let words = members.div_ceil(64);
        let pacer_seats = members + geometry.max_waiting as usize;
        let pacer_words = pacer_seats.div_ceil(64);
        let scheduler_bits = TABLES_AT;
        let limiter_bits = up(scheduler_bits + LANES * words * 8);
        let pacer_bits = up(limiter_bits + LANES * words * 8);
        let roster = up(pacer_bits + pacer_words * 8);
        let records = roster + members * size_of::<Member>();
        let scheduler_places = up(records + geometry.records as usize * size_of::<Record>());
        let limiter_places = up(scheduler_places + members * LANES * size_of::<Place>());
        let pacer_places = up(limiter_places + members * LANES * size_of::<Place>());
        let bytes = (pacer_places + pacer_seats * size_of::<Place>()).next_multiple_of(4096) as u64;
        Map {
            scheduler_bits,
            limiter_bits,
            words,
            pacer_bits,
            pacer_words,
            roster,
            records,
            scheduler_places,
            limiter_places,
            pacer_places,
            pacer_seats,
            bytes,
        }
    }

    /// A number that changes whenever a record changes its size or a part its place, or with the geometry, which a rounded
    /// length alone does not tell (FNV-1a over the sizes).
    pub const fn fingerprint(geometry: Geometry) -> u64 {
        let sizes = [
            size_of::<super::Header>(),
            size_of::<SchedulerHot>(),
            size_of::<SchedulerCold>(),
            size_of::<LimiterHot>(),
            size_of::<LimiterCold>(),
            size_of::<PacerHot>(),
            size_of::<PacerCold>(),
            size_of::<PressureWords>(),
            size_of::<Member>(),
            size_of::<Record>(),
            size_of::<Place>(),
            SCHEDULER_HOT_AT,
            SCHEDULER_COLD_AT,
            LIMITER_HOT_AT,
            PACER_HOT_AT,
            PRESSURE_AT,
            TABLES_AT,
            LANES,
            geometry.members as usize,
            geometry.records as usize,
            geometry.max_waiting as usize,
        ];
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut at = 0;
        while at < sizes.len() {
            hash = (hash ^ sizes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        hash
    }
}

/// Every offset that docs/segment-format.md states; a change here is a new format version.
#[cfg(not(shmsched_loom))]
const _: () = {
    use super::Header;
    use std::mem::offset_of;
    assert!(size_of::<Header>() == 0x100);
    assert!(offset_of!(Header, format) == 8 && offset_of!(Header, byte_order) == 12);
    assert!(offset_of!(Header, layout) == 16 && offset_of!(Header, bytes) == 24);
    assert!(offset_of!(Header, members) == 32 && offset_of!(Header, gates) == 44);
    assert!(offset_of!(Header, id) == 48 && offset_of!(Header, boot) == 64);
    assert!(offset_of!(Header, ready) == 80 && offset_of!(Header, created) == 88);
    assert!(size_of::<SchedulerHot>() == 128 && size_of::<SchedulerCold>() == 128);
    assert!(offset_of!(SchedulerHot, running) == 4 && offset_of!(SchedulerHot, waiters) == 8);
    assert!(offset_of!(SchedulerHot, summary) == 12 && offset_of!(SchedulerHot, hurry) == 16);
    assert!(offset_of!(SchedulerHot, hold_off) == 20 && offset_of!(SchedulerHot, flags) == 24);
    assert!(offset_of!(SchedulerHot, targets) == 28);
    assert!(offset_of!(SchedulerHot, called) == 56 && offset_of!(SchedulerHot, spares) == 60);
    assert!(offset_of!(SchedulerCold, ticket) == 8 && offset_of!(SchedulerCold, configured) == 16);
    assert!(offset_of!(SchedulerCold, members_high) == 44);
    assert!(offset_of!(SchedulerCold, looked) == 52 && offset_of!(SchedulerCold, recalled) == 56);
    assert!(offset_of!(SchedulerCold, lent) == 64);
    assert!(size_of::<LimiterHot>() == 128 && size_of::<LimiterCold>() == 128);
    assert!(offset_of!(LimiterHot, tokens) == 4 && offset_of!(LimiterHot, waiters) == 8);
    assert!(offset_of!(LimiterHot, summary) == 12 && offset_of!(LimiterHot, hurry) == 16);
    assert!(offset_of!(LimiterHot, flags) == 20 && offset_of!(LimiterHot, stamp) == 24);
    assert!(offset_of!(LimiterCold, progress) == 8);
    assert!(size_of::<PacerHot>() == 128 && size_of::<PacerCold>() == 128);
    assert!(offset_of!(PacerHot, next_start) == 8 && offset_of!(PacerHot, waiters) == 16);
    assert!(offset_of!(PacerHot, summary) == 20 && offset_of!(PacerHot, flags) == 28);
    assert!(size_of::<PressureWords>() == 128 && offset_of!(PressureWords, some) == 16);
    assert!(offset_of!(PressureWords, some_averages) == 32);
    assert!(offset_of!(PressureWords, full_averages) == 56);
    assert!(size_of::<Member>() == 1408 && offset_of!(Member, command) == 40);
    assert!(offset_of!(Member, bell) == 128 && offset_of!(Member, scheduler) == 256);
    assert!(offset_of!(Member, limiter) == 480 && offset_of!(Member, forced) == 704);
    assert!(offset_of!(Member, pacer) == 760 && offset_of!(Member, histograms) == 800);
    assert!(offset_of!(Member, longest) == 1312);
    assert!(size_of::<Record>() == 128 && offset_of!(Record, owner) == 8);
    assert!(offset_of!(Record, consumed) == 40 && offset_of!(Record, started) == 48);
    assert!(offset_of!(Record, spare) == 56 && offset_of!(Record, claimed) == 64);
    assert!(size_of::<Place>() == 64 && offset_of!(Place, owner) == 24);
};

#[cfg(all(test, not(shmsched_loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_are_aligned() {
        for members in [1, 63, 64, 65, 1024, Geometry::MAX_MEMBERS] {
            let geometry = Geometry::of(members, 1024);
            let map = Map::of(geometry);
            let m = members as usize;
            assert!(map.scheduler_bits + LANES * map.words * 8 <= map.limiter_bits);
            assert!(map.roster + m * size_of::<Member>() <= map.records);
            assert!(
                map.records + geometry.records as usize * size_of::<Record>()
                    <= map.scheduler_places
            );
            let line = m * LANES * size_of::<Place>();
            assert!(map.scheduler_places + line <= map.limiter_places);
            assert!(map.limiter_places + line <= map.pacer_places);
            assert!(map.pacer_places + map.pacer_seats * size_of::<Place>() <= map.bytes as usize);
            assert!(map.limiter_bits + LANES * map.words * 8 <= map.pacer_bits);
            assert!(map.pacer_bits + map.pacer_words * 8 <= map.roster);
            for at in [
                map.scheduler_bits,
                map.limiter_bits,
                map.pacer_bits,
                map.roster,
                map.records,
                map.scheduler_places,
                map.limiter_places,
                map.pacer_places,
            ] {
                assert_eq!(at % 128, 0);
            }
        }
    }
}
