//! Where a test plays: a directory on tmpfs, segments in it, and the machine's attention.

use super::{Words, within};
use shmsched::{Location, Observer, Priority, Segment, Settings};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

static MACHINE: RwLock<()> = RwLock::new(());

enum Turn {
    #[allow(dead_code)]
    Beside(RwLockReadGuard<'static, ()>),
    #[allow(dead_code)]
    Alone(RwLockWriteGuard<'static, ()>),
}

/// A temporary directory on tmpfs, gone when it is dropped.
pub struct Scene {
    directory: tempfile::TempDir,
    _turn: Turn,
}

impl Scene {
    /// Beside other tests.
    pub fn new() -> Scene {
        Scene::with(Turn::Beside(
            MACHINE.read().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    /// With no other test of this binary running: for what is measured.
    pub fn alone() -> Scene {
        Scene::with(Turn::Alone(
            MACHINE.write().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    fn with(turn: Turn) -> Scene {
        let tmpfs = Path::new("/dev/shm");
        let parent = if tmpfs.is_dir() {
            tmpfs.to_owned()
        } else {
            std::env::temp_dir()
        };
        let directory = tempfile::Builder::new()
            .prefix("shmsched-test-")
            .tempdir_in(parent)
            .expect("a temporary directory");
        Scene {
            directory,
            _turn: turn,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A fresh segment with so many slots.
    pub fn segment(&self, slots: u32) -> Location {
        self.segment_of("S", &Settings::new().concurrency(slots).members(256))
    }

    /// A fresh segment of any settings.
    pub fn segment_of(&self, name: &str, settings: &Settings) -> Location {
        let location = Location::File(self.path(name));
        Segment::make(&location, settings).expect("a fresh segment");
        location
    }
}

/// Checks that a segment comes to rest within two seconds: nothing runs, nothing is left behind, nobody waits, no
/// member holds anything, and exactly the full budget can be taken at once.
#[track_caller]
pub fn quiet(location: &Location, budget: u32) {
    quiet_within(Duration::from_secs(2), location, budget);
}

/// [`quiet`] with another patience.
#[track_caller]
pub fn quiet_within(time: Duration, location: &Location, budget: u32) {
    let words = Words::of(location);
    within(time, || {
        let segment = Segment::open(location).map_err(|error| error.to_string())?;
        let scheduler = segment.scheduler().map_err(|error| error.to_string())?;
        let snapshot = Observer::open(location)
            .and_then(|mut observer| observer.snapshot())
            .map_err(|error| error.to_string())?;
        let seen = snapshot.scheduler.expect("a scheduler");
        let holders = snapshot.members.iter().filter(|m| m.held != 0).count();
        let waits = snapshot
            .members
            .iter()
            .map(|m| m.waiting.len())
            .sum::<usize>();
        let state = (
            seen.running,
            seen.running_raw,
            seen.waiters,
            words.waiters(),
        );
        if state != (0, 0, 0, 0) || holders + waits != 0 || words.estate() != 0 {
            return Err(format!(
                "running, raw, waiters, WAITERS: {state:?}; {holders} hold, {waits} wait, estate {}, summary {:#b}",
                words.estate(),
                words.summary()
            ));
        }
        let balance = seen.completed + seen.cancelled + seen.lost + seen.queued.iter().sum::<u64>();
        if seen.deferred != balance {
            return Err(format!(
                "deferred {} but {balance} ended or queued",
                seen.deferred
            ));
        }
        let all = scheduler
            .try_acquire_many(budget, Priority::Highest)
            .map_err(|error| format!("the full budget of {budget}: {error}"))?;
        if scheduler.try_acquire(Priority::Highest).is_ok() {
            return Err(format!("more than the budget of {budget} was granted"));
        }
        drop(all);
        Ok(())
    });
}
