//! The command: started, sent every signal that reaches `run`, waited for.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgid, getpgrp, getpid, getppid, getsid, kill_process,
};
use rustix_libc_wrappers::process::SignalExt;
use signal_hook::consts::signal::{SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU};

use super::nested::{Marks, VARIABLE};
use crate::exit::{Code, Failure, Outcome, note};
use crate::signals::{Cause, Origin, Signals};

/// How long a command must live before the less usual signals are caught too: that costs a fifth of a millisecond, much of
/// what a brief command takes. One that comes earlier is held back until then.
const BRIEF: Duration = Duration::from_millis(5);

/// Runs the command to its end and gives its exit code, or 128+n. `kept` goes to the command as it is: it keeps the permit
/// should this process be killed.
pub fn run(
    command: &[OsString],
    marks: &Marks,
    kept: Option<OwnedFd>,
    signals: &mut Signals,
) -> Outcome {
    // Between the permit and the command: nothing has begun, so nothing needs to.
    if let Some(signal) = signals.ending() {
        return Err(Failure::signal(signal));
    }
    if let Err(error) = signals.catch_common() {
        return Err(Failure::new(
            Code::Io,
            format_args!("cannot catch signals: {error}"),
        ));
    }
    let child = start(command, marks)?;
    // Not before the start: a command inherits what is held back.
    Signals::hold_others_back();
    drop(kept);
    let mut running = Running {
        child: Pid::from_child(&child),
        stopped: false,
    };
    // The terminal may have sent these before there was a command to get them.
    running.pass_all_on(signals, true);
    if let Some(outcome) = running.reap() {
        return outcome;
    }
    signals.sleep(Some(BRIEF));
    if let Some(outcome) = running.reap() {
        return outcome;
    }
    if let Err(error) = signals.catch_all() {
        note(format_args!(
            "warning: some signals will not be passed on: {error}"
        ));
    }
    loop {
        running.pass_all_on(signals, false);
        if let Some(outcome) = running.reap() {
            return outcome;
        }
        signals.sleep(None);
    }
}

/// Starts the command, with everything this process has but its own descriptors.
fn start(command: &[OsString], marks: &Marks) -> Result<Child, Failure> {
    let (program, arguments) = command.split_first().expect("clap demands a command");
    let spawned = Command::new(program)
        .args(arguments)
        .env(VARIABLE, marks.text())
        .spawn();
    let error = match spawned {
        Ok(child) => return Ok(child),
        Err(error) => error,
    };
    let found = find(program);
    // As execvp(3), and so env(1), nohup(1) and flock(1): a script without an interpreter line is one of sh.
    if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error())
        && let Some(script) = found.as_ref().filter(|path| is_text(path))
        && let Ok(child) = Command::new("/bin/sh")
            .arg(script)
            .args(arguments)
            .env(VARIABLE, marks.text())
            .spawn()
    {
        return Ok(child);
    }
    let name = program.to_string_lossy();
    Err(match (error.kind(), found) {
        _ if name.is_empty() => Failure::new(
            Code::NotFound,
            "the command is an empty word; name one after --, and see whether a variable there is unset",
        ),
        (ErrorKind::NotFound, None) => {
            Failure::new(Code::NotFound, format_args!("{name}: command not found"))
        }
        (ErrorKind::NotFound, Some(_)) => Failure::new(
            Code::CannotRun,
            format_args!("{name}: cannot be run: its interpreter is missing, see its first line"),
        ),
        _ => Failure::new(
            Code::CannotRun,
            format_args!("{name}: cannot be run: {error}"),
        ),
    })
}

/// The file that a command names, directly or by PATH.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.is_empty() {
        return None;
    }
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|path| path.exists())
}

/// Whether a file can be a script: no zero byte in its beginning.
fn is_text(path: &PathBuf) -> bool {
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|file| file.take(256).read_to_end(&mut beginning));
    read.is_ok() && !beginning.contains(&0)
}

/// A command that was started and not yet waited for, so that its pid is its own.
struct Running {
    child: Pid,
    /// This process was stopped with its group, and has not seen SIGCONT since.
    stopped: bool,
}

impl Running {
    /// Passes on what has arrived.
    fn pass_all_on(&mut self, signals: &mut Signals, early: bool) {
        signals
            .arrived()
            .for_each(|origin| self.pass_on(&origin, early));
    }

    /// Passes a signal on to the command, once. `early`: it may have come before the command did.
    fn pass_on(&mut self, origin: &Origin, early: bool) {
        let had_it = !early && self.had_it(origin);
        match origin.signal {
            SIGCHLD => {}
            SIGTSTP | SIGTTIN | SIGTTOU => {
                // The command may also be who asked: it stops its own group.
                let asked = origin
                    .process
                    .as_ref()
                    .is_some_and(|sender| sender.pid == self.child.as_raw_pid());
                if !had_it && !asked {
                    self.send(origin.signal);
                }
                self.stop();
            }
            SIGCONT => {
                // fg continues the whole group; a second SIGCONT would run the command's handler twice.
                let continued = std::mem::take(&mut self.stopped) && !is_stopped(self.child);
                if !continued {
                    self.send(SIGCONT);
                }
            }
            signal => {
                if !had_it {
                    self.send(signal);
                }
            }
        }
    }

    /// Whether the terminal has sent the signal to the command as well: it sends to a whole process group.
    fn had_it(&self, origin: &Origin) -> bool {
        matches!(origin.cause, Cause::Kernel)
            && getpgid(Some(self.child)).is_ok_and(|group| group == getpgrp())
    }

    fn send(&self, signal: i32) {
        if let Some(signal) = Signal::from_raw(signal) {
            // It may have ended, or have become another user's: nothing to be done.
            let _ = kill_process(self.child, signal);
        }
    }

    /// Stops this process, so that the shell sees the job stop; goes on with SIGCONT.
    fn stop(&mut self) {
        // A signal of the terminal does not stop an orphaned group, for nobody would continue it.
        if is_watched() {
            self.stopped = true;
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }

    /// Waits for whatever has ended: the command, and orphans that became ours, as happens to PID 1.
    fn reap(&self) -> Option<Outcome> {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.child => {
                    let code = status
                        .exit_status()
                        .or_else(|| status.terminating_signal().map(|signal| 128 + signal));
                    return Some(Ok(code.unwrap_or(Code::Bug as i32) as u8));
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return None,
                Err(error) => {
                    let error = io::Error::from(error);
                    return Some(Err(Failure::new(
                        Code::Io,
                        format_args!("cannot learn how the command ended: {error}"),
                    )));
                }
            }
        }
    }
}

/// Whether a shell watches this process group: some ancestor outside the group is in the same session.
fn is_watched() -> bool {
    let (group, session) = (getpgrp(), getsid(None).ok());
    let mut parent = getppid();
    while let Some(pid) = parent {
        match (getpgid(Some(pid)), getsid(Some(pid))) {
            (Ok(other), Ok(its)) if other != group => return Some(its) == session,
            (Ok(_), Ok(_)) => {
                parent = field(number(pid), 1)
                    .and_then(|text| text.parse().ok())
                    .and_then(Pid::from_raw)
            }
            _ => return false,
        }
    }
    false
}

/// Whether a process is stopped; yes if that cannot be learnt.
fn is_stopped(pid: Pid) -> bool {
    field(number(pid), 0).is_none_or(|state| state == "T" || state == "t")
}

/// A field of `/proc/PID/stat`, counted from the one after the name: 0 is the state, 1 the parent.
pub fn field(pid: u32, index: usize) -> Option<String> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = String::from_utf8_lossy(&stat[after..]);
    rest.split_whitespace().nth(index).map(str::to_owned)
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_pid().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_commands() {
        assert!(find(OsStr::new("sh")).is_some());
        assert!(find(OsStr::new("/bin/sh")).is_some());
        assert_eq!(find(OsStr::new("/no/such")), None);
        assert_eq!(find(OsStr::new("")), None);
        assert!(!is_text(&"/proc/self/exe".into()));
    }

    #[test]
    fn every_code_that_can_be_caught_can_be_sent() {
        let unknown: Vec<i32> = (1..=64)
            .filter(|signal| Signal::from_raw(*signal).is_none())
            .collect();
        assert_eq!(unknown, [32, 33], "those that libc keeps");
    }

    #[test]
    fn this_process_is_not_stopped() {
        assert!(!is_stopped(getpid()));
        let parent: i32 = field(std::process::id(), 1).unwrap().parse().unwrap();
        assert_eq!(Pid::from_raw(parent), getppid());
    }
}
