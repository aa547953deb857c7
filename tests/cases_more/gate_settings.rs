//! Gates that are added and changed while a segment is in use, and settings that it does not have.

use crate::gates::{in_line, run, says};
use crate::stage::{Stage, ended, shmsched};
use crate::support::LONG;
use serde_json::{Value, json};

#[test]
fn set_changes_and_adds_gates() {
    let stage = Stage::new(&["--concurrency", "1"]);
    says(
        &run(&stage, &["--tokens", "5"]),
        64,
        "'shmsched set --rate'",
    );
    stage.call("set", &["--rate", "1000"]).is(0);
    run(&stage, &["--tokens", "5"]).is(0);
    stage
        .call("set", &["--rate", "2kB/s", "--interval", "0.5ms"])
        .is(0);
    let seen = stage.inspect();
    assert_eq!(seen["limiter"]["tokens_per_second"], 2_000);
    assert_eq!(seen["pacer"]["interval_ms"], 0.5);
    assert_eq!(seen["scheduler"]["concurrency"], 1);
    run(&stage, &[]).is(0);
    assert_eq!(stage.inspect()["pacer"]["started"], 1);

    // Who waits hears of it.
    stage.call("set", &["--interval", "1h"]).is(0);
    run(&stage, &[]).is(0);
    let mut waiter = stage.job("run", &["--", "true"]);
    in_line(&stage, "pacer", 1);
    stage.call("set", &["--interval", "10ms"]).is(0);
    waiter.wait(LONG).is(0);

    let missing = stage.scene.path("missing").to_string_lossy().into_owned();
    for change in [["--rate", "5"], ["--interval", "1s"]] {
        let words = [&["set", &missing], &change[..]].concat();
        says(&ended(&mut shmsched(&words)), 66, "no such segment");
        assert!(!stage.scene.path("missing").exists());
    }
}

/// Who waits goes on waiting without end, which may not be what was meant.
#[test]
fn a_pause_says_how_many_wait() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let set = |concurrency: &str| stage.call("set", &["--concurrency", concurrency]);
    assert_eq!(set("0").is(0).err, "");
    assert_eq!(set("1").is(0).err, "");
    let mut holder = stage.hold();
    let mut waiters = [(); 2].map(|()| stage.job("run", &["--", "true"]));
    stage.in_line(2);
    for other in [&["--target", "low=0"][..], &["--rate", "1000"]] {
        assert_eq!(stage.call("set", other).is(0).err, "");
    }
    let paused = set("0");
    let line = paused.is(0).one_line();
    let name = stage.segment().to_string_lossy();
    assert!(
        line.contains(&*name)
            && line.contains("2 waiters")
            && line.contains("'shmsched set --concurrency'"),
        "{line}"
    );
    assert_eq!(set("1").is(0).err, "");
    holder.let_go();
    holder.wait(LONG).is(0);
    for waiter in &mut waiters {
        waiter.wait(LONG).is(0);
    }
    stage.quiet(1);
}

#[test]
fn targets_need_slots() {
    let stage = Stage::new(&["--rate", "1000"]);
    says(
        &stage.call("set", &["--target", "low=1"]),
        64,
        "the segment has no scheduler",
    );
    says(
        &stage.call("set", &["--target", "low=1", "--rate", "7"]),
        64,
        "the segment has no scheduler",
    );
    let seen = stage.inspect();
    assert_eq!(
        (&seen["scheduler"], &seen["limiter"]["tokens_per_second"]),
        (&Value::Null, &json!(1_000))
    );
    stage
        .call("set", &["--target", "low=1", "--concurrency", "2"])
        .is(0);
    assert_eq!(stage.inspect()["scheduler"]["targets"]["low"], 1);
    run(&stage, &["--slots", "2", "--tokens", "5"]).is(0);
    stage.call("set", &["--target", "low=2"]).is(0);
    assert_eq!(stage.inspect()["scheduler"]["targets"]["low"], 2);
}

#[test]
fn other_settings_than_the_segment_has_are_a_warning() {
    let stage = Stage::new(&["--rate", "10", "--interval", "1s"]);
    let name = stage.segment().to_string_lossy().into_owned();
    let again = |settings: &[&str]| stage.call("create", &[settings, &["--if-missing"]].concat());
    let same = again(&["--rate", "10/s", "--interval", "1000ms"]);
    assert_eq!(same.is(0).err, "");
    for (settings, word) in [
        (&["--rate", "20"][..], "rate"),
        (&["--interval", "2s"], "interval"),
        (&["--concurrency", "3"], "concurrency"),
        (&["--interval", "1s", "--max-waiting", "3"], "waiting"),
    ] {
        let warned = again(settings);
        let line = warned.is(0).one_line();
        assert!(
            line.contains("warning") && line.contains(&name) && line.contains(word),
            "{line}"
        );
    }
    let ran = stage.call("run", &["--rate", "20", "--", "echo", "in"]);
    assert_eq!(ran.is(0).text(), "in\n");
    assert!(
        ran.err.contains("warning") && ran.err.lines().count() == 1,
        "{}",
        ran.err
    );
    let seen = stage.inspect();
    assert_eq!(seen["limiter"]["tokens_per_second"], 10, "left as it is");
    assert_eq!(
        (&seen["pacer"]["interval_ms"], &seen["scheduler"]),
        (&json!(1_000), &Value::Null)
    );
    // run makes it, too.
    let new = stage.scene.path("new").to_string_lossy().into_owned();
    let words = [
        "run",
        &new,
        "--rate",
        "5",
        "--interval",
        "1ms",
        "--",
        "true",
    ];
    assert_eq!(ended(&mut shmsched(&words)).is(0).err, "");
    assert!(stage.scene.path("new").exists());
}
