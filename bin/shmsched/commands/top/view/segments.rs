//! All segments, a line each, as `list` shows them.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table, Widget};
use shmsched::Snapshot;

use super::super::model::{Model, Watched};
use super::theme::Theme;
use crate::output::{escaped, limit, percent, short, span};

const HEADER: [&str; 8] = [
    "SEGMENT", "RUNNING", "LIMIT", "TOKENS", "RATE", "INTERVAL", "WAITING", "PRESSURE",
];

/// How many lines, of those there may be.
pub fn height(model: &Model, most: u16) -> u16 {
    u16::try_from(model.segments().len() + 1)
        .unwrap_or(u16::MAX)
        .min(most.max(3))
}

pub fn draw(model: &Model, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let room = usize::from(area.height.saturating_sub(1));
    let selected = model.selected_index();
    // The selected one is among those shown.
    let from = (selected + 1).saturating_sub(room);
    let shown = model.segments().iter().enumerate().skip(from).take(room);
    let rows = shown.map(|(at, watched)| {
        let row = row(watched);
        match at == selected {
            true => row.style(theme.marked()),
            false => row,
        }
    });
    let names = model
        .segments()
        .iter()
        .map(|watched| escaped(&watched.name).chars().count());
    let name = names.max().unwrap_or(0).clamp(10, 24) as u16;
    let widths = [name, 7, 9, 8, 8, 9, 7, 9].map(Constraint::Length);
    let header = HEADER
        .into_iter()
        .zip(0..)
        .map(|(name, at)| cell(name.to_owned(), at));
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(theme.strong()))
        .column_spacing(1);
    Widget::render(table, area, buffer);
    // What is wrong with one takes the place of its numbers.
    let shown = model.segments().iter().skip(from).take(room);
    for (watched, y) in shown.zip(area.y + 1..) {
        if let Err(why) = &watched.found {
            let x = area.x.saturating_add(name + 1).min(area.right());
            let room = area.right() - x;
            buffer.set_stringn(x, y, escaped(why), room.into(), theme.wrong());
        }
    }
}

fn row(watched: &Watched) -> Row<'static> {
    let name = escaped(&watched.name);
    match &watched.found {
        Ok(snapshot) => {
            let cells = [vec![name], numbers(snapshot)].concat();
            Row::new(cells.into_iter().zip(0..).map(|(text, at)| cell(text, at)))
        }
        Err(_) => Row::new([name]),
    }
}

fn numbers(snapshot: &Snapshot) -> Vec<String> {
    let (scheduler, limiter, pacer) = (&snapshot.scheduler, &snapshot.limiter, &snapshot.pacer);
    let dash = || "-".to_owned();
    let queued = |queued: &[u64; 7]| queued.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    let waiting = [
        scheduler.as_ref().map(|gate| queued(&gate.queued)),
        limiter.as_ref().map(|gate| queued(&gate.queued)),
        pacer.as_ref().map(|gate| gate.waiting.into()),
    ];
    vec![
        scheduler
            .as_ref()
            .map_or_else(dash, |gate| gate.running.to_string()),
        scheduler
            .as_ref()
            .map_or_else(dash, |gate| limit(gate.concurrency)),
        limiter
            .as_ref()
            .map_or_else(dash, |gate| short(gate.tokens.into())),
        limiter.as_ref().map_or_else(dash, |gate| {
            format!("{}/s", short(gate.tokens_per_second.into()))
        }),
        pacer.as_ref().map_or_else(dash, |gate| span(gate.interval)),
        waiting
            .into_iter()
            .flatten()
            .fold(0, u64::saturating_add)
            .to_string(),
        percent(crate::output::table::pressure(snapshot)),
    ]
}

fn cell(text: String, at: usize) -> Cell<'static> {
    let line = Line::raw(text);
    Cell::from(if at == 0 { line } else { line.right_aligned() })
}
