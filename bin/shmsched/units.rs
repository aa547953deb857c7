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
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let of = |text| limit_of(text, || 6);
        assert_eq!(of("unlimited"), Ok(Limit(None)));
        assert_eq!(of("8"), Ok(Limit(Some(8))));
        assert_eq!(of("0"), Ok(Limit(Some(0))));
        assert_eq!(of("2147483647"), Ok(Limit(Some(2147483647))));
        assert_eq!(of("50%"), Ok(Limit(Some(3))));
        assert_eq!(of("25%"), Ok(Limit(Some(2))), "1.5 is rounded up");
        assert_eq!(of("1%"), Ok(Limit(Some(1))), "at least one");
        assert_eq!(of("0%"), Ok(Limit(Some(0))));
        assert_eq!(of("200%"), Ok(Limit(Some(12))));
        for text in [
            "",
            "-1",
            "+1",
            "1.5",
            "nan",
            "inf",
            "Unlimited",
            "2147483648",
            "99999999999999999999",
            "%",
            "5.5%",
            "-5%",
            "1 ",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
        assert!(limit_of("99999999999999999999%", || 1 << 20).is_err());
    }

    #[test]
    fn percentages() {
        for (text, hundredths) in [
            ("0", 0),
            ("40", 4_000),
            ("40%", 4_000),
            ("2.5", 250),
            ("0.01", 1),
            ("0.019", 1),
            ("100", 10_000),
            ("100.00", 10_000),
        ] {
            assert_eq!(parse_percent(text), Ok(hundredths), "{text}");
        }
        for text in [
            "",
            "%",
            "-1",
            "+1",
            "100.001",
            "101",
            "1e1",
            "0,5",
            "5 %",
            "nan",
            "655360000",
            "99999999999999999999999999999999999999999",
        ] {
            assert!(parse_percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses() {
        for (text, address) in [
            ("9300", "127.0.0.1:9300"),
            (":9300", "127.0.0.1:9300"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:65535", "[::1]:65535"),
            ("localhost:1", "localhost:1"),
        ] {
            assert_eq!(parse_address(text).as_deref(), Ok(address));
        }
        for text in [
            "",
            ":",
            "x",
            "127.0.0.1",
            "::1",
            "::1:80",
            "[::1]",
            "h:",
            "h:+1",
            "h:65536",
            "h:-1",
            "a b:1",
        ] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_and_targets() {
        assert_eq!(parse_amount("3"), Ok(3));
        assert!(parse_amount("0").is_err());
        assert_eq!(
            parse_target("low=2"),
            Ok(Target {
                priority: Priority::Low,
                slots: 2
            })
        );
        assert_eq!(
            parse_target("-3=0"),
            Ok(Target {
                priority: Priority::Lowest,
                slots: 0
            })
        );
        for text in [
            "low", "low=", "=2", "urgent=2", "low=-1", "low=2=3", "low=50%",
        ] {
            assert!(parse_target(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations() {
        let good = [
            ("100ms", 100_000_000),
            ("2s", 2_000_000_000),
            ("1.5s", 1_500_000_000),
            ("0.5ms", 500_000),
            ("0s", 0),
            ("7ns", 7),
            ("3us", 3_000),
            ("2m", 120_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("1d", 86_400_000_000_000),
            ("0.10s", 100_000_000),
            ("1.50000000000000000000s", 1_500_000_000),
        ];
        for (text, nanoseconds) in good {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_nanos(nanoseconds)),
                "{text}"
            );
        }
        // case 57: a comma is no dot
        let bad = [
            "",
            "5",
            "s",
            "0,5s",
            "1.s",
            ".5s",
            "-1ms",
            "+1s",
            "1 s",
            "1s ",
            "nan",
            "inf",
            "infs",
            "1e3s",
            "1.2.3s",
            "0.5ns",
            "1S",
            "1sec",
            "99999999999999999999999999999999999999999s",
            "340282366920938463463374607431768211455d",
            "\u{0661}s",
        ];
        for text in bad {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_duration("5").unwrap_err().contains("unit"));
        assert!(parse_pause("9ms").is_err());
    }

    #[test]
    fn intervals() {
        let good = [
            ("0.5ms", Duration::from_micros(500)),
            ("1ns", Duration::from_nanos(1)),
            ("2d", Duration::from_secs(172_800)),
            ("36500d", Settings::LONGEST_INTERVAL),
            // What is finer than a nanosecond is never less than was asked for.
            ("0.5ns", Duration::from_nanos(1)),
            ("0.0000000001s", Duration::from_nanos(1)),
            (
                "1.0000000000000000000000000000000000001s",
                Duration::new(1, 1),
            ),
            (
                "0.0000000000000000000000000000000000001d",
                Duration::from_nanos(1),
            ),
            // Absurdly long ones are as long as can be.
            ("36501d", Settings::LONGEST_INTERVAL),
            (
                "340282366920938463463374607431768211455d",
                Settings::LONGEST_INTERVAL,
            ),
            (
                "340282366920938463463374607431768211455.5ns",
                Settings::LONGEST_INTERVAL,
            ),
            (
                "99999999999999999999999999999999999999999s",
                Settings::LONGEST_INTERVAL,
            ),
        ];
        for (text, interval) in good {
            assert_eq!(parse_interval(text), Ok(interval), "{text}");
        }
        // case 17
        let bad = [
            "", "0", "0ms", "0.000s", "-1ms", "+1ms", "5", "1.5", "nan", "inf", "infs", "1e3s",
            "0,5s", ".5s", "1.s", "ms", "1 ms", "1ms ", "1.2.3s",
        ];
        for text in bad {
            let why = parse_interval(text).expect_err(text);
            assert!(!why.is_empty() && !why.contains('\n'));
        }
    }

    #[test]
    fn counts() {
        assert_eq!(parse_count("0"), Ok(0));
        assert_eq!(parse_count("2147483647"), Ok(2147483647));
        assert_eq!(parse_waiting("65536"), Ok(65_536));
        for text in [
            "",
            "-1",
            "+1",
            "1.5",
            "nan",
            "inf",
            "0x3",
            "2147483648",
            "99999999999999999999",
        ] {
            assert!(parse_count(text).is_err(), "{text}");
            assert!(parse_waiting(text).is_err(), "{text}");
        }
        // It names the limit that holds there.
        assert!(parse_waiting("65537").unwrap_err().contains("65536"));
        assert!(
            parse_count("2147483648")
                .unwrap_err()
                .contains("2147483647")
        );
    }

    #[test]
    fn rates() {
        let good = [
            ("1", 1),
            ("500", 500),
            ("500/s", 500),
            ("2147483647", 2147483647),
            ("10MB/s", 10_000_000),
            ("1MiB/s", 1_048_576),
            ("1.5MB/s", 1_500_000),
            ("0.5KiB/s", 512),
            ("1kB/s", 1_000),
            ("7B/s", 7),
            ("1GiB/s", 1 << 30),
        ];
        for (text, rate) in good {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        // case 17
        let bad = [
            "",
            "0",
            "-5",
            "1.5",
            "1.5/s",
            "nan",
            "inf",
            "2147483648",
            "0MB/s",
            "10MB",
            "10mb/s",
            "10MB/m",
            "0.3KiB/s",
            "0.0001MB/m",
            "0.0000001MB/s",
            "0.4/s",
            "0/s",
            "0.00B/s",
            "0.0000000000000000000000000000000000001GiB/s",
            "99999999999999999999999999999999999999999MB/s",
            "2GiB/s",
            "/s",
            "1,5MB/s",
        ];
        for text in bad {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn modes() {
        assert_eq!(parse_mode("660"), Ok(0o660));
        assert_eq!(parse_mode("0600"), Ok(0o600));
        assert_eq!(parse_mode("0"), Ok(0));
        for text in [
            "",
            "888",
            "1777",
            "0o600",
            "-1",
            "+600",
            "rw-rw----",
            "00000",
        ] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }
}
