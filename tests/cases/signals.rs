//! Signals: as PID 1, on a terminal, and while it waits.

use crate::shell::{
    Play, SOON, Started, children, clean, comes_to_rest, create, in_line, names, program_below,
    script, shmsched, unshare,
};
use crate::support::{LONG, Scene, figure, skipped, until};
use crate::unit::{Hold, SIGNALS, lines, with_role, with_unit_in_script};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PIDS: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];

fn send(pid: u32, signal: i32) {
    let signal = Signal::from_named_raw(signal).unwrap_or_else(|| {
        rustix_libc_wrappers::process::SignalExt::from_raw(signal).expect("a signal")
    });
    let pid = Pid::from_raw(pid as i32).expect("a pid");
    kill_process(pid, signal).expect("it lives");
}

/// Our program as PID 1, with a command.
fn first_process(segment: &Path, wrapper: &[&str]) -> Command {
    let mut command = clean(wrapper[0]);
    command.args(&wrapper[1..]).arg(crate::shell::PROGRAM);
    command.arg("run").arg(segment);
    command
}

/// Its pid out here.
fn outside(started: &Started) -> u32 {
    let mut found = None;
    until(LONG, "PID 1", || {
        found = program_below(started.pid());
        found.is_some()
    });
    found.expect("just seen")
}

#[test]
fn case_25_pid_1_passes_term_on_and_ends_with_its_command() {
    let Some(wrapper) = unshare(&PIDS) else {
        skipped!("unshare --pid is not permitted");
    };
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let ready = scene.path("ready");
    let mut command = first_process(&segment, &wrapper);
    let traps = "trap 'echo bye; exit 7' TERM; touch \"$READY\"; while :; do sleep .1; done";
    command.args(["--", "sh", "-c", traps]).env("READY", &ready);
    let mut started = command.started();
    until(LONG, "ready", || ready.exists());
    send(outside(&started), 15);
    let told = Instant::now();
    let ended = started.wait_for(SOON).is(7);
    figure!("ended after {:?}", told.elapsed());
    assert_eq!(ended.out, "bye\n");
    comes_to_rest(&segment, 1);
}

/// One of each reaches the command, TERM as the last; nothing comes twice.
#[track_caller]
fn each_once(run: u32, log: &Path) {
    let got = |signal: i32| lines(log, &format!("got {signal} "));
    until(LONG, "ready", || !lines(log, "ready").is_empty());
    // TERM last: it ends the role, and what came twice had come by then.
    let others = SIGNALS.iter().copied().filter(|signal| *signal != 15);
    for signal in others.chain([15]) {
        send(run, signal);
        until(SOON, &format!("signal {signal}"), || {
            !got(signal).is_empty()
        });
    }
    for signal in SIGNALS {
        assert_eq!(got(signal), ["1"], "signal {signal}");
    }
}

#[test]
fn case_25_pid_1_passes_each_signal_on_once() {
    let Some(wrapper) = unshare(&PIDS) else {
        skipped!("unshare --pid is not permitted");
    };
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let log = scene.path("log");
    let mut started = with_role(first_process(&segment, &wrapper), "signals", &log).started();
    until(LONG, "ready", || !lines(&log, "ready").is_empty());
    caught(outside(&started));
    each_once(outside(&started), &log);
    started.wait().is(7);
    comes_to_rest(&segment, 1);
}

/// Waits until it catches the less usual signals, a few milliseconds after the command began: until then the documented
/// default holds, which for USR1 is the end.
#[track_caller]
fn caught(run: u32) {
    until(LONG, "it catches USR1", || {
        let status = std::fs::read_to_string(format!("/proc/{run}/status")).unwrap_or_default();
        let set = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        // RTMAX is the last of them.
        set.is_some_and(|set| set >> 63 & 1 == 1)
    });
}

#[test]
fn case_25_each_signal_is_passed_on_once() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let log = scene.path("log");
    let mut started = with_role(shmsched!["run", &segment], "signals", &log).started();
    until(LONG, "ready", || !lines(&log, "ready").is_empty());
    caught(started.pid());
    each_once(started.pid(), &log);
    started.wait().is(7);
    comes_to_rest(&segment, 1);
}

/// `script` gives it a terminal; killed when dropped.
struct Terminal(Child);

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn case_25_what_the_terminal_sends_to_the_group_comes_once() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let log = scene.path("log");
    let mut command = clean("script");
    command.args(["-qec", "exec \"$B\" run \"$S\" -- $UNIT", "/dev/null"]);
    let mut command = with_unit_in_script(command, "signals", &log, Hold::Millis(0));
    command
        .env("B", crate::shell::PROGRAM)
        .env("S", &segment)
        .env("SHELL", "/bin/sh");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let Ok(child) = command.spawn() else {
        skipped!("script is missing");
    };
    let mut terminal = Terminal(child);
    until(LONG, "ready", || !lines(&log, "ready").is_empty());
    let run = program_below(terminal.0.id()).expect("it runs");
    caught(run);
    let got = |signal: i32| lines(&log, &format!("got {signal} "));
    let keys = terminal.0.stdin.as_mut().expect("piped");
    // Ctrl-C and Ctrl-\ to everybody in the foreground; the size of the window too.
    for (key, signal) in [(b"\x03", 2), (b"\x1c", 3), (b"\x03", 2)] {
        let before = got(signal).len();
        keys.write_all(key).expect("script listens");
        until(SOON, &format!("signal {signal}"), || {
            got(signal).len() > before
        });
    }
    let tty = std::fs::read_link(format!("/proc/{run}/fd/0")).expect("a terminal");
    clean("stty")
        .arg("-F")
        .arg(&tty)
        .args(["cols", "133"])
        .spawn()
        .expect("stty")
        .wait()
        .expect("stty");
    until(SOON, "WINCH", || !got(28).is_empty());
    // This one it gets alone.
    send(run, 15);
    until(SOON, "TERM", || !got(15).is_empty());
    let counts = [2, 3, 28, 15].map(|signal| got(signal).last().cloned().expect("seen"));
    assert_eq!(counts, ["2", "1", "1", "1"], "a signal came twice");
    let status = terminal.0.wait().expect("script ends");
    assert_eq!(status.code(), Some(7));
    comes_to_rest(&segment, 1);
}

#[test]
fn case_25_a_signal_ends_the_wait() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let (ready, ran) = (scene.path("ready"), scene.path("ran"));
    let mut command = shmsched![
        "run",
        &segment,
        "--",
        "sh",
        "-c",
        "touch \"$READY\"; exec sleep 60"
    ];
    command.env("READY", &ready);
    let mut holder = command.started();
    until(LONG, "held", || ready.exists());
    for (signal, code) in [(15, 143), (2, 130), (1, 129), (3, 131)] {
        let mut waiter = shmsched!["run", &segment, "--", "touch", &ran].started();
        in_line(&segment, 1);
        send(waiter.pid(), signal);
        let told = Instant::now();
        let ended = waiter.wait_for(SOON).is(code);
        figure!("signal {signal} ended the wait after {:?}", told.elapsed());
        assert_eq!(ended.err, "");
        in_line(&segment, 0);
    }
    holder.kill_group();
    comes_to_rest(&segment, 1);
    assert!(!ran.exists());
}

#[test]
fn case_25_a_signal_ends_the_wait_of_pid_1() {
    let Some(wrapper) = unshare(&PIDS) else {
        skipped!("unshare --pid is not permitted");
    };
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let ready = scene.path("ready");
    let mut command = shmsched![
        "run",
        &segment,
        "--",
        "sh",
        "-c",
        "touch \"$READY\"; exec sleep 60"
    ];
    command.env("READY", &ready);
    let mut holder = command.started();
    until(LONG, "held", || ready.exists());
    let mut command = first_process(&segment, &wrapper);
    command.args(["--", "touch"]).arg(scene.path("ran"));
    let mut waiter = command.started();
    in_line(&segment, 1);
    send(outside(&waiter), 15);
    waiter.wait_for(SOON).is(143);
    in_line(&segment, 0);
    holder.kill_group();
    comes_to_rest(&segment, 1);
    assert_eq!(names(&scene.path("")), ["S", "ready"]);
}

/// The state letter of a process and its name.
fn state(pid: u32) -> Option<(char, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = (stat.split_once('(')?.1, stat.rsplit_once(')')?);
    Some((
        after.1.trim().chars().next()?,
        before.rsplit_once(')')?.0.to_owned(),
    ))
}

#[test]
fn case_25_pid_1_reaps_orphans() {
    let Some(wrapper) = unshare(&PIDS) else {
        skipped!("unshare --pid is not permitted");
    };
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let (ready, gate) = (scene.path("ready"), scene.path("gate"));
    let orphans = "sh -c 'tail -f /dev/null & tail -f /dev/null &'; touch \"$READY\"; \
                   until [ -e \"$GATE\" ]; do sleep 0.05; done; exit 3";
    let mut command = first_process(&segment, &wrapper);
    command
        .args(["--", "sh", "-c", orphans])
        .env("READY", &ready)
        .env("GATE", &gate);
    let mut started = command.started();
    until(LONG, "ready", || ready.exists());
    let first = outside(&started);
    let orphans = || -> Vec<u32> {
        let named = |pid: &u32| state(*pid).is_some_and(|(_, name)| name == "tail");
        children(first).into_iter().filter(named).collect()
    };
    until(LONG, "two orphans of PID 1", || orphans().len() == 2);
    orphans().into_iter().for_each(|pid| send(pid, 9));
    // Reaped while the command goes on.
    until(SOON, "no zombies", || {
        let zombie = |pid: &u32| state(*pid).is_some_and(|(state, _)| state == 'Z');
        orphans().is_empty() && !children(first).iter().any(zombie)
    });
    started.stays_for(Duration::from_millis(100));
    crate::unit::open(&gate);
    started.wait_for(SOON).is(3);
    comes_to_rest(&segment, 1);
}

/// A command that ignores TERM keeps its `run`.
fn stays_with_the_deaf(wrapper: Option<Vec<&str>>) {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let (ready, gate) = (scene.path("ready"), scene.path("gate"));
    let deaf =
        "trap '' TERM; touch \"$READY\"; until [ -e \"$GATE\" ]; do sleep 0.05; done; exit 4";
    let mut command = match &wrapper {
        None => shmsched!["run", &segment],
        Some(wrapper) => first_process(&segment, wrapper),
    };
    command.args(["--", "sh", "-c", deaf]);
    command.env("READY", &ready).env("GATE", &gate);
    let mut started = command.started();
    until(LONG, "ready", || ready.exists());
    let run = match wrapper {
        None => started.pid(),
        Some(_) => outside(&started),
    };
    for _ in 0..3 {
        send(run, 15);
        started.stays_for(Duration::from_millis(50));
    }
    crate::unit::open(&gate);
    started.wait_for(SOON).is(4);
    comes_to_rest(&segment, 1);
}

#[test]
fn case_25_run_stays_as_long_as_its_command() {
    stays_with_the_deaf(None);
}

#[test]
fn case_25_pid_1_stays_as_long_as_its_command() {
    let Some(wrapper) = unshare(&PIDS) else {
        skipped!("unshare --pid is not permitted");
    };
    stays_with_the_deaf(Some(wrapper));
}

#[test]
fn case_25_a_command_that_a_signal_ends() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let mut command = script(&[], "exec \"$B\" run \"$S\" -- sh -c 'kill -TERM $$'");
    command.env("S", &segment);
    command.ended().is(143);
    comes_to_rest(&segment, 1);
}
