//! The gates of the selected segment: two lines each, what is used and what waits, and how it went on the right.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{RenderDirection, Sparkline, Widget};
use shmsched::{Gate, LimiterInfo, PacerInfo, Pressure, Priority, SchedulerInfo, Snapshot};

use super::super::history::History;
use super::super::model::{Model, Watched};
use super::theme::Theme;
use crate::output::{escaped, limit, short, span, time};

/// The letters before the bars.
const LABEL: u16 = 8;
/// The letters before a curve.
const NUMBERS: u16 = 23;
/// Between the words and the numbers.
const GAP: u16 = 2;
/// From this width on there are curves.
const WIDE: u16 = 76;

/// A gate, whichever it is.
struct Shown {
    gate: Gate,
    label: &'static str,
    /// Used and of how many: the bar. `None` without an end.
    bar: Option<(f64, f64)>,
    state: String,
    waiting: u64,
    /// Who waits, in words.
    queue: String,
    moved: &'static str,
    pressure: Pressure,
    targets: Option<String>,
}

/// How many lines it would like, of what is left; the members need some, too.
pub fn height(model: &Model, left: Rect) -> u16 {
    let wanted = match model.selected().map(|watched| &watched.found) {
        None => 0,
        Some(Err(_)) => 1,
        Some(Ok(snapshot)) => {
            let gates = shown(snapshot);
            let each = lines(left.height, gates.len() as u16);
            let targets = gates.iter().filter(|gate| gate.targets.is_some()).count() as u16;
            let note = u16::from(note(snapshot).is_some());
            gates.len() as u16 * each.min(2) + if each > 2 { targets } else { 0 } + note
        }
    };
    wanted.min(left.height)
}

/// One line a gate if it is tight, two, or three where there are targets.
fn lines(height: u16, gates: u16) -> u16 {
    match height {
        _ if height < gates * 2 + 4 => 1,
        24.. => 3,
        _ => 2,
    }
}

pub fn draw(model: &Model, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let Some(watched) = model.selected() else {
        return;
    };
    let mut left = area;
    let snapshot = match &watched.found {
        Ok(snapshot) => snapshot,
        Err(why) => {
            let text = format!("{}: {}", escaped(&watched.name), escaped(why));
            return Line::styled(text, theme.wrong()).render(super::below(&mut left, 1), buffer);
        }
    };
    if let Some(note) = note(snapshot) {
        Line::styled(note, theme.wrong()).render(super::below(&mut left, 1), buffer);
    }
    let gates = shown(snapshot);
    let targets = gates.iter().filter(|gate| gate.targets.is_some()).count() as u16;
    let count = gates.len() as u16;
    let each = match left.height {
        height if height >= count * 2 + targets => 3,
        height if height >= count * 2 => 2,
        _ => 1,
    };
    for gate in &gates {
        one(gate, watched, theme, buffer, super::below(&mut left, 1));
        if each > 1 {
            two(gate, watched, theme, buffer, super::below(&mut left, 1));
        }
        if let Some(targets) = gate.targets.as_ref().filter(|_| each > 2) {
            let text = format!("{:1$}targets {targets}", "", usize::from(LABEL));
            Line::styled(text, theme.quiet()).render(super::below(&mut left, 1), buffer);
        }
    }
}

/// What everybody should know.
fn note(snapshot: &Snapshot) -> Option<&'static str> {
    let segment = &snapshot.segment;
    if segment.gone {
        Some("the file has lost its name: new users get another segment")
    } else if segment.retired {
        Some("retired by rm --force: nobody gets anything any more")
    } else if !segment.boot_is_current {
        Some("of an earlier boot: the first to attach resets it")
    } else {
        None
    }
}

/// The room of the words, and of numbers and curve on the right.
fn columns(area: Rect) -> (Rect, Rect) {
    let right = match area.width {
        WIDE.. => NUMBERS + ((area.width - WIDE) / 3).min(60) + 10,
        _ => 0,
    };
    let left = Rect {
        width: area.width - right - if right > 0 { GAP } else { 0 },
        ..area
    };
    let right = Rect {
        x: area.right() - right,
        width: right,
        ..area
    };
    (left, right)
}

/// `slots   ████████░░░░ 2 of 3        admitted 12.3/s ▁▂▃`
fn one(gate: &Shown, watched: &Watched, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let (left, right) = columns(area);
    let mut spans = vec![Span::styled(
        format!("{:<1$}", gate.label, usize::from(LABEL)),
        theme.strong(),
    )];
    if let Some((used, all)) = gate.bar {
        let room = usize::from((left.width / 4).min(24));
        let share = if all > 0.0 {
            (used / all).clamp(0.0, 1.0)
        } else {
            0.0
        };
        // Only what is full is shown full, and what is used is seen.
        let mut full = (share * room as f64) as usize;
        if used > 0.0 && full == 0 {
            full = room.min(1);
        }
        spans.push(Span::styled("\u{2588}".repeat(full), theme.bar()));
        spans.push(Span::styled("\u{2591}".repeat(room - full), theme.quiet()));
        spans.push(" ".into());
    }
    spans.push(Span::raw(gate.state.clone()));
    if area.height > 0 && left.width < 40 && gate.waiting > 0 {
        spans.push(Span::styled(
            format!(", {} wait", gate.waiting),
            theme.waits(),
        ));
    }
    Line::from(spans).render(left, buffer);
    let history = watched.history(gate.gate);
    let rate = history.rate().map_or("-".into(), rate);
    let text = format!("{:<9}{rate:>8}/s", gate.moved);
    curve(text, theme.curve(), history.rates(), None, buffer, right);
}

/// `        waiting 3, first 1.2s: high 1, normal 2        pressure 12.3/0.0 % ▁▂▃`
fn two(gate: &Shown, watched: &Watched, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let (left, right) = columns(area);
    let style = match gate.waiting {
        0 => theme.quiet(),
        _ => theme.waits(),
    };
    let indent = " ".repeat(LABEL.into());
    let text = Span::styled(gate.queue.clone(), style);
    Line::from(vec![Span::raw(indent), text]).render(left, buffer);
    let [some, full] = [gate.pressure.some, gate.pressure.full].map(|stalled| stalled.averages[0]);
    let part = |share: u16| format!("{}.{}", share / 100, share % 100 / 10);
    let text = format!("pressure {}/{} %", part(some), part(full));
    let history: &History = watched.history(gate.gate);
    curve(
        text,
        theme.pressure(some),
        history.pressures(),
        Some(10_000),
        buffer,
        right,
    );
}

fn curve(
    text: String,
    style: ratatui::style::Style,
    values: Vec<u64>,
    most: Option<u64>,
    buffer: &mut Buffer,
    area: Rect,
) {
    Line::raw(text).render(area, buffer);
    let room = Rect {
        x: area.x + NUMBERS.min(area.width),
        width: area.width.saturating_sub(NUMBERS),
        ..area
    };
    let curve = Sparkline::default()
        .data(values)
        .direction(RenderDirection::RightToLeft)
        .style(style);
    match most {
        Some(most) => curve.max(most).render(room, buffer),
        None => curve.render(room, buffer),
    }
}

/// A rate with a decimal if it is small.
fn rate(rate: f64) -> String {
    match rate {
        ..100.0 => format!("{rate:.1}"),
        _ => short(rate as i64),
    }
}

fn shown(snapshot: &Snapshot) -> Vec<Shown> {
    let scheduler = snapshot.scheduler.iter().map(scheduler);
    let limiter = snapshot.limiter.iter().map(limiter);
    let pacer = snapshot.pacer.iter().map(pacer);
    scheduler.chain(limiter).chain(pacer).collect()
}

fn scheduler(info: &SchedulerInfo) -> Shown {
    let queued = sum(&info.queued);
    let targets = Priority::ALL.iter().zip(info.targets).rev();
    let lower = targets.filter(|(_, target)| *target != info.concurrency);
    let lower: Vec<String> = lower
        .map(|(priority, target)| format!("{priority} {}", limit(target)))
        .collect();
    Shown {
        gate: Gate::Scheduler,
        label: "slots",
        bar: info
            .concurrency
            .map(|all| (info.running.into(), all.into())),
        state: format!("{} of {}", info.running, limit(info.concurrency)),
        waiting: queued,
        queue: queue(queued, info.head_wait_ms, &info.queued),
        moved: "admitted",
        pressure: info.pressure,
        targets: (!lower.is_empty()).then(|| lower.join(", ")),
    }
}

fn limiter(info: &LimiterInfo) -> Shown {
    let queued = sum(&info.queued);
    Shown {
        gate: Gate::Limiter,
        label: "tokens",
        bar: Some((info.tokens.into(), info.tokens_per_second.into())),
        state: format!(
            "{} at {}/s",
            short(info.tokens.into()),
            short(info.tokens_per_second.into())
        ),
        waiting: queued,
        queue: queue(queued, info.head_wait_ms, &info.queued),
        moved: "consumed",
        pressure: info.pressure,
        targets: None,
    }
}

fn pacer(info: &PacerInfo) -> Shown {
    let next = match info.next_start_in.as_millis() {
        0 => "now".to_owned(),
        ms => format!("in {}", time(u64::try_from(ms).unwrap_or(u64::MAX))),
    };
    let waiting = info.waiting.into();
    Shown {
        gate: Gate::Pacer,
        label: "starts",
        bar: None,
        state: format!("one every {}, next {next}", span(info.interval)),
        waiting,
        queue: format!(
            "{}, {} at most",
            queue(waiting, info.head_wait_ms, &[0; 7]),
            info.max_waiting
        ),
        moved: "started",
        pressure: info.pressure,
        targets: None,
    }
}

/// `waiting 3, first 1.2s: high 1, normal 2`
fn queue(waiting: u64, head_ms: Option<u64>, queued: &[u64; 7]) -> String {
    if waiting == 0 {
        return "nobody waits".into();
    }
    let head = head_ms.map_or(String::new(), |ms| format!(", first {}", time(ms)));
    let some = Priority::ALL.iter().zip(queued).rev();
    let some: Vec<String> = some
        .filter(|(_, queued)| **queued > 0)
        .map(|(priority, queued)| format!("{priority} {queued}"))
        .collect();
    let colon = if some.is_empty() { "" } else { ": " };
    format!("waiting {waiting}{head}{colon}{}", some.join(", "))
}

fn sum(queued: &[u64; 7]) -> u64 {
    queued
        .iter()
        .fold(0, |sum, queued| sum.saturating_add(*queued))
}
