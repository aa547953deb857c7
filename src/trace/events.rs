//! Documents as events of the `tracing` crate: target `shmsched`, the operation in the field `op`.

use super::{Document, Write, Writer};
use crate::snapshot::Gate;
use std::sync::LazyLock;
use std::time::Duration;
use tracing::Level;

const TARGET: &str = "shmsched";

impl Writer {
    /// One that emits events of the `tracing` crate, whatever the thread's default writer is.
    ///
    /// Target `shmsched`; the operation is the field `op`, the others are named as those of a [`Document`], the times in
    /// milliseconds (`queue_wait_ms`, `execution_ms`); what is not there is left out. `error` is a warning, steps of a wait
    /// (`queue`, `dispatch`, `cancel`, `park`, `unpark`) are traces, all others are for debugging. What no subscriber is
    /// interested in is not evaluated.
    pub fn tracing() -> Writer {
        Writer::of(Write::Events)
    }
}

/// One for all who named none.
pub(super) fn writer() -> Writer {
    static WRITER: LazyLock<Writer> = LazyLock::new(Writer::tracing);
    WRITER.clone()
}

fn level(operation: &str) -> Level {
    match operation.split_once(':') {
        Some((_, "error")) => Level::WARN,
        Some((_, "queue" | "dispatch" | "cancel" | "park" | "unpark")) => Level::TRACE,
        _ => Level::DEBUG,
    }
}

pub(super) fn hears(operation: &str) -> bool {
    match level(operation) {
        Level::WARN => tracing::enabled!(target: TARGET, Level::WARN),
        Level::DEBUG => tracing::enabled!(target: TARGET, Level::DEBUG),
        _ => tracing::enabled!(target: TARGET, Level::TRACE),
    }
}

fn gate(document: &Document) -> &'static str {
    match document.gate {
        Gate::Scheduler => "scheduler",
        Gate::Limiter => "limiter",
        Gate::Pacer => "pacer",
    }
}

fn ms(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64() * 1e3)
}

pub(super) fn emit(document: &Document) {
    macro_rules! event {
        ($level:expr) => {
            tracing::event!(
                target: TARGET,
                $level,
                op = document.operation,
                gate = gate(document),
                segment = document.segment.as_deref(),
                member = document.member.index,
                generation = document.member.generation,
                priority = document.priority.map(|priority| priority.name()),
                amount = document.amount,
                queue_wait_ms = ms(document.queue_wait),
                execution_ms = ms(document.execution),
                pending = document.pending,
                outcome = document.outcome.as_ref().map(tracing::field::display),
            )
        };
    }
    match level(document.operation) {
        Level::WARN => event!(Level::WARN),
        Level::DEBUG => event!(Level::DEBUG),
        _ => event!(Level::TRACE),
    }
}
