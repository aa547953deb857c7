//! The feature `tracing`: documents as events. A binary of its own, so that one feature more is no second build of all
//! the others: `cargo test --no-default-features --features tracing --test trace_events`.
#![cfg(feature = "tracing")]

#[path = "api/calm.rs"]
#[allow(dead_code)]
mod calm;
#[path = "api/limiter_support.rs"]
#[allow(dead_code)]
mod limiter_support;
#[path = "api/support.rs"]
#[allow(dead_code)]
mod support;

use crate::limiter_support::limiter;
use crate::support::{NORMAL, Task, local, until};
use shmsched::trace::{self, Trace, Writer};
use shmsched::{Pacer, Priority, Scheduler};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

#[derive(Clone, Debug)]
struct Heard {
    level: Level,
    target: String,
    name: &'static str,
    fields: BTreeMap<&'static str, String>,
}

/// Keeps the events of a level and above.
#[derive(Clone)]
struct Ear {
    least: Level,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Ear {
    fn new(least: Level) -> Ear {
        let heard = Arc::default();
        Ear { least, heard }
    }

    fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }

    fn operations(&self) -> Vec<String> {
        let heard = self.take();
        heard
            .iter()
            .map(|event| event.fields["operation"].clone())
            .collect()
    }
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.least
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        let metadata = event.metadata();
        let (level, target) = (*metadata.level(), metadata.target().to_owned());
        let heard = Heard {
            level,
            target,
            name: metadata.name(),
            fields,
        };
        self.heard.lock().unwrap().push(heard);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn waits(scheduler: &Scheduler) {
    let permit = scheduler.try_acquire(NORMAL).unwrap();
    let mut task = Task::waiting(scheduler.run(|| async {}, Priority::High));
    drop(permit);
    until("it ran", || task.poll().is_some());
    assert!(scheduler.try_acquire_many(2, NORMAL).is_err());
}

const ALL: [&str; 6] = [
    "scheduler:queue",
    "scheduler:park",
    "scheduler:dispatch",
    "scheduler:unpark",
    "scheduler:task",
    "scheduler:error",
];

#[test]
fn documents_are_events() {
    let ear = Ear::new(Level::TRACE);
    tracing::subscriber::with_default(ear.clone(), || {
        // By default, and for who says so.
        waits(&local(1));
        let events = ear.take();
        let told: Vec<_> = events
            .iter()
            .map(|event| &*event.fields["operation"])
            .collect();
        assert_eq!(told, ALL);
        assert!(events.iter().all(|event| event.target == "shmsched"));
        // The name is the operation; every field is one of a document.
        const FIELDS: [&str; 11] = [
            "amount",
            "execution",
            "gate",
            "generation",
            "member",
            "operation",
            "outcome",
            "pending",
            "priority",
            "queue_wait",
            "segment",
        ];
        for event in &events {
            assert_eq!(event.name, event.fields["operation"]);
            let named = |field: &&str| FIELDS.contains(field);
            assert!(event.fields.keys().all(named), "{event:?}");
        }
        let [queue, _, dispatch, _, task, error] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(queue.level, Level::TRACE);
        assert_eq!(queue.fields["pending"], "1");
        assert!(!queue.fields.contains_key("queue_wait"));
        assert!(dispatch.fields["queue_wait"].parse::<f64>().unwrap() > 0.0);
        assert_eq!(task.level, Level::DEBUG);
        for (field, value) in [
            ("gate", "scheduler"),
            ("priority", "high"),
            ("amount", "1"),
            ("member", "0"),
            ("outcome", "completed"),
        ] {
            assert_eq!(task.fields[field], value, "{field}");
        }
        // In seconds.
        let seconds = |field: &str| task.fields[field].parse::<f64>().unwrap();
        assert!(seconds("execution") >= 0.0 && seconds("queue_wait") > 0.0);
        assert!(seconds("queue_wait") < 60.0);
        assert_eq!(error.level, Level::WARN);
        assert_eq!(
            error.fields["outcome"],
            "2 slots do not fit into a concurrency of 1"
        );
        waits(&local(1).with_trace(Trace::Writer(Writer::tracing())));
        assert_eq!(ear.operations(), ALL);
        let refused = limiter(1).blocking_acquire(u32::MAX, NORMAL);
        assert!(refused.is_err());
        let pacer = Pacer::local(Duration::from_secs(60), 0).unwrap();
        pacer.try_start().unwrap();
        assert!(pacer.blocking_start().is_err());
        assert_eq!(ear.operations(), ["limiter:error", "pacer:reject"]);
    });
}

#[test]
fn what_nobody_is_interested_in_is_not_told() {
    for (least, count) in [(Level::INFO, 1), (Level::DEBUG, 2), (Level::TRACE, 6)] {
        let ear = Ear::new(least);
        tracing::subscriber::with_default(ear.clone(), || waits(&local(1)));
        assert_eq!(ear.take().len(), count, "{least}");
    }
}

#[test]
fn a_default_writer_comes_before_events() {
    let ear = Ear::new(Level::TRACE);
    tracing::subscriber::with_default(ear.clone(), || {
        let count = Arc::new(Mutex::new(0));
        let counts = count.clone();
        let writer = Writer::new(move |_, _| *counts.lock().unwrap() += 1);
        trace::set_thread_default(Some(writer));
        waits(&local(1));
        waits(&local(1).with_trace(Trace::Disabled));
        trace::set_thread_default(None);
        assert_eq!(*count.lock().unwrap(), 6);
        assert!(ear.take().is_empty());
    });
}
