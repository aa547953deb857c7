//! What a command costs that does nothing: `shmsched run S -- true` beside other programs that run it.

use crate::bench::{Bench, failed};
use crate::children::{has, wait_for};
use crate::report::{Measured, Row};
use crate::rounds::counted;
use shmsched::{Location, Segment, Settings};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SECONDS: Duration = Duration::from_secs(5);
const MOST: Duration = Duration::from_secs(10);
const NAME: &str = "run S -- true";

/// A run of a command to its end, in nanoseconds.
fn run(bench: &Bench, arguments: &[&str]) -> Result<f64, String> {
    let mut command = Command::new(arguments[0]);
    // Where GNU sem and task-spooler keep their files.
    command
        .args(&arguments[1..])
        .env("HOME", &bench.directory)
        .env("PARALLEL_HOME", bench.directory.join("parallel"))
        .env("TS_SOCKET", bench.directory.join("spooler"))
        .env("TMPDIR", &bench.directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let begun = Instant::now();
    let status = wait_for(command.spawn().map_err(failed)?, MOST.min(bench.left()))?;
    let took = begun.elapsed().as_nanos() as f64;
    match status.success() {
        true => Ok(took),
        false => Err(failed(format!("{}: {status}", arguments.join(" ")))),
    }
}

fn measure(bench: &Bench, peer: &[&str]) -> Result<Measured, String> {
    let program = bench.program.as_ref().and_then(|program| program.to_str());
    let program = program.ok_or("built without the command line")?;
    let segment = bench.directory.join("run");
    let location = Location::File(segment.clone());
    if !segment.exists() {
        Segment::make(&location, &Settings::new().concurrency(4)).map_err(failed)?;
    }
    let segment = segment.to_str().ok_or("a path that is no text")?;
    let ours = [program, "run", segment, "--", "true"];
    // The first of each loads what it needs.
    run(bench, &ours)?;
    run(bench, peer)?;
    let times = |arguments: &[&str], calls: u64| (0..calls).map(|_| run(bench, arguments)).sum();
    counted(
        bench.allowed(SECONDS),
        (1, 1),
        &mut |calls| times(&ours, calls),
        &mut |calls| times(peer, calls),
    )
}

/// A row beside a program that may be missing, with the package that has it.
fn against<'a>(
    bench: &'a Bench,
    (peer, package): (&str, &'static str),
    arguments: impl Fn(&'a Bench) -> Result<Vec<String>, String> + 'a,
) -> Row<'a> {
    Row::new(NAME, peer, move || {
        let arguments = arguments(bench)?;
        if !has(&arguments[0]) {
            return Err(format!(
                "there is no {}, of the package {package}",
                arguments[0]
            ));
        }
        measure(
            bench,
            &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    })
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

pub fn rows(bench: &Bench) -> Vec<Row<'_>> {
    vec![
        against(bench, ("flock(1)", "util-linux"), |bench| {
            let lock = bench.directory.join("flock").display().to_string();
            Ok(vec!["flock".into(), lock, "true".into()])
        })
        .goal(1.1),
        against(bench, ("GNU sem", "parallel"), |_| {
            Ok(words("sem --will-cite --fg --id compare -j 4 true"))
        })
        .goal(0.03),
        against(bench, ("task-spooler", "task-spooler"), |bench| {
            let socket = bench.directory.join("spooler").display().to_string();
            bench.remember(&format!("spooler {socket}"))?;
            Ok(words("tsp -n -f true"))
        })
        .note("its server runs already"),
    ]
}
