//! Real streams: two archives of the Rust toolchain go through two `shmsched pipe` at one shared rate, one to a reader and
//! one into a file. The latter's pipe is killed half-way.
//!
//! What was killed goes on where its file ends, as a download does: the archive is the same each time, and the file says
//! how much of it has arrived. So every byte is paid once, which the segment's count shows to within what the killed one
//! had in hand.
//!
//! The recorder is independent of our counters: it counts and hashes what arrives.

#![cfg(feature = "cli")]

#[path = "../support/mod.rs"]
mod support;

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::{Chance, LONG, Scene, figure, until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_shmsched");

/// What one archive should hold: enough, not everything.
const ENOUGH: u64 = 85_000_000;

/// So small a toolchain that nothing can be measured.
const TOO_LITTLE: u64 = 10_000_000;

/// How long both archives take at the shared rate, but for the full bucket at the start.
const SECONDS: u64 = 9;

/// An archive of some files.
struct Tar {
    root: PathBuf,
    list: PathBuf,
    size: u64,
    digest: String,
}

impl Tar {
    /// Regular files below `root` in a fixed order, until it is enough; `None` if tar(1) cannot archive them.
    fn new(root: &Path, list: PathBuf) -> Option<Tar> {
        let mut text = String::new();
        let mut size = 0;
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop().filter(|_| size < ENOUGH) {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            entries.sort();
            for path in entries {
                let Ok(about) = fs::symlink_metadata(&path) else {
                    continue;
                };
                if about.is_dir() {
                    folders.push(path);
                } else if about.is_file() && size + about.len() < ENOUGH * 11 / 10 {
                    size += about.len();
                    let name = path.strip_prefix(root).expect("below it");
                    text += &format!("{}\n", name.to_str()?);
                }
            }
        }
        fs::write(&list, text).expect("a list");
        let root = root.to_owned();
        let digest = String::new();
        let mut tar = Tar {
            root,
            list,
            size,
            digest,
        };
        let mut child = tar.command().stdout(Stdio::piped()).spawn().ok()?;
        let stream = child.stdout.take().expect("piped");
        let arrived = Arrivals::of(stream, &AtomicU64::new(0));
        tar.size = arrived.times.iter().map(|(_, count)| count).sum();
        tar.digest = arrived.digest;
        child.wait().ok()?.success().then_some(tar)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tar");
        command.arg("-C").arg(&self.root).arg("-T").arg(&self.list);
        command.args(["-c", "-f", "-"]).stdin(Stdio::null());
        command
    }
}

/// What came out, and when.
struct Arrivals {
    digest: String,
    times: Vec<(Instant, u64)>,
}

impl Arrivals {
    fn of(mut stream: impl Read, count: &AtomicU64) -> Arrivals {
        let mut digest = Sha256::new();
        let mut times = Vec::new();
        let mut piece = vec![0; 1 << 16];
        loop {
            let read = stream.read(&mut piece).expect("a pipe");
            if read == 0 {
                break;
            }
            times.push((Instant::now(), read as u64));
            count.fetch_add(read as u64, Ordering::SeqCst);
            digest.update(&piece[..read]);
        }
        let digest = format!("{:x}", digest.finalize());
        Arrivals { digest, times }
    }

    /// The longest time without any, and how many bytes there were.
    fn between(&self, begin: Instant, end: Instant) -> (Duration, u64) {
        let mut last = begin;
        let (mut longest, mut bytes) = (Duration::ZERO, 0);
        for (when, count) in &self.times {
            if (begin..end).contains(when) {
                longest = longest.max(*when - last);
                last = *when;
                bytes += count;
            }
        }
        (longest.max(end - last), bytes)
    }
}

/// `tar | shmsched pipe S`, or without the first bytes of the archive. Killed when it is dropped.
struct Stream {
    feeders: Vec<Child>,
    pipe: Child,
}

impl Stream {
    fn start(tar: &Tar, without: u64, segment: &Path, output: Stdio) -> Stream {
        let mut feeders = Vec::new();
        let feed = |command: &mut Command, feeders: &mut Vec<Child>| {
            // A tar whose reader is killed says so.
            let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().expect("a feeder");
            let stdout = child.stdout.take().expect("piped");
            feeders.push(child);
            Stdio::from(stdout)
        };
        let mut archive = feed(&mut tar.command(), &mut feeders);
        if without > 0 {
            let mut tail = Command::new("tail");
            tail.args(["-c", &format!("+{}", without + 1)]);
            archive = feed(tail.stdin(archive), &mut feeders);
        }
        let mut pipe = Command::new(PROGRAM);
        pipe.arg("pipe").arg(segment).stdin(archive).stdout(output);
        let pipe = pipe.spawn().expect("shmsched pipe");
        Stream { feeders, pipe }
    }

    fn output(&mut self) -> ChildStdout {
        self.pipe.stdout.take().expect("piped")
    }

    /// All of it ends well.
    fn ends(mut self) {
        let status = self.pipe.wait().expect("shmsched pipe");
        assert!(status.success(), "{status}");
        for feeder in &mut self.feeders {
            let status = feeder.wait().expect("a feeder");
            assert!(status.success(), "{status}");
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        for child in self.feeders.iter_mut().chain([&mut self.pipe]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn shmsched(arguments: &[&str], segment: &Path) -> Vec<u8> {
    let mut command = Command::new(PROGRAM);
    let done = command.args(arguments).arg(segment).output();
    let done = done.expect("shmsched");
    assert!(done.status.success(), "{arguments:?}: {done:?}");
    done.stdout
}

fn limiter(segment: &Path) -> Value {
    let json = shmsched(&["inspect", "--json"], segment);
    let seen: Value = serde_json::from_slice(&json).expect("json");
    seen["limiter"].clone()
}

fn figure_of(limiter: &Value, name: &str) -> u64 {
    limiter[name].as_u64().expect("a number")
}

/// What had been paid for, and what had arrived, each with its moment.
struct Snapshot {
    consumed: (Instant, u64),
    received: (Instant, u64),
}

impl Snapshot {
    fn take(segment: &Path, received: impl Fn() -> u64) -> Snapshot {
        // A look of which it is not clear when it was is of no use.
        let look = || {
            let begun = Instant::now();
            let consumed = figure_of(&limiter(segment), "consumed");
            let took = begun.elapsed();
            (took, begun + took / 2, consumed)
        };
        let (_, when, consumed) = (0..5)
            .map(|_| look())
            .min_by_key(|(took, _, _)| *took)
            .expect("five");
        // Nor is a count whose moment is not clear.
        let count = || {
            let begun = Instant::now();
            let count = received();
            (begun.elapsed(), begun, count)
        };
        let (_, counted, received) = (0..5)
            .map(|_| count())
            .min_by_key(|(took, _, _)| *took)
            .expect("five");
        Snapshot {
            consumed: (when, consumed),
            received: (counted, received),
        }
    }
}

/// A rate between two moments, as a share of another.
fn share(from: (Instant, u64), to: (Instant, u64), rate: u64) -> f64 {
    (to.1 - from.1) as f64 / (to.0 - from.0).as_secs_f64() / rate as f64
}

fn archives(scene: &Scene) -> Result<[Tar; 2], &'static str> {
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let told = Command::new(rustc).args(["--print", "sysroot"]).output();
    let told = told.ok().filter(|told| told.status.success());
    let told = told.ok_or("no rustc to ask for the toolchain")?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&told.stdout).trim());
    let archive = |folder: &str, list: &str| {
        let tar = Tar::new(&sysroot.join(folder), scene.path(list));
        let tar = tar.ok_or("no tar(1) that archives the toolchain")?;
        let enough = tar.size >= TOO_LITTLE;
        enough.then_some(tar).ok_or("the toolchain is too small")
    };
    Ok([archive("bin", "read")?, archive("lib/rustlib", "filed")?])
}

#[test]
fn two_archives_share_a_rate_and_one_is_killed() {
    killed_on_the_way(1, Duration::from_secs(1));
}

#[test]
#[ignore = "for scripts/stress"]
fn stress_two_archives_share_a_rate_and_one_is_killed_often() {
    for _ in 0..10 {
        killed_on_the_way(10, Duration::from_millis(30));
    }
}

/// The one that files is killed so often until half of it is there, each time at a moment that nobody chooses, and goes on
/// after a pause.
fn killed_on_the_way(kills: u32, pause: Duration) {
    const SECOND: Duration = Duration::from_secs(1);
    let scene = Scene::alone();
    let [read, filed] = match archives(&scene) {
        Ok(archives) => archives,
        Err(why) => {
            let _ = writeln!(io::stderr(), "SKIPPED tars: {why}");
            return;
        }
    };
    let rate = 2 * read.size.min(filed.size) / SECONDS;
    let chunk = (rate / 20).min(1 << 20);
    let (segment, file) = (scene.path("S"), scene.path("file"));
    shmsched(&["create", "--rate", &rate.to_string()], &segment);

    let mut chance = Chance::new();
    let begun = Instant::now();
    let mut reading = Stream::start(&read, 0, &segment, Stdio::piped());
    let arrived = Arc::new(AtomicU64::new(0));
    let arrivals: JoinHandle<Arrivals> = {
        let (output, arrived) = (reading.output(), Arc::clone(&arrived));
        thread::spawn(move || Arrivals::of(output, &arrived))
    };
    let created = File::create(&file).expect("a file");
    let mut filing = Stream::start(&filed, 0, &segment, created.into());
    let in_file = || fs::metadata(&file).expect("a file").len();
    let received = || arrived.load(Ordering::SeqCst) + in_file();

    // The bucket is full at the start: the rate holds once that is used up.
    until(LONG, "an empty bucket", || {
        limiter(&segment)["tokens"].as_i64().expect("a number") <= 2 * chunk as i64
    });
    let first = Snapshot::take(&segment, received);
    let mut killed = Vec::new();
    for kill in 1..=kills {
        until(LONG, "the next part", || {
            in_file() >= filed.size / 2 / u64::from(kills) * u64::from(kill)
        });
        thread::sleep(Duration::from_nanos(chance.below(100_000_000)));
        killed.push(Instant::now());
        filing.pipe.kill().expect("kill");
        // Reaps it: nobody writes any more.
        drop(filing);
        let there = in_file();
        thread::sleep(pause);
        let appended = OpenOptions::new().append(true).open(&file).expect("a file");
        filing = Stream::start(&filed, there, &segment, appended.into());
    }
    until(LONG, "nearly an end", || {
        arrived.load(Ordering::SeqCst) + 3 * chunk >= read.size
            || in_file() + 3 * chunk >= filed.size
    });
    let last = Snapshot::take(&segment, received);
    reading.ends();
    filing.ends();
    let arrivals = arrivals.join().expect("a reader");
    let took = begun.elapsed();

    let paid = share(first.consumed, last.consumed, rate);
    let got = share(first.received, last.received, rate);
    let window = last.received.0 - first.received.0;
    figure!(
        "{} and {} bytes at {rate} a second in {took:.1?}; in {window:.1?}, of the rate: paid {paid:.4}, received {got:.4}",
        read.size,
        filed.size
    );
    let after = killed.iter().map(|at| arrivals.between(*at, *at + SECOND));
    let (gap, bytes_after) = after.max().expect("a kill");
    let before = arrivals.times[0].0.max(killed[0] - SECOND);
    let (usual, bytes_before) = arrivals.between(before, killed[0]);
    figure!(
        "{kills} killed: the other was quiet for {gap:.0?} at most, {usual:.0?} before; {bytes_after} bytes in that second, {bytes_before} in at most one before"
    );
    let ended = limiter(&segment);
    let consumed = figure_of(&ended, "consumed");
    let in_hand = consumed as i64 - (read.size + filed.size) as i64;
    figure!("{in_hand} bytes were paid and did not move; {ended}");

    assert_eq!(arrivals.digest, read.digest, "what was read");
    let stored = File::open(&file).expect("a file");
    let stored = Arrivals::of(stored, &AtomicU64::new(0));
    assert_eq!(stored.digest, filed.digest, "what was filed");
    assert!((0.98..=1.02).contains(&paid), "{paid}");
    // Less what the killed ones had in hand.
    let in_hand_share = in_hand as f64 / rate as f64 / window.as_secs_f64();
    assert!((0.98..=1.02).contains(&(got + in_hand_share)), "{got}");
    // Tight: 300 ms.
    assert!(gap < Duration::from_millis(900), "{gap:?}");
    if pause >= SECOND {
        assert!(bytes_after > bytes_before, "it has the rate to itself");
    }
    let at_most = i64::from(kills) * chunk as i64;
    assert!((0..=at_most).contains(&in_hand), "{in_hand}");
    let lanes = ended["queued"].as_object().expect("lanes");
    assert!(lanes.values().all(|lane| lane == 0), "{ended}");
}
