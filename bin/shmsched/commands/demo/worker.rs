//! A worker of the demo, and what it and the demo say to each other, a line at a time.
//!
//! Told on standard input: `PRIORITY<tab>PATH<tab>PATH...`, one job. Said on standard output: `start NS` once it has its slot,
//! `end NS BYTES HASH` just before it gives it back; NS is CLOCK_BOOTTIME.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, Read, Write};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use shmsched::{Deadline, Priority, parse_priority};

use crate::cli::SegmentArg;
use crate::exit::{self, Code, Failure, Outcome};

/// The longest a job works, on however slow a disk.
const LONGEST: Duration = Duration::from_secs(1);

/// What a worker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It has its slot.
    Start {
        /// When.
        at: u64,
    },
    /// It is about to give its slot back.
    End {
        /// When.
        at: u64,
        /// How much it has hashed.
        bytes: u64,
    },
}

impl Said {
    pub fn parse(line: &str) -> Option<Said> {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["start", at] => Some(Said::Start {
                at: at.parse().ok()?,
            }),
            ["end", at, bytes, _] => Some(Said::End {
                at: at.parse().ok()?,
                bytes: bytes.parse().ok()?,
            }),
            _ => None,
        }
    }
}

/// The time in nanoseconds, the same in every process.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Works until its standard input ends, as it does when the demo dies.
pub fn worker(segment: &SegmentArg) -> Outcome {
    let location = segment.locate()?;
    let segment = super::super::attach(&location, false, "demo worker", Deadline::Never)?;
    let scheduler = segment
        .scheduler()
        .map_err(|error| exit::lacking(error, &location))?;
    let trouble = |error: io::Error| Failure::new(Code::Io, error);
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line.map_err(trouble)?;
        let mut fields = line.split('\t');
        let priority = fields
            .next()
            .and_then(|text| parse_priority(text).ok())
            .unwrap_or(Priority::Normal);
        let permit = scheduler
            .blocking_acquire_until(1, priority, Deadline::Never)
            .map_err(|error| exit::acquiring(error, &location))?;
        writeln!(out, "start {}", now())
            .and_then(|()| out.flush())
            .map_err(trouble)?;
        let (bytes, hash) = hash(fields);
        // Stamped, and said, while the slot is held: what the stamps show at once was held at once.
        writeln!(out, "end {} {bytes} {hash:016x}", now())
            .and_then(|()| out.flush())
            .map_err(trouble)?;
        drop(permit);
    }
    Ok(0)
}

/// Hashes the contents of the files; what cannot be read counts as empty.
fn hash<'a>(paths: impl Iterator<Item = &'a str>) -> (u64, u64) {
    let begun = Instant::now();
    let (mut hasher, mut bytes) = (DefaultHasher::new(), 0);
    let mut buffer = vec![0; 1 << 18];
    for path in paths {
        let Ok(mut file) = File::open(path) else {
            continue;
        };
        while begun.elapsed() < LONGEST {
            match file.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    hasher.write(&buffer[..count]);
                    bytes += count as u64;
                }
            }
        }
    }
    (bytes, hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_say() {
        assert_eq!(Said::parse("start 12"), Some(Said::Start { at: 12 }));
        assert_eq!(
            Said::parse("end 12 34 00ff"),
            Some(Said::End { at: 12, bytes: 34 })
        );
        for wrong in ["", "start", "start x", "end 1 2", "stop 1"] {
            assert_eq!(Said::parse(wrong), None);
        }
    }

    #[test]
    fn hashing_reads_the_files() {
        // Not this program: in a debug build it is more than can be hashed within LONGEST.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock");
        let (bytes, first) = hash([path].into_iter());
        assert!(bytes > 0);
        assert_eq!(hash([path, "/no/such"].into_iter()), (bytes, first));
        assert_eq!(hash(["/no/such"].into_iter()).0, 0);
    }
}
