//! Each gate of a reading: its numbers, its counters, its pressure.

use super::reading::{Person, Reading, person};
use super::sums::{durations, used_records};
use crate::layout::{Gate, LANES, REJECTED, Took};
use crate::protocol::roster::Status;
use crate::segment::create::read_concurrency;
use crate::segment::views::Views;
use crate::snapshot::{LimiterInfo, PacerInfo, Pressure, SchedulerInfo, Stalled};
use std::time::Duration;

/// The counters of a gate's queues.
#[derive(Default)]
struct Counts {
    queued: [u64; LANES],
    deferred: u64,
    completed: u64,
    cancelled: u64,
    lost: u64,
}

impl Reading {
    pub(super) fn scheduler(&self, views: &Views) -> SchedulerInfo {
        let configured = read_concurrency(&views.hot, &views.cold);
        let counts = self.counts(views, Gate::Scheduler);
        let mut info = SchedulerInfo {
            concurrency: configured.max,
            running: 0,
            running_raw: self.running,
            waiters: self.waiters(Gate::Scheduler),
            head_wait_ms: self.head_wait_ms(Gate::Scheduler),
            targets: std::array::from_fn(|lane| u32::try_from(views.hot.targets[lane].get()).ok()),
            configured,
            queued: counts.queued,
            admitted: 0,
            released: 0,
            deferred: counts.deferred,
            completed: counts.completed,
            cancelled: counts.cancelled,
            lost: counts.lost,
            reclaimed: 0,
            pressure: self.pressure(views, Gate::Scheduler),
            waits: durations(views, Took::Slots),
            holds: durations(views, Took::Hold),
        };
        let living = |person: &&Person| !person.dead && !person.gone;
        let held = self
            .people
            .iter()
            .filter(living)
            .fold(0u32, |sum, person| sum.saturating_add(person.held));
        info.running = held.min(self.running.max(0) as u32);
        for record in used_records(views) {
            info.released = info.released.wrapping_add(record.released.get());
            info.admitted = info.admitted.wrapping_add(record.admitted.get());
            info.reclaimed = info.reclaimed.wrapping_add(record.reclaimed.get());
        }
        info
    }

    pub(super) fn limiter(&self, views: &Views) -> LimiterInfo {
        let counts = self.counts(views, Gate::Limiter);
        let bucket = views.limiter().bucket();
        let consumed = used_records(views).map(|record| record.consumed.get());
        let forced = views.members().iter().flat_map(|member| &member.forced);
        LimiterInfo {
            tokens_per_second: bucket.rate(),
            // Of an earlier boot its stamp means nothing: the next to attach fills it.
            tokens: match self.current {
                true => bucket.balance(self.now),
                false => bucket.rate() as i32,
            },
            tokens_raw: bucket.tokens(),
            waiters: self.waiters(Gate::Limiter),
            head_wait_ms: self.head_wait_ms(Gate::Limiter),
            queued: counts.queued,
            // Below zero if more was given back than was ever taken.
            consumed: (consumed.fold(0, u64::wrapping_add) as i64).max(0) as u64,
            deferred: counts.deferred,
            completed: counts.completed,
            cancelled: counts.cancelled,
            lost: counts.lost,
            forced: forced.fold(0, |sum, count| sum.wrapping_add(count.get())),
            pressure: self.pressure(views, Gate::Limiter),
            waits: durations(views, Took::Tokens),
        }
    }

    pub(super) fn pacer(&self, views: &Views) -> PacerInfo {
        let counts = self.counts(views, Gate::Pacer);
        let gate = views.pacer();
        let next_start = match self.current {
            true => gate.next_start(self.now).saturating_sub(self.now),
            false => 0,
        };
        let started = used_records(views).map(|record| record.started.get());
        let rejected = views
            .members()
            .iter()
            .map(|member| member.pacer[REJECTED].get());
        PacerInfo {
            interval: Duration::from_nanos(gate.interval()),
            max_waiting: views.geometry.max_waiting,
            waiting: u32::try_from(counts.queued[0]).unwrap_or(u32::MAX),
            head_wait_ms: self.head_wait_ms(Gate::Pacer),
            next_start_in: Duration::from_nanos(next_start),
            started: started.fold(0, u64::wrapping_add),
            rejected: rejected.fold(0, u64::wrapping_add),
            deferred: counts.deferred,
            completed: counts.completed,
            cancelled: counts.cancelled,
            lost: counts.lost,
            pressure: self.pressure(views, Gate::Pacer),
            waits: durations(views, Took::Start),
        }
    }

    fn head_wait_ms(&self, gate: Gate) -> Option<u64> {
        let head = self.entries[gate as usize].first()?;
        Some(self.since_ms(head.seat.since))
    }

    /// How long anybody waited, what runs now included.
    fn pressure(&self, views: &Views, gate: Gate) -> Pressure {
        if !self.current {
            return Pressure::default();
        }
        let anybody = !self.entries[gate as usize].is_empty();
        let [some, full] = views.pressure(gate).read(self.now, anybody);
        let [some, full] = [some, full].map(|signal| Stalled {
            averages: signal
                .averages
                .map(|share| (share * 10_000.0).round() as u16),
            total_us: signal.total / 1_000,
        });
        Pressure { some, full }
    }

    /// Members with somebody in the line of a gate.
    fn waiters(&self, gate: Gate) -> u32 {
        let mut members: Vec<u32> = self.entries[gate as usize]
            .iter()
            .map(|entry| entry.member)
            .collect();
        members.sort_unstable();
        members.dedup();
        members.len() as u32
    }

    /// The counters of a gate's queues, over all members.
    fn counts(&self, views: &Views, gate: Gate) -> Counts {
        let mut counts = Counts::default();
        for (index, member) in (0u32..).zip(views.members()) {
            let mut open = [0; LANES];
            for (lane, open) in open.iter_mut().enumerate() {
                let Some([deferred, completed, cancelled, lost]) = member.queue(gate, lane) else {
                    continue;
                };
                // Ended before begun: a count may be a little old, but queued is never negative.
                let [completed, cancelled, lost, deferred] =
                    [completed, cancelled, lost, deferred].map(|count| count.get());
                let ended = completed.wrapping_add(cancelled).wrapping_add(lost);
                *open = (deferred.wrapping_sub(ended) as i64).max(0) as u64;
                counts.completed = counts.completed.wrapping_add(completed);
                counts.cancelled = counts.cancelled.wrapping_add(cancelled);
                counts.lost = counts.lost.wrapping_add(lost);
                counts.deferred = counts.deferred.wrapping_add(ended.wrapping_add(*open));
            }
            // What a dead member left open is lost, if what was just read is still its own.
            let status = Status(member.status.get());
            let owner = status.live().or(status.gone());
            let person = person(&self.people, index);
            let died = person.is_some_and(|it| it.dead && Some(it.generation) == owner);
            let dead = died || !self.current;
            for (lane, open) in open.into_iter().enumerate() {
                match dead {
                    true => counts.lost = counts.lost.wrapping_add(open),
                    false => counts.queued[lane] = counts.queued[lane].wrapping_add(open),
                }
            }
        }
        counts
    }
}
