//! A screen as SVG: text on a grid, in the colours of a dark terminal.

use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

/// The size of the screen in the picture.
pub const SIZE: Rect = Rect::new(0, 0, 110, 22);

/// A cell, in pixels.
const CELL: (u32, u32) = (8, 17);
const MARGIN: u32 = 10;
const PAPER: &str = "#14181d";
const INK: &str = "#d3d7cf";

/// How a cell is painted.
#[derive(Clone, PartialEq)]
struct Paint {
    ink: &'static str,
    paper: &'static str,
    bold: bool,
    dim: bool,
}

impl Paint {
    fn of(cell: &Cell) -> Paint {
        let ink = match cell.fg {
            Color::Red => "#ef5350",
            Color::Green => "#7fc75a",
            Color::Yellow => "#e6c547",
            Color::Blue => "#6ea4e0",
            Color::Cyan => "#4fc6c9",
            _ => INK,
        };
        let (ink, paper) = match cell.modifier.contains(Modifier::REVERSED) {
            true => (PAPER, ink),
            false => (ink, PAPER),
        };
        Paint {
            ink,
            paper,
            bold: cell.modifier.contains(Modifier::BOLD),
            dim: cell.modifier.contains(Modifier::DIM),
        }
    }
}

/// The whole picture.
pub fn svg(buffer: &Buffer) -> String {
    let (columns, rows) = (u32::from(buffer.area.width), u32::from(buffer.area.height));
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, rows * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"13.3\" xml:space=\"preserve\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{PAPER}\"/>\n"
    );
    for y in 0..buffer.area.height {
        let mut from = 0;
        while from < buffer.area.width {
            let paint = Paint::of(&buffer[(from, y)]);
            let mut to = from;
            let mut text = String::new();
            while to < buffer.area.width && Paint::of(&buffer[(to, y)]) == paint {
                text.push_str(buffer[(to, y)].symbol());
                to += 1;
            }
            run(&mut svg, (from, y), to - from, &text, &paint);
            from = to;
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Cells side by side that look alike.
fn run(svg: &mut String, (x, y): (u16, u16), cells: u16, text: &str, paint: &Paint) {
    let at = (
        MARGIN + u32::from(x) * CELL.0,
        MARGIN + u32::from(y) * CELL.1,
    );
    let width = u32::from(cells) * CELL.0;
    if paint.paper != PAPER {
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{}\" fill=\"{}\"/>",
            at.0, at.1, CELL.1, paint.paper
        );
    }
    let bold = if paint.bold {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let dim = if paint.dim { " opacity=\"0.6\"" } else { "" };
    // Each word at its place: the letters of a font are seldom exactly as wide as a cell.
    let mut column = 0;
    for word in text.split(' ') {
        let letters = word.chars().count() as u32;
        let x = at.0 + column * CELL.0;
        column += letters + 1;
        if letters == 0 {
            continue;
        }
        let width = letters * CELL.0;
        let word = word
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{}\" textLength=\"{width}\" fill=\"{}\"{bold}{dim}>{word}</text>",
            at.1 + 13,
            paint.ink
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::Style;

    #[test]
    fn text_is_escaped_and_painted() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 9, 2));
        buffer.set_string(0, 0, "a <&> b", Style::new().fg(Color::Red));
        buffer.set_string(0, 1, "x", Style::new().add_modifier(Modifier::REVERSED));
        let svg = svg(&buffer);
        assert!(svg.contains(">&lt;&amp;&gt;</text>") && svg.contains("#ef5350"));
        // Each word is where its cells are.
        for (x, word) in [(10, "a"), (10 + 2 * 8, "&lt;&amp;&gt;"), (10 + 6 * 8, "b")] {
            let found = svg.lines().find(|line| line.contains(&format!(">{word}<")));
            let found = found.unwrap_or_else(|| panic!("{word}"));
            assert!(found.contains(&format!("x=\"{x}\"")), "{found}");
        }
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.ends_with("</svg>\n"));
    }
}
