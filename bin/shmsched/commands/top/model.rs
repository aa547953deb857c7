//! What the screen knows: looks at segments go in, keys go in, and the view reads the rest. Knows no terminal, no clock
//! and no segment.

mod rows;

use std::time::Duration;

use rustix::process::Signal;
use shmsched::{Gate, Snapshot};

use super::history::History;
use super::keys::Key;
use super::sources::Seen;
pub use rows::{Row, Sort};

/// What a key asks of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Quit,
    /// What the terminal would have sent if it were not raw.
    Signal(Signal),
}

/// A segment and what it was lately.
#[derive(Clone, Debug)]
pub struct Watched {
    pub name: String,
    pub found: Result<Snapshot, String>,
    /// Of each gate.
    histories: [History; 3],
    id: Option<[u8; 16]>,
}

impl Watched {
    pub fn history(&self, gate: Gate) -> &History {
        &self.histories[gate as usize]
    }
}

/// Everything that is shown, and how.
#[derive(Debug, Default)]
pub struct Model {
    segments: Vec<Watched>,
    selected: usize,
    sort: Sort,
    reverse: bool,
    filter: String,
    /// Keys go into the filter.
    editing: bool,
    paused: bool,
    help: bool,
    colour: bool,
    /// Nothing but ASCII.
    ascii: bool,
    /// The member that is marked, by its slot and generation.
    cursor: Option<(u32, u32)>,
    /// The first row shown.
    top: usize,
    /// How many rows there was room for.
    page: usize,
    /// The members on the screen.
    on_screen: Vec<u32>,
}

impl Model {
    pub fn new(colour: bool) -> Model {
        Model {
            colour,
            ..Model::default()
        }
    }

    /// The same, for a terminal that shows nothing but ASCII, or for any other.
    pub fn only_ascii(self, ascii: bool) -> Model {
        Model { ascii, ..self }
    }

    /// A look at all segments, so long after the first.
    pub fn take(&mut self, at: Duration, seen: Vec<Seen>) {
        let selected = self.selected().map(|watched| watched.name.clone());
        let mut before = std::mem::take(&mut self.segments);
        for seen in seen {
            let known = before.iter().position(|watched| watched.name == seen.name);
            let mut watched = match known {
                Some(known) => before.swap_remove(known),
                None => Watched {
                    name: seen.name,
                    found: Err(String::new()),
                    histories: Default::default(),
                    id: None,
                },
            };
            if let Ok(snapshot) = &seen.found {
                watched.note(at, snapshot);
            }
            watched.found = seen.found;
            self.segments.push(watched);
        }
        let place = self
            .segments
            .iter()
            .position(|watched| Some(&watched.name) == selected.as_ref());
        let last = self.segments.len().saturating_sub(1);
        self.selected = place.unwrap_or(self.selected).min(last);
    }

    /// A key.
    pub fn press(&mut self, key: Key) -> Option<Asked> {
        match key {
            Key::Control('c') => return Some(Asked::Signal(Signal::INT)),
            // Control and backslash.
            Key::Control('|') => return Some(Asked::Signal(Signal::QUIT)),
            Key::Control('z') => return Some(Asked::Signal(Signal::TSTP)),
            _ => {}
        }
        if self.editing {
            self.edit(key);
            return None;
        }
        if self.help {
            self.help = false;
            return (key == Key::Char('q')).then_some(Asked::Quit);
        }
        match key {
            Key::Char('q') => return Some(Asked::Quit),
            Key::Char('?' | 'h') => self.help = true,
            Key::Char('p' | ' ') => self.paused = !self.paused,
            Key::Char('c') => self.colour = !self.colour,
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char('r') => self.reverse = !self.reverse,
            Key::Char('/') => self.editing = true,
            Key::Escape => self.filter.clear(),
            Key::Tab => self.turn(1),
            Key::BackTab => self.turn(self.segments.len().saturating_sub(1)),
            Key::Down | Key::Char('j') => self.step(1),
            Key::Up | Key::Char('k') => self.step(-1),
            Key::PageDown => self.step(self.page.max(1) as isize),
            Key::PageUp => self.step(-(self.page.max(1) as isize)),
            Key::Home | Key::Char('g') => self.step(isize::MIN),
            Key::End | Key::Char('G') => self.step(isize::MAX),
            _ => {}
        }
        None
    }

    fn edit(&mut self, key: Key) {
        match key {
            Key::Char(c) if self.filter.chars().count() < 100 => self.filter.push(c),
            Key::Backspace => drop(self.filter.pop()),
            Key::Control('u') => self.filter.clear(),
            Key::Enter => self.editing = false,
            Key::Escape => {
                self.filter.clear();
                self.editing = false;
            }
            _ => {}
        }
    }

    /// To another segment.
    fn turn(&mut self, by: usize) {
        self.selected = (self.selected + by) % self.segments.len().max(1);
        (self.cursor, self.top) = (None, 0);
    }

    /// To another row.
    fn step(&mut self, by: isize) {
        let rows = self.rows();
        let Some(last) = rows.len().checked_sub(1) else {
            return;
        };
        let to = match self.place(&rows) {
            None if by == isize::MAX => last,
            None => 0,
            Some(at) => at.saturating_add_signed(by).min(last),
        };
        self.cursor = Some(rows[to].identity());
    }

    fn place(&self, rows: &[Row]) -> Option<usize> {
        rows.iter()
            .position(|row| Some(row.identity()) == self.cursor)
    }

    /// The members of the selected segment, as sorted and filtered.
    pub fn rows(&self) -> Vec<Row> {
        let found = self
            .selected()
            .and_then(|watched| watched.found.as_ref().ok());
        found.map_or(Vec::new(), |snapshot| {
            rows::of(snapshot, self.sort, self.reverse, &self.filter)
        })
    }

    /// The rows for which there is room, and which of them is marked. Scrolls, so that the marked one is among them.
    pub fn shown(&mut self, room: usize) -> (Vec<Row>, Option<usize>, usize) {
        let mut rows = self.rows();
        let all = rows.len();
        let place = self.place(&rows);
        self.page = room;
        if let Some(place) = place {
            self.top = self.top.min(place).max((place + 1).saturating_sub(room));
        }
        self.top = self.top.min(all.saturating_sub(room));
        rows.drain(..self.top);
        rows.truncate(room);
        self.on_screen.clear();
        self.on_screen.extend(rows.iter().map(|row| row.member));
        let marked = place.and_then(|place| place.checked_sub(self.top));
        (rows, marked.filter(|at| *at < room), all)
    }

    /// Whether this member of this segment was on the screen at last.
    pub fn is_shown(&self, name: &str, member: u32) -> bool {
        self.selected().is_some_and(|watched| watched.name == name)
            && self.on_screen.contains(&member)
    }

    pub fn segments(&self) -> &[Watched] {
        &self.segments
    }

    pub fn selected(&self) -> Option<&Watched> {
        self.segments.get(self.selected)
    }

    pub fn selected_index(&self) -> usize {
        self.selected
    }

    pub fn sort(&self) -> (Sort, bool) {
        (self.sort, self.reverse)
    }

    pub fn filter(&self) -> (&str, bool) {
        (&self.filter, self.editing)
    }

    pub fn is_paused(&self) -> bool {
        self.paused
    }

    pub fn shows_help(&self) -> bool {
        self.help
    }

    /// How many members the selected segment has.
    pub fn members(&self) -> usize {
        let found = self.selected().map(|watched| &watched.found);
        match found {
            Some(Ok(snapshot)) => snapshot.members.len(),
            _ => 0,
        }
    }

    pub fn is_ascii(&self) -> bool {
        self.ascii
    }

    pub fn is_coloured(&self) -> bool {
        self.colour
    }
}

impl Watched {
    /// Notes the counters of a look.
    fn note(&mut self, at: Duration, snapshot: &Snapshot) {
        if self.id.replace(snapshot.segment.id) != Some(snapshot.segment.id) {
            self.histories = Default::default();
        }
        let counters = [
            snapshot
                .scheduler
                .as_ref()
                .map(|gate| (Gate::Scheduler, gate.admitted, gate.pressure)),
            snapshot
                .limiter
                .as_ref()
                .map(|gate| (Gate::Limiter, gate.consumed, gate.pressure)),
            snapshot
                .pacer
                .as_ref()
                .map(|gate| (Gate::Pacer, gate.started, gate.pressure)),
        ];
        for (gate, count, pressure) in counters.into_iter().flatten() {
            self.histories[gate as usize].take(at, count, pressure.some.averages[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::samples;

    fn seen(snapshot: Snapshot) -> Seen {
        Seen {
            name: snapshot.segment.name.clone(),
            found: Ok(snapshot),
        }
    }

    fn model() -> Model {
        let mut model = Model::new(true);
        model.take(
            Duration::ZERO,
            vec![seen(samples::busy()), seen(samples::paced())],
        );
        model
    }

    fn press(model: &mut Model, keys: &str) {
        for c in keys.chars() {
            assert_eq!(model.press(Key::Char(c)), None);
        }
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let mut model = model();
        press(&mut model, "p");
        assert!(model.is_paused());
        press(&mut model, " c?");
        assert!(!model.is_paused() && !model.is_coloured() && model.shows_help());
        // Any key ends the help and does nothing else.
        press(&mut model, "c");
        assert!(!model.shows_help() && !model.is_coloured());
        assert_eq!(model.press(Key::Char('q')), Some(Asked::Quit));
        for (c, signal) in [('c', Signal::INT), ('|', Signal::QUIT), ('z', Signal::TSTP)] {
            let asked = model.press(Key::Control(c));
            assert_eq!(asked, Some(Asked::Signal(signal)));
        }
    }

    #[test]
    fn the_filter_is_typed() {
        let mut model = model();
        press(&mut model, "/sleeq");
        assert_eq!((model.filter(), model.rows().len()), (("sleeq", true), 0));
        model.press(Key::Backspace);
        press(&mut model, "p");
        assert_eq!(model.rows().len(), 1);
        model.press(Key::Enter);
        assert_eq!(model.filter(), ("sleep", false));
        model.press(Key::Escape);
        assert_eq!(model.rows().len(), 2);
        // Ctrl-C ends it also while a filter is typed.
        press(&mut model, "/");
        assert!(model.press(Key::Control('c')).is_some());
    }

    #[test]
    fn the_cursor_stays_on_its_member() {
        let mut model = model();
        press(&mut model, "j");
        let marked = model.cursor;
        assert!(marked.is_some());
        press(&mut model, "r");
        assert_eq!(model.cursor, marked);
        assert_eq!(model.shown(1).1, Some(0));
        press(&mut model, "jjjjkG");
        assert_eq!(model.shown(10).1, Some(1));
        assert_eq!(model.shown(0).1, None);
        // Its member is gone.
        model.cursor = Some((77, 1));
        assert_eq!(model.shown(10).1, None);
        press(&mut model, "k");
        assert_eq!(model.shown(10).1, Some(0));
    }

    #[test]
    fn segments_come_and_go() {
        let mut model = model();
        model.press(Key::Tab);
        assert_eq!(model.selected().unwrap().name, "uplink");
        // The selected one keeps being it.
        let mut other = samples::busy();
        other.segment.name = "a".into();
        model.take(
            Duration::from_secs(1),
            vec![seen(other), seen(samples::busy()), seen(samples::paced())],
        );
        assert_eq!(model.selected().unwrap().name, "uplink");
        model.take(Duration::from_secs(2), vec![seen(samples::busy())]);
        assert_eq!(model.selected().unwrap().name, "thumbs");
        model.take(
            Duration::from_secs(3),
            vec![Seen {
                name: "thumbs".into(),
                found: Err("removed".into()),
            }],
        );
        assert!(model.rows().is_empty());
        press(&mut model, "jjkG");
        model.take(Duration::from_secs(4), vec![]);
        assert!(model.selected().is_none() && model.rows().is_empty());
        model.press(Key::Tab);
        model.press(Key::BackTab);
        press(&mut model, "jksr");
    }

    #[test]
    fn a_segment_made_anew_has_no_past() {
        let mut model = model();
        let mut next = samples::busy();
        next.scheduler.as_mut().unwrap().admitted += 10;
        model.take(Duration::from_secs(1), vec![seen(next.clone())]);
        let history = model.selected().unwrap().history(Gate::Scheduler);
        assert_eq!(history.rate(), Some(10.0));
        next.segment.id = [9; 16];
        next.scheduler.as_mut().unwrap().admitted += 10;
        model.take(Duration::from_secs(2), vec![seen(next)]);
        let history = model.selected().unwrap().history(Gate::Scheduler);
        assert_eq!(history.rate(), None);
    }
}
