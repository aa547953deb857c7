//! `top`: segments, live. What is seen (`sources`), what is made of it (`model`), how it looks (`view`) and the terminal
//! (`terminal`, `keys`) know nothing of each other but plain values.

mod history;
mod keys;
mod model;
mod picture;
mod sources;
mod terminal;
mod view;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use ratatui::buffer::Buffer;
use signal_hook::consts::signal::*;

use self::keys::Keys;
use self::model::{Asked, Model};
use self::sources::{Seen, Sources};
use self::terminal::{Input, Screen};
use crate::cli::Top;
use crate::exit::{self, Code, Failure, Outcome};
use crate::output::screen;
use crate::output::style::{self, Style};
use crate::output::{self, table};
use crate::signals::Signals;

/// At least so long between two looks at the segments, and between two redraws.
const TICK: Duration = Duration::from_millis(100);
const FRAME: Duration = Duration::from_millis(50);
/// At least so long between two looks that ask the system about every member; else about those on the screen.
const EVERYBODY: Duration = Duration::from_secs(1);
/// A look, or a redraw, rests for so many times what it took, so that neither takes much of a core.
const REST: u32 = 9;

pub fn top(arguments: &Top) -> Outcome {
    let mut sources = Sources::new(&arguments.segments, arguments.trust_foreign)?;
    if let Some(time) = arguments.picture {
        return picture(&mut sources, time);
    }
    let plain = !io::stdout().is_terminal() || style::is_dumb();
    match Screen::keyboard() {
        Some(keyboard) if !plain => live(arguments, &mut sources, keyboard),
        _ => once(&mut sources),
    }
}

/// One picture, as of `inspect`, without a terminal.
fn once(sources: &mut Sources) -> Outcome {
    let seen = sources.look(|_, _| true)?;
    let of_one = |seen: &Seen| match &seen.found {
        Ok(snapshot) => table::inspect(snapshot, Style::PLAIN),
        Err(why) => format!("segment   {}: {why}\n", seen.name),
    };
    let text = match seen.as_slice() {
        [] => "no segments\n".to_owned(),
        seen => seen.iter().map(of_one).collect::<Vec<_>>().join("\n"),
    };
    output::print(&text)?;
    Ok(0)
}

fn picture(sources: &mut Sources, time: Duration) -> Outcome {
    let begun = Instant::now();
    let mut model = Model::new(true);
    while begun.elapsed() < time {
        model.take(begun.elapsed(), sources.look(|_, _| true)?);
        std::thread::sleep(TICK);
    }
    let mut buffer = Buffer::empty(picture::SIZE);
    view::draw(&mut model, &mut buffer);
    output::print(&picture::svg(&buffer))?;
    Ok(0)
}

fn live(arguments: &Top, sources: &mut Sources, keyboard: terminal::Keyboard) -> Outcome {
    let trouble = |error: io::Error| Failure::new(Code::Io, format_args!("the terminal: {error}"));
    let mut signals = Signals::catch().map_err(trouble)?;
    signals.catch_for_a_screen().map_err(trouble)?;
    let mut model = Model::new(style::of_stdout().colour).only_ascii(!screen::is_utf8());
    let mut keys = Keys::default();
    let mut screen = Screen::enter(keyboard, &signals).map_err(trouble)?;
    let begun = Instant::now();
    let (mut look_at, mut ask_at, mut draw_at) = (begun, begun, begun);
    let mut changed = true;
    loop {
        for signal in signals
            .arrived()
            .map(|origin| origin.signal)
            .collect::<Vec<_>>()
        {
            match signal {
                SIGCHLD => {}
                SIGWINCH => changed = true,
                SIGCONT => {
                    screen.again().map_err(trouble)?;
                    changed = true;
                }
                SIGTSTP => {
                    screen.suspend().map_err(trouble)?;
                    // Who was ended meanwhile does not begin again.
                    if let Some(signal) = signals.ending() {
                        return Err(Failure::signal(signal));
                    }
                    screen.again().map_err(trouble)?;
                    changed = true;
                }
                signal => return Err(Failure::signal(signal)),
            }
        }
        match screen.read(&mut keys).map_err(trouble)? {
            Input::Gone => return Err(Failure::signal(SIGHUP)),
            Input::Open => {}
        }
        while let Some(key) = keys.next() {
            changed = true;
            match model.press(key) {
                None => {}
                Some(Asked::Quit) => return Ok(0),
                Some(Asked::Signal(signal)) => terminal::signal_group(signal),
            }
        }
        let now = Instant::now();
        if now >= look_at && !model.is_paused() {
            let everybody = now >= ask_at;
            let seen = sources.look(|name, member| everybody || model.is_shown(name, member))?;
            if let Some(gone) = sources.all_gone() {
                drop(screen);
                return Err(exit::removed(gone));
            }
            model.take(begun.elapsed(), seen);
            changed = true;
            let took = now.elapsed();
            look_at = Instant::now() + TICK.max(took * REST);
            if everybody {
                ask_at = Instant::now() + EVERYBODY.max(took * 2 * REST);
            }
        }
        let now = Instant::now();
        if changed && now >= draw_at {
            let drawn = screen.draw(|buffer| view::draw(&mut model, buffer));
            changed = !drawn.map_err(trouble)?;
            draw_at = Instant::now() + FRAME.max(now.elapsed() * REST);
            assert!(!arguments.panic, "as asked for");
        }
        let next = match (model.is_paused(), changed) {
            (true, false) => None,
            (true, true) => Some(draw_at),
            (false, false) => Some(look_at),
            (false, true) => Some(look_at.min(draw_at)),
        };
        let pause = next.map(|next| next.saturating_duration_since(Instant::now()));
        // A lone Esc is one when nothing follows at once.
        let pause = if keys.is_unsure() {
            Some(pause.unwrap_or(FRAME).min(FRAME))
        } else {
            pause
        };
        if !screen.wait(&signals, pause) {
            keys.nothing_followed();
        }
    }
}
