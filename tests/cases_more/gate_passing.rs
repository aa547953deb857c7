//! What `run` takes at several gates, in which order, and gives up.

use crate::gates::{MANY, adds_up, in_debt, in_line, paced, queued, run, says};
use crate::stage::{Crowd, PROGRAM, Stage};
use crate::support::{LONG, figure, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

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

/// One deadline over all gates, and what was taken on the way is given back.
#[test]
fn a_timeout_is_for_all_gates_together() {
    // A process that stands still may be late at the second gate, or at its end.
    assert!(
        (0..4).any(|_| one_deadline()),
        "a deadline of its own at the second gate"
    );
}

/// Whether one was seen at both gates, and gone before a deadline that began at the second would have passed.
fn one_deadline() -> bool {
    const TIMEOUT: Duration = Duration::from_millis(2_500);
    let stage = Stage::new(&["--concurrency", "1", "--interval", "1h"]);
    let mut holder = stage.hold();
    let begun = Instant::now();
    let mut waiter = stage.job("run", &["--timeout", "2500ms", "--", "true"]);
    until(LONG, "in line, or over", || {
        queued(&stage, "scheduler") == 1 || waiter.poll().is_some()
    });
    std::thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
    let freed = begun.elapsed();
    holder.let_go();
    holder.wait(LONG).is(0);
    let mut at_both = false;
    until(LONG, "at its start, or over", || {
        let seen = stage.inspect();
        // It keeps its slot while it waits for its start.
        at_both = seen["pacer"]["waiting"] == 1 && seen["scheduler"]["running"] == 1;
        at_both || waiter.poll().is_some()
    });
    let ended = waiter.wait(LONG);
    ended.is(124).one_line();
    figure!("2.5 s took {:?}, the slot came after {freed:?}", ended.took);
    assert!(ended.took >= TIMEOUT, "{:?}", ended.took);
    let seen = stage.inspect();
    assert_eq!(seen["scheduler"]["running"], 0);
    assert_eq!(seen["pacer"]["started"], 1);
    if at_both {
        says(&ended, 124, "start");
    }
    // A deadline that begins at the second gate is past when the slot was free for as long.
    at_both && ended.took < freed + TIMEOUT
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
