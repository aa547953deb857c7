//! Rates, intervals and tokens: absurd ones, what ends a wait for them, what is to be seen of them.

use crate::stage::{Ended, HOLD, Job, PROGRAM, Stage, ended, shmsched};
use crate::support::{LONG, Scene, figure, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// More than any balance can owe beside [`in_debt`]: who waits for so many is not let in by the one-second guard.
pub const MANY: &str = "1000000";

/// A segment of a token a second that owes almost as many as can be owed.
pub fn in_debt(more: &[&str]) -> Stage {
    let stage = Stage::new(&[&["--rate", "1"], more].concat());
    // More than the bucket holds is let in while the bucket is full, as it is at first.
    stage
        .call("run", &["--tokens", "2147483647", "--", "true"])
        .is(0);
    stage
}

/// A segment whose next start is an hour away.
pub fn paced(more: &[&str]) -> Stage {
    let stage = Stage::new(&[&["--interval", "1h"], more].concat());
    stage.call("run", &["--", "true"]).is(0);
    stage
}

/// How many wait at a gate.
pub fn queued(stage: &Stage, gate: &str) -> u64 {
    queued_in(&stage.inspect(), gate)
}

fn queued_in(document: &Value, gate: &str) -> u64 {
    let seen = &document[gate];
    match gate {
        "pacer" => seen["waiting"].as_u64().expect("a number"),
        _ => {
            let lanes = seen["queued"].as_object().expect("an object");
            lanes
                .values()
                .map(|lane| lane.as_u64().expect("a number"))
                .sum()
        }
    }
}

/// The places in line that a document shows.
fn places(document: &Value) -> Vec<&Value> {
    let members = document["members"].as_array().expect("a list");
    let waiting = |member| -> &Vec<Value> {
        let member: &Value = member;
        member["waiting"].as_array().expect("a list")
    };
    members.iter().flat_map(waiting).collect()
}

/// Waits until so many wait at a gate, and each has its place, which it takes after it was counted.
#[track_caller]
pub fn in_line(stage: &Stage, gate: &str, count: u64) {
    until(LONG, "in line", || {
        let seen = stage.inspect();
        let here = places(&seen)
            .into_iter()
            .filter(|place| place["gate"] == gate);
        (queued_in(&seen, gate), here.count() as u64) == (count, count)
    });
}

/// `run` with options, and `true` as the command.
pub fn run(stage: &Stage, options: &[&str]) -> Ended {
    stage.call("run", &[options, &["--", "true"]].concat())
}

#[track_caller]
pub fn says(ended: &Ended, code: i32, words: &str) {
    let line = ended.is(code).one_line();
    assert!(line.contains(words), "no {words:?} in {line}");
}

/// The waits that were ever begun are all accounted for.
#[track_caller]
pub fn adds_up(gate: &Value, queued: u64) {
    let number = |key: &str| gate[key].as_u64().expect("a number");
    let ended = number("completed") + number("cancelled") + number("lost");
    assert_eq!(number("deferred"), ended + queued, "{gate}");
}

const RATES: [&str; 14] = [
    "0",
    "-5",
    "1.5",
    "nan",
    "inf",
    "2147483648",
    "",
    "0MB/s",
    "0/s",
    "0.4B/s",
    "10MB",
    "10MB/m",
    "2GiB/s",
    "1,5MB/s",
];

const INTERVALS: [&str; 9] = ["0", "0ms", "0.000s", "-1ms", "nan", "inf", "5", "0,5s", ""];

const WAITING: [&str; 6] = ["-1", "1.5", "nan", "65537", "2147483648", ""];

#[test]
fn case_17_absurd_rates_and_intervals_make_no_segment() {
    let scene = Scene::new();
    let path = scene.path("S").to_string_lossy().into_owned();
    let ran = scene.path("ran").to_string_lossy().into_owned();
    let with = |flag: &'static str| move |value: &'static str| (flag, value);
    let all = (RATES.into_iter().map(with("--rate")))
        .chain(INTERVALS.into_iter().map(with("--interval")))
        .chain(WAITING.into_iter().map(with("--max-waiting")));
    for (flag, value) in all {
        let others: &[&str] = match flag {
            "--max-waiting" => &["--interval", "1s"],
            _ => &["--concurrency", "1"],
        };
        for (verb, command) in [("create", &[][..]), ("run", &["--", "touch", &ran])] {
            let words = [&[verb, &path, flag, value], others, command].concat();
            let ended = ended(&mut shmsched(&words));
            assert_eq!(ended.code(), 64, "{words:?}: {}", ended.err);
            ended.one_line();
            let left: Vec<_> = std::fs::read_dir(scene.path("")).expect("there").collect();
            assert!(left.is_empty(), "{words:?} left {left:?}");
        }
    }
    // What belongs to a gate that is not asked for.
    for (words, needs) in [
        (&["--target", "low=1", "--rate", "5"][..], "--concurrency"),
        (&["--max-waiting", "5"], "--interval"),
        (
            &["--max-waiting", "5", "--rate", "5", "--concurrency", "1"],
            "--interval",
        ),
        (&["--members", "5"], "--rate"),
        (&[], "--interval"),
    ] {
        let ended = ended(&mut shmsched(&[&["create", &path], words].concat()));
        says(&ended, 64, needs);
        assert!(!scene.path("S").exists());
    }
}

#[test]
fn case_17_absurd_rates_and_intervals_change_nothing() {
    let stage = Stage::new(&["--rate", "100", "--interval", "20ms"]);
    let before = stage.bytes();
    let rates = RATES.iter().map(|value| ("--rate", value));
    let intervals = INTERVALS.iter().map(|value| ("--interval", value));
    for (flag, value) in rates.chain(intervals).chain([("--max-waiting", &"5")]) {
        stage.call("set", &[flag, value]).is(64).one_line();
        // One that is right does not help.
        let both = ["--concurrency", "3", flag, value];
        stage.call("set", &both).is(64).one_line();
        assert!(stage.bytes() == before, "{flag} {value:?} changed it");
    }
    says(&stage.call::<&str>("set", &[]), 64, "--rate or --interval");
}

#[test]
fn case_17_extremes_that_are_allowed() {
    let rates = [
        ("1", 1),
        ("2147483647", 2_147_483_647),
        ("500/s", 500),
        ("1.5MB/s", 1_500_000),
        ("1MiB/s", 1_048_576),
    ];
    for (text, rate) in rates {
        let stage = Stage::new(&["--rate", text]);
        run(&stage, &["--no-wait"]).is(0);
        assert_eq!(
            stage.inspect()["limiter"]["tokens_per_second"],
            rate,
            "{text}"
        );
    }
    let intervals = [
        ("1ns", json!(0.000001)),
        ("0.5ms", json!(0.5)),
        ("2s", json!(2_000)),
        ("36500d", json!(3_153_600_000_000_u64)),
        (
            "99999999999999999999999999999999999999999d",
            json!(3_153_600_000_000_u64),
        ),
    ];
    for (text, interval) in intervals {
        let stage = Stage::new(&["--interval", text, "--max-waiting", "65536"]);
        // Also of a hundred years: the first is let in at once.
        run(&stage, &["--no-wait"]).is(0);
        let pacer = &stage.inspect()["pacer"];
        assert_eq!(pacer["interval_ms"], interval, "{text}");
        assert_eq!(
            (&pacer["max_waiting"], &pacer["started"]),
            (&json!(65_536), &json!(1))
        );
    }
}

#[test]
fn case_17_a_queue_for_nobody() {
    let stage = paced(&["--max-waiting", "0"]);
    says(&run(&stage, &[]), 71, &stage.segment().to_string_lossy());
    says(&run(&stage, &["-E", "9"]), 71, "full");
    says(&run(&stage, &["--timeout", "5s"]), 71, "full");
    says(&run(&stage, &["--no-wait"]), 75, "start");
    let pacer = stage.inspect()["pacer"].clone();
    assert_eq!(
        (&pacer["started"], &pacer["waiting"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(pacer["rejected"], json!(3), "once each: {pacer}");
}

#[test]
fn case_36_a_gate_asked_for_must_be_there() {
    for settings in [&["--concurrency", "1"][..], &["--interval", "1ms"]] {
        let stage = Stage::new(settings);
        for tokens in ["0", "1"] {
            says(
                &run(&stage, &["--tokens", tokens]),
                64,
                "the segment has no limiter",
            );
        }
        run(&stage, &[]).is(0);
    }
    for settings in [&["--rate", "5"][..], &["--interval", "1ms"]] {
        let stage = Stage::new(settings);
        says(
            &run(&stage, &["--slots", "2"]),
            64,
            "the segment has no scheduler",
        );
        run(&stage, &["--slots", "1"]).is(0);
        for tokens in ["-1", "1.5", "2147483648", "nan", ""] {
            run(&stage, &["--tokens", tokens]).is(64).one_line();
        }
    }
}

/// 75, 124 and -E at the gates that only have to be waited for.
#[test]
fn case_36_waits_for_tokens_and_starts_have_their_codes() {
    let (owes, early) = (in_debt(&[]), paced(&[]));
    let waits: [(&Stage, &[&str], &str); 2] = [
        (&owes, &["--tokens", MANY], "tokens"),
        (&early, &[], "start"),
    ];
    for (stage, options, word) in waits {
        let begun = Instant::now();
        let with = |more: &[&str]| run(stage, &[options, more].concat());
        says(&with(&["--no-wait"]), 75, word);
        says(&with(&["--no-wait", "-E", "33"]), 33, word);
        let late = with(&["--timeout", "500ms"]);
        says(&late, 124, word);
        assert!(late.took >= Duration::from_millis(500), "{:?}", late.took);
        says(&with(&["--timeout", "50ms", "-E", "0"]), 0, word);
        says(&with(&["--timeout", "0s"]), 124, word);
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    }
    for ((stage, options, word), gate) in waits.into_iter().zip(["limiter", "pacer"]) {
        // Whose deadline has passed before it is in line has not waited.
        until(LONG, "two waits are counted", || {
            let late = run(stage, &[options, &["--timeout", "50ms"]].concat());
            says(&late, 124, word);
            let seen = &stage.inspect()[gate];
            adds_up(seen, 0);
            seen["cancelled"].as_u64() >= Some(2)
        });
    }
}

#[test]
fn case_47_signals_end_the_wait_for_tokens_and_starts() {
    let signals = [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
    ];
    let (owes, early) = (in_debt(&[]), paced(&[]));
    let waits: [(&Stage, &[&str], &str); 2] = [
        (&owes, &["--tokens", MANY], "limiter"),
        (&early, &[], "pacer"),
    ];
    for (stage, options, gate) in waits {
        let file = stage.scene.path("F").to_string_lossy().into_owned();
        let touch = [options, &["--", "touch", &file]].concat();
        let mut waiters: Vec<(Job, Signal, i32)> = signals
            .iter()
            .cycle()
            .take(8)
            .map(|(signal, code)| (stage.job("run", &touch), *signal, *code))
            .collect();
        in_line(stage, gate, 8);
        let mut slowest = Duration::ZERO;
        for (waiter, signal, code) in &mut waiters {
            let sent = Instant::now();
            waiter.signal(*signal);
            let ended = waiter.wait(LONG);
            slowest = slowest.max(sent.elapsed());
            assert_eq!(
                (ended.code(), ended.err.as_str()),
                (*code, ""),
                "who sent it knows"
            );
        }
        figure!("{gate}: the slowest of 8 went after {slowest:?}");
        let seen = &stage.inspect()[gate];
        assert_eq!(seen["cancelled"], 8);
        adds_up(seen, 0);
        assert_eq!(queued(stage, gate), 0);
        assert!(
            !stage.scene.path("F").exists(),
            "queued work started during the shutdown"
        );
    }
}

#[test]
fn case_51_it_says_what_it_waits_for() {
    let (owes, early) = (in_debt(&[]), paced(&[]));
    let waits: [(&Stage, &[&str], &str); 2] = [
        (
            &owes,
            &["-v", "--tokens", MANY],
            "waiting for 1000000 tokens, balance -21474836",
        ),
        (
            &early,
            &["-v"],
            "waiting for its turn to start, one every 1h, place 1 of 1",
        ),
    ];
    for (stage, options, words) in waits {
        let begun = Instant::now();
        let mut waiter = stage.job("run", &[options, &["--", "true"]].concat());
        until(LONG, "a word", || !waiter.err().is_empty());
        assert!(
            begun.elapsed() >= Duration::from_secs(1),
            "not before a second: {}",
            waiter.err()
        );
        assert!(waiter.err().contains(words), "{}", waiter.err());
        // Once is enough.
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(waiter.err().lines().count(), 1, "{}", waiter.err());
        waiter.signal(Signal::TERM);
        waiter.wait(LONG).is(143);
    }
    assert!(queued(&owes, "limiter") == 0 && queued(&early, "pacer") == 0);
    let mut quiet = early.job("run", &["--", "true"]);
    std::thread::sleep(Duration::from_millis(1_300));
    assert_eq!(quiet.err(), "", "not a terminal");
    quiet.kill();
}

#[test]
fn case_55_the_queue_is_full_of_the_living_only() {
    let stage = paced(&["--max-waiting", "2"]);
    let wait = || stage.job("run", &["--", "true"]);
    let mut waiters = [wait(), wait()];
    in_line(&stage, "pacer", 2);
    says(&run(&stage, &[]), 71, "full");
    // A note for who asks, no fault.
    let doctor = stage.call("doctor", &["--json"]).is(0).json();
    assert_eq!(
        (&doctor["ok"], &doctor["findings"][0]["kind"]),
        (&json!(true), &json!("queue-full"))
    );
    waiters[0].kill();
    let mut third = wait();
    in_line(&stage, "pacer", 2);
    std::thread::sleep(Duration::from_millis(200));
    assert!(third.poll().is_none(), "{}", third.err());
    says(&run(&stage, &[]), 71, "full");
    let pacer = stage.inspect()["pacer"].clone();
    assert_eq!((&pacer["lost"], &pacer["waiting"]), (&json!(1), &json!(2)));
    adds_up(&pacer, 2);
}

#[test]
fn case_43_a_slot_is_what_one_is_nested_in() {
    let stage = Stage::new(&["--concurrency", "1", "--interval", "1ms", "--rate", "1000"]);
    let name = stage.segment().to_string_lossy().into_owned();
    let inner = |options: &[&str]| {
        let words = [&["--", PROGRAM, "run", &name], options, &["--", "true"]].concat();
        stage.call("run", &words)
    };
    says(&inner(&[]), 78, "already inside");
    inner(&["--nested", "share"]).is(0);
    assert_eq!(
        stage.inspect()["pacer"]["started"],
        2,
        "one under it is no start"
    );
    stage.quiet(1);
}

/// Key by key, in order: the promise to scripts.
#[test]
fn case_57_the_gates_in_the_documents() {
    let keys = |value: &Value| {
        let object = value.as_object().expect("an object");
        object.keys().cloned().collect::<Vec<_>>().join(" ")
    };
    let stage = Stage::new(&[
        "--rate",
        "1.5MB/s",
        "--interval",
        "0.5ms",
        "--max-waiting",
        "8",
    ]);
    let seen = stage.inspect();
    assert_eq!(
        keys(&seen["limiter"]),
        "tokens_per_second tokens head_wait_ms queued consumed deferred completed cancelled lost forced waiters pressure waits"
    );
    assert_eq!(
        keys(&seen["pacer"]),
        "interval_ms max_waiting waiting next_start_in_ms started rejected deferred completed cancelled lost head_wait_ms pressure waits"
    );
    assert_eq!(seen["scheduler"], Value::Null);
    assert_eq!(seen["limiter"]["tokens"], 1_500_000, "full at first");
    assert_eq!(
        (
            &seen["pacer"]["interval_ms"],
            &seen["pacer"]["next_start_in_ms"]
        ),
        (&json!(0.5), &json!(0))
    );
    let text = stage.call::<&str>("inspect", &[]).is(0).text();
    assert!(
        text.contains("1.5M at 1.5M/s") && text.contains("one every 500us, the next now"),
        "{text}"
    );

    let mut list = shmsched(&["list", "--json"]);
    let listed = ended(list.env("SHMSCHED_DIR", stage.scene.path("")))
        .is(0)
        .json();
    let entry = &listed["segments"][0];
    assert_eq!(
        (&entry["tokens_per_second"], &entry["tokens"]),
        (&json!(1_500_000), &json!(1_500_000))
    );
    assert_eq!(
        (&entry["interval_ms"], &entry["waiters"]),
        (&json!(0.5), &json!(0))
    );
    assert_eq!(
        (&entry["concurrency"], &entry["running"]),
        (&Value::Null, &Value::Null)
    );
    let table = ended(shmsched(&["list"]).env("SHMSCHED_DIR", stage.scene.path("")))
        .is(0)
        .text();
    assert!(
        table.contains("1.5M/s") && table.contains("500us"),
        "{table}"
    );
}

#[test]
fn case_57_every_place_says_at_which_gate() {
    let slots = Stage::new(&["--concurrency", "1"]);
    let _holder = slots.hold();
    let (owes, early) = (in_debt(&[]), paced(&[]));
    let waits: [(&Stage, &[&str], &str, u64); 3] = [
        (&slots, &[], "scheduler", 1),
        (
            &owes,
            &["-p", "high", "--tokens", MANY],
            "limiter",
            1_000_000,
        ),
        (&early, &[], "pacer", 1),
    ];
    for (stage, options, gate, amount) in waits {
        let words = [options, &["--", HOLD[0], HOLD[1], HOLD[2]]].concat();
        let mut waiter = stage.job("run", &words);
        in_line(stage, gate, 1);
        let seen = stage.inspect();
        let [place] = places(&seen)[..] else {
            panic!("one place: {seen}")
        };
        assert_eq!(
            (&place["gate"], &place["amount"]),
            (&json!(gate), &json!(amount))
        );
        assert_eq!(place["position"], 1);
        match gate {
            "limiter" => assert_eq!(place["priority"], "high"),
            "scheduler" => assert_eq!(place["priority"], "normal"),
            // First come, first served.
            _ => {}
        }
        let mut list = shmsched(&["list", "--json"]);
        let listed = ended(list.env("SHMSCHED_DIR", stage.scene.path("")))
            .is(0)
            .json();
        assert_eq!(listed["segments"][0]["waiters"], 1, "{gate}");
        waiter.kill_all();
    }
}
