//! Units of work and other roles: what runs under the program.

use crate::support::Recorder;
use rustix::thread::gettid;
use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const ROLE: &str = "CASE_ROLE";
const LOG: &str = "CASE_LOG";
const HOLD: &str = "CASE_HOLD";
/// No child lives longer.
const LIFE: Duration = Duration::from_secs(120);

/// How long a unit takes.
#[derive(Clone, Copy)]
pub enum Hold<'a> {
    Millis(u64),
    /// Until that file is there.
    Until(&'a Path),
    /// Until so many have begun, and so many milliseconds then: so many have run at once, whoever is slow.
    Together(usize, u64),
}

/// This binary as a command that plays a role.
fn words() -> Vec<OsString> {
    let binary = std::env::current_exe().expect("the test binary");
    let mut words = vec![binary.into_os_string()];
    words.extend(["--exact", "child", "--ignored", "--nocapture"].map(OsString::from));
    words
}

/// `... -- UNIT`: its variables come through whatever runs it.
pub fn with_unit(mut command: Command, log: &Path, hold: Hold) -> Command {
    command.arg("--").args(words());
    play(command, "work", log, hold)
}

/// `... -- ROLE`
pub fn with_role(mut command: Command, role: &str, log: &Path) -> Command {
    command.arg("--").args(words());
    play(command, role, log, Hold::Millis(0))
}

/// Lets a script run `$UNIT`, which must not be quoted.
pub fn with_unit_in_script(mut command: Command, role: &str, log: &Path, hold: Hold) -> Command {
    let mut words = words();
    // The tests may lie below a folder with spaces in its name.
    let plain = log.with_file_name("unit");
    let linked = std::os::unix::fs::symlink(&words[0], &plain);
    assert!(linked.is_ok() || plain.exists(), "{linked:?}");
    words[0] = plain.into_os_string();
    let words: Vec<String> = words
        .into_iter()
        .map(|word| word.into_string().expect("a plain path"))
        .collect();
    command.env("UNIT", words.join(" "));
    play(command, role, log, hold)
}

fn play(mut command: Command, role: &str, log: &Path, hold: Hold) -> Command {
    let hold = match hold {
        Hold::Millis(time) => OsString::from(time.to_string()),
        Hold::Until(path) => path.as_os_str().to_owned(),
        Hold::Together(units, time) => OsString::from(format!("{units}+{time}")),
    };
    command.env(ROLE, role).env(LOG, log).env(HOLD, hold);
    command
}

/// The child's side. Without a role (somebody runs the ignored tests) it does nothing.
pub fn enter() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let log = std::env::var_os(LOG).expect("a log");
    let log = Path::new(&log);
    match role.as_str() {
        "work" => work(log),
        "signals" => signals(log),
        "thread_500" => thread_500(log),
        other => panic!("no role {other}"),
    }
}

/// Whether it is time to go whatever the role: the test is over, or has forgotten us.
fn over(begun: Instant, log: &Path) -> bool {
    begun.elapsed() > LIFE || !log.exists()
}

fn work(log: &Path) {
    let recorder = Recorder::open(log);
    recorder.start(1);
    let hold = std::env::var(HOLD).expect("a time or a path");
    let wait_until = |met: &dyn Fn() -> bool| {
        let since = Instant::now();
        while !met() && !over(since, log) {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let numbers = hold
        .split_once('+')
        .and_then(|(units, time)| Some((units.parse().ok()?, time.parse().ok()?)));
    match (hold.parse(), numbers) {
        (Ok(time), _) => thread::sleep(Duration::from_millis(time)),
        (_, Some((units, time))) => {
            wait_until(&|| begun(log) >= units);
            thread::sleep(Duration::from_millis(time));
        }
        _ => wait_until(&|| Path::new(&hold).exists()),
    }
    recorder.end(1);
}

fn append(log: &Path, line: &str) {
    let mut file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .expect("the log");
    file.write_all(format!("{line}\n").as_bytes())
        .expect("the log");
}

/// HUP, INT, QUIT, USR1, USR2, TERM, WINCH, RTMIN+3. TERM ends the role.
pub const SIGNALS: [i32; 8] = [1, 2, 3, 10, 12, 15, 28, 37];

/// Counts the signals that arrive, every one of them, and says so: `got SIGNAL COUNT`. Ends by TERM, with 7.
fn signals(log: &Path) {
    let mut pipes = SIGNALS.map(|signal| {
        let (read, write) = UnixStream::pair().expect("a pair");
        read.set_nonblocking(true).expect("a socket");
        // One byte per delivery: two are never taken for one.
        signal_hook::low_level::pipe::register(signal, write).expect("a handler");
        (signal, read, 0)
    });
    append(log, "ready");
    let begun = Instant::now();
    loop {
        let mut ended = false;
        for (signal, pipe, count) in &mut pipes {
            let mut bytes = [0; 64];
            let more = match pipe.read(&mut bytes) {
                Ok(more) => more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => panic!("{error}"),
            };
            if more > 0 {
                *count += more;
                append(log, &format!("got {signal} {count}"));
                ended |= *signal == 15;
            }
        }
        if ended || over(begun, log) {
            std::process::exit(7);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a thread whose number is 500, in a pid namespace of its own.
fn thread_500(log: &Path) {
    let begun = Instant::now();
    while !over(begun, log) {
        fs::write("/proc/sys/kernel/ns_last_pid", "499").expect("may choose pids");
        let is_500 = thread::spawn({
            let log = log.to_owned();
            move || {
                if gettid().as_raw_pid() != 500 {
                    return false;
                }
                append(&log, "thread 500");
                while !over(begun, &log) {
                    thread::sleep(Duration::from_millis(5));
                }
                true
            }
        });
        if is_500.join().expect("no panic") {
            return;
        }
    }
}

/// The lines of a log that begin with `what`, without it.
pub fn lines(log: &Path, what: &str) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let rest = |line: &str| line.strip_prefix(what).map(|rest| rest.trim().to_owned());
    text.lines().filter_map(rest).collect()
}

/// How many units have begun.
pub fn begun(log: &Path) -> usize {
    lines(log, "S ").len()
}

/// The pids of the units that have begun.
pub fn pids(log: &Path) -> Vec<u32> {
    let pid = |line: &String| line.split(' ').nth(1).and_then(|pid| pid.parse().ok());
    lines(log, "S ").iter().filter_map(pid).collect()
}

/// From the first begin to the last.
pub fn spread(log: &Path) -> Duration {
    let begins: Vec<u64> = lines(log, "S ")
        .iter()
        .map(|line| {
            line.split(' ')
                .next()
                .expect("a time")
                .parse()
                .expect("a time")
        })
        .collect();
    let (first, last) = (begins.iter().min(), begins.iter().max());
    Duration::from_nanos(last.unwrap_or(&0) - first.unwrap_or(&0))
}

/// Opens a gate for units that wait at it.
pub fn open(gate: &Path) {
    fs::write(gate, "").expect("the gate");
}
