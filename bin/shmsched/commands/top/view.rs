//! How the model looks, on a buffer of any size.

mod gates;
mod members;
mod segments;
mod theme;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget};

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
        let height = segments::height(model, left.height / 4);
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

/// `shmsched top  [thumbs] uplink`, and what is unusual.
fn title(model: &Model, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let mut spans = vec![Span::styled("shmsched top", theme.strong()), "  ".into()];
    for (at, watched) in model.segments().iter().enumerate() {
        let name = escaped(&watched.name);
        spans.push(match at == model.selected_index() {
            true => Span::styled(format!("[{name}]"), theme.name()),
            false => Span::raw(format!(" {name} ")),
        });
    }
    if model.segments().is_empty() {
        spans.push("no segments".into());
    }
    Line::from(spans).render(area, buffer);
    if model.is_paused() {
        let text = Line::styled(" paused ", theme.marked());
        text.right_aligned().render(area, buffer);
    }
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
    Line::styled(text, theme.quiet()).render(area, buffer);
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
    "pressure a/b  somebody waited for a percent of the last 10 s,",
    "              and for b percent while nothing moved",
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
    let lines: Vec<Line> = HELP.into_iter().map(Line::from).collect();
    Paragraph::new(lines).block(block).render(area, buffer);
}

#[cfg(test)]
mod tests;
