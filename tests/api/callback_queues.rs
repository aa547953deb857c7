//! Callbacks that wait alone, pass the slot on among themselves, and whoever comes amid them.

use crate::callbacks::Fate;
use crate::calm::undisturbed;
use crate::support::{FOREVER, NORMAL, Shared, Witness, ends, local, none_was_passed_over, until};
use shmsched::trace::{Trace, Writer};
use shmsched::{NothingHeld, Priority};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

/// Callbacks that wait alone are passed the slot in a short way; who joins meanwhile waits for one or two of them, not for
/// all, and their waits and holds are counted as others'.
#[test]
fn who_joins_callbacks_that_wait_alone() {
    undisturbed(joined_while_it_drains);
}

/// Whether it was in time for who joins: its thread may be so late that it is passed over.
fn joined_while_it_drains() -> bool {
    const MANY: usize = 20;
    let shared = Shared::new(1);
    let (first, other) = (shared.member(), shared.member());
    let order = Arc::new(Mutex::new(Vec::new()));
    assert!(first.acquire_with(drop, NORMAL, ()));
    let (ended, end) = mpsc::channel();
    let (joined, in_time) = mpsc::channel();
    for n in 0..MANY {
        let (order, own, other) = (order.clone(), first.clone(), other.clone());
        let (ended, joined) = (ended.clone(), joined.clone());
        let callback = move |n: usize| {
            order.lock().unwrap().push(n);
            if n == 5 {
                let (order, late) = (order.clone(), other.clone());
                let since = Instant::now();
                let callback = move |n: usize| {
                    joined.send(none_was_passed_over(since)).unwrap();
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
    let in_time = in_time.recv_timeout(FOREVER).unwrap();
    until("who joined ran too", || {
        order.lock().unwrap().len() == MANY + 1
    });
    let order = order.lock().unwrap();
    let own: Vec<_> = order.iter().copied().filter(|n| *n < MANY).collect();
    assert_eq!(own, (0..MANY).collect::<Vec<_>>());
    let at = order.iter().position(|n| *n == 1_000).unwrap();
    assert!((6..=8).contains(&at) || !in_time, "{order:?}");
    let mut observer = shmsched::Observer::open(&shared.location).unwrap();
    let mut seen = || observer.snapshot().unwrap().scheduler.unwrap();
    // Who gives back what runs on another thread counts it a moment later.
    until("all came back", || {
        let seen = seen();
        (seen.running, seen.waiters) == (0, 0) && seen.admitted == seen.released
    });
    let seen = seen();
    assert_eq!(seen.completed, MANY as u64 + 1);
    assert_eq!(seen.waits.count(), MANY as u64 + 1);
    assert_eq!(seen.admitted, MANY as u64 + 2);
    in_time
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
    until("it came back", || {
        other.stats().shared.unwrap().running == 0
    });
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

/// Between two callbacks of a long queue: who comes with more urgency is next, whether queued by one of them or not, and a
/// try finds no slot.
#[test]
fn who_comes_amid_a_queue() {
    let scheduler = local(1);
    scheduler.fix_draw(Some(0));
    let order = Arc::new(Mutex::new(Vec::new()));
    let witness = Witness::default();
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    for n in 0..10 {
        let (order, own, witness) = (order.clone(), scheduler.clone(), witness.clone());
        let inside = move |n: u32| {
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
        let callback = move |n| witness.sees(|| inside(n));
        assert!(!scheduler.acquire_with(callback, NORMAL, n));
    }
    scheduler.release().unwrap();
    let expected = [
        0, 1, 201, 2, 3, 4, 5, 205, 6, 7, 8, 9, 209, 101, 105, 109, 301, 305, 309,
    ];
    witness.saw_nothing();
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
