//! Group F: one budget, several members. Each `member` is an attachment of its own, as another process's would be.

use crate::calm::undisturbed;
use crate::support::{FOREVER, NORMAL, Shared, Task, alone, child, ends, local, told, until};
use rustix::time::{ClockId, clock_gettime};
use shmsched::{Concurrency, Location, Priority, Segment, TryAcquireError};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Admission is exact where the source was soft: never above the limit, and all of it used.
#[test]
fn f1_f4_f5_f6_r4_r12_members_share_a_limit_exactly() {
    let shared = Shared::new(8);
    let running = AtomicI32::new(0);
    let highest = AtomicI32::new(0);
    thread::scope(|scope| {
        for n in 0..9 {
            let member = shared.member();
            let (running, highest) = (&running, &highest);
            scope.spawn(move || {
                // The first eight stay in until all of them are.
                let stays = |k| k == 0 && n < 8;
                for k in 0..400 {
                    let permit = match n % 3 {
                        0 if stays(k) => {
                            let mut taken = None;
                            until("there is a slot", || {
                                taken = member.try_acquire_owned(NORMAL).ok();
                                taken.is_some()
                            });
                            taken
                        }
                        0 => member.try_acquire_owned(NORMAL).ok(),
                        1 => member.blocking_acquire_owned(Priority::ALL[k % 7]).ok(),
                        _ => futures_executor::block_on(member.acquire_owned(NORMAL)).ok(),
                    };
                    if let Some(permit) = permit {
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        highest.fetch_max(now, Ordering::SeqCst);
                        assert!(member.stats().shared.unwrap().running <= 8);
                        if stays(k) {
                            until("all are in", || highest.load(Ordering::SeqCst) >= 8);
                        }
                        if k % 16 == 0 {
                            thread::sleep(Duration::from_micros(200));
                        }
                        running.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                }
            });
        }
    });
    assert_eq!(highest.load(Ordering::SeqCst), 8);
    assert_eq!(shared.member().stats().shared.unwrap().running, 0);
}

#[test]
fn f2_who_waits_sleeps() {
    // A machine that is held up while it looks may put that down to it.
    undisturbed(|| {
        let (waited, used) = a_wait();
        println!("{used:?} of CPU in {waited:?}");
        assert!(waited >= Duration::from_millis(400));
        used < Duration::from_millis(60)
    });
}

/// How long somebody waited, and what that took of the processor.
fn a_wait() -> (Duration, Duration) {
    let shared = Shared::new(1);
    let (a, b) = (shared.member(), shared.member());
    let held = a.try_acquire(NORMAL).unwrap();
    let waits = thread::spawn(move || {
        let cpu = || {
            let used = clock_gettime(ClockId::ThreadCPUTime);
            Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
        };
        let (begun, before) = (Instant::now(), cpu());
        drop(b.blocking_acquire(NORMAL).unwrap());
        (begun.elapsed(), cpu() - before)
    });
    until("it waits", || a.stats().shared.unwrap().waiters == 1);
    thread::sleep(Duration::from_millis(400));
    drop(held);
    ends("the waiter", || waits.join().unwrap())
}

/// Who was not woken looks up by himself, 7 ms after he came, if he is one of the first two.
const BY_ITSELF: Duration = Duration::from_millis(5);

/// A strict hand-off between two members, both ways. One whose wake-up was lost takes longer than others.
#[test]
fn f3_x39_a_release_wakes_the_other_member() {
    // The last one has nobody to wake; a busy machine may delay a few.
    undisturbed(|| late_hand_offs() <= 150);
}

/// How many of 2,000 were late, or enough of them.
fn late_hand_offs() -> u32 {
    const ROUNDS: u32 = 1_000;
    let shared = Shared::new(1);
    let late = AtomicU32::new(0);
    let turn = AtomicU32::new(0);
    thread::scope(|scope| {
        for side in 0..2 {
            let member = shared.member();
            let (late, turn) = (&late, &turn);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    if late.load(Ordering::SeqCst) > 150 {
                        break;
                    }
                    let permit = member.blocking_acquire(NORMAL).unwrap();
                    turn.store(side, Ordering::SeqCst);
                    // Hold it until the other one waits, and is asleep.
                    let begun = Instant::now();
                    while member.stats().shared.unwrap().waiters == 0
                        && begun.elapsed() < Duration::from_millis(20)
                    {
                        thread::yield_now();
                    }
                    thread::sleep(Duration::from_micros(50));
                    let freed = Instant::now();
                    drop(permit);
                    while turn.load(Ordering::SeqCst) == side
                        && freed.elapsed() < Duration::from_millis(95)
                    {
                        thread::yield_now();
                    }
                    if freed.elapsed() >= BY_ITSELF {
                        late.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    println!("{late:?} of {} late", 2 * ROUNDS);
    late.into_inner()
}

/// The same with tasks, that the helper thread wakes.
#[test]
fn f3_a_release_wakes_the_other_members_task() {
    undisturbed(|| late_wakes_of_tasks() <= 40);
}

/// How many of a thousand were late, or enough of them.
fn late_wakes_of_tasks() -> u32 {
    let shared = Shared::new(1);
    let members = [shared.member(), shared.member()];
    let mut held = Some(members[0].try_acquire(NORMAL).unwrap());
    let mut late = 0;
    for round in 1..1_000 {
        let waiting = Task::waiting(members[round % 2].acquire(NORMAL));
        let freed = Instant::now();
        drop(held.take());
        held = Some(waiting.finish().unwrap());
        late += u32::from(freed.elapsed() > BY_ITSELF);
        if late > 40 {
            break;
        }
    }
    println!("{late} late");
    late
}

/// Who is woken but held back by its own target passes the turn on.
#[test]
fn x39_a_waiter_that_cannot_use_its_turn_passes_it_on() {
    let shared = Shared::new(3);
    let strict = shared
        .member()
        .with(Concurrency::unlimited().target(Priority::Highest, 1));
    let (free, holds) = (shared.member(), shared.member());
    holds.fix_draw(Some(0));
    let mut held = holds.try_acquire_many(3, NORMAL).unwrap();
    let mut blocked = Task::waiting(strict.acquire(Priority::Highest));
    let waiting = Task::waiting(free.acquire(Priority::Lowest));
    // The draw of the highest may pass its target: take another.
    holds.fix_draw(Some(100));
    drop(held.split(1));
    let permit = waiting.finish().unwrap();
    assert!(blocked.poll().is_none());
    drop(permit);
    drop(held);
    assert!(blocked.finish().is_ok());
}

/// Parked work does not keep a process alive.
#[test]
fn f7_x10_parked_work_does_not_keep_the_process_alive() {
    const NAME: &str = "shared::f7_x10_parked_work_does_not_keep_the_process_alive";
    alone(NAME, || {
        let shared = Shared::new(1);
        let member = Arc::new(shared.member());
        std::mem::forget(member.try_acquire_owned(NORMAL).unwrap());
        let waits = member.clone();
        thread::spawn(move || waits.run_blocking(|| panic!("it ran"), NORMAL));
        until("the thread waits", || member.stats().pending == 1);
        assert!(!member.acquire_with(|()| panic!("it ran"), NORMAL, ()));
        let other = member.clone();
        std::mem::forget(Task::waiting(
            async move { other.acquire_owned(NORMAL).await },
        ));
        // The caller's `child` sees that the process ends.
        std::mem::forget(member);
    });
}

/// Blocking on the result is what keeps it alive.
#[test]
fn f8_blocking_on_the_result_waits() {
    let scheduler = local(1);
    let held = scheduler.try_acquire_owned(NORMAL).unwrap();
    let own = scheduler.clone();
    let waits = thread::spawn(move || {
        let run = own.run(|| async { 7 }, NORMAL);
        futures_executor::block_on(run)
    });
    until("it waits", || scheduler.stats().pending == 1);
    assert!(!waits.is_finished());
    drop(held);
    assert_eq!(ends("the run", || waits.join().unwrap()), Ok(7));
}

#[test]
fn f9_g2_running_is_the_instances_own() {
    let shared = Shared::new(8);
    let (a, b) = (shared.member(), shared.member());
    let _held = a.try_acquire_many(8, NORMAL).unwrap();
    assert_eq!(a.stats().running, 8);
    assert_eq!(b.stats().running, 0);
    assert_eq!(b.stats().shared.unwrap().running, 8);
}

#[test]
fn f10_x41_waiters_counts_members() {
    let shared = Shared::new(1);
    let [a, b, c] = [shared.member(), shared.member(), shared.member()];
    let held = a.try_acquire(NORMAL).unwrap();
    let of_b: Vec<_> = (0..6)
        .map(|n| Task::waiting(b.acquire(Priority::ALL[n])))
        .collect();
    let waiters = |n| {
        until("they are counted", || {
            a.stats().shared.unwrap().waiters == n
        })
    };
    waiters(1);
    let of_c = Task::waiting(c.acquire(NORMAL));
    waiters(2);
    drop(held);
    drop(of_b);
    drop(of_c.finish().unwrap());
    waiters(0);
    assert_eq!(a.stats().shared.unwrap().running, 0);
}

#[test]
fn f11_x26_targets_count_all_members() {
    let shared = Shared::new(100);
    let (a, b) = (shared.member(), shared.member());
    let b = b.with(Concurrency::unlimited().target(Priority::Low, 20));
    let mut held = a.try_acquire_many(20, NORMAL).unwrap();
    let mut waiting = Task::waiting(b.acquire(Priority::Low));
    assert!(waiting.poll().is_none());
    drop(held.split(1));
    assert!(waiting.finish().is_ok());
}

/// True is one of `concurrency` slots, not ownership: two members do the same work at the same time.
#[test]
fn f12_r2_a_slot_is_not_ownership() {
    let shared = Shared::new(2);
    let (a, b) = (shared.member(), shared.member());
    assert!(a.acquire_with(drop, NORMAL, "the same work"));
    assert!(b.acquire_with(drop, NORMAL, "the same work"));
}

#[test]
fn f13_shared_and_unlimited() {
    let shared = Shared::new(Concurrency::unlimited());
    let (a, b) = (shared.member(), shared.member());
    assert_eq!(a.concurrency(), None);
    let many = a.try_acquire_many(100_000, NORMAL).unwrap();
    assert!(b.try_acquire(Priority::Lowest).is_ok());
    let own = b.with(Concurrency::unlimited().target(Priority::Low, 100_001));
    let last = own.try_acquire(Priority::Low).unwrap();
    assert!(own.try_acquire(Priority::Low).is_err());
    drop((many, last));
}

/// The three words that a shell can read: CONCURRENCY, RUNNING, WAITERS from 0x100 on, little-endian.
#[test]
fn f14_one_running_word_and_one_waiters_word() {
    let shared = Shared::new(3);
    let file = std::fs::File::open(shared.location.path()).unwrap();
    let words = || {
        let mut bytes = [0; 12];
        file.read_exact_at(&mut bytes, 0x100).unwrap();
        [0, 4, 8].map(|at| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()))
    };
    let members: Vec<_> = (0..4).map(|_| shared.member()).collect();
    assert_eq!(words(), [3, 0, 0]);
    let held: Vec<_> = members[..3]
        .iter()
        .map(|member| member.try_acquire(NORMAL).unwrap())
        .collect();
    let waiting: Vec<_> = members[..2]
        .iter()
        .map(|member| Task::waiting(member.acquire(NORMAL)))
        .collect();
    until("two wait", || words() == [3, 3, 2]);
    drop((waiting, held));
    until("nobody is there", || words() == [3, 0, 0]);
    let unlimited = Shared::new(Concurrency::unlimited());
    let mut bytes = [0; 4];
    let file = std::fs::File::open(unlimited.location.path()).unwrap();
    file.read_exact_at(&mut bytes, 0x100).unwrap();
    assert_eq!(i32::from_le_bytes(bytes), -1);
}

/// A child gets the path among other arguments and shares the budget.
#[test]
fn f15_a_child_attaches_by_path() {
    const NAME: &str = "shared::f15_a_child_attaches_by_path";
    if let Some(told) = told(NAME) {
        let [worker, path, label]: [&str; 3] =
            told.split(';').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((worker, label), ("7", "thumbs"));
        let segment = Segment::open(&Location::File(path.into())).unwrap();
        let scheduler = segment.scheduler().unwrap();
        assert_eq!(scheduler.concurrency(), Some(2));
        assert_eq!(scheduler.stats().shared.unwrap().running, 1);
        let permit = scheduler.blocking_acquire(NORMAL).unwrap();
        assert_eq!(
            scheduler.try_acquire(NORMAL).unwrap_err(),
            TryAcquireError::NoPermits
        );
        drop(permit);
        return;
    }
    let shared = Shared::new(2);
    let member = shared.member();
    let _held = member.try_acquire(NORMAL).unwrap();
    child(
        NAME,
        &format!("7;{};thumbs", shared.location.path().display()),
    );
    assert_eq!(member.stats().shared.unwrap().running, 1);
}

/// Two members of one process: own queues, own slots, other identities; a clone is the same member.
#[test]
fn y12_members_of_one_process_are_separate() {
    let shared = Shared::new(4);
    let (a, b) = (shared.open(), shared.open());
    assert_ne!(a.member(), b.member());
    assert_eq!(a.member(), a.clone().member());
    assert_eq!(a.id(), b.id());
    let (of_a, of_b) = (a.scheduler().unwrap(), b.scheduler().unwrap());
    let permit = of_a.try_acquire_many_owned(3, NORMAL).unwrap();
    let _one = of_b.try_acquire_owned(NORMAL).unwrap();
    assert_eq!((of_a.stats().running, of_b.stats().running), (3, 1));
    // Closing one concerns the other in nothing.
    of_a.close();
    drop(permit);
    assert!(of_b.try_acquire_many(3, NORMAL).is_ok());
    assert!(of_a.try_acquire(NORMAL).is_err());
    // A permit keeps its member attached.
    let kept = of_b.try_acquire_owned(NORMAL).unwrap();
    drop((of_b, b));
    assert_eq!(of_a.stats().shared.unwrap().running, 2);
    drop(kept);
    assert_eq!(of_a.stats().shared.unwrap().running, 1);
}

/// A slot freed by detaching goes to who waits.
#[test]
fn f3_detaching_wakes() {
    let shared = Shared::new(1);
    let (a, b) = (shared.member(), shared.member());
    std::mem::forget(a.try_acquire(NORMAL).unwrap());
    let waiting = Task::waiting(b.acquire(NORMAL));
    let freed = Instant::now();
    drop(a);
    assert!(waiting.finish().is_ok());
    assert!(freed.elapsed() < FOREVER / 3);
}

/// Raising the limit wakes as many as fit, of all members.
#[test]
fn f3_raising_the_limit_wakes() {
    let shared = Shared::new(1);
    let segment = shared.open();
    let members: Vec<_> = (0..3).map(|_| shared.member()).collect();
    let _held = segment
        .scheduler()
        .unwrap()
        .try_acquire_owned(NORMAL)
        .unwrap();
    let (sender, served) = mpsc::channel();
    thread::scope(|scope| {
        for member in &members {
            let sender = sender.clone();
            scope.spawn(move || {
                let permit = member.blocking_acquire(NORMAL).unwrap();
                sender.send(permit).unwrap();
            });
        }
        let waiters = || members[0].stats().shared.unwrap().waiters;
        until("all wait", || waiters() == 3);
        let raise = |to| segment.set(&shmsched::Changes::new().concurrency(Some(to)));
        raise(3).unwrap();
        let _two = [(); 2].map(|()| served.recv_timeout(FOREVER).unwrap());
        until("one is left", || waiters() == 1);
        raise(4).unwrap();
        drop(served.recv_timeout(FOREVER).unwrap());
    });
}
