//! What comes out: rows, as JSON or as a table.

use serde_json::{Map, Value, json};
use std::fmt::Write;

/// What a row measured. Smaller is better in all of it.
pub struct Measured {
    pub ours: f64,
    pub peer: f64,
    pub ratio: f64,
    /// First and third quartile of the ratio over the rounds, where there are rounds.
    pub spread: Option<(f64, f64)>,
    pub more: Map<String, Value>,
}

impl Measured {
    pub fn new(ours: f64, peer: f64) -> Measured {
        Measured {
            ours,
            peer,
            ratio: ours / peer,
            spread: None,
            more: Map::new(),
        }
    }

    /// One more field of the row.
    pub fn with(mut self, key: &str, value: Value) -> Measured {
        self.more.insert(key.into(), value);
        self
    }
}

/// A row that is planned: what is compared with what, and how.
pub struct Row<'a> {
    pub name: String,
    pub peer: String,
    pub goal: Option<f64>,
    /// Of `ours_ns` and `peer_ns`: "ns", but for the few rows that are about memory.
    pub unit: &'static str,
    /// What the two numbers are, where the name does not say it.
    pub note: String,
    #[allow(clippy::type_complexity, reason = "it is said nowhere else")]
    pub measure: Box<dyn FnMut() -> Result<Measured, String> + 'a>,
}

impl<'a> Row<'a> {
    pub fn new(
        name: impl Into<String>,
        peer: impl Into<String>,
        measure: impl FnMut() -> Result<Measured, String> + 'a,
    ) -> Row<'a> {
        Row {
            name: name.into(),
            peer: peer.into(),
            goal: None,
            unit: "ns",
            note: String::new(),
            measure: Box::new(measure),
        }
    }

    pub fn goal(mut self, goal: impl Into<Option<f64>>) -> Row<'a> {
        self.goal = goal.into();
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Row<'a> {
        self.note = note.into();
        self
    }

    pub fn unit(mut self, unit: &'static str) -> Row<'a> {
        self.unit = unit;
        self
    }

    /// The row as it is printed.
    pub fn told(&self, result: Result<Measured, String>) -> Value {
        let mut row = json!({
            "name": self.name, "ours_ns": null, "peer": self.peer, "peer_ns": null, "ratio": null, "goal": self.goal,
            "skipped": null, "met": null, "low": null, "high": null, "unit": self.unit, "note": self.note,
        });
        match result {
            Err(reason) => row["skipped"] = json!(reason),
            Ok(measured) => {
                row["ours_ns"] = json!(rounded(measured.ours));
                row["peer_ns"] = json!(rounded(measured.peer));
                let ratio = rounded(measured.ratio);
                row["ratio"] = json!(ratio);
                row["met"] = json!(self.goal.map(|goal| ratio <= goal));
                if let Some((low, high)) = measured.spread {
                    row["low"] = json!(rounded(low));
                    row["high"] = json!(rounded(high));
                }
                row.as_object_mut()
                    .expect("an object")
                    .extend(measured.more);
            }
        }
        row
    }
}

/// Five digits: more would be noise.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// A number with its unit, in four digits or less.
fn plain(value: &Value, unit: &str) -> String {
    let Some(value) = value.as_f64() else {
        return "-".into();
    };
    let steps: &[(f64, &str)] = match unit {
        "ns" => &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
        _ => &[(1e6, "MB"), (1e3, "kB"), (1.0, "B")],
    };
    let (size, name) = steps
        .iter()
        .find(|step| value >= step.0)
        .unwrap_or(&steps[steps.len() - 1]);
    let value = value / size;
    let digits = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.digits$} {name}")
}

fn ratio(value: &Value) -> String {
    match value.as_f64() {
        None => "-".into(),
        Some(small) if small < 0.1 => format!("{small:.4}"),
        Some(value) => format!("{value:.3}"),
    }
}

/// The rows as a table, and below it what became of the goals.
pub fn table(machine: &Value, rows: &[Value]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let heads = ["WHAT", "OURS", "PEER", "", "RATIO", "QUARTILES", "GOAL", ""];
    let mut lines = vec![heads.map(String::from)];
    let (mut missed, mut met, mut skipped) = (Vec::new(), 0, Vec::new());
    for row in rows {
        let unit = text(&row["unit"]);
        let verdict = match &row["met"] {
            Value::Bool(true) => "met",
            Value::Bool(false) => "MISSED",
            _ if row["skipped"].is_string() => "skipped",
            _ => "",
        };
        match verdict {
            "met" => met += 1,
            "MISSED" => missed.push(row),
            "skipped" => skipped.push(row),
            _ => {}
        }
        let spread = match row["low"].is_null() {
            true => String::new(),
            false => format!("{} .. {}", ratio(&row["low"]), ratio(&row["high"])),
        };
        let goal = row["goal"].as_f64();
        lines.push([
            text(&row["name"]),
            plain(&row["ours_ns"], &unit),
            text(&row["peer"]),
            plain(&row["peer_ns"], &unit),
            ratio(&row["ratio"]),
            spread,
            goal.map_or("-".into(), |goal| format!("{goal}")),
            verdict.into(),
        ]);
    }
    let widths: [usize; 8] =
        std::array::from_fn(|column| lines.iter().map(|l| l[column].len()).max().unwrap_or(0));
    let mut out = String::new();
    for line in &lines {
        let cells = line
            .iter()
            .zip(widths)
            .enumerate()
            .map(
                |(column, (cell, width))| match [1, 3, 4, 6].contains(&column) {
                    true => format!("{cell:>width$}"),
                    false => format!("{cell:<width$}"),
                },
            );
        let line = cells.collect::<Vec<_>>().join("  ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    let goals = met + missed.len();
    let _ = writeln!(
        out,
        "\nRATIO is ours / peer, the median of rounds taken in turn; smaller is better. {met} of {goals} goals met, {} rows skipped.",
        skipped.len()
    );
    for row in missed {
        let (name, peer) = (text(&row["name"]), text(&row["peer"]));
        let (is, goal) = (ratio(&row["ratio"]), ratio(&row["goal"]));
        let _ = writeln!(out, "MISSED   {name} / {peer}: {is}, goal {goal}");
    }
    for row in skipped {
        let (name, peer) = (text(&row["name"]), text(&row["peer"]));
        let _ = writeln!(out, "skipped  {name} / {peer}: {}", text(&row["skipped"]));
    }
    let of = |key: &str| match &machine[key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let _ = writeln!(
        out,
        "\n{}, {} cores, {}, {} {}, load {} before and {} after; shmsched {}, {} s",
        of("cpu"),
        of("cores"),
        of("system"),
        of("kernel"),
        of("arch"),
        of("load_before"),
        of("load_after"),
        of("shmsched"),
        of("seconds")
    );
    out
}

/// What keeps the document from being what is promised; empty if nothing does.
pub fn flaws(document: &Value) -> Vec<String> {
    let mut flaws = Vec::new();
    let mut demand = |holds: bool, what: String| {
        if !holds {
            flaws.push(what);
        }
    };
    demand(
        document["machine"].is_object(),
        "machine is no object".into(),
    );
    let rows = document["rows"].as_array().cloned().unwrap_or_default();
    demand(!rows.is_empty(), "there are no rows".into());
    let mut seen = std::collections::HashSet::new();
    for row in &rows {
        let title = format!("{} / {}", row["name"], row["peer"]);
        demand(seen.insert(title.clone()), format!("{title}: twice"));
        for key in ["name", "peer", "unit", "note"] {
            demand(row[key].is_string(), format!("{title}: {key} is no text"));
        }
        for key in ["goal", "skipped", "met", "low", "high"] {
            demand(row.get(key).is_some(), format!("{title}: no {key}"));
        }
        let numbers = ["ours_ns", "peer_ns", "ratio"].map(|key| row[key].as_f64());
        match row["skipped"].as_str() {
            Some(reason) => demand(
                !reason.is_empty() && numbers == [None; 3],
                format!("{title}: skipped, with numbers"),
            ),
            None => demand(
                row["skipped"].is_null() && numbers.iter().all(|n| n.is_some_and(|n| n >= 0.0)),
                format!("{title}: numbers are missing: {numbers:?}"),
            ),
        }
        if let (Some(goal), Some(ratio)) = (row["goal"].as_f64(), row["ratio"].as_f64()) {
            let met = row["met"].as_bool();
            demand(
                met == Some(ratio <= goal),
                format!("{title}: met is {met:?}"),
            );
        }
    }
    flaws
}
