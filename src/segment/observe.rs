//! Reading a segment without being a member: no slot taken, no byte changed.

use super::create::{differences, read_concurrency};
use super::files::{self, Probe};
use super::open::OpenOptions;
use super::views::Views;
use crate::Priority;
use crate::error::OpenError;
use crate::layout::{Checked, LANES, SchedulerHot, gate};
use crate::location::Location;
use crate::protocol::ledger::Word;
use crate::protocol::line::{Doing, Entry};
use crate::protocol::roster::{self, Owner, Status};
use crate::settings::Settings;
use crate::snapshot::{
    Gate, MemberInfo, MemberState, PlaceState, SchedulerInfo, SegmentInfo, Snapshot, WaitingInfo,
};
use crate::sys::file::{self, Identity};
use crate::sys::process::{self, Seen};
use crate::sys::{clock, fork, sigbus};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

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
    let records = views.records[..views.members().len()]
        .iter()
        .chain(views.leased());
    let mine = records.filter(|record| record.owner.get() == owner);
    mine.fold(0u32, |sum, record| {
        sum.wrapping_add(Word(record.word.get()).net())
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
        let seen = Reading::take(&self.views, &mut self.probe, current);
        let snapshot = Snapshot {
            segment: self.segment_info(&checked, current, &seen),
            scheduler: (checked.gates & gate::SCHEDULER != 0).then(|| seen.scheduler(&self.views)),
            limiter: None,
            pacer: None,
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

fn records_used(views: &Views) -> u32 {
    let records = views.records[..views.members().len()]
        .iter()
        .chain(views.leased());
    records.filter(|record| record.owner.get() != 0).count() as u32
}

/// One member as read.
struct Person {
    index: u32,
    generation: u32,
    held: u32,
    dead: bool,
    gone: bool,
}

/// Everything that is read once and shown in several places.
struct Reading {
    people: Vec<Person>,
    entries: Vec<Entry>,
    running: i32,
    now: u64,
    /// Of this boot; of an earlier one everybody is dead.
    current: bool,
}

impl Reading {
    fn take(views: &Views, probe: &mut Probe, current: bool) -> Reading {
        let now = clock::now();
        if !current {
            return Reading {
                people: Vec::new(),
                entries: Vec::new(),
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
                (status.live().is_some() && probe.is_dead(index)).then_some(status)
            })
            .collect();
        let picture = (0..200).find_map(|_| views.books().look());
        let mut people = Vec::new();
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
            // A net below zero is a reading torn by a hand-over between threads.
            let held = if gone { 0 } else { (held as i32).max(0) as u32 };
            people.push(Person {
                index,
                generation,
                held,
                dead: gone || found_dead.get(at).copied().flatten() == Some(status),
                gone,
            });
        }
        let mut entries = views.line().entries();
        entries.retain(|entry| people.iter().any(|p| p.index == entry.member && !p.dead));
        Reading {
            people,
            entries,
            running: views.hot.running.get(),
            now,
            current,
        }
    }

    fn since_ms(&self, stamp: u64) -> u64 {
        self.now.saturating_sub(stamp) / 1_000_000
    }

    fn scheduler(&self, views: &Views) -> SchedulerInfo {
        let configured = read_concurrency(&views.hot, &views.cold);
        let mut info = SchedulerInfo {
            concurrency: configured.max,
            running: 0,
            running_raw: self.running,
            waiters: 0,
            head_wait_ms: self
                .entries
                .first()
                .map(|entry| self.since_ms(entry.seat.since)),
            targets: std::array::from_fn(|lane| u32::try_from(views.hot.targets[lane].get()).ok()),
            configured,
            queued: [0; LANES],
            admitted: 0,
            released: 0,
            deferred: 0,
            completed: 0,
            cancelled: 0,
            lost: 0,
            reclaimed: 0,
        };
        let living = |person: &&Person| !person.dead && !person.gone;
        let held = self
            .people
            .iter()
            .filter(living)
            .fold(0u32, |sum, person| sum.saturating_add(person.held));
        info.running = held.min(self.running.max(0) as u32);
        let mut in_line: Vec<u32> = self.entries.iter().map(|entry| entry.member).collect();
        in_line.sort_unstable();
        in_line.dedup();
        info.waiters = in_line.len() as u32;
        for (index, member) in (0u32..).zip(views.members()) {
            let mut open = [0; LANES];
            for (lane, open) in open.iter_mut().enumerate() {
                let counters = &member.scheduler;
                // Ended before begun: a count may be a little old, but queued is never negative.
                let completed = counters.completed[lane].get();
                let cancelled = counters.cancelled[lane].get();
                let lost = counters.lost[lane].get();
                let deferred = counters.deferred[lane].get();
                let ended = completed.wrapping_add(cancelled).wrapping_add(lost);
                *open = (deferred.wrapping_sub(ended) as i64).max(0) as u64;
                info.completed = info.completed.wrapping_add(completed);
                info.cancelled = info.cancelled.wrapping_add(cancelled);
                info.lost = info.lost.wrapping_add(lost);
                info.deferred = info.deferred.wrapping_add(ended.wrapping_add(*open));
            }
            // What a dead member left open is lost, if what was just read is still its own.
            let status = Status(member.status.get());
            let owner = status.live().or(status.gone());
            let died = self.people.iter().any(|person| {
                person.index == index && person.dead && Some(person.generation) == owner
            });
            let dead = died || !self.current;
            for (lane, open) in open.into_iter().enumerate() {
                match dead {
                    true => info.lost = info.lost.wrapping_add(open),
                    false => info.queued[lane] = info.queued[lane].wrapping_add(open),
                }
            }
        }
        for record in views.records[..views.members().len()]
            .iter()
            .chain(views.leased())
        {
            info.released = info.released.wrapping_add(record.released.get());
            info.admitted = info.admitted.wrapping_add(record.admitted.get());
            info.reclaimed = info.reclaimed.wrapping_add(record.reclaimed.get());
        }
        info
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
        let seen = if same_namespace {
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
        let waiting = (1u32..)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.member == person.index);
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
                .map(|(position, entry)| WaitingInfo {
                    gate: Gate::Scheduler,
                    priority: Priority::from_index(entry.lane),
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
