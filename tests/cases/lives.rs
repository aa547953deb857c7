//! Segments that come and go under a name.

use crate::shell::{
    Ended, Play, SOON, create, in_line, inspect, is_stopped, names, program_below, refused,
    running, script, shmsched, works,
};
use crate::support::{Chance, LONG, Scene, figure, peak, skipped, until};
use crate::unit::{Hold, begun, open, with_unit};
use rustix::process::Signal;
use shmsched::{Location, Priority, Segment, TryAcquireError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

#[test]
fn case_11_a_segment_in_use_stays() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let (log, gate) = (scene.path("log"), scene.path("gate"));
    let holder = with_unit(shmsched!["run", &segment], &log, Hold::Until(&gate));
    let mut holder = holder.started();
    until(LONG, "begun", || begun(&log) == 1);
    shmsched!["rm", &segment]
        .ended()
        .says(75, "in use by 1 process");
    assert_eq!(running(&segment), 1);
    refused(&segment);
    open(&gate);
    holder.wait().is(0);
    shmsched!["run", "--no-wait", &segment, "--", "true"]
        .ended()
        .is(0);
    shmsched!["rm", &segment].ended().is(0);
    assert!(!segment.exists());
}

#[test]
fn case_11_two_lives_never_run_together_unnoticed() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let location = Location::File(segment.clone());
    let first = inspect(&segment)["segment"]["id"].clone();
    let (log, gate, never) = (scene.path("log"), scene.path("gate"), scene.path("never"));
    let holder = with_unit(shmsched!["run", &segment], &log, Hold::Until(&gate));
    let mut holder = holder.started();
    until(LONG, "begun", || begun(&log) == 1);
    let mut waiter = shmsched!["run", &segment, "--", "touch", &never].started();
    in_line(&segment, 1);
    let old = Segment::open(&location).unwrap();
    let old = old.scheduler().unwrap();

    // Who does it is told that the old life still runs: holder, waiter, and this process.
    shmsched!["rm", "--force", &segment]
        .ended()
        .says(0, "in use by 3 processes");
    let retired = waiter.wait_for(SOON).says(69, "retired");
    figure!("a waiter learnt it {:?} after its start", retired.took);
    assert!(!never.exists(), "the waiter's command ran");

    create(&scene, &["--concurrency", "1"]);
    assert_ne!(inspect(&segment)["segment"]["id"], first);
    let failure = match old.try_acquire(Priority::Normal) {
        Err(TryAcquireError::Failed(failure)) => failure.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(failure.contains("retired"), "{failure}");
    // The new life counts for itself; the old holder ends as always.
    shmsched!["run", "--no-wait", &segment, "--", "true"]
        .ended()
        .is(0);
    assert!(!holder.has_ended());
    open(&gate);
    holder.wait().is(0);
    shmsched!["rm", &segment].ended().is(0);
}

#[test]
fn case_11_forced_removal_of_what_nobody_uses_is_silent() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let ended = shmsched!["rm", "--force", &segment].ended().is(0);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    assert!(!segment.exists());
}

/// Six at a time make it if it is missing, use it, and remove it.
fn created_used_removed(rounds: u32) {
    let scene = Scene::new();
    let (segment, log) = (scene.path("S"), scene.path("log"));
    let chance = Mutex::new(Chance::new());
    let turn = || -> Vec<(&'static str, Ended)> {
        // With pauses, or somebody is always there and it is never removed.
        let pause = chance.lock().expect("no panic").below(150);
        thread::sleep(Duration::from_millis(pause));
        let make = shmsched!["create", "--if-missing", &segment, "--concurrency", "1"];
        let run = with_unit(shmsched!["run", &segment], &log, Hold::Millis(5));
        vec![
            ("create", make.ended()),
            ("run", run.ended()),
            ("rm", shmsched!["rm", &segment].ended()),
        ]
    };
    let ends: Vec<(&str, Ended)> = thread::scope(|scope| {
        let six: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| (0..rounds).flat_map(|_| turn()).collect::<Vec<_>>()))
            .collect();
        let ends = six.into_iter().map(|one| one.join().expect("no panic"));
        ends.flatten().collect()
    });
    let mut codes: BTreeMap<(&str, i32), u32> = BTreeMap::new();
    for (verb, ended) in ends {
        // A run may find it removed again; nothing else may happen to anybody.
        let fine: &[i32] = match verb {
            "create" => &[0],
            "run" => &[0, 66],
            _ => &[0, 66, 75],
        };
        let code = ended.code.unwrap_or(-1);
        assert!(fine.contains(&code), "{verb}: {ended:#?}");
        *codes.entry((verb, code)).or_default() += 1;
    }
    let (most, units) = peak(&log);
    figure!("{units} units; {codes:?}");
    assert_eq!(most, 1, "two lives at once");
    assert_eq!(codes.get(&("run", 0)), Some(&(units as u32)));
    assert!(codes.contains_key(&("rm", 0)), "it was never removed");
    let left: Vec<String> = names(segment.parent().expect("a directory"));
    let known = |name: &String| ["S", "log"].contains(&name.as_str());
    assert!(left.iter().all(known), "{left:?}");
}

#[test]
fn case_11_made_used_and_removed_by_six_at_once() {
    created_used_removed(15);
}

#[test]
#[ignore = "for scripts/stress: 2 minutes"]
fn stress_case_11_made_used_and_removed_by_six_at_once() {
    created_used_removed(500);
}

/// It is removed and made again between somebody's opening and his lock.
#[test]
fn case_11_whoever_opened_the_old_file_uses_the_new_one() {
    let slow =
        "strace -f -qq -o /dev/null -e trace=fcntl -e inject=fcntl:delay_enter=500000:when=1..6";
    let slow: Vec<&str> = slow.split(' ').collect();
    if !works(&slow) {
        skipped!("strace is missing, not permitted, or cannot delay system calls");
    }
    // If this process stands still for longer than the lock is late, rm is refused, and it was for nothing.
    let tried = (0..5).any(|_| opened_before_it_was_removed(&slow));
    assert!(
        tried,
        "it had its lock each time before the file was removed"
    );
}

/// Whether the file was removed before its opener had the lock.
fn opened_before_it_was_removed(slow: &[&str]) -> bool {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let never = scene.path("never");
    let mut late = script(slow, "exec \"$B\" run --no-wait \"$S\" -- touch \"$NEVER\"");
    late.env("S", &segment).env("NEVER", &never);
    let mut late = late.started();
    let opened = |pid: u32| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let links = fds.into_iter().flatten().flatten();
        links
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .any(|link| link == segment)
    };
    until(LONG, "opened", || {
        program_below(late.pid()).is_some_and(opened)
    });
    // Where strace stands still, so does what it traces, at its next system call.
    late.signal(Signal::STOP);
    until(LONG, "strace has stopped", || is_stopped(late.pid()));
    let removed = shmsched!["rm", &segment].ended();
    if removed.code == Some(75) {
        return false;
    }
    removed.is(0);
    create(&scene, &["--concurrency", "1"]);
    let (log, gate) = (scene.path("log"), scene.path("gate"));
    let holder = with_unit(shmsched!["run", &segment], &log, Hold::Until(&gate));
    let mut holder = holder.started();
    until(LONG, "begun", || begun(&log) == 1);
    late.signal(Signal::CONT);
    late.wait().says(75, "no slot is free");
    assert!(!never.exists());
    open(&gate);
    holder.wait().is(0);
    true
}

/// Thirty at once make it if it is missing: one does, all use the same.
fn thirty_make_one(rounds: u32) {
    let scene = Scene::new();
    let segment = scene.path("S");
    for round in 0..rounds {
        let log = scene.path(&format!("log{round}"));
        let one = || {
            let make = shmsched!["create", "--if-missing", &segment, "--concurrency", "3"];
            let made = make.ended().is(0);
            assert_eq!(made.err, "");
            let id = inspect(&segment)["segment"]["id"].clone();
            let run = with_unit(shmsched!["run", &segment], &log, Hold::Together(3, 50));
            run.ended().is(0);
            id
        };
        let ids: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = (0..30).map(|_| scope.spawn(one)).collect();
            all.into_iter()
                .map(|one| one.join().expect("no panic"))
                .collect()
        });
        assert!(
            ids.iter().all(|id| *id == ids[0]),
            "made more than once: {ids:?}"
        );
        assert_eq!(peak(&log), (3, 30));
        remove(&segment);
    }
}

#[track_caller]
fn remove(segment: &Path) {
    shmsched!["rm", segment].ended().is(0);
}

#[test]
fn case_21_thirty_make_it_at_once() {
    thirty_make_one(3);
}

#[test]
#[ignore = "for scripts/stress: 3 minutes"]
fn stress_case_21_thirty_make_it_at_once() {
    thirty_make_one(100);
}

/// `run` with settings makes it too, and only one of many does.
#[test]
fn case_21_thirty_runs_make_it_at_once() {
    let scene = Scene::new();
    let (segment, log) = (scene.path("S"), scene.path("log"));
    thread::scope(|scope| {
        for _ in 0..30 {
            scope.spawn(|| {
                let run = shmsched!["run", &segment, "--concurrency", "3"];
                let ended = with_unit(run, &log, Hold::Together(3, 20)).ended().is(0);
                assert_eq!(ended.err, "");
            });
        }
    });
    assert_eq!(peak(&log), (3, 30));
    remove(&segment);
}
