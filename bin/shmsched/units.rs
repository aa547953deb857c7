//! How numbers are written on the command line: RATE, DURATION, MODE, and `N|N%|unlimited`.
//!
//! Decimals have a dot, whatever the locale, and are read exactly, never through a floating point number.

use std::time::Duration;

use shmsched::{Priority, parse_priority};

/// The largest number of slots.
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
        return parse_slots(text).map(|slots| Limit(Some(slots)));
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
        .ok_or_else(too_many)
}

/// Reads a number of slots, 0 to 2147483647.
pub fn parse_slots(text: &str) -> Result<u32, String> {
    let slots = whole(text).ok_or("use a whole number, such as 8")?;
    u32::try_from(slots)
        .ok()
        .filter(|slots| *slots <= MOST)
        .ok_or_else(too_many)
}

/// Reads a number of slots to take, 1 to 2147483647.
pub fn parse_amount(text: &str) -> Result<u32, String> {
    match parse_slots(text)? {
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
        slots: parse_slots(slots)?,
    })
}

/// Reads a time: a number, perhaps with decimals, and one of `ns`, `us`, `ms`, `s`, `m`, `h`, `d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const SECOND: u128 = 1_000_000_000;
    let units = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(units);
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
    let nanoseconds = scaled(number, unit)?;
    let seconds = u64::try_from(nanoseconds / SECOND).map_err(|_| "too long")?;
    Ok(Duration::new(seconds, (nanoseconds % SECOND) as u32))
}

/// Reads tokens per second: a whole number, alone or with `/s`, or a size per second such as `1.5MB/s` or `64KiB/s`.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "for --rate, which comes with the Limiter")
)]
pub fn parse_rate(text: &str) -> Result<u32, String> {
    const FORM: &str =
        "write a whole number per second or a size per second, such as 500/s or 1.5MB/s";
    let number = match text.split_once('/') {
        None => u128::from(whole(text).ok_or(FORM)?),
        Some((size, "s")) => {
            let units = size
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(size.len());
            let (number, unit) = size.split_at(units);
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

/// A decimal number times a unit, exactly.
fn scaled(number: &str, unit: u128) -> Result<u128, String> {
    let (whole, fraction) = decimal(number).ok_or("write a number with a dot, such as 1.5")?;
    let fraction = fraction.trim_end_matches('0');
    let whole: u128 = whole.parse().map_err(|_| "too large")?;
    let mut result = whole.checked_mul(unit).ok_or("too large")?;
    // 30 decimals keep the products below in range; only binary units need that many, and none has use for more.
    if fraction.len() > 30 {
        return Err("too many decimals".into());
    }
    let places = 10_u128.pow(fraction.len() as u32);
    let part = fraction
        .bytes()
        .fold(0, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    let part = part.checked_mul(unit).ok_or("too many decimals")?;
    if part % places != 0 {
        return Err("too many decimals".into());
    }
    result = result.checked_add(part / places).ok_or("too large")?;
    Ok(result)
}

fn too_many() -> String {
    format!("too large: at most {MOST}")
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
