//! How the model looks, on a buffer of any size.

mod gates;
mod members;
mod segments;
mod text;
mod theme;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Widget};

use self::theme::Theme;
use super::model::Model;
use crate::output::escaped;

/// Draws everything. What there is no room for is left out, the least important first.
pub fn draw(model: &mut Model, buffer: &mut Buffer) {
    let theme = Theme {
        colour: model.is_coloured(),
    };
    let mut left = buffer.area;
    title(model, theme, buffer, below(&mut left, 1));
    let footer = match left.height {
        0..4 => None,
        _ => {
            left.height -= 1;
            Some(Rect::new(left.x, left.bottom(), left.width, 1))
        }
    };
    if model.segments().len() > 1 && left.height >= 16 {
        let height = segments::height(model, room_for_segments(model, left));
        segments::draw(model, theme, buffer, below(&mut left, height));
        below(&mut left, 1);
    }
    let height = gates::height(model, left);
    gates::draw(model, theme, buffer, below(&mut left, height));
    if left.height > 3 {
        below(&mut left, 1);
    }
    members::draw(model, theme, buffer, left);
    if let Some(footer) = footer {
        bottom(model, theme, buffer, footer);
    }
    if model.shows_help() {
        help(theme, buffer);
    }
    if model.is_ascii() {
        text::to_ascii(buffer);
    }
}

/// A quarter, or what the gates and the members leave.
fn room_for_segments(model: &Model, left: Rect) -> u16 {
    let quarter = left.height / 4;
    let rest = Rect {
        height: left.height - quarter - 1,
        ..left
    };
    let members = u16::try_from(model.members()).unwrap_or(u16::MAX).max(2);
    // The lines between, and the heads of the columns.
    let others = gates::height(model, rest)
        .saturating_add(members)
        .saturating_add(3);
    left.height.saturating_sub(others).max(quarter)
}

/// Takes so many lines from the top of what is left.
fn below(left: &mut Rect, height: u16) -> Rect {
    let taken = Rect {
        height: height.min(left.height),
        ..*left
    };
    left.y += taken.height;
    left.height -= taken.height;
    taken
}

/// `shmsched top  2 of 3  thumbs [uplink] backup`, and what is unusual. The selected name is always there.
fn title(model: &Model, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let mut room = area;
    if model.is_paused() {
        let text = Line::styled(" paused ", theme.marked());
        room.width = room.width.saturating_sub(9);
        text.right_aligned().render(area, buffer);
    }
    let mut spans = vec![Span::styled("shmsched top", theme.strong()), "  ".into()];
    let (all, selected) = (model.segments(), model.selected_index());
    if all.is_empty() {
        spans.push("no segments".into());
    }
    if all.len() > 1 {
        spans.push(format!("{} of {}  ", selected + 1, all.len()).into());
    }
    let before: usize = spans.iter().map(Span::width).sum();
    let names: Vec<String> = all.iter().map(|watched| escaped(&watched.name)).collect();
    let (mut used, mut from) = (before, 0);
    for (at, name) in names.iter().enumerate().take(selected + 1).rev() {
        used += text::width(name) + 2;
        // With a place for the mark.
        if used + usize::from(at > 0) > room.width.into() && at < selected {
            from = at + 1;
            break;
        }
    }
    if from > 0 {
        spans.push(text::MARK.into());
    }
    for (at, name) in names.iter().enumerate().skip(from) {
        spans.push(match at == selected {
            true => Span::styled(format!("[{name}]"), theme.name()),
            false => Span::raw(format!(" {name} ")),
        });
    }
    // A blank at the end needs no room.
    if let Some(last) = spans.last_mut() {
        last.content = last.content.trim_end().to_owned().into();
    }
    text::put(Line::from(spans), room, buffer);
}

fn bottom(model: &Model, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let (filter, editing) = model.filter();
    if editing {
        let text = format!("/{}_", escaped(filter));
        // Its end is where one types.
        let extra = text.chars().count().saturating_sub(area.width.into());
        let text: String = text.chars().skip(extra).collect();
        return Line::styled(text, theme.strong()).render(area, buffer);
    }
    let (sort, reverse) = model.sort();
    let reverse = if reverse { ", reversed" } else { "" };
    let mut text = format!(" q quit  ? help  s sort: {}{reverse}", sort.name());
    match filter {
        "" => text.push_str("  / filter"),
        filter => text.push_str(&format!("  / filter: {}, esc for all", escaped(filter))),
    }
    text.push_str("  p pause  tab segment  c colour");
    text::put(Line::styled(text, theme.quiet()), area, buffer);
}

const HELP: [&str; 14] = [
    "q             quit",
    "up down, j k  move; also page up, page down, home, end",
    "tab           the next segment; shift-tab the one before",
    "s             sort by something else",
    "r             the other way round",
    "/             show only what contains a text; esc shows all",
    "p, space      pause, go on",
    "c             colours on, off",
    "",
    "some, full    for how much of the time somebody waited, and nothing",
    "              moved meanwhile; lately, as avg10 of the kernel's files",
    "#1 high 2.0s  the place in the line, the priority, the time waited",
    "*             the pid is one of another pid namespace",
    "curves        a column a second; pressure to 100 %",
];

fn help(theme: Theme, buffer: &mut Buffer) {
    let width = HELP.iter().map(|line| line.len() as u16).max().unwrap_or(0) + 4;
    let area = buffer
        .area
        .centered_horizontally(ratatui::layout::Constraint::Length(width))
        .centered_vertically(ratatui::layout::Constraint::Length(HELP.len() as u16 + 2));
    Clear.render(area, buffer);
    let block = Block::bordered()
        .title(" any key ")
        .border_style(theme.name());
    let block = block.padding(ratatui::widgets::Padding::horizontal(1));
    let mut left = block.inner(area);
    block.render(area, buffer);
    let more = usize::from(left.height) < HELP.len();
    for text in HELP {
        let last = more && left.height == 1;
        let line = Line::raw(if last { text::MARK } else { text });
        text::put(line, below(&mut left, 1), buffer);
    }
}

#[cfg(test)]
mod tests;
