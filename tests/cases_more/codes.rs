//! Exit codes, and errors in one line.

use crate::stage::{
    AS_NOBODY, Elsewhere, HOLD, Job, NOBODY, SOON, Stage, command, ended, os, shmsched, under,
    with_unit,
};
use crate::support::{LONG, Scene, peak, skipped};
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn case_36_the_code_of_the_command_is_passed_on() {
    let stage = Stage::new(&["--concurrency", "2"]);
    for code in 0..=255 {
        let ended = stage.call("run", &["--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!((ended.code(), ended.err.as_str()), (code, ""));
    }
    // -E replaces what is ours, not what is the command's.
    for code in [75, 124] {
        let ended = stage.call(
            "run",
            &["-E", "3", "--", "sh", "-c", &format!("exit {code}")],
        );
        ended.is(code);
    }
    stage.quiet(2);
}

#[test]
fn case_36_death_by_a_signal_is_128_and_its_number() {
    let stage = Stage::new(&["--concurrency", "1"]);
    // 11 with a core file where the system writes them; it goes into the scene.
    for (signal, number) in [
        ("KILL", 9),
        ("TERM", 15),
        ("SEGV", 11),
        ("USR1", 10),
        ("PIPE", 13),
        ("INT", 2),
    ] {
        let script = format!("ulimit -c unlimited 2>/dev/null; kill -{signal} $$; sleep 5");
        let mut command = stage.command("run", &["--", "sh", "-c", &script]);
        command.current_dir(stage.scene.path(""));
        assert_eq!(ended(&mut command).code(), 128 + number, "SIG{signal}");
    }
    stage.quiet(1);
}

fn script(path: &Path, text: &[u8], mode: u32) {
    fs::write(path, text).expect("a script");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
}

#[test]
fn case_36_what_cannot_be_run_is_126_and_what_is_not_there_127() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let place = |name: &str, text: &str, mode: u32| {
        let path = stage.scene.path(name);
        script(&path, text.as_bytes(), mode);
        path.to_string_lossy().into_owned()
    };
    let plain = place("plain", "#!/bin/sh\n", 0o644);
    let foreign = place("foreign", "#!/no/such/interpreter\n", 0o755);
    let nothing = place("nothing", "\0\0\0\0", 0o755);
    let directory = stage.scene.path("").to_string_lossy().into_owned();
    let below = format!("{plain}/x");
    for (word, code) in [
        ("no-such-command-anywhere", 127),
        ("/no/such/file", 127),
        ("", 127),
        (plain.as_str(), 126),
        (foreign.as_str(), 126),
        (nothing.as_str(), 126),
        (directory.as_str(), 126),
        (below.as_str(), 126),
    ] {
        let ended = stage.call("run", &["--", word]);
        assert_eq!(ended.code(), code, "{word:?}: {}", ended.err);
        ended.one_line();
    }
    let empty = stage.call("run", &["--", ""]);
    let line = empty.one_line();
    assert!(
        line.contains("empty") && line.contains("after --"),
        "{line}"
    );
    // As execvp: a script without an interpreter line is one of sh.
    let bare = place("bare", "exit 7\n", 0o755);
    stage.call("run", &["--", &bare]).is(7);
    stage.quiet(1);
}

/// What the system refuses on the way to the command, a descriptor or a process, costs no slot.
#[test]
fn case_44_a_command_that_cannot_start_gives_its_slot_back() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let mut refused = 0;
    for descriptors in 3..=20 {
        let script = format!("ulimit -n {descriptors}; exec \"$@\"");
        let run = stage.command("run", &["--", "true"]);
        let ended = ended(&mut under(&["sh", "-c", &script, "sh"], &run));
        // With three not even the libraries of the program can be opened, which is not its to say.
        let by_the_loader = ended.code() == 127 && !ended.err.starts_with("shmsched: ");
        if ended.code() != 0 && !by_the_loader {
            assert!((65..=126).contains(&ended.code()), "{ended:?}");
            ended.one_line();
            refused += 1;
        }
    }
    assert!(refused > 0, "no limit was hit");
    stage.quiet(1);

    if !geteuid().is_root() {
        skipped!("needs root, for a user without a right to another process");
    }
    let Some(elsewhere) = Elsewhere::new() else {
        skipped!("setpriv --reuid {NOBODY} does not work");
    };
    let path = elsewhere.path("S").to_string_lossy().into_owned();
    let create = ["create", &path, "--concurrency", "1", "--mode", "666"];
    ended(&mut shmsched(&create)).is(0);
    let mut run = command(&elsewhere.program);
    run.args(["run", &path, "--", "true"]);
    let none = "prlimit --pid $$ --nproc=0:0 || exit 99; exec \"$@\"";
    let as_nobody = [&AS_NOBODY[..5], &["sh", "-c", none, "sh"]].concat();
    for _ in 0..20 {
        let ended = ended(&mut under(&as_nobody, &run));
        if ended.code() == 99 {
            skipped!("prlimit does not work");
        }
        assert!((65..=126).contains(&ended.code()), "{ended:?}");
        ended.one_line();
    }
    ended(&mut shmsched(&["run", &path, "--no-wait", "--", "true"])).is(0);
}

/// Each answer that is ours has its own code, and its line names the segment.
#[test]
fn case_36_every_refusal_has_its_code() {
    let stage = Stage::new(&["--concurrency", "1", "--members", "3"]);
    let run = |options: &[&str]| stage.call("run", &[options, &["--", "true"]].concat());
    let at = |path: &Path, verb: &str, rest: &[&str]| {
        let mut command = shmsched(&[OsStr::new(verb), path.as_os_str()]);
        ended(command.args(rest))
    };
    let said = |ended: &crate::stage::Ended, code: i32, words: &str| {
        let line = ended.is(code).one_line().to_owned();
        assert!(line.contains(words), "{line}");
    };
    let name = stage.segment().to_string_lossy().into_owned();
    let mut holder = stage.hold();
    said(&run(&["--no-wait"]), 75, &name);
    said(&run(&["--timeout", "50ms"]), 124, &name);
    said(&run(&["--no-wait", "-E", "33"]), 33, &name);
    said(&run(&["--timeout", "50ms", "-E", "0"]), 0, &name);
    said(&run(&["--slots", "2"]), 69, "do not fit");
    said(&stage.call::<&str>("rm", &[]), 75, "in use by 1 process");
    said(&stage.call("wait", &["--timeout", "50ms"]), 124, &name);
    said(&stage.call("create", &["--concurrency", "1"]), 73, "exists");
    said(&stage.call("evict", &["0"]), 75, "alive");
    said(&stage.call("evict", &["2"]), 64, "no such member");
    let nested = stage.scene.path("nested");
    {
        // A full table: two more wait.
        let mut waiters = [run_job(&stage), run_job(&stage)];
        stage.in_line(2);
        said(&run(&["--no-wait"]), 69, "member table is full");
        said(&run(&["--timeout", "150ms"]), 124, "member table is full");
        holder.let_go();
        holder.wait(LONG).is(0);
        for waiter in &mut waiters {
            waiter.wait(LONG).is(0);
        }
    }
    // Inside a permit; the inner one's code is passed on by the outer.
    let inner = [
        crate::stage::PROGRAM,
        "run",
        &name,
        "--",
        "touch",
        &nested.to_string_lossy(),
    ];
    let ended = stage.call("run", &[&["--"], &inner[..]].concat());
    said(&ended, 78, "already inside");
    assert!(!nested.exists());
    stage.call("set", &["--concurrency", "0"]).is(0);
    said(&run(&[]), 69, "concurrency is 0");
    said(&run(&["--no-wait"]), 69, "concurrency is 0");
    stage.call("set", &["--concurrency", "1"]).is(0);
    stage.quiet(1);

    let missing = stage.scene.path("missing");
    for (verb, rest) in EVERY {
        said(&at(&missing, verb, rest), 66, "no such segment");
        assert!(!missing.exists());
    }
    let below = stage.scene.path("no/such/directory");
    said(
        &at(&below, "create", &["--concurrency", "1"]),
        73,
        "directory",
    );
    let damaged = stage.scene.path("damaged");
    fs::write(&damaged, "a letter to somebody\n").expect("a file");
    let format = stage.scene.path("format");
    let mut bytes = stage.bytes();
    bytes[8] = 9;
    fs::write(&format, &bytes).expect("a copy");
    for (verb, rest) in EVERY {
        if *verb == "rm" {
            continue;
        }
        said(&at(&damaged, verb, rest), 65, "not a segment");
        said(&at(&format, verb, rest), 76, "format");
    }
    assert_eq!(fs::read(&format).expect("there"), bytes);

    // Retired: who is attached gets it at the next acquire, who waits soon.
    let mut holder = stage.hold();
    let mut waiter = run_job(&stage);
    stage.in_line(1);
    stage.call("rm", &["--force"]).is(0);
    said(&waiter.wait(SOON), 69, "retired");
    holder.let_go();
    holder.wait(LONG).is(0);
    said(&run(&[]), 66, "no such segment");
}

fn run_job(stage: &Stage) -> Job {
    stage.job("run", &["--", "true"])
}

/// Every verb that opens a segment.
pub const EVERY: &[(&str, &[&str])] = &[
    ("run", &["--", "true"]),
    ("run", &["--no-wait", "--", "true"]),
    ("inspect", &[]),
    ("inspect", &["--json"]),
    ("set", &["--concurrency", "1"]),
    ("wait", &["--timeout", "1s"]),
    ("pressure", &[]),
    ("pressure", &["--above", "0", "--json"]),
    ("doctor", &[]),
    ("doctor", &["--repair"]),
    ("doctor", &["--json"]),
    ("evict", &["0"]),
    ("rm", &[]),
];

#[test]
fn case_36_no_permission_is_77() {
    if !geteuid().is_root() {
        skipped!("needs root, for a second user");
    }
    let Some(elsewhere) = Elsewhere::new() else {
        skipped!("setpriv --reuid {NOBODY} does not work");
    };
    let path = elsewhere.path("S").to_string_lossy().into_owned();
    ended(&mut shmsched(&["create", &path, "--concurrency", "1"])).is(0);
    for (verb, rest) in EVERY {
        let refused = ended(&mut elsewhere.as_nobody(&[&[*verb, &path], *rest].concat()));
        let line = refused.is(77).one_line().to_owned();
        assert!(line.contains("permission denied"), "{verb}: {line}");
    }
    let new = elsewhere.path("new").to_string_lossy().into_owned();
    let refused = ended(&mut elsewhere.as_nobody(&["create", &new, "--concurrency", "1"]));
    refused.is(77).one_line();
    // Who may only read may look, and no more.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("its mode");
    ended(&mut elsewhere.as_nobody(&["inspect", &path])).is(0);
    ended(&mut elsewhere.as_nobody(&["doctor", &path])).is(0);
    ended(&mut elsewhere.as_nobody(&["run", &path, "--", "true"])).is(77);
    ended(&mut elsewhere.as_nobody(&["rm", &path])).is(77);
    assert!(Path::new(&path).exists());
}

#[test]
fn case_36_the_command_line_of_the_command_is_left_alone() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let echo = stage.scene.path("-x");
    script(&echo, b"#!/bin/sh\nprintf '<%s>' \"$0\" \"$@\"\n", 0o755);
    let directory = stage.scene.path("").to_string_lossy().into_owned();
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap_or_default());
    let run = |words: &[&OsStr]| {
        let mut command = stage.command("run", &["--"]);
        let ended = ended(command.args(words).env("PATH", &path));
        assert_eq!(ended.is(0).err, "");
        // $0 has the directory in front.
        let at = ended
            .out
            .windows(4)
            .position(|four| four == b"/-x>")
            .expect("its name");
        ended.out[at + 4..].to_vec()
    };
    let text = |words: &[&str]| run(&words.iter().map(OsStr::new).collect::<Vec<_>>());
    assert_eq!(text(&["-x"]), b"");
    assert_eq!(text(&["-x", "--help"]), b"<--help>");
    assert_eq!(text(&["-x", "--", "y"]), b"<--><y>");
    assert_eq!(
        text(&["-x", "-p", "9", "--no-wait", ""]),
        b"<-p><9><--no-wait><>"
    );
    let odd = os(b"\xff\xfe\n*");
    assert_eq!(run(&[OsStr::new("-x"), &odd]), b"<\xff\xfe\n*>");
}

#[test]
fn case_36_names_need_not_be_utf8() {
    let scene = Scene::new();
    let path = scene.path("").join(os(b"se\xffg \xc3"));
    let call = |verb: &str, rest: &[&str]| {
        let mut command = shmsched(&[OsStr::new(verb), path.as_os_str()]);
        ended(command.args(rest))
    };
    call("create", &["--concurrency", "1"]).is(0);
    assert!(path.exists());
    call("run", &["--", "true"]).is(0);
    call("set", &["--concurrency", "2"]).is(0);
    let seen = call("inspect", &["--json"]).is(0).json();
    assert_eq!(seen["scheduler"]["concurrency"], 2);
    assert!(
        seen["segment"]["name"]
            .as_str()
            .expect("text")
            .contains('\u{fffd}')
    );
    let again = call("create", &["--concurrency", "1"]);
    again.is(73).one_line();
    call("rm", &[]).is(0);
    assert!(!path.exists());
    // As a plain name, too.
    let mut command = shmsched(&[
        OsStr::new("create"),
        &os(b"n\xff"),
        OsStr::new("--concurrency=1"),
    ]);
    ended(command.env("SHMSCHED_DIR", scene.path("d"))).is(0);
    let list = ended(shmsched(&["list", "--json"]).env("SHMSCHED_DIR", scene.path("d")));
    assert_eq!(list.is(0).json()["segments"][0]["name"], "n\u{fffd}");
}

#[test]
fn usage_errors_are_one_line_and_64() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let before = stage.bytes();
    let name = stage.segment().to_string_lossy().into_owned();
    let fresh = stage.scene.path("fresh");
    let new = fresh.to_string_lossy().into_owned();
    let s = name.as_str();
    let n = new.as_str();
    let long = "n".repeat(5_000);
    let wrong: &[&[&str]] = &[
        &[],
        &["frob"],
        &["--frob"],
        &["run"],
        &["run", s],
        &["run", s, "--"],
        &["run", s, "true"],
        &["run", s, "--frob", "--", "true"],
        &["run", s, "--no-wait", "--timeout", "1s", "--", "true"],
        &["run", s, "--timeout", "5", "--", "true"],
        &["run", s, "--timeout", "-1s", "--", "true"],
        &["run", s, "--timeout", "0,5s", "--", "true"],
        &["run", s, "--slots", "0", "--", "true"],
        &["run", s, "--slots", "-1", "--", "true"],
        &["run", s, "--slots", "2147483648", "--", "true"],
        &["run", s, "-p", "4", "--", "true"],
        &["run", s, "-p", "urgent", "--", "true"],
        &["run", s, "-p", "", "--", "true"],
        &["run", s, "-E", "256", "--", "true"],
        &["run", s, "-E", "-1", "--", "true"],
        &["run", s, "--nested", "maybe", "--", "true"],
        &["run", n, "--members", "3", "--", "true"],
        &["create", n],
        &["create", n, "--concurrency"],
        &["create", n, "--concurrency", "-1"],
        &["create", n, "--concurrency", "1.5"],
        &["create", n, "--concurrency", "x\ny"],
        &["create", n, "--concurrency", "2147483648"],
        &["create", n, "--concurrency", "1", "--target", "low"],
        &["create", n, "--concurrency", "1", "--target", "low=-1"],
        &["create", n, "--concurrency", "1", "--members", "0"],
        &["create", n, "--concurrency", "1", "--members", "16385"],
        &["create", n, "--concurrency", "1", "--mode", "888"],
        &["create", n, "--concurrency", "1", "--mode", "4755"],
        &["create", n, "extra", "--concurrency", "1"],
        &["create", "", "--concurrency", "1"],
        &["create", "..", "--concurrency", "1"],
        &["create", ".hidden", "--concurrency", "1"],
        &["create", "a\nb", "--concurrency", "1"],
        &["create", &long, "--concurrency", "1"],
        &["create", "shm:", "--concurrency", "1"],
        &["create", "shm:a/b", "--concurrency", "1"],
        &["set", s],
        &["set", s, "--concurrency", "nan"],
        &["set", s, "--frob", "1"],
        &["inspect", s, "--watch", "1ms"],
        &["inspect", s, "--watch", "soon"],
        &["wait", s, "--timeout", "inf"],
        &["evict", s],
        &["evict", s, "first"],
        &["rm", s, s],
        &["doctor", s, "--fix"],
        &["list", s],
        &["completions"],
        &["completions", "cobol"],
        &["man", "1", "shmsched"],
        &["demo", "--fast"],
    ];
    for arguments in wrong {
        let ended = ended(&mut shmsched(arguments));
        assert_eq!(
            ended.code(),
            64,
            "{arguments:?}: {}{}",
            ended.text(),
            ended.err
        );
        let line = ended.one_line();
        assert!(line.len() < 400, "{line}");
        assert!(!fresh.exists(), "{arguments:?}");
    }
    // A path that is too long is no mistake of usage, but an error like any.
    let long = format!("/tmp/{long}");
    for arguments in [
        &["create", &long, "--concurrency", "1"][..],
        &["run", &long, "--", "true"],
    ] {
        let ended = ended(&mut shmsched(arguments));
        assert!((65..=77).contains(&ended.code()), "{ended:?}");
        ended.one_line();
    }
    assert!(stage.bytes() == before, "nothing changed");
}

/// `run` could not be given such a name: what follows -- is its command.
#[test]
fn a_name_with_a_dash_in_front_is_refused_and_a_path_is_not() {
    let scene = Scene::new();
    fs::create_dir(scene.path("d")).expect("a directory");
    let call = |words: &[&str]| {
        let mut command = shmsched(words);
        command.env("SHMSCHED_DIR", scene.path("d"));
        ended(command.current_dir(scene.path("")))
    };
    for refused in [
        call(&["create", "--concurrency", "1", "--", "-x"]),
        call(&["inspect", "--", "-x"]),
    ] {
        let line = refused.is(64).one_line();
        assert!(
            line.contains("begins with a dash") && line.contains("./"),
            "{line}"
        );
    }
    for path in ["./-x", "d/-x"] {
        call(&["create", path, "--concurrency", "1"]).is(0);
        call(&["run", path, "--", "true"]).is(0);
    }
    // What is listed can be typed.
    let listed = call(&["list", "--json"]).is(0).json();
    let path = scene.path("d/-x").to_string_lossy().into_owned();
    assert_eq!(listed["segments"][0]["name"], path);
    assert_eq!(call(&["list", "--names"]).is(0).text(), "");
    call(&["run", &path, "--", "true"]).is(0);
}

/// Settings at `run` make the segment once, whoever is first.
#[test]
fn run_with_settings_makes_the_segment_once() {
    let scene = Scene::new();
    let path = scene.path("S").to_string_lossy().into_owned();
    let log = scene.path("log");
    let mut jobs: Vec<Job> = (0..8)
        .map(|_| {
            let run = shmsched(&["run", &path, "--concurrency", "2", "--members", "64"]);
            Job::start(&mut with_unit(run, &log, 20))
        })
        .collect();
    for job in &mut jobs {
        assert_eq!(job.wait(LONG).is(0).err, "");
    }
    let (most, units) = peak(&log);
    assert!(most <= 2 && units == 8, "{units} units, {most} at once");
    let other = shmsched(&[&["run", &path, "--concurrency", "3", "--"], &HOLD[..]].concat());
    let ended = ended(&mut { other });
    assert_eq!(ended.is(0).text(), "in\n");
    assert!(
        ended.err.contains("warning") && ended.err.lines().count() == 1,
        "{}",
        ended.err
    );
}
