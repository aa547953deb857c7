//! Every metric there is: its name, what it tells, and where in a snapshot it is.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit as Suffix;
use shmsched::{LimiterInfo, PacerInfo, Priority, SchedulerInfo, Snapshot, Stalled};

use super::members;
use super::samples::Samples;

/// One metric, of all segments.
pub struct Family {
    /// Without the prefix, the unit and what its kind adds.
    pub name: &'static str,
    /// One line.
    pub help: &'static str,
    pub unit: Unit,
    pub kind: MetricType,
    /// Adds the samples of one segment; without a snapshot it could not be read.
    pub read: fn(Option<&Snapshot>, &mut Samples),
}

/// The unit, which is the end of the name.
#[derive(Clone, Copy)]
pub enum Unit {
    /// A number of things.
    None,
    Seconds,
    Ratio,
}

impl Unit {
    pub fn as_unit(self) -> Option<Suffix> {
        match self {
            Unit::None => None,
            Unit::Seconds => Some(Suffix::Seconds),
            Unit::Ratio => Some(Suffix::Other("ratio".into())),
        }
    }
}

const fn family(
    name: &'static str,
    help: &'static str,
    unit: Unit,
    kind: MetricType,
    read: fn(Option<&Snapshot>, &mut Samples),
) -> Family {
    Family {
        name,
        help,
        unit,
        kind,
        read,
    }
}

/// A metric of one gate, absent where the gate is.
macro_rules! of {
    ($gate:ident, $kind:ident, $name:literal, $unit:ident, $help:literal, $read:expr) => {
        family(
            concat!(stringify!($gate), "_", $name),
            $help,
            Unit::$unit,
            MetricType::$kind,
            |snapshot, samples| {
                if let Some(gate) = snapshot.and_then(|snapshot| snapshot.$gate.as_ref()) {
                    let read: fn(&Info!($gate), &mut Samples) = $read;
                    read(gate, samples);
                }
            },
        )
    };
}

macro_rules! Info {
    (scheduler) => {
        SchedulerInfo
    };
    (limiter) => {
        LimiterInfo
    };
    (pacer) => {
        PacerInfo
    };
}

pub const FAMILIES: &[Family] = &[
    family(
        "up",
        "Whether the segment could be read",
        Unit::None,
        MetricType::Gauge,
        |snapshot, samples| samples.gauge(&[], snapshot.is_some()),
    ),
    family(
        "members",
        "Attached processes, by how they are",
        Unit::None,
        MetricType::Gauge,
        |snapshot, samples| {
            snapshot
                .into_iter()
                .for_each(|s| members::states(s, samples))
        },
    ),
    family(
        "members_capacity",
        "How many processes may be attached",
        Unit::None,
        MetricType::Gauge,
        |snapshot, samples| {
            snapshot
                .into_iter()
                .for_each(|s| samples.gauge(&[], s.segment.members_capacity));
        },
    ),
    of!(
        scheduler,
        Gauge,
        "concurrency",
        None,
        "The limit of slots; +Inf is unlimited",
        |gate, samples| samples.limit(&[], gate.concurrency)
    ),
    of!(
        scheduler,
        Gauge,
        "target",
        None,
        "Up to how many running slots a priority is let in",
        |gate, samples| for (priority, target) in by_priority(&gate.targets) {
            samples.limit(&[("priority", priority)], *target);
        }
    ),
    of!(
        scheduler,
        Gauge,
        "running",
        None,
        "Slots held by the living",
        |gate, samples| samples.gauge(&[], gate.running)
    ),
    of!(
        scheduler,
        Gauge,
        "queued",
        None,
        "Waiting for slots, by priority",
        |gate, samples| queued(&gate.queued, samples)
    ),
    of!(
        scheduler,
        Gauge,
        "waiters",
        None,
        "Processes with somebody waiting for slots",
        |gate, samples| samples.gauge(&[], gate.waiters)
    ),
    of!(
        scheduler,
        Gauge,
        "head_wait",
        Seconds,
        "How long the first in line has waited; 0 if there is none",
        |gate, samples| head(gate.head_wait_ms, samples)
    ),
    of!(
        scheduler,
        Counter,
        "admitted",
        None,
        "Slots taken",
        |gate, samples| samples.count(gate.admitted)
    ),
    of!(
        scheduler,
        Counter,
        "released",
        None,
        "Slots given back",
        |gate, samples| samples.count(gate.released)
    ),
    of!(
        scheduler,
        Counter,
        "reclaimed",
        None,
        "Slots of dead processes given back by others",
        |gate, samples| samples.count(gate.reclaimed)
    ),
    of!(
        scheduler,
        Counter,
        "deferred",
        None,
        "Waits for slots begun",
        |gate, samples| samples.count(gate.deferred)
    ),
    of!(
        scheduler,
        Counter,
        "completed",
        None,
        "Waits for slots that ended with a turn",
        |gate, samples| samples.count(gate.completed)
    ),
    of!(
        scheduler,
        Counter,
        "cancelled",
        None,
        "Waits for slots given up",
        |gate, samples| samples.count(gate.cancelled)
    ),
    of!(
        scheduler,
        Counter,
        "lost",
        None,
        "Waits for slots that ended with their process",
        |gate, samples| samples.count(gate.lost)
    ),
    of!(
        scheduler,
        Gauge,
        "pressure_some",
        Ratio,
        "Share of the window in which somebody waited for slots",
        |gate, samples| averages(gate.pressure.some, samples)
    ),
    of!(
        scheduler,
        Gauge,
        "pressure_full",
        Ratio,
        "Share of the window in which somebody waited and no slot was given back",
        |gate, samples| averages(gate.pressure.full, samples)
    ),
    of!(
        scheduler,
        Counter,
        "pressure_some",
        Seconds,
        "Time in which somebody waited for slots",
        |gate, samples| samples.seconds(gate.pressure.some.total_us)
    ),
    of!(
        scheduler,
        Counter,
        "pressure_full",
        Seconds,
        "Time in which somebody waited and no slot was given back",
        |gate, samples| samples.seconds(gate.pressure.full.total_us)
    ),
    of!(
        scheduler,
        Histogram,
        "wait",
        Seconds,
        "How long those waited that got their slots",
        |gate, samples| samples.histogram(gate.waits)
    ),
    of!(
        scheduler,
        Gauge,
        "wait_longest",
        Seconds,
        "The longest wait for slots ever",
        |gate, samples| longest(gate.waits.longest_us, samples)
    ),
    of!(
        scheduler,
        Histogram,
        "hold",
        Seconds,
        "How long slots were held that were waited for, and those of run",
        |gate, samples| samples.histogram(gate.holds)
    ),
    of!(
        scheduler,
        Gauge,
        "hold_longest",
        Seconds,
        "The longest hold of slots ever",
        |gate, samples| longest(gate.holds.longest_us, samples)
    ),
    of!(
        limiter,
        Gauge,
        "tokens_per_second",
        None,
        "The rate, and the most that a quiet bucket holds",
        |gate, samples| samples.gauge(&[], gate.tokens_per_second)
    ),
    of!(
        limiter,
        Gauge,
        "tokens",
        None,
        "The balance; negative in debt",
        |gate, samples| samples.gauge(&[], gate.tokens)
    ),
    of!(
        limiter,
        Gauge,
        "queued",
        None,
        "Waiting for tokens, by priority",
        |gate, samples| queued(&gate.queued, samples)
    ),
    of!(
        limiter,
        Gauge,
        "waiters",
        None,
        "Processes with somebody waiting for tokens",
        |gate, samples| samples.gauge(&[], gate.waiters)
    ),
    of!(
        limiter,
        Gauge,
        "head_wait",
        Seconds,
        "How long the first in line has waited; 0 if there is none",
        |gate, samples| head(gate.head_wait_ms, samples)
    ),
    of!(
        limiter,
        Counter,
        "consumed",
        None,
        "Tokens taken, those given back left out",
        |gate, samples| samples.count(gate.consumed)
    ),
    of!(
        limiter,
        Counter,
        "forced",
        None,
        "Admissions into debt",
        |gate, samples| samples.count(gate.forced)
    ),
    of!(
        limiter,
        Counter,
        "deferred",
        None,
        "Waits for tokens begun",
        |gate, samples| samples.count(gate.deferred)
    ),
    of!(
        limiter,
        Counter,
        "completed",
        None,
        "Waits for tokens that ended with a turn",
        |gate, samples| samples.count(gate.completed)
    ),
    of!(
        limiter,
        Counter,
        "cancelled",
        None,
        "Waits for tokens given up",
        |gate, samples| samples.count(gate.cancelled)
    ),
    of!(
        limiter,
        Counter,
        "lost",
        None,
        "Waits for tokens that ended with their process",
        |gate, samples| samples.count(gate.lost)
    ),
    of!(
        limiter,
        Gauge,
        "pressure_some",
        Ratio,
        "Share of the window in which somebody waited for tokens",
        |gate, samples| averages(gate.pressure.some, samples)
    ),
    of!(
        limiter,
        Gauge,
        "pressure_full",
        Ratio,
        "Share of the window in which somebody waited and no token was spent",
        |gate, samples| averages(gate.pressure.full, samples)
    ),
    of!(
        limiter,
        Counter,
        "pressure_some",
        Seconds,
        "Time in which somebody waited for tokens",
        |gate, samples| samples.seconds(gate.pressure.some.total_us)
    ),
    of!(
        limiter,
        Counter,
        "pressure_full",
        Seconds,
        "Time in which somebody waited and no token was spent",
        |gate, samples| samples.seconds(gate.pressure.full.total_us)
    ),
    of!(
        limiter,
        Histogram,
        "wait",
        Seconds,
        "How long those waited that got their tokens",
        |gate, samples| samples.histogram(gate.waits)
    ),
    of!(
        limiter,
        Gauge,
        "wait_longest",
        Seconds,
        "The longest wait for tokens ever",
        |gate, samples| longest(gate.waits.longest_us, samples)
    ),
    of!(
        pacer,
        Gauge,
        "interval",
        Seconds,
        "The least time between two starts",
        |gate, samples| samples.real(&[], gate.interval.as_secs_f64())
    ),
    of!(
        pacer,
        Gauge,
        "max_waiting",
        None,
        "How many may wait for their start",
        |gate, samples| samples.gauge(&[], gate.max_waiting)
    ),
    of!(
        pacer,
        Gauge,
        "waiting",
        None,
        "How many wait for their start",
        |gate, samples| samples.gauge(&[], gate.waiting)
    ),
    of!(
        pacer,
        Gauge,
        "head_wait",
        Seconds,
        "How long the first in line has waited; 0 if there is none",
        |gate, samples| head(gate.head_wait_ms, samples)
    ),
    of!(
        pacer,
        Gauge,
        "next_start",
        Seconds,
        "Until the next start is allowed; 0 is now",
        |gate, samples| samples.real(&[], gate.next_start_in.as_secs_f64())
    ),
    of!(
        pacer,
        Counter,
        "started",
        None,
        "Starts",
        |gate, samples| samples.count(gate.started)
    ),
    of!(
        pacer,
        Counter,
        "rejected",
        None,
        "Callers refused because the queue was full",
        |gate, samples| samples.count(gate.rejected)
    ),
    of!(
        pacer,
        Counter,
        "deferred",
        None,
        "Waits for a start begun",
        |gate, samples| samples.count(gate.deferred)
    ),
    of!(
        pacer,
        Counter,
        "completed",
        None,
        "Waits for a start that ended with one",
        |gate, samples| samples.count(gate.completed)
    ),
    of!(
        pacer,
        Counter,
        "cancelled",
        None,
        "Waits for a start given up",
        |gate, samples| samples.count(gate.cancelled)
    ),
    of!(
        pacer,
        Counter,
        "lost",
        None,
        "Waits for a start that ended with their process",
        |gate, samples| samples.count(gate.lost)
    ),
    of!(
        pacer,
        Gauge,
        "pressure_some",
        Ratio,
        "Share of the window in which somebody waited for a start",
        |gate, samples| averages(gate.pressure.some, samples)
    ),
    of!(
        pacer,
        Gauge,
        "pressure_full",
        Ratio,
        "Share of the window in which somebody waited and nothing started",
        |gate, samples| averages(gate.pressure.full, samples)
    ),
    of!(
        pacer,
        Counter,
        "pressure_some",
        Seconds,
        "Time in which somebody waited for a start",
        |gate, samples| samples.seconds(gate.pressure.some.total_us)
    ),
    of!(
        pacer,
        Counter,
        "pressure_full",
        Seconds,
        "Time in which somebody waited and nothing started",
        |gate, samples| samples.seconds(gate.pressure.full.total_us)
    ),
    of!(
        pacer,
        Histogram,
        "wait",
        Seconds,
        "How long those waited that started",
        |gate, samples| samples.histogram(gate.waits)
    ),
    of!(
        pacer,
        Gauge,
        "wait_longest",
        Seconds,
        "The longest wait for a start ever",
        |gate, samples| longest(gate.waits.longest_us, samples)
    ),
    family(
        "member_held",
        "Slots that a living process holds",
        Unit::None,
        MetricType::Gauge,
        |snapshot, samples| {
            members::each(snapshot, samples, |member, labels, samples| {
                samples.gauge(labels, member.held);
            });
        },
    ),
    family(
        "member_waiting",
        "Places that a living process has in the lines of all gates",
        Unit::None,
        MetricType::Gauge,
        |snapshot, samples| {
            members::each(snapshot, samples, |member, labels, samples| {
                samples.gauge(labels, member.waiting.len() as i64);
            });
        },
    ),
    family(
        "member_age",
        "For how long a living process has been attached",
        Unit::Seconds,
        MetricType::Gauge,
        |snapshot, samples| {
            members::each(snapshot, samples, |member, labels, samples| {
                samples.real(labels, member.age_ms as f64 / 1e3);
            });
        },
    ),
];

/// Values with the names of their priorities.
fn by_priority<T>(values: &[T; 7]) -> impl Iterator<Item = (&'static str, &T)> {
    Priority::ALL
        .iter()
        .map(|priority| priority.name())
        .zip(values)
}

fn queued(queued: &[u64; 7], samples: &mut Samples) {
    for (priority, count) in by_priority(queued) {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        samples.gauge(&[("priority", priority)], count);
    }
}

fn head(waited_ms: Option<u64>, samples: &mut Samples) {
    samples.real(&[], waited_ms.unwrap_or(0) as f64 / 1e3);
}

fn longest(us: u64, samples: &mut Samples) {
    samples.real(&[], us as f64 / 1e6);
}

fn averages(stalled: Stalled, samples: &mut Samples) {
    for (window, share) in ["10s", "60s", "300s"].into_iter().zip(stalled.averages) {
        samples.real(&[("window", window)], f64::from(share) / 1e4);
    }
}
