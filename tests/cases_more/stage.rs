//! The command line as its users have it: commands with a deadline, jobs in the background, what `inspect` says.

use crate::support::{Args, LONG, Recorder, Scene, Words, quiet_within, until, within};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use shmsched::Location;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_shmsched");

/// What takes a moment is over by then, also where each process on its way stands still for a second.
pub const SOON: Duration = Duration::from_secs(10);

/// A command that says so once it runs, and runs until its standard input ends.
pub const HOLD: [&str; 3] = ["sh", "-c", "echo in; exec cat"];

/// A command of any program, in whose environment nothing is set for ours. It has the default signal actions, also if
/// this process was started with `&` by a shell and ignores SIGINT.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    const ENDING: u64 = 1 << 14 | 1 << 2 | 1 << 1 | 1;
    static IGNORED: LazyLock<bool> = LazyLock::new(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let set = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.unwrap_or(0) & ENDING != 0
    });
    let mut command = match *IGNORED {
        false => Command::new(program),
        true => {
            let mut command = Command::new("env");
            command.arg("--default-signal=HUP,INT,QUIT,TERM");
            command.arg(program);
            command
        }
    };
    for name in ["SHMSCHED_SEGMENT", "SHMSCHED_PERMIT", "SHMSCHED_DIR"] {
        command.env_remove(name);
    }
    // As execvp, env and so we answer 126 if a directory of PATH may not be searched: leave such ones out.
    static PATH: LazyLock<OsString> = LazyLock::new(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let readable = std::env::split_paths(&path).filter(|path| path.read_dir().is_ok());
        std::env::join_paths(readable).expect("it was one before")
    });
    command.env("NO_COLOR", "1").env("PATH", &*PATH);
    command
}

pub fn shmsched<A: AsRef<OsStr>>(arguments: &[A]) -> Command {
    let mut command = command(PROGRAM);
    command.args(arguments);
    command
}

/// The same command as an argument of another program, as `unshare` and `strace` want it.
pub fn under<A: AsRef<OsStr>>(wrapper: &[A], inner: &Command) -> Command {
    let mut outer = Command::new(&wrapper[0]);
    outer
        .args(&wrapper[1..])
        .arg(inner.get_program())
        .args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    if let Some(directory) = inner.get_current_dir() {
        outer.current_dir(directory);
    }
    outer
}

/// Runs a command to its end.
#[track_caller]
pub fn ended(command: &mut Command) -> Ended {
    let mut job = Job::start(command);
    job.let_go();
    job.wait(LONG)
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub out: Vec<u8>,
    pub err: String,
    /// From its start until its end was noticed.
    pub took: Duration,
}

impl Ended {
    /// Its exit code.
    #[track_caller]
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| panic!("it died of a signal: {self:?}"))
    }

    /// Checks the exit code.
    #[track_caller]
    pub fn is(&self, code: i32) -> &Ended {
        assert_eq!(self.code(), code, "{}{}", self.text(), self.err);
        self
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Its error message, which is one line and all it said.
    #[track_caller]
    pub fn one_line(&self) -> &str {
        assert_eq!(self.text(), "", "an error says nothing on stdout");
        let line = self.err.strip_suffix('\n').unwrap_or("no line");
        let fine = line.starts_with("shmsched: ") && !line.contains(|c: char| c.is_control());
        assert!(fine, "not one line of ours: {:?}", self.err);
        line
    }

    /// Its standard output as one JSON document, with nothing on stderr.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.err, "");
        serde_json::from_slice(&self.out)
            .unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }
}

/// A command in the background, in a process group of its own, with a pipe as standard input. When it is dropped, the
/// whole group is killed.
pub struct Job {
    process: Child,
    stdin: Option<ChildStdin>,
    out: Arc<Written>,
    err: Arc<Written>,
    begun: Instant,
    ended: Option<(ExitStatus, Duration)>,
}

impl Job {
    #[track_caller]
    pub fn start(command: &mut Command) -> Job {
        let begun = Instant::now();
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let out = Written::collected(process.stdout.take().expect("piped").into());
        let err = Written::collected(process.stderr.take().expect("piped").into());
        Job {
            stdin: process.stdin.take(),
            process,
            out,
            err,
            begun,
            ended: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    fn handle(&self) -> Pid {
        Pid::from_raw(self.pid() as i32).expect("a pid")
    }

    /// Ends its standard input: a holder's command ends.
    pub fn let_go(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal to its first process only.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(self.handle(), signal);
    }

    /// Sends a signal to all its processes.
    pub fn signal_all(&self, signal: Signal) {
        let _ = kill_process_group(self.handle(), signal);
    }

    /// What it has written so far.
    pub fn out(&self) -> String {
        self.out.text()
    }

    pub fn err(&self) -> String {
        self.err.text()
    }

    /// When the first byte of its output was read.
    pub fn first_byte(&self) -> Option<Instant> {
        self.out.first.get().copied()
    }

    /// Waits until a [`HOLD`] command runs, or anything else has written its first byte.
    #[track_caller]
    pub fn runs(&mut self) {
        let begun = Instant::now();
        while self.first_byte().is_none() {
            let ended = self.poll();
            if ended.is_some() || begun.elapsed() > LONG {
                panic!("it does not run: {ended:?} {}{}", self.out(), self.err());
            }
            thread::sleep(Duration::from_micros(300));
        }
    }

    pub fn poll(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            let status = self.process.try_wait().expect("waiting works");
            self.ended = status.map(|status| (status, self.begun.elapsed()));
        }
        self.ended.map(|(status, _)| status)
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self, time: Duration) -> Ended {
        let until = Instant::now() + time;
        while self.poll().is_none() {
            if Instant::now() >= until {
                panic!("no end within {time:?}: {}{}", self.out(), self.err());
            }
            thread::sleep(Duration::from_micros(300));
        }
        // What others of it still write is waited for a little: what it left behind may keep the pipes open.
        let late = Instant::now() + Duration::from_millis(300);
        let open = |written: &Written| !written.ended.load(Ordering::Acquire);
        while (open(&self.out) || open(&self.err)) && Instant::now() < late {
            thread::sleep(Duration::from_micros(200));
        }
        // What it wrote itself is in the pipes, should the threads that read them stand still.
        self.out.take();
        self.err.take();
        let (status, took) = self.ended.expect("it has ended");
        Ended {
            status,
            out: self.out.bytes().clone(),
            err: self.err(),
            took,
        }
    }

    /// SIGKILL to its first process only, and reaps it.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let status = self.process.wait().expect("reaped");
        self.ended.get_or_insert((status, self.begun.elapsed()));
    }

    /// SIGKILL to all of it; reaps the first.
    pub fn kill_all(&mut self) {
        self.signal_all(Signal::KILL);
        let status = self.process.wait().expect("reaped");
        self.ended.get_or_insert((status, self.begun.elapsed()));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// What came through a pipe. A thread takes it out as it comes, and whoever asks may do so, too.
struct Written {
    from: File,
    bytes: Mutex<Vec<u8>>,
    first: OnceLock<Instant>,
    /// Nobody has the other end any more.
    ended: AtomicBool,
}

impl Written {
    fn collected(from: OwnedFd) -> Arc<Written> {
        rustix::io::ioctl_fionbio(&from, true).expect("a pipe");
        let written = Arc::new(Written {
            from: from.into(),
            bytes: Mutex::default(),
            first: OnceLock::new(),
            ended: AtomicBool::new(false),
        });
        let reader = Arc::clone(&written);
        thread::spawn(move || {
            while reader.take() {
                let _ = poll(&mut [PollFd::new(&reader.from, PollFlags::IN)], None);
            }
        });
        written
    }

    /// Takes out what is there: whether more may come.
    fn take(&self) -> bool {
        let mut into = self.bytes();
        let mut bytes = [0; 8_192];
        loop {
            match (&self.from).read(&mut bytes) {
                Ok(read @ 1..) => {
                    self.first.get_or_init(Instant::now);
                    into.extend_from_slice(&bytes[..read]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => {
                    self.ended.store(true, Ordering::Release);
                    return false;
                }
            }
        }
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

/// Many commands in the background, with nothing to read or write. Killed when dropped.
pub struct Crowd(pub Vec<Child>);

impl Crowd {
    /// Starts so many, as fast as it goes.
    pub fn start(count: usize, mut command: impl FnMut() -> Command) -> Crowd {
        let mut crowd = Crowd(Vec::with_capacity(count));
        for _ in 0..count {
            let started = command()
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn();
            crowd.0.push(started.expect("one of a crowd starts"));
        }
        crowd
    }

    /// Waits for the end of all: their exit codes, or minus the signal.
    #[track_caller]
    pub fn codes(&mut self, time: Duration) -> Vec<i32> {
        let until = Instant::now() + time;
        let mut codes = Vec::new();
        for (at, child) in self.0.iter_mut().enumerate() {
            let status = within(until.saturating_duration_since(Instant::now()), || {
                child
                    .try_wait()
                    .expect("waiting works")
                    .ok_or(format!("number {at} runs"))
            });
            codes.push(
                status
                    .code()
                    .or(status.signal().map(|signal| -signal))
                    .expect("it ended"),
            );
        }
        codes
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            if let Some(group) = Pid::from_raw(child.id() as i32) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A scene with one segment `S`, made by `create`.
pub struct Stage {
    pub scene: Scene,
    segment: PathBuf,
}

impl Stage {
    #[track_caller]
    pub fn new(settings: &[&str]) -> Stage {
        Stage::on(Scene::new(), settings)
    }

    /// With no other test running.
    #[track_caller]
    pub fn alone(settings: &[&str]) -> Stage {
        Stage::on(Scene::alone(), settings)
    }

    #[track_caller]
    fn on(scene: Scene, settings: &[&str]) -> Stage {
        let segment = scene.path("S");
        let stage = Stage { scene, segment };
        assert_eq!(stage.call("create", settings).is(0).err, "");
        stage
    }

    pub fn segment(&self) -> &Path {
        &self.segment
    }

    pub fn location(&self) -> Location {
        Location::File(self.segment.clone())
    }

    pub fn words(&self) -> Words {
        Words::of(&self.location())
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.segment).expect("the segment is there")
    }

    /// `shmsched VERB S ARGUMENTS`
    pub fn command<A: AsRef<OsStr>>(&self, verb: &str, arguments: &[A]) -> Command {
        let mut command = shmsched(&[OsStr::new(verb), self.segment.as_os_str()]);
        command.args(arguments);
        command
    }

    #[track_caller]
    pub fn call<A: AsRef<OsStr>>(&self, verb: &str, arguments: &[A]) -> Ended {
        ended(&mut self.command(verb, arguments))
    }

    #[track_caller]
    pub fn job<A: AsRef<OsStr>>(&self, verb: &str, arguments: &[A]) -> Job {
        Job::start(&mut self.command(verb, arguments))
    }

    /// `run S OPTIONS -- COMMAND` that has its permit, until it is told to let go.
    #[track_caller]
    pub fn hold_with(&self, options: &[&str]) -> Job {
        let arguments = [options, &["--"], &HOLD].concat();
        let mut job = self.job("run", &arguments);
        job.runs();
        job
    }

    #[track_caller]
    pub fn hold(&self) -> Job {
        self.hold_with(&[])
    }

    /// Waits until so many stand in line.
    #[track_caller]
    pub fn in_line(&self, count: i32) {
        let words = self.words();
        until(LONG, "in line", || words.waiters() == count);
    }

    /// `run --no-wait S -- true`: whether it was let in. Anything but yes and no is a failure.
    #[track_caller]
    pub fn lets_in(&self) -> bool {
        let ended = self.call("run", &["--no-wait", "--", "true"]);
        match ended.code() {
            0 => true,
            75 => false,
            _ => panic!("{ended:?}"),
        }
    }

    #[track_caller]
    pub fn inspect(&self) -> Value {
        self.call("inspect", &["--json"]).is(0).json()
    }

    /// The end of every test that has not broken its segment.
    #[track_caller]
    pub fn quiet(&self, budget: u32) {
        quiet_within(SOON, &self.location(), budget);
        assert!(self.lets_in());
    }
}

/// Role: LOG MILLISECONDS. A unit of work.
pub fn unit(args: &Args) {
    let recorder = Recorder::open(Path::new(args.text(0)));
    recorder.start(1);
    thread::sleep(Duration::from_millis(args.number(1)));
    recorder.end(1);
}

/// `COMMAND -- UNIT`, where a unit stamps its begin and end into a log.
pub fn with_unit(mut command: Command, log: &Path, milliseconds: u32) -> Command {
    command
        .arg("--")
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "child", "--ignored", "--test-threads=1"])
        .env("SHMSCHED_TEST_ROLE", "unit")
        .env(
            "SHMSCHED_TEST_ARGS",
            format!("{}\x1f{milliseconds}", log.display()),
        );
    command
}

/// Whether a command that a test needs works here.
pub fn works<A: AsRef<OsStr>>(arguments: &[A]) -> bool {
    let tried = Command::new(&arguments[0])
        .args(&arguments[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// Whether `strace` may be used.
pub fn strace_works() -> bool {
    works(&[
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=futex",
        "true",
    ])
}

/// The wrapper for a namespace of that kind, if this system permits one.
pub fn unshare(kind: &[&'static str]) -> Option<Vec<&'static str>> {
    [&[][..], &["--user", "--map-root-user"]]
        .into_iter()
        .map(|user| [&["unshare"][..], user, kind].concat())
        .find(|wrapper| works(&[wrapper.as_slice(), &["true"]].concat()))
}

pub const PIDS: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];

/// Another user.
pub const NOBODY: u32 = 65534;

/// A place that other users reach, with the program in it if they cannot reach the one under test; and the wrapper that
/// makes a command another user's. `None` without the right.
pub struct Elsewhere {
    pub directory: tempfile::TempDir,
    pub program: PathBuf,
}

pub const AS_NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--",
    "env",
];

impl Elsewhere {
    pub fn new() -> Option<Elsewhere> {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::Builder::new()
            .prefix("shmsched-test-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("a temporary directory");
        let as_nobody = |program: &Path| {
            let mut words: Vec<&OsStr> = AS_NOBODY.iter().map(OsStr::new).collect();
            words.extend([program.as_os_str(), OsStr::new("--version")]);
            works(&words)
        };
        let mut program = PathBuf::from(PROGRAM);
        if !as_nobody(&program) {
            program = directory.path().join("shmsched");
            std::fs::copy(PROGRAM, &program).expect("a copy");
        }
        as_nobody(&program).then_some(Elsewhere { directory, program })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The program as another user calls it.
    pub fn as_nobody<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        let mut inner = command(&self.program);
        inner.args(arguments);
        under(&AS_NOBODY, &inner)
    }
}

/// Text and bytes as arguments.
pub fn os(text: &[u8]) -> OsString {
    OsStr::from_bytes(text).to_owned()
}

/// Waits until a process catches that signal: until then it has its default effect, or as PID 1 none.
#[track_caller]
pub fn catches(pid: u32, signal: Signal) {
    until(LONG, "it catches the signal", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let set = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.is_some_and(|set| set >> (signal.as_raw() - 1) & 1 == 1)
    });
}

/// The state letter of a process.
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(after + 2).map(|letter| char::from(*letter))
}
