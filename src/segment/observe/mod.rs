//! Reading a segment without being a member: no slot taken, no byte changed.

mod gates;
mod members;
mod reading;
mod sums;

use super::create::differences;
use super::files::{self, Probe};
use super::open::OpenOptions;
use super::views::Views;
use crate::error::OpenError;
use crate::layout::{Checked, Gate, SchedulerHot};
use crate::location::Location;
use crate::settings::Settings;
use crate::snapshot::{SegmentInfo, Snapshot};
use crate::sys::file::{self, Identity};
use crate::sys::{clock, fork, process, sigbus};
use reading::Reading;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
pub(crate) use sums::held_by;
use sums::records_used;

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
