//! A callback's own release, which is handed on once the callback has returned: who may not have to wait for that, and what
//! comes in between.

use crate::calm::undisturbed;
use crate::support::{FOREVER, NORMAL, Shared, Task, Witness, local, none_was_passed_over, until};
use shmsched::{Changes, NothingHeld, Priority, Scheduler};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Enough for several chains, and for the lock of the queue to be one thread's.
const MANY: usize = 1_000;

/// What callbacks noted.
#[derive(Clone, Default)]
struct Log {
    order: Arc<Mutex<Vec<usize>>>,
    witness: Witness,
}

impl Log {
    /// Whether so many ran, in order.
    fn is_of(&self, many: usize) -> bool {
        self.witness.saw_nothing();
        *self.order.lock().unwrap() == (0..many).collect::<Vec<_>>()
    }
}

/// Queues callbacks behind one that holds the only slot. Each notes its number, then does `then`.
fn queued(
    scheduler: &Scheduler,
    many: usize,
    then: impl Fn(usize) + Clone + Send + 'static,
) -> Log {
    let log = Log::default();
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    for n in 0..many {
        let (log, then) = (log.clone(), then.clone());
        let callback = move |n| {
            log.order.lock().unwrap().push(n);
            log.witness.sees(|| then(n));
        };
        assert!(!scheduler.acquire_with(callback, NORMAL, n));
    }
    log
}

/// So many ran, in order, and everything is back, once.
#[track_caller]
fn ended(scheduler: &Scheduler, log: &Log, many: usize) {
    assert!(log.is_of(many));
    assert_eq!(scheduler.stats().running, 0);
    assert_eq!(scheduler.release(), Err(NothingHeld));
}

/// Another member came to wait in the middle of the queue: its turn is after those that were there, and the callback after
/// which it comes is still running when it has its slot.
#[test]
fn another_member_need_not_wait_until_it_returns() {
    let shared = Shared::new(1);
    let (own, other) = (shared.member(), shared.member());
    let (got, gotten) = mpsc::channel();
    let gotten = Mutex::new(gotten);
    let waiting = Arc::new(AtomicUsize::new(0));
    let (scheduler, seen) = (own.clone(), waiting.clone());
    // Shared by all callbacks, which are clones.
    let inside = Arc::new(move |n| {
        match n {
            300 => {
                let (other, got) = (other.clone(), got.clone());
                thread::spawn(move || {
                    let permit = other.blocking_acquire_until(1, NORMAL, FOREVER);
                    got.send(permit.is_ok()).unwrap();
                });
                until("it waits", || {
                    scheduler.stats().shared.unwrap().waiters == 2
                });
                seen.store(1, SeqCst);
                scheduler.release().unwrap();
            }
            // The next keeps its slot until the other had its turn, or would have.
            301 => {
                scheduler.release().unwrap();
                assert!(gotten.lock().unwrap().recv_timeout(FOREVER).unwrap());
                seen.store(2, SeqCst);
            }
            _ => scheduler.release().unwrap(),
        }
    });
    let log = queued(&own, MANY, move |n| inside(n));
    own.release().unwrap();
    until("all ran", || log.is_of(MANY));
    assert_eq!(waiting.load(SeqCst), 2);
    until("all is back", || own.stats().running == 0);
}

/// Two slots given back by one callback, its own and one that another left: both go on, in order.
#[test]
fn two_releases_of_one_callback() {
    let shared = Shared::new(1);
    let scheduler = shared.member();
    let own = scheduler.clone();
    let segment = shared.open();
    let log = queued(&scheduler, MANY, move |n| match n % 100 {
        // Keeps its slot; another is made for the next.
        40 => {
            segment.set(&Changes::new().concurrency(Some(2))).unwrap();
        }
        // And both are given back, and the one is taken away again.
        60 => {
            own.release().unwrap();
            own.release().unwrap();
            assert_eq!(own.release(), Err(NothingHeld), "{n}");
            segment.set(&Changes::new().concurrency(Some(1))).unwrap();
        }
        _ => own.release().unwrap(),
    });
    scheduler.release().unwrap();
    until("all ran", || log.is_of(MANY));
    until("all is back", || scheduler.stats().running == 0);
    assert_eq!(scheduler.release(), Err(NothingHeld));
    assert_eq!(scheduler.stats().pending, 0);
}

/// The limit goes to zero while a callback runs that has given its slot back already: nobody has it, until it is raised.
#[test]
fn none_is_handed_on_past_a_limit_that_fell() {
    let shared = Shared::new(1);
    let scheduler = shared.member();
    let (own, segment) = (scheduler.clone(), shared.open());
    let log = queued(&scheduler, MANY, move |n| {
        own.release().unwrap();
        if n == 500 {
            segment.set(&Changes::new().concurrency(Some(0))).unwrap();
        }
    });
    scheduler.release().unwrap();
    assert!(log.is_of(501));
    assert_eq!(scheduler.stats().running, 0);
    let segment = shared.open();
    segment.set(&Changes::new().concurrency(Some(1))).unwrap();
    until("all ran", || log.is_of(MANY));
    until("all is back", || scheduler.stats().running == 0);
}

/// A panic after the release gives nothing back twice.
#[test]
fn a_panic_after_the_release() {
    let scheduler = local(1);
    let own = scheduler.clone();
    let inside = Arc::new(AtomicUsize::new(0));
    let within = inside.clone();
    let log = queued(&scheduler, MANY, move |n| {
        assert_eq!(within.fetch_add(1, SeqCst), 0, "{n}");
        within.fetch_sub(1, SeqCst);
        own.release().unwrap();
        if n % 100 == 50 {
            // Not reported by the panic hook.
            resume_unwind(Box::new(()));
        }
    });
    scheduler.release().unwrap();
    ended(&scheduler, &log, MANY);
}

/// A callback that gives back another's slot and then panics: its own comes back too.
#[test]
fn a_panic_after_a_release_for_another() {
    let scheduler = local(2);
    // Of a callback that returned long ago.
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    let own = scheduler.clone();
    let log = queued(&scheduler, MANY, move |n| {
        own.release().unwrap();
        if n == 50 {
            resume_unwind(Box::new(()));
        }
    });
    scheduler.release().unwrap();
    ended(&scheduler, &log, MANY);
}

/// Whether the next had its turn already or not: disposed, nobody has a slot, and nobody begins.
#[test]
fn none_begins_after_dispose() {
    for at in [0, 1, 500] {
        let scheduler = local(1);
        let own = scheduler.clone();
        let log = queued(&scheduler, MANY, move |n| {
            let released = own.release();
            if n == at {
                released.unwrap();
                own.dispose();
            }
        });
        scheduler.release().unwrap();
        ended(&scheduler, &log, at + 1);
    }
}

/// A callback gives back slots of two schedulers, each with a queue: turns are taken in the order in which they were given,
/// none within another.
#[test]
fn the_turn_of_another_scheduler_comes_in_between() {
    let (one, two) = (local(1), local(1));
    let order = Arc::new(Mutex::new(Vec::new()));
    let depth = Arc::new(AtomicUsize::new(0));
    let enter = {
        let (order, depth) = (order.clone(), depth.clone());
        move |which: u32, n: usize| {
            assert_eq!(depth.fetch_add(1, SeqCst), 0, "{which}: {n}");
            order.lock().unwrap().push((which, n));
            depth.fetch_sub(1, SeqCst);
        }
    };
    let (own, entered) = (two.clone(), enter.clone());
    // The second's callbacks keep their slot, which the first's give back.
    let seconds = queued(&two, 2, move |n| entered(2, n));
    let (first, second) = (one.clone(), own);
    let firsts = queued(&one, 10, move |n| {
        enter(1, n);
        first.release().unwrap();
        if n == 3 || n == 6 {
            second.release().unwrap();
        }
    });
    one.release().unwrap();
    let expected = [0, 1, 2, 3].map(|n| (1, n)).into_iter();
    let expected = expected
        .chain([(2, 0)])
        .chain([4, 5, 6].map(|n| (1, n)))
        .chain([(2, 1)])
        .chain([7, 8, 9].map(|n| (1, n)));
    assert_eq!(*order.lock().unwrap(), expected.collect::<Vec<_>>());
    assert!(firsts.is_of(10) && seconds.is_of(2));
    two.release().unwrap();
    assert_eq!((one.stats().running, two.stats().running), (0, 0));
}

/// The last handle goes in a callback that has given its slot back: those behind it are dropped, uncalled.
#[test]
fn the_last_handle_is_dropped_after_the_release() {
    let shared = Shared::new(1);
    let other = shared.member();
    let permit = other.try_acquire(NORMAL).unwrap();
    let handle = Arc::new(Mutex::new(Some(shared.member())));
    let (counted, ran) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
    for n in 0..MANY {
        let (own, held, ran) = (handle.clone(), counted.clone(), ran.clone());
        let callback = move |()| {
            let _held = held;
            ran.fetch_add(1, SeqCst);
            let mut handle = own.lock().unwrap();
            handle.as_ref().unwrap().release().unwrap();
            if n == 700 {
                *handle = None;
            }
        };
        let own = handle.lock().unwrap().clone().unwrap();
        assert!(!own.acquire_with(callback, NORMAL, ()));
    }
    // They run on a thread of their member, which holds no handle of its own.
    drop(permit);
    until("the rest is dropped", || Arc::strong_count(&counted) == 1);
    assert_eq!(ran.load(SeqCst), 701);
    until("all is back", || other.stats().running == 0);
}

/// Much longer than a turn takes, and shorter than a callback that waits for somebody's turn.
const LONG: Duration = Duration::from_secs(5);

/// Queues two callbacks behind one that holds a slot of `scheduler`: the second, which is a call of the loop, does `inside`.
fn second_of_two(
    scheduler: &Scheduler,
    inside: impl FnOnce(&Scheduler) + Send + 'static,
) -> Witness {
    let witness = Witness::default();
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    let own = scheduler.clone();
    assert!(!scheduler.acquire_with(move |()| own.release().unwrap(), NORMAL, ()));
    let (own, seen) = (scheduler.clone(), witness.clone());
    let second = move |()| seen.sees(|| inside(&own));
    assert!(!scheduler.acquire_with(second, NORMAL, ()));
    scheduler.release().unwrap();
    witness
}

/// A callback gives its slot back, for which a thread of its process waits, and then waits for that thread.
#[test]
fn a_thread_of_the_same_member_has_its_turn_before_the_callback_returns() {
    let scheduler = local(1);
    let witness = second_of_two(&scheduler, |own| {
        let (got, gotten) = mpsc::channel();
        let other = own.clone();
        thread::spawn(move || {
            let permit = other.blocking_acquire(NORMAL);
            let _ = got.send(permit.is_ok());
        });
        until("it waits", || own.stats().pending == 1);
        thread::sleep(Duration::from_millis(20));
        own.release().unwrap();
        assert_eq!(gotten.recv_timeout(LONG), Ok(true), "the thread");
    });
    witness.saw_nothing();
}

/// The same, of a task.
#[test]
fn a_task_of_the_same_member_has_its_turn_before_the_callback_returns() {
    let scheduler = local(1);
    let witness = second_of_two(&scheduler, |own| {
        let task = Task::waiting(own.acquire(NORMAL));
        own.release().unwrap();
        assert!(task.finish().is_ok(), "the task");
    });
    witness.saw_nothing();
}

/// What waits is a callback of a handle with a limit of its own, which holds it back: nobody is next, and the slot is free.
#[test]
fn a_slot_that_nobody_is_next_for_is_free_at_once() {
    for lane in [NORMAL, Priority::Low] {
        let shared = Shared::new(2);
        let (scheduler, other) = (shared.member(), shared.member());
        let held = scheduler.try_acquire(NORMAL).unwrap();
        let batch = scheduler.with(1);
        let witness = second_of_two(&scheduler, move |own| {
            let back = batch.clone();
            assert!(!batch.acquire_with(move |()| back.release().unwrap(), lane, ()));
            own.release().unwrap();
            assert_eq!(own.stats().running, 1, "the own permit");
            drop(own.try_acquire(Priority::High).expect("there is a slot"));
            drop(
                other
                    .blocking_acquire_until(1, Priority::High, LONG)
                    .expect("another member"),
            );
        });
        witness.saw_nothing();
        drop(held);
        until("all is back", || scheduler.stats().running == 0);
    }
}

/// Another thread gave a callback's slot back, and it went to another member: the callback has nothing to give back (X21), though
/// others wait behind it.
#[test]
fn x21_a_callback_whose_slot_was_given_back_by_another_thread() {
    undisturbed(given_back_by_another_thread);
}

/// Whether the other member came in time for its turn: else the callback behind has it first.
fn given_back_by_another_thread() -> bool {
    let shared = Shared::new(1);
    let (scheduler, other) = (shared.member(), shared.member());
    // The lottery leaves it to the order.
    scheduler.fix_draw(Some(0));
    let (done, kept) = mpsc::channel();
    let witness = second_of_two(&scheduler, move |own| {
        let back = own.clone();
        assert!(!own.acquire_with(move |()| back.release().unwrap(), NORMAL, ()));
        let waiters = || own.stats().shared.unwrap().waiters;
        let (got, gotten) = mpsc::channel();
        thread::spawn(move || got.send(other.blocking_acquire_owned(Priority::High).unwrap()));
        until("it waits", || waiters() == 2);
        let once = own.clone();
        let freed = Instant::now();
        thread::spawn(move || once.release())
            .join()
            .unwrap()
            .unwrap();
        let permit = gotten.recv_timeout(LONG).unwrap();
        let in_time = none_was_passed_over(freed);
        until("it has left the line", || waiters() == 1 || !in_time);
        let released = own.release();
        done.send((permit, in_time)).unwrap();
        assert!(released == Err(NothingHeld) || !in_time);
    });
    witness.saw_nothing();
    let (permit, in_time) = kept.recv().unwrap();
    drop(permit);
    until("all is back", || scheduler.stats().running == 0);
    in_time
}
