//! Segments, looked at again and again.

use std::collections::HashSet;
use std::ffi::OsString;

use shmsched::{Location, Observer, OpenError, Snapshot};

use crate::commands::several;
use crate::exit::{self, Failure};
use crate::output::metrics::Scrape;

/// Segments, in the order in which they were named.
pub struct All {
    segments: Vec<Watched>,
    /// So many stay open; the others are opened anew each time.
    room: usize,
}

impl All {
    /// Those segments, each once however it is spelled, with labels that tell them apart.
    pub fn new(segments: &[OsString], trust_foreign: bool) -> Result<All, Failure> {
        let mut all: Vec<Watched> = Vec::new();
        let given = segments.iter().map(|segment| Some(segment.as_os_str()));
        let default = segments.is_empty().then_some(None);
        let mut places = HashSet::new();
        for segment in given.chain(default) {
            let location = Location::resolve(segment).map_err(|error| exit::locating(&error))?;
            if !places.insert(several::place(&location)) {
                continue;
            }
            // Paths that are not UTF-8 may look the same.
            let mut label = crate::output::escaped(&location.name());
            while all.iter().any(|other| other.label == label) {
                label.push('\'');
            }
            all.push(Watched {
                location,
                label,
                trust_foreign,
                observer: None,
            });
        }
        Ok(All {
            segments: all,
            room: usize::MAX,
        })
    }

    /// Keeps so many open between scrapes.
    pub fn keep(&mut self, room: usize) {
        self.room = room;
    }

    /// What there is now, and why some of it is nothing.
    pub fn scrape(&mut self) -> (Vec<Scrape>, Vec<Failure>) {
        let (mut scrapes, mut failures) = (Vec::new(), Vec::new());
        for (at, segment) in self.segments.iter_mut().enumerate() {
            let (scrape, failure) = segment.scrape();
            failures.extend(failure);
            if at >= self.room {
                segment.observer = None;
            }
            scrapes.push(scrape);
        }
        (scrapes, failures)
    }
}

/// One of them: it may be missing, come, be replaced.
struct Watched {
    location: Location,
    label: String,
    trust_foreign: bool,
    observer: Option<Observer>,
}

impl Watched {
    /// What there is now, and why that is nothing.
    fn scrape(&mut self) -> (Scrape, Option<Failure>) {
        let (snapshot, failure) = match self.look() {
            Ok(snapshot) => (Some(snapshot), None),
            Err(error) => {
                // Opened again next time: by then it may be another file, or be whole.
                self.observer = None;
                (None, Some(exit::opening(error, &self.location)))
            }
        };
        let segment = self.label.clone();
        (Scrape { segment, snapshot }, failure)
    }

    fn look(&mut self) -> Result<Snapshot, OpenError> {
        let stale = |observer: &Observer| observer.segment_gone();
        if self.observer.as_ref().is_some_and(stale) {
            self.observer = None;
        }
        let observer = match &mut self.observer {
            Some(observer) => observer,
            none => none.insert(super::super::observer(&self.location, self.trust_foreign)?),
        };
        let snapshot = observer.snapshot()?;
        // The first write of anybody makes another file of it, with the old name and inode: this one shows nothing more.
        if snapshot.segment.filesystem.starts_with("overlay") {
            self.observer = None;
        }
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn labels(names: &[OsString]) -> Vec<String> {
        let all = All::new(names, false).unwrap();
        all.segments
            .into_iter()
            .map(|segment| segment.label)
            .collect()
    }

    #[test]
    fn each_segment_once() {
        let names = ["/x/a", "/x/a", "/x/b"].map(OsString::from);
        assert_eq!(labels(&names), ["/x/a", "/x/b"]);
        // The same directory, and nothing is there yet.
        let names = ["/tmp/../tmp/none", "/tmp/none", "/tmp/./none"].map(OsString::from);
        assert_eq!(labels(&names), ["/tmp/../tmp/none"]);

        let odd = [&b"/x/\xff"[..], b"/x/\xfe"].map(|name| OsString::from_vec(name.to_vec()));
        let labels = labels(&odd);
        assert_ne!(labels[0], labels[1]);
    }
}
