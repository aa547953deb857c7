//! How numbers are written on the command line: RATE, DURATION, MODE, counts, and `N|N%|unlimited`.
//!
//! Decimals have a dot, whatever the locale, and are read exactly, never through a floating point number.

use std::fmt;
use std::time::Duration;

use shmsched::{Priority, Settings, parse_priority};

/// The largest number of slots, of tokens, and of tokens per second.
const MOST: u32 = i32::MAX as u32;

/// `--concurrency`: so many at once, or unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<u32>);

/// `--target`: a priority and how far it may fill the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whose target.
    pub priority: Priority,
    /// How many slots.
    pub slots: u32,
}

/// Reads `N`, `N%` (a share of the CPUs that this process may use, rounded, at least 1) or `unlimited`.
pub fn parse_limit(text: &str) -> Result<Limit, String> {
    let cpus = || std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    limit_of(text, cpus)
}

fn limit_of(text: &str, cpus: impl FnOnce() -> usize) -> Result<Limit, String> {
    if text == "unlimited" {
        return Ok(Limit(None));
    }
    let Some(percent) = text.strip_suffix('%') else {
        return parse_count(text).map(|slots| Limit(Some(slots)));
    };
    let percent =
        whole(percent).ok_or("a share is a whole number and a percent sign, such as 50%")?;
    if percent == 0 {
        return Ok(Limit(Some(0)));
    }
    let slots = (u128::from(percent) * cpus() as u128 + 50) / 100;
    let slots = u32::try_from(slots).ok().filter(|slots| *slots <= MOST);
    slots
        .map(|slots| Limit(Some(slots.max(1))))
        .ok_or_else(|| too_many(MOST))
}

/// Reads a number of slots or tokens, 0 to 2147483647.
pub fn parse_count(text: &str) -> Result<u32, String> {
    count_up_to(MOST, text)
}

/// Reads how many may wait for the Pacer.
pub fn parse_waiting(text: &str) -> Result<u32, String> {
    count_up_to(Settings::MOST_WAITING, text)
}

fn count_up_to(most: u32, text: &str) -> Result<u32, String> {
    let count = whole(text).ok_or("use a whole number, such as 8")?;
    u32::try_from(count)
        .ok()
        .filter(|count| *count <= most)
        .ok_or_else(|| too_many(most))
}

/// Reads a number of slots to take, 1 to 2147483647.
pub fn parse_amount(text: &str) -> Result<u32, String> {
    match parse_count(text)? {
        0 => Err("at least 1".into()),
        slots => Ok(slots),
    }
}

/// Reads `PRIORITY=N`.
pub fn parse_target(text: &str) -> Result<Target, String> {
    let (priority, slots) = text
        .split_once('=')
        .ok_or("write PRIORITY=N, such as low=2")?;
    Ok(Target {
        priority: parse_priority(priority).map_err(|e| e.to_string())?,
        slots: parse_count(slots)?,
    })
}

/// Reads a time: a number, perhaps with decimals, and one of `ns`, `us`, `ms`, `s`, `m`, `h`, `d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = time_parts(text)?;
    duration(scaled(number, unit)?).ok_or_else(|| Inexact::TooLarge.to_string())
}

/// Reads the time between two starts: more than 0. What no clock resolves becomes a nanosecond more, what no one lives to
/// see the longest there is.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    let (number, unit) = time_parts(text)?;
    let nanoseconds = match scaled(number, unit) {
        Ok(nanoseconds) => nanoseconds,
        Err(Inexact::TooFine { below }) => below.saturating_add(1),
        Err(Inexact::TooLarge) => u128::MAX,
        Err(error) => return Err(error.into()),
    };
    let interval = duration(nanoseconds).map_or(Settings::LONGEST_INTERVAL, |interval| {
        interval.min(Settings::LONGEST_INTERVAL)
    });
    if interval.is_zero() {
        Err("longer than 0, such as 100ms".into())
    } else {
        Ok(interval)
    }
}

const SECOND: u128 = 1_000_000_000;

/// The number of a time, and its unit in nanoseconds.
fn time_parts(text: &str) -> Result<(&str, u128), String> {
    let (number, unit) = number_and_unit(text);
    let unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        "d" => 86_400 * SECOND,
        "" if decimal(number).is_some() => return Err("the unit is missing: ms, s, m, h".into()),
        _ => return Err("write a number with a dot and a unit, such as 100ms, 1.5s, 2m".into()),
    };
    Ok((number, unit))
}

fn duration(nanoseconds: u128) -> Option<Duration> {
    let seconds = u64::try_from(nanoseconds / SECOND).ok()?;
    Some(Duration::new(seconds, (nanoseconds % SECOND) as u32))
}

/// Reads tokens per second: a whole number, alone or with `/s`, or a size per second such as `1.5MB/s` or `64KiB/s`.
pub fn parse_rate(text: &str) -> Result<u32, String> {
    const FORM: &str =
        "write a whole number per second or a size per second, such as 500/s or 1.5MB/s";
    let number = match text.split_once('/') {
        None => u128::from(whole(text).ok_or(FORM)?),
        Some((size, "s")) => {
            let (number, unit) = number_and_unit(size);
            let unit = match unit {
                "" | "B" => 1,
                "kB" | "KB" => 1_000,
                "MB" => 1_000_000,
                "GB" => 1_000_000_000,
                "KiB" => 1 << 10,
                "MiB" => 1 << 20,
                "GiB" => 1 << 30,
                _ => return Err(FORM.into()),
            };
            scaled(number, unit)?
        }
        Some(_) => return Err(FORM.into()),
    };
    let rate = u32::try_from(number)
        .ok()
        .filter(|rate| (1..=MOST).contains(rate));
    rate.ok_or_else(|| format!("out of range: 1 to {MOST} per second"))
}

/// Reads a time between two looks: at least 10 ms.
pub fn parse_pause(text: &str) -> Result<Duration, String> {
    let pause = parse_duration(text)?;
    if pause < Duration::from_millis(10) {
        Err("at least 10ms".into())
    } else {
        Ok(pause)
    }
}

/// Reads a share in percent, with or without the sign, as hundredths of a percent: 0 to 10000. What is finer is cut off, which
/// leaves a share in hundredths above it or not as it was.
pub fn parse_percent(text: &str) -> Result<u16, String> {
    const ALL: u128 = 10_000;
    let number = text.strip_suffix('%').unwrap_or(text);
    let (hundredths, more) = match scaled(number, 100) {
        Ok(hundredths) => (hundredths, 0),
        Err(Inexact::TooFine { below }) => (below, 1),
        Err(Inexact::TooLarge) => (ALL, 1),
        Err(Inexact::NoNumber) => return Err("write a percentage, such as 40 or 2.5".into()),
    };
    let share = u16::try_from(hundredths).ok();
    share
        .filter(|_| hundredths + more <= ALL)
        .ok_or_else(|| "out of range: 0 to 100 percent".into())
}

/// Reads where to listen: ADDRESS:PORT, or a port of the loopback address.
pub fn parse_address(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let digits = !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
    let port: Option<u16> = port.parse().ok().filter(|_| digits);
    // An IPv6 address stands in brackets: without them its last part would be taken for a port.
    let whole = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    let printable = !host.contains(|c: char| c.is_control() || c.is_whitespace());
    match (host, port) {
        ("", Some(port)) => Ok(format!("127.0.0.1:{port}")),
        (host, Some(port)) if whole && printable => Ok(format!("{host}:{port}")),
        _ => Err("write ADDRESS:PORT or a port, such as 127.0.0.1:9300, [::1]:9300 or 9300".into()),
    }
}

/// Reads permission bits: octal, at most 777.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    let octal = !text.is_empty()
        && text.len() <= 4
        && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| octal && *mode <= 0o777);
    mode.ok_or_else(|| "use an octal number of at most 777, such as 660".into())
}

/// A whole number without a sign; numbers too large for it come out as the largest.
fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// The digits before and after the dot; both must be there if the dot is.
fn decimal(text: &str) -> Option<(&str, &str)> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
    match text.split_once('.') {
        Some((whole, fraction)) => (digits(whole) && digits(fraction)).then_some((whole, fraction)),
        None => digits(text).then_some((text, "")),
    }
}

/// The digits and dots at the beginning, and what follows them.
fn number_and_unit(text: &str) -> (&str, &str) {
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    text.split_at(unit.unwrap_or(text.len()))
}

/// Why a decimal number times a unit is no whole number that fits.
#[derive(Debug, PartialEq, Eq)]
enum Inexact {
    NoNumber,
    TooLarge,
    /// There is a fraction left, above this whole number.
    TooFine {
        below: u128,
    },
}

impl fmt::Display for Inexact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Inexact::NoNumber => "write a number with a dot, such as 1.5",
            Inexact::TooLarge => "too large",
            Inexact::TooFine { .. } => "too many decimals",
        })
    }
}

impl From<Inexact> for String {
    fn from(inexact: Inexact) -> String {
        inexact.to_string()
    }
}

/// A decimal number times a unit, exactly.
fn scaled(number: &str, unit: u128) -> Result<u128, Inexact> {
    // They keep the product below in range, and only fractions of a GiB come to whole bytes with more.
    const DECIMALS: usize = 24;
    let (whole, fraction) = decimal(number).ok_or(Inexact::NoNumber)?;
    let fraction = fraction.trim_end_matches('0');
    let whole: u128 = whole.parse().map_err(|_| Inexact::TooLarge)?;
    let used = &fraction[..fraction.len().min(DECIMALS)];
    let places = 10_u128.pow(used.len() as u32);
    let digits = used.bytes().map(|digit| u128::from(digit - b'0'));
    let part = digits.fold(0, |sum, digit| sum * 10 + digit) * unit;
    let result = whole
        .checked_mul(unit)
        .and_then(|whole| whole.checked_add(part / places))
        .ok_or(Inexact::TooLarge)?;
    if part.is_multiple_of(places) && used == fraction {
        Ok(result)
    } else {
        Err(Inexact::TooFine { below: result })
    }
}

fn too_many(most: u32) -> String {
    format!("too large: at most {most}")
}

#[cfg(test)]
mod tests;
