//! What the kernel sees, by `strace`.

use crate::puppet::Puppet;
use crate::support::{Args, Child, LONG, Scene, Words, now, quiet, say, skipped, until};
use shmsched::{AcquireError, Priority, Segment};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn strace_works() -> bool {
    let tried = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "-e", "trace=futex", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

#[test]
fn case_31_no_futex_call_on_a_segment_word_is_private() {
    if !strace_works() {
        skipped!("strace is missing or not permitted");
    }
    let scene = Scene::new();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let out = scene.path("trace");
    let file = out.to_string_lossy().into_owned();
    let wrapper = ["strace", "-f", "-qq", "-e", "trace=futex", "-o", &file];
    let mut traced = Puppet::under(&wrapper, &location);
    let mut other = Puppet::new(&location);
    let maps = traced.ask("maps");
    // It waits by a thread and by a task, is woken, and wakes another: more often than need be, since who stands still for
    // longer than the 20 ms does not sleep when it is served.
    for how in ["wait", "task", "wait", "task", "wait", "task"] {
        other.take("one", 1);
        traced.ask(&format!("{how} w 3 1"));
        until(LONG, "in line", || words.waiters() == 1);
        std::thread::sleep(Duration::from_millis(20));
        other.drop("one");
        traced.got("w");
        other.wait("w", 3, 1);
        until(LONG, "in line", || words.waiters() == 1);
        traced.drop("w");
        other.got("w");
        other.drop("w");
    }
    traced.0.tell("leave");
    traced.0.finish();
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let ranges: Vec<(u64, u64)> = maps
        .split(' ')
        .map(|range| {
            let (from, to) = range.split_once('-').unwrap();
            (hex(from), hex(to))
        })
        .collect();
    let trace = std::fs::read_to_string(&out).unwrap();
    let ours: Vec<&str> = trace
        .lines()
        .filter(|line| {
            let address = line
                .split("futex(")
                .nth(1)
                .and_then(|rest| rest.split(',').next());
            address.is_some_and(|address| {
                let address = hex(address);
                ranges
                    .iter()
                    .any(|(from, to)| (*from..*to).contains(&address))
            })
        })
        .collect();
    let having = |what: &str| ours.iter().filter(|line| line.contains(what)).count();
    assert!(having("FUTEX_WAIT_BITSET") >= 2, "{ours:#?}");
    assert!(having("FUTEX_WAKE_BITSET") >= 2, "{ours:#?}");
    assert_eq!(having("PRIVATE"), 0, "{ours:#?}");
    quiet(&location, 1);
}

/// Role: PATH. Waits 400 ms in vain, then until it is served. No thread beside it is woken by a futex, which would miss
/// the injected ones.
pub fn vain(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let wait = Duration::from_millis(400);
    let begun = Instant::now();
    let vain = scheduler
        .blocking_acquire_until(1, Priority::Normal, wait)
        .map(drop);
    assert_eq!(vain, Err(AcquireError::TimedOut));
    assert!(begun.elapsed() >= wait, "{:?}", begun.elapsed());
    say("in_vain");
    let served = scheduler
        .blocking_acquire_until(1, Priority::Normal, LONG)
        .map(drop);
    assert_eq!(served, Ok(()));
    say(format!("got {}", now()));
}

/// Every second futex call answers EAGAIN or EINTR without having waited: no grant, no time-out before its time.
#[test]
fn case_53_spurious_answers_mean_nothing() {
    if !strace_works() {
        skipped!("strace is missing or not permitted");
    }
    for error in ["EAGAIN", "EINTR"] {
        let scene = Scene::new();
        let location = scene.segment(1);
        let words = Words::of(&location);
        let inject = format!("inject=futex:error={error}:when=1+2");
        let wrapper = [
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=futex",
            "-e",
            &inject,
        ];
        let mut other = Puppet::new(&location);
        other.take("one", 1);
        let path = location.path();
        let mut traced = Child::start_under(&wrapper, "vain", &[&path.to_string_lossy()]);
        traced.expect("in_vain");
        until(LONG, "in line", || words.waiters() == 1);
        assert_eq!(
            traced.expect_within("got", Duration::from_millis(300)),
            None,
            "an early grant"
        );
        let freed = other.drop("one");
        assert!(traced.expect("got").parse::<u64>().unwrap() >= freed);
        // What libtest still waits for may have been woken in vain.
        traced.kill();
        quiet(&location, 1);
    }
}
