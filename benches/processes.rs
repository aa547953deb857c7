//! What only shows between processes, each as a ratio in one run where there is something to compare with:
//! `cargo bench --bench processes`, about a minute; `-- --quick` for a tenth of the rounds.
//!
//! - hand-over (released in one, acquired in the other) against a bare futex ping-pong
//! - `shmsched run S -- true` against `flock F true`, in turn
//! - 300 processes waiting for one slot: CPU while they wait, futex wakes per release while they drain
//! - the time from a holder's SIGKILL to the waiter's admission
//!
//! The processes are this program itself in another role.
#![allow(unsafe_code)]

use shmsched::{Location, Observer, OpenOptions, Priority, Scheduler, Segment, Settings};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const ROLE: &str = "SHMSCHED_BENCH_ROLE";
const DIRECTORY: &str = "SHMSCHED_BENCH_DIRECTORY";
const ROUNDS: &str = "SHMSCHED_BENCH_ROUNDS";
const NORMAL: Priority = Priority::Normal;

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("a directory"));
        let rounds = std::env::var(ROUNDS)
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        return child(&role, &directory, rounds);
    }
    let arguments: Vec<String> = std::env::args().collect();
    // `cargo test --benches` only wants to see it start.
    if arguments.iter().any(|argument| argument == "--test") {
        return;
    }
    let share = if arguments.iter().any(|argument| argument == "--quick") {
        10
    } else {
        1
    };
    let directory = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory");
    hand_over(directory.path(), 20_000 / share);
    run_against_flock(directory.path(), 200 / share as usize);
    killed_holder(directory.path(), 100 / share as usize);
    three_hundred(directory.path(), 300 / share as usize);
}

fn child(role: &str, directory: &Path, rounds: u32) {
    match role {
        "ping" => bare_side(directory, 1, rounds),
        "hand" => hand_side(directory, 1, rounds, || say("ready")),
        "hold" => {
            let scheduler = scheduler(directory, "killed", 1);
            let _permit = scheduler.blocking_acquire(NORMAL).expect("a slot");
            say("holding");
            loop {
                std::thread::park();
            }
        }
        "wait" => {
            let scheduler = scheduler(directory, "many", 1);
            say("attached");
            drop(scheduler.blocking_acquire(NORMAL).expect("a slot"));
        }
        other => panic!("no role {other}"),
    }
}

fn say(word: &str) {
    println!("{word}");
    std::io::stdout().flush().expect("stdout");
}

fn spawn(role: &str, directory: &Path, rounds: u32) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .env(ROLE, role)
        .env(DIRECTORY, directory)
        .env(ROUNDS, rounds.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

fn heard(child: &mut Child, word: &str) {
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    // A byte at a time: a reader with a buffer would swallow what comes next.
    let mut byte = [0];
    while line.trim_end() != word {
        line.clear();
        while stdout.read(&mut byte).expect("stdout") == 1 && byte[0] != b'\n' {
            line.push(byte[0] as char);
        }
        assert!(!line.is_empty(), "the child ended without saying {word}");
    }
}

fn scheduler(directory: &Path, name: &str, concurrency: u32) -> Scheduler {
    let location = Location::File(directory.join(name));
    let settings = Settings::new().concurrency(concurrency);
    let (segment, _) =
        Segment::create_or_open(&location, &settings, &OpenOptions::new()).expect("a segment");
    segment.scheduler().expect("a scheduler")
}

/// The bare ping-pong: two words in a mapped file, each side sleeps on its own and wakes the other's.
struct Bare(memmap2::MmapMut);

impl Bare {
    fn open(directory: &Path) -> Bare {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join("bare"))
            .expect("a file");
        file.set_len(4096).expect("a page");
        // SAFETY: only this program has it, and touches it through atomics.
        Bare(unsafe { memmap2::MmapMut::map_mut(&file) }.expect("a mapping"))
    }

    fn word(&self, side: usize) -> &AtomicU32 {
        // SAFETY: aligned, within the page, an integer of any value, touched atomically by all.
        unsafe { &*self.0.as_ptr().add(side * 128).cast::<AtomicU32>() }
    }
}

fn bare_side(directory: &Path, side: usize, rounds: u32) {
    use rustix::thread::futex;
    let bare = Bare::open(directory);
    let (mine, other) = (bare.word(side), bare.word(1 - side));
    for round in 1..=rounds {
        if side == 1 || round > 1 {
            let wanted = if side == 1 { round } else { round - 1 };
            loop {
                let seen = mine.load(Ordering::Acquire);
                if seen >= wanted {
                    break;
                }
                let _ = futex::wait(mine, futex::Flags::empty(), seen, None);
            }
        }
        other.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(other, futex::Flags::empty(), 1);
    }
}

/// Ours: three segments of one slot in turn, so that each acquire waits for the other side's release. Side 0 begins
/// with the first and the third, side 1 with the second; `ready` runs once they are held, before the first round.
fn hand_side(directory: &Path, side: usize, rounds: u32, ready: impl FnOnce()) {
    let [a, b, c] = ["first", "second", "third"].map(|name| scheduler(directory, name, 1));
    let all = [&a, &b, &c];
    let mut held = [const { None }; 3];
    let mine: &[usize] = if side == 0 { &[0, 2] } else { &[1] };
    for at in mine {
        held[*at] = Some(all[*at].blocking_acquire(NORMAL).expect("a slot"));
    }
    ready();
    // Side 0 gives 0, 2, 1, 0, ... and takes 1, 0, 2, ...; side 1 takes what side 0 gives and gives what it takes.
    for round in 0..rounds as usize {
        let (first, second) = ((round * 2) % 3, (round * 2 + 1) % 3);
        if side == 0 {
            held[first] = None;
            held[second] = Some(all[second].blocking_acquire(NORMAL).expect("a slot"));
        } else {
            held[first] = Some(all[first].blocking_acquire(NORMAL).expect("a slot"));
            held[second] = None;
        }
    }
}

fn hand_over(directory: &Path, rounds: u32) {
    let per_round = rounds / 10;
    let mut ratios = Vec::new();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let _ = std::fs::remove_file(directory.join("bare"));
        drop(Bare::open(directory));
        let mut child = spawn("ping", directory, per_round);
        let begun = Instant::now();
        bare_side(directory, 0, per_round);
        assert!(child.wait().expect("the child").success());
        let bare_took = begun.elapsed();
        let (mut other, mut begun) = (None, Instant::now());
        hand_side(directory, 0, per_round, || {
            // Not before our slots are held, or it would run ahead.
            let mut child = spawn("hand", directory, per_round);
            heard(&mut child, "ready");
            other = Some(child);
            begun = Instant::now();
        });
        let ended = other.expect("started").wait().expect("the child");
        assert!(ended.success(), "the other side: {ended}");
        let ours_took = begun.elapsed();
        let per = |took: Duration| took.as_nanos() as f64 / f64::from(per_round) / 2.0;
        ours.push(per(ours_took));
        bare.push(per(bare_took));
        ratios.push(per(ours_took) / per(bare_took));
    }
    println!(
        "ratio hand-over between processes / futex ping-pong: {:.3} ({:.0} ns / {:.0} ns; goal 1.5)",
        median(&mut ratios),
        median(&mut ours),
        median(&mut bare)
    );
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn run_against_flock(directory: &Path, rounds: usize) {
    let Some(program) = option_env!("CARGO_BIN_EXE_shmsched").filter(|at| Path::new(at).exists())
    else {
        println!("skipped: run against flock(1): built without the command line");
        return;
    };
    let segment = directory.join("run");
    Segment::make(
        &Location::File(segment.clone()),
        &Settings::new().concurrency(4),
    )
    .expect("a segment");
    let lock = directory.join("flock");
    let time = |command: &mut Command| {
        let begun = Instant::now();
        let done = command.status();
        done.is_ok_and(|status| status.success())
            .then(|| begun.elapsed().as_nanos() as f64)
    };
    let (mut ours, mut flock, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let Some(theirs) = time(Command::new("flock").arg(&lock).arg("true")) else {
            println!("skipped: run against flock(1): there is no flock(1)");
            return;
        };
        let mine = time(
            Command::new(program)
                .arg("run")
                .arg(&segment)
                .args(["--", "true"]),
        );
        let mine = mine.expect("shmsched run");
        ours.push(mine);
        flock.push(theirs);
        ratios.push(mine / theirs);
    }
    println!(
        "ratio shmsched run S -- true / flock F true: {:.3} ({:.0} us / {:.0} us, {rounds} rounds; goal 1.2)",
        median(&mut ratios),
        median(&mut ours) / 1e3,
        median(&mut flock) / 1e3
    );
}

fn killed_holder(directory: &Path, rounds: usize) {
    let scheduler = scheduler(directory, "killed", 1);
    let mut took = Vec::new();
    for _ in 0..rounds {
        let mut holder = spawn("hold", directory, 0);
        heard(&mut holder, "holding");
        let waiter = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                drop(scheduler.blocking_acquire(NORMAL).expect("a slot"));
                Instant::now()
            });
            while scheduler.stats().pending == 0 {
                std::thread::yield_now();
            }
            // At a random moment of the waiter's timer.
            std::thread::sleep(Duration::from_micros(took.len() as u64 * 7_919 % 100_000));
            let killed = Instant::now();
            holder.kill().expect("kill");
            waiting.join().expect("the waiter") - killed
        });
        holder.wait().expect("the holder");
        took.push(waiter.as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    let within = took.iter().filter(|ms| **ms <= 150.0).count();
    println!(
        "holder killed: the waiter has the slot within 150 ms in {within} of {rounds} (median {:.0} ms, worst {:.0} ms; goal 99 of 100)",
        took[rounds / 2],
        took[rounds - 1]
    );
}

/// Time that a process (of one thread) was on a CPU, in ns: finer than the ticks of /proc/PID/stat.
fn on_cpu(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok())
        .unwrap_or(0)
}

/// Voluntary context switches: one for each time a process slept.
fn sleeps(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("voluntary_ctxt_switches"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

fn three_hundred(directory: &Path, waiters: usize) {
    let scheduler = scheduler(directory, "many", 1);
    let permit = scheduler.blocking_acquire(NORMAL).expect("the slot");
    let begun = Instant::now();
    let mut children: Vec<Child> = (0..waiters).map(|_| spawn("wait", directory, 0)).collect();
    for child in &mut children {
        heard(child, "attached");
    }
    let attached = begun.elapsed();
    let mut observer =
        Observer::open(&Location::File(directory.join("many"))).expect("an observer");
    while observer
        .snapshot()
        .expect("a snapshot")
        .scheduler
        .expect("a scheduler")
        .waiters
        < waiters as u32
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    let cpu = |children: &[Child]| children.iter().map(|child| on_cpu(child.id())).sum::<u64>();
    let slept = |children: &[Child]| children.iter().map(|child| sleeps(child.id())).sum::<u64>();
    let (before, slept_before) = (cpu(&children), slept(&children));
    let wait = Duration::from_secs(10);
    std::thread::sleep(wait);
    let used = (cpu(&children) - before) as f64 / wait.as_nanos() as f64 * 100.0;
    let woke = slept(&children) - slept_before;
    println!(
        "{waiters} processes waiting: {used:.2} % of a core together over 10 s (goal 1 %), {woke} wake-ups; all attached after {:.2} s",
        attached.as_secs_f64()
    );
    let rung = rings(&directory.join("many"));
    let begun = Instant::now();
    drop(permit);
    for child in &mut children {
        assert!(child.wait().expect("a child").success());
    }
    let rung = rings(&directory.join("many")) - rung;
    println!(
        "{waiters} drained in {:.2} s, {:.2} futex wakes per release (goal 3)",
        begun.elapsed().as_secs_f64(),
        rung as f64 / waiters as f64
    );
}

/// How often anybody rang: the sum of the members' bell words, at the offsets of docs/segment-format.md for a segment
/// of 1,024 members. Each ring is one futex wake.
fn rings(segment: &Path) -> u64 {
    let bytes = std::fs::read(segment).expect("the segment");
    let bell = |member: usize| {
        let at = 0x1800 + member * 1408 + 128;
        u64::from(u32::from_le_bytes(
            bytes[at..at + 4].try_into().expect("four bytes"),
        ))
    };
    (0..1024).map(bell).sum()
}
