//! A real job set: 64 processes at a time compress and hash real files of this repository and of the toolchain, under a
//! budget of 4 with mixed priorities, while a tenth of them are killed and started again.
//!
//! The recorder is independent of our counters: each unit stamps its begin and its end into a log. A unit is a process
//! under `shmsched run` that starts a command, the compressor, and has ended when that command was waited for. The
//! results must equal those of a serial run, and never more than 4 units may have been open at once.

#![cfg(feature = "cli")]

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const BUDGET: i64 = 4;
const PROCESSES: usize = 64;
const ROLE: &str = "SHMSCHED_JOB_ROLE";
const FILE: &str = "SHMSCHED_JOB_FILE";
const OUT: &str = "SHMSCHED_JOB_OUT";
const LOG: &str = "SHMSCHED_JOB_LOG";

fn now() -> u128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u128 * 1_000_000_000 + time.tv_nsec as u128
}

fn stamp(log: &Path, what: char, pid: u32) {
    let mut file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .expect("the log");
    // One write of one line: appends do not mix.
    file.write_all(format!("{what} {} {pid}\n", now()).as_bytes())
        .expect("the log");
}

/// What the job is: the digest of the file, and of its compressed bytes.
fn job(file: &Path) -> String {
    let bytes = fs::read(file).expect("a file of the job set");
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(&bytes).expect("memory");
    let packed = packer.finish().expect("memory");
    format!(
        "{:x} {:x} {}",
        Sha256::digest(&bytes),
        Sha256::digest(&packed),
        packed.len()
    )
}

/// The children of this test, by role.
#[test]
#[ignore = "a role of the other test"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let path = |name: &str| PathBuf::from(std::env::var_os(name).expect(name));
    match role.as_str() {
        "unit" => {
            let log = path(LOG);
            stamp(&log, 'S', std::process::id());
            let done = this_program("compress").status().expect("the compressor");
            stamp(&log, 'E', std::process::id());
            assert!(done.success());
        }
        "compress" => {
            let out = path(OUT);
            // Under another name first: a killed one leaves nothing half written under the right one.
            let half = out.with_extension(format!("half{}", std::process::id()));
            fs::write(&half, job(&path(FILE))).expect("the result");
            fs::rename(&half, &out).expect("the result");
        }
        other => panic!("no role {other}"),
    }
}

fn this_program(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(ROLE, role);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Regular files below `root`, smallest names first, no larger than a megabyte.
fn files(root: &Path, most: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
            .collect();
        entries.sort();
        for path in entries {
            let Ok(about) = fs::symlink_metadata(&path) else {
                continue;
            };
            let hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if about.is_dir() && !hidden && path.file_name() != Some("target".as_ref()) {
                folders.push(path);
            } else if about.is_file() && about.len() > 0 && about.len() <= 1 << 20 {
                found.push(path);
            }
        }
    }
    found.truncate(most);
    found
}

fn job_set() -> Vec<PathBuf> {
    let mut set = files(Path::new(env!("CARGO_MANIFEST_DIR")), 120);
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    match Command::new(rustc).args(["--print", "sysroot"]).output() {
        Ok(told) if told.status.success() => {
            let sysroot = String::from_utf8_lossy(&told.stdout).trim().to_owned();
            set.extend(files(&Path::new(&sysroot).join("lib"), 72));
        }
        _ => println!("SKIPPED part of jobs: no rustc to ask for the toolchain's files"),
    }
    set
}

/// Largest number of units open at once. One that was killed ends at the supervisor's `K`.
fn peak(log: &Path) -> i64 {
    let text = fs::read_to_string(log).expect("the log");
    let mut ends: BTreeMap<&str, u128> = BTreeMap::new();
    let mut begins: Vec<(&str, u128)> = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (what, time, pid) = (
            words.next().unwrap(),
            words.next().unwrap().parse().unwrap(),
            words.next().unwrap(),
        );
        match what {
            "S" => begins.push((pid, time)),
            _ => {
                ends.entry(pid).or_insert(time);
            }
        }
    }
    let mut events: Vec<(u128, i64)> = Vec::new();
    for (pid, begin) in begins {
        events.push((begin, 1));
        let end = *ends
            .get(pid)
            .unwrap_or_else(|| panic!("unit {pid} never ended"));
        events.push((end, -1));
    }
    events.sort_unstable();
    let (mut open, mut most) = (0, 0);
    for (_, change) in events {
        open += change;
        most = most.max(open);
    }
    most
}

/// The process tree below `pid`, itself first.
fn tree(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        let children =
            fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        all.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
        at += 1;
    }
    all
}

#[test]
fn a_real_job_set_under_a_budget_of_four_with_kills() {
    let directory = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory");
    let (segment, log) = (directory.path().join("jobs"), directory.path().join("log"));
    let results = directory.path().join("results");
    fs::create_dir(&results).expect("a directory");
    let shmsched = env!("CARGO_BIN_EXE_shmsched");
    let made = Command::new(shmsched)
        .arg("create")
        .arg(&segment)
        .args(["--concurrency", "4"])
        .status()
        .unwrap();
    assert!(made.success());

    let set = job_set();
    assert!(set.len() >= PROCESSES, "only {} files", set.len());
    let next = AtomicUsize::new(0);
    let kills = Mutex::new((0usize, 0usize));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = set.get(at) else { return };
                    // Each tenth is killed once: in turn the whole tree, or `run` alone, whose command goes on.
                    let mut to_kill = at % 10 == 3;
                    loop {
                        let unit = this_program("unit");
                        let mut run = Command::new(shmsched);
                        run.arg("run")
                            .arg("-p")
                            .arg(["low", "normal", "high", "-3", "2"][at % 5]);
                        run.arg(&segment)
                            .arg("--")
                            .arg(unit.get_program())
                            .args(unit.get_args());
                        run.env(ROLE, "unit")
                            .env(FILE, file)
                            .env(OUT, results.join(at.to_string()))
                            .env(LOG, &log);
                        run.stdin(Stdio::null())
                            .stdout(Stdio::null())
                            .process_group(0);
                        let mut run = run.spawn().expect("shmsched run");
                        if !to_kill {
                            let status = run.wait().expect("shmsched run");
                            assert!(status.success(), "{file:?}: {status}");
                            break;
                        }
                        to_kill = false;
                        std::thread::sleep(Duration::from_millis(at as u64 * 37 % 400));
                        if at % 20 == 3 {
                            let victims = tree(run.id());
                            // Stopped first, so that nobody stamps or forks between the list and the kill.
                            for pid in &victims {
                                let pid = rustix::process::Pid::from_raw(*pid as i32).unwrap();
                                let _ = rustix::process::kill_process(
                                    pid,
                                    rustix::process::Signal::STOP,
                                );
                            }
                            let group = rustix::process::Pid::from_raw(run.id() as i32).unwrap();
                            for pid in tree(run.id()) {
                                stamp(&log, 'K', pid);
                            }
                            let _ = rustix::process::kill_process_group(
                                group,
                                rustix::process::Signal::KILL,
                            );
                            kills.lock().unwrap().0 += 1;
                        } else {
                            run.kill().expect("kill");
                            kills.lock().unwrap().1 += 1;
                        }
                        run.wait().expect("shmsched run");
                    }
                }
            });
        }
    });
    let took = begun.elapsed();

    // Units whose `run` was killed alone may still be going on, with their slots.
    let idle = Command::new(shmsched)
        .arg("wait")
        .arg(&segment)
        .args(["--timeout", "60s"])
        .status()
        .unwrap();
    assert!(idle.success(), "the segment did not get quiet");
    let most = peak(&log);
    let (trees, alone) = *kills.lock().unwrap();
    println!(
        "{} files by {PROCESSES} processes in {took:?}: {most} at once; {trees} trees and {alone} runs killed",
        set.len()
    );
    assert!(most <= BUDGET, "{most} units at once");
    assert_eq!(most, BUDGET, "the budget was never used up");
    for (at, file) in set.iter().enumerate() {
        let result = fs::read_to_string(results.join(at.to_string())).expect("a result");
        assert_eq!(result, job(file), "{file:?}");
    }
    // Exactly the budget is there again.
    let together = Command::new(shmsched)
        .arg("run")
        .args(["--slots", "4", "--no-wait"])
        .arg(&segment)
        .args(["--", "true"])
        .status()
        .unwrap();
    assert!(together.success());
}
