//! Documents as events of the `tracing` crate: target `shmsched`, the operation as name and as field.

use super::{Document, Write, Writer};
use crate::snapshot::Gate;
use std::sync::LazyLock;
use std::time::Duration;
use tracing::Level;

const TARGET: &str = "shmsched";

impl Writer {
    /// One that emits events of the `tracing` crate, whatever the thread's default writer is.
    ///
    /// The target is `shmsched`, the name of an event its operation. The fields are those of a [`Document`], under the same
    /// names: `operation`, `gate`, `segment`, `member` (its slot; beside it `generation`), `priority`, `amount`,
    /// `queue_wait` and `execution` in seconds, `pending`, `outcome`; what is not there is left out. `error` is a warning,
    /// steps of a wait (`queue`, `dispatch`, `cancel`, `park`, `unpark`) are traces, all others are for debugging. What no
    /// subscriber is interested in is not evaluated.
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

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

/// An event has its name and level where it is written: one for each operation.
macro_rules! events {
    ($($level:ident: $($operation:literal)*;)*) => {
        /// The operations that are told.
        #[cfg(test)]
        const TOLD: &[(&str, Level)] = &[$($(($operation, Level::$level)),*),*];

        pub(super) fn emit(document: &Document) {
            match document.operation {
                $($($operation => tracing::event!(
                    name: $operation,
                    target: TARGET,
                    Level::$level,
                    operation = document.operation,
                    gate = gate(document),
                    segment = document.segment.as_deref(),
                    member = document.member.index,
                    generation = document.member.generation,
                    priority = document.priority.map(|priority| priority.name()),
                    amount = document.amount,
                    queue_wait = seconds(document.queue_wait),
                    execution = seconds(document.execution),
                    pending = document.pending,
                    outcome = document.outcome.as_ref().map(tracing::field::display),
                ),)*)*
                // There is no other.
                _ => {}
            }
        }
    };
}

events! {
    WARN: "scheduler:error" "limiter:error" "pacer:error";
    DEBUG: "scheduler:task" "scheduler:dispose"
        "limiter:backlog" "limiter:stall" "limiter:force"
        "pacer:backlog" "pacer:reject";
    TRACE: "scheduler:queue" "scheduler:dispatch" "scheduler:cancel" "scheduler:park" "scheduler:unpark"
        "limiter:queue" "limiter:dispatch" "limiter:cancel"
        "pacer:queue" "pacer:dispatch" "pacer:cancel";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::OPERATIONS;

    #[test]
    fn every_operation_is_told() {
        assert_eq!(TOLD.len(), OPERATIONS.len());
        for (operation, at) in TOLD {
            assert!(OPERATIONS.contains(operation), "{operation}");
            assert_eq!(level(operation), *at, "{operation}");
        }
    }
}
