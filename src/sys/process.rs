//! Who a process is, and how it is doing, from `/proc`.
//!
//! For people and for the checks of `evict`. Whether a member is alive is never decided here: that is a lock.
//!
//! Start times in `/proc` are in the reader's time namespace; here they are always in the initial one. Rounding to ticks
//! (10 ms) may make two views of one start differ by one.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};

use super::mutex::Mutex;
use super::{clock, fork};

/// `PF_EXITING` of the kernel's task flags.
const EXITING: u64 = 0x4;
const COMMAND_MAX: u64 = 4096;

/// A process, also after its pid was given to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The pid, as its own pid namespace has it.
    pub pid: u32,
    /// When it started, in ticks since boot; 0 if unknown.
    pub start: u64,
    /// Its pid namespace (an inode number); 0 if unknown. A pid means something within it only.
    pub namespace: u64,
}

static ME: Mutex<Option<(u64, Identity)>> = Mutex::new(None);

/// This process. Cheap: read once, and once more in each forked child.
pub fn me() -> Identity {
    let epoch = fork::epoch();
    // Never waits: a fork may have copied the mutex while another thread held it.
    if let Some(known) = ME.try_lock().and_then(|known| *known)
        && known.0 == epoch
    {
        return known.1;
    }
    let me = Identity {
        pid: std::process::id(),
        start: Stat::read("/proc/self/stat").map_or(0, |stat| stat.start),
        namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |it| it.ino()),
    };
    if let Some(mut known) = ME.try_lock() {
        *known = Some((epoch, me));
    }
    me
}

/// What [`look`] saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It runs or sleeps.
    Alive {
        /// The kernel's letter: `R`, `S`, `D`, `I` and so on.
        state: char,
    },
    /// It is stopped by a signal or a debugger.
    Stopped,
    /// It is ending, or a core dump of it is being written.
    Exiting,
    /// It has ended and its parent has not asked.
    Zombie,
    /// There is no such process any more.
    Gone,
    /// Not to be found out: no `/proc`, one of another pid namespace, or one that hides others' processes.
    Unknown,
}

/// How the process `pid` of this process's pid namespace that started at `start` is doing. Without a known start
/// (0) any process of that pid counts.
pub fn look(pid: u32, start: u64) -> Seen {
    if !proc_is_ours() {
        return Seen::Unknown;
    }
    let stat = match Stat::read(&format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(_) if is_certainly_gone(pid) => return Seen::Gone,
        Err(_) => return Seen::Unknown,
    };
    if start != 0 && stat.start.abs_diff(start) > 1 {
        return Seen::Gone;
    }
    match stat.seen() {
        // The first thread may end before the others.
        Seen::Zombie | Seen::Exiting if stat.threads > 1 => other_threads(pid),
        Seen::Alive { .. } if is_dumping(pid) => Seen::Exiting,
        seen => seen,
    }
}

/// Whether the process `pid` of this process's pid namespace is still the one that started at `start`, ended and not
/// waited for included. `None`: not to be found out.
pub fn is_still(pid: u32, start: u64) -> Option<bool> {
    if !proc_is_ours() {
        return None;
    }
    match Stat::read(&format!("/proc/{pid}/stat")) {
        Ok(stat) => Some(stat.start.abs_diff(start) <= 1),
        Err(_) if is_certainly_gone(pid) => Some(false),
        Err(_) => None,
    }
}

/// The command line of `pid` with spaces between, or else its short name. Control characters are replaced; at most 4 KiB.
pub fn command_of(pid: u32) -> Option<String> {
    if !proc_is_ours() {
        return None;
    }
    let read = |name: &str| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(format!("/proc/{pid}/{name}"))?
            .take(COMMAND_MAX)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let tidy = |bytes: Vec<u8>| {
        let bytes: Vec<u8> = bytes
            .into_iter()
            .map(|byte| if byte == 0 { b' ' } else { byte })
            .collect();
        let text: String = String::from_utf8_lossy(bytes.trim_ascii())
            .chars()
            .map(|it| {
                if it.is_control() {
                    char::REPLACEMENT_CHARACTER
                } else {
                    it
                }
            })
            .collect();
        Some(text).filter(|text| !text.is_empty())
    };
    read("cmdline")
        .ok()
        .and_then(tidy)
        .or_else(|| read("comm").ok().and_then(tidy))
}

/// The pids of those processes that have a descriptor whose description holds an open-file-description lock on the byte at
/// `byte_offset` of the file `dev`, `ino`. Best effort: processes that may not be inspected are left out, as are
/// descriptions that only a mapping keeps.
pub fn holders_of(dev: u64, ino: u64, byte_offset: u64) -> Vec<u32> {
    if !proc_is_ours() {
        return Vec::new();
    }
    let mut pids: Vec<u32> = numbers("/proc").collect();
    pids.sort_unstable();
    pids.retain(|pid| {
        numbers(&format!("/proc/{pid}/fdinfo")).any(|fd| {
            // The lines first: to stat a descriptor may hang on a dead server.
            fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"))
                .is_ok_and(|text| text.lines().any(|line| is_lock_on(line, ino, byte_offset)))
                && fs::metadata(format!("/proc/{pid}/fd/{fd}"))
                    .map_or(true, |it| (it.dev(), it.ino()) == (dev, ino))
        })
    });
    pids
}

/// Whether a line of fdinfo (`lock: 1: OFDLCK ADVISORY WRITE -1 00:1b:1234 0 EOF`) is such a lock. Its device is
/// not always the one that stat tells, so it is not compared.
fn is_lock_on(line: &str, ino: u64, byte: u64) -> bool {
    let Some(rest) = line.strip_prefix("lock:") else {
        return false;
    };
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let Some(at) = words.iter().position(|word| *word == "OFDLCK") else {
        return false;
    };
    let [_, _, _, _, file, first, last, ..] = words[at..] else {
        return false;
    };
    let within = first.parse().is_ok_and(|first: u64| first <= byte)
        && (last == "EOF" || last.parse().is_ok_and(|last: u64| byte <= last));
    within && file.rsplit(':').next().and_then(|it| it.parse().ok()) == Some(ino)
}

fn numbers(folder: &str) -> impl Iterator<Item = u32> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Whether `/proc` numbers processes as this process does. It may be a mount of an outer pid namespace.
fn proc_is_ours() -> bool {
    fs::read_link("/proc/self")
        .is_ok_and(|own| own.to_str() == Some(&getpid().as_raw_nonzero().to_string()))
}

/// `/proc` may hide the processes of others (hidepid), so no entry there is not enough.
fn is_certainly_gone(pid: u32) -> bool {
    match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        Some(pid) => test_kill_process(pid) == Err(Errno::SRCH),
        None => true,
    }
}

fn is_dumping(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|text| {
        text.lines().any(|line| {
            line.strip_prefix("CoreDumping:")
                .is_some_and(|it| it.trim() == "1")
        })
    })
}

/// What the threads say of a process whose first one has ended.
fn other_threads(pid: u32) -> Seen {
    numbers(&format!("/proc/{pid}/task"))
        .filter_map(|thread| Stat::read(&format!("/proc/{pid}/task/{thread}/stat")).ok())
        .map(|stat| stat.seen())
        .find(|seen| matches!(seen, Seen::Alive { .. } | Seen::Stopped))
        .unwrap_or(Seen::Exiting)
}

/// The fields of a stat file that matter here.
#[derive(Debug, PartialEq)]
struct Stat {
    state: char,
    flags: u64,
    threads: u64,
    start: u64,
}

impl Stat {
    fn read(path: &str) -> io::Result<Self> {
        // One read: the kernel gives the line whole to a buffer that holds it.
        let mut bytes = [0; 2048];
        let length = File::open(path)?.read(&mut bytes)?;
        let mut stat = Self::parse(&bytes[..length]).ok_or(io::ErrorKind::InvalidData)?;
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1) as i64;
        stat.start = stat
            .start
            .saturating_add_signed(-(clock::boottime_offset() / tick));
        Ok(stat)
    }

    /// The name, field 2, is in parentheses and may hold any character, parentheses and spaces too.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().rposition(|byte| *byte == b')')?;
        let fields: Vec<&str> = str::from_utf8(&bytes[end + 1..])
            .ok()?
            .split_ascii_whitespace()
            .collect();
        let number = |field: usize| fields.get(field - 3)?.parse().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            flags: number(9)?,
            threads: number(20)?,
            start: number(22)?,
        })
    }

    fn seen(&self) -> Seen {
        match self.state {
            'Z' | 'X' | 'x' => Seen::Zombie,
            _ if self.flags & EXITING != 0 => Seen::Exiting,
            'T' | 't' => Seen::Stopped,
            state => Seen::Alive { state },
        }
    }
}

#[cfg(test)]
mod tests;
