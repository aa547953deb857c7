//! `shmsched pipe` against `cat`, each as a ratio within rounds taken in turn: `cargo bench --bench pipe`, about a minute;
//! `-- --quick` for a few rounds.
//!
//! - throughput of `head -c N /dev/zero | shmsched pipe S | cat > /dev/null` at the highest rate, against a `cat` in its
//!   place, or against the rate if that is less
//! - processor time of `shmsched pipe` at 100 MB/s, from a pipe that is fed faster and from a file, against that of a `cat`
//!   that moves the same bytes unpaced
#![allow(unsafe_code)]

use shmsched::{Location, Segment, Settings};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const HIGHEST: u32 = i32::MAX as u32;
const STEADY: u32 = 100_000_000;

/// Moved in a round at the highest rate.
const MANY: u64 = 2_000_000_000;

/// Moved in a round at the steady rate, whose bucket is empty at the start.
const SOME: u64 = 200_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    // `cargo test --benches` only wants to see it start.
    if has("--test") {
        return;
    }
    let program = option_env!("CARGO_BIN_EXE_shmsched").filter(|at| Path::new(at).exists());
    let Some(program) = program else {
        println!("skipped: built without the command line");
        return;
    };
    let rounds = if has("--quick") { 3 } else { 11 };
    let directory = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory");
    let segment = |rate: u32| {
        let path = directory.path().join(rate.to_string());
        let location = Location::File(path.clone());
        Segment::make(&location, &Settings::new().rate(rate)).expect("a segment");
        let mut pipe = vec![program.into(), "pipe".into()];
        pipe.push(path.into_os_string().into_string().expect("text"));
        pipe
    };
    throughput(&segment(HIGHEST), rounds);
    let steady = segment(STEADY);
    let file = directory.path().join("file");
    let mut zeros = io::Read::take(File::open("/dev/zero").expect("zeros"), SOME);
    let mut created = File::create(&file).expect("a file");
    io::copy(&mut zeros, &mut created).expect("room");
    processor_time("a pipe", &steady, None, rounds);
    processor_time("a file", &steady, Some(file), rounds);
}

/// How one program in the middle of a pipeline did.
struct Middle {
    took: Duration,
    busy: Duration,
}

/// Runs it between `head -c COUNT /dev/zero`, or the file, and `cat > /dev/null`.
fn middle(command: &[String], file: Option<&Path>, count: u64) -> Middle {
    let piped = |command: &mut Command| command.stdout(Stdio::piped()).spawn().expect("it starts");
    let output = |child: &mut Child| Stdio::from(child.stdout.take().expect("piped"));
    let begun = Instant::now();
    let (head, input) = match file {
        Some(file) => (None, File::open(file).expect("the file").into()),
        None => {
            let mut head = Command::new("head");
            let head = head.args(["-c", &count.to_string(), "/dev/zero"]);
            let mut head = piped(head.stdin(Stdio::null()));
            let input = output(&mut head);
            (Some(head), input)
        }
    };
    let mut middle = piped(Command::new(&command[0]).args(&command[1..]).stdin(input));
    let mut last = Command::new("cat");
    let last = last.stdin(output(&mut middle)).stdout(Stdio::null());
    let mut last = last.spawn().expect("it starts");
    let busy = ended(middle);
    let fine = |mut child: Child| assert!(child.wait().expect("a child").success());
    head.map(fine);
    assert!(last.wait().expect("a child").success());
    Middle {
        took: begun.elapsed(),
        busy,
    }
}

/// Waits for its end: its user and system time.
fn ended(child: Child) -> Duration {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: a child that nobody has waited for, and room for both results; zeros are an rusage.
    let (pid, usage) = unsafe {
        let pid = libc::wait4(child.id() as i32, &raw mut status, 0, usage.as_mut_ptr());
        (pid, usage.assume_init())
    };
    assert_eq!((pid, status), (child.id() as i32, 0));
    [usage.ru_utime, usage.ru_stime]
        .map(|time| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000))
        .iter()
        .sum()
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn cat() -> Vec<String> {
    vec!["cat".into()]
}

fn throughput(pipe: &[String], rounds: usize) {
    let per_second =
        |command: &[String]| MANY as f64 / middle(command, None, MANY).took.as_secs_f64();
    let (mut cats, mut pipes, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (cat, pipe) = (per_second(&cat()), per_second(pipe));
        ratios.push(cat.min(HIGHEST.into()) / pipe);
        cats.push(cat);
        pipes.push(pipe);
    }
    println!(
        "ratio throughput of cat / shmsched pipe: {:.3} ({:.2} GB/s / {:.2} GB/s, {rounds} rounds; goal 1.25)",
        median(&ratios),
        median(&cats) / 1e9,
        median(&pipes) / 1e9
    );
}

fn processor_time(what: &str, pipe: &[String], file: Option<PathBuf>, rounds: usize) {
    let file = file.as_deref();
    let (mut cats, mut pipes, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let cat = middle(&cat(), file, SOME).busy.as_secs_f64();
        // A full bucket would let half of it through at once.
        middle(pipe, None, STEADY.into());
        let paced = middle(pipe, file, SOME);
        let least = SOME as f64 / f64::from(STEADY) * 0.9;
        assert!(
            paced.took.as_secs_f64() > least,
            "not paced: {:?}",
            paced.took
        );
        let pipe = paced.busy.as_secs_f64();
        ratios.push(pipe / cat);
        cats.push(cat);
        pipes.push(pipe);
    }
    println!(
        "ratio processor time of shmsched pipe at 100 MB/s from {what} / cat: {:.3} ({:.1} ms / {:.1} ms for {} MB, {rounds} rounds; goal 1.5)",
        median(&ratios),
        median(&pipes) * 1e3,
        median(&cats) * 1e3,
        SOME / 1_000_000
    );
}
