//! The members of the selected segment: who holds, who waits.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::super::model::{Model, Row};
use super::text::{self, Cell};
use super::theme::Theme;

/// Between two columns.
const GAP: u16 = 2;
/// The usual width of what a member waits for, and the least of its command.
const WAITING: u16 = 18;
const COMMAND: u16 = 10;

/// A column: its name, its width, from which width of the screen on it is there, and its text.
struct Column {
    name: &'static str,
    width: u16,
    from: u16,
    right: bool,
    text: fn(&Row) -> String,
}

const COLUMNS: [Column; 8] = [
    Column {
        name: "MEMBER",
        width: 6,
        from: 90,
        right: true,
        text: |row| row.member.to_string(),
    },
    Column {
        name: "PID",
        width: 8,
        from: 0,
        right: true,
        text: |row| row.pid.clone(),
    },
    Column {
        name: "STATE",
        width: 8,
        from: 70,
        right: false,
        text: |row| row.state.to_owned(),
    },
    Column {
        name: "AGE",
        width: 6,
        from: 50,
        right: true,
        text: |row| row.age.clone(),
    },
    Column {
        name: "HELD",
        width: 4,
        from: 20,
        right: true,
        text: |row| row.held.clone(),
    },
    Column {
        name: "FOR",
        width: 6,
        from: 76,
        right: true,
        text: |row| row.held_for.clone(),
    },
    Column {
        name: "WAITING",
        width: WAITING,
        from: 36,
        right: false,
        text: |row| row.waiting.clone(),
    },
    Column {
        name: "COMMAND",
        width: 0,
        from: 0,
        right: false,
        text: |row| row.command.clone(),
    },
];

pub fn draw(model: &mut Model, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let there = model
        .selected()
        .is_some_and(|watched| watched.found.is_ok());
    if area.is_empty() || !there {
        return;
    }
    let (rows, marked, all) = model.shown(usize::from(area.height - 1));
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .filter(|column| area.width >= column.from)
        .collect();
    let fixed: u16 = columns.iter().map(|column| column.width + GAP).sum();
    // As wide as it must, but the command is seen, too.
    let longest = rows.iter().map(|row| text::width(&row.waiting)).max();
    let longest = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
    let others = fixed.saturating_sub(WAITING);
    let most = area
        .width
        .saturating_sub(others + COMMAND)
        .min(WAITING.max(area.width / 3));
    let waiting = longest.max(WAITING).min(most);
    let command = area.width.saturating_sub(others + waiting);
    let width = |column: &Column| match column.name {
        "WAITING" => waiting,
        "COMMAND" => command,
        _ => column.width,
    };
    let cells = |texts: &dyn Fn(&Column) -> String| -> Vec<Cell> {
        let cells = columns.iter().map(|column| Cell {
            text: texts(column),
            width: width(column),
            right: column.right,
        });
        cells.collect()
    };
    let mut left = area;
    let header = cells(&|column| column.name.to_owned());
    text::row(
        &header,
        GAP,
        theme.strong(),
        super::below(&mut left, 1),
        buffer,
    );
    for (at, row) in rows.iter().enumerate() {
        let style = match row {
            row if row.is_odd => theme.wrong(),
            row if row.holds() => theme.holds(),
            row if row.waits() => theme.waits(),
            _ => theme.quiet(),
        };
        let style = match marked == Some(at) {
            true => style.patch(theme.marked()),
            false => style,
        };
        let cells = cells(&|column| (column.text)(row));
        text::row(&cells, GAP, style, super::below(&mut left, 1), buffer);
    }
    if all > rows.len() && area.width >= 50 {
        let text = format!(" {} of {all} ", rows.len());
        let line = Line::from(Span::styled(text, theme.quiet())).right_aligned();
        line.render(Rect { height: 1, ..area }, buffer);
    }
}
