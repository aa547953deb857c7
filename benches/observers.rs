//! What watching costs: `cargo bench --bench observers`, about ten seconds.
//!
//! - one snapshot of the words of 256 members, and the same with the system asked about each of them
//! - acquire and release while `shmsched top` redraws ten times a second, against the same while it is stopped, in turn

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use shmsched::{Location, Observer, OpenOptions, Priority, Scheduler, Segment, Settings};
use std::fs::{File, OpenOptions as Files};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MEMBERS: usize = 256;

fn main() {
    // `cargo test --benches` only wants to see it start.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let directory = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory");
    snapshots(directory.path());
    watched(directory.path());
}

fn segment(directory: &Path, name: &str) -> (Location, Segment) {
    let location = Location::File(directory.join(name));
    let settings = Settings::new().concurrency(1 << 20).rate(1_000);
    let created = Segment::create_or_open(&location, &settings, &OpenOptions::new());
    (location, created.expect("a segment").0)
}

/// The median of what a call takes, in us.
fn median(mut call: impl FnMut()) -> f64 {
    let mut rounds: Vec<Duration> = (0..501)
        .map(|_| {
            let begun = Instant::now();
            call();
            begun.elapsed()
        })
        .collect();
    rounds.sort();
    rounds[rounds.len() / 2].as_nanos() as f64 / 1_000.0
}

fn snapshots(directory: &Path) {
    let (location, first) = segment(directory, "many");
    let mut members = vec![first];
    members.resize_with(MEMBERS, || Segment::open(&location).expect("a member"));
    let permits: Vec<_> = members
        .iter()
        .map(|member| {
            let scheduler = member.scheduler().expect("a scheduler");
            scheduler.try_acquire_owned(Priority::Normal).expect("room")
        })
        .collect();
    let mut observer = Observer::open(&location).expect("an observer");
    let seen = observer.snapshot().expect("a snapshot");
    assert_eq!(seen.members.len(), MEMBERS);
    let running = seen.scheduler.expect("a scheduler").running;
    assert_eq!(running as usize, permits.len());
    let words = median(|| drop(observer.snapshot_asking(|_| false)));
    let all = median(|| drop(observer.snapshot()));
    println!("snapshot of the words of {MEMBERS} members: {words:.1} us (goal 50)");
    println!("the same, with the system asked about each: {all:.1} us");
}

/// `top` on a pseudo-terminal that somebody reads.
fn top(location: &Location) -> Option<(Child, File)> {
    let program =
        option_env!("CARGO_BIN_EXE_shmsched").filter(|program| Path::new(program).exists())?;
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&master).expect("granted");
    unlockpt(&master).expect("unlocked");
    let name = ptsname(&master, Vec::new()).expect("it has a name");
    let size = Winsize {
        ws_col: 120,
        ws_row: 40,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size).expect("a size");
    let path = name.to_str().expect("a path");
    let end = Files::new().read(true).write(true).open(path);
    let end = end.expect("the other end");
    let copy = || Stdio::from(end.try_clone().expect("a copy"));
    let mut command = Command::new(program);
    command.arg("top").arg(location.path());
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
    command.stdin(copy()).stdout(copy()).stderr(copy());
    let child = command.spawn().expect("top");
    drop(end);
    Some((child, File::from(master)))
}

fn watched(directory: &Path) {
    const CALLS: u32 = 2_000_000;
    let (location, segment) = segment(directory, "watched");
    let scheduler = segment.scheduler().expect("a scheduler");
    let Some((mut child, mut terminal)) = top(&location) else {
        println!("SKIPPED while top runs: the program is not built");
        return;
    };
    let reader = std::thread::spawn(move || {
        let (mut bytes, mut read) = ([0; 1 << 16], 0);
        while let Ok(count @ 1..) = terminal.read(&mut bytes) {
            read += count;
        }
        read
    });
    std::thread::sleep(Duration::from_millis(500));
    let pid = Pid::from_child(&child);
    let round = |scheduler: &Scheduler| {
        let begun = Instant::now();
        for _ in 0..CALLS {
            drop(scheduler.try_acquire(Priority::Normal).expect("room"));
        }
        begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    let mut rounds: Vec<[f64; 2]> = (0..61)
        .map(|_| {
            kill_process(pid, Signal::CONT).expect("top");
            let watched = round(&scheduler);
            kill_process(pid, Signal::STOP).expect("top");
            [watched, round(&scheduler)]
        })
        .collect();
    let mut middle = |of: fn(&[f64; 2]) -> f64| {
        rounds.sort_by(|a, b| of(a).total_cmp(&of(b)));
        of(&rounds[rounds.len() / 2])
    };
    let (with, without) = (middle(|r| r[0]), middle(|r| r[1]));
    let ratio = middle(|r| r[0] / r[1]);
    kill_process(pid, Signal::CONT).expect("top");
    kill_process(pid, Signal::TERM).expect("top");
    child.wait().expect("it ended");
    let written = reader.join().expect("a reader");
    assert!(written > 10_000, "top drew {written} bytes");
    println!(
        "acquire+release while top runs / while it is stopped: {ratio:.3} ({with:.2} / {without:.2} ns; goal 1.05)"
    );
}
