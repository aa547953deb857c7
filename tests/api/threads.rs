//! Threads: permits that move between them, threads that end, more threads than records.

use crate::support::{NORMAL, Shared, alone, ends, local, until};
use shmsched::{OwnedPermit, Priority, Scheduler};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

/// One thread takes, another gives back: its net goes below zero, the sums stay right.
#[test]
fn permits_move_between_threads() {
    let shared = Shared::new(1_000);
    let watcher = shared.member();
    let member = shared.member();
    let running = || watcher.stats().shared.unwrap().running;
    thread::scope(|scope| {
        let (sender, permits) = mpsc::sync_channel::<OwnedPermit>(8);
        let taker = member.clone();
        scope.spawn(move || {
            for n in 0..3_000 {
                sender
                    .send(taker.try_acquire_many_owned(1 + n % 3, NORMAL).unwrap())
                    .unwrap();
            }
        });
        scope.spawn(move || permits.into_iter().for_each(drop));
    });
    assert_eq!((running(), member.stats().running), (0, 0));
    // Both records went to threads that come later.
    let kept = thread::scope(|scope| {
        scope
            .spawn(|| member.try_acquire_many_owned(5, NORMAL).unwrap())
            .join()
            .unwrap()
    });
    assert_eq!((running(), member.stats().running), (5, 5));
    let kept = thread::spawn(move || {
        let mut kept = kept;
        drop(kept.split(2));
        kept
    });
    let kept = kept.join().unwrap();
    assert_eq!((running(), member.stats().running), (3, 3));
    // Dispose gives back exactly what is held, negative nets included.
    member.dispose();
    assert_eq!(running(), 0);
    drop(kept);
    assert_eq!(running(), 0);
}

/// The same for a member that detaches, and while others watch.
#[test]
fn moved_permits_and_detaching() {
    let shared = Shared::new(100);
    let watcher = shared.member();
    let _base = watcher.try_acquire_many(10, NORMAL).unwrap();
    for _ in 0..10 {
        let member = shared.member();
        let permits: Vec<_> = (0..4)
            .map(|_| {
                let own = member.clone();
                thread::spawn(move || own.try_acquire_many_owned(20, NORMAL).unwrap())
            })
            .map(|thread| thread.join().unwrap())
            .collect();
        let mut permits = permits.into_iter();
        drop(permits.next());
        std::mem::forget(permits.next().map(|mut permit| permit.split(20)));
        assert_eq!(member.stats().running, 60);
        watcher.look();
        assert_eq!(watcher.stats().shared.unwrap().running, 70);
        drop(permits);
        // What was forgotten without `forget` is given back when the member goes; here a clone lives in it.
        member.dispose();
        assert_eq!(watcher.stats().shared.unwrap().running, 10);
    }
}

/// A thread ends while its permits live on.
#[test]
fn a_thread_ends_with_permits_alive() {
    let scheduler = local(10);
    let own = scheduler.clone();
    let permits = thread::spawn(move || {
        // One is lost with the thread: it stays taken.
        std::mem::forget(own.try_acquire(NORMAL).unwrap());
        (0..4)
            .map(|_| own.try_acquire_owned(NORMAL).unwrap())
            .collect::<Vec<_>>()
    });
    let permits = permits.join().unwrap();
    assert_eq!(scheduler.stats().running, 5);
    drop(permits);
    assert_eq!(scheduler.stats().running, 1);
    scheduler.look();
    assert_eq!(scheduler.stats().running, 1);
}

/// Records are handed on: thousands of short threads need no more than a few.
#[test]
fn short_threads_reuse_records() {
    let shared = Shared::new(4);
    let member = shared.member();
    let mut observer = shmsched::Observer::open(&shared.location).unwrap();
    for _ in 0..1_500 {
        let own = member.clone();
        thread::spawn(move || drop(own.blocking_acquire(NORMAL).unwrap()))
            .join()
            .unwrap();
    }
    let used = observer.snapshot().unwrap().segment.records_used;
    assert!(used <= 4, "{used} records");
    assert_eq!(member.stats().running, 0);
}

/// Six hundred threads at once share 511 records; the rest use the common one.
#[test]
fn more_threads_than_records() {
    const THREADS: usize = 600;
    let scheduler = local(50);
    let together = Barrier::new(THREADS);
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for n in 0..THREADS {
            let (scheduler, together, inside) = (&scheduler, &together, &inside);
            let run = move || {
                // Everybody takes a record before anybody goes on.
                drop(scheduler.blocking_acquire(NORMAL).unwrap());
                together.wait();
                for k in 0..5 {
                    let permit = scheduler
                        .blocking_acquire(Priority::ALL[(n + k) % 7])
                        .unwrap();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 50);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
                together.wait();
                // Handed from thread to thread through the common record.
                let permit = scheduler.try_acquire_owned(NORMAL);
                together.wait();
                drop(permit);
            };
            thread::Builder::new()
                .stack_size(128 * 1024)
                .spawn_scoped(scope, run)
                .unwrap();
        }
    });
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.pending), (0, 0));
    assert!(scheduler.try_acquire_many(50, NORMAL).is_ok());
    scheduler.dispose();
    assert_eq!(scheduler.available_permits(), 50);
}

/// Takes and gives back in the destructor of a thread-local, before or after the library's own are gone.
struct AtTheEnd(Scheduler, Option<OwnedPermit>, Arc<AtomicU32>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        drop(self.1.take());
        let permit = self.0.blocking_acquire(NORMAL).unwrap();
        let tried = self.0.try_acquire(NORMAL).unwrap();
        drop((permit, tried));
        let ran = self.2.clone();
        let within = self.0.acquire_with(
            move |()| {
                ran.fetch_add(1, Ordering::SeqCst);
            },
            NORMAL,
            (),
        );
        assert!(within);
        self.0.release().unwrap();
    }
}

thread_local! {
    static FIRST: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
    static LAST: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
}

#[test]
fn thread_local_destructors_acquire_and_release() {
    alone(
        "threads::thread_local_destructors_acquire_and_release",
        || {
            let scheduler = local(4);
            let ran = Arc::new(AtomicU32::new(0));
            for round in 1..=50 {
                let (own, count) = (scheduler.clone(), ran.clone());
                thread::spawn(move || {
                    let at_the_end = || {
                        let permit = own.try_acquire_owned(NORMAL).unwrap();
                        AtTheEnd(own.clone(), Some(permit), count.clone())
                    };
                    // Registered before the library's thread-locals, and after them.
                    FIRST.set(None);
                    FIRST.set(Some(at_the_end()));
                    LAST.set(Some(at_the_end()));
                })
                .join()
                .unwrap();
                assert_eq!(ran.load(Ordering::SeqCst), 2 * round);
                assert_eq!(scheduler.stats().running, 0);
            }
            scheduler.dispose();
            assert_eq!(scheduler.available_permits(), 4);
        },
    );
}

/// Gives a slot back in a destructor that runs after those of the library, when a callback waits for it.
struct StartsACallback(Option<OwnedPermit>);

impl Drop for StartsACallback {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

thread_local! {
    static STARTS: RefCell<Option<StartsACallback>> = const { RefCell::new(None) };
}

#[test]
fn thread_local_destructors_start_callbacks() {
    const NAME: &str = "threads::thread_local_destructors_start_callbacks";
    alone(NAME, || callbacks_of_an_ending_thread(1));
}

/// A long queue does not recurse there either.
#[test]
fn thread_local_destructors_start_many_callbacks() {
    const NAME: &str = "threads::thread_local_destructors_start_many_callbacks";
    alone(NAME, || callbacks_of_an_ending_thread(20_000));
}

fn callbacks_of_an_ending_thread(queued: u32) {
    let scheduler = local(1);
    let ran = Arc::new(AtomicU32::new(0));
    let own = scheduler.clone();
    let count = ran.clone();
    let ending = thread::spawn(move || {
        // First of all, so that it is destroyed last.
        STARTS.set(Some(StartsACallback(None)));
        let queue = || {
            let (count, releases) = (count.clone(), own.clone());
            let callback = move |()| {
                count.fetch_add(1, Ordering::SeqCst);
                releases.release().unwrap();
            };
            assert!(!own.acquire_with(callback, NORMAL, ()));
        };
        // A callback that runs on this thread, as an ordinary one does.
        let permit = own.try_acquire_owned(NORMAL).unwrap();
        queue();
        drop(permit);
        until("it ran", || count.load(Ordering::SeqCst) == 1);
        let permit = own.try_acquire_owned(NORMAL).unwrap();
        (0..queued).for_each(|_| queue());
        STARTS.set(Some(StartsACallback(Some(permit))));
    });
    ends("the thread", move || ending.join().unwrap());
    until("the callbacks ran", || {
        ran.load(Ordering::SeqCst) == 1 + queued
    });
    until("the slot came back", || scheduler.available_permits() == 1);
}
