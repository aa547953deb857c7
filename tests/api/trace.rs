//! Group O, and what A, H and K say of tracing: who is told what.

use crate::calm::undisturbed;
use crate::limiter_support::{Log, Rated, into_debt, limiter};
use crate::support::{
    MEANT, NORMAL, Shared, Task, alone, ends, local, panics_of, until, watch_panics,
};
use shmsched::trace::{self, Document, OPERATIONS, Outcome, Trace, Warning, Writer};
use shmsched::{
    AcquireError, CancelToken, Concurrency, Gate, InvalidSettings, Limiter, Pacer, Priority,
    Scheduler, Segment, Settings,
};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// So deep in debt that who comes must wait, however late he comes: for a minute, unless it is paid.
const DEBT: u32 = 60_000;

/// A writer that keeps what it is told.
#[derive(Clone)]
struct Ear {
    heard: Arc<Mutex<Vec<Document>>>,
    writer: Writer,
}

impl Ear {
    fn new() -> Ear {
        let heard: Arc<Mutex<Vec<Document>>> = Arc::default();
        let keeps = heard.clone();
        let writer = Writer::new(move |document, operation| {
            assert_eq!(document.operation, operation);
            keeps.lock().unwrap().push(document.clone());
        });
        Ear { heard, writer }
    }

    fn trace(&self) -> Trace {
        Trace::Writer(self.writer.clone())
    }

    /// Everything since the last look.
    fn take(&self) -> Vec<Document> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }

    fn operations(&self) -> Vec<&'static str> {
        self.take()
            .iter()
            .map(|document| document.operation)
            .collect()
    }

    /// The only one there is of a kind.
    #[track_caller]
    fn only(&self, operation: &str) -> Document {
        let all = self.take();
        let mut found = all
            .iter()
            .filter(|document| document.operation == operation);
        let first = found
            .next()
            .unwrap_or_else(|| panic!("no {operation} in {all:?}"));
        assert!(found.next().is_none(), "{all:?}");
        first.clone()
    }

    fn has(&self, operation: &str) -> bool {
        let heard = self.heard.lock().unwrap();
        heard.iter().any(|document| document.operation == operation)
    }

    /// Runs something with this as the thread's default.
    fn by_default<T>(&self, f: impl FnOnce() -> T) -> T {
        let before = trace::set_thread_default(Some(self.writer.clone()));
        let result = f();
        let mine = trace::set_thread_default(before);
        assert!(mine.unwrap().is_same(&self.writer));
        result
    }
}

fn run(scheduler: &Scheduler) {
    scheduler.run_blocking(|| (), NORMAL).unwrap();
}

/// Polls a future of `run` to its end.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    futures_executor::block_on(future)
}

#[test]
fn a7_the_shared_form_takes_a_writer_and_a_threshold() {
    let shared = Shared::new(4);
    let ear = Ear::new();
    let scheduler = shared
        .member()
        .with(Concurrency::default().target(Priority::Low, 2));
    let scheduler = scheduler.with_trace(ear.trace()).with_trace_threshold(HOUR);
    run(&scheduler);
    assert_eq!(ear.take(), []);
    run(&scheduler.with_trace_threshold(Duration::ZERO));
    let task = ear.only("scheduler:task");
    assert_eq!(task.segment.as_deref(), Some(&*shared.location.name()));
    assert_eq!(task.gate, Gate::Scheduler);
    // Targets come after the trace as well as before it.
    run(&scheduler.with_trace_threshold(Duration::ZERO).with(1));
    assert_eq!(ear.operations(), ["scheduler:task"]);
}

#[test]
fn a8_null_turns_the_default_off() {
    let ear = Ear::new();
    ear.by_default(|| {
        let scheduler = local(1);
        run(&scheduler.with_trace(Trace::Disabled));
        assert_eq!(ear.take(), []);
        run(&scheduler);
        assert_eq!(ear.operations(), ["scheduler:task"]);
        run(&scheduler
            .with_trace(Trace::Disabled)
            .with_trace(Trace::Default));
        assert_eq!(ear.operations(), ["scheduler:task"]);
    });
}

#[test]
fn a9_the_threshold_is_finite_and_not_negative() {
    let scheduler = local(1);
    for refused in [-1.0, -0.001, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = scheduler.with_trace_threshold_ms(refused).unwrap_err();
        assert_eq!(error, InvalidSettings::TraceThresholdMs);
        assert_eq!(
            error.to_string(),
            "traceTaskThresholdMs must be finite and non-negative"
        );
    }
    let ear = Ear::new();
    let scheduler = scheduler.with_trace(ear.trace());
    // With a fraction, and longer than a thread is ever kept from running.
    for accepted in [0.0, 3_600_000.5, f64::MAX] {
        run(&scheduler.with_trace_threshold_ms(accepted).unwrap());
        assert_eq!(ear.take().len(), usize::from(accepted == 0.0), "{accepted}");
    }
    // Left out it is 0.
    run(&scheduler);
    assert_eq!(ear.take().len(), 1);
    // Another writer keeps the threshold.
    run(&scheduler.with_trace_threshold(HOUR).with_trace(ear.trace()));
    assert_eq!(ear.take(), []);
}

/// Something of a Limiter that is told.
fn fail(limiter: &Limiter) {
    assert!(limiter.blocking_acquire(u32::MAX, NORMAL).is_err());
}

#[test]
fn h5_a_limiter_takes_a_writer() {
    let (ear, other) = (Ear::new(), Ear::new());
    let plain = limiter(1_000);
    let traced = plain.with_trace(ear.trace());
    other.by_default(|| {
        fail(&traced);
        assert_eq!(ear.operations(), ["limiter:error"]);
        assert_eq!(other.take(), []);
        fail(&plain.with_trace(Trace::Disabled));
        assert_eq!(other.take(), []);
        fail(&plain);
        let error = other.only("limiter:error");
        assert_eq!((error.amount, error.priority), (u32::MAX, Some(NORMAL)));
        let failed = AcquireError::TooManyTokens { amount: u32::MAX };
        assert_eq!(error.outcome, Some(Outcome::Failed(failed)));
    });
}

#[test]
fn h6_the_shared_form_of_a_limiter_takes_a_writer() {
    let rated = Rated::new(1_000);
    let ear = Ear::new();
    let limiter = rated.member().with_trace(ear.trace());
    assert_eq!(limiter.tokens_per_second(), 1_000);
    into_debt(&limiter, DEBT);
    ear.take();
    thread::scope(|scope| {
        scope.spawn(|| {
            until("it waits", || limiter.stats().pending == 1);
            thread::sleep(Duration::from_millis(6));
            limiter.refund(DEBT);
        });
        limiter.blocking_acquire(10, Priority::High).unwrap();
    });
    let dispatch = ear.only("limiter:dispatch");
    assert_eq!(dispatch.segment.as_deref(), Some(&*rated.location.name()));
    assert_eq!(
        (dispatch.amount, dispatch.priority),
        (10, Some(Priority::High))
    );
    assert!(dispatch.queue_wait.unwrap() > Duration::from_millis(5));
}

#[test]
fn k12_x45_children_inherit() {
    let ear = Ear::new();
    let parent = limiter(1_000).with_trace(ear.trace());
    let child = parent.child(500).unwrap();
    fail(&child);
    assert_eq!(ear.operations(), ["limiter:error"]);
    fail(&child.child(100).unwrap());
    assert_eq!(ear.operations(), ["limiter:error"]);
    ear.by_default(|| {
        let silent = child.with_trace(Trace::Disabled);
        fail(&silent);
        fail(&silent.child(100).unwrap());
        fail(&parent.with_trace(Trace::Disabled).child(100).unwrap());
        assert_eq!(ear.take(), []);
        // A parent that has none of its own: neither has its child.
        fail(&limiter(10).child(10).unwrap());
        assert_eq!(ear.operations(), ["limiter:error"]);
    });
    fail(&limiter(10).child(10).unwrap());
    assert_eq!(ear.take(), []);
}

/// Its child's writer may be another; what waits at both levels is told once.
#[test]
fn k11_a_child_takes_a_writer() {
    let (above, below) = (Ear::new(), Ear::new());
    let parent = limiter(1_000).with_trace(above.trace());
    let child = parent.child(1_000_000).unwrap().with_trace(below.trace());
    into_debt(&parent, DEBT);
    above.take();
    thread::scope(|scope| {
        scope.spawn(|| {
            until("it waits", || below.has("limiter:backlog"));
            parent.refund(DEBT);
        });
        child.blocking_acquire(20, NORMAL).unwrap();
    });
    let steps = [
        "limiter:queue",
        "limiter:backlog",
        "limiter:dispatch",
        "limiter:backlog",
    ];
    assert_eq!(below.operations(), steps);
    assert_eq!(above.take(), []);
}

#[test]
fn o1_a_writer_gets_a_document_and_the_operation() {
    let heard: Arc<Mutex<Vec<(Document, &'static str)>>> = Arc::default();
    let keeps = heard.clone();
    let writer = Writer::new(move |document: &Document, operation: &'static str| {
        keeps.lock().unwrap().push((document.clone(), operation));
    });
    let scheduler = local(1).with_trace(Trace::Writer(writer));
    scheduler
        .run_blocking(|| thread::sleep(Duration::from_millis(3)), Priority::High)
        .unwrap();
    let [(document, operation)] = &heard.lock().unwrap()[..] else {
        panic!("{heard:?}");
    };
    assert_eq!(*operation, "scheduler:task");
    assert_eq!(document.operation, *operation);
    assert_eq!(document.priority, Some(Priority::High));
    assert_eq!((document.amount, document.segment.as_ref()), (1, None));
    assert_eq!(
        document.queue_wait,
        Some(Duration::ZERO),
        "it did not queue"
    );
    assert!(document.execution.unwrap() >= Duration::from_millis(3));
    assert_eq!(document.outcome, Some(Outcome::Completed));
}

#[test]
fn o2_the_default_is_looked_up_each_time() {
    let ear = Ear::new();
    let (scheduler, limiter) = (local(1), limiter(10));
    run(&scheduler);
    fail(&limiter);
    ear.by_default(|| {
        run(&scheduler);
        fail(&limiter);
        assert_eq!(ear.operations(), ["scheduler:task", "limiter:error"]);
        // It is this thread's.
        thread::scope(|scope| scope.spawn(|| run(&scheduler)).join().unwrap());
        assert_eq!(ear.take(), []);
    });
    run(&scheduler);
    fail(&limiter);
    assert_eq!(ear.take(), []);
}

/// Whoever serves a callback: its documents go to who asked.
#[test]
fn o2_a_wait_is_told_to_who_asked() {
    let (ear, other) = (Ear::new(), Ear::new());
    let scheduler = local(1);
    let permit = scheduler.try_acquire(NORMAL).unwrap();
    let released = scheduler.clone();
    ear.by_default(|| {
        scheduler.acquire_with(move |()| released.release().unwrap(), NORMAL, ());
    });
    assert_eq!(ear.operations(), ["scheduler:queue", "scheduler:park"]);
    other.by_default(|| drop(permit));
    until("it ran", || ear.has("scheduler:unpark"));
    assert_eq!(ear.operations(), ["scheduler:dispatch", "scheduler:unpark"]);
    assert_eq!(other.take(), []);
    // By the helper, and through another handle of the member.
    let limiter = limiter(1_000);
    into_debt(&limiter, DEBT);
    let log = Log::new();
    log.queue(&limiter.with_trace(ear.trace()), 5, NORMAL, ());
    log.queue(&limiter.with_trace(other.trace()), 5, NORMAL, ());
    limiter.refund(DEBT);
    log.take(2);
    let first = ["limiter:queue", "limiter:backlog", "limiter:dispatch"];
    assert_eq!(ear.operations(), first);
    let second = ["limiter:queue", "limiter:dispatch", "limiter:backlog"];
    assert_eq!(other.operations(), second);
}

#[test]
fn o3_disabled_is_silent_in_everything() {
    let ear = Ear::new();
    ear.by_default(|| {
        scenario(&Trace::Disabled, &Ear::new());
        assert_eq!(ear.take(), []);
    });
}

#[test]
fn o4_a_writer_is_switched_at_run_time() {
    let ear = Ear::new();
    let scheduler = local(1).with_trace(ear.trace());
    for on in [true, false, true, false] {
        ear.writer.switch(on);
        assert_eq!(ear.writer.clone().is_on(), on);
        run(&scheduler);
        assert_eq!(ear.take().len(), usize::from(on));
    }
    // Also in the middle of a wait.
    ear.writer.switch(true);
    let permit = scheduler.try_acquire(NORMAL).unwrap();
    let mut task = Task::waiting(scheduler.acquire(NORMAL));
    ear.writer.switch(false);
    drop(permit);
    until("it has its slot", || task.poll().is_some());
    assert_eq!(ear.operations(), ["scheduler:queue", "scheduler:park"]);
    // And of a task.
    scheduler
        .run_blocking(|| ear.writer.switch(true), NORMAL)
        .unwrap_or_else(|_| unreachable!());
    assert_eq!(ear.take(), [], "nobody listened when it began");
}

/// It must not, but if it does: nothing hangs, and within a writer nothing is told.
#[test]
fn o5_a_writer_that_calls_back() {
    ends("a writer that uses what it traces", || {
        let told: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let place: Arc<Mutex<Option<(Scheduler, Limiter, Pacer)>>> = Arc::default();
        let (keeps, at) = (told.clone(), place.clone());
        let writer = Writer::new(move |_, operation| {
            keeps.lock().unwrap().push(operation);
            let Some((scheduler, limiter, pacer)) = at.lock().unwrap().clone() else {
                return;
            };
            let _ = scheduler.try_acquire(NORMAL);
            let _ = scheduler.blocking_acquire_until(1, NORMAL, Duration::from_millis(1));
            let _ = scheduler.run_blocking(|| (), NORMAL);
            let _ = limiter.try_consume(0);
            let _ = (scheduler.stats(), limiter.stats(), pacer.stats());
            scheduler.acquire_with(drop, NORMAL, ());
            let _ = scheduler.release();
            let _ = block_on(limiter.acquire_until(1, NORMAL, Duration::from_millis(1)));
            let _ = block_on(pacer.start_until(Duration::from_millis(1)));
            fail(&limiter);
        });
        let trace = Trace::Writer(writer);
        let scheduler = local(4).with_trace(trace.clone());
        let limiter = limiter(1_000_000).with_trace(trace.clone());
        let pacer = Pacer::local(Duration::from_millis(1), 8)
            .unwrap()
            .with_trace(trace);
        *place.lock().unwrap() = Some((scheduler.clone(), limiter.clone(), pacer.clone()));
        for _ in 0..20 {
            run(&scheduler);
            fail(&limiter);
            let _ = pacer.blocking_start();
        }
        let told = std::mem::take(&mut *told.lock().unwrap());
        let known = [
            "scheduler:task",
            "limiter:error",
            "pacer:queue",
            "pacer:backlog",
            "pacer:dispatch",
        ];
        assert!(
            told.iter().all(|operation| known.contains(operation)),
            "{told:?}"
        );
        assert_eq!(
            told.iter()
                .filter(|operation| **operation == known[0])
                .count(),
            20
        );
        // The cycle of handle and writer ends here.
        *place.lock().unwrap() = None;
        until("every slot came back", || scheduler.stats().running == 0);
    });
}

/// What it is called from is left as it should be, whatever it calls: it may even end it.
#[test]
fn o5_a_writer_that_disposes() {
    ends("a writer that disposes", || {
        let place: Arc<Mutex<Option<Scheduler>>> = Arc::default();
        let at = place.clone();
        let scheduler = local(1).with_trace(Trace::Writer(Writer::new(move |_, operation| {
            if operation == "scheduler:queue"
                && let Some(scheduler) = at.lock().unwrap().take()
            {
                scheduler.dispose();
            }
        })));
        let permit = scheduler.try_acquire(NORMAL).unwrap();
        *place.lock().unwrap() = Some(scheduler.clone());
        assert_eq!(
            scheduler.blocking_acquire(NORMAL).err(),
            Some(AcquireError::Disposed)
        );
        drop(permit);
        assert_eq!(scheduler.stats().total.count, 0);
    });
}

fn panicking(text: &'static str) -> Trace {
    watch_panics();
    Trace::Writer(Writer::new(move |_, _| panic!("{text}")))
}

#[test]
fn o6_a_panicking_writer_is_contained() {
    let text = "meant: a writer of o6";
    let trace = panicking(text);
    let scheduler = local(1).with_trace(trace.clone());
    assert_eq!(scheduler.run_blocking(|| 7, NORMAL), Ok(7));
    assert_eq!(block_on(scheduler.run(|| async { 8 }, NORMAL)), Ok(8));
    // Also while another panic goes on its way.
    let run = || scheduler.run_blocking(|| panic!("{MEANT}a task of o6"), NORMAL);
    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    assert_eq!(
        panic.downcast_ref::<String>().unwrap(),
        "meant: a task of o6"
    );
    let permit = scheduler.try_acquire(NORMAL).unwrap();
    let mut dropped = Task::waiting(scheduler.acquire(NORMAL));
    let mut kept = Task::waiting(scheduler.acquire(NORMAL));
    assert!(dropped.poll().is_none());
    drop(dropped);
    drop(permit);
    until("it has its slot", || kept.poll().is_some());
    drop(kept);
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.total.count), (0, 0));
    assert_eq!((stats.total.completed, stats.total.cancelled), (1, 1));
    let limiter = limiter(1_000).with_trace(trace);
    into_debt(&limiter, DEBT);
    let log = Log::new();
    log.queue(&limiter, 5, NORMAL, "first");
    log.queue(&limiter, 5, NORMAL, "second");
    limiter.refund(DEBT);
    assert_eq!(log.take(2), ["first", "second"]);
    limiter.blocking_drain();
    assert!(panics_of(text).len() > 10);
}

#[test]
fn o7_contained_panics_are_warned_of() {
    let name = "trace::o7_contained_panics_are_warned_of";
    alone(name, || {
        let warned: Arc<Mutex<Vec<Warning>>> = Arc::default();
        let keeps = warned.clone();
        trace::set_warning_hook(Some(Box::new(move |warning| {
            keeps.lock().unwrap().push(warning.clone());
            if warning.operation == "scheduler:park" {
                panic!("{MEANT}a hook");
            }
        })));
        let scheduler = local(1).with_trace(panicking("meant: a writer of o7"));
        let permit = scheduler.try_acquire(NORMAL).unwrap();
        let task = Task::waiting(scheduler.acquire(NORMAL));
        drop(permit);
        drop(task);
        let warned = std::mem::take(&mut *warned.lock().unwrap());
        let operations: Vec<_> = warned.iter().map(|warning| warning.operation).collect();
        let expected = [
            "scheduler:queue",
            "scheduler:park",
            "scheduler:cancel",
            "scheduler:unpark",
        ];
        assert_eq!(operations, expected);
        assert_eq!(warned[0].message, "meant: a writer of o7");
        let line = "a trace writer panicked at scheduler:queue: meant: a writer of o7";
        assert_eq!(warned[0].to_string(), line);
        // One that says nothing, and whose value panics when it is dropped.
        struct Drops;
        impl Drop for Drops {
            fn drop(&mut self) {
                panic!("{MEANT}a value");
            }
        }
        let writer = Writer::new(|_, _| std::panic::panic_any(Drops));
        trace::set_warning_hook(None);
        run(&local(1).with_trace(Trace::Writer(writer)));
    });
}

#[test]
fn o7_without_a_hook_one_line() {
    const ALONE: &str = "SHMSCHED_TEST_NO_HOOK";
    if std::env::var_os(ALONE).is_some() {
        let scheduler = local(1).with_trace(panicking("meant: without a hook"));
        return (0..3).for_each(|_| run(&scheduler));
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "trace::o7_without_a_hook_one_line",
            "--exact",
            "--nocapture",
        ])
        .env(ALONE, "")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let line = "shmsched: a trace writer panicked at scheduler:task: meant: without a hook";
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        printed.lines().filter(|printed| *printed == line).count(),
        1,
        "{printed}"
    );
}

/// A scheduler, a limiter and a pacer do everything there is.
fn scenario(trace: &Trace, ear: &Ear) -> BTreeSet<&'static str> {
    watch_panics();
    let scheduler = local(1).with_trace(trace.clone());
    // Queue, park, dispatch, unpark; task.
    let permit = scheduler.try_acquire(NORMAL).unwrap();
    let mut task = Task::waiting(scheduler.run(|| async {}, NORMAL));
    // Cancel.
    drop(Task::waiting(scheduler.acquire(Priority::Low)));
    drop(permit);
    until("it ran", || task.poll().is_some());
    // Error.
    assert!(scheduler.try_acquire_many(2, NORMAL).is_err());
    scheduler.dispose();

    let limiter = limiter(1_000).with_trace(trace.clone());
    // More than the capacity, into debt: force.
    into_debt(&limiter, DEBT);
    drop(Task::waiting(limiter.acquire(1, NORMAL)));
    limiter.refund(DEBT);
    // What is passed for a second: stall. Unless nobody takes anything for nearly as long.
    undisturbed(|| {
        let (log, before) = (Log::new(), limiter.stats().forced);
        let low = log.consume(&limiter, 900, Priority::Low, "low");
        let mut taken = 0;
        while low == Ok(false) && log.is_silent() && taken < 1_000 {
            limiter.blocking_acquire(20, Priority::High).unwrap();
            taken += 1;
        }
        limiter.stats().forced > before
    });
    fail(&limiter);

    let pacer = Pacer::local(HOUR, 1).unwrap().with_trace(trace.clone());
    pacer.try_start().unwrap();
    let waits = Task::waiting(pacer.start());
    assert!(pacer.blocking_start().is_err(), "the queue is full");
    drop(waits);
    let pacer = Pacer::local(Duration::from_millis(50), 1).unwrap();
    let pacer = pacer.with_trace(trace.clone());
    // One that comes late has no need to wait.
    undisturbed(|| {
        let _ = pacer.try_start();
        pacer.blocking_start().unwrap();
        pacer.stats().completed > 0
    });
    let shared = {
        let directory = tempfile::tempdir().unwrap();
        let location = shmsched::Location::File(directory.path().join("segment"));
        let settings = Settings::new().interval(SECOND);
        let segment = Segment::create(&location, &settings).unwrap();
        let pacer = segment.pacer().unwrap().with_trace(trace.clone());
        Segment::remove(&location, true).unwrap();
        pacer
    };
    assert!(shared.blocking_start().is_err(), "retired");
    ear.operations().into_iter().collect()
}

#[test]
fn o8_o9_every_operation_is_told() {
    let ear = Ear::new();
    let told = scenario(&ear.trace(), &ear);
    let all: BTreeSet<_> = OPERATIONS.into_iter().collect();
    assert_eq!(told, all);
    assert_eq!(all.len(), OPERATIONS.len());
}

#[test]
fn o8_the_steps_of_a_wait() {
    let ear = Ear::new();
    let scheduler = local(2).with_trace(ear.trace());
    let permit = scheduler.try_acquire_many(2, NORMAL).unwrap();
    assert_eq!(ear.take(), [], "what fits at once is not told");
    let mut first = Task::waiting(scheduler.acquire_many(2, Priority::High));
    let second = Task::waiting(scheduler.acquire(Priority::Low));
    let [queue, park, queued] = &ear.take()[..] else {
        panic!();
    };
    assert_eq!(
        (queue.operation, queue.pending, queue.amount),
        ("scheduler:queue", Some(1), 2)
    );
    assert_eq!((park.operation, park.pending), ("scheduler:park", Some(1)));
    assert_eq!(
        (queued.operation, queued.pending),
        ("scheduler:queue", Some(2))
    );
    assert_eq!(queued.priority, Some(Priority::Low));
    thread::sleep(Duration::from_millis(5));
    drop(permit);
    until("it has its slots", || first.poll().is_some());
    let dispatch = ear.only("scheduler:dispatch");
    assert!(dispatch.queue_wait.unwrap() >= Duration::from_millis(5));
    drop(second);
    let [cancel, unpark] = &ear.take()[..] else {
        panic!();
    };
    assert_eq!(cancel.operation, "scheduler:cancel");
    assert_eq!(cancel.outcome, Some(Outcome::Cancelled));
    assert_eq!(
        (unpark.operation, unpark.pending),
        ("scheduler:unpark", Some(0))
    );
}

/// However a wait ends, its queueing and its end are told once each.
#[test]
fn o8_every_wait_has_one_end() {
    let ear = Ear::new();
    let scheduler = local(1).with_trace(ear.trace());
    let permit = scheduler.try_acquire(NORMAL).unwrap();
    // One whose time is up before it joins does not wait.
    let waited = || scheduler.stats().total.deferred;
    let soon = Duration::from_millis(20);
    undisturbed(|| {
        let timed = scheduler.blocking_acquire_until(1, NORMAL, soon);
        assert!(timed.is_err());
        waited() == 1
    });
    undisturbed(|| {
        let mut late = Task::new(scheduler.acquire_until(1, NORMAL, soon));
        until("it is late", || late.poll().is_some());
        waited() == 2
    });
    drop(Task::waiting(scheduler.acquire(NORMAL)));
    scheduler.acquire_with(|()| unreachable!(), NORMAL, ());
    let mut closed = Task::waiting(scheduler.acquire(NORMAL));
    let waits = thread::scope(|scope| {
        let thread = scope.spawn(|| scheduler.blocking_acquire(NORMAL).err());
        until("it waits", || scheduler.stats().pending == 3);
        scheduler.close();
        thread.join().unwrap()
    });
    assert_eq!(waits, Some(AcquireError::Closed));
    assert_eq!(closed.poll().unwrap().err(), Some(AcquireError::Closed));
    drop(permit);
    let all = ear.take();
    let count = |operation, outcome: Option<Outcome>| {
        let of =
            |document: &&Document| document.operation == operation && document.outcome == outcome;
        all.iter().filter(of).count()
    };
    assert_eq!(count("scheduler:queue", None), 6);
    assert_eq!(count("scheduler:cancel", Some(Outcome::TimedOut)), 2);
    assert_eq!(count("scheduler:cancel", Some(Outcome::Cancelled)), 1);
    let failed = Outcome::Failed(AcquireError::Closed);
    assert_eq!(count("scheduler:error", Some(failed)), 3);
    assert_eq!(count("scheduler:dispatch", None), 0);
    assert_eq!(
        count("scheduler:park", None),
        count("scheduler:unpark", None)
    );
    // By the last handle, and by a token.
    let limiter = limiter(10).with_trace(ear.trace());
    into_debt(&limiter, DEBT);
    ear.take();
    assert_eq!(limiter.consume(drop, 10, NORMAL, ()), Ok(false));
    drop(limiter);
    assert_eq!(ear.only("limiter:cancel").outcome, Some(Outcome::Cancelled));
    let pacer = Pacer::local(HOUR, 1).unwrap().with_trace(ear.trace());
    pacer.try_start().unwrap();
    let token = CancelToken::new();
    let mut call = Task::waiting(pacer.run_cancellable(&token, |_| async {}));
    token.cancel("enough");
    assert!(call.poll().unwrap().is_err());
    assert_eq!(ear.only("pacer:cancel").outcome, Some(Outcome::Cancelled));
}

#[test]
fn o9_what_goes_into_debt() {
    let ear = Ear::new();
    let limiter = limiter(1_000).with_trace(ear.trace());
    // More than the capacity, as one call: all its steps are within it.
    assert_eq!(limiter.consume(drop, 1_100, NORMAL, ()), Ok(false));
    let steps = [
        "limiter:queue",
        "limiter:backlog",
        "limiter:force",
        "limiter:dispatch",
        "limiter:backlog",
    ];
    assert_eq!(ear.operations(), steps);
    // By the guard: more urgent work keeps the balance down, unless it does nothing for nearly a second.
    undisturbed(|| {
        let log = Log::new();
        let waits = log.consume(&limiter, 900, Priority::Low, ()) == Ok(false);
        while waits && log.is_silent() {
            limiter.blocking_acquire(20, Priority::High).unwrap();
        }
        let low: Vec<_> = ear.take();
        let low: Vec<_> = low
            .iter()
            .filter(|d| d.priority == Some(Priority::Low))
            .collect();
        let Some(at) = low.iter().position(|d| d.operation == "limiter:stall") else {
            return false;
        };
        assert_eq!(low[at + 1].operation, "limiter:force");
        assert_eq!(low[at + 2].operation, "limiter:dispatch");
        assert!(low[at].queue_wait.unwrap() >= SECOND);
        assert_eq!(low[at].amount, 900);
        true
    });
}

/// A panic of a callback, at once and from the queue.
#[test]
fn o9_a_callback_that_panics() {
    watch_panics();
    let ear = Ear::new();
    let [limiter, empty] = [1_000; 2].map(|rate| limiter(rate).with_trace(ear.trace()));
    let meant = |_: ()| panic!("{MEANT}a callback of o9");
    let now = || limiter.consume(meant, 5, Priority::High, ());
    assert!(catch_unwind(AssertUnwindSafe(now)).is_err());
    let error = ear.only("limiter:error");
    assert_eq!((error.outcome, error.amount), (Some(Outcome::Panicked), 5));
    into_debt(&empty, DEBT);
    assert_eq!(empty.consume(meant, 5, Priority::High, ()), Ok(false));
    empty.refund(DEBT);
    empty.blocking_drain();
    assert_eq!(ear.only("limiter:error").priority, Some(Priority::High));
    let scheduler = local(1).with_trace(ear.trace());
    let now = || scheduler.acquire_with(meant, NORMAL, ());
    assert!(catch_unwind(AssertUnwindSafe(now)).is_err());
    assert_eq!(ear.only("scheduler:error").outcome, Some(Outcome::Panicked));
    let permit = scheduler.try_acquire(NORMAL).unwrap();
    assert!(!scheduler.acquire_with(meant, NORMAL, ()));
    drop(permit);
    assert_eq!(ear.only("scheduler:error").outcome, Some(Outcome::Panicked));
    assert_eq!(scheduler.stats().running, 0);
}

/// The table of the rule itself is beside it, in `scheduler/task.rs`.
#[test]
fn o10_quick_is_quick_in_both() {
    let ear = Ear::new();
    let ms = Duration::from_millis;
    let threshold = ms(200);
    let scheduler = local(1)
        .with_trace(ear.trace())
        .with_trace_threshold(threshold);
    let sleeps = |time| move || thread::sleep(time);
    undisturbed(|| {
        let begun = Instant::now();
        scheduler.run_blocking(sleeps(ms(1)), NORMAL).unwrap();
        let (below, told) = (begun.elapsed() < threshold, ear.take());
        assert!(!below || told.is_empty(), "both below: {told:?}");
        below
    });
    scheduler.run_blocking(sleeps(threshold), NORMAL).unwrap();
    let task = ear.only("scheduler:task");
    assert_eq!(task.queue_wait, Some(Duration::ZERO));
    assert!(task.execution.unwrap() >= threshold);
    // It waited for long and ran for a moment; as a thread, and as a task.
    undisturbed(|| {
        let permit = scheduler.try_acquire_owned(NORMAL).unwrap();
        let mut task = Task::waiting(scheduler.run(|| async {}, NORMAL));
        thread::sleep(threshold);
        drop(permit);
        until("it ran", || task.poll().is_some());
        let told = ear.only("scheduler:task");
        assert!(told.queue_wait.unwrap() >= threshold);
        told.execution.unwrap() < threshold
    });
    let permit = scheduler.try_acquire_owned(NORMAL).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| run(&scheduler));
        until("it waits", || scheduler.stats().pending == 1);
        thread::sleep(threshold);
        drop(permit);
        waits.join().unwrap();
    });
    assert!(ear.only("scheduler:task").queue_wait.unwrap() >= threshold);
}

#[test]
fn o11_zero_is_every_task() {
    let ear = Ear::new();
    let scheduler = local(1).with_trace(ear.trace());
    run(&scheduler);
    block_on(scheduler.run(|| async {}, NORMAL)).unwrap();
    assert_eq!(ear.operations(), ["scheduler:task"; 2]);
    // Acquires are no tasks (X38).
    drop(scheduler.blocking_acquire(NORMAL).unwrap());
    scheduler.acquire_with(drop, NORMAL, ());
    scheduler.release().unwrap();
    assert_eq!(ear.take(), []);
}

#[test]
fn o12_errors_and_disposal_are_always_told() {
    watch_panics();
    let ear = Ear::new();
    let scheduler = local(1).with_trace(ear.trace()).with_trace_threshold(HOUR);
    let outcome = |ear: &Ear| ear.only("scheduler:task").outcome.unwrap();
    let panics = || scheduler.run_blocking(|| panic!("{MEANT}a task of o12"), NORMAL);
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(ear.has("scheduler:error"));
    assert_eq!(outcome(&ear), Outcome::Panicked);
    // A future, in its first poll, in a later one, and before there is any.
    let mut polls = 0;
    let twice = std::future::poll_fn(move |_| {
        polls += 1;
        assert!(polls < 2, "{MEANT}a later poll of o12");
        std::task::Poll::<()>::Pending
    });
    let mut task = Task::waiting(scheduler.run(|| twice, NORMAL));
    assert!(catch_unwind(AssertUnwindSafe(|| task.poll())).is_err());
    drop(task);
    assert!(ear.has("scheduler:error"));
    let task = ear.only("scheduler:task");
    assert_eq!(task.outcome, Some(Outcome::Panicked));
    assert!(task.execution.is_some());
    let none = || -> std::future::Ready<()> { panic!("{MEANT}no future of o12") };
    let none = || block_on(scheduler.run(none, NORMAL));
    assert!(catch_unwind(AssertUnwindSafe(none)).is_err());
    assert_eq!(outcome(&ear), Outcome::Panicked);
    // Dropped while it ran, and while it waited.
    drop(Task::waiting(
        scheduler.run(std::future::pending::<()>, NORMAL),
    ));
    let task = ear.only("scheduler:task");
    assert_eq!(task.outcome, Some(Outcome::Cancelled));
    assert!(task.execution.is_some());
    let permit = scheduler.try_acquire(NORMAL).unwrap();
    drop(Task::waiting(scheduler.run(|| async {}, NORMAL)));
    let task = ear.only("scheduler:task");
    assert_eq!(
        (task.outcome, task.execution),
        (Some(Outcome::Cancelled), None)
    );
    // Disposed while it waited.
    let mut task = Task::waiting(scheduler.run(|| async {}, NORMAL));
    scheduler.dispose();
    assert_eq!(task.poll().unwrap(), Err(AcquireError::Disposed));
    let all = ear.take();
    let find = |operation| all.iter().find(|d| d.operation == operation).unwrap();
    let disposed = Some(Outcome::Failed(AcquireError::Disposed));
    assert_eq!(find("scheduler:task").outcome, disposed);
    assert_eq!(find("scheduler:error").outcome, disposed);
    assert_eq!(find("scheduler:dispose").amount, 1);
    drop(permit);
    scheduler.dispose();
    assert_eq!(ear.take(), [], "once");
    assert!(scheduler.run_blocking(|| (), NORMAL).is_err());
    assert_eq!(ear.operations(), ["scheduler:error", "scheduler:task"]);
}

#[test]
fn o13_the_threshold_is_of_tasks_only() {
    let ear = Ear::new();
    let scheduler = local(1).with_trace(ear.trace()).with_trace_threshold(HOUR);
    let permit = scheduler.try_acquire(NORMAL).unwrap();
    let mut task = Task::waiting(scheduler.run(|| async {}, NORMAL));
    drop(permit);
    until("it ran", || task.poll().is_some());
    let steps = [
        "scheduler:queue",
        "scheduler:park",
        "scheduler:dispatch",
        "scheduler:unpark",
    ];
    assert_eq!(ear.operations(), steps);
}

#[test]
fn o14_where_a_trace_is_taken() {
    let ear = Ear::new();
    run(&local(1).with_trace(ear.trace()));
    run(&Shared::new(1).member().with_trace(ear.trace()));
    fail(&limiter(1).with_trace(ear.trace()));
    fail(&Rated::new(1).member().with_trace(ear.trace()));
    fail(&limiter(1).child(1).unwrap().with_trace(ear.trace()));
    let pacer = Pacer::local(HOUR, 0).unwrap().with_trace(ear.trace());
    pacer.try_start().unwrap();
    assert!(pacer.clone().blocking_start().is_err());
    let told = ear.operations();
    let tasks = ["scheduler:task"; 2];
    assert_eq!(told[..2], tasks);
    assert_eq!(told[2..5], ["limiter:error"; 3]);
    assert_eq!(told[5..], ["pacer:reject"]);
}

/// Nobody listens: no document is made, whatever happens. A writer that is switched off costs no more.
#[test]
fn nothing_is_evaluated_for_nobody() {
    let ear = Ear::new();
    ear.writer.switch(false);
    scenario(&ear.trace(), &ear);
    assert_eq!(ear.take(), []);
}
