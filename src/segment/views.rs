//! The parts of a mapped segment, lent at checked offsets.

use crate::layout::{
    Geometry, HEADER_AT, Header, Map, Member, Place, Record, SCHEDULER_COLD_AT, SCHEDULER_HOT_AT,
    SchedulerCold, SchedulerHot,
};
use crate::protocol::ledger::Books;
use crate::protocol::line::Line;
use crate::protocol::scheduler::Gate;
use crate::sys::mapping::{Lent, Mapping, lend, lend_slice};
use crate::words::U64;
use std::sync::Arc;

/// Everything in a segment that anybody reads or writes. Geometry was checked once; it is never read again.
#[derive(Clone)]
pub(crate) struct Views {
    pub geometry: Geometry,
    pub words: usize,
    pub header: Lent<Header>,
    pub hot: Lent<SchedulerHot>,
    pub cold: Lent<SchedulerCold>,
    bits: Lent<[U64]>,
    pub roster: Lent<[Member]>,
    pub records: Lent<[Record]>,
    places: Lent<[Place]>,
}

impl Views {
    /// `None` if the mapping is too short for the geometry.
    pub fn new(map: Arc<Mapping>, geometry: Geometry) -> Option<Views> {
        let at = Map::of(geometry);
        let members = geometry.members as usize;
        if (map.len() as u64) < at.bytes {
            return None;
        }
        Some(Views {
            geometry,
            words: at.words,
            header: lend(&map, HEADER_AT)?,
            hot: lend(&map, SCHEDULER_HOT_AT)?,
            cold: lend(&map, SCHEDULER_COLD_AT)?,
            bits: lend_slice(&map, at.scheduler_bits, at.words * crate::layout::LANES)?,
            roster: lend_slice(&map, at.roster, members)?,
            records: lend_slice(&map, at.records, geometry.records as usize)?,
            places: lend_slice(&map, at.scheduler_places, members * crate::layout::LANES)?,
        })
    }

    pub fn line(&self) -> Line<'_> {
        Line {
            summary: &self.hot.summary,
            hurry: &self.hot.hurry,
            waiters: &self.hot.waiters,
            ticket: &self.cold.ticket,
            bits: &self.bits,
            words: self.words,
            places: &self.places,
            roster: &self.roster,
        }
    }

    pub fn gate(&self) -> Gate<'_> {
        Gate {
            hot: &self.hot,
            line: self.line(),
        }
    }

    /// The members that were ever used.
    pub fn members(&self) -> &[Member] {
        let high = self.cold.members_high.get().min(self.geometry.members) as usize;
        &self.roster[..high]
    }

    /// The leased records that were ever used.
    pub fn leased(&self) -> &[Record] {
        let (from, to) = (self.geometry.members, self.geometry.records);
        let high = self.cold.records_high.get().clamp(from, to);
        &self.records[from as usize..high as usize]
    }

    pub fn books(&self) -> Books<'_> {
        Books {
            roster: &self.roster,
            records: &self.records,
            members_high: &self.cold.members_high,
            records_high: &self.cold.records_high,
            running: &self.hot.running,
            estate: &self.cold.estate,
        }
    }

    /// Back to how it was at creation, settings kept: only while nobody is attached.
    pub fn reset(&self) {
        let hot = &self.hot;
        for word in [&hot.running, &hot.waiters] {
            word.put(0);
        }
        for word in [&hot.summary, &hot.hurry, &hot.hold_off, &hot.flags] {
            word.put(0);
        }
        self.cold.estate.put(0);
        self.cold.ticket.put(0);
        self.bits.iter().for_each(|word| word.put(0));
        // Whole tables, not up to the marks: after a crash of the machine a disk file may hold older marks than tables.
        for member in self.roster.iter() {
            member.status.put(0);
            member.held_since.put(0);
            let counters = &member.scheduler;
            for set in [
                &counters.deferred,
                &counters.completed,
                &counters.cancelled,
                &counters.lost,
            ] {
                set.iter().for_each(|word| word.put(0));
            }
        }
        for record in self.records.iter() {
            for word in [
                &record.word,
                &record.owner,
                &record.admitted,
                &record.released,
                &record.reclaimed,
            ] {
                word.put(0);
            }
        }
        self.places.iter().for_each(|place| place.ticket.put(0));
        self.cold.members_high.put(0);
        self.cold.records_high.put(self.geometry.members);
    }
}
