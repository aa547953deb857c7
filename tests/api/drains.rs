//! Long queues of callbacks, which one thread drains so often in a row that it needs no lock; and who comes amid that.

use crate::support::{NORMAL, Shared, Witness, local, until};
use shmsched::{NothingHeld, Observer, Scheduler};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// So many that the queue has been one thread's for long.
const MANY: usize = 5_000;

/// Queues callbacks behind one that holds the only slot.
fn queued(scheduler: &Scheduler, callback: impl Fn(usize) + Clone + Send + 'static) -> Witness {
    let witness = Witness::default();
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    for n in 0..MANY {
        let (witness, callback) = (witness.clone(), callback.clone());
        let callback = move |n| witness.sees(|| callback(n));
        assert!(!scheduler.acquire_with(callback, NORMAL, n));
    }
    witness
}

/// Now and then a callback leaves its slot to another thread, which goes on with the queue.
#[test]
fn others_release_in_the_middle() {
    let scheduler = local(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (give, given) = mpsc::channel::<()>();
    let (own, seen) = (scheduler.clone(), order.clone());
    let witness = queued(&scheduler, move |n| {
        seen.lock().unwrap().push(n);
        match n % 700 == 699 {
            true => give.send(()).unwrap(),
            false => own.release().unwrap(),
        }
    });
    scheduler.release().unwrap();
    for _ in 0..MANY / 700 {
        given.recv().unwrap();
        let own = scheduler.clone();
        thread::spawn(move || own.release().unwrap())
            .join()
            .unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..MANY).collect::<Vec<_>>());
    witness.saw_nothing();
    assert_eq!(scheduler.release(), Err(NothingHeld));
    let stats = scheduler.stats();
    assert_eq!((stats.running, stats.pending), (0, 0));
}

/// Between a release and the beginning of the next callback nobody holds anything, whoever asks.
#[test]
fn nothing_is_held_between_two_of_them() {
    let scheduler = local(1);
    let ran = Arc::new(AtomicUsize::new(0));
    let (ask, asked) = mpsc::channel::<mpsc::Sender<_>>();
    let stranger = scheduler.clone();
    let answering = thread::spawn(move || {
        for answer in asked {
            answer.send(stranger.release()).unwrap();
        }
    });
    let (own, count) = (scheduler.clone(), ran.clone());
    let witness = queued(&scheduler, move |n| {
        count.fetch_add(1, SeqCst);
        own.release().unwrap();
        assert_eq!(own.release(), Err(NothingHeld), "{n}: its own thread");
        if n % 500 == 250 {
            let (answer, answered) = mpsc::channel();
            ask.send(answer).unwrap();
            assert_eq!(answered.recv().unwrap(), Err(NothingHeld), "{n}: another");
        }
    });
    scheduler.release().unwrap();
    assert_eq!(ran.load(SeqCst), MANY);
    witness.saw_nothing();
    assert_eq!(scheduler.stats().running, 0);
    answering.join().unwrap();
}

/// Threads that queue in bursts, each of them for long enough to have the queue for itself: never more than the limit at
/// once, and none is lost.
#[test]
fn many_threads_keep_to_the_limit() {
    for limit in [1, 3] {
        let scheduler = local(limit as u32);
        let (now, most, ran) = (
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        );
        let counts = Arc::new((now, most, ran));
        thread::scope(|scope| {
            for thread in 0..4 {
                let (scheduler, counts) = (&scheduler, counts.clone());
                scope.spawn(move || {
                    for burst in 0..6 {
                        for n in 0..1_500 {
                            let (own, counts) = (scheduler.clone(), counts.clone());
                            let callback = move |()| {
                                let (now, most, ran) = &*counts;
                                most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                                if n % 100 == 0 {
                                    thread::yield_now();
                                }
                                now.fetch_sub(1, SeqCst);
                                ran.fetch_add(1, SeqCst);
                                own.release().unwrap();
                            };
                            scheduler.acquire_with(callback, NORMAL, ());
                        }
                        thread::sleep(Duration::from_millis((thread + burst) % 3));
                    }
                });
            }
        });
        let (_, most, ran) = &*counts;
        until("all ran", || ran.load(SeqCst) == 4 * 6 * 1_500);
        assert!(most.load(SeqCst) <= limit);
        until("all came back", || scheduler.stats().running == 0);
        assert_eq!(scheduler.release(), Err(NothingHeld));
    }
}

/// Counts when it is dropped.
struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// The end comes amid the queue, from within and from another thread: what has not begun is dropped, once.
#[test]
fn ended_in_the_middle() {
    let ends: [fn(&Scheduler); 2] = [Scheduler::close, Scheduler::dispose];
    for (at, end) in ends.into_iter().enumerate() {
        for elsewhere in [false, true] {
            let scheduler = local(1);
            let (ran, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::default());
            assert!(scheduler.acquire_with(drop, NORMAL, ()));
            for n in 0..MANY {
                let (own, ran) = (scheduler.clone(), ran.clone());
                let counts = Counts(Arc::clone(&dropped));
                let callback = move |()| {
                    let _counts = counts;
                    ran.fetch_add(1, SeqCst);
                    if n == MANY / 2 {
                        match elsewhere {
                            true => {
                                let own = own.clone();
                                thread::spawn(move || end(&own)).join().unwrap();
                            }
                            false => end(&own),
                        }
                    }
                    // Disposed, nothing is held any more.
                    let _ = own.release();
                };
                assert!(!scheduler.acquire_with(callback, NORMAL, ()));
            }
            scheduler.release().unwrap();
            let case = (at, elsewhere);
            assert_eq!(ran.load(SeqCst), MANY / 2 + 1, "{case:?}");
            until("all dropped", || dropped.load(SeqCst) == MANY);
            assert_eq!(scheduler.release(), Err(NothingHeld));
            assert_eq!(scheduler.available_permits(), 1);
        }
    }
}

/// However they are stamped, each wait is counted once, and none as longer than all took together.
#[test]
fn each_wait_is_counted_once() {
    let shared = Shared::new(1);
    let scheduler = shared.member();
    let begun = Instant::now();
    let own = scheduler.clone();
    let witness = queued(&scheduler, move |_| own.release().unwrap());
    scheduler.release().unwrap();
    witness.saw_nothing();
    let took = begun.elapsed();
    let total = scheduler.stats().total;
    let many = MANY as u64;
    assert_eq!((total.deferred, total.completed), (many, many));
    let snapshot = Observer::open(&shared.location).unwrap().snapshot();
    let waits = snapshot.unwrap().scheduler.unwrap().waits;
    assert_eq!(waits.count(), many);
    // One tick of the coarse clock, which is ten milliseconds at most.
    let most = (took + Duration::from_millis(10)).as_micros() as u64;
    assert!(waits.longest_us <= most && waits.sum_us <= many * most);
}
