//! Reused pids and earlier boots: in namespaces, where those are permitted.

use crate::shell::{
    PROGRAM, Play, SOON, comes_to_rest, create, in_line, inspect, refused, running, script,
    shmsched, unshare, works,
};
use crate::support::{LONG, Scene, figure, skipped, until};
use crate::unit::{Hold, begun, open, with_unit, with_unit_in_script};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const PIDS: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];

/// A holder that is pid 500 is killed, and somebody else becomes 500.
fn pid_500_again(program: &str, who: &str) {
    let Some(wrapper) = unshare(&PIDS) else {
        skipped!("unshare --pid is not permitted");
    };
    let choose = wrapper.iter().copied();
    let choose: Vec<&str> = choose
        .chain([
            "sh",
            "-c",
            "echo 499 > /proc/sys/kernel/ns_last_pid && exec \"$@\"",
            "sh",
        ])
        .collect();
    if !works(&choose) {
        skipped!("pids may not be chosen");
    }
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let log = scene.path("log");
    fs::write(&log, "").unwrap();
    let holder = scene.path(program);
    // No copy: while another test forks, a file just written cannot be run.
    std::os::unix::fs::symlink(PROGRAM, &holder).unwrap();
    let story = r#"
        choose() { echo 499 > /proc/sys/kernel/ns_last_pid; }
        choose; "$HOLDER" run "$S" -- tail -f /dev/null &
        [ $! = 500 ] || { echo "holder is $!"; exit 11; }
        for n in $(seq 400); do
            "$B" inspect "$S" --json | grep -q '"held": 1' && break; sleep 0.01
        done
        "$B" doctor "$S" || exit 12
        [ "$(cat /proc/500/comm)" = "${HOLDER##*/}" ] || exit 16
        for n in $(seq 400); do
            command=$(cat /proc/500/task/500/children); command=${command% }
            [ -n "$command" ] && break; sleep 0.01
        done; [ -n "$command" ] || exit 17
        kill -KILL 500 $command; wait 500
        for n in $(seq 400); do
            grep -q 'State:.[^Z]' /proc/$command/status 2>/dev/null || break; sleep 0.01
        done
        case $WHO in
        process) choose; sleep 600 & [ $! = 500 ] || exit 13;;
        thread) $UNIT > /dev/null & for n in $(seq 400); do
            grep -q 'thread 500' "$CASE_LOG" && break; sleep 0.01
        done; [ -d /proc/500 ] || exit 14;;
        esac
        kill -0 500 || exit 15
        "$B" doctor "$S"; echo "doctor $?"
        "$B" run "$S" --timeout 5s -- echo granted; echo "run $?"
        "$B" doctor "$S"; echo "doctor $?"
        kill -0 500 && echo "500 lives"
    "#;
    let command = script(&wrapper, story);
    let mut command = with_unit_in_script(command, "thread_500", &log, Hold::Millis(0));
    command
        .env("S", &segment)
        .env("HOLDER", &holder)
        .env("WHO", who);
    let ended = command.ended().is(0);
    let lines: Vec<&str> = ended.out.lines().collect();
    let at = |what: &str| {
        let found = lines.iter().position(|line| *line == what);
        found.unwrap_or_else(|| panic!("no {what:?} in {ended:#?}"))
    };
    let found = &lines[..at("doctor 1")];
    let gone = found.iter().find(|line| line.contains("pid 500"));
    let gone = gone.unwrap_or_else(|| panic!("{ended:#?}"));
    assert!(
        gone.contains("is gone") && gone.contains("held 1 slot"),
        "{gone}"
    );
    assert!(!ended.out.contains("sleep"), "{ended:#?}");
    at("granted");
    at("run 0");
    at("doctor 0");
    at("500 lives");
    comes_to_rest(&segment, 1);
}

#[test]
fn case_19_a_pid_used_again_by_a_process() {
    pid_500_again("shmsched", "process");
}

#[test]
fn case_19_a_pid_used_again_by_a_thread() {
    pid_500_again("shmsched", "thread");
}

#[test]
fn case_19_a_holder_whose_name_looks_like_numbers() {
    pid_500_again("a) R 1 (b", "process");
}

/// A segment on a disk as the machine went down: both slots held, three waiting.
fn after_power_loss(scene: &Scene) -> PathBuf {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| tempfile::tempdir());
    let disk = disk.expect("a directory on a disk");
    let segment = disk.path().join("S");
    let copy = scene.path("copy");
    shmsched!["create", &segment, "--concurrency", "2"]
        .ended()
        .is(0);
    let (log, never) = (scene.path("log"), scene.path("never"));
    let mut dead: Vec<_> = (0..2)
        .map(|_| with_unit(shmsched!["run", &segment], &log, Hold::Until(&never)).started())
        .collect();
    until(LONG, "held", || begun(&log) == 2);
    dead.extend((0..3).map(|_| shmsched!["run", &segment, "--", "true"].started()));
    in_line(&segment, 3);
    // Those that wait first, from the last on: who outlives a holder for a moment has its slot.
    dead.iter_mut().rev().for_each(|run| run.kill_group());
    fs::copy(&segment, &copy).unwrap();
    copy
}

#[test]
fn case_20_state_of_an_earlier_boot_is_discarded() {
    let Some(wrapper) = unshare(&["--mount"]) else {
        skipped!("unshare --mount is not permitted");
    };
    let scene = Scene::new();
    let boot = scene.path("boot_id");
    fs::write(&boot, "00000000-1111-2222-3333-444444444444\n").unwrap();
    let bind = "mount --bind \"$BOOT\" /proc/sys/kernel/random/boot_id || exit 99\n";
    let mut probe = script(&wrapper, &format!("{bind} true"));
    probe.env("BOOT", &boot);
    if probe.ended().code != Some(0) {
        skipped!("a bind mount over boot_id is not permitted");
    }
    let segment = after_power_loss(&scene);
    let story = r#"
        "$B" inspect "$S"; "$B" doctor "$S"; echo "doctor $?"
        "$B" inspect "$S" --json > "$S.before"
        "$B" run --no-wait "$S" -- "$B" inspect "$S" --json > "$S.after"; echo "run $?"
        "$B" run --no-wait --slots 2 "$S" -- true; echo "both $?"
        "$B" run --no-wait --slots 3 "$S" -- true; echo "more $?"
    "#;
    let mut command = script(&wrapper, &format!("{bind}{story}"));
    command.env("BOOT", &boot).env("S", &segment);
    let ended = command.ended().is(0);
    // By inspect, and by doctor.
    let notes = ended.out.matches("state from an earlier boot discarded");
    assert_eq!(notes.count(), 2, "{ended:#?}");
    let first = ended
        .out
        .lines()
        .take_while(|line| !line.contains("doctor"));
    let first: Vec<&str> = first.collect();
    assert!(
        first.iter().any(|line| line.contains("earlier boot")),
        "{first:#?}"
    );
    for code in ["doctor 0", "run 0", "both 0", "more 69"] {
        assert!(
            ended.out.lines().any(|line| line == code),
            "{code}: {ended:#?}"
        );
    }
    let document = |when: &str| -> serde_json::Value {
        let path = format!("{}.{when}", segment.display());
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let (before, after) = (document("before"), document("after"));
    assert_eq!(before["segment"]["boot"], "earlier");
    // The dead wait no more: neither in the counts nor in the line.
    assert_eq!(before["scheduler"]["queued"]["normal"], 0, "{before:#}");
    assert_eq!(before["scheduler"]["lost"], 3, "{before:#}");
    for document in [&before, &after] {
        let counted = if document["segment"]["boot"] == "current" {
            1
        } else {
            0
        };
        assert_eq!(document["scheduler"]["running"], counted, "{document:#}");
        assert_eq!(document["scheduler"]["waiters"], 0);
        assert_eq!(document["scheduler"]["concurrency"], 2, "settings stay");
    }
    assert_eq!(after["segment"]["boot"], "current");
    for counter in ["deferred", "lost", "released", "reclaimed"] {
        assert_eq!(after["scheduler"][counter], 0, "{after:#}");
    }
    assert_eq!(after["scheduler"]["admitted"], 1);
}

/// A little less than the machine has been up: stamps lie far ahead there.
fn young_clock() -> Option<Vec<&'static str>> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = uptime.split(' ').next()?.parse().ok()?;
    let back = format!("-{}", (seconds as u64).saturating_sub(2)).leak();
    unshare(&[
        "--time",
        "--monotonic",
        back,
        "--boottime",
        back,
        "--fork",
        "--kill-child",
    ])
}

#[test]
fn case_20_a_clock_far_behind_the_stamps() {
    let Some(wrapper) = young_clock() else {
        skipped!("unshare --time is not permitted");
    };
    let scene = Scene::new();
    let segment = after_power_loss(&scene);
    let mut command = script(
        &wrapper,
        r#""$B" run --no-wait "$S" -- "$B" inspect "$S" --json && "$B" run --no-wait --slots 2 "$S" -- true"#,
    );
    command.env("S", &segment);
    let ended = command.ended().is(0);
    let seen: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(seen["scheduler"]["running"], 1);
    let age = seen["members"][0]["age_ms"].as_u64().expect("an age");
    assert!(age < 60_000, "{seen:#}");
    comes_to_rest(&segment, 2);
}

/// Two clocks on one segment: waits end when they should, turns pass between them.
#[test]
fn case_20_two_clocks_share_a_segment() {
    let Some(wrapper) = young_clock() else {
        skipped!("unshare --time is not permitted");
    };
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let (log, gate) = (scene.path("log"), scene.path("gate"));
    let mut holder = with_unit(shmsched!["run", &segment], &log, Hold::Until(&gate)).started();
    until(LONG, "held", || begun(&log) == 1);
    let there = |arguments: &str| {
        let mut command = script(&wrapper, &format!("exec \"$B\" run \"$S\" {arguments}"));
        command.env("S", &segment);
        command
    };
    let vain = there("--timeout 400ms -- true")
        .started()
        .wait_for(LONG)
        .is(124);
    figure!("400 ms took {:?}", vain.took);
    assert!(
        vain.took >= Duration::from_millis(400) && vain.took < SOON,
        "{vain:?}"
    );
    let mut waiter = there("-- true").started();
    in_line(&segment, 1);
    let since = inspect(&segment)["scheduler"]["head_wait_ms"].as_u64();
    assert!(since.is_some_and(|since| since < 20_000), "{since:?}");
    waiter.stays_for(Duration::from_millis(250));
    open(&gate);
    holder.wait().is(0);
    waiter.wait_for(SOON).is(0);
    // And the other way round.
    let second = scene.path("second");
    let mut command = there("-- $UNIT");
    command = with_unit_in_script(command, "work", &log, Hold::Until(&second));
    let mut holder = command.started();
    until(LONG, "held", || begun(&log) == 2);
    refused(&segment);
    let mut waiter = shmsched!["run", &segment, "--", "true"].started();
    in_line(&segment, 1);
    assert_eq!(running(&segment), 1);
    open(&second);
    waiter.wait_for(SOON).is(0);
    holder.wait().is(0);
    comes_to_rest(&segment, 1);
}

/// What a service manager may take away is named: writing, and the boot id.
#[test]
fn a_read_only_mount_and_a_proc_without_the_boot_id_are_named() {
    let Some(wrapper) = unshare(&["--mount"]) else {
        skipped!("unshare --mount is not permitted");
    };
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let directory = segment.parent().expect("it has one");
    let told = |story: &str| {
        let mut command = std::process::Command::new(wrapper[0]);
        command.args(&wrapper[1..]).args(["sh", "-c", story]);
        command.env("B", PROGRAM).env("S", &segment);
        let output = command.env("D", directory).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = told(
        "mount --bind \"$D\" \"$D\" && mount -o remount,ro,bind \"$D\" || exit 125
         \"$B\" run \"$S\" -- true",
    );
    if code == Some(125) {
        skipped!("mounting is not permitted");
    }
    assert_eq!(code, Some(77), "{text}");
    assert!(text.contains("Read-only file system"), "{text}");
    let (code, text) = told(
        "mount -t proc -o subset=pid proc /proc || exit 125
         \"$B\" run \"$S\" -- true",
    );
    if code == Some(125) {
        skipped!("mounting /proc is not permitted");
    }
    assert_eq!(code, Some(74), "{text}");
    assert!(text.contains("/proc/sys/kernel/random/boot_id"), "{text}");
}
