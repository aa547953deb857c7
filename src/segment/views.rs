//! The parts of a mapped segment, lent at checked offsets.

use crate::layout::{
    Gate, Geometry, HEADER_AT, Header, LANES, LIMITER_COLD_AT, LIMITER_HOT_AT, LimiterCold,
    LimiterHot, Map, Member, PACER_COLD_AT, PACER_HOT_AT, PRESSURE_AT, PacerCold, PacerHot, Place,
    PressureWords, Record, SCHEDULER_COLD_AT, SCHEDULER_HOT_AT, SchedulerCold, SchedulerHot,
};
use crate::protocol::ledger::{Books, spare};
use crate::protocol::line::Line;
use crate::protocol::pressure::Pressure;
use crate::protocol::{limiter, pacer, scheduler};
use crate::sys::mapping::{Lent, Mapping, lend, lend_slice};
use crate::words::{U32, U64};
use std::sync::Arc;

/// Everything in a segment that anybody reads or writes. Geometry was checked once; it is never read again.
#[derive(Clone)]
pub(crate) struct Views {
    pub geometry: Geometry,
    pub header: Lent<Header>,
    /// The Scheduler's lines.
    pub hot: Lent<SchedulerHot>,
    pub cold: Lent<SchedulerCold>,
    pub limiter_hot: Lent<LimiterHot>,
    pub limiter_cold: Lent<LimiterCold>,
    pub pacer_hot: Lent<PacerHot>,
    pub pacer_cold: Lent<PacerCold>,
    pressure: Lent<[PressureWords]>,
    pub roster: Lent<[Member]>,
    pub records: Lent<[Record]>,
    /// By gate.
    lines: [Tables; 3],
}

/// The tables of one gate's line.
#[derive(Clone)]
struct Tables {
    /// Words of one bit set.
    words: usize,
    bits: Lent<[U64]>,
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
        let line = |lanes: usize, words: usize, seats: usize, bits: usize, places: usize| {
            let bits = lend_slice(&map, bits, words * lanes)?;
            let places = lend_slice(&map, places, seats * lanes)?;
            Some(Tables {
                words,
                bits,
                places,
            })
        };
        Some(Views {
            geometry,
            header: lend(&map, HEADER_AT)?,
            hot: lend(&map, SCHEDULER_HOT_AT)?,
            cold: lend(&map, SCHEDULER_COLD_AT)?,
            limiter_hot: lend(&map, LIMITER_HOT_AT)?,
            limiter_cold: lend(&map, LIMITER_COLD_AT)?,
            pacer_hot: lend(&map, PACER_HOT_AT)?,
            pacer_cold: lend(&map, PACER_COLD_AT)?,
            pressure: lend_slice(&map, PRESSURE_AT, Gate::ALL.len())?,
            roster: lend_slice(&map, at.roster, members)?,
            records: lend_slice(&map, at.records, geometry.records as usize)?,
            lines: [
                line(
                    LANES,
                    at.words,
                    members,
                    at.scheduler_bits,
                    at.scheduler_places,
                )?,
                line(LANES, at.words, members, at.limiter_bits, at.limiter_places)?,
                line(
                    1,
                    at.pacer_words,
                    at.pacer_seats,
                    at.pacer_bits,
                    at.pacer_places,
                )?,
            ],
        })
    }

    /// The line of a gate.
    pub fn line(&self, gate: Gate) -> Line<'_> {
        let Tables {
            words,
            bits,
            places,
        } = &self.lines[gate as usize];
        let (summary, hurry, waiters, ticket) = match gate {
            Gate::Scheduler => {
                let hot = &self.hot;
                (&hot.summary, &hot.hurry, &hot.waiters, &self.cold.ticket)
            }
            Gate::Limiter => {
                let (hot, cold) = (&self.limiter_hot, &self.limiter_cold);
                (&hot.summary, &hot.hurry, &hot.waiters, &cold.ticket)
            }
            Gate::Pacer => {
                let (hot, cold) = (&self.pacer_hot, &self.pacer_cold);
                (&hot.summary, &hot.hurry, &hot.waiters, &cold.ticket)
            }
        };
        Line {
            summary,
            hurry,
            waiters,
            ticket,
            lanes: if gate == Gate::Pacer { 1 } else { LANES },
            bits,
            words: *words,
            places,
            by_member: gate != Gate::Pacer,
            roster: &self.roster,
        }
    }

    /// A member's places in the Scheduler's line, by lane.
    pub fn places_of(&self, member: u32) -> Lent<[Place]> {
        let at = member as usize * LANES;
        self.lines[Gate::Scheduler as usize]
            .places
            .part(at..at + LANES)
    }

    /// All of them.
    pub fn lines(&self) -> [Line<'_>; 3] {
        Gate::ALL.map(|gate| self.line(gate))
    }

    pub fn scheduler(&self) -> scheduler::Gate<'_> {
        scheduler::Gate {
            hot: &self.hot,
            cold: &self.cold,
            line: self.line(Gate::Scheduler),
        }
    }

    pub fn limiter(&self) -> limiter::Gate<'_> {
        limiter::Gate {
            hot: &self.limiter_hot,
            cold: &self.limiter_cold,
            line: self.line(Gate::Limiter),
        }
    }

    pub fn pacer(&self) -> pacer::Gate<'_> {
        pacer::Gate {
            hot: &self.pacer_hot,
            line: self.line(Gate::Pacer),
        }
    }

    /// How long anybody waited at a gate.
    pub fn pressure(&self, gate: Gate) -> Pressure<'_> {
        Pressure {
            words: &self.pressure[gate as usize],
        }
    }

    /// Whether it has this gate.
    pub fn has(&self, gate: Gate) -> bool {
        self.header.gates.get() & gate.bit() != 0
    }

    /// The flags of each gate's hot line: the same in all, so that each gate's callers read their own.
    pub fn flags(&self) -> [&U32; 3] {
        [
            &self.hot.flags,
            &self.limiter_hot.flags,
            &self.pacer_hot.flags,
        ]
    }

    /// Sets a flag for all gates; whether somebody had.
    pub fn raise_flag(&self, flag: u32) -> bool {
        let before = self.flags().map(|flags| flags.set_bits(flag));
        before[0] & flag != 0
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

    /// Slots taken, without the spare ones: what others may take is counted as free.
    pub fn running(&self) -> i32 {
        let running = self.hot.running.get();
        if spare::phase(self.hot.spares.get()) == spare::OFF {
            return running;
        }
        let spare = self.leased().iter().filter(|record| spare::lies_at(record));
        running.saturating_sub(spare.count() as i32)
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
    pub fn reset(&self, now: u64) {
        self.hot.running.put(0);
        self.hot.hold_off.put(0);
        self.hot.spares.put(0);
        self.flags().iter().for_each(|flags| flags.put(0));
        for line in self.lines() {
            line.waiters.put(0);
            line.ticket.put(0);
            line.summary.put(0);
            line.hurry.put(0);
            line.bits.iter().for_each(|word| word.put(0));
            for place in line.places {
                place.ticket.put(0);
                place.owner.put(0);
            }
        }
        self.cold.estate.put(0);
        let bucket = self.limiter().bucket();
        if self.has(Gate::Limiter) {
            bucket.fill(bucket.rate(), now);
        }
        let progress = &self.limiter_cold.progress;
        progress.iter().for_each(|word| word.put(0));
        self.pacer_hot.next_start.put(0);
        for gate in self.pressure.iter() {
            let times = [&gate.began, &gate.progress, &gate.some, &gate.full];
            let averages = gate.some_averages.iter().chain(&gate.full_averages);
            times
                .into_iter()
                .chain(averages)
                .for_each(|word| word.put(0));
        }
        // Whole tables, not up to the marks: after a crash of the machine a disk file may hold older marks than tables.
        for member in self.roster.iter() {
            member.status.put(0);
            member.held_since.put(0);
            for counts in member.queues() {
                counts.iter().for_each(|count| count.put(0));
            }
            let rest = member.forced.iter().chain(&member.pacer);
            let rest = rest.chain(&member.longest).chain(&member.sums);
            rest.for_each(|word| word.put(0));
            member.histograms.iter().for_each(|word| word.put(0));
        }
        for record in self.records.iter() {
            for word in [
                &record.word,
                &record.owner,
                &record.admitted,
                &record.released,
                &record.reclaimed,
                &record.consumed,
                &record.started,
                &record.spare,
                &record.claimed,
            ] {
                word.put(0);
            }
        }
        self.cold.members_high.put(0);
        self.cold.records_high.put(self.geometry.members);
    }
}
