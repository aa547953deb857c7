//! Children: the test binary executed again, with a role. libtest stays on; the ignored test `child` is their entry
//! point and calls [`enter`].
//!
//! What a child [`say`]s begins with `> ` on a line of its own, so that libtest's words do not matter. A child whose
//! standard input ends goes away: no test leaves one behind.

use super::LONG;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const ROLE: &str = "SHMSCHED_TEST_ROLE";
const ARGS: &str = "SHMSCHED_TEST_ARGS";
/// No child lives longer.
const LIFE: Duration = Duration::from_secs(300);

/// A role's name and what it does.
pub type Role = (&'static str, fn(&Args));

/// What a child was started with.
pub struct Args(Vec<String>);

impl Args {
    pub fn text(&self, at: usize) -> &str {
        self.0.get(at).map_or("", String::as_str)
    }

    pub fn number(&self, at: usize) -> u64 {
        self.text(at).parse().expect("a number")
    }

    pub fn location(&self) -> shmsched::Location {
        shmsched::Location::File(self.text(0).into())
    }
}

static HEARD: OnceLock<Mutex<Receiver<String>>> = OnceLock::new();

/// The child's side: plays its role. Without one (somebody runs the ignored tests) it does nothing.
pub fn enter(roles: &[Role]) {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let text = std::env::var(ARGS).unwrap_or_default();
    let args = Args(text.split('\x1f').map(str::to_owned).collect());
    let (sender, receiver) = channel();
    HEARD.set(Mutex::new(receiver)).expect("entered once");
    thread::spawn(move || read_commands(&sender));
    thread::spawn(|| {
        thread::sleep(LIFE);
        std::process::exit(99);
    });
    let (_, play) = roles
        .iter()
        .find(|(name, _)| *name == role)
        .unwrap_or_else(|| panic!("no role {role}"));
    play(&args);
}

fn read_commands(sender: &Sender<String>) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let _ = sender.send(line);
    }
    std::process::exit(0);
}

/// The next line from the test.
pub fn hear() -> String {
    heard_by(LIFE).expect("the test says something")
}

/// The next line from the test, if it comes in time.
pub fn heard_by(time: Duration) -> Option<String> {
    let heard = HEARD.get().expect("in a child");
    let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    heard.recv_timeout(time).ok()
}

/// Tells the test something.
pub fn say(what: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "\n> {what}\n");
    let _ = out.flush();
}

/// The test's side of a child. Killed and reaped when dropped.
pub struct Child {
    role: String,
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    pending: Vec<String>,
    transcript: Arc<Mutex<String>>,
    ended: Option<ExitStatus>,
}

impl Child {
    pub fn start(role: &str, args: &[&str]) -> Child {
        Child::start_under(&[], role, args)
    }

    /// Starts it as an argument of another program, as `unshare` and `strace` want it.
    pub fn start_under(wrapper: &[&str], role: &str, args: &[&str]) -> Child {
        let binary = std::env::current_exe().expect("the test binary");
        Child::start_by(&binary, wrapper, role, args)
    }

    /// Starts a copy of the test binary.
    pub fn start_by(
        binary: &std::path::Path,
        wrapper: &[&str],
        role: &str,
        args: &[&str],
    ) -> Child {
        let mut command = match wrapper {
            [] => Command::new(binary),
            [program, rest @ ..] => {
                let mut command = Command::new(program);
                command.args(rest).arg(binary);
                command
            }
        };
        command
            .args([
                "--exact",
                "child",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, role)
            .env(ARGS, args.join("\x1f"))
            .env_remove("RUST_TEST_SHUFFLE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().expect("a child starts");
        let (sender, lines) = channel();
        let transcript = Arc::new(Mutex::new(String::new()));
        let stdout = process.stdout.take().expect("piped");
        let stderr = process.stderr.take().expect("piped");
        listen(stdout, transcript.clone(), Some(sender));
        listen(stderr, transcript.clone(), None);
        Child {
            role: role.to_owned(),
            stdin: process.stdin.take(),
            process,
            lines,
            pending: Vec::new(),
            transcript,
            ended: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    fn handle(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(self.pid() as i32).expect("a pid")
    }

    /// Sends a line.
    pub fn tell(&mut self, what: &str) {
        let stdin = self.stdin.as_mut().expect("not closed");
        // Dead ones do not listen; what they should have said is missed then.
        let _ = stdin.write_all(format!("{what}\n").as_bytes());
    }

    /// The rest of the first line that begins with the word(s) `what`.
    #[track_caller]
    pub fn expect(&mut self, what: &str) -> String {
        match self.listen_for(what, LONG) {
            Ok(rest) => rest,
            Err(why) => self.fail(&format!("waiting for {what:?}: {why}")),
        }
    }

    /// The same, or `None` if it does not come in time. A child that died is a failure.
    #[track_caller]
    pub fn expect_within(&mut self, what: &str, time: Duration) -> Option<String> {
        match self.listen_for(what, time) {
            Ok(rest) => Some(rest),
            Err(RecvTimeoutError::Timeout) => None,
            Err(why) => self.fail(&format!("waiting for {what:?}: {why}")),
        }
    }

    /// The same for children that may die meanwhile.
    pub fn listen_for(&mut self, what: &str, time: Duration) -> Result<String, RecvTimeoutError> {
        let until = Instant::now() + time;
        let fits = |line: &str| {
            let rest = line.strip_prefix(what)?;
            (rest.is_empty() || rest.starts_with(' ')).then(|| rest.trim().to_owned())
        };
        loop {
            if let Some(at) = self.pending.iter().position(|line| fits(line).is_some()) {
                let line = self.pending.remove(at);
                return Ok(fits(&line).expect("just seen"));
            }
            let left = until.saturating_duration_since(Instant::now());
            self.pending.push(self.lines.recv_timeout(left)?);
        }
    }

    #[track_caller]
    fn fail(&mut self, why: &str) -> ! {
        let ended = self.poll();
        if ended.is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        // Its last words come through another thread.
        thread::sleep(Duration::from_millis(50));
        let transcript = self
            .transcript
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        panic!(
            "child {} {}: {why}; it ended {ended:?} and had said:\n{transcript}",
            self.role,
            self.process.id()
        );
    }

    /// Its exit status if it has ended.
    pub fn poll(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.process.try_wait().expect("waiting works");
        }
        self.ended
    }

    /// Waits for its end: the status.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + LONG;
        loop {
            if let Some(status) = self.poll() {
                return status;
            }
            if Instant::now() >= until {
                self.fail("it hangs");
            }
            thread::sleep(Duration::from_micros(300));
        }
    }

    /// Waits for its good end.
    #[track_caller]
    pub fn finish(&mut self) {
        let status = self.wait();
        if !status.success() {
            self.fail(&format!("it should have ended well, not by {status}"));
        }
    }

    /// Waits for its end: whether SIGKILL ended it. Any other end but a good one is a failure.
    #[track_caller]
    pub fn was_killed(&mut self) -> bool {
        let status = self.wait();
        match (status.signal(), status.success()) {
            (Some(9), _) => true,
            (None, true) => false,
            _ => self.fail(&format!("it ended by {status}")),
        }
    }

    /// SIGKILL, and reaps it.
    pub fn kill(&mut self) {
        self.kill_only();
        if self.ended.is_none() {
            self.ended = Some(self.process.wait().expect("reaped"));
        }
    }

    /// SIGKILL; it stays a zombie.
    pub fn kill_only(&mut self) {
        if self.ended.is_none() {
            let _ = self.process.kill();
        }
    }

    /// SIGSTOP, and waits until it has stopped.
    #[track_caller]
    pub fn stop(&mut self) {
        self.signal(rustix::process::Signal::STOP);
        super::until(LONG, "stopped", || self.state() == Some('T'));
    }

    /// SIGSTOP, and waits until each of its threads has stopped.
    #[track_caller]
    pub fn stop_all(&mut self) {
        self.stop();
        super::until(LONG, "all stopped", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid()));
            tasks.into_iter().flatten().flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit(')')
                    .next()
                    .is_some_and(|rest| rest.trim().starts_with('T'))
            })
        });
    }

    /// SIGCONT.
    pub fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let _ = rustix::process::kill_process(self.handle(), signal);
    }

    /// The state letter of its main thread.
    pub fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        stat.rsplit(')').next()?.trim().chars().next()
    }

    /// Processor time and voluntary switches of all its threads.
    pub fn usage(&self) -> (Duration, u64) {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid()));
        let mut sum = (Duration::ZERO, 0);
        for task in tasks.into_iter().flatten().flatten() {
            let read =
                |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let spent = read("schedstat");
            let spent = spent.split(' ').next().and_then(|ns| ns.parse().ok());
            sum.0 += Duration::from_nanos(spent.unwrap_or(0));
            let status = read("status");
            let switches = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sum.1 += switches
                .and_then(|n| n.trim().parse::<u64>().ok())
                .unwrap_or(0);
        }
        sum
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

fn listen(
    from: impl Read + Send + 'static,
    transcript: Arc<Mutex<String>>,
    sender: Option<Sender<String>>,
) {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut bytes = Vec::new();
        while from
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|read| read != 0)
        {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if let (Some(said), Some(sender)) = (line.strip_prefix("> "), &sender) {
                let _ = sender.send(said.to_owned());
            }
            let mut transcript = transcript.lock().unwrap_or_else(PoisonError::into_inner);
            transcript.push_str(&line);
            transcript.push('\n');
        }
    });
}
