//! `run` killed, with its command and without.

use crate::shell::{
    Play, SOON, children, comes_to_rest, create, executable, in_line, inspect,
    noticed_by_a_watcher, refused, running, script, shmsched, strace_works, works,
};
use crate::support::{Chance, LONG, Recorder, Scene, figure, peak, skipped, until};
use crate::unit::{Hold, begun, open, pids, spread, with_unit, with_unit_in_script};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const PRIORITIES: [&str; 7] = [
    "lowest", "lower", "low", "normal", "high", "higher", "highest",
];

#[test]
fn case_01_killed_holders_give_back() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "3"]);
    let (log, never) = (scene.path("log"), scene.path("never"));
    let mut holders: Vec<_> = (0..3)
        .map(|_| with_unit(shmsched!["run", &segment], &log, Hold::Until(&never)).started())
        .collect();
    until(LONG, "all begun", || begun(&log) == 3);
    refused(&segment);
    holders.iter_mut().for_each(|holder| holder.kill_group());
    let next = shmsched!["run", &segment, "--", "true"]
        .started()
        .wait_for(SOON);
    figure!("the next after {:?}", next.is(0).took);
    comes_to_rest(&segment, 3);
}

/// `runs` runs, twenty at a time, each killed after up to 60 ms, but every tenth when a command has begun since its start:
/// how slow starts are just now does not matter to those. Their commands, if it came to that, end by themselves.
fn storm(segment: &Path, log: &Path, runs: usize) {
    let mut chance = Chance::new();
    let mut running: Vec<(_, Instant, usize)> = Vec::new();
    let mut left = runs;
    while left > 0 || !running.is_empty() {
        if left > 0 && running.len() < 20 {
            left -= 1;
            let priority = PRIORITIES[chance.below(7) as usize];
            let run = shmsched!["run", segment, "-p", priority];
            let before = begun(log);
            let run = with_unit(run, log, Hold::Millis(20)).started();
            let (time, after) = match left % 10 {
                0 => (LONG, before),
                _ => (Duration::from_millis(chance.below(60)), usize::MAX),
            };
            running.push((run, Instant::now() + time, after));
            continue;
        }
        let (now, begun) = (Instant::now(), begun(log));
        for (run, due, after) in &mut running {
            if now >= *due || begun > *after {
                run.kill_alone();
            }
        }
        // Kept until its command is done: dropping it would kill that too.
        running.retain_mut(|(run, ..)| !run.has_ended() || !is_empty(run.pid()));
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a process group has nobody left.
fn is_empty(group: u32) -> bool {
    let group = rustix::process::Pid::from_raw(group as i32).expect("a pid");
    rustix::process::test_kill_process_group(group).is_err()
}

fn survives_a_storm(runs: usize) {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "3"]);
    let log = scene.path("log");
    storm(&segment, &log, runs);
    comes_to_rest(&segment, 3);
    let (most, units) = peak(&log);
    figure!("{units} units of {runs} runs began");
    assert!(units > 0 && most <= 3, "{most} of {units} at once");

    // No slot was lost: three begin together. None was gained: there is no fourth.
    let (log, gate) = (scene.path("log2"), scene.path("gate"));
    let mut three: Vec<_> = (0..3)
        .map(|_| with_unit(shmsched!["run", &segment], &log, Hold::Until(&gate)).started())
        .collect();
    until(SOON, "three begun", || begun(&log) == 3);
    figure!("three within {:?}", spread(&log));
    refused(&segment);
    open(&gate);
    three.iter_mut().for_each(|run| drop(run.wait().is(0)));
    comes_to_rest(&segment, 3);
}

#[test]
fn case_01_a_storm_of_kills_loses_and_gains_no_slot() {
    survives_a_storm(60);
}

#[test]
#[ignore = "for scripts/stress: 20 s"]
fn stress_case_01_a_storm_of_kills_loses_and_gains_no_slot() {
    survives_a_storm(300);
}

/// `run` is killed while its command works: the slot stays taken until the command ends, then the waiter has it.
fn killed_alone(rounds: usize) {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let log = scene.path("log");
    let mut times = Vec::new();
    for round in 0..rounds {
        let gate = scene.path(&format!("gate{round}"));
        let mut run = with_unit(shmsched!["run", &segment], &log, Hold::Until(&gate)).started();
        until(LONG, "begun", || begun(&log) == 2 * round + 1);
        run.kill_alone();
        let mut next = with_unit(shmsched!["run", &segment], &log, Hold::Millis(0)).started();
        in_line(&segment, 1);
        refused(&segment);
        if round == 0 {
            // Those who watch look every 100 ms.
            next.stays_for(Duration::from_millis(350));
            let seen = inspect(&segment);
            let members = seen["members"].as_array().expect("members");
            let holder = members.iter().find(|member| member["held"] == 1);
            assert_eq!(holder.expect("a holder")["state"], "orphaned");
        }
        let opened = Instant::now();
        open(&gate);
        next.wait_for(SOON).is(0);
        times.push(opened.elapsed());
    }
    noticed_by_a_watcher(&times);
    assert_eq!(peak(&log), (1, 2 * rounds));
    comes_to_rest(&segment, 1);
}

#[test]
fn case_14_the_slot_of_a_killed_run_stays_with_its_command() {
    killed_alone(8);
}

#[test]
#[ignore = "for scripts/stress: 20 s"]
fn stress_case_14_the_slot_of_a_killed_run_stays_with_its_command() {
    killed_alone(100);
}

/// Killed at any moment, the one between fork and exec among them: two units never overlap.
fn killed_early(rounds: usize) {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let log = scene.path("log");
    let mut chance = Chance::new();
    let mut left_behind = 0;
    for _ in 0..rounds {
        let before = begun(&log);
        let mut run = with_unit(shmsched!["run", &segment], &log, Hold::Millis(15)).started();
        thread::sleep(Duration::from_micros(chance.below(20_000)));
        run.kill_alone();
        with_unit(shmsched!["run", &segment], &log, Hold::Millis(1))
            .ended()
            .is(0);
        left_behind += begun(&log) - before - 1;
    }
    figure!("{left_behind} of {rounds} killed runs had a command");
    assert_eq!(peak(&log).0, 1);
    comes_to_rest(&segment, 1);
}

#[test]
fn case_14_killed_at_any_moment_two_units_never_overlap() {
    killed_early(40);
}

#[test]
#[ignore = "for scripts/stress: 2 minutes"]
fn stress_case_14_killed_at_any_moment_two_units_never_overlap() {
    killed_early(1_000);
}

/// The moment between fork and exec, made long.
#[test]
fn case_14_killed_between_fork_and_exec() {
    if !strace_works() {
        skipped!("strace is missing or not permitted");
    }
    let slow = "strace -f -qq -o /dev/null -e trace=execve -e inject=execve:delay_enter=700000";
    let slow: Vec<&str> = slow.split(' ').collect();
    if !works(&slow) {
        skipped!("this strace cannot delay system calls");
    }
    let tried = (0..5).any(|_| killed_before_exec(&slow));
    assert!(tried, "each time the command was there already");
}

/// Whether `run` was killed before its child had become the command, which this process misses if it stands still.
fn killed_before_exec(slow: &[&str]) -> bool {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let (log, gate) = (scene.path("log"), scene.path("gate"));
    // strace execs the program itself too, so it is late as well.
    let command = script(slow, "exec \"$B\" run \"$S\" -- $UNIT");
    let mut command = with_unit_in_script(command, "work", &log, Hold::Until(&gate));
    command.env("S", &segment);
    let tracer = command.started();
    let mut forked = None;
    until(LONG, "a fork that is not the command yet", || {
        let Some(run) = crate::shell::program_below(tracer.pid()) else {
            return false;
        };
        let child = children(run).into_iter().next();
        forked = child.map(|child| (run, child));
        forked.is_some()
    });
    let (run, child) = forked.expect("just seen");
    let run = rustix::process::Pid::from_raw(run as i32).expect("a pid");
    rustix::process::kill_process(run, rustix::process::Signal::KILL).expect("it lives");
    if executable(child) == executable(std::process::id()) || begun(&log) > 0 {
        return false;
    }
    let mut next = with_unit(shmsched!["run", &segment], &log, Hold::Millis(0)).started();
    until(LONG, "begun", || begun(&log) == 1);
    assert_eq!(pids(&log), [child], "the command, not the next");
    refused(&segment);
    open(&gate);
    next.wait_for(SOON).is(0);
    assert_eq!(peak(&log), (1, 2));
    drop(tracer);
    comes_to_rest(&segment, 1);
    true
}

/// What the out-of-memory killer and `docker kill` do.
#[test]
fn case_14_the_whole_group_killed_gives_the_slot_back() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let (log, never) = (scene.path("log"), scene.path("never"));
    let recorder = Recorder::open(&log);
    let mut times = Vec::new();
    for round in 1..=5 {
        let mut run = with_unit(shmsched!["run", &segment], &log, Hold::Until(&never)).started();
        until(LONG, "begun", || begun(&log) == 2 * round - 1);
        let mut next = with_unit(shmsched!["run", &segment], &log, Hold::Millis(0)).started();
        in_line(&segment, 1);
        recorder.dies(*pids(&log).last().expect("a unit"));
        let killed = Instant::now();
        run.kill_group();
        next.wait_for(SOON).is(0);
        times.push(killed.elapsed());
    }
    noticed_by_a_watcher(&times);
    assert_eq!(peak(&log), (1, 10));
    comes_to_rest(&segment, 1);
}

/// A grandchild inherits the lock: with `run` and the command killed, the slot is its own until it ends.
#[test]
fn case_14_the_slot_stays_with_a_grandchild() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let (log, gate) = (scene.path("log"), scene.path("gate"));
    let command = script(&[], "exec \"$B\" run \"$S\" -- sh -c '$UNIT & wait'");
    let mut command = with_unit_in_script(command, "work", &log, Hold::Until(&gate));
    command.env("S", &segment);
    let mut run = command.started();
    until(LONG, "begun", || begun(&log) == 1);
    let shell = children(run.pid())[0];
    run.kill_alone();
    let shell = rustix::process::Pid::from_raw(shell as i32).expect("a pid");
    rustix::process::kill_process(shell, rustix::process::Signal::KILL).expect("it lives");
    until(LONG, "the command is gone", || {
        rustix::process::test_kill_process(shell).is_err()
            || executable(shell.as_raw_pid() as u32).is_none()
    });
    refused(&segment);
    let mut next = with_unit(shmsched!["run", &segment], &log, Hold::Millis(0)).started();
    in_line(&segment, 1);
    next.stays_for(Duration::from_millis(350));
    assert_eq!(running(&segment), 1);
    open(&gate);
    next.wait_for(SOON).is(0);
    assert_eq!(peak(&log), (1, 2));
    comes_to_rest(&segment, 1);
}
