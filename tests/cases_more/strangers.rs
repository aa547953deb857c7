//! Holders that are hard to judge: of other pid namespaces, stopped, of other users, zombies. None of them is dead before
//! it is, and nothing of ours touches a living process.

use crate::stage::{
    AS_NOBODY, Elsewhere, HOLD, Job, NOBODY, PIDS, SOON, Stage, command, ended, shmsched, state,
    strace_works, under, unshare, with_unit,
};
use crate::support::{LONG, figure, peak, quiet_within, skipped, until, within};
use rustix::process::{Signal, geteuid};
use serde_json::Value;
use shmsched::Location;
use std::time::{Duration, Instant};

/// The one member of a document that holds something.
#[track_caller]
fn holder_in(document: &Value) -> Value {
    let members = document["members"].as_array().expect("a list");
    let mut holders = members.iter().filter(|member| member["held"] != 0);
    let holder = holders.next().expect("a holder").clone();
    assert_eq!(holders.next(), None);
    holder
}

#[test]
fn case_33_a_holder_of_another_pid_namespace_is_alive() {
    let Some(pids) = unshare(&PIDS) else {
        skipped!("unshare --pid is not permitted");
    };
    // Who waits looks every 100 ms, but may stand still when it is time.
    let soon = (0..3).any(|_| {
        let after = noticed_from_other_namespaces(&pids);
        figure!("both had it after {after:?}");
        after < Duration::from_secs(3)
    });
    assert!(soon, "late each time");
}

/// A holder, and waiters that do not see its pid: how long after it was killed they have had its slot.
fn noticed_from_other_namespaces(pids: &[&str]) -> Duration {
    let stage = Stage::new(&["--concurrency", "1"]);
    let inside = |script: &'static str, verb: &str, arguments: &[&str]| {
        let wrapper = [pids, &["sh", "-c", script, "sh"]].concat();
        under(&wrapper, &stage.command(verb, arguments))
    };
    // As pid 2 of A; where pid 2 does not exist (B, whose pid 1 is the command itself), and where it is a sleep (C).
    let (a, b) = ("\"$@\" & test $! = 2 && wait", "exec \"$@\"");
    let c = "sleep 300 & test $! = 2 || exit 99; exec \"$@\"";
    let mut holder = Job::start(&mut inside(a, "run", &["--", "sleep", "300"]));
    let words = stage.words();
    until(LONG, "held", || words.running() == 1);
    let seen = holder_in(&stage.inspect());
    assert_eq!(
        (&seen["pid"], &seen["pid_namespace"]),
        (&2.into(), &"other".into())
    );
    let mut waiters = Vec::new();
    for script in [b, c] {
        let refused = ended(&mut inside(script, "run", &["--no-wait", "--", "true"]));
        refused.is(75).one_line();
        let repaired = ended(&mut inside(script, "doctor", &["--repair", "--json"]));
        let repaired = repaired.is(0).json();
        assert_eq!(repaired["repaired"]["dead"], 0);
        assert_eq!(repaired["repaired"]["reclaimed"], 0);
        let seen = ended(&mut inside(script, "inspect", &["--json"])).json();
        let seen = holder_in(&seen);
        assert_eq!(
            (&seen["pid"], &seen["pid_namespace"]),
            (&2.into(), &"other".into())
        );
        assert_eq!(seen["state"], "alive");
        let table = ended(&mut inside(script, "inspect", &[])).text();
        assert!(table.contains("other pid namespace"), "{table}");
        waiters.push(Job::start(&mut inside(
            script,
            "run",
            &["--", "echo", "got"],
        )));
    }
    stage.in_line(2);
    assert!(!stage.lets_in());
    // With its namespace, as a container that is killed.
    let killed = Instant::now();
    holder.kill_all();
    for waiter in &mut waiters {
        let ended = waiter.wait(LONG);
        assert_eq!(ended.is(0).text(), "got\n");
    }
    let after = killed.elapsed();
    stage.quiet(1);
    after
}

#[test]
fn case_33_always_pid_1_and_never_two_units() {
    let Some(pids) = unshare(&PIDS) else {
        skipped!("unshare --pid is not permitted");
    };
    let stage = Stage::new(&["--concurrency", "1"]);
    let words = stage.words();
    for _ in 0..3 {
        let mut holder = Job::start(&mut under(
            &pids,
            &stage.command("run", &["--", "sleep", "300"]),
        ));
        until(LONG, "held", || words.running() == 1);
        assert_eq!(holder_in(&stage.inspect())["pid"], 1);
        assert!(!stage.lets_in());
        holder.kill_all();
        until(SOON, "let in", || stage.lets_in());
    }
    // Units of four namespaces, each of which is pid 1 of its own.
    let log = stage.scene.path("log");
    let mut jobs: Vec<Job> = (0..4)
        .map(|_| {
            let inner = with_unit(stage.command::<&str>("run", &[]), &log, 30);
            Job::start(&mut under(&pids, &inner))
        })
        .collect();
    for job in &mut jobs {
        job.wait(LONG).is(0);
    }
    assert_eq!(peak(&log), (1, 4));
    stage.quiet(1);
}

fn stopped(time: Duration) {
    let stage = Stage::new(&["--concurrency", "1"]);
    let mut holder = stage.hold();
    holder.signal_all(Signal::STOP);
    until(LONG, "stopped", || state(holder.pid()) == Some('T'));
    let begun = Instant::now();
    let mut looks = 0;
    while looks < 3 || begun.elapsed() < time {
        assert!(
            !stage.lets_in(),
            "refused all along, after {:?}",
            begun.elapsed()
        );
        looks += 1;
        std::thread::sleep(Duration::from_millis(200));
    }

    let before = stage.bytes();
    let doctor = stage.call::<&str>("doctor", &[]);
    assert!(
        doctor.is(1).text().contains("stopped (T)"),
        "{}",
        doctor.text()
    );
    assert!(stage.bytes() == before, "doctor changes nothing");
    let member = holder_in(&stage.inspect());
    assert_eq!(member["state"], "stopped");

    let repair = stage.command("doctor", &["--repair", "--json"]);
    let trace = stage.scene.path("trace");
    let repaired = if strace_works() {
        let trace = trace.to_string_lossy();
        let calls =
            "trace=kill,tkill,tgkill,pidfd_send_signal,rt_sigqueueinfo,rt_tgsigqueueinfo,execve";
        let wrapper = ["strace", "-f", "-qq", "-e", calls, "-o", &*trace];
        ended(&mut under(&wrapper, &repair))
    } else {
        ended(&mut { repair })
    };
    let repaired = repaired.is(1).json();
    assert_eq!(repaired["repaired"]["reclaimed"], 0);
    assert_eq!(repaired["findings"][0]["kind"], "stopped");
    if strace_works() {
        let trace = std::fs::read_to_string(&trace).expect("a trace");
        assert!(trace.contains("execve("), "it traces");
        assert!(
            !trace.contains("kill(") && !trace.contains("signal("),
            "{trace}"
        );
        assert!(!trace.contains("sigqueueinfo("), "{trace}");
    }
    // Not even the verb for it evicts a living one.
    let number = member["member"].to_string();
    stage.call("evict", &[&number]).is(75).one_line();
    assert_eq!(state(holder.pid()), Some('T'), "it is as it was");
    assert!(!stage.lets_in());

    holder.signal_all(Signal::CONT);
    holder.let_go();
    holder.wait(LONG).is(0);
    stage.quiet(1);
}

#[test]
fn case_34_a_stopped_holder_is_alive() {
    stopped(Duration::from_secs(2));
}

#[test]
#[ignore = "for scripts/stress: stopped for 20 seconds"]
fn stress_case_34_a_stopped_holder_is_alive() {
    stopped(Duration::from_secs(20));
}

#[test]
fn case_38a_not_allowed_is_not_gone() {
    if !geteuid().is_root() {
        skipped!("needs root, for a second user");
    }
    let Some(elsewhere) = Elsewhere::new() else {
        skipped!("setpriv --reuid {NOBODY} does not work");
    };
    let path = elsewhere.path("S");
    let name = path.to_string_lossy().into_owned();
    let created = ended(&mut shmsched(&[
        "create",
        &name,
        "--concurrency",
        "1",
        "--mode",
        "666",
    ]));
    created.is(0);
    let mut holder = Job::start(&mut shmsched(&[&["run", &name, "--"], &HOLD[..]].concat()));
    holder.runs();
    // They may not send a signal to it, which is not to say that it is gone.
    let not_allowed = under(&AS_NOBODY, &command("kill"))
        .args(["-0", &holder.pid().to_string()])
        .status();
    assert!(!not_allowed.expect("kill runs").success());
    let as_nobody = |verb: &str, rest: &[&str]| {
        let arguments = [&[verb, &name], rest].concat();
        ended(&mut elsewhere.as_nobody(&arguments))
    };
    for _ in 0..3 {
        let repaired = as_nobody("doctor", &["--repair", "--json"]).is(0).json();
        assert_eq!(repaired["repaired"]["reclaimed"], 0);
        as_nobody("run", &["--no-wait", "--", "true"])
            .is(75)
            .one_line();
    }
    let seen = as_nobody("inspect", &["--json"]).is(0).json();
    assert_eq!(holder_in(&seen)["state"], "alive");
    holder.let_go();
    holder.wait(LONG).is(0);
    as_nobody("run", &["--no-wait", "--", "true"]).is(0);
    quiet_within(SOON, &Location::File(path), 1);
}

#[test]
fn case_38b_a_zombie_is_dead() {
    let stage = Stage::new(&["--concurrency", "1"]);
    for repair in [false, true] {
        let mut holder = stage.hold();
        // This process is the lazy parent: it does not wait yet.
        holder.signal_all(Signal::KILL);
        within(LONG, || match state(holder.pid()) {
            Some('Z') => Ok(()),
            other => Err(format!("{other:?}")),
        });
        // What ran under it dies a moment later, and keeps the slot for so long.
        let killed = Instant::now();
        within(LONG, || {
            let doctor = stage.call::<&str>("doctor", &[]);
            match doctor
                .text()
                .contains("a zombie, reclaimed at the next look")
            {
                true => {
                    doctor.is(1);
                    Ok(())
                }
                false => Err(doctor.text()),
            }
        });
        if repair {
            let repaired = stage.call("doctor", &["--repair", "--json"]).json();
            assert_eq!(repaired["repaired"]["dead"], 1, "{repaired}");
            assert_eq!(repaired["repaired"]["reclaimed"], 1);
            assert_eq!(repaired["ok"], true);
        }
        stage.call("run", &["--timeout", "10s", "--", "true"]).is(0);
        figure!("in after {:?}", killed.elapsed());
        assert_eq!(state(holder.pid()), Some('Z'), "all the while");
        holder.kill_all();
    }
    stage.quiet(1);
}
