//! Settings that make no sense, and those that do.

use crate::shell::{Play, SOON, create, inspect, names, shmsched};
use crate::support::Scene;
use serde_json::json;
use std::fs;

/// Wrong for `create` and, but for what only `create` has, for `set`.
const LIMITS: [&str; 16] = [
    "-5",
    "-1",
    "1.5",
    "nan",
    "NaN",
    "inf",
    "2147483648",
    "18446744073709551616",
    "",
    " 3",
    "3 ",
    "+3",
    "0x3",
    "5x",
    "-1%",
    "1.5%",
];
const TARGETS: [&str; 11] = [
    "low",
    "low=",
    "low=-1",
    "low=1.5",
    "low=nan",
    "low=2147483648",
    "urgent=1",
    "=1",
    "4=1",
    "-4=1",
    "low=1=2",
];
const MEMBERS: [&str; 8] = ["0", "-1", "1.5", "nan", "inf", "16385", "2147483648", ""];
const MODES: [&str; 8] = ["888", "-1", "1000", "1777", "rw", "0o600", "", "00000"];

#[test]
fn case_17_absurd_settings_make_no_segment() {
    let scene = Scene::new();
    let segment = scene.path("S");
    let with = |flag: &'static str| move |value: &'static &str| (flag, *value);
    let all = LIMITS
        .iter()
        .map(with("--concurrency"))
        .chain(TARGETS.iter().map(with("--target")))
        .chain(MEMBERS.iter().map(with("--members")))
        .chain(MODES.iter().map(with("--mode")));
    for (flag, value) in all {
        for verb in ["create", "run"] {
            let mut command = shmsched![verb, &segment, flag, value];
            if flag != "--concurrency" {
                command.args(["--concurrency", "2"]);
            }
            if verb == "run" {
                command.args(["--", "touch"]).arg(scene.path("ran"));
            }
            let ended = command.ended();
            assert_eq!(ended.code, Some(64), "{verb} {flag} {value:?}: {ended:#?}");
            ended.says(64, "");
            assert_eq!(names(&scene.path("")), [""; 0], "{verb} {flag} {value:?}");
        }
    }
    // Nothing to make it of.
    for flags in [
        &[][..],
        &["--target", "low=1"],
        &["--members", "4"],
        &["--mode", "600"],
    ] {
        let mut command = shmsched!["create", &segment];
        command.args(flags);
        command.ended().says(64, "--concurrency");
        assert!(!segment.exists());
    }
}

#[test]
fn case_17_absurd_settings_change_nothing() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "2", "--target", "low=1"]);
    let before = fs::read(&segment).unwrap();
    let unknown = [("--members", "5"), ("--mode", "600")];
    let all = LIMITS
        .iter()
        .map(|value| ("--concurrency", *value))
        .chain(TARGETS.iter().map(|value| ("--target", *value)))
        .chain(unknown);
    for (flag, value) in all {
        shmsched!["set", &segment, flag, value].ended().says(64, "");
        // One that is right does not help.
        shmsched!["set", &segment, "--target", "high=1", flag, value]
            .ended()
            .says(64, "");
        assert!(
            fs::read(&segment).unwrap() == before,
            "{flag} {value:?} changed it"
        );
    }
    shmsched!["set", &segment]
        .ended()
        .says(64, "nothing to set");
    assert!(fs::read(&segment).unwrap() == before);
}

#[test]
fn case_17_a_limit_of_nothing_lets_nothing_through() {
    let scene = Scene::new();
    for how in ["create", "set"] {
        let segment = scene.path(how);
        let first = if how == "create" { "0" } else { "2" };
        shmsched!["create", &segment, "--concurrency", first]
            .ended()
            .is(0);
        if how == "set" {
            shmsched!["set", &segment, "--concurrency", "0"]
                .ended()
                .is(0);
        }
        for patience in [&[][..], &["--no-wait"], &["--timeout", "20s"]] {
            let mut command = shmsched!["run", &segment];
            command
                .args(patience)
                .arg("--")
                .arg("touch")
                .arg(scene.path("ran"));
            command
                .started()
                .wait_for(SOON)
                .says(69, "concurrency is 0");
        }
        assert!(!scene.path("ran").exists());
        // It is a pause, not the end.
        shmsched!["set", &segment, "--concurrency", "1"]
            .ended()
            .is(0);
        shmsched!["run", &segment, "--", "true"].ended().is(0);
    }
    // A share of nothing is nothing, not everything.
    let segment = scene.path("share");
    shmsched!["create", &segment, "--concurrency", "0%"]
        .ended()
        .is(0);
    assert_eq!(inspect(&segment)["scheduler"]["concurrency"], 0);
    shmsched!["run", &segment, "--", "true"]
        .ended()
        .says(69, "is 0");
}

#[test]
fn case_17_extremes_that_are_allowed() {
    let scene = Scene::new();
    let allowed: [(&[&str], serde_json::Value); 4] = [
        (&["--concurrency", "2147483647"], json!(2_147_483_647)),
        (&["--concurrency", "unlimited"], json!(null)),
        (&["--concurrency", "1", "--members", "1"], json!(1)),
        (&["--concurrency", "1", "--members", "16384"], json!(1)),
    ];
    for (flags, concurrency) in allowed {
        let segment = create(&scene, flags);
        assert_eq!(inspect(&segment)["scheduler"]["concurrency"], concurrency);
        shmsched!["run", "--no-wait", &segment, "--", "true"]
            .ended()
            .is(0);
        shmsched!["rm", &segment].ended().is(0);
    }
}

#[test]
fn case_28c_targets_spread_as_told() {
    let scene = Scene::new();
    let told = [
        "--concurrency",
        "100",
        "--target",
        "low=20",
        "--target",
        "lowest=5",
    ];
    let segment = create(&scene, &told);
    let expected = json!({
        "lowest": 5, "lower": 5, "low": 20,
        "normal": 100, "high": 100, "higher": 100, "highest": 100,
    });
    assert_eq!(inspect(&segment)["scheduler"]["targets"], expected);
    // The order of the arguments does not matter, nor does it matter who sets them.
    let segment = scene.path("T");
    shmsched!["create", &segment, "--concurrency", "7"]
        .ended()
        .is(0);
    let later = [
        "--target",
        "-3=5",
        "--target",
        "-1=20",
        "--concurrency",
        "100",
    ];
    let mut set = shmsched!["set", &segment];
    set.args(later);
    set.ended().is(0);
    assert_eq!(inspect(&segment)["scheduler"]["targets"], expected);
}

#[test]
fn case_28d_priorities_have_names_and_numbers() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let good = [
        "lowest", "lower", "low", "normal", "high", "higher", "highest", "-3", "-2", "-1", "0",
        "1", "2", "3",
    ];
    for priority in good {
        let run = shmsched!["run", "--no-wait", "-p", priority, &segment, "--", "true"];
        run.ended().is(0);
    }
    let bad = [
        "4",
        "-4",
        "urgent",
        "",
        "1.0",
        "normal ",
        "99999999999999999999",
    ];
    for priority in bad {
        let ran = scene.path("ran");
        let run = shmsched!["run", "-p", priority, &segment, "--", "touch", &ran];
        run.ended().says(64, "");
        assert!(!ran.exists(), "{priority:?}");
    }
    // What a number means: its name is in the line.
    let mut holder = shmsched!["run", &segment, "--", "sleep", "60"].started();
    crate::support::until(crate::support::LONG, "held", || {
        crate::shell::running(&segment) == 1
    });
    for (priority, name) in [("-3", "lowest"), ("0", "normal"), ("3", "highest")] {
        let waiter = shmsched!["run", "-p", priority, &segment, "--", "true"].started();
        crate::shell::in_line(&segment, 1);
        assert_eq!(inspect(&segment)["scheduler"]["queued"][name], 1);
        waiter.signal(rustix::process::Signal::TERM);
        crate::shell::in_line(&segment, 0);
    }
    holder.kill_group();
}
