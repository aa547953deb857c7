//! Case 43: a run inside a run of the same segment.

use crate::stage::{Job, PROGRAM, SOON, Stage, ended};
use crate::support::{LONG, within};
use std::time::{Duration, Instant};

#[test]
fn case_43_a_nested_run_is_refused_at_once_and_names_the_outer() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let s = stage.segment().to_string_lossy().into_owned();
    let nested = |options: &[&str]| {
        let inner = [&[PROGRAM, "run", &s], options, &["--", "echo", "ran"]].concat();
        stage.call("run", &[&["-p", "high", "--"], &inner[..]].concat())
    };
    let begun = Instant::now();
    for options in [
        &[][..],
        &["--nested", "fail"],
        &["-p", "low"],
        &["--timeout", "30s"],
        &["--no-wait"],
    ] {
        let refused = nested(options);
        let line = refused.is(78).one_line().to_owned();
        assert!(
            // The command is cut where it gets long.
            line.contains("already inside a permit")
                && line.contains(&PROGRAM[..PROGRAM.len().min(24)]),
            "{line}"
        );
    }
    assert!(begun.elapsed() < LONG, "at once, not after a wait");
    assert_eq!(nested(&["--nested", "share"]).is(0).text(), "ran\n");
    nested(&["--nested", "wait", "--no-wait"]).is(75).one_line();
    nested(&["--nested", "wait", "--timeout", "50ms"])
        .is(124)
        .one_line();
    // Two deep, and through a shell.
    let deep = format!(
        "'{PROGRAM}' run '{s}' --nested share -- sh -c \"exec '{PROGRAM}' run '{s}' -- true\""
    );
    stage
        .call("run", &["--", "sh", "-c", &deep])
        .is(78)
        .one_line();
    let seen = stage.inspect();
    assert_eq!(seen["scheduler"]["admitted"], seen["scheduler"]["released"]);
    stage.quiet(1);
    // With two slots, another may be had.
    stage.call("set", &["--concurrency", "2"]).is(0);
    assert_eq!(
        nested(&["--nested", "wait", "--no-wait"]).is(0).text(),
        "ran\n"
    );
    nested(&[]).is(78);
    stage.quiet(2);
}

#[test]
fn case_43_another_segment_is_another_matter() {
    let one = Stage::new(&["--concurrency", "1"]);
    let s1 = one.segment().to_string_lossy().into_owned();
    let other = one.scene.path("S2").to_string_lossy().into_owned();
    ended(&mut crate::stage::shmsched(&[
        "create",
        &other,
        "--concurrency",
        "1",
    ]))
    .is(0);
    let inner = [PROGRAM, "run", &other, "--", "echo", "ran"];
    assert_eq!(
        one.call("run", &[&["--"], &inner[..]].concat())
            .is(0)
            .text(),
        "ran\n"
    );
    // The outermost is not forgotten behind it.
    let inner = [
        PROGRAM, "run", &other, "--", PROGRAM, "run", &s1, "--", "true",
    ];
    one.call("run", &[&["--"], &inner[..]].concat())
        .is(78)
        .one_line();
    one.quiet(1);
}

#[test]
fn case_43_a_copied_environment_is_no_proof() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let print = stage.call("run", &["--", "printenv", "SHMSCHED_PERMIT"]);
    let mark = print.is(0).text().trim().to_owned();
    assert!(!mark.is_empty());
    let marked = |mark: &str| {
        let mut command = stage.command("run", &["--no-wait", "--", "true"]);
        ended(command.env("SHMSCHED_PERMIT", mark)).code()
    };
    // That permit has ended.
    assert_eq!(marked(&mark), 0);
    // Somebody else has its member slot now: another generation.
    let mut holder = stage.hold();
    assert_eq!(stage.inspect()["members"][0]["member"], 0, "the same slot");
    assert_eq!(marked(&mark), 75);
    holder.let_go();
    holder.wait(LONG).is(0);
    // While it lives, it is one.
    let mut holder = stage.job(
        "run",
        &["--", "sh", "-c", "printenv SHMSCHED_PERMIT; exec cat"],
    );
    holder.runs();
    let living = holder.out().trim().to_owned();
    assert_eq!(marked(&living), 78);
    let twice = format!("{mark};{living};rubbish;::;{mark}");
    assert_eq!(marked(&twice), 78);
    for rubbish in [
        "",
        ";",
        "x:1:2:3",
        &"9".repeat(10_000),
        &living.replace(':', ";"),
    ] {
        assert_eq!(marked(rubbish), 75, "{rubbish:.80}");
    }
    holder.let_go();
    holder.wait(LONG).is(0);
    assert_eq!(marked(&living), 0);
    stage.quiet(1);
}

#[test]
fn case_43_doctor_sees_that_all_holders_wait() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let s = stage.segment().to_string_lossy().into_owned();
    // Each has its slot before any asks for more.
    let script = format!("echo in; read go; exec '{PROGRAM}' run '{s}' --nested wait -- true");
    let parent = || {
        let mut job = stage.job("run", &["--", "sh", "-c", &script]);
        job.runs();
        job
    };
    // One of two waits for the other: no deadlock.
    let mut first: Job = stage.hold();
    let mut second = parent();
    second.let_go();
    stage.in_line(1);
    let doctor = stage.call("doctor", &["--json"]).is(0).json();
    assert_eq!(doctor["ok"], true, "{doctor}");
    first.let_go();
    first.wait(LONG).is(0);
    second.wait(LONG).is(0);
    // Both wait.
    let mut parents = [parent(), parent()];
    parents.iter_mut().for_each(Job::let_go);
    stage.in_line(2);
    let doctor = stage.call("doctor", &["--json"]).is(1).json();
    let finding = &doctor["findings"][0];
    assert_eq!(
        (&finding["kind"], &finding["level"]),
        (&"deadlock".into(), &"problem".into())
    );
    let text = stage.call::<&str>("doctor", &[]);
    let text = text.is(1).text();
    assert!(
        text.contains("all holders are waiting on this segment (2 processes"),
        "{text}"
    );
    assert!(parents.iter_mut().all(|parent| parent.poll().is_none()));
    // The way out that it names.
    stage.call("set", &["--concurrency", "3"]).is(0);
    for parent in &mut parents {
        parent.wait(SOON).is(0);
    }
    within(LONG, || {
        let doctor = stage.call::<&str>("doctor", &[]);
        if doctor.code() == 0 {
            Ok(())
        } else {
            Err(doctor.text())
        }
    });
    stage.quiet(3);
}

/// The outer permit has the only member slot: the inner one must not wait for it.
#[test]
fn case_43_a_full_table_does_not_hide_the_outer() {
    let stage = Stage::new(&["--concurrency", "2", "--members", "1"]);
    let s = stage.segment().to_string_lossy().into_owned();
    let nested = |options: &[&str]| {
        let inner = [&[PROGRAM, "run", &s], options, &["--", "echo", "ran"]].concat();
        let mut outer = stage.job("run", &[&["--"], &inner[..]].concat());
        outer.wait(SOON)
    };
    let refused = nested(&[]);
    let line = refused.is(78).one_line().to_owned();
    assert!(line.contains("already inside a permit"), "{line}");
    assert_eq!(nested(&["--nested", "share"]).is(0).text(), "ran\n");
    // Who wants another all the same finds no room, and says so.
    let full = nested(&["--nested", "wait", "--no-wait"]);
    let line = full.is(69).one_line().to_owned();
    assert!(line.contains("member table is full"), "{line}");
    stage.quiet(2);
}

/// A verb that attaches waits for a member slot.
#[test]
fn set_on_a_full_table_waits_for_room() {
    let stage = Stage::new(&["--concurrency", "2", "--members", "1"]);
    let mut holder = stage.hold();
    let mut set = stage.job("set", &["--concurrency", "3"]);
    std::thread::sleep(Duration::from_millis(300));
    let early = set.poll();
    assert!(early.is_none(), "{early:?} {}", set.err());
    assert_eq!(stage.inspect()["members"].as_array().unwrap().len(), 1);
    holder.let_go();
    holder.wait(LONG).is(0);
    set.wait(SOON).is(0);
    stage.quiet(3);
}
