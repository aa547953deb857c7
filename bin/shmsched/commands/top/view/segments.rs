//! All segments, a line each, as `list` shows them.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use shmsched::Snapshot;

use super::super::model::{Model, Watched};
use super::text::{self, Cell};
use super::theme::Theme;
use crate::output::{escaped, limit, percent, short, span};

/// A column of numbers: its name, its width, and which goes first where there is too little room.
struct Column {
    name: &'static str,
    width: u16,
    rank: usize,
}

const fn column(name: &'static str, width: u16, rank: usize) -> Column {
    Column { name, width, rank }
}

const COLUMNS: [Column; 7] = [
    column("RUNNING", 7, 2),
    column("LIMIT", 9, 3),
    column("TOKENS", 8, 4),
    column("RATE", 8, 5),
    column("INTERVAL", 9, 6),
    column("WAITING", 7, 1),
    column("PRESSURE", 9, 0),
];

/// How many lines, of those there may be.
pub fn height(model: &Model, most: u16) -> u16 {
    u16::try_from(model.segments().len() + 1)
        .unwrap_or(u16::MAX)
        .min(most.max(3))
}

pub fn draw(model: &Model, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let all = model.segments();
    let room = usize::from(area.height.saturating_sub(1));
    let selected = model.selected_index();
    // The selected one is among those shown.
    let from = (selected + 1).saturating_sub(room);
    let shown = &all[from..(from + room).min(all.len())];
    let first = match shown.len() < all.len() {
        true => format!("SEGMENT {} of {}", shown.len(), all.len()),
        false => "SEGMENT".to_owned(),
    };
    let names = all
        .iter()
        .map(|watched| text::width(&escaped(&watched.name)));
    let name = names.max().unwrap_or(0).clamp(10, 24).max(first.len());
    let name = u16::try_from(name).unwrap_or(24);
    let fits = fitting(area.width.saturating_sub(name));
    let mut left = area;
    let of = |first: String, numbers: Vec<String>| {
        let first = Cell {
            text: first,
            width: name,
            right: false,
        };
        let numbers = COLUMNS.iter().zip(numbers);
        let numbers = numbers.filter(|(column, _)| column.rank < fits);
        let numbers = numbers.map(|(column, text)| Cell {
            text,
            width: column.width,
            right: true,
        });
        [first].into_iter().chain(numbers).collect::<Vec<Cell>>()
    };
    let header = COLUMNS.iter().map(|column| column.name.to_owned());
    let header = of(first, header.collect());
    text::row(
        &header,
        1,
        theme.strong(),
        super::below(&mut left, 1),
        buffer,
    );
    for (watched, at) in shown.iter().zip(from..) {
        let line = super::below(&mut left, 1);
        let style = match at == selected {
            true => theme.marked(),
            false => ratatui::style::Style::new(),
        };
        text::row(
            &of(escaped(&watched.name), numbers(watched)),
            1,
            style,
            line,
            buffer,
        );
        // What is wrong with one takes the place of its numbers.
        if let Err(why) = &watched.found {
            let x = line.x.saturating_add(name + 1).min(line.right());
            let room = Rect {
                x,
                width: line.right() - x,
                ..line
            };
            text::put(Line::styled(escaped(why), theme.wrong()), room, buffer);
        }
    }
}

/// How many of the columns there is room for, by rank.
fn fitting(room: u16) -> usize {
    let mut used = 0;
    let width = |rank| {
        COLUMNS
            .iter()
            .find(|column| column.rank == rank)
            .map_or(0, |column| column.width)
    };
    let fits = |rank: &usize| {
        used += width(*rank) + 1;
        used <= room
    };
    (0..COLUMNS.len()).take_while(fits).count()
}

fn numbers(watched: &Watched) -> Vec<String> {
    let Ok(snapshot) = &watched.found else {
        return Vec::new();
    };
    let Snapshot {
        scheduler,
        limiter,
        pacer,
        ..
    } = snapshot;
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
