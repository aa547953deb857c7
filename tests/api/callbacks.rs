//! `acquire_with`: when a callback runs, on which thread, in which order, and what becomes of its panics.

use crate::calm::undisturbed;
use crate::support::{
    FOREVER, MEANT, NORMAL, Shared, Task, Witness, ends, local, none_was_passed_over, panics_of,
    until, watch_panics,
};
use shmsched::{NothingHeld, Priority, Scheduler};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

/// Queued callbacks run on the releasing thread, before its release returns, most urgent first.
#[test]
fn on_the_thread_that_releases_in_order() {
    let scheduler = local(1);
    scheduler.fix_draw(Some(0));
    let order = Arc::new(Mutex::new(Vec::new()));
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    let (here, witness) = (thread::current().id(), Witness::default());
    for (n, lane) in [0, 6, 3, 3, 5, 1, 6].into_iter().enumerate() {
        let (order, own, witness) = (order.clone(), scheduler.clone(), witness.clone());
        let callback = move |n: usize| {
            witness.sees(|| {
                assert_eq!(thread::current().id(), here);
                order.lock().unwrap().push(n);
                own.release().unwrap();
            })
        };
        assert!(!scheduler.acquire_with(callback, Priority::ALL[lane], n));
    }
    scheduler.release().unwrap();
    witness.saw_nothing();
    assert_eq!(*order.lock().unwrap(), [1, 6, 4, 2, 3, 5, 0]);
    assert_eq!(scheduler.stats().running, 0);
}

/// A permit that is dropped starts them too.
#[test]
fn a_dropped_permit_starts_a_callback() {
    let scheduler = local(1);
    let held = scheduler.try_acquire(NORMAL).unwrap();
    let (sender, ran) = mpsc::channel();
    let tell = move |()| sender.send(thread::current().id()).unwrap();
    assert!(!scheduler.acquire_with(tell, NORMAL, ()));
    drop(held);
    assert_eq!(ran.try_recv(), Ok(thread::current().id()));
    scheduler.release().unwrap();
}

/// A hundred thousand that each release inside, on a small stack.
#[test]
fn a_long_queue_never_recurses() {
    const MANY: usize = 100_000;
    let scheduler = local(1);
    let ran = Arc::new(AtomicUsize::new(0));
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    for _ in 0..MANY {
        let (ran, own) = (ran.clone(), scheduler.clone());
        let callback = move |()| {
            ran.fetch_add(1, Ordering::SeqCst);
            own.release().unwrap();
        };
        assert!(!scheduler.acquire_with(callback, NORMAL, ()));
    }
    let own = scheduler.clone();
    let releases = thread::Builder::new().stack_size(128 * 1024);
    let releases = releases.spawn(move || own.release().unwrap()).unwrap();
    ends("the queue", move || releases.join().unwrap());
    until("all ran", || ran.load(Ordering::SeqCst) == MANY);
    assert_eq!(scheduler.release(), Err(NothingHeld));
    let total = scheduler.stats().total;
    assert_eq!((total.completed, total.count), (MANY as u64, 0));
}

/// Within one another: the next begins after the one that released has returned.
#[test]
fn one_at_a_time_on_a_thread() {
    let scheduler = local(2);
    let inside = Arc::new(AtomicUsize::new(0));
    let ran = Arc::new(AtomicUsize::new(0));
    let witness = Witness::default();
    let held = scheduler.try_acquire_many(2, NORMAL).unwrap();
    for _ in 0..10 {
        let (inside, ran, own) = (inside.clone(), ran.clone(), scheduler.clone());
        let witness = witness.clone();
        let callback = move |()| {
            witness.sees(|| {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                own.release().unwrap();
                inside.fetch_sub(1, Ordering::SeqCst);
            });
            ran.fetch_add(1, Ordering::SeqCst);
        };
        assert!(!scheduler.acquire_with(callback, NORMAL, ()));
    }
    let mut held = held;
    drop(held.split(1));
    until("all ran", || {
        witness.saw_nothing();
        ran.load(Ordering::SeqCst) == 10
    });
    drop(held);
    assert_eq!(scheduler.stats().running, 0);
}

/// Another process's release does not run our callbacks: they have a thread of their own.
#[test]
fn released_by_another_member() {
    let shared = Shared::new(1);
    let (a, b) = (shared.member(), shared.member());
    let held = b.try_acquire(NORMAL).unwrap();
    let (sender, ran) = mpsc::channel();
    for n in 0..3 {
        let (sender, own) = (sender.clone(), a.clone());
        let callback = move |n: i32| {
            let thread = thread::current();
            sender
                .send((n, thread.id(), thread.name().map(str::to_owned)))
                .unwrap();
            own.release().unwrap();
        };
        assert!(!a.acquire_with(callback, NORMAL, n));
    }
    drop(held);
    for n in 0..3 {
        let (which, thread, name) = ran.recv_timeout(FOREVER).unwrap();
        assert_eq!(which, n);
        assert_ne!(thread, thread::current().id());
        assert!(name.is_some_and(|name| name.starts_with("shmsched")));
    }
    until("all came back", || b.stats().shared.unwrap().running == 0);
}

/// A callback that blocks its thread does not keep the member's tasks from being woken.
#[test]
fn a_blocking_callback_holds_up_no_task() {
    let shared = Shared::new(2);
    let (a, b) = (shared.member(), shared.member());
    let mut held = b.try_acquire_many(2, NORMAL).unwrap();
    let (go, blocks) = mpsc::channel::<()>();
    let (sender, began) = mpsc::channel();
    let own = a.clone();
    let callback = move |()| {
        sender.send(()).unwrap();
        blocks.recv_timeout(FOREVER).unwrap();
        own.release().unwrap();
    };
    assert!(!a.acquire_with(callback, Priority::Highest, ()));
    let task = Task::waiting(a.acquire(NORMAL));
    drop(held.split(1));
    began.recv_timeout(FOREVER).unwrap();
    drop(held);
    drop(task.finish().unwrap());
    go.send(()).unwrap();
    until("all came back", || b.stats().shared.unwrap().running == 0);
}

/// A callback that has its slot is run although those on the same thread go on and on.
#[test]
fn an_endless_chain_starves_no_callback() {
    fn chain(own: &Scheduler, stop: Arc<AtomicUsize>) {
        let again = move |own: Scheduler| {
            if stop.load(Ordering::SeqCst) == 0 {
                chain(&own, stop);
            }
            own.release().unwrap();
        };
        own.acquire_with(again, NORMAL, own.clone());
    }
    let shared = Shared::new(2);
    let (a, b) = (shared.member(), shared.member());
    let mut held = b.try_acquire_many(2, NORMAL).unwrap();
    let stop = Arc::new(AtomicUsize::new(0));
    // Two, so that the first always finds the next.
    chain(&a, stop.clone());
    chain(&a, stop.clone());
    drop(held.split(1));
    until("the chain runs", || a.stats().total.completed > 100);
    let mut starved = false;
    for _ in 0..20 {
        let (sender, ran) = mpsc::channel();
        let own = a.clone();
        let callback = move |()| {
            let _ = sender.send(());
            own.release().unwrap();
        };
        // Between two of the chain there may be a slot at once, and then the chain goes on where that is given back: not
        // here, where it is stopped.
        let own = a.clone();
        thread::spawn(move || own.acquire_with(callback, Priority::Highest, ()));
        drop(held);
        starved = ran.recv_timeout(FOREVER / 2).is_err();
        held = match starved {
            true => b.try_acquire_many(0, NORMAL).unwrap(),
            false => b.blocking_acquire(Priority::Highest).unwrap(),
        };
        if starved {
            break;
        }
    }
    stop.store(1, Ordering::SeqCst);
    assert!(!starved, "it has its slot, but is not run");
    drop(held);
    until("all came back", || b.stats().shared.unwrap().running == 0);
}

#[test]
fn panics_when_released_by_another_member() {
    watch_panics();
    let shared = Shared::new(1);
    let (a, b) = (shared.member(), shared.member());
    let meant = format!("{MEANT}another member");
    let held = b.try_acquire(NORMAL).unwrap();
    for _ in 0..3 {
        assert!(!a.acquire_with(|text: String| panic!("{text}"), NORMAL, meant.clone()));
    }
    drop(held);
    until("all panicked", || panics_of(&meant).len() == 3);
    until("all came back", || b.stats().shared.unwrap().running == 0);
    assert!(
        panics_of(&meant)
            .iter()
            .all(|line| line.contains("on shmsched"))
    );
    // The thread lives on.
    let held = b.try_acquire(NORMAL).unwrap();
    let (sender, ran) = mpsc::channel();
    assert!(!a.acquire_with(move |()| sender.send(()).unwrap(), NORMAL, ()));
    drop(held);
    ran.recv_timeout(FOREVER).unwrap();
}

/// A thousand panics on both paths leave the whole budget.
#[test]
fn a_thousand_panics_on_both_paths() {
    watch_panics();
    let scheduler = local(2);
    let meant = format!("{MEANT}a thousand");
    let held = scheduler.try_acquire(NORMAL).unwrap();
    for _ in 0..1_000 {
        let text = meant.clone();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            scheduler.acquire_with(|text: String| panic!("{text}"), NORMAL, text)
        }));
        assert!(caught.is_err());
    }
    let full = scheduler.try_acquire(NORMAL).unwrap();
    for _ in 0..1_000 {
        let text = meant.clone();
        assert!(!scheduler.acquire_with(|text: String| panic!("{text}"), NORMAL, text));
    }
    drop(full);
    until("all panicked", || panics_of(&meant).len() == 2_000);
    until("all came back", || scheduler.available_permits() == 1);
    drop(held);
    assert_eq!(scheduler.release(), Err(NothingHeld));
    assert_eq!(scheduler.available_permits(), 2);
}

/// A callback may use the Scheduler in any way: queue more, read, block, dispose.
#[test]
fn a_callback_may_use_the_scheduler() {
    let scheduler = local(1);
    ends("the callbacks", move || {
        assert!(scheduler.acquire_with(drop, NORMAL, ()));
        let own = scheduler.clone();
        let (sender, ran) = mpsc::channel();
        let (witness, seen) = (Witness::default(), Witness::default());
        let (outer, inmost) = (witness.clone(), witness.clone());
        let ran_late = move |witness: Witness| witness.sees(|| panic!("it ran"));
        let first = move |own: Scheduler| {
            outer.sees(|| {
                assert_eq!(own.stats().running, 1);
                assert!(own.try_acquire(NORMAL).is_err());
                let inner = own.clone();
                let again = move |()| {
                    sender.send(inner.stats().running).unwrap();
                    inner.dispose();
                    let late = inmost.clone();
                    inmost.sees(|| assert!(!inner.acquire_with(ran_late, NORMAL, late)));
                };
                assert!(!own.acquire_with(again, NORMAL, ()));
                own.release().unwrap();
            })
        };
        assert!(!scheduler.acquire_with(first, Priority::High, own));
        assert!(!scheduler.acquire_with(ran_late, Priority::Lowest, seen.clone()));
        scheduler.fix_draw(Some(0));
        scheduler.release().unwrap();
        assert_eq!(ran.recv_timeout(FOREVER), Ok(1));
        until("it is disposed", || {
            scheduler.is_closed() && scheduler.stats().running == 0
        });
        witness.saw_nothing();
        seen.saw_nothing();
    });
}

/// The last handle goes away inside a callback.
#[test]
fn a_callback_may_drop_the_last_handle() {
    let shared = Shared::new(1);
    let watcher = shared.member();
    for by_another in [false, true] {
        let member = shared.member();
        let held = if by_another { &watcher } else { &member }
            .try_acquire_owned(NORMAL)
            .unwrap();
        let last = Arc::new(Mutex::new(Some(member.clone())));
        let (sender, ran) = mpsc::channel();
        let callback = move |last: Arc<Mutex<Option<Scheduler>>>| {
            drop(last.lock().unwrap().take());
            sender.send(()).unwrap();
        };
        assert!(!member.acquire_with(callback, NORMAL, last));
        // The permit is the last but one handle.
        drop(member);
        ends("the callback", move || {
            drop(held);
            ran.recv_timeout(FOREVER).unwrap();
        });
        until("it detached", || {
            watcher.stats().shared.unwrap().running == 0
        });
        until("it left the line", || {
            watcher.stats().shared.unwrap().waiters == 0
        });
    }
}

/// Queued callbacks do not keep the member attached.
#[test]
fn queued_callbacks_keep_nothing_alive() {
    let shared = Shared::new(1);
    let (a, b) = (shared.member(), shared.member());
    let _held = b.try_acquire(NORMAL).unwrap();
    let alive = Arc::new(());
    assert!(!a.acquire_with(|_: Arc<()>| panic!("it ran"), NORMAL, alive.clone()));
    let waiters = || b.stats().shared.unwrap().waiters;
    until("it waits", || waiters() == 1);
    drop(a);
    until("it is dropped", || Arc::strong_count(&alive) == 1);
    until("it has left the line", || waiters() == 0);
}

/// Counts what becomes of a callback that owns it: run adds 1, dropped 1,000.
pub struct Fate(pub Arc<AtomicUsize>);

impl Fate {
    pub fn ran(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Fate {
    fn drop(&mut self) {
        self.0.fetch_add(1_000, Ordering::SeqCst);
    }
}

/// Queued behind others: whatever a callback owns, much or little, is dropped once, run or not; who closes meanwhile ends
/// all that wait, and they are counted.
#[test]
fn what_queued_callbacks_own_is_dropped_once() {
    for dispose in [false, true] {
        let scheduler = local(1);
        let fates = Arc::new(AtomicUsize::new(0));
        let witness = Witness::default();
        assert!(scheduler.acquire_with(drop, NORMAL, ()));
        for n in 0..20 {
            let (fate, own) = (Fate(fates.clone()), scheduler.clone());
            let much = [n; 30];
            let witness = witness.clone();
            let big = move |fate: Fate| {
                witness.sees(|| assert_eq!(much, [n; 30]));
                fate.ran();
                if n == 10 {
                    match dispose {
                        true => own.dispose(),
                        false => own.close(),
                    }
                    // All of them by now, but for what runs.
                    let stats = own.stats();
                    witness.sees(|| assert_eq!((stats.pending, stats.total.cancelled), (0, 9)));
                }
                own.release().map_err(drop).unwrap_or(());
            };
            match n % 2 {
                0 => assert!(!scheduler.acquire_with(big, NORMAL, fate)),
                _ => {
                    let own = scheduler.clone();
                    let little = move |fate: Fate| {
                        fate.ran();
                        own.release().unwrap();
                    };
                    assert!(!scheduler.acquire_with(little, NORMAL, fate));
                }
            }
        }
        assert_eq!(scheduler.stats().pending, 20);
        scheduler.release().unwrap();
        witness.saw_nothing();
        assert_eq!(fates.load(Ordering::SeqCst), 20_011);
        let total = scheduler.stats().total;
        assert_eq!((total.completed, total.cancelled), (11, 9));
        assert_eq!(scheduler.stats().running, 0);
    }
}

/// Callbacks, tasks and threads of one priority are served in the order they came.
#[test]
fn kinds_of_callers_share_one_order() {
    undisturbed(kinds_of_callers);
}

/// Whether nobody was so late that the next went first.
fn kinds_of_callers() -> bool {
    let scheduler = local(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let held = scheduler.try_acquire(NORMAL).unwrap();
    let freed = thread::scope(|scope| {
        for n in 0..12u64 {
            let order = order.clone();
            match n % 3 {
                0 => {
                    let own = scheduler.clone();
                    let callback = move |()| {
                        order.lock().unwrap().push(n);
                        own.release().unwrap();
                    };
                    assert!(!scheduler.acquire_with(callback, NORMAL, ()));
                }
                1 => {
                    let task = Task::waiting(scheduler.acquire(NORMAL));
                    scope.spawn(move || {
                        let permit = task.finish().unwrap();
                        order.lock().unwrap().push(n);
                        drop(permit);
                    });
                }
                _ => {
                    let scheduler = &scheduler;
                    scope.spawn(move || {
                        let permit = scheduler.blocking_acquire(NORMAL).unwrap();
                        order.lock().unwrap().push(n);
                        drop(permit);
                    });
                    until("it waits", || scheduler.stats().pending == n + 1);
                }
            }
        }
        let freed = Instant::now();
        drop(held);
        freed
    });
    until("all ran", || order.lock().unwrap().len() == 12);
    let judged = none_was_passed_over(freed);
    assert!(order.lock().unwrap().is_sorted() || !judged, "{order:?}");
    until("all came back", || scheduler.available_permits() == 1);
    judged
}
