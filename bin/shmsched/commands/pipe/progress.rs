//! The progress line on a terminal.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

use crate::output::{bytes, shortened, time};

/// How often the line is rewritten.
const EVERY: Duration = Duration::from_millis(250);

/// How many of these make the rate of now.
const SAMPLES: usize = 8;

/// What has been moved and waited for, and where to show it, if anywhere.
pub struct Progress {
    total: u64,
    waited: Duration,
    waits_since: Option<Instant>,
    line: Option<Line>,
}

struct Line {
    terminal: File,
    begun: Instant,
    next: Instant,
    samples: VecDeque<(Instant, u64)>,
    shown: String,
}

impl Progress {
    /// On standard error, if it is a terminal, neither end is one, and this is in its foreground.
    pub fn start() -> Progress {
        let stderr = io::stderr();
        let ends = io::stdin().is_terminal() || io::stdout().is_terminal();
        let alone = stderr.is_terminal() && !ends;
        let foreground = || tcgetpgrp(&stderr).map_or(true, |group| group == getpgrp());
        let terminal = (alone && foreground())
            .then(|| stderr.as_fd().try_clone_to_owned().ok())
            .flatten();
        Progress::on(terminal.map(File::from))
    }

    /// Nowhere.
    #[cfg(test)]
    pub fn hidden() -> Progress {
        Progress::on(None)
    }

    fn on(terminal: Option<File>) -> Progress {
        let begun = Instant::now();
        Progress {
            total: 0,
            waited: Duration::ZERO,
            waits_since: None,
            line: terminal.map(|terminal| Line {
                terminal,
                begun,
                next: begun + EVERY,
                samples: VecDeque::from([(begun, 0)]),
                shown: String::new(),
            }),
        }
    }

    pub fn moved(&mut self, count: usize) {
        self.total += count as u64;
    }

    pub fn wait_begins(&mut self, now: Instant) {
        self.waits_since = Some(now);
    }

    pub fn wait_ends(&mut self, took: Duration) {
        self.waits_since = None;
        self.waited += took;
    }

    /// Until the line is to be shown again, if it is shown at all.
    pub fn show_within(&self) -> Option<Duration> {
        let line = self.line.as_ref()?;
        Some(line.next.saturating_duration_since(Instant::now()))
    }

    /// Shows the line if it is time to.
    pub fn show(&mut self) {
        let Some(line) = &mut self.line else {
            return;
        };
        let now = Instant::now();
        if now < line.next {
            return;
        }
        line.next = now + EVERY;
        line.samples.push_back((now, self.total));
        if line.samples.len() > SAMPLES {
            line.samples.pop_front();
        }
        let (since, before) = line.samples[0];
        let waiting = self.waits_since.map_or(Duration::ZERO, |since| now - since);
        let rate = per_second(self.total - before, now - since);
        line.write(&text(self.total, rate, self.waited + waiting));
    }
}

/// The last line stays: the whole of it, with the average rate.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(line) = &mut self.line
            && !line.shown.is_empty()
        {
            let rate = per_second(self.total, line.begun.elapsed());
            line.write(&text(self.total, rate, self.waited));
            let _ = line.terminal.write_all(b"\n");
        }
    }
}

impl Line {
    /// Rewrites it, unless the terminal is stopped: the flow does not wait for it.
    fn write(&mut self, text: &str) {
        let mut room = [PollFd::new(&self.terminal, PollFlags::OUT)];
        if self.shown == text || poll(&mut room, Some(&Timespec::default())) != Ok(1) {
            return;
        }
        let columns = tcgetwinsize(&self.terminal).map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { 80 } else { columns };
        let text = shortened(text, columns - 1);
        // Spaces over the rest of the line before: no escape sequence, and any terminal does it.
        let width = self.shown.chars().count().min(columns - 1);
        let _ = self
            .terminal
            .write_all(format!("\r{text:<width$}").as_bytes());
        self.shown = text;
    }
}

fn text(total: u64, rate: u64, waited: Duration) -> String {
    format!(
        "{}, {}/s, waited {} for tokens",
        bytes(total),
        bytes(rate),
        time(waited.as_millis() as u64)
    )
}

fn per_second(count: u64, time: Duration) -> u64 {
    let rate = u128::from(count) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    #[test]
    fn the_line() {
        let seconds = Duration::from_secs;
        assert_eq!(text(0, 0, seconds(0)), "0 B, 0 B/s, waited 0ms for tokens");
        assert_eq!(
            text(12_345_678, 1_000_000, seconds(11)),
            "12.3 MB, 1.0 MB/s, waited 11.0s for tokens"
        );
        assert_eq!(per_second(500, Duration::from_millis(250)), 2_000);
        assert_eq!(per_second(u64::MAX, Duration::ZERO), u64::MAX);
    }

    /// Shows it now.
    fn show(progress: &mut Progress) {
        progress.line.as_mut().unwrap().next = Instant::now();
        progress.show();
    }

    #[test]
    fn it_is_rewritten_in_place_and_ended() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut progress = Progress::on(Some(OwnedFd::from(writer).into()));
        progress.moved(999_900);
        progress.show();
        assert!(progress.show_within().unwrap() <= EVERY, "not yet");
        show(&mut progress);
        let now = Instant::now();
        progress.wait_begins(now);
        show(&mut progress);
        progress.wait_ends(Duration::from_secs(3));
        progress.moved(100);
        drop(progress);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let lines: Vec<&str> = text.split('\r').collect();
        assert!(lines[1].starts_with("999.9 kB, "), "{lines:?}");
        let last = lines[lines.len() - 1];
        assert!(
            last.starts_with("1.0 MB, ") && last.contains(", waited 3.0s for tokens"),
            "{last}"
        );
        assert!(last.ends_with('\n') && text.matches('\n').count() == 1);
    }

    #[test]
    fn a_brief_flow_shows_nothing() {
        let (mut reader, writer) = io::pipe().unwrap();
        Progress::on(Some(OwnedFd::from(writer).into())).moved(5);
        assert_eq!(reader.read(&mut [0; 9]).unwrap(), 0);
        assert_eq!(Progress::hidden().show_within(), None);
    }
}
