//! Which segments are watched, and what is seen of them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use shmsched::{Location, Observer, OpenError, Snapshot};

use crate::commands::list;
use crate::commands::several;
use crate::exit::{self, Failure};

/// How often the directory is read, and a segment that could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The terminal and the signals have so many files.
const SCREEN: usize = 8;
/// How long a segment of the directory that is gone stays in the list.
const FAREWELL: Duration = Duration::from_secs(5);

/// What is seen of a segment.
#[derive(Clone, Debug)]
pub struct Seen {
    pub name: String,
    pub found: Result<Snapshot, String>,
}

enum Sight {
    Open(Box<Observer>),
    /// Not there, or no longer.
    Gone(Instant),
    Broken(Instant, String),
    /// To be opened at the next look.
    Fresh,
}

/// The segments that were named, or all of the directory.
pub struct Sources {
    named: bool,
    locations: Vec<Location>,
    sights: HashMap<PathBuf, Sight>,
    trust_foreign: bool,
    listed: Option<Instant>,
    /// So many stay open between looks; the others are opened anew each time.
    room: usize,
}

impl Sources {
    /// Opens what is named.
    ///
    /// # Errors
    ///
    /// If one of the named cannot be opened: then it is probably misspelt.
    pub fn new(names: &[OsString], trust_foreign: bool) -> Result<Sources, Failure> {
        let mut sources = Sources {
            named: !names.is_empty(),
            locations: Vec::new(),
            sights: HashMap::new(),
            trust_foreign,
            listed: None,
            room: several::room(several::raise_limit(), SCREEN),
        };
        let mut places = HashSet::new();
        for name in names {
            let location = Location::resolve(Some(name)).map_err(|error| exit::locating(&error))?;
            if !places.insert(several::place(&location)) {
                continue;
            }
            let observer = crate::commands::observe(&location, trust_foreign)?;
            let sight = match sources.locations.len() < sources.room {
                true => Sight::Open(Box::new(observer)),
                false => Sight::Fresh,
            };
            sources.sights.insert(location.path(), sight);
            sources.locations.push(location);
        }
        Ok(sources)
    }

    /// One look at each. The system is asked only about the members that `about` says, by the name of the segment.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn look(&mut self, about: impl Fn(&str, u32) -> bool) -> Result<Vec<Seen>, Failure> {
        if !self.named && self.listed.is_none_or(|at| at.elapsed() >= AGAIN) {
            self.list()?;
        }
        let mut all = Vec::with_capacity(self.locations.len());
        for (at, location) in self.locations.iter().enumerate() {
            let last = self.sights.remove(&location.path());
            let name = location.name();
            let of_it = |member| about(&name, member);
            let (sight, found) = look(location, last, self.trust_foreign, of_it);
            let sight = match sight {
                Sight::Open(_) if at >= self.room => Sight::Fresh,
                sight => sight,
            };
            self.sights.insert(location.path(), sight);
            all.push(Seen { name, found });
        }
        Ok(all)
    }

    /// One of the named segments, if none of them is there any more.
    pub fn all_gone(&self) -> Option<&Location> {
        let gone =
            |location: &Location| matches!(self.sights.get(&location.path()), Some(Sight::Gone(_)));
        let all = self.named && self.locations.iter().all(gone);
        self.locations.first().filter(|_| all)
    }

    /// Reads the directory: the new ones join, those long gone leave.
    fn list(&mut self) -> Result<(), Failure> {
        self.listed = Some(Instant::now());
        let found = list::locations()?;
        self.locations.extend(found);
        self.locations.sort_by_key(Location::path);
        self.locations.dedup_by_key(|location| location.path());
        let sights = &mut self.sights;
        self.locations.retain(|location| {
            let path = location.path();
            let left = match sights.get(&path) {
                Some(Sight::Gone(since)) => since.elapsed() >= FAREWELL && !path.exists(),
                _ => false,
            };
            if left {
                sights.remove(&path);
            }
            !left
        });
        Ok(())
    }
}

/// Looks at a segment, with what was known of it.
fn look(
    location: &Location,
    last: Option<Sight>,
    trust_foreign: bool,
    about: impl Fn(u32) -> bool,
) -> (Sight, Result<Snapshot, String>) {
    let now = Instant::now();
    let since = match &last {
        Some(Sight::Gone(since)) => *since,
        _ => now,
    };
    let opened = match last {
        Some(Sight::Open(observer)) if observer.segment_gone() => Err(OpenError::NotFound),
        Some(Sight::Open(observer)) => Ok(observer),
        Some(Sight::Broken(at, why)) if at.elapsed() < AGAIN => {
            return (Sight::Broken(at, why.clone()), Err(why));
        }
        _ => crate::commands::observer(location, trust_foreign).map(Box::new),
    };
    let seen = opened.and_then(|mut observer| {
        let snapshot = observer.snapshot_asking(about)?;
        Ok((observer, snapshot))
    });
    match seen {
        // The first write of anybody makes another file of it, with the old name and inode: look afresh each time.
        Ok((_, snapshot)) if snapshot.segment.filesystem.starts_with("overlay") => {
            (Sight::Fresh, Ok(snapshot))
        }
        Ok((observer, snapshot)) => (Sight::Open(observer), Ok(snapshot)),
        Err(OpenError::NotFound) => (Sight::Gone(since), Err("removed".into())),
        Err(error) => {
            let why = error.to_string();
            (Sight::Broken(now, why.clone()), Err(why))
        }
    }
}
