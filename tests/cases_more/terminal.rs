//! A pseudo-terminal with a shell that has job control, as a user sits in front of it.

use crate::stage::{Job, PROGRAM, command};
use crate::support::{LONG, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetpgrp, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Everything that was written to the terminal, from the beginning.
type Written = Arc<Mutex<Vec<u8>>>;

pub struct Terminal {
    master: Option<File>,
    shell: Child,
    written: Written,
    reader: Mutex<Option<thread::JoinHandle<()>>>,
    /// Nobody reads any more.
    cut: Arc<AtomicBool>,
}

impl Terminal {
    /// Runs a script of sh in the foreground of a new terminal, with the program as `$B`. Jobs have their own process
    /// groups.
    pub fn run(script: &str, directory: &Path, environment: &[(&str, &str)]) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a pseudo-terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = open(&name, flags, Mode::empty()).expect("the other end");
        let end = || Stdio::from(slave.try_clone().expect("a copy"));
        let mut shell: Command = command("setsid");
        shell.args(["--ctty", "sh", "-m", "-c", script]);
        shell.env("B", PROGRAM).env("TERM", "xterm-256color");
        shell.env("SHMSCHED_DIR", directory).env_remove("NO_COLOR");
        shell.envs(environment.iter().copied());
        let shell = shell.stdin(end()).stdout(end()).stderr(end()).spawn();
        let master = File::from(master);
        let terminal = Terminal {
            written: Written::default(),
            reader: Mutex::default(),
            cut: Arc::default(),
            shell: shell.expect("a shell"),
            master: Some(master),
        };
        terminal.resize(100, 30);
        terminal.look_again();
        terminal
    }

    /// Begins to read what is written.
    pub fn look_again(&self) {
        self.cut.store(false, Ordering::Release);
        let mut from = self.master().try_clone().expect("a copy");
        let (into, cut) = (Arc::clone(&self.written), Arc::clone(&self.cut));
        let reader = thread::spawn(move || {
            let mut bytes = [0; 1 << 16];
            let tick = Timespec::try_from(Duration::from_millis(20)).expect("short");
            while !cut.load(Ordering::Acquire) {
                let ready = poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&tick));
                if ready == Ok(0) {
                    continue;
                }
                let Ok(read @ 1..) = from.read(&mut bytes) else {
                    break;
                };
                let mut into = into.lock().unwrap_or_else(PoisonError::into_inner);
                into.extend_from_slice(&bytes[..read]);
            }
        });
        *self.reader.lock().expect("no panic") = Some(reader);
    }

    /// Reads no more: the terminal fills.
    pub fn look_away(&self) {
        self.cut.store(true, Ordering::Release);
        let reader = self.reader.lock().expect("no panic").take();
        reader.expect("it reads").join().expect("it ends");
    }

    /// Whether a process of it would wait for room to write.
    pub fn is_full(&self, process: Pid) -> bool {
        let path = format!("/proc/{}/fd/1", process.as_raw_pid());
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        let end = open(path, flags, Mode::empty()).expect("its standard output");
        let now = Timespec::try_from(Duration::ZERO).expect("short");
        poll(&mut [PollFd::new(&end, PollFlags::OUT)], Some(&now)) == Ok(0)
    }

    fn master(&self) -> &File {
        self.master.as_ref().expect("not hung up")
    }

    pub fn press(&self, keys: &str) {
        self.master().write_all(keys.as_bytes()).expect("typed");
    }

    pub fn resize(&self, width: u16, height: u16) {
        let size = Winsize {
            ws_col: width,
            ws_row: height,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(self.master(), size).expect("another size");
    }

    /// The process in the foreground.
    pub fn front(&self) -> Pid {
        tcgetpgrp(self.master()).expect("a foreground")
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.front(), signal).expect("it is there");
    }

    /// How much was written so far.
    pub fn mark(&self) -> usize {
        self.written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    pub fn since(&self, mark: usize) -> String {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written[mark..]).into_owned()
    }

    /// Waits until it says this.
    #[track_caller]
    pub fn says(&self, mark: usize, text: &str) {
        let begun = std::time::Instant::now();
        while !self.since(mark).contains(text) {
            if begun.elapsed() > LONG {
                panic!("no {text:?} in {:?}", self.since(mark));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it says this behind that.
    #[track_caller]
    pub fn says_after(&self, mark: usize, first: &str, then: &str) {
        until(LONG, &format!("{first}, then {then}"), || {
            let written = self.since(mark);
            let after = written.split_once(first);
            after.is_some_and(|(_, after)| after.contains(then))
        });
    }

    /// Waits for the end of the shell: everything that was written.
    #[track_caller]
    pub fn ended(&mut self) -> String {
        until(LONG, "the shell ended", || {
            self.shell.try_wait().expect("waiting works").is_some()
        });
        // What was written before its end is read after it: all of it when nobody has the other end any more.
        until(LONG, "all is read", || {
            let reader = self.reader.lock().expect("no panic");
            reader.as_ref().is_none_or(|reader| reader.is_finished())
        });
        self.since(0)
    }

    /// The line is cut.
    pub fn hang_up(&mut self) {
        self.cut.store(true, Ordering::Release);
        self.master = None;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(master) = &self.master
            && let Ok(front) = tcgetpgrp(master)
        {
            let _ = rustix::process::kill_process_group(front, Signal::KILL);
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A job in the background of a test, so that there is something to see.
pub fn holder(stage: &crate::stage::Stage) -> Job {
    let mut job = Job::start(&mut stage.command("run", &["--", "sh", "-c", "echo in; exec cat"]));
    job.runs();
    job
}
