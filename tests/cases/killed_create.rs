//! `create` killed at every system call.

use crate::shell::{PROGRAM, Play, clean, names, shmsched, strace_works};
use crate::support::{Scene, figure, skipped};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// `strace` around a `create`, which looks for its libraries in few places.
fn traced(segment: &Path, out: &str, options: &[&str]) -> Command {
    let mut command = clean("strace");
    command.args(["-f", "-qq", "-o", out]).args(options);
    command.args([PROGRAM, "create"]).arg(segment);
    command.args(["--concurrency", "2", "--members", "8"]);
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// The system calls of a `create` in their order: name, which of its name, and the whole line. The first one, execve, is
/// that of `strace`.
fn calls(segment: &Path, out: &str) -> Vec<(String, usize, String)> {
    traced(segment, out, &[]).ended().is(0);
    shmsched!["rm", segment].ended().is(0);
    let trace = std::fs::read_to_string(out).unwrap();
    let mut counts: HashMap<String, usize> = HashMap::new();
    trace
        .lines()
        .filter_map(|line| {
            let call = line.split_once(' ')?.1.trim_start();
            let name = call.split_once('(')?.0.to_owned();
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            Some((name, *count, call.to_owned()))
        })
        .skip(1)
        .collect()
}

fn killed_at_every_call(also_before_main: bool) {
    if !strace_works() {
        skipped!("strace is missing or not permitted");
    }
    let scene = Scene::new();
    let (directory, segment) = (scene.path("d"), scene.path("d/S"));
    std::fs::create_dir(&directory).unwrap();
    let mut calls = calls(&segment, &scene.path("trace").to_string_lossy());
    let ours = format!("\"{}", directory.display());
    let first = calls.iter().position(|(.., call)| call.contains(&ours));
    let first = first.expect("it opens the directory");
    if !also_before_main {
        calls.drain(..first);
    }
    let (mut nothing, mut complete) = (0, 0);
    for (name, count, call) in calls {
        let inject = format!("inject={name}:signal=KILL:when={count}");
        let ended = traced(&segment, "/dev/null", &["-e", &inject]).ended();
        assert_eq!(ended.signal, Some(9), "at {call}: {ended:#?}");
        if segment.exists() {
            complete += 1;
            shmsched!["run", "--no-wait", "--slots", "2", &segment, "--", "true"]
                .ended()
                .is(0);
            shmsched!["doctor", &segment].ended().is(0);
            shmsched!["rm", &segment].ended().is(0);
        } else {
            nothing += 1;
        }
        // The next creator leaves only the segment.
        shmsched!["create", &segment, "--concurrency", "2"]
            .ended()
            .is(0);
        assert_eq!(names(&directory), ["S"], "after {call}");
        shmsched!["rm", &segment].ended().is(0);
    }
    figure!("{nothing} left nothing, {complete} a segment");
    assert!(nothing > 5 && complete > 0);
}

#[test]
fn case_21_create_killed_at_each_of_its_system_calls_leaves_all_or_nothing() {
    killed_at_every_call(false);
}

#[test]
#[ignore = "for scripts/stress: 10 s"]
fn stress_case_21_create_killed_at_every_system_call_leaves_all_or_nothing() {
    killed_at_every_call(true);
}
