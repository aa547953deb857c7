//! How many instructions the usual operations take, counted by callgrind: `scripts/instructions`.
//!
//! A count does not depend on who else is busy, so it can be compared with a budget. This program runs one path, for
//! callgrind to count what happens within [`measured`]; or it starts valgrind on itself for each path in turn and reads
//! the counts. Each includes the loop around the operation, which is a path of its own. Reading the clock is a system
//! call there, so what the kernel does for it, or the vDSO outside, is not counted.
#![allow(unsafe_code)]

use futures_executor::block_on;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use shmsched::{
    Concurrency, Limiter, Location, Observer, OpenOptions, Pacer, Priority, Scheduler, Segment,
    Settings,
};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::future::ready;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

type Answer<T> = Result<T, Box<dyn Error>>;

const NORMAL: Priority = Priority::Normal;
const ROOM: u32 = 1 << 20;
/// Four times what lies between two calls that also look whether the file still has its name.
const CALLS: u64 = 4_096;
/// Few enough to be over, twice, before a thread keeps spare slots, at its 1,024th acquire. In the other paths it does.
const EARLY: u64 = 448;
/// Few enough to be over before the next look for the dead is due.
const REFUSALS: u64 = 256;
const QUEUED: u64 = 1_000;
const SHARED: &str = "shared try_acquire, drop";
const OBSERVED: &str = "shared try_acquire, drop, while another process takes snapshots";

/// A path's name, how often it is called, and what calls it so often.
type Way = (&'static str, u64, fn(u64) -> Answer<()>);

const WAYS: &[Way] = &[
    ("the loop alone", CALLS, nothing),
    (SHARED, CALLS, shared_try),
    (OBSERVED, 16 * CALLS, observed_try),
    (
        "shared try_acquire, drop, without spare slots",
        EARLY,
        shared_try,
    ),
    ("local try_acquire, drop", CALLS, local_try),
    ("shared try_acquire_owned, drop", CALLS, owned),
    ("shared blocking_acquire, drop", CALLS, blocking),
    ("shared acquire.await, drop", CALLS, awaited),
    ("shared run of a ready future", CALLS, run),
    ("shared try_acquire, refused", REFUSALS, refused),
    ("local queue of 1,000 callbacks, each", 4 * QUEUED, queue),
    ("shared try_consume(1)", CALLS, consume),
    ("shared try_start, due", CALLS, start),
];

/// What is counted: `--toggle-collect` knows it by its name.
#[inline(never)]
fn measured(calls: u64, run: &mut impl FnMut(u64)) {
    run(calls);
    // So that the call above is not a jump.
    black_box(());
}

/// The path twice: what only a first use does is not counted.
fn counted(calls: u64, mut run: impl FnMut(u64)) -> Answer<()> {
    run(calls);
    measured(calls, &mut run);
    Ok(())
}

fn looped(calls: u64, mut one: impl FnMut()) -> Answer<()> {
    counted(calls, |calls| (0..calls).for_each(|_| one()))
}

/// A segment of its own, in a directory that goes when it is dropped.
struct Lab {
    directory: tempfile::TempDir,
}

impl Lab {
    fn new() -> Answer<Lab> {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
        Ok(Lab { directory })
    }

    fn location(&self) -> Location {
        Location::File(self.directory.path().join("counted"))
    }

    fn segment(&self, settings: &Settings) -> Answer<Segment> {
        let options = OpenOptions::new();
        Ok(Segment::create_or_open(&self.location(), settings, &options)?.0)
    }

    fn scheduler(&self, slots: u32) -> Answer<Scheduler> {
        let segment = self.segment(&Settings::new().concurrency(slots))?;
        Ok(segment.scheduler()?)
    }
}

fn nothing(calls: u64) -> Answer<()> {
    looped(calls, || {
        black_box(&());
    })
}

fn try_and_drop(scheduler: &Scheduler) {
    drop(black_box(scheduler).try_acquire(NORMAL).expect("room"));
}

fn shared_try(calls: u64) -> Answer<()> {
    let lab = Lab::new()?;
    let scheduler = lab.scheduler(ROOM)?;
    looped(calls, || try_and_drop(&scheduler))
}

fn observed_try(calls: u64) -> Answer<()> {
    let lab = Lab::new()?;
    let scheduler = lab.scheduler(ROOM)?;
    let mut observer = Observing::start(&lab.location())?;
    let before = observer.snapshots()?;
    looped(calls, || try_and_drop(&scheduler))?;
    let taken = observer.snapshots()? - before;
    observer.end()?;
    match taken {
        0..10 => Err(format!("only {taken} snapshots were taken meanwhile").into()),
        _ => Ok(()),
    }
}

fn local_try(calls: u64) -> Answer<()> {
    let scheduler = Scheduler::local(Concurrency::max(ROOM))?;
    looped(calls, || try_and_drop(&scheduler))
}

fn owned(calls: u64) -> Answer<()> {
    let lab = Lab::new()?;
    let scheduler = lab.scheduler(ROOM)?;
    looped(calls, || {
        drop(
            black_box(&scheduler)
                .try_acquire_owned(NORMAL)
                .expect("room"),
        );
    })
}

fn blocking(calls: u64) -> Answer<()> {
    let lab = Lab::new()?;
    let scheduler = lab.scheduler(ROOM)?;
    looped(calls, || {
        drop(
            black_box(&scheduler)
                .blocking_acquire(NORMAL)
                .expect("room"),
        );
    })
}

fn awaited(calls: u64) -> Answer<()> {
    let lab = Lab::new()?;
    let scheduler = lab.scheduler(ROOM)?;
    counted(calls, |calls| {
        block_on(async {
            for _ in 0..calls {
                drop(black_box(&scheduler).acquire(NORMAL).await.expect("room"));
            }
        })
    })
}

fn run(calls: u64) -> Answer<()> {
    let lab = Lab::new()?;
    let scheduler = lab.scheduler(ROOM)?;
    counted(calls, |calls| {
        block_on(async {
            for _ in 0..calls {
                let ran = black_box(&scheduler).run(|| ready(()), NORMAL).await;
                ran.expect("room");
            }
        })
    })
}

fn refused(calls: u64) -> Answer<()> {
    let lab = Lab::new()?;
    let scheduler = lab.scheduler(1)?;
    let _permit = scheduler.try_acquire(NORMAL)?;
    looped(calls, || {
        let refused = black_box(&scheduler).try_acquire(NORMAL);
        assert!(refused.is_err(), "the only slot is held");
    })
}

/// Queued behind one slot; then each releases to the next.
fn queue(calls: u64) -> Answer<()> {
    // The callbacks own what they use.
    let scheduler: &Scheduler = Box::leak(Box::new(Scheduler::local(1)?));
    counted(calls, |calls| {
        for _ in 0..calls / QUEUED {
            scheduler.acquire_with(|()| {}, NORMAL, ());
            for _ in 0..QUEUED {
                let step = |scheduler: &'static Scheduler| scheduler.release().expect("it is held");
                scheduler.acquire_with(step, NORMAL, scheduler);
            }
            scheduler.release().expect("it is held");
        }
    })
}

fn consume(calls: u64) -> Answer<()> {
    let lab = Lab::new()?;
    let segment = lab.segment(&Settings::new().rate(i32::MAX as u32))?;
    let limiter: Limiter = segment.limiter()?;
    looped(calls, || {
        black_box(&limiter).try_consume(1).expect("tokens")
    })
}

fn start(calls: u64) -> Answer<()> {
    let lab = Lab::new()?;
    // Due whenever somebody asks.
    let settings = Settings::new().interval(Duration::from_nanos(1));
    let pacer: Pacer = lab.segment(&settings)?.pacer()?;
    looped(calls, || black_box(&pacer).try_start().expect("due"))
}

/// Valgrind takes the vDSO out of the process. What `prctl` says of the auxiliary vector still points to it, and rustix
/// reads there (its issue 1559). A page of zeros in that place is no vDSO, so it makes system calls.
fn without_vdso() {
    const PR_GET_AUXV: i32 = 0x4155_5856;
    const AT_SYSINFO_EHDR: u64 = 33;
    let mut words = [0u64; 128];
    // SAFETY: it writes no more than it is told.
    let got = unsafe { libc::prctl(PR_GET_AUXV, words.as_mut_ptr(), size_of_val(&words), 0, 0) };
    let pairs = words.chunks_exact(2).take_while(|pair| pair[0] != 0);
    let vdso = pairs.filter(|pair| pair[0] == AT_SYSINFO_EHDR).last();
    if let (1.., Some([_, place])) = (got, vdso) {
        let (place, length, anonymous) = (*place as *mut _, 4_096, MapFlags::PRIVATE);
        // SAFETY: a mapping of its own, there if nothing is there, else anywhere.
        let _ = unsafe { mmap_anonymous(place, length, ProtFlags::READ, anonymous) };
    }
}

/// Another process that takes snapshots all the time; valgrind leaves it alone.
struct Observing {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
}

impl Observing {
    fn start(location: &Location) -> Answer<Observing> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--observe").arg(location.path());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let says = child.stdout.take().ok_or("no output")?;
        let says = BufReader::new(says);
        Ok(Observing { child, says })
    }

    /// How many it has taken so far.
    fn snapshots(&mut self) -> Answer<u64> {
        let ask = self.child.stdin.as_mut().ok_or("no input")?;
        ask.write_all(b"\n")?;
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line.trim().parse()?)
    }

    fn end(mut self) -> Answer<()> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

/// The other process's life; it ends when its parent is gone.
fn observe(path: &str) -> Answer<()> {
    let mut observer = Observer::open(&Location::File(path.into()))?;
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let mut taken = 0u64;
    loop {
        observer.snapshot()?;
        taken += 1;
        match asked.try_recv() {
            Ok(_) => println!("{taken}"),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

/// One path under callgrind: instructions per call.
fn count(&(name, calls, _): &Way, directory: &Path) -> Answer<f64> {
    let out = directory.join("out");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--tool=callgrind"]);
    valgrind.arg("--toggle-collect=instructions::measured*");
    valgrind.arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.arg(std::env::current_exe()?).args(["--way", name]);
    let ran = valgrind.stdin(Stdio::null()).output()?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(format!("{name}: {}\n{}", ran.status, said.trim_end()).into());
    }
    let text = fs::read_to_string(&out)?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals:"));
    let total: u64 = totals.ok_or("callgrind gave no total")?.trim().parse()?;
    if total < calls {
        return Err(format!("{name}: callgrind did not see it: {total} instructions").into());
    }
    Ok((total as f64 / calls as f64 * 10.0).round() / 10.0)
}

/// What the counts depend on, beside the source.
fn toolchain() -> Answer<String> {
    let said = |command: &mut Command| {
        let output = command.stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then_some(text)
    };
    let rustc = std::env::var("RUSTC").unwrap_or("rustc".into());
    let rustc = said(Command::new(rustc).arg("-vV")).ok_or("rustc does not say its version")?;
    let version = rustc.lines().next().unwrap_or_default();
    let libc = said(Command::new("getconf").arg("GNU_LIBC_VERSION"));
    let libc = libc.unwrap_or("unknown libc".into());
    let target = std::env::consts::ARCH;
    Ok(format!("{version}, {target}, {}", libc.trim()))
}

/// The committed counts.
struct Budget {
    toolchain: String,
    lines: Vec<(String, f64)>,
}

const HEADER: &str = "\
# Instructions per operation, counted by callgrind, its loop included. 2 % more are allowed, or one instruction.
# Written by scripts/instructions --update, checked by scripts/instructions.
";

impl Budget {
    fn read(path: &Path) -> Answer<Budget> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut budget = Budget {
            toolchain: String::new(),
            lines: Vec::new(),
        };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let damaged = || format!("{}: not a count and a name: {line}", path.display());
            match line.strip_prefix("toolchain: ") {
                Some(toolchain) => budget.toolchain = toolchain.into(),
                None => {
                    let (count, name) = line.trim().split_once("  ").ok_or_else(damaged)?;
                    let count = count.parse().map_err(|_| damaged())?;
                    budget.lines.push((name.into(), count));
                }
            }
        }
        Ok(budget)
    }

    fn write(path: &Path, toolchain: &str, counts: &[(&str, f64)]) -> Answer<()> {
        let mut text = format!("{HEADER}toolchain: {toolchain}\n");
        for (name, count) in counts {
            writeln!(text, "{count:8.1}  {name}")?;
        }
        Ok(fs::write(path, text)?)
    }

    fn was(&self, name: &str) -> Option<f64> {
        let line = self.lines.iter().find(|line| line.0 == name)?;
        Some(line.1)
    }
}

/// The most that is no regression.
fn at_most(was: f64) -> f64 {
    was + f64::max(was * 0.02, 1.0)
}

fn check(path: &Path, update: bool) -> Answer<bool> {
    let toolchain = toolchain()?;
    let budget = match update {
        true => None,
        false => Some(Budget::read(path)?),
    };
    let same = budget.as_ref().filter(|it| it.toolchain == toolchain);
    let directory = tempfile::tempdir()?;
    let (mut counts, mut flaws) = (Vec::new(), Vec::new());
    let mut fewer = false;
    println!("{:>8} {:>8}  path", "is", "was");
    for way in WAYS {
        let name = way.0;
        let was = same.and_then(|budget| budget.was(name));
        let mut is = count(way, directory.path())?;
        // A tick of the clock, or another thread, may have added to it.
        for _ in 0..2 {
            if was.is_some_and(|was| is > at_most(was)) {
                is = is.min(count(way, directory.path())?);
            }
        }
        counts.push((name, is));
        let told = was.map_or("-".into(), |was| format!("{was:.1}"));
        println!("{is:8.1} {told:>8}  {name}");
        match was {
            Some(was) if is > at_most(was) => flaws.push(format!(
                "{name}: was {was:.1} instructions, is {is:.1}, may be {:.1}",
                at_most(was)
            )),
            Some(was) if was > at_most(is) => fewer = true,
            None if same.is_some() => flaws.push(format!("{name}: not in {}", path.display())),
            _ => {}
        }
    }
    let of = |wanted: &str| counts.iter().find(|count| count.0 == wanted);
    if let (Some(alone), Some(observed)) = (of(SHARED), of(OBSERVED))
        && (alone.1 - observed.1).abs() > 0.1
    {
        flaws.push(format!(
            "{OBSERVED}: {:.1} instructions, {:.1} if nobody does",
            observed.1, alone.1
        ));
    }
    let unknown = |line: &&(String, f64)| of(&line.0).is_none();
    for (name, _) in same.iter().flat_map(|it| &it.lines).filter(unknown) {
        flaws.push(format!("{name}: in {}, but no path", path.display()));
    }
    if fewer {
        println!("some take fewer than the budget: scripts/instructions --update keeps that");
    }
    for flaw in &flaws {
        eprintln!("instructions: {flaw}");
    }
    if !flaws.is_empty() {
        eprintln!("instructions: if that is meant, scripts/instructions --update and say why");
    }
    if let (Some(budget), None) = (&budget, same) {
        let theirs = &budget.toolchain;
        println!("SKIPPED scripts/instructions: the budget is of {theirs}; this is {toolchain}");
    }
    if update && flaws.is_empty() {
        Budget::write(path, &toolchain, &counts)?;
    }
    Ok(flaws.is_empty())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["--way", name] => match WAYS.iter().find(|way| way.0 == name) {
            Some((_, calls, way)) => {
                without_vdso();
                way(*calls).map(|()| true)
            }
            None => Err(format!("no path '{name}'").into()),
        },
        ["--observe", path] => observe(path).map(|()| true),
        ["--check", path] => check(Path::new(path), false),
        ["--update", path] => check(Path::new(path), true),
        // `cargo bench` alone and `cargo test --benches` only want to see it start.
        _ => {
            println!("scripts/instructions runs this");
            Ok(true)
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::from(1)
        }
    }
}
