//! Panels with two axes, in pixels: where everything stands is decided here, so that nothing overlaps.

use crate::Answer;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Of no two that are hard to tell apart for anybody.
pub const COLOURS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(170, 68, 153),
];
pub const INK: RGBColor = RGBColor(34, 34, 34);
pub const SOFT: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(228, 228, 228);

pub const LEFT: HPos = HPos::Left;
pub const MIDDLE: HPos = HPos::Center;
pub const RIGHT: HPos = HPos::Right;

pub struct Sheet<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// A picture as text: `paint` puts everything on it.
pub fn sheet(size: (u32, u32), paint: impl FnOnce(&Sheet) -> Answer<()>) -> Answer<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE)?;
        let sheet = Sheet { area };
        paint(&sheet)?;
        sheet.area.present()?;
    }
    Ok(text)
}

impl Sheet<'_> {
    /// Text beside, or around, a point, at half its height.
    pub fn text(
        &self,
        text: &str,
        at: (i32, i32),
        side: HPos,
        size: u32,
        colour: RGBColor,
    ) -> Answer<()> {
        let style = ("sans-serif", size).into_font().color(&colour);
        let style = style.pos(Pos::new(side, VPos::Center));
        Ok(self.area.draw(&Text::new(text.to_owned(), at, style))?)
    }

    fn upright(&self, text: &str, at: (i32, i32)) -> Answer<()> {
        let font = ("sans-serif", 13)
            .into_font()
            .transform(FontTransform::Rotate270);
        let style = font.color(&INK).pos(Pos::new(MIDDLE, VPos::Center));
        Ok(self.area.draw(&Text::new(text.to_owned(), at, style))?)
    }

    pub fn line(&self, points: Vec<(i32, i32)>, colour: RGBColor, width: u32) -> Answer<()> {
        let style = colour.stroke_width(width);
        Ok(self.area.draw(&PathElement::new(points, style))?)
    }

    pub fn dashes(&self, from: (i32, i32), to: (i32, i32), colour: RGBColor) -> Answer<()> {
        let length = f64::from((to.0 - from.0).abs().max((to.1 - from.1).abs()));
        let at = |way: f64| {
            let part = (way / length.max(1.0)).min(1.0);
            let between = |a: i32, b: i32| a + (f64::from(b - a) * part).round() as i32;
            (between(from.0, to.0), between(from.1, to.1))
        };
        let mut way = 0.0;
        while way < length {
            self.line(vec![at(way), at(way + 5.0)], colour, 1)?;
            way += 9.0;
        }
        Ok(())
    }

    pub fn dot(&self, at: (i32, i32), size: i32, colour: RGBColor, opacity: f64) -> Answer<()> {
        let style = colour.mix(opacity).filled();
        Ok(self.area.draw(&Circle::new(at, size, style))?)
    }
}

/// Where an axis ends, and whether it goes in powers.
#[derive(Clone, Copy)]
pub struct Axis {
    pub from: f64,
    pub to: f64,
    pub log: bool,
}

impl Axis {
    pub fn linear(from: f64, to: f64) -> Axis {
        let log = false;
        Axis { from, to, log }
    }

    /// Whole powers of ten around all values.
    pub fn log(values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = values
            .filter(|value| *value > 0.0)
            .fold((f64::MAX, 0.0), |ends: (f64, f64), value| {
                (ends.0.min(value), ends.1.max(value))
            });
        let (low, high) = if high == 0.0 {
            (1.0, 10.0)
        } else {
            (low, high)
        };
        Axis {
            from: 10f64.powf(low.log10().floor()),
            to: 10f64.powf((high.log10() + 1e-9).ceil()),
            log: true,
        }
    }

    fn part(self, value: f64) -> f64 {
        match self.log {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        }
    }

    /// Its powers of ten.
    fn powers(self) -> impl Iterator<Item = f64> {
        let (from, to) = (
            self.from.log10().round() as i32,
            self.to.log10().round() as i32,
        );
        (from..=to).map(|power| 10f64.powi(power))
    }
}

/// A plot in a rectangle of pixels: left, top, right, bottom.
pub struct Panel<'a, 'b> {
    pub sheet: &'a Sheet<'b>,
    pub edges: (i32, i32, i32, i32),
    pub x: Axis,
    pub y: Axis,
}

impl Panel<'_, '_> {
    pub fn at(&self, x: f64, y: f64) -> (i32, i32) {
        let (left, top, right, bottom) = self.edges;
        let across = f64::from(right - left) * self.x.part(x);
        let up = f64::from(bottom - top) * self.y.part(y);
        (left + across.round() as i32, bottom - up.round() as i32)
    }

    pub fn title(&self, text: &str) -> Answer<()> {
        let (left, top, ..) = self.edges;
        self.sheet.text(text, (left, top - 16), LEFT, 15, INK)
    }

    /// The vertical axis: what it shows, and its numbers.
    pub fn up(&self, name: &str, marks: &[(f64, String)]) -> Answer<()> {
        let (left, top, right, bottom) = self.edges;
        for (value, text) in marks {
            let (_, y) = self.at(self.x.from, *value);
            self.sheet.line(vec![(left, y), (right, y)], GRID, 1)?;
            self.sheet.text(text, (left - 8, y), RIGHT, 12, INK)?;
        }
        self.sheet
            .line(vec![(left, top), (left, bottom)], SOFT, 1)?;
        self.sheet.upright(name, (left - 62, (top + bottom) / 2))
    }

    /// The same in powers of ten.
    pub fn up_powers(&self, name: &str, text: impl Fn(f64) -> String) -> Answer<()> {
        let marks = self.y.powers().map(|value| (value, text(value)));
        self.up(name, &marks.collect::<Vec<_>>())
    }

    /// The horizontal axis.
    pub fn across(&self, name: &str, marks: &[(f64, String)]) -> Answer<()> {
        let (left, _, right, bottom) = self.edges;
        self.sheet
            .line(vec![(left, bottom), (right, bottom)], SOFT, 1)?;
        for (value, text) in marks {
            let (x, _) = self.at(*value, self.y.from);
            self.sheet
                .line(vec![(x, bottom), (x, bottom + 4)], SOFT, 1)?;
            self.sheet.text(text, (x, bottom + 15), MIDDLE, 12, INK)?;
        }
        let middle = ((left + right) / 2, bottom + 38);
        self.sheet.text(name, middle, MIDDLE, 13, INK)
    }

    /// A curve with a dot at each value.
    pub fn curve(&self, values: &[(f64, f64)], colour: RGBColor) -> Answer<()> {
        let points: Vec<_> = values.iter().map(|(x, y)| self.at(*x, *y)).collect();
        self.sheet.line(points.clone(), colour, 2)?;
        points
            .into_iter()
            .try_for_each(|point| self.sheet.dot(point, 3, colour, 1.0))
    }

    /// A dashed line across, or over a part.
    pub fn limit(&self, ends: (f64, f64), y: f64, colour: RGBColor) -> Answer<()> {
        self.sheet
            .dashes(self.at(ends.0, y), self.at(ends.1, y), colour)
    }

    /// Names at the right, each at the height of its curve's end unless another is too near.
    pub fn names(&self, mut names: Vec<(f64, String, RGBColor)>) -> Answer<()> {
        const APART: i32 = 17;
        names.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (_, top, right, bottom) = self.edges;
        let mut places: Vec<i32> = names.iter().map(|it| self.at(self.x.to, it.0).1).collect();
        for at in 1..places.len() {
            places[at] = places[at].max(places[at - 1] + APART);
        }
        // Those that were pushed out at the bottom come back, and push.
        let mut most = bottom;
        for place in places.iter_mut().rev() {
            *place = (*place).min(most).max(top);
            most = *place - APART;
        }
        for ((_, name, colour), place) in names.iter().zip(places) {
            self.sheet
                .text(name, (right + 12, place), LEFT, 13, *colour)?;
        }
        Ok(())
    }
}
