//! The terminal while it is ours: raw mode, the other screen, and both given back whatever happens.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use anstyle::{AnsiColor, Reset, Style as Codes};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, getpgrp, getppid, getsid, kill_current_process_group};
use rustix::termios::{self, OptionalActions, QueueSelector, SpecialCodeIndex, Termios};
use signal_hook::consts::signal::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;

use super::keys::Keys;
use crate::signals::Signals;

/// The other screen, cleared; no cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[0m\x1b[2J";
/// Plain text, the cursor, the main screen.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// Nothing on it.
const CLEAR: &[u8] = b"\x1b[2J";

/// No screen is larger than this, whatever the terminal says: each cell takes some memory.
const LARGEST: (u16, u16) = (1_000, 500);

/// The size of one that does not know it and says 0, as a serial line does.
const UNKNOWN: (u16, u16) = (80, 24);

/// How long a terminal may take before what it has not shown is thrown away.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// What is to be given back, if anything: for the panic hook, too.
static BEFORE: Mutex<Option<Before>> = Mutex::new(None);

struct Before {
    input: OwnedFd,
    modes: Termios,
}

/// Where keys come from.
pub struct Keyboard(OwnedFd);

/// What reading gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Open,
    /// The terminal hung up.
    Gone,
}

/// The terminal, ours until this is dropped.
pub struct Screen {
    keyboard: Keyboard,
    out: Out,
    shown: Buffer,
    /// It is on the other screen, or will be with the next frame.
    entered: bool,
    gone: bool,
}

impl Screen {
    /// Standard input if it is a terminal, else the terminal of this session, if it has one.
    pub fn keyboard() -> Option<Keyboard> {
        let input = io::stdin();
        let input = match input.is_terminal() {
            true => input.as_fd().try_clone_to_owned(),
            false => File::open("/dev/tty").map(OwnedFd::from),
        };
        input.ok().map(Keyboard)
    }

    /// `signals` end a wait for a terminal that takes no output.
    pub fn enter(keyboard: Keyboard, signals: &Signals) -> io::Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let report = std::panic::take_hook();
            // Before anything is said, so that it is said on the main screen. Nothing unwinds after it.
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                report(panic);
            }));
        });
        let mut screen = Screen {
            keyboard,
            out: Out {
                bytes: Vec::new(),
                out: unblocked()?,
                signals: signals.as_fd().try_clone_to_owned()?,
            },
            shown: Buffer::empty(Rect::ZERO),
            entered: false,
            gone: false,
        };
        screen.again()?;
        Ok(screen)
    }

    /// Takes the terminal, or takes it again after somebody else had it. From the background it stops here until it is
    /// brought to the foreground.
    pub fn again(&mut self) -> io::Result<()> {
        let modes = {
            let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = match before.take() {
                Some(kept) => kept,
                None => Before {
                    input: self.keyboard.0.try_clone()?,
                    modes: termios::tcgetattr(&self.keyboard.0)?,
                },
            };
            before.insert(kept).modes.clone()
        };
        let mut raw = modes;
        raw.make_raw();
        // A read never blocks.
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        loop {
            match termios::tcsetattr(&self.keyboard.0, OptionalActions::Now, &raw) {
                Err(rustix::io::Errno::INTR) => {}
                outcome => break outcome?,
            }
        }
        self.shown = Buffer::empty(Rect::ZERO);
        self.entered = false;
        Ok(())
    }

    /// Gives the terminal back and stops, as SIGTSTP asks for, until SIGCONT.
    pub fn suspend(&mut self) -> io::Result<()> {
        // Nobody could continue it: the kernel would not stop it either.
        let shell = getppid().and_then(|shell| getsid(Some(shell)).ok());
        if shell.is_none() || shell != getsid(None).ok() {
            return Ok(());
        }
        leave();
        emulate_default_handler(SIGTSTP)
    }

    /// Draws, and sends what has changed. `false` if a signal came before the terminal had taken all of it.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<bool> {
        let (width, height) = size()?;
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        draw(&mut buffer);
        if !self.entered {
            self.out.write_all(ENTER)?;
        }
        if self.shown.area != buffer.area {
            self.out.write_all(CLEAR)?;
            self.shown = Buffer::empty(buffer.area);
        }
        paint(&self.shown.diff(&buffer), &mut self.out)?;
        match self.out.flush() {
            Ok(()) => (self.shown, self.entered) = (buffer, true),
            // Nobody knows what it shows: from the start the next time.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                (self.shown, self.entered) = (Buffer::empty(Rect::ZERO), false);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Reads what was typed. Never blocks.
    pub fn read(&mut self, keys: &mut Keys) -> io::Result<Input> {
        let mut bytes = [0; 512];
        match rustix::io::read(&self.keyboard.0, &mut bytes) {
            Ok(0) if self.gone => return Ok(Input::Gone),
            Ok(count) => keys.feed(&bytes[..count]),
            Err(rustix::io::Errno::IO) => return Ok(Input::Gone),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Input::Open)
    }

    /// Waits until something is typed, a signal arrives, or the time is over: whether something came.
    pub fn wait(&mut self, signals: &Signals, time: Option<Duration>) -> bool {
        let mut fds = [
            PollFd::new(&self.keyboard.0, PollFlags::IN),
            PollFd::new(signals, PollFlags::IN),
        ];
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        // An interruption is a signal: reason enough to look.
        let came = poll(&mut fds, time.as_ref()).map_or(true, |count| count > 0);
        self.gone |= fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        came
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// How much is drawn.
fn size() -> io::Result<(u16, u16)> {
    let said = termios::tcgetwinsize(io::stdout())?;
    let of = |said: u16, unknown, largest| match said {
        0 => unknown,
        said => said.min(largest),
    };
    Ok((
        of(said.ws_col, UNKNOWN.0, LARGEST.0),
        of(said.ws_row, UNKNOWN.1, LARGEST.1),
    ))
}

/// Cells at their places, in the colours that every terminal with colours has.
fn paint(cells: &[(u16, u16, &Cell)], out: &mut impl Write) -> io::Result<()> {
    let mut next = None;
    let mut codes = Codes::new();
    for (x, y, cell) in cells {
        if next != Some((*x, *y)) {
            write!(out, "\x1b[{};{}H", y + 1, x + 1)?;
        }
        let wanted = codes_of(cell);
        if wanted != codes {
            write!(out, "{}{}", Reset.render(), wanted.render())?;
            codes = wanted;
        }
        out.write_all(cell.symbol().as_bytes())?;
        // After a wide letter the next place is told anew.
        next = Some((x + 1, *y));
    }
    match codes.is_plain() {
        true => Ok(()),
        false => write!(out, "{}", Reset.render()),
    }
}

fn codes_of(cell: &Cell) -> Codes {
    let colour = match cell.fg {
        Color::Red => Some(AnsiColor::Red),
        Color::Green => Some(AnsiColor::Green),
        Color::Yellow => Some(AnsiColor::Yellow),
        Color::Blue => Some(AnsiColor::Blue),
        Color::Cyan => Some(AnsiColor::Cyan),
        _ => None,
    };
    let effects = [
        (Modifier::BOLD, anstyle::Effects::BOLD),
        (Modifier::DIM, anstyle::Effects::DIMMED),
        (Modifier::REVERSED, anstyle::Effects::INVERT),
    ];
    let effects = effects
        .into_iter()
        .filter(|(modifier, _)| cell.modifier.contains(*modifier))
        .fold(anstyle::Effects::new(), |all, (_, effect)| all | effect);
    Codes::new()
        .fg_color(colour.map(Into::into))
        .effects(effects)
}

/// Sends a signal to this process group, as the terminal would have.
pub fn signal_group(signal: Signal) {
    let _ = kill_current_process_group(signal);
}

/// Gives the terminal back, once, as far as it goes.
fn leave() {
    // Only this thread locks it, and never while it panics.
    let Ok(Some(before)) = BEFORE.try_lock().map(|mut before| before.take()) else {
        return;
    };
    if let Ok(out) = unblocked() {
        let mut codes = LEAVE;
        let mut tries = 2;
        while !codes.is_empty() && tries > 0 {
            match rustix::io::write(&out, codes) {
                Ok(count) => codes = &codes[count..],
                Err(rustix::io::Errno::INTR) => {}
                // It takes no output, perhaps for ever: what it has not shown yet makes room.
                Err(rustix::io::Errno::AGAIN) => {
                    let ready = &mut [PollFd::new(&out, PollFlags::OUT)];
                    if poll(ready, Some(&PATIENCE)) == Ok(0) {
                        let _ = termios::tcflush(&out, QueueSelector::OFlush);
                    }
                    tries -= 1;
                }
                Err(_) => break,
            }
        }
    }
    // From the background it would stop us here, and the modes are another's by now.
    if termios::tcgetpgrp(&before.input).is_ok_and(|front| front == getpgrp()) {
        let _ = termios::tcsetattr(&before.input, OptionalActions::Now, &before.modes);
    }
}

/// The terminal of standard output, opened anew, so that writing to it does not block here, and does as before for the
/// others who have it. Where it cannot be opened, as it is.
fn unblocked() -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", io::stdout().as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let out = match opened {
        Ok(out) => out,
        Err(_) => io::stdout().as_fd().try_clone_to_owned()?,
    };
    Ok(File::from(out))
}

/// Standard output, a frame at a time. What could not be written is forgotten, so that nothing comes after the end.
struct Out {
    bytes: Vec<u8>,
    out: File,
    signals: OwnedFd,
}

impl Out {
    /// Writes until a signal comes that the terminal kept waiting.
    fn send(&self) -> io::Result<()> {
        let mut rest = self.bytes.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(&self.out, rest) {
                Ok(count) => rest = &rest[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    let mut fds = [
                        PollFd::new(&self.out, PollFlags::OUT),
                        PollFd::new(&self.signals, PollFlags::IN),
                    ];
                    let _ = poll(&mut fds, None);
                    if fds[1].revents().contains(PollFlags::IN) {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = self.send();
        self.bytes.clear();
        outcome
    }
}
