//! An independent recorder: each unit of work stamps its start and its end into a file, and nothing else is believed.

use super::now;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Appends to a log that several processes share.
pub struct Recorder {
    log: File,
    path: PathBuf,
}

impl Recorder {
    pub fn open(path: &Path) -> Recorder {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .expect("the log opens");
        Recorder {
            log,
            path: path.to_owned(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self, what: char, pid: u32, slots: u32) {
        // One write: the kernel keeps lines of several processes apart.
        let line = format!("{what} {} {pid} {slots}\n", now());
        (&self.log)
            .write_all(line.as_bytes())
            .expect("the log is writable");
    }

    /// Call it with the slots already taken.
    pub fn start(&self, slots: u32) {
        self.write('S', std::process::id(), slots);
    }

    /// Call it before the slots go back.
    pub fn end(&self, slots: u32) {
        self.write('E', std::process::id(), slots);
    }

    /// Call it before a SIGKILL: nothing of that process counts from here on, since its slots may be another's as soon
    /// as the kernel lets go of its lock, and nobody can say when that was.
    pub fn dies(&self, pid: u32) {
        self.write('K', pid, 0);
    }
}

/// Most slots in use at once, and how many units were started.
pub fn peak(log: &Path) -> (u32, usize) {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    // Of what happened in the same nanosecond, ends come first.
    let mut events: Vec<(u64, u8, u32, u32)> = text
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [kind, at, pid, slots] = words[..] else {
                panic!("torn line in the log: {line:?}")
            };
            let number = |word: &str| word.parse::<u64>().expect("a number");
            let kind = match kind {
                "K" => 0,
                "E" => 1,
                _ => 2,
            };
            (number(at), kind, number(pid) as u32, number(slots) as u32)
        })
        .collect();
    events.sort_unstable();
    let mut open = std::collections::HashMap::<u32, u32>::new();
    let mut dead = std::collections::HashSet::new();
    let (mut inside, mut most, mut started) = (0u32, 0, 0);
    for (_, kind, pid, slots) in events {
        if dead.contains(&pid) {
            continue;
        }
        let mine = open.entry(pid).or_default();
        match kind {
            0 => {
                inside -= std::mem::take(mine);
                dead.insert(pid);
            }
            1 => {
                *mine -= slots;
                inside -= slots;
            }
            _ => {
                *mine += slots;
                inside += slots;
                started += 1;
                most = most.max(inside);
            }
        }
    }
    (most, started)
}

#[test]
fn the_recorder_sees_an_overlap_and_forgives_a_death() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let text = "S 10 1 1\nS 20 2 2\nE 30 1 1\nK 35 2 0\nS 36 2 2\nS 40 3 1\nE 50 3 1\nS 50 4 1\n";
    std::fs::write(&path, text).unwrap();
    assert_eq!(peak(&path), (3, 4));
}
