//! `acquire_with`: when a callback runs, on which thread, in which order, and what becomes of its panics.

use crate::support::{
    FOREVER, MEANT, NORMAL, Shared, Task, ends, local, panics_of, until, watch_panics,
};
use shmsched::trace::{Trace, Writer};
use shmsched::{NothingHeld, Priority, Scheduler};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

/// Queued callbacks run on the releasing thread, before its release returns, most urgent first.
#[test]
fn on_the_thread_that_releases_in_order() {
    let scheduler = local(1);
    scheduler.fix_draw(Some(0));
    let order = Arc::new(Mutex::new(Vec::new()));
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    let here = thread::current().id();
    for (n, lane) in [0, 6, 3, 3, 5, 1, 6].into_iter().enumerate() {
        let (order, own) = (order.clone(), scheduler.clone());
        let callback = move |n: usize| {
            assert_eq!(thread::current().id(), here);
            order.lock().unwrap().push(n);
            own.release().unwrap();
        };
        assert!(!scheduler.acquire_with(callback, Priority::ALL[lane], n));
    }
    scheduler.release().unwrap();
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
            // What follows a release runs before the next callback, not after all of them.
            assert!(ran.load(Ordering::SeqCst) <= MANY);
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
    let held = scheduler.try_acquire_many(2, NORMAL).unwrap();
    for _ in 0..10 {
        let (inside, ran, own) = (inside.clone(), ran.clone(), scheduler.clone());
        let callback = move |()| {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            own.release().unwrap();
            inside.fetch_sub(1, Ordering::SeqCst);
            ran.fetch_add(1, Ordering::SeqCst);
        };
        assert!(!scheduler.acquire_with(callback, NORMAL, ()));
    }
    let mut held = held;
    drop(held.split(1));
    until("all ran", || ran.load(Ordering::SeqCst) == 10);
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

/// Callbacks that wait alone are passed the slot in a short way; who joins meanwhile waits for one or two of them, not for
/// all, and their waits and holds are counted as others'.
#[test]
fn who_joins_callbacks_that_wait_alone() {
    const MANY: usize = 20;
    let shared = Shared::new(1);
    let (first, other) = (shared.member(), shared.member());
    let order = Arc::new(Mutex::new(Vec::new()));
    assert!(first.acquire_with(drop, NORMAL, ()));
    let (ended, end) = mpsc::channel();
    for n in 0..MANY {
        let (order, own, other) = (order.clone(), first.clone(), other.clone());
        let ended = ended.clone();
        let callback = move |n: usize| {
            order.lock().unwrap().push(n);
            if n == 5 {
                let (order, late) = (order.clone(), other.clone());
                let callback = move |n: usize| {
                    order.lock().unwrap().push(n);
                    late.release().unwrap();
                };
                assert!(!other.acquire_with(callback, NORMAL, 1_000));
            }
            own.release().unwrap();
            ended.send(()).unwrap();
        };
        assert!(!first.acquire_with(callback, NORMAL, n));
    }
    first.release().unwrap();
    (0..MANY).for_each(|_| end.recv_timeout(FOREVER).unwrap());
    let order = order.lock().unwrap();
    let own: Vec<_> = order.iter().copied().filter(|n| *n < MANY).collect();
    assert_eq!(own, (0..MANY).collect::<Vec<_>>());
    let at = order.iter().position(|n| *n == 1_000).unwrap();
    assert!((6..=8).contains(&at), "{order:?}");
    until("all came back", || {
        first.stats().shared.unwrap().running == 0
    });
    let seen = shmsched::Observer::open(&shared.location)
        .unwrap()
        .snapshot();
    let seen = seen.unwrap().scheduler.unwrap();
    assert_eq!((seen.running, seen.waiters), (0, 0));
    assert_eq!(seen.completed, MANY as u64 + 1);
    assert_eq!(seen.waits.count(), MANY as u64 + 1);
    assert_eq!(seen.admitted, seen.released);
    assert_eq!(seen.admitted, MANY as u64 + 2);
}

/// The callback behind one that was passed the slot in the short way is somebody's affair, also if it joined while the
/// first's caller was still on its way back: another member's release starts it.
#[test]
fn who_comes_after_one_that_waited_alone_is_looked_after() {
    let shared = Shared::new(2);
    let (first, other) = (shared.member(), shared.member());
    // A helper that has been idle for longer than it stays ready sleeps for no post.
    let all = other.try_acquire_many(2, NORMAL).unwrap();
    let (served, warm) = mpsc::channel();
    let releasing = first.clone();
    let callback = move |()| {
        releasing.release().unwrap();
        served.send(()).unwrap();
    };
    assert!(!first.acquire_with(callback, NORMAL, ()));
    drop(all);
    warm.recv_timeout(FOREVER).unwrap();
    thread::sleep(std::time::Duration::from_millis(400));
    let [own, others] = [&first, &other].map(|member| member.try_acquire_owned(NORMAL).unwrap());
    let (at, paused) = mpsc::channel();
    let (go, going) = mpsc::channel::<()>();
    let going = Mutex::new(going);
    let writer = Writer::new(move |document, operation| {
        if operation == "scheduler:queue" && document.pending == Some(1) {
            at.send(()).unwrap();
            going.lock().unwrap().recv_timeout(FOREVER).unwrap();
        }
    });
    let told = first.with_trace(Trace::Writer(writer));
    let (sender, ran) = mpsc::channel();
    let tell = |name: &'static str| {
        let sender = sender.clone();
        move |()| sender.send(name).unwrap()
    };
    let a = tell("a");
    let caller = thread::spawn(move || told.acquire_with(a, NORMAL, ()));
    paused.recv_timeout(FOREVER).unwrap();
    assert!(!first.acquire_with(tell("b"), NORMAL, ()));
    drop(own);
    assert_eq!(ran.recv_timeout(FOREVER), Ok("a"));
    // `a` keeps its slot, and its caller is not back yet.
    drop(others);
    assert_eq!(ran.recv_timeout(FOREVER), Ok("b"));
    go.send(()).unwrap();
    assert!(!caller.join().unwrap());
    first.release().unwrap();
    first.release().unwrap();
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
        starved = ran.recv_timeout(FOREVER / 4).is_err();
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
        let first = move |own: Scheduler| {
            assert_eq!(own.stats().running, 1);
            assert!(own.try_acquire(NORMAL).is_err());
            let inner = own.clone();
            let again = move |()| {
                sender.send(inner.stats().running).unwrap();
                inner.dispose();
                assert!(!inner.acquire_with(|()| panic!("it ran"), NORMAL, ()));
            };
            assert!(!own.acquire_with(again, NORMAL, ()));
            own.release().unwrap();
        };
        assert!(!scheduler.acquire_with(first, Priority::High, own));
        assert!(!scheduler.acquire_with(|()| panic!("it ran"), Priority::Lowest, ()));
        scheduler.fix_draw(Some(0));
        scheduler.release().unwrap();
        assert_eq!(ran.recv_timeout(FOREVER), Ok(1));
        until("it is disposed", || {
            scheduler.is_closed() && scheduler.stats().running == 0
        });
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
struct Fate(Arc<AtomicUsize>);

impl Fate {
    fn ran(&self) {
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
        assert!(scheduler.acquire_with(drop, NORMAL, ()));
        for n in 0..20 {
            let (fate, own) = (Fate(fates.clone()), scheduler.clone());
            let much = [n; 30];
            let big = move |fate: Fate| {
                assert_eq!(much, [n; 30]);
                fate.ran();
                if n == 10 {
                    match dispose {
                        true => own.dispose(),
                        false => own.close(),
                    }
                    assert_eq!(own.stats().pending, 0);
                    // All of them by now, but for what runs.
                    assert_eq!(own.stats().total.cancelled, 9);
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
        assert_eq!(fates.load(Ordering::SeqCst), 20_011);
        let total = scheduler.stats().total;
        assert_eq!((total.completed, total.cancelled), (11, 9));
        assert_eq!(scheduler.stats().running, 0);
    }
}

/// Between two callbacks of a long queue: who comes with more urgency is next, whether queued by one of them or not, and a
/// try finds no slot.
#[test]
fn who_comes_amid_a_queue() {
    let scheduler = local(1);
    scheduler.fix_draw(Some(0));
    let order = Arc::new(Mutex::new(Vec::new()));
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    for n in 0..10 {
        let (order, own) = (order.clone(), scheduler.clone());
        let callback = move |n: u32| {
            order.lock().unwrap().push(n);
            if n % 4 == 1 {
                assert!(own.try_acquire(Priority::Highest).is_err());
                for (lane, more) in [(NORMAL, 100), (Priority::Low, 300), (Priority::High, 200)] {
                    let (order, giver) = (order.clone(), own.clone());
                    let callback = move |n: u32| {
                        order.lock().unwrap().push(n);
                        giver.release().unwrap();
                    };
                    assert!(!own.acquire_with(callback, lane, more + n));
                }
            }
            own.release().unwrap();
            assert_eq!(own.release(), Err(NothingHeld));
            assert!(own.try_acquire(Priority::Highest).is_err() || own.stats().pending == 0);
        };
        assert!(!scheduler.acquire_with(callback, NORMAL, n));
    }
    scheduler.release().unwrap();
    let expected = [
        0, 1, 201, 2, 3, 4, 5, 205, 6, 7, 8, 9, 209, 101, 105, 109, 301, 305, 309,
    ];
    assert_eq!(*order.lock().unwrap(), expected);
    assert_eq!(scheduler.stats().running, 0);
}

/// Callbacks of handles with targets of their own, in one queue: each has its turn by its own handle's.
#[test]
fn of_several_handles_in_one_queue() {
    let scheduler = local(2);
    let narrow = scheduler.with(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let keep = scheduler.try_acquire(NORMAL).unwrap();
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    for n in 0..7 {
        let handle = if n < 4 { &scheduler } else { &narrow };
        let (order, own) = (order.clone(), scheduler.clone());
        let callback = move |n: u32| {
            let alone = own.stats().running == 1;
            order.lock().unwrap().push((n, alone));
            own.release().unwrap();
        };
        assert!(!handle.acquire_with(callback, NORMAL, n));
    }
    scheduler.release().unwrap();
    let wide = [(0, false), (1, false), (2, false), (3, false)];
    assert_eq!(*order.lock().unwrap(), wide);
    drop(keep);
    until("all ran", || order.lock().unwrap().len() == 7);
    assert_eq!(
        order.lock().unwrap()[4..],
        [(4, true), (5, true), (6, true)]
    );
    until("all came back", || scheduler.available_permits() == 2);
}

/// A callback behind a thread, the first that any helper would be needed for: another member's release starts it.
#[test]
fn behind_a_thread() {
    let shared = Shared::new(2);
    let (a, b) = (shared.member(), shared.member());
    let mut held = b.try_acquire_many(2, NORMAL).unwrap();
    let own = a.clone();
    let thread = thread::spawn(move || own.blocking_acquire_owned(NORMAL).unwrap());
    until("it waits", || a.stats().pending == 1);
    let (sender, ran) = mpsc::channel();
    assert!(!a.acquire_with(move |()| sender.send(()).unwrap(), NORMAL, ()));
    drop(held.split(1));
    let permit = thread.join().unwrap();
    drop(held);
    ran.recv_timeout(FOREVER).unwrap();
    a.release().unwrap();
    drop(permit);
}

/// Callbacks of two Schedulers that release to one another's on one thread: none is lost, each runs in its order.
#[test]
fn of_two_schedulers_on_one_thread() {
    let both = [local(1), local(1)];
    let order = Arc::new(Mutex::new([const { Vec::new() }; 2]));
    for one in &both {
        assert!(one.acquire_with(drop, NORMAL, ()));
    }
    for n in 0..40 {
        let which = n % 2;
        let (order, all) = (order.clone(), both.clone());
        let callback = move |n: usize| {
            order.lock().unwrap()[which].push(n);
            if n == 0 {
                all[1].release().unwrap();
            }
            all[which].release().unwrap();
        };
        assert!(!both[which].acquire_with(callback, NORMAL, n));
    }
    both[0].release().unwrap();
    let order = order.lock().unwrap();
    for which in [0, 1] {
        let expected: Vec<_> = (0..40).filter(|n| n % 2 == which).collect();
        assert_eq!(order[which], expected);
        assert_eq!(both[which].stats().running, 0);
    }
}

/// The last handle goes away inside a callback with others behind it: those are dropped, and the member detaches. On the
/// member's own thread, and on one that runs them within the callbacks of another Scheduler.
#[test]
fn the_last_handle_amid_a_queue() {
    for by_another in [false, true] {
        let shared = Shared::new(1);
        let watcher = shared.member();
        let member = shared.member();
        let fates = Arc::new(AtomicUsize::new(0));
        let held = by_another.then(|| watcher.try_acquire_owned(NORMAL).unwrap());
        if !by_another {
            assert!(member.acquire_with(drop, NORMAL, ()));
        }
        let last = Arc::new(Mutex::new(Some(member.clone())));
        for n in 0..6 {
            let last = last.clone();
            let callback = move |fate: Fate| {
                fate.ran();
                let mut last = last.lock().unwrap();
                last.as_ref().unwrap().release().unwrap();
                if n == 3 {
                    drop(last.take());
                }
            };
            assert!(!member.acquire_with(callback, NORMAL, Fate(fates.clone())));
        }
        drop(member);
        let outer = local(1);
        let outside = outer.try_acquire_owned(NORMAL).unwrap();
        let first = move |held: Option<_>| match held {
            Some(held) => drop::<shmsched::OwnedPermit>(held),
            None => last.lock().unwrap().as_ref().unwrap().release().unwrap(),
        };
        assert!(!outer.acquire_with(first, NORMAL, held));
        ends("the callbacks", move || drop(outside));
        until("they have ended", || fates.load(Ordering::SeqCst) == 6_004);
        until("it detached", || {
            let seen = watcher.stats().shared.unwrap();
            (seen.running, seen.waiters) == (0, 0)
        });
        drop(watcher.try_acquire(NORMAL).unwrap());
    }
}

/// Callbacks, tasks and threads of one priority are served in the order they came.
#[test]
fn kinds_of_callers_share_one_order() {
    let scheduler = local(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let held = scheduler.try_acquire(NORMAL).unwrap();
    thread::scope(|scope| {
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
        drop(held);
    });
    until("all ran", || order.lock().unwrap().len() == 12);
    assert!(order.lock().unwrap().is_sorted(), "{order:?}");
    until("all came back", || scheduler.available_permits() == 1);
}
