//! Case 51: who holds it, leftovers, full tables, closed descriptors.

use crate::stage::{
    Crowd, HOLD, Job, PIDS, PROGRAM, SOON, Stage, catches, command, ended, shmsched, state, under,
    unshare, works,
};
use crate::support::{
    Args, Chance, Child, LONG, figure, hear, quiet_within, say, skipped, until, within,
};
use rustix::process::{Pid, Signal, kill_process_group};
use shmsched::{Priority, Segment};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// What somebody who waits is told of the holder.
#[track_caller]
fn told(stage: &Stage) -> String {
    let mut waiter = stage.job("run", &["-v", "--", "true"]);
    let line = within(LONG, || match waiter.err() {
        text if text.ends_with('\n') => Ok(text),
        text => {
            assert_eq!(waiter.poll(), None, "it waits: {text}");
            Err("it says nothing")
        }
    });
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(
        line.contains("waiting for 1 slot, 1 of 1 taken; held by pid "),
        "{line}"
    );
    waiter.signal(Signal::TERM);
    waiter.wait(LONG).is(143);
    line
}

#[test]
fn case_51a_a_waiter_says_who_holds_it() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let mut holder = stage.hold();
    let begun = Instant::now();
    let line = told(&stage);
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "not at once: {:?}",
        begun.elapsed()
    );
    let owner = format!(
        "held by pid {} 'sh -c echo in; exec cat' for ",
        holder.pid()
    );
    assert!(line.contains(&owner), "{line}");
    // A stopped one.
    holder.signal(Signal::STOP);
    until(LONG, "stopped", || state(holder.pid()) == Some('T'));
    assert!(told(&stage).contains("(stopped)"));
    holder.signal(Signal::CONT);
    // Its run killed: the one who inherited the descriptor is named. It is the command, which became cat.
    holder.kill();
    let line = told(&stage);
    assert!(
        line.contains("'cat' for ") && line.contains("its run was killed"),
        "{line}"
    );
    let pid = line
        .split("held by pid ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let name = std::fs::read_to_string(format!("/proc/{}/comm", pid.expect("a pid")));
    assert_eq!(name.expect("it lives"), "cat\n");
    holder.let_go();
    drop(holder);
    quiet_within(LONG, &stage.location(), 1);
}

#[test]
fn case_51a_a_holder_of_another_namespace_is_marked() {
    let Some(pids) = unshare(&PIDS) else {
        skipped!("unshare --pid is not permitted");
    };
    let stage = Stage::new(&["--concurrency", "1"]);
    let hold = stage.command("run", &[&["--"], &HOLD[..]].concat());
    let mut holder = Job::start(&mut under(&pids, &hold));
    holder.runs();
    let line = told(&stage);
    assert!(
        line.contains("held by pid 1 'sh -c ") && line.contains("(other pid namespace)"),
        "{line}"
    );
    holder.let_go();
    holder.wait(LONG).is(0);
    stage.quiet(1);
}

/// Without -v nobody is told, but for people at a terminal.
#[test]
fn case_51a_only_a_terminal_is_told_unasked() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let mut holder = stage.hold();
    let mut silent = stage.job("run", &["--timeout", "1500ms", "-E", "0", "--", "true"]);
    if works(&["script", "-qec", "true", "/dev/null"]) {
        let mut script = command("script");
        script
            .args([
                "-qec",
                "exec \"$PROGRAM\" run \"$SEGMENT\" -- true",
                "/dev/null",
            ])
            .env("PROGRAM", PROGRAM)
            .env("SEGMENT", stage.segment());
        let mut terminal = Job::start(&mut script);
        within(LONG, || {
            let shown = terminal.out();
            match shown.contains("waiting for 1 slot") && shown.contains("held by pid ") {
                true => Ok(()),
                false => Err(shown),
            }
        });
        holder.let_go();
        assert_eq!(terminal.wait(LONG).code(), 0);
    }
    let ended = silent.wait(LONG);
    assert!(!ended.err.contains("held by"), "{}", ended.err);
    if !works(&["script", "-qec", "true", "/dev/null"]) {
        skipped!("script is missing: a terminal was not tried");
    }
}

fn short_lives(count: u64) {
    let stage = Stage::new(&["--concurrency", "100", "--members", "64"]);
    let mut chance = Chance::new();
    let mut left = count;
    let mut killed = 0;
    while left > 0 {
        let batch = left.min(8);
        left -= batch;
        let mut crowd = Crowd::start(batch as usize, || {
            stage.command("run", &["--no-wait", "--", "true"])
        });
        // In no time at all up to the time one takes.
        std::thread::sleep(Duration::from_micros(chance.below(12_000)));
        for child in crowd.0.iter().step_by(2) {
            if let Some(group) = Pid::from_raw(child.id() as i32) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        for code in crowd.codes(LONG) {
            killed += u64::from(code == -9);
            assert!(code == 0 || code == -9, "it ended with {code}");
        }
    }
    figure!("{killed} of {count} killed");
    assert!(killed > 0, "the test kills too late");
    quiet_within(SOON, &stage.location(), 100);
}

#[test]
fn case_51b_short_lives_leave_the_table_free() {
    short_lives(300);
}

#[test]
#[ignore = "for scripts/stress: 10,000 processes"]
fn stress_case_51b_short_lives_leave_the_table_free() {
    short_lives(10_000);
}

#[test]
fn case_51b_who_finds_the_table_full_waits() {
    let stage = Stage::new(&["--concurrency", "100", "--members", "64"]);
    let mut crowd = Crowd::start(64, || stage.command("run", &["--", "sleep", "300"]));
    let words = stage.words();
    until(LONG, "64 live ones", || words.running() == 64);
    let used = || stage.inspect()["segment"]["members"]["used"].clone();
    assert_eq!(used(), 64);
    let line = stage.call("run", &["--no-wait", "--", "true"]);
    assert!(line.is(69).one_line().contains("table is full"));
    stage
        .call("run", &["--timeout", "300ms", "--", "true"])
        .is(124)
        .one_line();
    let doctor = stage.call("doctor", &["--json"]).is(1).json();
    assert_eq!(doctor["findings"][0]["kind"], "table-full");
    // Nobody is asked to wait for, and TERM ends it as any wait.
    let mut waiter = stage.job("run", &["--", "echo", "got"]);
    let mut impatient = stage.job("run", &["--", "true"]);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!((waiter.poll(), impatient.poll()), (None, None), "they wait");
    catches(impatient.pid(), Signal::TERM);
    impatient.signal(Signal::TERM);
    impatient.wait(SOON).is(143);
    // One of the living dies.
    let victim = crowd.0.swap_remove(20);
    drop(Crowd(vec![victim]));
    assert_eq!(waiter.wait(SOON).is(0).text(), "got\n");
    assert_eq!(used(), 63);
    drop(crowd);
    quiet_within(SOON, &stage.location(), 100);
}

/// Role: PATH FILE. Holds one of two slots, closes every descriptor, uses the numbers for FILE, works on.
#[allow(unsafe_code)]
pub fn closes(args: &Args) {
    let segment = Segment::open(&args.location()).expect("opens");
    let scheduler = segment.scheduler().expect("a Scheduler");
    let held = scheduler.try_acquire(Priority::Normal).expect("a slot");
    // SAFETY: as a daemon does that was not written with us in mind; nothing else in this child has descriptors above 2.
    let closed = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    assert_eq!(closed, 0);
    let mut files: Vec<File> = (0..40)
        .map(|_| File::open(args.text(1)).expect("a file"))
        .collect();
    assert!(files[0].as_raw_fd() < 10, "the numbers are used again");
    say("closed");
    while hear() == "work" {
        for _ in 0..2_000 {
            drop(
                scheduler
                    .blocking_acquire(Priority::Normal)
                    .expect("a slot"),
            );
            segment.look();
        }
        say("worked");
    }
    for file in &mut files {
        let mut text = String::new();
        file.read_to_string(&mut text).expect("its own file");
        assert_eq!(text, "mine\n");
    }
    drop(held);
    say("done");
    hear();
}

#[test]
fn case_51c_a_process_that_closes_all_descriptors_goes_on() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let mine = stage.scene.path("mine");
    std::fs::write(&mine, "mine\n").expect("a file");
    let (path, mine_name) = (stage.segment().to_string_lossy(), mine.to_string_lossy());
    let start = || {
        let mut child = Child::start("closes", &[&*path, &*mine_name]);
        child.expect("closed");
        child
    };
    let taken = |slots: &str| {
        let run = stage.call("run", &["--no-wait", "--slots", slots, "--", "true"]);
        run.code() == 75
    };
    let mut child = start();
    // Its permit stays its own, whoever looks.
    for _ in 0..3 {
        assert!(taken("2") && !taken("1"));
        let repaired = stage.call("doctor", &["--repair", "--json"]).json();
        assert_eq!(repaired["repaired"]["reclaimed"], 0);
    }
    child.tell("work");
    child.expect("worked");
    // It is woken, too: this one holds the other slot while it works.
    let mut holder = stage.hold();
    child.tell("work");
    stage.in_line(1);
    holder.let_go();
    holder.wait(LONG).is(0);
    child.expect("worked");
    assert!(taken("2"));
    child.tell("end");
    child.expect("done");
    child.tell("bye");
    child.finish();
    stage.quiet(2);
    // Its death is noticed as any other. Who comes then may stand still.
    let noticed = || {
        let mut child = start();
        assert!(taken("2"));
        child.kill();
        let killed = Instant::now();
        stage
            .call("run", &["--timeout", "10s", "--slots", "2", "--", "true"])
            .is(0);
        killed.elapsed() < Duration::from_secs(3)
    };
    assert!((0..3).any(|_| noticed()), "late each time");
    assert_eq!(std::fs::read(&mine).expect("there"), b"mine\n");
    stage.quiet(2);
}

#[test]
fn case_51d_closed_standard_streams_harm_nothing() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let before = stage.bytes();
    let closing = |verb: &str, arguments: &[&str], how: &str| {
        let script = format!("exec \"$@\" {how}");
        ended(&mut under(
            &["sh", "-c", &script, "sh"],
            &stage.command(verb, arguments),
        ))
    };
    for how in [">&-", "<&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"] {
        for arguments in [&[][..], &["--json"]] {
            closing("inspect", arguments, how).is(0);
            closing("doctor", arguments, how).is(0);
        }
        assert!(stage.bytes() == before, "{how}");
    }
    for how in [">&-", "<&-", "2>&-", "<&- >&-", "<&- >&- 2>&-", "3>&- 4>&-"] {
        closing("run", &["--", "true"], how).is(0);
        // The command writes to whatever has the numbers 1 and 2.
        closing(
            "run",
            &["--", "sh", "-c", "echo text; echo text >&2; exit 3"],
            how,
        )
        .is(3);
        closing("run", &["--", "no-such-command-anywhere"], how).is(127);
        closing("set", &["--concurrency", "nonsense"], how).is(64);
        closing("set", &["--concurrency", "2"], how).is(0);
    }
    // What never changes after creation, and what was not touched.
    assert!(stage.bytes()[..0x100] == before[..0x100]);
    let seen = stage.inspect();
    assert_eq!(seen["scheduler"]["running_raw"], 0);
    assert_eq!(stage.call::<&str>("doctor", &[]).is(0).err, "");
    stage.quiet(2);
}

#[test]
fn case_51e_the_host_name_does_not_matter() {
    let Some(uts) = unshare(&["--uts"]) else {
        skipped!("unshare --uts is not permitted");
    };
    let stage = Stage::new(&["--concurrency", "1"]);
    let rename = "hostname NODE-A.Example && exec \"$@\"";
    let wrapper = [uts.as_slice(), &["sh", "-c", rename, "sh"]].concat();
    if !works(&[wrapper.as_slice(), &["true"]].concat()) {
        skipped!("hostname is missing or not permitted");
    }
    let inside = |verb: &str, arguments: &[&str]| under(&wrapper, &stage.command(verb, arguments));
    let mut holder = Job::start(&mut inside("run", &[&["--"], &HOLD[..]].concat()));
    holder.runs();
    assert!(!stage.lets_in());
    ended(&mut inside("run", &["--no-wait", "--", "true"])).is(75);
    let repaired = stage.call("doctor", &["--repair", "--json"]).is(0).json();
    assert_eq!(repaired["repaired"]["reclaimed"], 0);
    holder.kill_all();
    stage.call("run", &["--timeout", "10s", "--", "true"]).is(0);
    ended(&mut inside("run", &["--no-wait", "--", "true"])).is(0);
    stage.quiet(1);
}

/// Role: PATH MB. Holds one slot, and so much memory; dies of SIGSEGV when told, and its core is written.
pub fn dumps(args: &Args) {
    let segment = Segment::open(&args.location()).expect("opens");
    let scheduler = segment.scheduler().expect("a Scheduler");
    let _held = scheduler.try_acquire(Priority::Normal).expect("a slot");
    let mut memory = vec![0u8; args.number(1) as usize * 1_000_000];
    for (at, byte) in memory.iter_mut().enumerate().step_by(4_096) {
        *byte = at as u8 | 1;
    }
    say("holds");
    hear();
    // The first one takes away the handler that the standard library has for overflown stacks.
    for _ in 0..1_000 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::SEGV);
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(memory);
}

/// Needs a second or more of disk, and `core` as the kernel's pattern.
#[test]
#[ignore = "for scripts/stress: a core of 1.5 GB"]
fn stress_case_51f_a_holder_that_dumps_core_is_exiting() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim() != "core" {
        skipped!("cores go to {:?}", pattern.trim());
    }
    let stage = Stage::new(&["--concurrency", "1"]);
    let cores = tempfile::tempdir().expect("a directory on disk");
    let path = stage.segment().to_string_lossy();
    let script = format!(
        "cd '{}' && ulimit -c unlimited && exec \"$@\"",
        cores.path().display()
    );
    let mut child = Child::start_under(&["sh", "-c", &script, "sh"], "dumps", &[&*path, "1500"]);
    child.expect("holds");
    child.tell("die");
    let begun = Instant::now();
    let mut exiting = 0;
    loop {
        let doctor = stage.call("doctor", &["--json"]);
        let document = doctor.json();
        let kinds: Vec<&str> = document["findings"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|finding| finding["kind"].as_str())
            .collect();
        if kinds.contains(&"exiting") {
            exiting += 1;
        }
        if stage.lets_in() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "it never ends");
        std::thread::sleep(Duration::from_millis(20));
    }
    figure!(
        "let in after {:?}; doctor said exiting {exiting} times",
        begun.elapsed()
    );
    assert!(exiting > 0, "doctor never said that it dumps core");
    stage.quiet(1);
}

/// An evicted member's number is in use until its command has ended, but a member it is no more.
#[test]
fn list_counts_who_is_attached() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let members = || {
        let mut list = shmsched(&["list", "--json"]);
        let list = ended(list.env("SHMSCHED_DIR", stage.scene.path("")));
        let segments = list.is(0).json()["segments"].take();
        let segments = segments.as_array().expect("a list");
        let found = segments.iter().find(|segment| segment["name"] == "S");
        found.expect("it is there")["members"].clone()
    };
    let mut orphan = stage.hold();
    let holder = stage.hold();
    assert_eq!(members(), 2);
    orphan.kill();
    assert_eq!(members(), 2, "its command has its slot");
    stage.call("evict", &["0"]).is(0);
    assert_eq!(members(), 1);
    assert_eq!(stage.inspect()["segment"]["members"]["used"], 2);
    drop((orphan, holder));
    until(LONG, "all are gone", || members() == 0);
}
