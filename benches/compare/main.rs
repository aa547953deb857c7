//! shmsched beside everything that people use instead, in one run: `scripts/compare`.
//!
//! A row is one operation of ours and one of a peer, measured in rounds taken in turn. Each file has the rows of one idea:
//! `slots` (between processes), `alone` (in one), `handover`, `contention`, `recovery`, `attach`, `commands` and `pipe`. The
//! processes are this program itself in another role.

mod alone;
mod attach;
mod bench;
mod children;
mod commands;
mod contention;
mod handover;
mod peers;
mod pipe;
mod recovery;
mod report;
mod rounds;
mod slots;

use bench::{Bench, Size};
use report::Row;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

struct Options {
    size: Size,
    json: bool,
    strict: bool,
    only: String,
    /// Seconds until the report must be out.
    budget: u64,
}

fn options(arguments: &[String]) -> Result<Option<Options>, String> {
    let mut options = Options {
        size: Size::Full,
        json: false,
        strict: false,
        only: String::new(),
        budget: 0,
    };
    let mut wanted = false;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--run" => wanted = true,
            "--quick" => options.size = Size::Quick,
            "--test" => (wanted, options.size) = (true, Size::Test),
            "--json" => options.json = true,
            "--strict" => options.strict = true,
            "--only" => options.only = value()?.to_lowercase(),
            "--budget" => options.budget = value()?.parse().map_err(|_| "--budget: seconds")?,
            "--bench" => {}
            other => return Err(format!("no option {other}; scripts/compare --help")),
        }
    }
    if options.budget == 0 {
        options.budget = options.size.pick(600, 60, 60);
    }
    Ok(wanted.then_some(options))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, name, rest @ ..] = &arguments[..]
        && role == "--role"
    {
        return match in_role(name, rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(1, &error),
        };
    }
    match options(&arguments) {
        Err(error) => fail(64, &error),
        // `cargo bench` alone and `cargo test --benches` only want to see it start.
        Ok(None) => {
            println!("scripts/compare runs this; it takes up to 10 minutes");
            ExitCode::SUCCESS
        }
        Ok(Some(options)) => match compare(options) {
            Ok(code) => code,
            Err(error) => fail(1, &error),
        },
    }
}

fn fail(code: u8, error: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "compare: {error}");
    ExitCode::from(code)
}

fn in_role(role: &str, arguments: &[String]) -> Result<(), String> {
    let first = arguments.first().map_or("", String::as_str);
    match role {
        "reaper" => bench::reaper(),
        "bare" | "hand" => handover::other_side(role, arguments)?,
        "worker" => contention::worker()?,
        "holder" => recovery::holder(first)?,
        "member" => attach::member(first)?,
        other => return Err(format!("no role {other}")),
    }
    Ok(())
}

/// What there is to print at any moment, and who prints it: the end, or the budget's.
struct Report {
    options: Options,
    bench: Bench,
    begun: Instant,
    load_before: String,
    rows: Mutex<Vec<Value>>,
    printed: Mutex<bool>,
}

/// From here on what is still measured may lose its files, and nobody wants to hear of it.
static ENDING: AtomicBool = AtomicBool::new(false);

fn compare(options: Options) -> Result<ExitCode, String> {
    // In time to print it, and to clean up.
    let begun = Instant::now();
    let deadline = begun + Duration::from_secs(options.budget.saturating_sub(3).max(1));
    let report = Arc::new(Report {
        bench: Bench::new(options.size, deadline)?,
        options,
        begun,
        load_before: load(),
        rows: Mutex::default(),
        printed: Mutex::new(false),
    });
    let bench = &report.bench;
    let mut rows = slots::rows(bench);
    rows.extend(alone::rows(bench));
    rows.extend(handover::rows(bench));
    rows.extend(recovery::rows(bench));
    rows.extend(attach::rows(bench));
    rows.extend(commands::rows(bench));
    rows.extend(pipe::rows(bench));
    rows.extend(contention::rows(bench));
    let only = &report.options.only;
    rows.retain(|row| {
        format!("{} / {}", row.name, row.peer)
            .to_lowercase()
            .contains(only)
    });
    if rows.is_empty() {
        bench.clean();
        return Ok(fail(64, &format!("no row has '{only}' in it")));
    }
    let late = |row: &Row| row.told(Err("there was no time left".into()));
    *report.rows.lock().map_err(bench::failed)? = rows.iter().map(late).collect();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !ENDING.load(Ordering::Relaxed) {
            usual(panic);
        }
    }));
    let watched = report.clone();
    std::thread::spawn(move || {
        std::thread::sleep(watched.bench.left());
        if let Some(code) = watched.finish() {
            std::process::exit(code.into());
        }
    });
    let terminal = std::io::stderr().is_terminal();
    let count = rows.len();
    for (at, row) in rows.iter_mut().enumerate() {
        if terminal {
            eprint!("\r\x1b[K{}/{count}  {} / {}", at + 1, row.name, row.peer);
        }
        let result = catch_unwind(AssertUnwindSafe(&mut row.measure));
        let result = result.unwrap_or_else(|_| Err(bench::failed("it panicked, see above")));
        report.rows.lock().map_err(bench::failed)?[at] = row.told(result);
    }
    // The children end with their rows, before their files go.
    drop(rows);
    match report.finish() {
        Some(code) => Ok(ExitCode::from(code)),
        // The other thread prints, and ends the process.
        None => loop {
            std::thread::park();
        },
    }
}

impl Report {
    /// Cleans up and prints, once: the exit code.
    fn finish(&self) -> Option<u8> {
        let mut printed = self.printed.lock().ok()?;
        if std::mem::replace(&mut *printed, true) {
            return None;
        }
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        ENDING.store(true, Ordering::Relaxed);
        self.bench.clean();
        let rows = self.rows.lock().ok()?.clone();
        let document = json!({ "machine": self.machine(), "rows": rows });
        let text = match (self.options.json, self.options.size) {
            (false, Size::Test) => String::new(),
            (true, _) => format!("{document:#}\n"),
            (false, _) => report::table(&document["machine"], &rows),
        };
        // A reader that is gone has seen what it wanted.
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match rustix::io::write(std::io::stdout(), rest) {
                Ok(wrote) => rest = &rest[wrote..],
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => return Some(141),
                Err(error) => {
                    fail(74, &format!("stdout: {error}"));
                    return Some(74);
                }
            }
        }
        Some(self.code(&document))
    }

    fn code(&self, document: &Value) -> u8 {
        let rows = document["rows"].as_array().map_or(&[][..], Vec::as_slice);
        let mut bad = Vec::new();
        for row in rows {
            let reason = row["skipped"].as_str().unwrap_or_default();
            if reason.starts_with("failed") {
                bad.push(format!("{} / {}: {reason}", row["name"], row["peer"]));
            }
        }
        if self.options.size == Size::Test {
            bad.extend(report::flaws(document));
            println!("{} rows, {} flaws", rows.len(), bad.len());
        }
        for flaw in &bad {
            fail(1, flaw);
        }
        let missed = rows.iter().any(|row| row["met"] == json!(false));
        u8::from(!bad.is_empty() || (self.options.strict && missed))
    }

    fn machine(&self) -> Value {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            let value = line.split_once([':', '='])?.1.trim();
            Some(value.trim_matches('"').to_owned())
        };
        let cpu = read("/proc/cpuinfo");
        let node = std::process::Command::new("node").arg("--version").output();
        let node = node
            .ok()
            .map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
        json!({
            "cpu": field(&cpu, "model name").or(field(&cpu, "CPU part")).unwrap_or("unknown".into()),
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "virtual": cpu.contains("hypervisor"),
            "memory": field(&read("/proc/meminfo"), "MemTotal"),
            "arch": std::env::consts::ARCH,
            "system": field(&read("/etc/os-release"), "PRETTY_NAME"),
            "kernel": read("/proc/sys/kernel/osrelease").trim(),
            "node": node,
            "shmsched": env!("CARGO_PKG_VERSION"),
            "load_before": self.load_before,
            "load_after": load(),
            "size": self.options.size.pick("full", "quick", "test"),
            "seconds": self.begun.elapsed().as_secs(),
        })
    }
}

/// Who else is busy here, of the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}
