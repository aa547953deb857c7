//! How numbers are written, so that JavaScript reads them exactly.

use std::time::Duration;

use serde::{Serialize, Serializer};
use shmsched::Durations;

/// The largest integer that a double holds exactly, 2^53 - 1. Counters stop there.
pub const LARGEST: u64 = (1 << 53) - 1;

/// An integer of 64 bits, written as at most [`LARGEST`].
#[derive(Clone, Copy)]
pub struct Int(pub u64);

impl Serialize for Int {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0.min(LARGEST))
    }
}

/// A time in milliseconds, with a fraction only if it has one.
#[derive(Clone, Copy)]
pub struct Milliseconds(pub Duration);

impl Serialize for Milliseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const NANOSECONDS: u128 = 1_000_000;
        let nanoseconds = self.0.as_nanos();
        match (
            u64::try_from(nanoseconds / NANOSECONDS),
            nanoseconds % NANOSECONDS,
        ) {
            (Ok(whole), 0) => Int(whole).serialize(serializer),
            _ => serializer.serialize_f64(nanoseconds as f64 / NANOSECONDS as f64),
        }
    }
}

/// Hundredths of a percent, written in percent.
#[derive(Clone, Copy)]
pub struct Percent(pub u16);

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % 100 {
            0 => serializer.serialize_u16(self.0 / 100),
            _ => serializer.serialize_f64(f64::from(self.0) / 100.0),
        }
    }
}

/// How long something took.
#[derive(Serialize)]
pub struct Took {
    count: Int,
    sum_us: Int,
    p50_us: Option<Int>,
    p99_us: Option<Int>,
    longest_us: Option<Int>,
    buckets: Vec<Bucket>,
}

#[derive(Serialize)]
struct Bucket {
    below_us: Option<Int>,
    count: Int,
}

impl Took {
    pub fn new(durations: &Durations) -> Took {
        let count = durations.count();
        let buckets = (0..).zip(durations.buckets);
        let last = durations.buckets.len() - 1;
        Took {
            count: Int(count),
            sum_us: Int(durations.sum_us),
            p50_us: durations.estimate_us(0.5).map(Int),
            p99_us: durations.estimate_us(0.99).map(Int),
            longest_us: (count > 0).then_some(Int(durations.longest_us)),
            buckets: buckets
                .filter(|(_, count)| *count > 0)
                .map(|(at, count)| Bucket {
                    below_us: (at != last).then_some(Int(1 << at)),
                    count: Int(count),
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmsched::Settings;

    #[test]
    fn milliseconds_have_a_fraction_only_if_need_be() {
        let all = [
            (Duration::ZERO, "0"),
            (Duration::from_millis(200), "200"),
            (Duration::from_micros(500), "0.5"),
            (Duration::from_nanos(1_234_567), "1.234567"),
            (Settings::LONGEST_INTERVAL, "3153600000000"),
        ];
        for (time, text) in all {
            let found = serde_json::to_string(&Milliseconds(time)).unwrap();
            assert_eq!(found, text);
        }
    }

    #[test]
    fn durations_with_the_buckets_that_have_any() {
        let mut durations = Durations::default();
        let text = |durations: &Durations| serde_json::to_string(&Took::new(durations)).unwrap();
        assert_eq!(
            text(&durations),
            r#"{"count":0,"sum_us":0,"p50_us":null,"p99_us":null,"longest_us":null,"buckets":[]}"#
        );
        (durations.buckets[10], durations.buckets[31]) = (3, 1);
        (durations.longest_us, durations.sum_us) = (1 << 40, 1 << 60);
        assert_eq!(
            text(&durations),
            r#"{"count":4,"sum_us":9007199254740991,"p50_us":724,"p99_us":1099511627776,"longest_us":1099511627776,"buckets":[{"below_us":1024,"count":3},{"below_us":null,"count":1}]}"#
        );
    }
}
