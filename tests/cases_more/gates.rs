//! Rates, intervals and tokens: settings, what run does at each gate, what ends its wait, what is to be seen.

use crate::stage::{Crowd, Ended, HOLD, Job, PROGRAM, Stage, ended, shmsched};
use crate::support::{LONG, Scene, figure, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// More than any balance can owe beside [`in_debt`]: who waits for so many is not let in by the one-second guard.
const MANY: &str = "1000000";

/// A segment of a token a second that owes almost as many as can be owed.
fn in_debt(more: &[&str]) -> Stage {
    let stage = Stage::new(&[&["--rate", "1"], more].concat());
    // More than the bucket holds is let in while the bucket is full, as it is at first.
    stage
        .call("run", &["--tokens", "2147483647", "--", "true"])
        .is(0);
    stage
}

/// A segment whose next start is an hour away.
fn paced(more: &[&str]) -> Stage {
    let stage = Stage::new(&[&["--interval", "1h"], more].concat());
    stage.call("run", &["--", "true"]).is(0);
    stage
}

/// How many wait at a gate.
fn queued(stage: &Stage, gate: &str) -> u64 {
    let seen = &stage.inspect()[gate];
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

#[track_caller]
fn in_line(stage: &Stage, gate: &str, count: u64) {
    until(LONG, "in line", || queued(stage, gate) == count);
}

/// `run` with options, and `true` as the command.
fn run(stage: &Stage, options: &[&str]) -> Ended {
    stage.call("run", &[options, &["--", "true"]].concat())
}

#[track_caller]
fn says(ended: &Ended, code: i32, words: &str) {
    let line = ended.is(code).one_line();
    assert!(line.contains(words), "no {words:?} in {line}");
}

/// The waits that were ever begun are all accounted for.
#[track_caller]
fn adds_up(gate: &Value, queued: u64) {
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
fn a_token_where_there_is_nothing_else() {
    let consumed = |stage: &Stage| stage.inspect()["limiter"]["consumed"].as_u64();
    let alone = Stage::new(&["--rate", "1000"]);
    run(&alone, &[]).is(0);
    run(&alone, &["--tokens", "0"]).is(0);
    assert_eq!(consumed(&alone), Some(1));
    run(&alone, &["--tokens", "41"]).is(0);
    assert_eq!(consumed(&alone), Some(42));
    for others in [
        &["--concurrency", "2"][..],
        &["--interval", "1ms"],
        &["--concurrency", "2", "--interval", "1ms"],
    ] {
        let stage = Stage::new(&[&["--rate", "1000"], others].concat());
        run(&stage, &[]).is(0);
        assert_eq!(consumed(&stage), Some(0), "{others:?}");
        run(&stage, &["--tokens", "7"]).is(0);
        assert_eq!(consumed(&stage), Some(7), "{others:?}");
    }
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
        says(&with(&["--timeout", "10ms", "-E", "0"]), 0, word);
        says(&with(&["--timeout", "0s"]), 124, word);
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    }
    for (stage, gate) in [(&owes, "limiter"), (&early, "pacer")] {
        let seen = &stage.inspect()[gate];
        adds_up(seen, 0);
        assert!(seen["cancelled"].as_u64() >= Some(2), "{seen}");
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
            let ended = waiter.wait(Duration::from_secs(3));
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

/// One deadline over all gates, and what was taken on the way is given back.
#[test]
fn a_timeout_is_for_all_gates_together() {
    let stage = Stage::new(&["--concurrency", "1", "--interval", "1h"]);
    let mut holder = stage.hold();
    let mut waiter = stage.job("run", &["--timeout", "2s", "--", "true"]);
    in_line(&stage, "scheduler", 1);
    std::thread::sleep(Duration::from_millis(300));
    holder.let_go();
    holder.wait(LONG).is(0);
    in_line(&stage, "pacer", 1);
    assert_eq!(
        stage.inspect()["scheduler"]["running"],
        1,
        "it has its slot"
    );
    let ended = waiter.wait(LONG);
    says(&ended, 124, "start");
    figure!("2 s took {:?}", ended.took);
    assert!(ended.took >= Duration::from_secs(2), "{:?}", ended.took);
    assert!(
        ended.took < Duration::from_millis(3_500),
        "{:?}",
        ended.took
    );
    let seen = stage.inspect();
    assert_eq!(seen["scheduler"]["running"], 0);
    assert_eq!(seen["pacer"]["started"], 1);
}

#[test]
fn what_was_taken_before_a_refusal_is_given_up() {
    let stage = in_debt(&["--concurrency", "2", "--interval", "1ms"]);
    let before = stage.inspect();
    says(
        &run(&stage, &["--no-wait", "--slots", "2", "--tokens", MANY]),
        75,
        "tokens",
    );
    let after = stage.inspect();
    assert_eq!(after["scheduler"]["running"], 0, "the slots came back");
    let number = |seen: &Value, gate: &str, key: &str| seen[gate][key].as_u64().expect("a number");
    let more = |gate: &str, key: &str| number(&after, gate, key) - number(&before, gate, key);
    assert_eq!(more("scheduler", "admitted"), 2);
    assert_eq!(more("pacer", "started"), 1, "the start is spent");
    assert_eq!(more("limiter", "consumed"), 0);
    // Ended by a signal at the last gate, it gives them back as well.
    let mut waiter = stage.job("run", &["--slots", "2", "--tokens", MANY, "--", "true"]);
    in_line(&stage, "limiter", 1);
    assert_eq!(stage.inspect()["scheduler"]["running"], 2);
    waiter.signal(Signal::INT);
    waiter.wait(LONG).is(130);
    assert_eq!(stage.inspect()["scheduler"]["running"], 0);
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
fn starts_are_apart() {
    let stage = Stage::new(&["--interval", "100ms"]);
    let begun = Instant::now();
    let mut crowd = Crowd::start(6, || stage.command("run", &["--", "true"]));
    let codes = crowd.codes(LONG);
    let took = begun.elapsed();
    figure!("6 starts of 100 ms took {took:?}");
    assert!(codes.iter().all(|code| *code == 0), "{codes:?}");
    assert!(took >= Duration::from_millis(500), "{took:?}");
    let pacer = &stage.inspect()["pacer"];
    assert_eq!(pacer["started"], 6);
    adds_up(pacer, 0);
}

#[test]
fn tokens_come_at_their_rate() {
    let stage = Stage::new(&["--rate", "10"]);
    let begun = Instant::now();
    // Ten are there, twenty come in two seconds; nobody waits so long that the one-second guard lets him in.
    for _ in 0..6 {
        run(&stage, &["--tokens", "5"]).is(0);
    }
    let took = begun.elapsed();
    figure!("30 tokens, 10 of them at once, at 10 a second took {took:?}");
    let seen = &stage.inspect()["limiter"];
    assert_eq!(
        (&seen["consumed"], &seen["forced"]),
        (&json!(30), &json!(0))
    );
    assert!(took >= Duration::from_millis(1_800), "{took:?}");
    adds_up(seen, 0);
}

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

/// A start and tokens are spent: nobody keeps anything while the command runs.
#[test]
fn nothing_is_held_but_slots() {
    let stage = Stage::new(&["--rate", "1000", "--interval", "1ms", "--members", "1"]);
    let mut jobs = [stage.hold(), stage.hold()];
    let seen = stage.inspect();
    assert_eq!(
        seen["segment"]["members"]["used"], 0,
        "no member slot either"
    );
    // So there is nothing to be nested in, and nothing to wait for.
    let name = stage.segment().to_string_lossy().into_owned();
    stage
        .call("run", &["--", PROGRAM, "run", &name, "--", "true"])
        .is(0);
    stage.call("wait", &["--timeout", "5s"]).is(0);
    stage.call::<&str>("rm", &[]).is(0);
    for job in &mut jobs {
        job.let_go();
        job.wait(LONG).is(0);
    }
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

#[test]
fn wait_waits_for_those_who_wait() {
    let (owes, early) = (in_debt(&[]), paced(&[]));
    let waits: [(&Stage, &[&str], &str); 2] = [
        (&owes, &["--tokens", MANY], "limiter"),
        (&early, &[], "pacer"),
    ];
    for (stage, options, gate) in waits {
        stage.call("wait", &["--timeout", "5s"]).is(0);
        let mut waiter = stage.job("run", &[options, &["--", "true"]].concat());
        in_line(stage, gate, 1);
        says(&stage.call("wait", &["--timeout", "100ms"]), 124, "in use");
        says(&stage.call::<&str>("rm", &[]), 75, "in use by 1 process");
        waiter.signal(Signal::TERM);
        waiter.wait(LONG).is(143);
        stage.call("wait", &["--timeout", "5s"]).is(0);
        // Debt is no fault.
        let doctor = stage.call::<&str>("doctor", &[]);
        assert!(doctor.is(0).text().contains("healthy"), "{}", doctor.text());
    }
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
        let members = seen["members"].as_array().expect("a list");
        let places: Vec<&Value> = members
            .iter()
            .flat_map(|member| member["waiting"].as_array().expect("a list"))
            .collect();
        let [place] = places[..] else {
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
