//! Case 57: what machines read, and numbers as people write them.

use crate::stage::{HOLD, Job, PROGRAM, SOON, Stage, command, ended, os, shmsched, works};
use crate::support::{Chance, LONG, Scene, figure, until};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Stdio;
use std::time::Instant;

/// The largest integer that JavaScript reads exactly.
const LARGEST: u64 = (1 << 53) - 1;

/// Every key of some documents with the types it has in them.
#[derive(Default)]
struct Shape(BTreeMap<String, BTreeSet<&'static str>>);

impl Shape {
    fn add(&mut self, at: &str, value: &Value) {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            // A share may be whole by chance.
            Value::Number(_) if at.contains(".avg") || at.ends_with("[].pressure") => "number",
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(0..=LARGEST), _) => "integer",
                (None, Some(_)) => "negative",
                _ => "number",
            },
        };
        self.0.entry(at.to_owned()).or_default().insert(kind);
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let below = if at == "." {
                        format!(".{key}")
                    } else {
                        format!("{at}.{key}")
                    };
                    self.add(&below, value);
                }
            }
            Value::Array(list) => {
                for value in list {
                    self.add(&format!("{at}[]"), value);
                }
            }
            _ => {}
        }
    }

    /// Compares it with the promise, which is a file so that a change of it is seen.
    #[track_caller]
    fn is(&self, golden: &str) {
        let mut found = String::new();
        for (key, kinds) in &self.0 {
            let kinds: Vec<&str> = kinds.iter().copied().collect();
            let _ = writeln!(found, "{key} {}", kinds.join("|"));
        }
        assert!(
            found == golden,
            "the documents have another shape:\n{found}\nexpected:\n{golden}"
        );
    }
}

/// One document and nothing else, also for `jq` where there is one.
#[track_caller]
fn one_document(bytes: &[u8]) -> Value {
    let document: Value = serde_json::from_slice(bytes).expect("exactly one document");
    assert_eq!(document["schema"], 1);
    assert!(bytes.ends_with(b"}\n"));
    let safe = bytes
        .iter()
        .all(|byte| *byte == b'\n' || !byte.is_ascii_control());
    assert!(
        safe,
        "control characters: {}",
        String::from_utf8_lossy(bytes)
    );
    document
}

#[test]
fn every_key_is_documented() {
    let documented = include_str!("../../docs/json.md");
    for golden in [
        include_str!("shapes/inspect.txt"),
        include_str!("shapes/list.txt"),
        include_str!("shapes/doctor.txt"),
    ] {
        let lines = golden
            .lines()
            .filter(|line| !line.contains(".queued.") && !line.contains(".targets."));
        let paths = lines.filter_map(|line| line.split(' ').next());
        let keys = paths.filter_map(|path| path.rsplit('.').next());
        for key in keys
            .map(|key| key.trim_end_matches("[]"))
            .filter(|key| !key.is_empty())
        {
            assert!(documented.contains(&format!("\"{key}\"")), "{key}");
        }
    }
}

#[test]
fn case_57_the_shape_of_inspect() {
    let mut shape = Shape::default();
    let idle = Stage::new(&["--concurrency", "unlimited"]);
    let document = idle.call("inspect", &["--json"]);
    shape.add(".", &one_document(&document.is(0).out));
    assert_eq!(document.err, "");
    drop(idle);

    let stage = Stage::new(&["--concurrency", "1", "--target", "low=1"]);
    let mut holder = stage.hold();
    let mut waiter = stage.job("run", &["-p", "low", "--", HOLD[0], HOLD[1], HOLD[2]]);
    stage.in_line(1);
    let document = one_document(&stage.call("inspect", &["--json"]).is(0).out);
    let members = document["members"].as_array().expect("a list");
    let held: Vec<u64> = members
        .iter()
        .filter_map(|member| member["held"].as_u64())
        .collect();
    assert_eq!(held, [1, 0]);
    let place = &members[1]["waiting"][0];
    assert_eq!(
        (&place["gate"], &place["priority"]),
        (&"scheduler".into(), &"low".into())
    );
    assert_eq!(
        (&place["position"], &place["amount"]),
        (&1.into(), &1.into())
    );
    assert_eq!(document["scheduler"]["queued"]["low"], 1);
    shape.add(".", &document);
    // One that waited knows since when it holds.
    holder.let_go();
    holder.wait(LONG).is(0);
    waiter.runs();
    shape.add(
        ".",
        &one_document(&stage.call("inspect", &["--json"]).is(0).out),
    );
    // Line by line with --watch.
    let mut watch = stage.job("inspect", &["--json", "--watch", "10ms"]);
    until(LONG, "three lines", || watch.out().lines().count() > 3);
    watch.kill();
    for line in watch.out().lines().take(3) {
        shape.add(".", &one_document(format!("{line}\n").as_bytes()));
    }
    waiter.let_go();
    waiter.wait(LONG).is(0);
    shape.is(include_str!("shapes/inspect.txt"));
    if works(&["jq", "--version"]) {
        let script = "\"$@\" | jq -e '.scheduler.admitted == 2' >/dev/null";
        let inspect = stage.command("inspect", &["--json"]);
        ended(&mut crate::stage::under(
            &["sh", "-c", script, "sh"],
            &inspect,
        ))
        .is(0);
    }
}

#[test]
fn case_57_the_shape_of_list() {
    let scene = Scene::new();
    let directory = scene.path("d");
    let call = |arguments: &[&str]| ended(shmsched(arguments).env("SHMSCHED_DIR", &directory));
    let list = || {
        let list = call(&["list", "--json"]);
        assert_eq!(list.is(0).err, "", "warnings are not for machines");
        one_document(&list.out)
    };
    let mut shape = Shape::default();
    let empty = list();
    assert_eq!(empty["segments"], Value::Array(Vec::new()));
    shape.add(".", &empty);
    call(&["create", "one", "--concurrency", "2"]).is(0);
    call(&["create", "two", "--concurrency", "unlimited"]).is(0);
    fs::write(directory.join("three"), "a letter\n").expect("a file");
    fs::write(directory.join("fo\u{1b}[31mur\n"), "").expect("a file");
    fs::create_dir(directory.join("five")).expect("a directory");
    let full = list();
    shape.add(".", &full);
    let entry = |name: &str| {
        let entries = full["segments"].as_array().expect("a list");
        let found = entries.iter().find(|entry| entry["name"] == name);
        found.unwrap_or_else(|| panic!("{name} in {full}")).clone()
    };
    assert_eq!(
        (&entry("one")["concurrency"], &entry("one")["error"]),
        (&2.into(), &Value::Null)
    );
    assert_eq!(entry("two")["concurrency"], Value::Null);
    for name in ["three", "five"] {
        assert!(entry(name)["error"].is_string() && entry(name)["running"].is_null());
    }
    let table = call(&["list"]).is(0).text();
    assert!(
        !table.contains('\x1b') && table.contains("\\u{1b}[31m"),
        "{table}"
    );
    shape.is(include_str!("shapes/list.txt"));
}

#[test]
fn case_57_the_shape_of_doctor() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let mut shape = Shape::default();
    let doctor = |code: i32, arguments: &[&str]| {
        let ended = stage.call("doctor", arguments);
        assert_eq!(ended.is(code).err, "");
        one_document(&ended.out)
    };
    shape.add(".", &doctor(0, &["--json"]));
    let mut holder = stage.hold();
    holder.signal(Signal::STOP);
    until(LONG, "stopped", || {
        crate::stage::state(holder.pid()) == Some('T')
    });
    shape.add(".", &doctor(1, &["--json"]));
    shape.add(".", &doctor(1, &["--json", "--repair"]));
    holder.kill_all();
    // What ran under it dies a moment later.
    stage.call("run", &["--timeout", "10s", "--", "true"]).is(0);
    stage.call("set", &["--concurrency", "0"]).is(0);
    let paused = doctor(0, &["--json"]);
    assert_eq!(
        (
            &paused["findings"][0]["kind"],
            &paused["findings"][0]["level"]
        ),
        (&"paused".into(), &"note".into())
    );
    shape.add(".", &paused);
    shape.is(include_str!("shapes/doctor.txt"));
}

#[test]
fn case_57_damaged_and_old_segments() {
    let stage = Stage::new(&["--concurrency", "3"]);
    let whole = stage.bytes();
    // Of an earlier boot: one document, with a word about it, and no byte is changed by looking.
    let mut old = whole.clone();
    old[64..80].fill(0x11);
    // What that boot left: two slots taken.
    old[260..264].copy_from_slice(&2i32.to_le_bytes());
    fs::write(stage.segment(), &old).expect("written");
    let seen = one_document(&stage.call("inspect", &["--json"]).is(0).out);
    assert_eq!(seen["segment"]["boot"], "earlier");
    assert_eq!(seen["scheduler"]["running"], 0, "what holds now");
    let doctor = one_document(&stage.call("doctor", &["--json"]).is(0).out);
    assert_eq!(doctor["findings"][0]["kind"], "earlier-boot");
    assert!(stage.bytes() == old, "looking changes nothing");
    stage
        .call("run", &["--no-wait", "--slots", "3", "--", "true"])
        .is(0);
    assert_eq!(stage.inspect()["segment"]["boot"], "current");
    stage.quiet(3);

    let mut format = whole.clone();
    format[8] = 2;
    for (bytes, code) in [
        (&whole[..200], 65),
        (b"", 65),
        (&[0; 8_192][..], 65),
        (&format, 76),
    ] {
        fs::write(stage.segment(), bytes).expect("written");
        for arguments in [&["--json"][..], &["--json", "--watch", "20ms"], &[]] {
            stage.call("inspect", arguments).is(code).one_line();
        }
        for arguments in [&["--json"][..], &["--json", "--repair"], &[]] {
            stage.call("doctor", arguments).is(code).one_line();
        }
        assert!(stage.bytes() == bytes, "looking changes nothing");
    }
}

#[test]
fn case_57_large_counters_are_exact_or_capped() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(stage.segment())
        .expect("opens");
    // The first record that a thread leases, of a segment of 1,024 members: what was admitted; see docs/segment-format.md.
    stage.call("run", &["--", "true"]).is(0);
    let admitted = 1_447_936 + 1_024 * 128 + 16;
    for (value, shown) in [
        (LARGEST - 1, LARGEST - 1),
        (LARGEST + 2, LARGEST),
        (u64::MAX - 7, LARGEST),
    ] {
        file.write_all_at(&value.to_le_bytes(), admitted)
            .expect("writes");
        let json = stage.call("inspect", &["--json"]);
        let text = json.is(0).text();
        assert!(text.contains(&format!("\"admitted\": {shown},")), "{text}");
        if works(&["jq", "--version"]) {
            let script = "\"$@\" | jq .scheduler.admitted";
            let inspect = stage.command("inspect", &["--json"]);
            let read = ended(&mut crate::stage::under(
                &["sh", "-c", script, "sh"],
                &inspect,
            ));
            assert_eq!(read.is(0).text(), format!("{shown}\n"));
        }
    }
}

/// So many pictures of a segment that is used, abused and never still.
fn snapshots(single: usize) {
    let stage = Stage::new(&["--concurrency", "2"]);
    let begun = Instant::now();
    let mut load: Vec<Job> = ["low", "normal", "high"]
        .iter()
        .map(|priority| {
            let script =
                "while :; do \"$PROGRAM\" run \"$SEGMENT\" -p \"$1\" -- true || exit 1; done";
            let mut shell = command("sh");
            shell
                .args(["-c", script, "sh", priority])
                .env("PROGRAM", PROGRAM)
                .env("SEGMENT", stage.segment());
            Job::start(&mut shell)
        })
        .collect();
    let mut chance = Chance::new();
    let mut watch = stage.job("inspect", &["--watch", "10ms", "--json"]);
    let mut documents = Vec::new();
    let mut victims = Vec::new();
    for at in 0..single {
        documents.push(one_document(&stage.call("inspect", &["--json"]).is(0).out));
        // Some die amid their wait, some amid their work.
        if at % 4 == 0 {
            victims.push(stage.job(
                "run",
                &["-p", "lowest", "--slots", "2", "--", "sleep", "0.02"],
            ));
        }
        if victims.len() > 2 {
            let mut victim: Job = victims.swap_remove(chance.below(3) as usize);
            victim.kill_all();
        }
    }
    victims.clear();
    until(LONG, "enough has happened", || {
        let admitted = stage.inspect()["scheduler"]["admitted"].as_u64();
        watch.out().lines().count() > 11 && admitted > Some(20)
    });
    // One surely amid its wait.
    let mut holder = stage.hold_with(&["--slots", "2", "-p", "highest"]);
    let mut victim = stage.job("run", &["-p", "lowest", "--", "true"]);
    until(LONG, "in line", || {
        stage.inspect()["scheduler"]["queued"]["lowest"] == 1
    });
    victim.kill_all();
    documents.push(stage.inspect());
    holder.let_go();
    holder.wait(LONG).is(0);
    for job in &mut load {
        assert_eq!(job.poll(), None, "the load goes on: {}", job.err());
    }
    watch.kill();
    let streamed = watch.out();
    let lines: Vec<Value> = streamed
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| one_document(line.as_bytes()))
        .collect();
    drop(load);
    let last = stage.inspect();
    let age = begun.elapsed().as_millis() as u64 + 1_000;
    figure!(
        "{} single, {} streamed, {} deferred, {} lost, {} reclaimed",
        documents.len(),
        lines.len(),
        last["scheduler"]["deferred"],
        last["scheduler"]["lost"],
        last["scheduler"]["reclaimed"]
    );
    assert!(lines.len() > 10 && last["scheduler"]["admitted"].as_u64() > Some(20));
    assert!(
        last["scheduler"]["lost"].as_u64() > Some(0),
        "none was killed while it waited: {last}"
    );
    for documents in [&documents, &lines] {
        let mut before = [0; 7];
        for document in documents {
            let scheduler = &document["scheduler"];
            // Every one of these is a whole number and not below zero.
            let number = |value: &Value| {
                value
                    .as_u64()
                    .unwrap_or_else(|| panic!("{value} in {document}"))
            };
            let of = |name: &str| number(&scheduler[name]);
            assert!(of("running_raw") <= 2, "{document}");
            // An acquire claims before it takes: who is amid one counts.
            assert!(of("running") <= 2 + 7, "{document}");
            let queued = scheduler["queued"].as_object().expect("by priority");
            assert_eq!(queued.len(), 7);
            let queued: u64 = queued.values().map(number).sum();
            let ended = of("completed") + of("cancelled") + of("lost");
            assert_eq!(of("deferred"), ended + queued, "{document}");
            assert!(of("waiters") <= 7 && queued <= 7, "{document}");
            let counters = [
                "admitted",
                "released",
                "deferred",
                "completed",
                "cancelled",
                "lost",
                "reclaimed",
            ];
            let now = counters.map(of);
            for (at, name) in counters.iter().enumerate() {
                assert!(
                    now[at] >= before[at],
                    "{name} went back from {}: {document}",
                    before[at]
                );
            }
            before = now;
            for member in document["members"].as_array().expect("a list") {
                assert!(number(&member["age_ms"]) <= age, "{document}");
                assert!(number(&member["held"]) <= 2, "{document}");
                for place in member["waiting"].as_array().expect("a list") {
                    assert!(number(&place["since_ms"]) <= age, "{document}");
                    assert!((1..=7).contains(&number(&place["position"])), "{document}");
                }
            }
        }
    }
    crate::support::quiet_within(SOON, &stage.location(), 2);
}

#[test]
fn case_57_snapshots_under_load() {
    snapshots(200);
}

#[test]
#[ignore = "for scripts/stress: 1,000 snapshots"]
fn stress_case_57_snapshots_under_load() {
    snapshots(1_000);
}

#[test]
fn case_57_the_locale_changes_nothing() {
    let stage = Stage::new(&["--concurrency", "2", "--target", "low=1"]);
    let mut seen = BTreeSet::new();
    for locale in ["C", "de_DE.UTF-8", "tr_TR.UTF-8", "C.UTF-8", ""] {
        let call = |verb: &str, arguments: &[&str]| {
            let mut command = stage.command(verb, arguments);
            command
                .env("LC_ALL", locale)
                .env("LANG", locale)
                .env("LC_NUMERIC", locale);
            ended(&mut command)
        };
        let documents = [
            call("inspect", &[]),
            call("inspect", &["--json"]),
            call("doctor", &[]),
        ];
        seen.insert(documents.map(|document| document.is(0).text()));
        call("wait", &["--timeout", "0.5s"]).is(0);
        call("wait", &["--timeout", "0,5s"]).is(64).one_line();
        call("create", &["--concurrency", "1,5"]).is(64).one_line();
        call("create", &["--concurrency", "1"]).is(73).one_line();
    }
    assert_eq!(seen.len(), 1, "{seen:#?}");
}

#[test]
fn case_57_negative_priorities_in_every_form() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let mut holder = stage.hold();
    let forms = [
        &["-p", "-3"][..],
        &["-p=-3"],
        &["-p-3"],
        &["--priority", "-3"],
        &["--priority=-3"],
        &["-p", "lowest"],
    ];
    let mut jobs: Vec<Job> = forms
        .iter()
        .map(|form| stage.job("run", &[form, &["--", "true"][..]].concat()))
        .collect();
    stage.in_line(forms.len() as i32);
    assert_eq!(
        stage.inspect()["scheduler"]["queued"]["lowest"],
        forms.len()
    );
    holder.let_go();
    holder.wait(LONG).is(0);
    for job in &mut jobs {
        job.wait(LONG).is(0);
    }
    stage.call("set", &["--target", "-3=1"]).is(0);
    assert_eq!(stage.inspect()["scheduler"]["targets"]["lowest"], 1);
    stage.quiet(1);
}

#[test]
fn case_57_a_reader_that_leaves_early() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let s = stage.segment().to_string_lossy().into_owned();
    for arguments in [
        &["inspect", &s, "--json"][..],
        &["inspect", &s],
        &["inspect", &s, "--watch", "10ms", "--json"],
        &["inspect", &s, "--watch", "10ms"],
        &["doctor", &s],
        &["doctor", &s, "--json"],
        &["list"],
        &["list", "--json"],
        &["--help"],
        &["run", "--help"],
        &["--version"],
        &["completions", "bash"],
        &["completions", "zsh"],
    ] {
        // Nobody reads at all.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut child = shmsched(arguments)
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        until(SOON, &arguments.join(" "), || {
            child.try_wait().expect("waiting works").is_some()
        });
        let output = child.wait_with_output().expect("its end");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        // One byte is read.
        let script = "{ \"$@\"; echo $? >&2; } | head -c 1";
        let read = ended(&mut crate::stage::under(
            &["sh", "-c", script, "sh"],
            &shmsched(arguments),
        ));
        assert_eq!(
            (read.out.len(), read.err.as_str()),
            (1, "0\n"),
            "{arguments:?}"
        );
        // No room.
        if fs::metadata("/dev/full").is_ok() {
            let full = ended(&mut crate::stage::under(
                &["sh", "-c", "\"$@\" >/dev/full", "sh"],
                &shmsched(arguments),
            ));
            full.is(74).one_line();
        }
    }
}

#[test]
fn case_57_odd_bytes_in_names_come_out_escaped() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let name = os(b"c\x1b[31m\xff\n\xc2\x9bx\x7f");
    let script = stage.scene.path("").join(&name);
    fs::write(&script, "#!/bin/sh\necho in\nexec cat\n").expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
    let mut run = shmsched(&[
        OsStr::new("run"),
        stage.segment().as_os_str(),
        OsStr::new("--"),
        name.as_os_str(),
    ]);
    let path = format!(
        "{}:{}",
        stage.scene.path("").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut holder = Job::start(run.env("PATH", &path));
    holder.runs();
    let safe = |text: &str| {
        assert!(
            !text.contains(|c: char| c.is_control() && c != '\n'),
            "{text:?}"
        )
    };
    let json = stage.call("inspect", &["--json"]);
    safe(&json.is(0).text());
    let document = one_document(&json.out);
    assert_eq!(
        document["members"][0]["command"],
        "c\x1b[31m\u{fffd}\n\u{9b}x\x7f"
    );
    let table = stage.call::<&str>("inspect", &[]).is(0).text();
    safe(&table);
    assert!(
        table.contains("c\\u{1b}[31m\u{fffd}\\n\\u{9b}x\\u{7f}"),
        "{table}"
    );
    // Who waits is told, in one line; doctor names it, stopped.
    let mut waiter = stage.job("run", &["-v", "--", "true"]);
    until(LONG, "told", || waiter.err().ends_with('\n'));
    assert_eq!(waiter.err().lines().count(), 1, "{:?}", waiter.err());
    safe(&waiter.err());
    holder.signal(Signal::STOP);
    until(LONG, "stopped", || {
        crate::stage::state(holder.pid()) == Some('T')
    });
    for arguments in [&[][..], &["--json"]] {
        safe(&stage.call("doctor", arguments).is(1).text());
    }
    holder.signal(Signal::CONT);
    holder.let_go();
    holder.wait(LONG).is(0);
    waiter.wait(LONG).is(0);
    // In a segment's own name, too.
    let odd = stage.scene.path("s\x1b[2J\n");
    let missing = ended(&mut shmsched(&[OsStr::new("inspect"), odd.as_os_str()]));
    missing.is(66).one_line();
    let nobody = ended(&mut shmsched(&[
        OsStr::new("run"),
        stage.segment().as_os_str(),
        OsStr::new("--"),
        &os(b"no\x1b\xff\n"),
    ]));
    nobody.is(127).one_line();
    stage.quiet(1);
}
