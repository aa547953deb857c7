//! Reading a segment without being a member: no slot taken, no byte changed.

use super::create::{differences, read_concurrency};
use super::files::{self, Probe};
use super::open::OpenOptions;
use super::views::Views;
use crate::Priority;
use crate::error::OpenError;
use crate::layout::{Checked, Gate, LANES, REJECTED, Record, SchedulerHot, Took};
use crate::location::Location;
use crate::protocol::ledger::spare;
use crate::protocol::line::{Doing, Entry};
use crate::protocol::roster::{self, Owner, Status};
use crate::settings::Settings;
use crate::snapshot::{
    Durations, LimiterInfo, MemberInfo, MemberState, PacerInfo, PlaceState, Pressure,
    SchedulerInfo, SegmentInfo, Snapshot, Stalled, WaitingInfo,
};
use crate::sys::file::{self, Identity};
use crate::sys::process::{self, Seen};
use crate::sys::{clock, fork, sigbus};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Looks at a segment from outside: read-only, without a member slot, without changing a byte.
///
/// It shows what holds now: what the dead still seem to hold is left out, looked at or not.
pub struct Observer {
    location: Location,
    file: File,
    identity: Identity,
    checked: Checked,
    views: Views,
    probe: Probe,
    watch: Option<sigbus::Watch>,
    /// Status words of members that were found dead: they stay it.
    dead: Vec<u64>,
    /// A forked child has no mapping.
    epoch: u64,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer")
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

/// Slots held by one generation of a member slot, as far as a plain reading says.
pub(crate) fn held_by(views: &Views, member: u32, generation: u32) -> u32 {
    let owner = Owner { member, generation }.word();
    let mine = used_records(views).filter(|record| record.owner.get() == owner);
    mine.fold(0u32, |sum, record| {
        sum.wrapping_add(spare::net_of(record.word.get(), record.claimed.get()))
    })
}

impl Observer {
    /// Opens a segment for reading.
    ///
    /// # Errors
    ///
    /// As [`Segment::open`](crate::Segment::open).
    pub fn open(location: &Location) -> Result<Observer, OpenError> {
        Observer::open_with(location, &OpenOptions::new())
    }

    /// Opens a segment for reading; `trust_foreign` and `survive_truncation` of the options count.
    ///
    /// # Errors
    ///
    /// As [`Observer::open`].
    pub fn open_with(location: &Location, options: &OpenOptions) -> Result<Observer, OpenError> {
        let file = files::open(location, false, options.trust_foreign)?;
        let identity = file::identity(&file)?;
        let mapped = files::map(location, &file, false, options.survive_truncation)?;
        let probe = Probe::new(location.path(), identity, false);
        Ok(Observer {
            location: location.clone(),
            file,
            identity,
            checked: mapped.checked,
            views: mapped.views,
            probe,
            watch: mapped.watch,
            dead: Vec::new(),
            epoch: fork::epoch(),
        })
    }

    /// Whether the file has lost its name, or another has it now: what is seen here is nobody's future.
    pub fn segment_gone(&self) -> bool {
        let path = self.location.path();
        let same = |found: std::fs::Metadata| {
            found.dev() == self.identity.dev && found.ino() == self.identity.ino
        };
        file::links(&self.file).is_ok_and(|links| links == 0)
            || !std::fs::symlink_metadata(path).is_ok_and(same)
    }

    /// As [`Segment::differs`](crate::Segment::differs), without a member slot.
    pub fn differs(&self, settings: &Settings) -> Vec<String> {
        if self.epoch != fork::epoch() {
            return Vec::new();
        }
        differences(&self.views, &self.checked, settings)
    }

    /// The processes that keep a member's lock alive, with what they run: its own, or those that inherited it (the
    /// command of a killed `shmsched run`). Reads /proc; empty where that does not show other processes.
    pub fn keepers(&self, member: u32) -> Vec<(u32, String)> {
        let byte = files::MEMBERS + u64::from(member);
        let pids = process::holders_of(self.identity.dev, self.identity.ino, byte);
        pids.into_iter()
            .map(|pid| (pid, process::command_of(pid).unwrap_or_default()))
            .collect()
    }

    /// Whether the file was cut short or overwritten under us.
    fn is_lost(&self) -> bool {
        let cut = file::len(&self.file).is_ok_and(|length| length < self.checked.bytes);
        cut || self.watch.as_ref().is_some_and(|watch| watch.is_lost())
    }

    /// All there is to see now.
    ///
    /// # Errors
    ///
    /// [`OpenError::Damaged`] if the file was cut short or overwritten since it was opened.
    pub fn snapshot(&mut self) -> Result<Snapshot, OpenError> {
        self.snapshot_asking(|_| true)
    }

    /// [`Observer::snapshot`] that asks the system only about the members whose slot `about` says: for who looks often and
    /// shows few. Of the others it says what the words and earlier snapshots say, so that one who died and whom neither
    /// those who share the segment nor this has found yet is alive, and holds and waits.
    ///
    /// # Errors
    ///
    /// As [`Observer::snapshot`].
    pub fn snapshot_asking(&mut self, about: impl Fn(u32) -> bool) -> Result<Snapshot, OpenError> {
        if self.epoch != fork::epoch() {
            return Err(OpenError::Io(std::io::Error::other(
                "observer used after fork",
            )));
        }
        if self.is_lost() {
            return Err(OpenError::Damaged("the file was cut short".into()));
        }
        let checked = self
            .views
            .header
            .check(self.checked.bytes)
            .map_err(|_| OpenError::Damaged("its header was overwritten".into()))?;
        if checked.geometry != self.checked.geometry || checked.id != self.checked.id {
            return Err(OpenError::Damaged("its header was overwritten".into()));
        }
        let current = checked.boot == clock::boot_id()?;
        let seen = Reading::take(&self.views, current, &about, |index, status| {
            let at = index as usize;
            if self.dead.len() <= at {
                self.dead.resize(at + 1, 0);
            }
            if self.dead[at] != status {
                let found = about(index) && self.probe.is_dead(index);
                self.dead[at] = if found { status } else { 0 };
            }
            self.dead[at] == status
        });
        let has = |gate: Gate| checked.gates & gate.bit() != 0;
        let snapshot = Snapshot {
            segment: self.segment_info(&checked, current, &seen),
            scheduler: has(Gate::Scheduler).then(|| seen.scheduler(&self.views)),
            limiter: has(Gate::Limiter).then(|| seen.limiter(&self.views)),
            pacer: has(Gate::Pacer).then(|| seen.pacer(&self.views)),
            members: seen.members(&self.views),
        };
        if self.is_lost() {
            return Err(OpenError::Damaged("the file was cut short".into()));
        }
        Ok(snapshot)
    }

    fn segment_info(&self, checked: &Checked, current: bool, seen: &Reading) -> SegmentInfo {
        let flags = self.views.hot.flags.get();
        let filesystem = file::filesystem(&self.file).map_or("unknown", |found| found.name());
        SegmentInfo {
            name: self.location.name(),
            path: self.location.path(),
            id: checked.id,
            format: crate::layout::FORMAT,
            bytes: checked.bytes,
            boot_is_current: current,
            members_used: seen.people.len() as u32,
            members_capacity: checked.geometry.members,
            records_used: if current {
                records_used(&self.views)
            } else {
                0
            },
            records_capacity: checked.geometry.records,
            device: self.identity.dev,
            inode: self.identity.ino,
            mode: self
                .file
                .metadata()
                .map_or(0, |found| found.mode() & 0o7777),
            retired: flags & SchedulerHot::FLAG_RETIRED != 0,
            gone: self.segment_gone(),
            filesystem: filesystem.into(),
        }
    }
}

/// The records that were ever used.
fn used_records(views: &Views) -> impl Iterator<Item = &Record> {
    let common = &views.records[..views.members().len()];
    common.iter().chain(views.leased())
}

fn records_used(views: &Views) -> u32 {
    let records = used_records(views);
    records.filter(|record| record.owner.get() != 0).count() as u32
}

/// How long something took, over all members that ever were.
fn durations(views: &Views, what: Took) -> Durations {
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

/// The counters of a gate's queues.
#[derive(Default)]
struct Counts {
    queued: [u64; LANES],
    deferred: u64,
    completed: u64,
    cancelled: u64,
    lost: u64,
}

/// One member as read.
struct Person {
    index: u32,
    generation: u32,
    held: u32,
    dead: bool,
    gone: bool,
    /// The system is asked about it.
    asked: bool,
}

/// The one with this slot; they are in order of it.
fn person(people: &[Person], index: u32) -> Option<&Person> {
    let at = people.binary_search_by_key(&index, |person| person.index);
    people.get(at.ok()?)
}

/// Everything that is read once and shown in several places.
struct Reading {
    people: Vec<Person>,
    /// Of each gate.
    entries: [Vec<Entry>; 3],
    running: i32,
    now: u64,
    /// Of this boot; of an earlier one everybody is dead.
    current: bool,
}

impl Reading {
    /// `is_dead` is told a slot and its status word.
    fn take(
        views: &Views,
        current: bool,
        about: &impl Fn(u32) -> bool,
        mut is_dead: impl FnMut(u32, u64) -> bool,
    ) -> Reading {
        let now = clock::now();
        if !current {
            return Reading {
                people: Vec::new(),
                entries: Default::default(),
                running: 0,
                now,
                current,
            };
        }
        // Whoever dies in between is dead in the picture or in the next snapshot. Whoever attaches in between was not
        // asked about, and is alive.
        let found_dead: Vec<Option<Status>> = (0u32..)
            .zip(views.members())
            .map(|(index, member)| {
                let status = Status(member.status.get());
                (status.live().is_some() && is_dead(index, status.0)).then_some(status)
            })
            .collect();
        let picture = (0..200).find_map(|_| views.books().look());
        let mut people = Vec::new();
        let mut spare = vec![0u32; views.members().len()];
        if spare::phase(views.hot.spares.get()) != spare::OFF {
            for record in views
                .leased()
                .iter()
                .filter(|record| spare::lies_at(record))
            {
                if let Some(owner) = Owner::read(record.owner.get())
                    && let Some(spare) = spare.get_mut(owner.member as usize)
                {
                    *spare += 1;
                }
            }
        }
        for (index, member) in (0u32..).zip(views.members()) {
            let status = Status(member.status.get());
            let (generation, gone) = match (status.live(), status.gone()) {
                (Some(generation), _) => (generation, false),
                (_, Some(generation)) => (generation, true),
                _ => continue,
            };
            let at = index as usize;
            let held = match &picture {
                Some(picture) if picture.status.get(at) == Some(&status.0) => picture.held[at],
                _ => held_by(views, index, generation),
            };
            let held = held.wrapping_sub(spare.get(at).copied().unwrap_or(0));
            // A net below zero is a reading torn by a hand-over between threads.
            let held = if gone { 0 } else { (held as i32).max(0) as u32 };
            people.push(Person {
                index,
                generation,
                held,
                dead: gone || found_dead.get(at).copied().flatten() == Some(status),
                gone,
                asked: about(index),
            });
        }
        let lives = |entry: &Entry| person(&people, entry.member).is_some_and(|it| !it.dead);
        let entries = views.lines().map(|line| {
            let mut entries = line.entries();
            entries.retain(lives);
            entries
        });
        Reading {
            people,
            entries,
            running: views.running(),
            now,
            current,
        }
    }

    fn since_ms(&self, stamp: u64) -> u64 {
        self.now.saturating_sub(stamp) / 1_000_000
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

    fn scheduler(&self, views: &Views) -> SchedulerInfo {
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

    fn limiter(&self, views: &Views) -> LimiterInfo {
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

    fn pacer(&self, views: &Views) -> PacerInfo {
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

    fn members(&self, views: &Views) -> Vec<MemberInfo> {
        let here = process::me().namespace;
        self.people
            .iter()
            .map(|person| self.member(views, person, here))
            .collect()
    }

    fn member(&self, views: &Views, person: &Person, here: u64) -> MemberInfo {
        let member = &views.roster[person.index as usize];
        let same_namespace = member.namespace.get() == here;
        let pid = member.pid.get();
        let seen = if same_namespace && person.asked {
            process::look(pid, member.start.get())
        } else {
            Seen::Unknown
        };
        let state = match seen {
            _ if person.dead || person.gone => MemberState::Dead,
            Seen::Stopped => MemberState::Stopped,
            Seen::Exiting => MemberState::Exiting,
            Seen::Gone | Seen::Zombie => MemberState::Orphaned,
            _ => MemberState::Alive,
        };
        let waiting = Gate::ALL.into_iter().zip(&self.entries);
        let waiting = waiting.flat_map(|(gate, entries)| {
            let entries = (1u32..).zip(entries);
            let its = entries.filter(|(_, entry)| entry.member == person.index);
            its.map(move |(position, entry)| (gate, position, entry))
        });
        let held_since = member.held_since.get();
        MemberInfo {
            member: person.index,
            generation: person.generation,
            pid,
            same_namespace,
            command: roster::command(&member.command),
            state,
            age_ms: self.since_ms(member.attached.get()),
            held: person.held,
            held_ms: (person.held != 0 && held_since != 0).then(|| self.since_ms(held_since)),
            waiting: waiting
                .map(|(gate, position, entry)| WaitingInfo {
                    gate,
                    priority: match gate {
                        Gate::Pacer => None,
                        _ => Priority::from_index(entry.lane),
                    },
                    amount: entry.seat.amount,
                    since_ms: self.since_ms(entry.seat.since),
                    position,
                    state: match entry.state.doing() {
                        Doing::Asleep => PlaceState::Asleep,
                        Doing::Called => PlaceState::Called,
                        Doing::Lapsed => PlaceState::Lapsed,
                    },
                })
                .collect(),
        }
    }
}
