//! The children's side: each operation, prepared, armed and done.

use crate::support::{Args, LONG, Words, hear, say, until};
use shmsched::{Changes, Priority, Scheduler, Segment, crash};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

/// Every operation that the sweep and the pairs know.
pub const ALL: [&str; 26] = [
    "attach",
    "detach",
    "try",
    "release",
    "wait",
    "many",
    "timeout",
    "cancel",
    "callback",
    "queued_callback",
    "callbacks_in_a_row",
    "dispose",
    "close",
    "set",
    "look",
    "hand_over",
    "spare_steps",
    "spare_again",
    "spare_lowered",
    "spare_recall",
    "spare_detach",
    "spare_dispose",
    "spare_wait",
    "spare_task",
    "spare_look",
    "lend",
];

const NORMAL: Priority = Priority::Normal;

/// Does something with the n-th write deadly.
fn armed<T>(n: u64, operation: impl FnOnce() -> T) -> T {
    crash::arm(Some(n));
    let done = operation();
    crash::arm(None);
    done
}

/// Role: PATH OPERATION N. Says "ready" when prepared, waits for a line, and says "survived".
pub fn operate(args: &Args) {
    let location = args.location();
    let n = args.number(2);
    let ready = || {
        say("ready");
        hear();
    };
    if args.text(1) == "attach" {
        ready();
        let segment = armed(n, || Segment::open(&location).unwrap());
        say("survived");
        drop(segment);
        return;
    }
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    // Of two children one may find nothing left: it then does its operation with what there is.
    let soon = Duration::from_millis(5);
    let take = |slots| scheduler.blocking_acquire_until(slots, NORMAL, soon).ok();
    let (name, with_spare) = match args.text(1).strip_prefix("spare_") {
        Some(name) => (name, true),
        None => (args.text(1), false),
    };
    let words = Words::of(&location);
    let pair = || drop(scheduler.try_acquire(NORMAL));
    if with_spare && name != "steps" {
        scheduler.allow_spares();
        pair();
    }
    match name {
        // With a spare from its first pair on, if nobody else is short of slots.
        "steps" => {
            ready();
            armed(n, || {
                scheduler.allow_spares();
                (0..4).for_each(|_| pair());
            });
            say(format!("spare {}", words.spare()));
        }
        // It has a spare already, or had: others may have recalled it meanwhile.
        "again" => {
            ready();
            armed(n, || (0..3).for_each(|_| pair()));
            say(format!("spare {}", words.spare()));
        }
        // Others hold so much that a lower limit leaves no room for its spare.
        "lowered" => {
            let lower = scheduler.with(2);
            ready();
            let taken = armed(n, || lower.try_acquire(NORMAL).is_ok());
            say(format!("taken {taken}"));
        }
        "recall" => {
            ready();
            let all = armed(n, || scheduler.try_acquire_many(3, NORMAL).is_ok());
            say(format!("all {all}"));
        }
        // Somebody may wait: what it leaves is lent.
        "lend" => {
            let held = take(1);
            ready();
            armed(n, || {
                scheduler.lend_spares();
                drop(held);
                (0..2).for_each(|_| pair());
            });
            say(format!("spare {}", words.spare()));
        }
        "task" => {
            ready();
            armed(n, || {
                let taking = scheduler.acquire_until(2, NORMAL, LONG);
                drop(futures_executor::block_on(taking).unwrap());
            });
        }
        "detach" => {
            scheduler.acquire_with(|()| {}, NORMAL, ());
            if with_spare {
                pair();
            }
            ready();
            armed(n, || {
                drop(scheduler);
                drop(segment);
            });
            say("survived");
            return;
        }
        "try" => {
            ready();
            let taken = armed(n, || scheduler.try_acquire(NORMAL));
            drop(taken);
        }
        "release" => {
            let held = take(1);
            ready();
            armed(n, || drop(held));
        }
        "release_all" => {
            let held = take(3);
            ready();
            armed(n, || drop(held));
        }
        "wait" => {
            let slots = if with_spare { 2 } else { 1 };
            ready();
            let got = armed(n, || scheduler.blocking_acquire_until(slots, NORMAL, LONG));
            drop(got.unwrap());
        }
        "many" => {
            ready();
            let got = armed(n, || scheduler.blocking_acquire_until(2, NORMAL, LONG));
            drop(got.unwrap());
        }
        "timeout" => {
            ready();
            let wait = Duration::from_millis(4);
            let _ = armed(n, || {
                scheduler.blocking_acquire_until(1, NORMAL, wait).map(drop)
            });
        }
        "cancel" => {
            ready();
            armed(n, || {
                let mut waiting = pin!(scheduler.acquire(NORMAL));
                let _ = waiting
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                // Dropped here, waiting, called or served.
            });
        }
        "callback" => {
            ready();
            armed(n, || {
                scheduler.acquire_with(|()| {}, NORMAL, ());
                let _ = scheduler.release();
            });
        }
        "queued_callback" => {
            ready();
            let (done, ran) = channel();
            let mine = scheduler.clone();
            armed(n, || {
                scheduler.acquire_with(
                    move |()| {
                        mine.release().unwrap();
                        done.send(()).unwrap();
                    },
                    Priority::High,
                    (),
                );
                ran.recv().unwrap();
            });
        }
        "callbacks_in_a_row" => {
            let (held, one) = (take(1), scheduler.with(1));
            let (done, ran) = channel();
            for _ in 0..5 {
                let (mine, done) = (one.clone(), done.clone());
                let callback = move |()| {
                    mine.release().unwrap();
                    done.send(()).unwrap();
                };
                assert!(!one.acquire_with(callback, NORMAL, ()));
            }
            ready();
            armed(n, || {
                drop(held);
                (0..5).for_each(|_| ran.recv().unwrap());
            });
        }
        "dispose" if with_spare => {
            let _held = take(1);
            pair();
            ready();
            armed(n, || scheduler.dispose());
        }
        "dispose" | "close" => {
            let _held = take(1);
            let _raw = scheduler.acquire_with(|()| {}, NORMAL, ());
            let waiting = queue_up(&scheduler);
            ready();
            armed(n, || match name {
                "close" => scheduler.close(),
                _ => scheduler.dispose(),
            });
            waiting.join().unwrap();
        }
        "set" => {
            ready();
            let changes = Changes::new()
                .concurrency(Some(3))
                .target(Priority::Lowest, 1);
            armed(n, || segment.set(&changes).unwrap());
        }
        "look" => {
            ready();
            armed(n, || segment.look());
        }
        "evict" => {
            ready();
            let orphan = hear().parse().unwrap();
            armed(n, || segment.evict(orphan).unwrap());
        }
        "hand_over" => {
            let held = take(1);
            let waiting = queue_up(&scheduler);
            // Own turn is for who has waited 500 us.
            thread::sleep(Duration::from_millis(1));
            ready();
            armed(n, || {
                drop(held);
                waiting.join().unwrap();
            });
        }
        other => panic!("no operation {other}"),
    }
    say("survived");
}

/// A thread of this process that waits for a slot, for as long as anybody lives, and gives it back.
fn queue_up(scheduler: &Scheduler) -> thread::JoinHandle<()> {
    let before = scheduler.stats().total.deferred;
    let waiter = scheduler.clone();
    let waiting = thread::spawn(move || drop(waiter.blocking_acquire_until(1, NORMAL, LONG)));
    until(LONG, "queued", || {
        scheduler.stats().total.deferred > before || waiting.is_finished()
    });
    waiting
}

/// Role: PATH SLOTS. Holds until it is killed.
pub fn hold(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let _held = scheduler
        .try_acquire_many(args.number(1) as u32, NORMAL)
        .unwrap();
    say("held");
    hear();
}

/// Role: PATH. Keeps a spare slot until it is killed.
pub fn keep(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    scheduler.allow_spares();
    drop(scheduler.try_acquire(NORMAL).unwrap());
    say("kept");
    hear();
}

/// Role: PATH. Holds a slot, leaves its lock to a command, and says its member and the command's pid.
#[allow(
    clippy::zombie_processes,
    reason = "it outlives this process on purpose; the test ends it"
)]
pub fn orphan(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let _held = scheduler.try_acquire(NORMAL).unwrap();
    let _kept = segment.keep_for_child().unwrap();
    let command = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    say(format!(
        "orphan {} {}",
        segment.member().index,
        command.id()
    ));
    hear();
}
