//! From the JSON of `scripts/compare` to pictures and tables of docs/performance.md: `scripts/plot`.

mod draw;
mod pictures;
mod table;

use serde_json::Value;
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) type Answer<T> = Result<T, Box<dyn Error>>;

/// What `scripts/compare` found.
pub(crate) struct Found {
    pub(crate) machine: Value,
    pub(crate) rows: Vec<Value>,
    /// When, if the machine does not say it.
    pub(crate) date: String,
}

/// Where processes compete: which of the two questions a row answers, and of which scene.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scene {
    pub(crate) budget: u64,
    pub(crate) task_us: u64,
    pub(crate) processes: u64,
}

impl Scene {
    /// From a row's name, which has all of it: "budget 1, 10 us, 8 processes".
    pub(crate) fn of(row: &Value) -> Option<Scene> {
        let name = row["name"].as_str()?;
        let words: Vec<&str> = name
            .split([' ', ',', ':'])
            .filter(|w| !w.is_empty())
            .collect();
        let beside = |word: &str, way: isize| {
            let at = words.iter().position(|it| *it == word)?;
            words.get(at.checked_add_signed(way)?)?.parse().ok()
        };
        Some(Scene {
            budget: beside("budget", 1)?,
            task_us: beside("us", -1)?,
            processes: beside("processes", -1)?,
        })
    }
}

impl Found {
    fn read(path: &str) -> Answer<Found> {
        let mut text = String::new();
        let mut written = SystemTime::now();
        if path == "-" {
            std::io::stdin().read_to_string(&mut text)?;
        } else {
            text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            written = std::fs::metadata(path)?.modified()?;
        }
        let document: Value = serde_json::from_str(&text).map_err(|error| {
            format!("{path} is not what scripts/compare --json prints: {error}")
        })?;
        let rows = document["rows"].as_array().cloned().unwrap_or_default();
        if rows.is_empty() {
            return Err(format!("{path} has no rows; scripts/compare --json prints some").into());
        }
        let date = match document["machine"]["date"].as_str() {
            Some(date) => date.to_owned(),
            None => date(written.duration_since(UNIX_EPOCH)?.as_secs() / 86_400),
        };
        let machine = document["machine"].clone();
        Ok(Found {
            machine,
            rows,
            date,
        })
    }

    /// Rows of processes that compete: of the throughput, or of the fairness.
    pub(crate) fn contended(&self, question: &str) -> Vec<(Scene, &Value)> {
        let asks = |row: &&Value| row["name"].as_str().is_some_and(|it| it.contains(question));
        let rows = self.rows.iter().filter(asks);
        let mut rows: Vec<_> = rows
            .filter_map(|row| Some((Scene::of(row)?, row)))
            .collect();
        rows.sort_by_key(|row| row.0);
        rows
    }

    /// The first row whose name has all of these.
    pub(crate) fn row(&self, parts: &[&str]) -> Option<&Value> {
        let has = |row: &&Value| {
            let name = row["name"].as_str().unwrap_or_default();
            parts.iter().all(|part| name.contains(part))
        };
        self.rows.iter().find(has)
    }
}

/// The date of a day since 1970-01-01.
fn date(days: u64) -> String {
    // Years from March on, so that the leap day is the last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{of_month:02}", era * 400 + year + next)
}

/// Draws and writes everything below `docs`.
fn plot(result: &str, docs: &Path, budget: &Path) -> Answer<()> {
    let found = Found::read(result)?;
    let pictures = docs.join("performance");
    std::fs::create_dir_all(&pictures)?;
    for (name, picture) in pictures::all(&found)? {
        let path = pictures.join(name);
        std::fs::write(&path, picture).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("{}", path.display());
    }
    let text = docs.join("performance.md");
    table::fill(&text, "machine", &table::machine(&found))?;
    table::fill(&text, "rows", &table::rows(&found))?;
    table::fill(&text, "contention", &table::contention(&found))?;
    table::fill(&text, "instructions", &table::instructions(budget)?)?;
    println!("{}", text.display());
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["--plot", result, docs, budget] => plot(result, Path::new(docs), Path::new(budget)),
        // `cargo bench` alone and `cargo test --benches` only want to see it start.
        _ => {
            assert_eq!(
                [date(0), date(19_782), date(20_878)],
                ["1970-01-01", "2024-02-29", "2027-03-01"]
            );
            println!("scripts/plot runs this");
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plot: {error}");
            ExitCode::from(1)
        }
    }
}
