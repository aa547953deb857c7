//! Other processes: this program in another role, which ends when its parent does, and other programs, which are not
//! waited for longer than they may take.

use crate::bench::failed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A process of this program, spoken with in lines.
pub struct Child {
    process: process::Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

impl Child {
    pub fn start(role: &str, arguments: &[&str]) -> Result<Child, String> {
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("--role").arg(role).args(arguments);
        Child::of(command.stdout(Stdio::piped()))
    }

    /// One that an interrupt at the keyboard does not reach, and that keeps nobody's output open.
    pub fn apart(role: &str, arguments: &[&str]) -> Result<Child, String> {
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("--role").arg(role).args(arguments);
        Child::of(command.process_group(0).stdout(Stdio::null()))
    }

    /// Any program that speaks in lines.
    pub fn of(command: &mut Command) -> Result<Child, String> {
        let spawned = command.stdin(Stdio::piped()).spawn();
        let mut process = spawned.map_err(failed)?;
        Ok(Child {
            input: process.stdin.take(),
            output: process.stdout.take().map(BufReader::new),
            process,
        })
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn tell(&mut self, line: &str) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("failed: nobody listens")?;
        // In one write: a line is never seen by halves.
        input
            .write_all(format!("{line}\n").as_bytes())
            .map_err(failed)
    }

    pub fn hear(&mut self) -> Result<String, String> {
        let output = self.output.as_mut().ok_or("failed: nobody speaks")?;
        let mut line = String::new();
        match output.read_line(&mut line) {
            Ok(0) => Err(failed("a process that was to measure has ended")),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Hears exactly this.
    pub fn expect(&mut self, word: &str) -> Result<(), String> {
        let heard = self.hear()?;
        match heard == word {
            true => Ok(()),
            false => Err(failed(format!("instead of {word}: {heard}"))),
        }
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
    }

    /// Waits until it has ended by itself.
    pub fn finished(mut self) -> Result<(), String> {
        let status = self.process.wait().map_err(failed)?;
        self.input = None;
        match status.success() {
            true => Ok(()),
            false => Err(failed(format!("a process that was to measure: {status}"))),
        }
    }

    /// Closes its input and waits for it.
    pub fn ended(mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.input.take().is_some() {
            self.kill();
            let _ = self.process.wait();
        }
    }
}

/// In a child: the lines of its parent, from a thread that ends the process when there are no more.
pub fn orders() -> Receiver<String> {
    let (sender, orders) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        process::exit(0);
    });
    orders
}

/// In a child. If nobody hears it, the parent is gone.
pub fn say(line: impl std::fmt::Display) -> Result<(), String> {
    let mut output = std::io::stdout().lock();
    if writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .is_err()
    {
        process::exit(0);
    }
    Ok(())
}

/// Waits for another program, and kills it when it takes longer.
pub fn wait_for(mut child: process::Child, most: Duration) -> Result<ExitStatus, String> {
    if let Err(late) = ends_within(&child, most) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(late);
    }
    child.wait().map_err(failed)
}

/// Sleeps until a program has ended, which is still to be waited for then.
pub fn ends_within(child: &process::Child, most: Duration) -> Result<(), String> {
    let until = Timespec {
        tv_sec: most.as_secs() as i64,
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(failed)?;
    match poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&until)) {
        Ok(0) => Err(failed(format!("a program took longer than {most:?}"))),
        Ok(_) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Whether a program is there.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Tries for a second.
pub fn patiently(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(1);
    while !done() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
}
