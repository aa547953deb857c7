//! The gates of a segment in the document of `inspect`.

use serde::{Serialize, Serializer};
use shmsched::{LimiterInfo, PacerInfo, Priority, SchedulerInfo};

use super::numbers::{Int, Milliseconds, Took};
use super::pressure::Signals;

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
    pressure: Signals,
    waits: Took,
    holds: Took,
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
    waiters: u32,
    pressure: Signals,
    waits: Took,
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
    head_wait_ms: Option<Int>,
    pressure: Signals,
    waits: Took,
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
            pressure: Signals::new(info.pressure),
            waits: Took::new(&info.waits),
            holds: Took::new(&info.holds),
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
            waiters: info.waiters,
            pressure: Signals::new(info.pressure),
            waits: Took::new(&info.waits),
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
            head_wait_ms: info.head_wait_ms.map(Int),
            pressure: Signals::new(info.pressure),
            waits: Took::new(&info.waits),
        }
    }
}
