//! The members of the selected segment: who holds, who waits.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row as TableRow, Table, Widget};

use super::super::model::{Model, Row};
use super::theme::Theme;

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
        width: 18,
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
    let widths = columns.iter().map(|column| match column.name {
        "COMMAND" => Constraint::Min(0),
        // As wide as it must, but the command is seen, too.
        "WAITING" => {
            let longest = rows.iter().map(|row| row.waiting.chars().count()).max();
            let longest = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
            Constraint::Length(longest.clamp(column.width, column.width.max(area.width / 3)))
        }
        _ => Constraint::Length(column.width),
    });
    let header = columns
        .iter()
        .map(|column| aligned(column, column.name.to_owned()));
    let header = TableRow::new(header).style(theme.strong());
    let widths: Vec<Constraint> = widths.collect();
    let lines = rows.iter().enumerate().map(|(at, row)| {
        let cells = columns
            .iter()
            .map(|column| aligned(column, (column.text)(row)));
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
        TableRow::new(cells).style(style)
    });
    let table = Table::new(lines, widths).header(header).column_spacing(2);
    Widget::render(table, area, buffer);
    if all > rows.len() && area.width >= 50 {
        let text = format!(" {} of {all} ", rows.len());
        let line = Line::from(Span::styled(text, theme.quiet())).right_aligned();
        line.render(Rect { height: 1, ..area }, buffer);
    }
}

fn aligned(column: &Column, text: String) -> Cell<'static> {
    let line = Line::raw(text);
    Cell::from(match column.right {
        true => line.right_aligned(),
        false => line,
    })
}
