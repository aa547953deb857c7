//! `pressure` and `metrics`: what they say of a segment in use, and that asking changes nothing.

use crate::metrics_server::Server;
use crate::stage::{Job, Stage, ended, shmsched, works};
use crate::support::{LONG, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

/// The value of a series, by the name and some of its labels.
#[track_caller]
pub fn value(page: &str, series: &str) -> f64 {
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let mut found = page.lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('{'))
            && labels.split(',').all(|label| line.contains(label))
    });
    let line = found
        .next()
        .unwrap_or_else(|| panic!("no {series} in {page}"));
    assert_eq!(found.next(), None, "several {series}");
    line.rsplit_once(' ')
        .expect("a value")
        .1
        .parse()
        .expect("a number")
}

pub fn names(text: &str) -> BTreeSet<String> {
    let ends = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let found = text.match_indices("shmsched_").map(|(at, _)| {
        let rest = &text[at..];
        rest[..rest.find(ends).unwrap_or(rest.len())].to_owned()
    });
    found.collect()
}

#[test]
fn metrics_of_a_missing_and_a_damaged_segment() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let [missing, damaged] = ["missing", "damaged"].map(|name| stage.scene.path(name));
    fs::write(&damaged, "a letter\n").expect("a file");
    for (first, second, code) in [(&missing, &damaged, 66), (&damaged, &missing, 65)] {
        let [first, second] = [first, second].map(|path| path.to_string_lossy().into_owned());
        let ended = stage.call("metrics", &[&first, &second]);
        ended.is(code);
        let page = ended.text();
        assert_eq!(value(&page, "shmsched_up{S\""), 1.0);
        assert_eq!(value(&page, "shmsched_up{missing"), 0.0);
        assert_eq!(value(&page, "shmsched_up{damaged"), 0.0);
        assert!(page.ends_with("# EOF\n"));
        let lines: Vec<&str> = ended.err.lines().collect();
        assert!(
            lines.len() == 2 && lines.iter().all(|line| line.starts_with("shmsched: ")),
            "{lines:?}"
        );
        assert!(lines[0].contains(&first) && lines[1].contains(&second));
    }
    // Once however often it is named, and however that is spelled.
    let twice = stage.segment().to_string_lossy().into_owned();
    let directory = stage.segment().parent().expect("it has one");
    let round = format!(
        "{0}/../{1}/S",
        directory.display(),
        directory.file_name().expect("a name").to_string_lossy()
    );
    for names in [&[&*twice][..], &[&round], &["./S"], &["./S", &round]] {
        let mut command = stage.command("metrics", names);
        let page = ended(command.current_dir(directory)).is(0).text();
        assert_eq!(page.matches("shmsched_up{").count(), 1, "{names:?}");
        assert_eq!(
            page.matches("shmsched_scheduler_running{").count(),
            1,
            "{names:?}"
        );
        assert!(page.contains(&format!("segment=\"{twice}\"")), "{names:?}");
    }
    // It comes, goes, and comes again.
    let other = Stage::new(&["--concurrency", "1"]);
    let late = stage.scene.path("late");
    let name = late.to_string_lossy().into_owned();
    let server = Server::of(&other, &[&name]);
    let up = || value(&server.fresh_page(), "shmsched_up{late");
    assert_eq!(up(), 0.0);
    for round in 1..=2u32 {
        let concurrency = round.to_string();
        ended_ok(&["create", &name, "--concurrency", &concurrency]);
        assert_eq!(up(), 1.0);
        let limit = value(&server.page(), "shmsched_scheduler_concurrency{late");
        assert_eq!(limit, f64::from(round));
        ended_ok(&["rm", &name]);
        assert_eq!(up(), 0.0);
    }
    assert_eq!(server.job.err(), "");
}

#[track_caller]
pub fn ended_ok(arguments: &[&str]) {
    ended(&mut shmsched(arguments)).is(0);
}

#[test]
fn counters_stay_when_a_member_is_killed_and_its_gauges_go() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let server = Server::of(&stage, &[]);
    let mut holder = stage.hold_with(&["--slots", "2"]);
    let mut waiter = stage.job("run", &["--", "true"]);
    stage.in_line(1);
    let page = server.fresh_page();
    let members = |page: &str| page.matches("shmsched_member_held{").count();
    let held = format!("shmsched_member_held{{pid=\"{}\"", holder.pid());
    assert_eq!((members(&page), value(&page, &held)), (2, 2.0));
    let waiting = format!("shmsched_member_waiting{{pid=\"{}\"", waiter.pid());
    assert_eq!(value(&page, &waiting), 1.0);
    assert_eq!(value(&page, "shmsched_scheduler_running"), 2.0);
    assert_eq!(value(&page, "shmsched_scheduler_queued{\"normal\""), 1.0);
    assert_eq!(value(&page, "shmsched_scheduler_admitted_total"), 2.0);
    assert_eq!(value(&page, "shmsched_scheduler_deferred_total"), 1.0);
    assert_eq!(value(&page, "shmsched_members{alive"), 2.0);
    let some = "shmsched_scheduler_pressure_some_seconds_total";
    let mut before = 0.0;
    until(LONG, "the stall is counted", || {
        before = value(&server.fresh_page(), some);
        before > 0.0
    });

    // Nobody looks any more after both are killed: what is shown is right all the same.
    waiter.kill_all();
    holder.kill_all();
    // The holder's command has its slots until it is dead, too.
    let mut page = String::new();
    until(LONG, "all of them are dead", || {
        page = server.fresh_page();
        members(&page) == 0
    });
    assert_eq!(value(&page, "shmsched_scheduler_running"), 0.0);
    assert_eq!(value(&page, "shmsched_scheduler_queued{\"normal\""), 0.0);
    assert_eq!(value(&page, "shmsched_scheduler_admitted_total"), 2.0);
    assert_eq!(value(&page, "shmsched_scheduler_deferred_total"), 1.0);
    assert_eq!(value(&page, "shmsched_scheduler_lost_total"), 1.0);
    let after = value(&page, "shmsched_scheduler_pressure_some_seconds_total");
    assert!(after >= before, "a counter stepped back: {before} {after}");

    // Their slots are taken by others: the counters go on.
    stage.call("run", &["--", "true"]).is(0);
    let page = server.fresh_page();
    assert_eq!(value(&page, "shmsched_scheduler_admitted_total"), 3.0);
    assert_eq!(value(&page, "shmsched_scheduler_deferred_total"), 1.0);
    assert_eq!(value(&page, "shmsched_scheduler_lost_total"), 1.0);
    assert_eq!(value(&page, "shmsched_scheduler_reclaimed_total"), 2.0);
    stage.quiet(2);
}

/// Every counter, over deaths of all kinds, as a Prometheus sees them: never less than before.
#[test]
fn no_counter_ever_steps_back() {
    let stage = Stage::new(&["--concurrency", "1", "--rate", "1000", "--interval", "1ms"]);
    let server = Server::of(&stage, &[]);
    let mut last = std::collections::BTreeMap::<String, f64>::new();
    let end = Instant::now() + Duration::from_secs(4);
    let mut rounds = 0;
    while Instant::now() < end || rounds <= 5 {
        let mut jobs: Vec<Job> = (0..4)
            .map(|_| stage.job("run", &["--tokens", "1", "--", "sleep", "0.05"]))
            .collect();
        std::thread::sleep(Duration::from_millis(10 + rounds % 7 * 17));
        for job in &mut jobs {
            job.kill_all();
        }
        for line in server.page().lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let name = series.split('{').next().expect("a name");
            let value: f64 = value.parse().expect("a number");
            let counts = ["_total", "_bucket", "_count", "_sum"];
            if counts.iter().any(|end| name.ends_with(end)) {
                let before = last.insert(series.to_owned(), value).unwrap_or(0.0);
                assert!(value >= before, "{series}: {before}, then {value}");
            }
        }
        rounds += 1;
    }
    assert!(last.len() > 100);
    stage.quiet(1);
}

/// It opens read-only: no member, no changed byte.
#[test]
fn asking_changes_nothing() {
    let stage = Stage::new(&["--concurrency", "1", "--rate", "5", "--interval", "1s"]);
    let before = stage.bytes();
    stage.call::<&str>("metrics", &[]).is(0);
    stage.call("pressure", &["--json"]).is(0);
    let server = Server::of(&stage, &[]);
    server.page();
    assert!(stage.bytes() == before);
    stage.call::<&str>("rm", &[]).is(0);
}

#[test]
fn pressure_as_the_kernel_writes_it() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let quiet = stage.call::<&str>("pressure", &[]);
    let zero = "avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    assert_eq!(quiet.is(0).text(), format!("some {zero}full {zero}"));
    stage.call("pressure", &["--above", "0"]).is(0);

    let mut holder = stage.hold();
    let mut waiter = stage.job("run", &["--", "true"]);
    stage.in_line(1);
    // avg10 passes 5 % after half a second.
    let above = |percent: &str| stage.call("pressure", &["--above", percent]).code();
    until(LONG, "above 5 %", || above("5") == 1);
    assert_eq!((above("0"), above("0.01%")), (1, 1));
    assert_eq!((above("99.99"), above("100")), (0, 0));
    let text = stage.call("pressure", &["--above", "1"]).is(1).text();
    // Read as tools read /proc/pressure.
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    for (line, signal) in lines.iter().zip(["some", "full"]) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!((words.len(), words[0]), (5, signal));
        for (word, key) in words[1..]
            .iter()
            .zip(["avg10=", "avg60=", "avg300=", "total="])
        {
            let number = word.strip_prefix(key).expect("the key");
            let number: f64 = number.parse().expect("a number");
            assert!(number >= 0.0);
        }
    }
    let mut document = Value::Null;
    // A total is what was counted, up to a second ago.
    until(LONG, "the stall is counted", || {
        document = stage.call("pressure", &["--json"]).is(0).json();
        document["scheduler"]["some"]["total_us"].as_u64() > Some(400_000)
    });
    assert_eq!(
        (&document["schema"], &document["limiter"]),
        (&1.into(), &Value::Null)
    );
    let some = &document["scheduler"]["some"];
    assert!(some["avg10"].as_f64() > Some(5.0), "{document}");
    holder.let_go();
    holder.wait(LONG).is(0);
    waiter.wait(LONG).is(0);

    // Several gates have their names, and any of them may be the one that is above.
    stage
        .call("set", &["--rate", "10", "--interval", "1ms"])
        .is(0);
    let text = stage.call::<&str>("pressure", &[]).is(0).text();
    let firsts: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split(" avg10").next())
        .collect();
    assert_eq!(
        firsts,
        [
            "scheduler some",
            "scheduler full",
            "limiter some",
            "limiter full",
            "pacer some",
            "pacer full"
        ]
    );
    for wrong in ["101", "-1", "x", "0,5", ""] {
        stage
            .call("pressure", &["--above", wrong])
            .is(64)
            .one_line();
    }
    stage.quiet(1);
}

/// The dashboard, the alerts and the list of names are of what is really there.
#[test]
fn documents_name_what_there_is() {
    let stage = Stage::new(&["--concurrency", "1", "--rate", "5", "--interval", "1ms"]);
    let mut holder = stage.hold();
    let page = stage.call::<&str>("metrics", &[]).is(0).text();
    let series = page.lines().filter(|line| !line.starts_with('#'));
    let there: BTreeSet<String> = series
        .flat_map(names)
        .filter(|name| page.contains(&format!("\n{name}{{")))
        .collect();
    let grafana: Value =
        serde_json::from_str(include_str!("../../docs/grafana.json")).expect("JSON");
    let mut used = BTreeSet::new();
    let mut expressions = 0;
    collect(&grafana, &mut |expression| {
        expressions += 1;
        let named = names(expression);
        assert!(!named.is_empty(), "{expression}");
        used.extend(named);
    });
    assert!(expressions >= 12, "{expressions}");
    used.extend(names(include_str!("../../docs/alerts.yml")));
    for name in &used {
        assert!(there.contains(name), "no metric {name}");
    }
    // The list has every family, and no other.
    let listed = names(include_str!("../../docs/metrics.md"));
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let families: BTreeSet<String> = types
        .map(|line| match line.split_once(' ').expect("a type") {
            (name, "counter") => format!("{name}_total"),
            (name, _) => name.to_owned(),
        })
        .collect();
    let missing: Vec<&String> = families.difference(&listed).collect();
    assert!(missing.is_empty(), "not in docs/metrics.md: {missing:?}");
    for name in &listed {
        assert!(
            there.contains(name) || families.contains(name),
            "no metric {name}"
        );
    }
    holder.let_go();
    holder.wait(LONG).is(0);
}

/// Calls for every query in a dashboard.
fn collect(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text)
                        if ["expr", "query"].contains(&key.as_str())
                            && text.contains("shmsched") =>
                    {
                        found(text)
                    }
                    _ => collect(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

/// `promtool`, where it is installed, finds no fault, in what is served and in what is printed. `scripts/prometheus` does
/// more.
#[test]
fn promtool_finds_no_fault() {
    let stage = Stage::new(&[
        "--concurrency",
        "unlimited",
        "--rate",
        "5",
        "--interval",
        "1ms",
    ]);
    let server = Server::of(&stage, &[]);
    let older = server.ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n");
    let served = older.split_once("\r\n\r\n").expect("a body").1;
    let printed = stage.call("metrics", &["--format", "text"]).is(0).text();
    let names = |text: &str| {
        let types = text.lines().filter(|line| line.starts_with("# TYPE "));
        types.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(names(served) == names(&printed) && !printed.contains("# EOF"));
    let usual = stage
        .call("metrics", &["--format", "openmetrics"])
        .is(0)
        .text();
    assert!(usual.ends_with("# EOF\n"));
    stage
        .call("metrics", &["--format", "text", "--listen", "0"])
        .is(64)
        .one_line();
    if !works(&["promtool", "--version"]) {
        crate::support::skipped!("there is no promtool");
    }
    for page in [served, &printed] {
        let mut command = crate::stage::command("promtool");
        let mut promtool = command
            .args(["check", "metrics"])
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        promtool
            .stdin
            .take()
            .expect("piped")
            .write_all(page.as_bytes())
            .expect("sent");
        let output = promtool.wait_with_output().expect("it ends");
        let said = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success() && said.is_empty(),
            "{}",
            String::from_utf8_lossy(&said)
        );
    }
}
