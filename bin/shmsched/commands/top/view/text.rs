//! Text in its room: what does not fit ends with a mark, and where only ASCII is shown other letters stand for it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

/// More follows.
pub const MARK: &str = "\u{2026}";

/// How many columns it takes.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// As much of it as fits, with the mark if that is not all.
pub fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let (mut all, mut used) = (String::new(), 1);
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > room {
            break;
        }
        all.push(c);
    }
    if room > 0 {
        all.push_str(MARK);
    }
    all
}

/// A line in its room.
pub fn put(line: Line, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let more = line.width() > area.width.into();
    line.render(area, buffer);
    if more {
        let (x, y) = (area.right() - 1, area.y);
        // Not half a wide letter.
        if x > area.x && width(buffer[(x - 1, y)].symbol()) > 1 {
            buffer[(x - 1, y)].set_symbol(" ");
        }
        buffer[(x, y)].set_symbol(MARK);
    }
}

/// A cell of a table.
pub struct Cell {
    pub text: String,
    pub width: u16,
    /// At the right of its column.
    pub right: bool,
}

/// A line of a table, so far apart; the whole line has the style.
pub fn row(cells: &[Cell], gap: u16, style: Style, area: Rect, buffer: &mut Buffer) {
    let mut line = String::new();
    for (at, cell) in cells.iter().enumerate() {
        let room = usize::from(cell.width);
        let text = cut(&cell.text, room);
        let blank = " ".repeat(room - width(&text));
        if at > 0 {
            line.push_str(&" ".repeat(gap.into()));
        }
        match cell.right {
            true => line.extend([blank, text]),
            false => line.extend([text, blank]),
        }
    }
    put(Line::raw(line.trim_end()), area, buffer);
    buffer.set_style(area, style);
}

/// Puts ASCII in place of everything else.
pub fn to_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let letter = match cell.symbol() {
                MARK => ">",
                "\u{2588}" => "#",
                "\u{2591}" | "\u{2581}" => ".",
                "\u{2582}" => ":",
                "\u{2583}" => "-",
                "\u{2584}" => "=",
                "\u{2585}" => "+",
                "\u{2586}" => "*",
                "\u{2587}" => "%",
                "\u{2500}" => "-",
                "\u{2502}" => "|",
                "\u{250c}" | "\u{2510}" | "\u{2514}" | "\u{2518}" => "+",
                _ => "?",
            };
            cell.set_symbol(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_marked() {
        for (text, room, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab\u{2026}"),
            ("abcd", 1, "\u{2026}"),
            ("abcd", 0, ""),
            ("", 0, ""),
            // Two columns each.
            ("\u{65e5}\u{672c}", 4, "\u{65e5}\u{672c}"),
            ("\u{65e5}\u{672c}", 3, "\u{65e5}\u{2026}"),
            ("\u{65e5}\u{672c}", 2, "\u{2026}"),
        ] {
            assert_eq!(cut(text, room), expected, "{text} {room}");
        }
        for (room, expected) in [
            (4, "\u{65e5} \u{672c} "),
            (3, "\u{65e5} \u{2026}"),
            (2, " \u{2026}"),
        ] {
            let mut buffer = Buffer::empty(Rect::new(0, 0, room, 1));
            put(Line::raw("\u{65e5}\u{672c}"), buffer.area, &mut buffer);
            let text: String = buffer.content.iter().map(|cell| cell.symbol()).collect();
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn nothing_but_ascii() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        buffer.set_string(
            0,
            0,
            "a\u{2588}\u{2591}\u{2587}\u{2026}\u{e9}\u{65e5}\u{2502}",
            Style::new(),
        );
        to_ascii(&mut buffer);
        let text: String = buffer.content.iter().map(|cell| cell.symbol()).collect();
        assert_eq!(text.trim_end(), "a#.%>?? |");
    }
}
