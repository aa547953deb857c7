//! What goes to stdout: text that is safe to show, and writing that never panics.

pub mod json;
pub mod metrics;
pub mod pressure;
pub mod screen;
pub mod style;
pub mod table;

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use crate::exit::{Code, Failure};

/// Whether the reader is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It may read more.
    Listens,
    /// It has closed the pipe: stop, quietly, as after success.
    Gone,
}

/// Writes to stdout, at once.
pub fn print(text: &str) -> Result<Reader, Failure> {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// What the outcome of a write to stdout means.
pub fn written(outcome: io::Result<()>) -> Result<Reader, Failure> {
    match outcome {
        Ok(()) => Ok(Reader::Listens),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::new(
            Code::Io,
            format_args!("cannot write to standard output: {error}"),
        )),
    }
}

/// The text with control characters written out, so that it keeps to its line and does nothing to a terminal.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => safe.extend(c.escape_default()),
            false => safe.push(c),
        }
    }
    safe
}

/// At most `most` characters, with an ellipsis if there were more.
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text
            .chars()
            .take(most.saturating_sub(3))
            .chain("...".chars())
            .collect(),
    }
}

/// A time in milliseconds, for people: `850ms`, `12.3s`, `4m05s`, `3h12m`, `5d03h`.
pub fn time(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms}ms"),
        1..60 => format!("{seconds}.{}s", ms % 1_000 / 100),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A time that was set, exactly and as it can be set: in the largest unit of which it is a whole number.
pub fn span(time: Duration) -> String {
    const UNITS: [(u128, &str); 6] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ];
    let nanoseconds = time.as_nanos();
    let fits = |(unit, _): &(u128, &str)| nanoseconds.is_multiple_of(*unit) && nanoseconds > 0;
    let (unit, name) = UNITS.into_iter().find(fits).unwrap_or((1, "ns"));
    format!("{}{name}", nanoseconds / unit)
}

/// A number of bytes, for people.
pub fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match UNITS.into_iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => format!("{}.{} {name}", count / unit, count % unit * 10 / unit),
        None => format!("{count} B"),
    }
}

/// A number in few letters: exact below 10000, else its first three digits: `9999`, `10M`, `1.23M`.
pub fn short(count: i64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (1_000_000_000_000_000_000, "E"),
        (1_000_000_000_000_000, "P"),
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    let (sign, size) = (if count < 0 { "-" } else { "" }, count.unsigned_abs());
    let fits = |(unit, _): &(u64, &str)| size >= *unit && size >= 10_000;
    let Some((unit, name)) = UNITS.into_iter().find(fits) else {
        return format!("{sign}{size}");
    };
    let whole = size / unit;
    let decimals = 2usize.saturating_sub(whole.ilog10() as usize);
    // Cut, not rounded: never more than there is.
    let places = 10_u64.pow(decimals as u32);
    let part = (u128::from(size % unit) * u128::from(places) / u128::from(unit)) as u64;
    let text = match decimals {
        0 => String::new(),
        _ => format!(".{part:0decimals$}"),
    };
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{sign}{whole}{text}{name}")
}

/// A share in hundredths of a percent: `12.34 %`.
pub fn percent(share: u16) -> String {
    format!("{}.{:02} %", share / 100, share % 100)
}

/// A time in microseconds, for people: `0us`, `950us`, `1.5ms`, `850ms`, then as [`time`].
pub fn fine_time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..10_000 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        _ => time(us / 1_000),
    }
}

/// A count and its noun.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = match (count, noun) {
        (1, _) => "",
        (_, noun) if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {noun}{plural}")
}

/// A limit, for people.
pub fn limit(limit: Option<u32>) -> String {
    limit.map_or("unlimited".into(), |limit| limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out() {
        // case 57
        assert_eq!(
            escaped("a\u{1b}[31m\n\u{9b}z\u{7f}"),
            "a\\u{1b}[31m\\n\\u{9b}z\\u{7f}"
        );
        assert_eq!(escaped("d\u{e9}j\u{e0} vu"), "d\u{e9}j\u{e0} vu");
    }

    #[test]
    fn times_and_sizes() {
        let times = [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1.0s"),
            (59_999, "59.9s"),
            (245_000, "4m05s"),
            (11_520_000, "3h12m"),
            (442_800_000, "5d03h"),
        ];
        for (ms, text) in times {
            assert_eq!(time(ms), text);
        }
        assert!(time(u64::MAX).ends_with('h'));
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_500, "1.5 kB"),
            (1_048_576, "1.0 MB"),
            (u64::MAX, "18446744073.7 GB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(
            counted(1, "slot") + &counted(2, "process"),
            "1 slot2 processes"
        );
    }

    #[test]
    fn few_letters() {
        for (count, text) in [
            (0, "0"),
            (-20, "-20"),
            (9_999, "9999"),
            (10_000, "10k"),
            (12_345, "12.3k"),
            (1_500_000, "1.5M"),
            (1_048_576, "1.04M"),
            (-10_000_000, "-10M"),
            (999_999, "999k"),
            (i64::MAX, "9.22E"),
            (i64::MIN, "-9.22E"),
        ] {
            assert_eq!(short(count), text);
        }
        for (us, text) in [
            (0, "0us"),
            (999, "999us"),
            (1_550, "1.5ms"),
            (65_536, "65ms"),
            (1_500_000, "1.5s"),
        ] {
            assert_eq!(fine_time(us), text);
        }
        assert_eq!(percent(10_000) + &percent(7), "100.00 %0.07 %");
    }

    #[test]
    fn spans_can_be_set_again() {
        let all = [
            (Duration::from_micros(500), "500us"),
            (Duration::from_millis(200), "200ms"),
            (Duration::from_millis(1_500), "1500ms"),
            (Duration::from_secs(60), "1m"),
            (Duration::from_nanos(1), "1ns"),
            (Duration::new(1, 1), "1000000001ns"),
            (shmsched::Settings::LONGEST_INTERVAL, "36500d"),
        ];
        for (time, text) in all {
            assert_eq!(span(time), text);
            assert_eq!(crate::units::parse_interval(text), Ok(time), "{text}");
        }
        assert_eq!(span(Duration::ZERO), "0ns");
    }

    #[test]
    fn long_text_is_cut_at_characters() {
        assert_eq!(shortened("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", 4), "\u{e9}...");
        assert_eq!(shortened("abcd", 4), "abcd");
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        assert_eq!(
            written(Err(ErrorKind::BrokenPipe.into())).unwrap(),
            Reader::Gone
        );
        assert_eq!(
            written(Err(ErrorKind::StorageFull.into()))
                .unwrap_err()
                .code,
            74
        );
    }
}
