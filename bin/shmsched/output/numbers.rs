//! Numbers for people: few digits, rounded half up. Machines get them exactly, as JSON.

use std::time::Duration;

/// How many units it is.
fn rounded(value: u64, unit: u64) -> u64 {
    value / unit + u64::from(value % unit >= unit.div_ceil(2))
}

/// Tenths, as a number with one decimal.
fn tenths(tenths: u64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A time in milliseconds, for people: `850ms`, `12.3s`, `4m05s`, `3h12m`, `5d03h`.
pub fn time(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        _ => fine_time(ms.saturating_mul(1_000)),
    }
}

/// A time in microseconds, for people: `0us`, `950us`, `1.5ms`, `850ms`, then as [`time`].
pub fn fine_time(us: u64) -> String {
    const SECOND: u64 = 1_000_000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    // What would be rounded up to the next larger unit is of that unit.
    match us {
        0..1_000 => format!("{us}us"),
        1_000..9_950 => format!("{}ms", tenths(rounded(us, 100))),
        9_950..999_500 => format!("{}ms", rounded(us, 1_000)),
        999_500..59_950_000 => format!("{}s", tenths(rounded(us, SECOND / 10))),
        _ if us < HOUR - SECOND / 2 => {
            let seconds = rounded(us, SECOND);
            format!("{}m{:02}s", seconds / 60, seconds % 60)
        }
        _ if us < DAY - MINUTE / 2 => {
            let minutes = rounded(us, MINUTE);
            format!("{}h{:02}m", minutes / 60, minutes % 60)
        }
        _ => {
            let hours = rounded(us, HOUR);
            format!("{}d{:02}h", hours / 24, hours % 24)
        }
    }
}

/// A time that was set, exactly and as it can be set: `1h`, `90s`, `999.9ms`.
pub fn span(time: Duration) -> String {
    const WHOLE: [(u128, &str); 3] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
    ];
    const DECIMAL: [(u128, usize, &str); 3] = [
        (1_000_000_000, 9, "s"),
        (1_000_000, 6, "ms"),
        (1_000, 3, "us"),
    ];
    let nanoseconds = time.as_nanos();
    let fits = |(unit, _): &(u128, &str)| nanoseconds.is_multiple_of(*unit) && nanoseconds > 0;
    if let Some((unit, name)) = WHOLE.into_iter().find(fits) {
        return format!("{}{name}", nanoseconds / unit);
    }
    let Some((unit, places, name)) = DECIMAL.into_iter().find(|(unit, ..)| nanoseconds >= *unit)
    else {
        return format!("{nanoseconds}ns");
    };
    let text = format!("{}.{:0places$}", nanoseconds / unit, nanoseconds % unit);
    format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A number of bytes, for people.
pub fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..999_950 => format!("{} kB", tenths(rounded(count, 100))),
        999_950..999_950_000 => format!("{} MB", tenths(rounded(count, 100_000))),
        _ => format!("{} GB", tenths(rounded(count, 100_000_000))),
    }
}

/// A number in few letters: exact below 10000, else three digits of it: `9999`, `10M`, `1.23M`.
pub fn short(count: i64) -> String {
    const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let (sign, size) = (if count < 0 { "-" } else { "" }, count.unsigned_abs());
    if size < 10_000 {
        return format!("{sign}{size}");
    }
    // The three digits, and how many follow them.
    let mut after = size.ilog10() as usize - 2;
    let mut digits = rounded(size, 10_u64.pow(after as u32));
    if digits == 1_000 {
        (digits, after) = (100, after + 1);
    }
    let (unit, decimals) = (UNITS[after.div_ceil(3)], after.next_multiple_of(3) - after);
    let places = 10_u64.pow(decimals as u32);
    let text = format!("{}.{:0decimals$}", digits / places, digits % places);
    let text = match decimals {
        0 => digits.to_string(),
        _ => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
    };
    format!("{sign}{text}{unit}")
}

/// A share in hundredths of a percent: `12.34 %`.
pub fn percent(share: u16) -> String {
    format!("{}.{:02} %", share / 100, share % 100)
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
    fn times_and_sizes() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1.0s"),
            (1_049, "1.0s"),
            (1_050, "1.1s"),
            (59_949, "59.9s"),
            (59_950, "1m00s"),
            (245_000, "4m05s"),
            (3_599_499, "59m59s"),
            (3_599_500, "1h00m"),
            (11_520_000, "3h12m"),
            (86_369_999, "23h59m"),
            (86_370_000, "1d00h"),
            (442_800_000, "5d03h"),
        ] {
            assert_eq!(time(ms), text);
        }
        assert!(time(u64::MAX).ends_with('h'));
        for (us, text) in [
            (0, "0us"),
            (999, "999us"),
            (1_550, "1.6ms"),
            (9_949, "9.9ms"),
            (9_950, "10ms"),
            (65_536, "66ms"),
            (999_499, "999ms"),
            (999_500, "1.0s"),
            (1_583_782, "1.6s"),
        ] {
            assert_eq!(fine_time(us), text);
        }
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_500, "1.5 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (1_048_576, "1.0 MB"),
            (999_950_000, "1.0 GB"),
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
            (10_049, "10k"),
            (10_050, "10.1k"),
            (12_345, "12.3k"),
            (100_000, "100k"),
            (100_500, "101k"),
            (999_499, "999k"),
            (999_500, "1M"),
            (999_999, "1M"),
            (-999_999, "-1M"),
            (1_500_000, "1.5M"),
            (1_048_576, "1.05M"),
            (9_999_999, "10M"),
            (-10_000_000, "-10M"),
            (i64::MAX, "9.22E"),
            (i64::MIN, "-9.22E"),
        ] {
            assert_eq!(short(count), text);
        }
        assert_eq!(percent(10_000) + &percent(7), "100.00 %0.07 %");
    }

    #[test]
    fn spans_can_be_set_again() {
        let all = [
            (Duration::from_micros(500), "500us"),
            (Duration::from_millis(200), "200ms"),
            (Duration::from_micros(999_900), "999.9ms"),
            (Duration::from_millis(1_500), "1.5s"),
            (Duration::from_secs(60), "1m"),
            (Duration::from_secs(90), "90s"),
            (Duration::from_nanos(1), "1ns"),
            (Duration::from_nanos(1_001), "1.001us"),
            (Duration::new(1, 1), "1.000000001s"),
            (shmsched::Settings::LONGEST_INTERVAL, "36500d"),
        ];
        for (time, text) in all {
            assert_eq!(span(time), text);
            assert_eq!(crate::units::parse_interval(text), Ok(time), "{text}");
        }
        assert_eq!(span(Duration::ZERO), "0ns");
    }
}
