//! The program under test as a shell would use it: commands with what they said, in process groups that no test leaves
//! behind.

use crate::support::{LONG, Scene, median, quiet_within, until, within};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use shmsched::Location;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_shmsched");

/// What takes a moment is over by then, also where each process on its way stands still for a second.
pub const SOON: Duration = Duration::from_secs(10);

/// Most of these times are of somebody who looked every 100 ms: who is not among the first in line dozes for 3.5 s. One of
/// them may be long because a process stood still.
#[track_caller]
pub fn noticed_by_a_watcher(times: &[Duration]) {
    assert!(median(times) < Duration::from_secs(3), "{times:?}");
}

/// `shmsched ARGUMENT...`
macro_rules! shmsched {
    ($($argument:expr),* $(,)?) => {{
        let mut command = crate::shell::clean(crate::shell::PROGRAM);
        $(command.arg($argument);)*
        command
    }};
}
pub(crate) use shmsched;

/// A command that inherits none of our variables, and no ignored signals: a shell that starts tests with `&` ignores
/// SIGINT for them.
pub fn clean(program: impl AsRef<OsStr>) -> Command {
    const ENDING: u64 = 1 << 14 | 1 << 2 | 1 << 1 | 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    let mut command = match ignored.unwrap_or(0) & ENDING {
        0 => Command::new(program),
        _ => {
            let mut command = Command::new("env");
            command
                .arg("--default-signal=HUP,INT,QUIT,TERM")
                .arg(program);
            command
        }
    };
    for name in ["SHMSCHED_SEGMENT", "SHMSCHED_DIR", "SHMSCHED_PERMIT"] {
        command.env_remove(name);
    }
    command
}

/// `sh -c SCRIPT`, with the program as `$B`, under another program if `wrapper` is not empty.
pub fn script(wrapper: &[&str], script: &str) -> Command {
    let words: Vec<&str> = wrapper
        .iter()
        .copied()
        .chain(["sh", "-c", script])
        .collect();
    let mut command = clean(words[0]);
    command.args(&words[1..]).env("B", PROGRAM);
    command
}

/// A command that ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

impl Ended {
    /// It ended with this code.
    #[track_caller]
    pub fn is(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// It ended with this code, nothing on standard output and one line of ours on standard error.
    #[track_caller]
    pub fn says(self, code: i32, part: &str) -> Ended {
        let ended = self.is(code);
        let one = ended.err.starts_with("shmsched: ") && ended.err.trim_end().lines().count() == 1;
        assert!(one && ended.out.is_empty(), "not one line: {ended:#?}");
        assert!(ended.err.contains(part), "no {part:?} in {ended:#?}");
        ended
    }
}

/// Starting commands.
pub trait Play {
    fn started(self) -> Started;
    /// Runs it to its end.
    fn ended(self) -> Ended;
}

impl Play for Command {
    #[track_caller]
    fn started(mut self) -> Started {
        let (out, err) = (scratch(), scratch());
        let begun = Instant::now();
        let process = self
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("a descriptor"))
            .stderr(err.try_clone().expect("a descriptor"))
            .process_group(0)
            .spawn()
            .unwrap_or_else(|why| panic!("{self:?}: {why}"));
        Started {
            process,
            out,
            err,
            begun,
            end: None,
        }
    }

    #[track_caller]
    fn ended(self) -> Ended {
        self.started().wait()
    }
}

/// A file without a name: unlike a pipe it does not care who else still has it open.
fn scratch() -> File {
    tempfile::tempfile().expect("a temporary file")
}

/// What was written to it so far. The offset is the writers', so it is left alone.
fn text(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("its bytes");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A command in a process group of its own, which is killed when this is dropped.
pub struct Started {
    process: Child,
    out: File,
    err: File,
    begun: Instant,
    end: Option<(ExitStatus, Duration)>,
}

impl Started {
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    fn handle(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// To it, and not to what it started.
    pub fn signal(&self, signal: Signal) {
        if self.end.is_none() {
            let _ = kill_process(self.handle(), signal);
        }
    }

    /// SIGKILL to it alone, and reaps it.
    pub fn kill_alone(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// SIGKILL to its whole process group, and reaps it.
    pub fn kill_group(&mut self) {
        let _ = kill_process_group(self.handle(), Signal::KILL);
        self.wait();
    }

    pub fn has_ended(&mut self) -> bool {
        if self.end.is_none()
            && let Some(status) = self.process.try_wait().expect("waiting works")
        {
            self.end = Some((status, self.begun.elapsed()));
        }
        self.end.is_some()
    }

    /// It is still there after that time.
    #[track_caller]
    pub fn stays_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            assert!(!self.has_ended(), "it ended: {:#?}", self.wait());
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[track_caller]
    pub fn wait(&mut self) -> Ended {
        self.wait_for(LONG)
    }

    #[track_caller]
    pub fn wait_for(&mut self, time: Duration) -> Ended {
        let until = Instant::now() + time;
        while !self.has_ended() {
            if Instant::now() >= until {
                panic!(
                    "no end within {time:?}: {}{}",
                    text(&self.out),
                    text(&self.err)
                );
            }
            thread::sleep(Duration::from_micros(300));
        }
        let (status, took) = self.end.expect("it has ended");
        Ended {
            code: status.code(),
            signal: status.signal(),
            out: text(&self.out),
            err: text(&self.err),
            took,
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = kill_process_group(self.handle(), Signal::KILL);
        if self.end.is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Makes `S` in the scene's directory.
#[track_caller]
pub fn create(scene: &Scene, settings: &[&str]) -> PathBuf {
    let segment = scene.path("S");
    let mut command = shmsched!["create", &segment];
    command.args(settings);
    command.ended().is(0);
    segment
}

/// The document of `inspect`.
#[track_caller]
pub fn inspect(segment: &Path) -> Value {
    let ended = shmsched!["inspect", segment, "--json"].ended().is(0);
    serde_json::from_str(&ended.out).expect("one document")
}

#[track_caller]
fn number(document: &Value, key: &str) -> u64 {
    document["scheduler"][key].as_u64().expect("a number")
}

#[track_caller]
pub fn running(segment: &Path) -> u64 {
    number(&inspect(segment), "running")
}

/// Waits until so many are in line.
#[track_caller]
pub fn in_line(segment: &Path, waiters: u64) {
    until(LONG, "in line", || {
        number(&inspect(segment), "waiters") == waiters
    });
}

/// Nobody gets a slot now.
#[track_caller]
pub fn refused(segment: &Path) {
    shmsched!["run", "--no-wait", segment, "--", "true"]
        .ended()
        .says(75, "no slot is free");
}

/// Quiet, as it says in the cases: soon nothing runs, nobody waits, and the whole budget is there, not a slot more.
#[track_caller]
pub fn comes_to_rest(segment: &Path, budget: u32) {
    within(SOON, || {
        let seen = inspect(segment);
        let (running, waiters) = (number(&seen, "running"), number(&seen, "waiters"));
        match (running, waiters) {
            (0, 0) => Ok(()),
            _ => Err(format!("{running} running, {waiters} waiting: {seen:#}")),
        }
    });
    shmsched!["run", "--no-wait", segment, "--", "true"]
        .ended()
        .is(0);
    quiet_within(SOON, &Location::File(segment.to_owned()), budget);
}

/// The names in a directory.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            entry.file_name().to_string_lossy().into_owned()
        })
        .collect();
    names.sort();
    names
}

/// The children of a process, of all its threads.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| of(task).ok())
        .flat_map(|text| {
            let pids = text
                .split_whitespace()
                .map(|pid| pid.parse().expect("a pid"));
            pids.collect::<Vec<u32>>()
        })
        .collect()
}

/// Whether a process was stopped by a signal.
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next();
    state.is_some_and(|state| state.trim().starts_with('T'))
}

/// The file that a process runs.
pub fn executable(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// A process below `pid` that runs the program under test.
pub fn program_below(pid: u32) -> Option<u32> {
    let program = std::fs::canonicalize(PROGRAM).expect("the program");
    let below = children(pid);
    let found = below
        .iter()
        .copied()
        .find(|child| executable(*child).as_ref() == Some(&program));
    found.or_else(|| below.into_iter().find_map(program_below))
}

/// The wrapper for namespaces of that kind, if this system permits them.
pub fn unshare(kind: &[&'static str]) -> Option<Vec<&'static str>> {
    for user in [&[][..], &["--user", "--map-root-user"]] {
        let wrapper: Vec<&'static str> = ["unshare"]
            .iter()
            .chain(user)
            .chain(kind)
            .copied()
            .collect();
        if works(&wrapper) {
            return Some(wrapper);
        }
    }
    None
}

/// Whether `true` runs under a wrapper.
pub fn works(wrapper: &[&str]) -> bool {
    let tried = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg("true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

pub fn strace_works() -> bool {
    works(&["strace", "-f", "-qq", "-o", "/dev/null"])
}
