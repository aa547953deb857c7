//! What `inspect` says of a segment above the table of its members: one line per fact.

use shmsched::{
    Durations, LimiterInfo, PacerInfo, Pressure, Priority, SchedulerInfo, SegmentInfo, Snapshot,
};

use crate::output::style::Style;
use crate::output::{bytes, escaped, fine_time, json, limit, literal, literal_name, literal_os};
use crate::output::{percent, short, span, time};

/// A name of at most ten letters, and what is to be said.
type Fact = (&'static str, String);

/// The segment itself, then gate by gate.
pub fn text(snapshot: &Snapshot, style: Style) -> String {
    let gates = [
        snapshot
            .scheduler
            .as_ref()
            .map(|info| scheduler(info).to_vec()),
        snapshot.limiter.as_ref().map(|info| limiter(info).to_vec()),
        snapshot.pacer.as_ref().map(|info| pacer(info).to_vec()),
    ];
    let parts = [segment(&snapshot.segment)].into_iter();
    let parts = parts.chain(gates.into_iter().flatten());
    parts
        .map(|facts| lines(facts, style))
        .collect::<Vec<_>>()
        .join("\n")
}

fn lines(facts: Vec<Fact>, style: Style) -> String {
    facts
        .into_iter()
        .map(|(name, value)| {
            let value = escaped(&value);
            let value = match name {
                "note" => style.warning(&value),
                _ => value,
            };
            format!("{} {value}\n", style.bold(&format!("{name:<10}")))
        })
        .collect()
}

fn segment(segment: &SegmentInfo) -> Vec<Fact> {
    let mut facts = vec![
        (
            "segment",
            format!(
                "{} at {}",
                literal_name(&segment.name, &segment.path),
                literal_os(segment.path.as_os_str())
            ),
        ),
        ("id", json::id(&segment.id)),
        (
            "file",
            format!(
                "{} on {}, device {}, inode {}, mode {}, format {}",
                bytes(segment.bytes),
                literal(&segment.filesystem),
                json::device(segment.device),
                segment.inode,
                json::mode(segment.mode),
                segment.format,
            ),
        ),
        (
            "members",
            format!(
                "{} of {}, {} of {} records",
                segment.members_used,
                segment.members_capacity,
                segment.records_used,
                segment.records_capacity
            ),
        ),
    ];
    let notes = [
        (
            !segment.boot_is_current,
            "state from an earlier boot discarded; the first to attach resets it",
        ),
        (
            segment.retired,
            "retired by rm --force: nobody gets a slot any more",
        ),
        (
            segment.gone,
            "damaged: the file was cut short or overwritten",
        ),
    ];
    let notes = notes.into_iter().filter(|(holds, _)| *holds);
    facts.extend(notes.map(|(_, note)| ("note", note.to_owned())));
    facts
}

fn scheduler(info: &SchedulerInfo) -> [Fact; 8] {
    let raw = match i64::from(info.running_raw) == i64::from(info.running) {
        true => String::new(),
        false => format!(" (counter {})", info.running_raw),
    };
    let cap = limit(info.concurrency);
    let head = first(info.head_wait_ms);
    let priorities = by_priority(&info.queued);
    let waits = Waits {
        deferred: info.deferred,
        completed: info.completed,
        cancelled: info.cancelled,
        lost: info.lost,
        queued: sum(&info.queued),
    };
    let moved = format!(
        "admitted {}, released {}, reclaimed {}",
        info.admitted, info.released, info.reclaimed
    );
    [
        ("running", format!("{} of {cap}{raw}", info.running)),
        ("  waiting", format!("{}{head}{priorities}", info.waiters)),
        ("  pressure", pressure(&info.pressure)),
        ("  waits", durations(&info.waits)),
        ("  holds", durations(&info.holds)),
        ("  targets", targets(&info.targets)),
        ("  so far", moved),
        ("  deferred", waits.text()),
    ]
}

fn limiter(info: &LimiterInfo) -> [Fact; 6] {
    let head = first(info.head_wait_ms);
    let priorities = by_priority(&info.queued);
    let waits = Waits {
        deferred: info.deferred,
        completed: info.completed,
        cancelled: info.cancelled,
        lost: info.lost,
        queued: sum(&info.queued),
    };
    let moved = format!("consumed {}, forced {}", info.consumed, info.forced);
    [
        (
            "tokens",
            format!(
                "{} at {}/s",
                short(info.tokens.into()),
                short(info.tokens_per_second.into())
            ),
        ),
        ("  waiting", format!("{}{head}{priorities}", info.waiters)),
        ("  pressure", pressure(&info.pressure)),
        ("  waits", durations(&info.waits)),
        ("  so far", moved),
        ("  deferred", waits.text()),
    ]
}

fn pacer(info: &PacerInfo) -> [Fact; 6] {
    let next = match info.next_start_in.is_zero() {
        true => "now".to_owned(),
        false => {
            let ms = info.next_start_in.as_nanos().div_ceil(1_000_000);
            format!("in {}", time(u64::try_from(ms).unwrap_or(u64::MAX)))
        }
    };
    let head = first(info.head_wait_ms);
    let waits = Waits {
        deferred: info.deferred,
        completed: info.completed,
        cancelled: info.cancelled,
        lost: info.lost,
        queued: info.waiting.into(),
    };
    let moved = format!("started {}, rejected {}", info.started, info.rejected);
    [
        (
            "starts",
            format!("one every {}, the next {next}", span(info.interval)),
        ),
        (
            "  waiting",
            format!("{} of at most {}{head}", info.waiting, info.max_waiting),
        ),
        ("  pressure", pressure(&info.pressure)),
        ("  waits", durations(&info.waits)),
        ("  so far", moved),
        ("  deferred", waits.text()),
    ]
}

/// `lowest 1, all others 2`: those that differ from what most have, and that.
fn targets(targets: &[Option<u32>; 7]) -> String {
    let alike = |target: &Option<u32>| targets.iter().filter(|other| *other == target).count();
    // The most urgent of those that most have.
    let usual = targets.iter().copied().max_by_key(alike).unwrap_or(None);
    let named = Priority::ALL.iter().zip(targets);
    let named = named.filter(|(_, target)| **target != usual);
    let mut texts: Vec<String> = named
        .map(|(priority, target)| format!("{priority} {}", limit(*target)))
        .collect();
    let others = if texts.is_empty() {
        "all"
    } else {
        "all others"
    };
    texts.push(format!("{others} {}", limit(usual)));
    texts.join(", ")
}

/// The averages over 10 seconds, by the name that `pressure` gives them.
fn pressure(pressure: &Pressure) -> String {
    let [some, full] = [pressure.some, pressure.full].map(|stalled| percent(stalled.averages[0]));
    format!("some {some}, full {full} (avg10)")
}

/// How many, how long it took half of them, nearly all (two estimates), and the one that took longest.
fn durations(durations: &Durations) -> String {
    let quantile = |share| durations.estimate_us(share).map(fine_time);
    match (quantile(0.5), quantile(0.99)) {
        (Some(half), Some(most)) => format!(
            "{}, p50 ~{half}, p99 ~{most}, longest {}",
            durations.count(),
            fine_time(durations.longest_us)
        ),
        _ => "none yet".into(),
    }
}

/// What became of those who had to wait, at any gate.
struct Waits {
    deferred: u64,
    completed: u64,
    cancelled: u64,
    lost: u64,
    queued: u64,
}

impl Waits {
    fn text(&self) -> String {
        let Waits {
            deferred,
            completed,
            cancelled,
            lost,
            queued,
        } = self;
        if *deferred == 0 {
            return "0".into();
        }
        format!(
            "{deferred} = completed {completed} + cancelled {cancelled} + lost {lost} + queued {queued}"
        )
    }
}

fn sum(queued: &[u64; 7]) -> u64 {
    queued
        .iter()
        .fold(0, |sum, queued| sum.saturating_add(*queued))
}

/// For how long the first in line has waited, if anybody has.
fn first(wait_ms: Option<u64>) -> String {
    wait_ms.map_or(String::new(), |ms| format!(", the first for {}", time(ms)))
}

/// The priorities that somebody waits in, if any, most urgent first.
fn by_priority(queued: &[u64; 7]) -> String {
    let some = Priority::ALL
        .iter()
        .zip(queued)
        .rev()
        .filter(|(_, queued)| **queued > 0);
    some.map(|(priority, queued)| format!(", {priority} {queued}"))
        .collect()
}
