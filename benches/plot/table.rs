//! Tables in markdown, between marks in the text.

use crate::{Answer, Found, Scene};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

/// Replaces what is between the two marks of this name.
pub fn fill(path: &Path, name: &str, content: &str) -> Answer<()> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (begin, end) = (
        format!("<!-- {name} -->\n"),
        format!("<!-- end of {name} -->"),
    );
    let missing = || format!("{} has no '{}' and '{end}'", path.display(), begin.trim());
    let (before, rest) = text.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    let content = content.trim_end();
    Ok(std::fs::write(
        path,
        format!("{before}{begin}\n{content}\n\n{end}{after}"),
    )?)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// On what, when, and how far it may be believed.
pub fn machine(found: &Found) -> String {
    let machine = &found.machine;
    let or = |value: &Value| match text(value) {
        "" => "?".to_owned(),
        known => known.to_owned(),
    };
    let kernel = or(&machine["kernel"]);
    let kernel = kernel.split('-').next().unwrap_or_default();
    let memory = text(&machine["memory"])
        .split(' ')
        .next()
        .unwrap_or_default();
    let memory = memory
        .parse::<f64>()
        .map_or("?".into(), |kb| format!("{:.0}", kb / 1e6));
    let size = or(&machine["size"]);
    let mut told = format!(
        "A {size} run of {}, {} s: {}, {} cores, {memory} GB{}; {}, Linux {kernel}, Node {}; shmsched {}. Load average \
         before: {}.\n",
        found.date,
        machine["seconds"],
        or(&machine["cpu"]),
        machine["cores"],
        if machine["virtual"] == Value::Bool(true) {
            ", a virtual machine"
        } else {
            ""
        },
        or(&machine["system"]),
        or(&machine["node"]).trim_start_matches('v'),
        or(&machine["shmsched"]),
        or(&machine["load_before"]),
    );
    if size != "full" {
        told.push_str("\n**Few rounds, of 2 and 8 processes: it stands here until a full run replaces it.**\n");
    }
    let busy: f64 = text(&machine["load_before"]).parse().unwrap_or(0.0);
    if busy > 0.5 {
        told.push_str(
            "\n**The machine was busy with other things; distrust what is slow here.**\n",
        );
    }
    wrapped(&told)
}

/// In lines of 120 at most.
fn wrapped(text: &str) -> String {
    let mut told = String::new();
    for line in text.lines() {
        let mut width = 0;
        for word in line.split(' ') {
            let room = width + 1 + word.len() <= 120;
            told.push_str(match (width, room) {
                (0, _) => "",
                (_, true) => " ",
                (_, false) => "\n",
            });
            width = if width > 0 && room {
                width + 1 + word.len()
            } else {
                word.len()
            };
            told.push_str(word);
        }
        told.push('\n');
    }
    told
}

/// Three digits, with a unit.
fn plain(value: &Value, unit: &str) -> String {
    let Some(value) = value.as_f64() else {
        return String::new();
    };
    let steps: &[(f64, &str)] = match unit {
        "bytes" => &[(1e6, "MB"), (1e3, "kB"), (1.0, "B")],
        _ => &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
    };
    let step = steps.iter().find(|step| value >= step.0);
    let (size, name) = step.unwrap_or(&steps[steps.len() - 1]);
    format!("{} {name}", digits(value / size))
}

fn digits(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn ratio(value: &Value) -> String {
    match value.as_f64() {
        None => String::new(),
        // Two digits that say something, at least.
        Some(small) if small < 0.1 => {
            let zeros = -small.max(1e-9).log10().floor() as usize;
            format!("{small:.0$}", (zeros + 1).max(3))
        }
        Some(value) => digits(value),
    }
}

fn goal(row: &Value) -> String {
    let Some(goal) = row["goal"].as_f64() else {
        return String::new();
    };
    match row["met"].as_bool() {
        Some(true) => format!("{goal}, met"),
        Some(false) => format!("{goal}, **missed**"),
        None => goal.to_string(),
    }
}

/// As it may stand in a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn is_contended(row: &Value) -> bool {
    Scene::of(row).is_some()
}

/// What became of the goals; then the rows that are no contention.
pub fn rows(found: &Found) -> String {
    let with = |met: bool| {
        found
            .rows
            .iter()
            .filter(move |row| row["met"] == Value::Bool(met))
    };
    let (met, missed) = (with(true).count(), with(false).count());
    let skipped = found.rows.iter().filter(|row| row["skipped"].is_string());
    let skipped = skipped.count();
    let rows = match skipped {
        0 => String::new(),
        1 => " One row was skipped.".into(),
        more => format!(" {more} rows were skipped."),
    };
    let mut told = format!(
        "Of {} goals {met} are met and {missed} missed.{rows}\n\n",
        met + missed
    );
    if missed > 0 {
        told.push_str("Missed:\n\n");
        for row in with(false) {
            let (name, peer) = (text(&row["name"]), text(&row["peer"]));
            let (is, goal) = (ratio(&row["ratio"]), &row["goal"]);
            let _ = writeln!(told, "- {name} / {peer}: {is} instead of {goal}");
        }
        told.push('\n');
    }
    told.push_str(
        "| what | ours | the peer | | ratio | quartiles | goal |\n|---|--:|---|--:|--:|--:|---|\n",
    );
    for row in found.rows.iter().filter(|row| !is_contended(row)) {
        let (name, peer, unit) = (text(&row["name"]), text(&row["peer"]), text(&row["unit"]));
        let (ours, theirs) = (plain(&row["ours_ns"], unit), plain(&row["peer_ns"], unit));
        let quartiles = match row["low"].is_null() {
            true => String::new(),
            false => format!("{} to {}", ratio(&row["low"]), ratio(&row["high"])),
        };
        let is = match text(&row["skipped"]) {
            "" => ratio(&row["ratio"]),
            reason => format!("skipped: {}", cell(reason)),
        };
        let goal = goal(row);
        let _ = writeln!(
            told,
            "| {name} | {ours} | {peer} | {theirs} | {is} | {quartiles} | {goal} |"
        );
    }
    told
}

/// A line for each scene.
pub fn contention(found: &Found) -> String {
    let (throughput, fairness) = (found.contended("throughput"), found.contended("fairness"));
    let mut told = String::from(
        "| slots | task | processes | tasks a second | time a task / that of 2 | goal | Jain's index | goal |\n\
         |--:|--:|--:|--:|--:|---|--:|---|\n",
    );
    let verdict = |row: &Value, least: bool| match (row["goal"].as_f64(), row["met"].as_bool()) {
        (Some(goal), Some(met)) => {
            let goal = if least { 1.0 / goal } else { goal };
            let goal = (goal * 100.0).round() / 100.0;
            let met = if met { "met" } else { "**missed**" };
            format!("{goal}, {met}")
        }
        _ => String::new(),
    };
    for (scene, fair) in &fairness {
        let many = throughput.iter().find(|row| row.0 == *scene);
        let many = many.map_or(&Value::Null, |row| row.1);
        let rate = fair["tasks_per_second"].as_f64();
        let rate = rate.map_or(String::new(), |rate| grouped(rate as u64));
        let jain = match (fair["jain"].as_f64(), text(&fair["skipped"])) {
            (Some(jain), _) => format!("{jain:.3}"),
            (None, reason) => format!("skipped: {}", cell(reason)),
        };
        let _ = writeln!(
            told,
            "| {} | {} us | {} | {rate} | {} | {} | {jain} | {} |",
            scene.budget,
            scene.task_us,
            scene.processes,
            ratio(&many["ratio"]),
            verdict(many, false),
            verdict(fair, true),
        );
    }
    told
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let text = number.to_string();
    let mut told = String::new();
    for (at, digit) in text.chars().enumerate() {
        if at > 0 && (text.len() - at).is_multiple_of(3) {
            told.push(',');
        }
        told.push(digit);
    }
    told
}

/// The committed instruction counts.
pub fn instructions(budget: &Path) -> Answer<String> {
    let read = std::fs::read_to_string(budget);
    let read = read.map_err(|error| format!("{}: {error}", budget.display()))?;
    let mut told = String::new();
    for line in read.lines().filter(|line| !line.starts_with('#')) {
        if let Some(toolchain) = line.strip_prefix("toolchain: ") {
            let _ = write!(
                told,
                "With {toolchain}:\n\n| path | instructions |\n|---|--:|\n"
            );
        } else if let Some((count, name)) = line.trim().split_once("  ") {
            let _ = writeln!(told, "| {name} | {count} |");
        }
    }
    Ok(told)
}
