//! What is shown how: with colours, or with bold and reversed letters alone.

use ratatui::style::{Color, Modifier, Style};

/// The looks.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    pub colour: bool,
}

impl Theme {
    fn of(self, colour: Color) -> Style {
        match self.colour {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn name(self) -> Style {
        self.of(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub fn marked(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn holds(self) -> Style {
        self.of(Color::Green)
    }

    pub fn waits(self) -> Style {
        self.of(Color::Yellow)
    }

    pub fn wrong(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub fn curve(self) -> Style {
        self.of(Color::Blue)
    }

    /// A bar that is full to this share, where full is as it should be.
    pub fn bar(self) -> Style {
        self.of(Color::Green)
    }

    /// A share of 10000 for which somebody waited.
    pub fn pressure(self, share: u16) -> Style {
        match share {
            0..2_500 => self.of(Color::Green),
            2_500..7_500 => self.of(Color::Yellow),
            _ => self.of(Color::Red),
        }
    }
}
