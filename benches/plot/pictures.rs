//! What is drawn.

use crate::draw::{Axis, COLOURS, INK, LEFT, MIDDLE, Panel, RIGHT, SOFT, Sheet, sheet};
use crate::{Answer, Found, Scene};
use serde_json::Value;
use std::collections::BTreeSet;

type Picture = (&'static str, String);

pub fn all(found: &Found) -> Answer<Vec<Picture>> {
    Ok(vec![
        ("contention.svg", contention(found)?),
        ("fairness.svg", fairness(found)?),
        ("handover.svg", handover(found)?),
        ("recovery.svg", recovery(found)?),
    ])
}

fn thousands(value: f64) -> String {
    match value {
        1e6.. => format!("{} M", value / 1e6),
        1e3.. => format!("{} k", value / 1e3),
        _ => value.to_string(),
    }
}

fn time(ns: f64) -> String {
    match ns {
        1e9.. => format!("{} s", ns / 1e9),
        1e6.. => format!("{} ms", ns / 1e6),
        1e3.. => format!("{} us", ns / 1e3),
        _ => format!("{ns} ns"),
    }
}

fn nothing(sheet: &Sheet, at: (i32, i32)) -> Answer<()> {
    sheet.text("not measured in this run", at, MIDDLE, 13, SOFT)
}

fn each<T: Ord + Copy>(scenes: &[(Scene, &Value)], of: impl Fn(&Scene) -> T) -> Vec<T> {
    let all: BTreeSet<T> = scenes.iter().map(|scene| of(&scene.0)).collect();
    all.into_iter().collect()
}

fn budget_title(budget: u64) -> String {
    match budget {
        1 => "1 slot".into(),
        more => format!("{more} slots"),
    }
}

/// Tasks a second over the number of processes, a curve for each length of task.
fn contention(found: &Found) -> Answer<String> {
    let rows = found.contended("fairness");
    let rate = |row: &Value| row["tasks_per_second"].as_f64().filter(|rate| *rate > 0.0);
    let cores = found.machine["cores"].as_f64().unwrap_or(1.0);
    let processes = each(&rows, |scene| scene.processes);
    let tasks = each(&rows, |scene| scene.task_us);
    let most = |budget: u64, task: u64| match task {
        0 => None,
        us => Some(cores.min(budget as f64) * 1e6 / us as f64),
    };
    let limits = rows
        .iter()
        .filter_map(|row| most(row.0.budget, row.0.task_us));
    let y = Axis::log(rows.iter().filter_map(|row| rate(row.1)).chain(limits));
    // The number of processes goes in powers of two.
    let place = |processes: u64| (processes.max(1) as f64).log2();
    let marks: Vec<_> = processes
        .iter()
        .map(|count| (place(*count), count.to_string()))
        .collect();
    let ends = (
        place(processes.first().copied().unwrap_or(2)) - 0.3,
        place(processes.last().copied().unwrap_or(8)) + 0.3,
    );
    sheet((960, 420), |sheet| {
        for (at, budget) in [1, 4].into_iter().enumerate() {
            let left = 90 + 465 * at as i32;
            let x = Axis::linear(ends.0, ends.1);
            let edges = (left, 50, left + 300, 330);
            let panel = Panel { sheet, edges, x, y };
            let name = if at == 0 {
                "tasks a second, all processes together"
            } else {
                ""
            };
            panel.title(&budget_title(budget))?;
            panel.up_powers(name, thousands)?;
            panel.across("processes", &marks)?;
            let mut names = Vec::new();
            for (task, colour) in tasks.iter().zip(COLOURS) {
                let mine = rows
                    .iter()
                    .filter(|row| row.0.budget == budget && row.0.task_us == *task);
                let values: Vec<_> = mine
                    .filter_map(|row| Some((place(row.0.processes), rate(row.1)?)))
                    .collect();
                if let Some(most) = most(budget, *task) {
                    panel.limit(ends, most, colour)?;
                }
                panel.curve(&values, colour)?;
                if let Some((_, rate)) = values.last() {
                    names.push((*rate, format!("tasks of {task} us"), colour));
                }
            }
            if names.is_empty() {
                nothing(sheet, (left + 150, 190))?;
            }
            panel.names(names)?;
        }
        let note = "dashed, in the colour of its tasks: what slots and processors allow at most; powers of ten upwards";
        sheet.text(note, (90, 398), LEFT, 12, SOFT)
    })
}

/// Each process's part, a column of dots for each scene, with Jain's index above it.
fn fairness(found: &Found) -> Answer<String> {
    let rows = found.contended("fairness");
    let tasks = each(&rows, |scene| scene.task_us);
    let processes = each(&rows, |scene| scene.processes);
    let parts = |row: &Value| {
        let counts = row["counts"].as_array().into_iter().flatten();
        let counts: Vec<f64> = counts.filter_map(Value::as_f64).collect();
        let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
        counts.into_iter().map(move |count| count / mean.max(1.0))
    };
    let most = rows.iter().flat_map(|row| parts(row.1)).fold(1.0, f64::max);
    // Above the highest dot there is room for a number.
    let steps = ((most + 0.1) * 2.0).ceil().max(3.0);
    let top_mark = steps / 2.0;
    sheet((960, 600), |sheet| {
        for (at, budget) in [1, 4].into_iter().enumerate() {
            let top = 66 + 270 * at as i32;
            let columns = (tasks.len() * (processes.len() + 1)).max(2) as f64;
            let edges = (90, top, 930, top + 160);
            let (x, y) = (Axis::linear(0.0, columns), Axis::linear(0.0, top_mark));
            let panel = Panel { sheet, edges, x, y };
            sheet.text(&budget_title(budget), (90, top - 42), LEFT, 15, INK)?;
            let marks: Vec<_> = (0..=steps as u32)
                .map(|step| f64::from(step) / 2.0)
                .map(|part| (part, part.to_string()))
                .collect();
            panel.up("tasks / mean of all", &marks)?;
            let mut marks = Vec::new();
            for (group, task) in tasks.iter().enumerate() {
                let from = (group * (processes.len() + 1)) as f64 + 1.0;
                let middle = from + (processes.len() as f64 - 1.0) / 2.0;
                let (middle, _) = panel.at(middle, 0.0);
                let name = format!("tasks of {task} us");
                sheet.text(&name, (middle, top + 194), MIDDLE, 13, INK)?;
                for (column, count) in processes.iter().enumerate() {
                    let x = from + column as f64;
                    marks.push((x, count.to_string()));
                    let wanted = Scene {
                        budget,
                        task_us: *task,
                        processes: *count,
                    };
                    let Some((_, row)) = rows.iter().find(|row| row.0 == wanted) else {
                        continue;
                    };
                    for (index, part) in parts(row).enumerate() {
                        // Side by side a little, so that equals are seen.
                        let aside = (index * 7 % 13) as i32 - 6;
                        let (across, up) = panel.at(x, part);
                        sheet.dot((across + aside, up), 3, COLOURS[0], 0.45)?;
                    }
                    if let Some(jain) = row["jain"].as_f64() {
                        let over = (panel.at(x, 0.0).0, top - 14);
                        let missed = row["met"] == Value::Bool(false);
                        let colour = if missed { COLOURS[1] } else { INK };
                        sheet.text(&format!("{jain:.3}"), over, MIDDLE, 12, colour)?;
                    }
                }
            }
            sheet.text("Jain", (82, top - 14), RIGHT, 12, INK)?;
            sheet.text("processes", (82, top + 175), RIGHT, 12, INK)?;
            if rows.is_empty() {
                nothing(sheet, (510, top + 80))?;
            }
            panel.across("", &marks)?;
        }
        let note = "a dot is a process; Jain's index is 1 if all did the same, and orange where it misses its goal";
        sheet.text(note, (90, 574), LEFT, 12, SOFT)
    })
}

const PERCENT: [(&str, &str); 12] = [
    ("p0", "least"),
    ("p1", "1"),
    ("p5", "5"),
    ("p10", "10"),
    ("p25", "25"),
    ("p50", "50"),
    ("p75", "75"),
    ("p90", "90"),
    ("p95", "95"),
    ("p99", "99"),
    ("p99.9", "99.9"),
    ("p100", "most"),
];

fn percent_marks() -> Vec<(f64, String)> {
    let marks = PERCENT.iter().enumerate();
    marks
        .map(|(at, mark)| (at as f64, mark.1.to_owned()))
        .collect()
}

/// A distribution: its percentiles, at equal steps.
fn percentiles(row: Option<&Value>, whose: &str) -> Vec<(f64, f64)> {
    let Some(found) = row.map(|row| &row["latency_ns"][whose]) else {
        return Vec::new();
    };
    let points = PERCENT.iter().enumerate();
    points
        .filter_map(|(at, point)| Some((at as f64, found[point.0].as_f64()?)))
        .collect()
}

fn handover(found: &Found) -> Answer<String> {
    let cases = [
        ("given back at once", "between processes"),
        ("held for 100 us, so that who waits sleeps", "to a sleeper"),
    ];
    let curves = cases.map(|(title, case)| {
        let row = |way: &str| found.row(&["hand-over", case, way]);
        let named = [
            ("blocking", percentiles(row("blocking"), "ours")),
            ("async task", percentiles(row("async"), "ours")),
            ("bare futex", percentiles(row("blocking"), "peer")),
        ];
        (title, named)
    });
    let all = curves.iter().flat_map(|case| &case.1);
    let values = all.flat_map(|curve| curve.1.iter().map(|point| point.1));
    let y = Axis::log(values.map(|value| value.max(10.0)));
    sheet((960, 420), |sheet| {
        for (at, (title, named)) in curves.iter().enumerate() {
            let left = 90 + 450 * at as i32;
            let x = Axis::linear(-0.3, 11.3);
            let edges = (left, 50, left + 320, 330);
            let panel = Panel { sheet, edges, x, y };
            panel.title(title)?;
            let name = if at == 0 {
                "from release to admission"
            } else {
                ""
            };
            panel.up_powers(name, time)?;
            panel.across(
                "percent of the hand-overs that took no longer",
                &percent_marks(),
            )?;
            let mut names = Vec::new();
            for ((name, values), colour) in named.iter().zip(COLOURS) {
                panel.curve(values, colour)?;
                if let Some((_, last)) = values.last() {
                    names.push((*last, (*name).to_owned(), colour));
                }
            }
            if names.is_empty() {
                nothing(sheet, (left + 160, 190))?;
            }
            panel.names(names)?;
        }
        let note = "two processes hand slots to each other, each turn timed; powers of ten upwards";
        sheet.text(note, (90, 398), LEFT, 12, SOFT)
    })
}

fn recovery(found: &Found) -> Answer<String> {
    let row = found.row(&["recovery"]);
    let values: Vec<_> = percentiles(row, "ours")
        .into_iter()
        .map(|(x, ns)| (x, ns / 1e6))
        .collect();
    let highest = values
        .iter()
        .fold(150.0f64, |most, value| most.max(value.1));
    let top = (highest / 50.0).floor() * 50.0 + 25.0;
    sheet((720, 400), |sheet| {
        let (x, y) = (Axis::linear(-0.3, 11.3), Axis::linear(0.0, top));
        let edges = (90, 50, 560, 320);
        let panel = Panel { sheet, edges, x, y };
        panel.title("a holder is killed while somebody waits")?;
        let steps = (top / 25.0) as u32;
        let step = 1 + steps / 9;
        let marks: Vec<_> = (0..=steps)
            .step_by(step as usize)
            .map(|at| (f64::from(at) * 25.0, format!("{} ms", at * 25)))
            .collect();
        panel.up("until the next admission", &marks)?;
        panel.across(
            "percent of the recoveries that took no longer",
            &percent_marks(),
        )?;
        let mut names = Vec::new();
        for (ms, name) in [(150.0, "bound: 150 ms"), (10.0, "aim: 10 ms")] {
            panel.limit((x.from, x.to), ms, COLOURS[1])?;
            names.push((ms, name.to_owned(), COLOURS[1]));
        }
        panel.curve(&values, COLOURS[0])?;
        match values.last() {
            Some((_, last)) => names.push((*last, "shmsched".into(), COLOURS[0])),
            None => nothing(sheet, (325, 190))?,
        }
        panel.names(names)?;
        let times = row.and_then(|row| row["rounds"].as_u64()).unwrap_or(0);
        let note =
            format!("{times} times, from the moment the kernel lets go of the dead one's lock");
        sheet.text(&note, (90, 378), LEFT, 12, SOFT)
    })
}
