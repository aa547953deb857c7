//! One segment, looked at again and again: it may be missing, come, be replaced.

use std::ffi::OsString;

use shmsched::{Location, Observer, OpenError, Snapshot};

use crate::exit::{self, Failure};
use crate::output::metrics::Scrape;

pub struct Watched {
    location: Location,
    label: String,
    trust_foreign: bool,
    observer: Option<Observer>,
}

impl Watched {
    /// Those segments, each once, with labels that tell them apart.
    pub fn all(segments: &[OsString], trust_foreign: bool) -> Result<Vec<Watched>, Failure> {
        let mut all: Vec<Watched> = Vec::new();
        for segment in segments {
            let location =
                Location::resolve(Some(segment)).map_err(|error| exit::locating(&error))?;
            if all
                .iter()
                .any(|other| other.location.path() == location.path())
            {
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
        Ok(all)
    }

    /// What there is now, and why that is nothing.
    pub fn scrape(&mut self) -> (Scrape, Option<Failure>) {
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

    #[test]
    fn each_segment_once() {
        let names = ["/x/a", "/x/a", "/x/b"].map(OsString::from);
        let all = Watched::all(&names, false).unwrap();
        let labels: Vec<&str> = all.iter().map(|segment| segment.label.as_str()).collect();
        assert_eq!(labels, ["/x/a", "/x/b"]);

        use std::os::unix::ffi::OsStringExt;
        let odd = [&b"/x/\xff"[..], b"/x/\xfe"].map(|name| OsString::from_vec(name.to_vec()));
        let all = Watched::all(&odd, false).unwrap();
        assert_ne!(all[0].label, all[1].label);
    }
}
