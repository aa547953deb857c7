//! Waiting and waking between commands: what the kernel sees, how long it takes, what ends a wait, what a crowd costs.

use crate::stage::{Crowd, HOLD, Job, SOON, Stage, command, strace_works, under};
use crate::support::{LONG, figure, median, skipped, until, within};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The futex calls of a trace on words of the segment, which it has mapped: `(all, those with the private flag)`.
fn futexes(trace: &Path, segment: &Path) -> (Vec<String>, usize) {
    let calls = futexes_so_far(trace, segment);
    let private = calls.iter().filter(|call| call.contains("PRIVATE")).count();
    (calls, private)
}

fn futexes_so_far(trace: &Path, segment: &Path) -> Vec<String> {
    let trace = std::fs::read_to_string(trace).unwrap_or_default();
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let mapped = format!("<{}>", segment.display());
    let ranges: Vec<(u64, u64)> = trace
        .lines()
        .filter(|line| line.contains("mmap(") && line.contains(&mapped))
        .filter_map(|line| {
            let length = line.split(", ").nth(1)?.parse::<u64>().ok()?;
            let from = hex(line.rsplit("= ").next()?.trim())?;
            Some((from, from + length))
        })
        .collect();
    trace
        .lines()
        .filter(|line| {
            let address = line
                .split("futex(")
                .nth(1)
                .and_then(|rest| hex(rest.split(',').next()?));
            address.is_some_and(|at| ranges.iter().any(|(from, to)| (*from..*to).contains(&at)))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn case_31_no_futex_call_on_the_segment_is_private() {
    if !strace_works() {
        skipped!("strace is missing or not permitted");
    }
    let stage = Stage::new(&["--concurrency", "1"]);
    let traced = |trace: &Path| {
        let arguments = [&["--"], &HOLD[..]].concat();
        let trace = trace.to_string_lossy();
        let wrapper = [
            "strace",
            "-f",
            "-y",
            "-qq",
            "-e",
            "trace=futex,mmap",
            "-o",
            &*trace,
        ];
        Job::start(&mut under(&wrapper, &stage.command("run", &arguments)))
    };
    let (one, two) = (stage.scene.path("one"), stage.scene.path("two"));
    let mut first = traced(&one);
    first.runs();
    let mut second = traced(&two);
    stage.in_line(1);
    // It sleeps now: the trace has a wait on the segment that has not returned.
    until(LONG, "asleep", || {
        let calls = futexes_so_far(&two, stage.segment());
        calls.iter().any(|call| call.contains("FUTEX_WAIT_BITSET"))
    });
    first.let_go();
    second.runs();
    second.let_go();
    first.wait(LONG).is(0);
    second.wait(LONG).is(0);
    let (waker, private) = futexes(&one, stage.segment());
    assert!(
        waker.iter().any(|call| call.contains("FUTEX_WAKE")),
        "{waker:#?}"
    );
    assert_eq!(private, 0, "{waker:#?}");
    let (waiter, private) = futexes(&two, stage.segment());
    assert!(
        waiter.iter().any(|call| call.contains("FUTEX_WAIT_BITSET")),
        "{waiter:#?}"
    );
    assert_eq!(private, 0, "{waiter:#?}");
    stage.quiet(1);
}

/// From the moment the holder's command is told to end until the next one's first byte arrives: a process ends, another
/// starts, and one wake between them. A fall-back on the timer of 100 ms would add 50 to the median. What a start takes
/// on this machine now is measured beside it.
fn hand_over(rounds: usize) {
    let stage = Stage::alone(&["--concurrency", "1"]);
    let mut worst = Duration::MAX;
    // A busy machine may spoil a whole series, not three.
    for _ in 0..3 {
        let mut times = Vec::with_capacity(rounds);
        let mut starts = Vec::with_capacity(rounds);
        let mut holder = stage.hold();
        for _ in 0..rounds {
            let begun = Instant::now();
            let mut bare = Job::start(command("sh").args(["-c", HOLD[2]]));
            bare.runs();
            starts.push(bare.first_byte().expect("it runs") - begun);
            drop(bare);
            let mut next = stage.job("run", &[&["--"], &HOLD[..]].concat());
            stage.in_line(1);
            let freed = Instant::now();
            holder.let_go();
            next.runs();
            let first = next.first_byte().expect("it runs");
            times.push(first.saturating_duration_since(freed));
            holder.wait(LONG).is(0);
            holder = next;
        }
        holder.let_go();
        holder.wait(LONG).is(0);
        times.sort_unstable();
        worst = times[rounds - 1];
        let (middle, start) = (median(&times), median(&starts));
        figure!(
            "hand-over: median {middle:?}, worst {worst:?} of {rounds}; a start alone {start:?}"
        );
        if middle < Duration::from_millis(15) + 3 * start {
            stage.quiet(1);
            return;
        }
    }
    panic!("slow hand-overs in three series; the worst of the last took {worst:?}");
}

#[test]
fn case_31_a_release_wakes_the_next_process() {
    hand_over(40);
}

#[test]
#[ignore = "for scripts/stress: 200 hand-overs"]
fn stress_case_31_a_release_wakes_the_next_process() {
    hand_over(200);
}

#[test]
fn case_47_signals_end_the_wait() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let mut holder = stage.hold();
    let signals = [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
    ];
    let mut waiters: Vec<(Job, i32)> = (0..20)
        .map(|i| {
            let file = stage.scene.path(&format!("F.{i}"));
            let job = stage.job("run", &["--", "touch", &file.to_string_lossy()]);
            (job, signals[i % signals.len()].1)
        })
        .collect();
    stage.in_line(20);
    let mut slowest = Duration::ZERO;
    for (i, (waiter, code)) in waiters.iter_mut().enumerate() {
        let sent = Instant::now();
        waiter.signal(signals[i % signals.len()].0);
        let ended = waiter.wait(LONG);
        slowest = slowest.max(sent.elapsed());
        assert_eq!(
            (ended.code(), ended.err.as_str()),
            (*code, ""),
            "who sent it knows"
        );
    }
    figure!("the slowest of 20 went after {slowest:?}");
    let seen = stage.inspect();
    assert_eq!(seen["scheduler"]["waiters"], 0);
    assert_eq!(seen["scheduler"]["cancelled"], 20);
    holder.let_go();
    holder.wait(LONG).is(0);
    stage.quiet(1);
    for i in 0..20 {
        let file = stage.scene.path(&format!("F.{i}"));
        assert!(!file.exists(), "queued work started during the shutdown");
    }
}

#[test]
fn case_47_a_timeout_is_neither_shortened_nor_lengthened() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let _holder = stage.hold();
    let words = stage.words();
    for options in [
        &["--timeout", "500ms"][..],
        &["--timeout", "0.5s", "-E", "9"],
    ] {
        // Whether it was seen in line, and gone soon after its time.
        let timely = || {
            let mut waiter = stage.job("run", &[options, &["--", "true"]].concat());
            let (begun, mut stood) = (Instant::now(), false);
            // All the while: if each began the time anew, it would wait for ever.
            while waiter.poll().is_none() && begun.elapsed() < LONG {
                for signal in [Signal::WINCH, Signal::CHILD, Signal::CONT] {
                    waiter.signal(signal);
                    std::thread::sleep(Duration::from_millis(8));
                }
                stood |= words.waiters() == 1;
            }
            let ended = waiter.wait(Duration::ZERO);
            ended
                .is(if options.len() == 2 { 124 } else { 9 })
                .one_line();
            figure!("500 ms took {:?}", ended.took);
            assert!(ended.took >= Duration::from_millis(500), "{:?}", ended.took);
            stood && ended.took < Duration::from_millis(850)
        };
        assert!((0..3).any(|_| timely()), "late each time");
    }
    // At once, if there is nothing to wait for.
    let begun = Instant::now();
    stage
        .call("run", &["--timeout", "0ms", "--", "true"])
        .is(124);
    stage
        .call("run", &["--no-wait", "--timeout", "1s", "--", "true"])
        .is(64);
    assert!(begun.elapsed() < SOON);
    assert_eq!(stage.inspect()["scheduler"]["waiters"], 0);
}

/// Processor time of all that this process has waited for, and of theirs.
fn spent_by_the_ended() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("our own");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .expect("a name")
        .split_whitespace()
        .collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("ticks");
    // cutime and cstime, counted from the state.
    let ticks = ticks(13) + ticks(14);
    Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second())
}

/// Processor time and voluntary switches of all threads of a process.
fn usage(pid: u32) -> (Duration, u64) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut sum = (Duration::ZERO, 0);
    for task in tasks.into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let spent = read("schedstat");
        let spent = spent.split(' ').next().and_then(|ns| ns.parse().ok());
        sum.0 += Duration::from_nanos(spent.unwrap_or(0));
        let status = read("status");
        let switches = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .and_then(|count| count.trim().parse::<u64>().ok());
        sum.1 += switches.unwrap_or(0);
    }
    sum
}

/// So many commands wait for one slot: what they cost while they come, wait and go.
fn stampede(count: usize, idle: Duration) {
    let stage = Stage::alone(&["--concurrency", "1"]);
    let words = stage.words();
    let mut holder = stage.hold();
    let spent = spent_by_the_ended();

    let begun = Instant::now();
    let mut crowd = Crowd::start(count, || stage.command("run", &["--", "true"]));
    let started = begun.elapsed();
    within(LONG, || match words.waiters() as usize {
        waiting if waiting == count => Ok(()),
        waiting => Err(format!("{waiting} of {count} wait")),
    });
    let attached = begun.elapsed();
    assert!(
        attached < Duration::from_secs(5) + 3 * started,
        "all attached after {attached:?}, started within {started:?}"
    );

    // All that just came settle: the helpers go to sleep. Who stands still meanwhile does so in the time that is measured,
    // and then another is.
    let mut tries = 0;
    let (switches, percent) = loop {
        tries += 1;
        std::thread::sleep(Duration::from_millis(300));
        let before: Vec<(Duration, u64)> = crowd.0.iter().map(|child| usage(child.id())).collect();
        std::thread::sleep(idle);
        let mut switches = Vec::new();
        let mut busy = Duration::ZERO;
        for (child, before) in crowd.0.iter().zip(&before) {
            let after = usage(child.id());
            busy += after.0.saturating_sub(before.0);
            switches.push(after.1.saturating_sub(before.1));
        }
        switches.sort_unstable();
        let percent = busy.as_secs_f64() / idle.as_secs_f64() * 100.0;
        // Tight: 1 %, 4 wake-ups in ten seconds.
        if percent < 3.0 && switches[count - 3] <= 4 || tries == 3 {
            break (switches, percent);
        }
    };
    let (others, watchers) = switches.split_at(count - 2);

    let rung = words.rings();
    let begun = Instant::now();
    holder.let_go();
    holder.wait(LONG).is(0);
    let codes = crowd.codes(Duration::from_secs(60));
    let drained = begun.elapsed();
    assert!(codes.iter().all(|code| *code == 0), "{codes:?}");
    let rings = (words.rings() - rung) as f64 / (count + 1) as f64;
    let spent = spent_by_the_ended() - spent;
    figure!(
        "{count}: attached after {attached:?} (started within {started:?}); {percent:.2} % of a core in {idle:?}, \
         woken {watchers:?} and at most {:?}; drained in {drained:?}, {rings:.2} wakes per release, {spent:?} in all",
        others.last()
    );
    // Tight: 3 wakes, 15 s for 300.
    assert!(percent < 3.0, "{percent} % of a core while they wait");
    assert!(others.iter().all(|times| *times <= 4), "{switches:?}");
    assert!(rings <= 3.0, "{rings} wakes per release");
    assert!(
        spent < Duration::from_millis(50) * 2 * count as u32,
        "{spent:?}"
    );
    stage.quiet(1);
}

#[test]
fn case_50_a_crowd_waits_for_one_slot() {
    stampede(60, Duration::from_secs(3));
}

#[test]
#[ignore = "for scripts/stress: 300 processes"]
fn stress_case_50_a_crowd_waits_for_one_slot() {
    stampede(300, Duration::from_secs(10));
}

#[test]
fn case_50_a_crowd_attaches_at_once() {
    let stage = Stage::alone(&["--concurrency", "unlimited", "--members", "256"]);
    // A line of sight: each waits for the starting signal, the end of a pipe that all inherit.
    let (gun, start) = std::io::pipe().expect("a pipe");
    let mut crowd = Crowd(Vec::new());
    for _ in 0..60 {
        let inner = stage.command("run", &["--", "true"]);
        let mut outer: Command = under(&["sh", "-c", "read gun; exec \"$@\"", "sh"], &inner);
        let child = outer
            .stdin(gun.try_clone().expect("a copy"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        crowd.0.push(child.expect("one of the crowd"));
    }
    drop(gun);
    let begun = Instant::now();
    drop(start);
    let codes = crowd.codes(LONG);
    figure!("60 attached, ran and left within {:?}", begun.elapsed());
    assert!(codes.iter().all(|code| *code == 0), "{codes:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    let seen = stage.inspect();
    assert_eq!(seen["scheduler"]["admitted"], 60);
    assert_eq!(seen["segment"]["members"]["used"], 0);
}
