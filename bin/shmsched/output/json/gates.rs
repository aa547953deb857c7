//! The gates of a segment in the document of `inspect`.

use std::time::Duration;

use serde::{Serialize, Serializer};
use shmsched::{LimiterInfo, PacerInfo, Priority, SchedulerInfo};

use super::Int;

#[derive(Serialize)]
pub struct Scheduler {
    concurrency: Option<u32>,
    running: u32,
    running_raw: i32,
    waiters: u32,
    head_wait_ms: Option<Int>,
    targets: ByPriority<Option<u32>>,
    queued: ByPriority<Int>,
    admitted: Int,
    released: Int,
    deferred: Int,
    completed: Int,
    cancelled: Int,
    lost: Int,
    reclaimed: Int,
}

#[derive(Serialize)]
pub struct Limiter {
    tokens_per_second: u32,
    tokens: i32,
    head_wait_ms: Option<Int>,
    queued: ByPriority<Int>,
    consumed: Int,
    deferred: Int,
    completed: Int,
    cancelled: Int,
    lost: Int,
    forced: Int,
}

#[derive(Serialize)]
pub struct Pacer {
    interval_ms: Milliseconds,
    max_waiting: u32,
    waiting: u32,
    next_start_in_ms: Milliseconds,
    started: Int,
    rejected: Int,
    deferred: Int,
    completed: Int,
    cancelled: Int,
    lost: Int,
}

/// One value per priority, lowest first, by name.
struct ByPriority<T>([T; 7]);

impl<T: Serialize> Serialize for ByPriority<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            Priority::ALL
                .iter()
                .map(|priority| priority.name())
                .zip(&self.0),
        )
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

impl Scheduler {
    pub fn new(info: &SchedulerInfo) -> Scheduler {
        Scheduler {
            concurrency: info.concurrency,
            running: info.running,
            running_raw: info.running_raw,
            waiters: info.waiters,
            head_wait_ms: info.head_wait_ms.map(Int),
            targets: ByPriority(info.targets),
            queued: ByPriority(info.queued.map(Int)),
            admitted: Int(info.admitted),
            released: Int(info.released),
            deferred: Int(info.deferred),
            completed: Int(info.completed),
            cancelled: Int(info.cancelled),
            lost: Int(info.lost),
            reclaimed: Int(info.reclaimed),
        }
    }
}

impl Limiter {
    pub fn new(info: &LimiterInfo) -> Limiter {
        Limiter {
            tokens_per_second: info.tokens_per_second,
            tokens: info.tokens,
            head_wait_ms: info.head_wait_ms.map(Int),
            queued: ByPriority(info.queued.map(Int)),
            consumed: Int(info.consumed),
            deferred: Int(info.deferred),
            completed: Int(info.completed),
            cancelled: Int(info.cancelled),
            lost: Int(info.lost),
            forced: Int(info.forced),
        }
    }
}

impl Pacer {
    pub fn new(info: &PacerInfo) -> Pacer {
        Pacer {
            interval_ms: Milliseconds(info.interval),
            max_waiting: info.max_waiting,
            waiting: info.waiting,
            next_start_in_ms: Milliseconds(info.next_start_in),
            started: Int(info.started),
            rejected: Int(info.rejected),
            deferred: Int(info.deferred),
            completed: Int(info.completed),
            cancelled: Int(info.cancelled),
            lost: Int(info.lost),
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
}
