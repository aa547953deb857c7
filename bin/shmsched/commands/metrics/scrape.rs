//! One segment, looked at again and again: it may be missing, come, be replaced.

use std::ffi::OsString;

use shmsched::{Location, Observer, OpenError, Pressure, Snapshot, Stalled};

use crate::exit::{self, Failure};
use crate::output::metrics::Scrape;

pub struct Watched {
    location: Location,
    label: String,
    trust_foreign: bool,
    observer: Option<Observer>,
    shown: Shown,
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
                shown: Shown::default(),
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
        let mut snapshot = observer.snapshot()?;
        // The first write of anybody makes another file of it, with the old name and inode: this one shows nothing more.
        if snapshot.segment.filesystem.starts_with("overlay") {
            self.observer = None;
        }
        self.shown.never_back(&mut snapshot);
        Ok(snapshot)
    }
}

/// The pressure totals shown last, of one life of a segment.
///
/// They include a stall that still runs, and its part is dropped if all who waited turn out to be dead. A counter that steps
/// back even a little is taken for one that began anew, and all of it for an increase: it stands still instead.
#[derive(Default)]
struct Shown {
    id: [u8; 16],
    totals: [u64; 6],
}

impl Shown {
    fn never_back(&mut self, snapshot: &mut Snapshot) {
        let segment = &snapshot.segment;
        if self.id != segment.id || !segment.boot_is_current {
            *self = Shown {
                id: segment.id,
                ..Shown::default()
            };
        }
        let gates: [Option<&mut Pressure>; 3] = [
            snapshot.scheduler.as_mut().map(|gate| &mut gate.pressure),
            snapshot.limiter.as_mut().map(|gate| &mut gate.pressure),
            snapshot.pacer.as_mut().map(|gate| &mut gate.pressure),
        ];
        for (pressure, shown) in gates.into_iter().zip(self.totals.chunks_mut(2)) {
            let Some(Pressure { some, full }) = pressure else {
                continue;
            };
            for (Stalled { total_us, .. }, shown) in [some, full].into_iter().zip(shown) {
                *shown = (*shown).max(*total_us);
                *total_us = *shown;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::samples::busy;

    #[test]
    fn totals_stand_still_instead_of_stepping_back() {
        let mut shown = Shown::default();
        let mut total = |us: u64, id: u8| {
            let mut snapshot = busy();
            snapshot.segment.id[0] = id;
            snapshot.scheduler.as_mut().unwrap().pressure.full.total_us = us;
            shown.never_back(&mut snapshot);
            snapshot.scheduler.unwrap().pressure.full.total_us
        };
        assert_eq!([total(5, 1), total(9, 1), total(7, 1)], [5, 9, 9]);
        assert_eq!(total(10, 1), 10);
        // Another life begins anew.
        assert_eq!([total(3, 2), total(2, 2)], [3, 3]);
    }

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
