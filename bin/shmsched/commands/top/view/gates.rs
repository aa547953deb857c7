//! The gates of the selected segment: two lines each, what is used and what waits, and how it went on the right.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{RenderDirection, Sparkline, Widget};
use shmsched::{
    Gate, LimiterInfo, PacerInfo, Pressure, Priority, SchedulerInfo, Snapshot, Stalled,
};

use super::super::model::{Model, Watched};
use super::text;
use super::theme::Theme;
use crate::output::{escaped, limit, short, span, time};

/// The letters before the bars.
const LABEL: u16 = 8;
/// Between the words, the numbers and a curve.
const GAP: u16 = 2;

/// How much is said on the right, by the width of the screen.
#[derive(Clone, Copy, PartialEq)]
enum Numbers {
    /// Numbers alone.
    Bare,
    /// With what they are.
    Named,
    /// With what they are, and a curve.
    Curve,
    /// The same, and the word pressure.
    Wide,
}

impl Numbers {
    fn of(width: u16) -> Option<Numbers> {
        match width {
            0..30 => None,
            30..54 => Some(Numbers::Bare),
            54..76 => Some(Numbers::Named),
            76..100 => Some(Numbers::Curve),
            100.. => Some(Numbers::Wide),
        }
    }

    /// The letters before a curve.
    fn letters(self) -> u16 {
        match self {
            Numbers::Bare => 9,
            Numbers::Named | Numbers::Curve => 23,
            Numbers::Wide => 32,
        }
    }

    fn width(self, screen: u16) -> u16 {
        let curve = match self {
            Numbers::Bare | Numbers::Named => 0,
            Numbers::Curve => GAP + 8 + (screen - 76) / 3,
            Numbers::Wide => GAP + 10 + ((screen - 100) / 3).min(60),
        };
        self.letters() + curve
    }

    /// `admitted     12.3/s`
    fn rate(self, moved: &str, rate: &str) -> String {
        let room = usize::from(self.letters()) - 2;
        match self {
            Numbers::Bare => format!("{rate:>room$}/s"),
            _ => format!("{moved:<9}{rate:>0$}/s", room - 9),
        }
    }

    /// `some  12.3 full   0.0 %`
    fn pressure(self, pressure: Pressure) -> String {
        let part = |stalled: Stalled| {
            let share = stalled.averages[0];
            format!("{}.{}", share / 100, share % 100 / 10)
        };
        let (some, full) = (part(pressure.some), part(pressure.full));
        let before = if self == Numbers::Wide {
            "pressure "
        } else {
            ""
        };
        match self {
            Numbers::Bare => format!("{some:>7} %"),
            _ => format!("{before}some {some:>5} full {full:>5} %"),
        }
    }
}

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
            return text::put(
                Line::styled(text, theme.wrong()),
                super::below(&mut left, 1),
                buffer,
            );
        }
    };
    if let Some(note) = note(snapshot) {
        text::put(
            Line::styled(note, theme.wrong()),
            super::below(&mut left, 1),
            buffer,
        );
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
        one(
            gate,
            watched,
            theme,
            each == 1,
            buffer,
            super::below(&mut left, 1),
        );
        if each > 1 {
            two(gate, watched, theme, buffer, super::below(&mut left, 1));
        }
        if let Some(targets) = gate.targets.as_ref().filter(|_| each > 2) {
            let text = format!("{:1$}targets {targets}", "", usize::from(LABEL));
            text::put(
                Line::styled(text, theme.quiet()),
                super::below(&mut left, 1),
                buffer,
            );
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
    let right = Numbers::of(area.width).map_or(0, |numbers| numbers.width(area.width));
    let gap = if right > 0 { GAP } else { 0 };
    let left = Rect {
        width: area.width - right - gap,
        ..area
    };
    let right = Rect {
        x: area.right() - right,
        width: right,
        ..area
    };
    (left, right)
}

/// `slots   ████████░░░░ 2 of 3        admitted 12.3/s ▁▂▃`; a line that is alone says who waits and the pressure, which
/// matter more than a rate.
fn one(
    gate: &Shown,
    watched: &Watched,
    theme: Theme,
    alone: bool,
    buffer: &mut Buffer,
    area: Rect,
) {
    let (left, right) = columns(area);
    let mut spans = vec![Span::styled(
        format!("{:<1$}", gate.label, usize::from(LABEL)),
        theme.strong(),
    )];
    let waiting = match alone && gate.waiting > 0 {
        true => format!(", {} waiting", gate.waiting),
        false => String::new(),
    };
    if let Some((used, all)) = gate.bar {
        let words = usize::from(LABEL) + 1 + text::width(&gate.state) + waiting.len();
        let room = usize::from((left.width / 4).min(24));
        let room = room
            .min(usize::from(left.width).saturating_sub(words))
            .max(3);
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
    spans.push(Span::styled(waiting, theme.waits()));
    text::put(Line::from(spans), left, buffer);
    match alone {
        true => pressure(gate, watched, theme, buffer, right),
        false => rates(gate, watched, theme, buffer, right),
    }
}

/// `        waiting 3, first 1.2s: high 1, normal 2        some  12.3 full   0.0 % ▁▂▃`
fn two(gate: &Shown, watched: &Watched, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let (left, right) = columns(area);
    let style = match gate.waiting {
        0 => theme.quiet(),
        _ => theme.waits(),
    };
    let indent = " ".repeat(LABEL.into());
    let queue = Span::styled(gate.queue.clone(), style);
    text::put(Line::from(vec![Span::raw(indent), queue]), left, buffer);
    pressure(gate, watched, theme, buffer, right);
}

fn rates(gate: &Shown, watched: &Watched, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let history = watched.history(gate.gate);
    let rate = history.rate().map_or("-".into(), rate);
    let text = |numbers: Numbers| Line::raw(numbers.rate(gate.moved, &rate));
    curve(text, theme.curve(), history.rates(), None, buffer, area);
}

fn pressure(gate: &Shown, watched: &Watched, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let style = theme.pressure(gate.pressure.some.averages[0]);
    let values = watched.history(gate.gate).pressures();
    let text = |numbers: Numbers| Line::raw(numbers.pressure(gate.pressure));
    curve(text, style, values, Some(10_000), buffer, area);
}

fn curve(
    text: impl Fn(Numbers) -> Line<'static>,
    style: ratatui::style::Style,
    values: Vec<u64>,
    most: Option<u64>,
    buffer: &mut Buffer,
    area: Rect,
) {
    let Some(numbers) = Numbers::of(buffer.area.width) else {
        return;
    };
    text::put(text(numbers), area, buffer);
    let before = (numbers.letters() + GAP).min(area.width);
    let room = Rect {
        x: area.x + before,
        width: area.width - before,
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
