//! What the children of [`crate::gates`] do at the Limiter and the Pacer, with one write of it deadly.

use crate::support::{Args, LONG, hear, say};
use shmsched::{Changes, Observer, Priority, Segment, Settings, crash};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub const NORMAL: Priority = Priority::Normal;
pub const RATE: u32 = 1_000;
pub const INTERVAL: Duration = Duration::from_millis(30);
/// Places for callers at the Pacer.
pub const PLACES: usize = 2;
/// What the children ask for.
pub const AMOUNT: u32 = 10;
/// More than the bucket holds.
pub const MORE: u32 = 1_200;

fn poll_once<T>(call: impl Future<Output = T>) -> Poll<T> {
    pin!(call).poll(&mut Context::from_waker(Waker::noop()))
}

/// Does something with the n-th write deadly.
fn armed<T>(n: u64, operation: impl FnOnce() -> T) -> T {
    crash::arm(Some(n));
    let done = operation();
    crash::arm(None);
    done
}

/// Role: PATH OPERATION N. Says "ready" when prepared, waits for a line, and says "survived as meant", or "survived late" if
/// it stood still for so long that what it was to wait for was there already.
pub fn operate(args: &Args) {
    let location = args.location();
    let n = args.number(2);
    let ready = || {
        say("ready");
        hear();
    };
    if args.text(1) == "create" {
        ready();
        armed(n, || Segment::make(&location, &settings()).unwrap());
        say("survived as meant");
        return;
    }
    let segment = Segment::open(&location).unwrap();
    if args.text(1) == "detach" {
        let (limiter, pacer) = (segment.limiter().unwrap(), segment.pacer().unwrap());
        let queued = limiter.consume(|()| {}, AMOUNT, NORMAL, ());
        assert_eq!(queued, Ok(false));
        pacer.try_start().unwrap();
        ready();
        armed(n, || drop((limiter, pacer, segment)));
        say("survived as meant");
        return;
    }
    let limiter = segment.limiter();
    let pacer = segment.pacer();
    // Of a segment without gates only `set` makes use.
    let limiter = || limiter.as_ref().unwrap();
    let pacer = || pacer.as_ref().unwrap();
    let short = Duration::from_millis(4);
    // It stood in a line; or somebody else does still.
    let waited = || limiter().stats().total.deferred + pacer().stats().deferred != 0;
    let others_wait = || {
        let seen = Observer::open(&location).unwrap().snapshot().unwrap();
        seen.limiter.unwrap().waiters != 0 || seen.pacer.unwrap().waiting != 0
    };
    let as_meant = match args.text(1) {
        "try" => {
            ready();
            let _ = armed(n, || limiter().try_consume(AMOUNT));
            true
        }
        "wait" => {
            ready();
            armed(n, || limiter().blocking_acquire(AMOUNT, NORMAL)).unwrap();
            waited()
        }
        "debt" => {
            ready();
            armed(n, || limiter().blocking_acquire(MORE, NORMAL)).unwrap();
            true
        }
        "guard" => {
            ready();
            let waiter = limiter().clone();
            let begun = Instant::now();
            let waiting = std::thread::spawn(move || waiter.blocking_acquire(AMOUNT, NORMAL));
            // It has looked up at 800 ms; what is left is the turn itself, which comes a second after it joined.
            std::thread::sleep(Duration::from_millis(900));
            let mut in_time = false;
            armed(n, || {
                in_time = begun.elapsed() < Duration::from_secs(1);
                waiting.join().unwrap()
            })
            .unwrap();
            in_time
        }
        "refund" => {
            limiter().try_consume(AMOUNT).unwrap();
            ready();
            armed(n, || limiter().refund(AMOUNT));
            true
        }
        "cancel" => {
            ready();
            armed(n, || drop(poll_once(limiter().acquire(AMOUNT, NORMAL))));
            waited()
        }
        "timeout" => {
            ready();
            let _ = armed(n, || {
                limiter().blocking_acquire_until(AMOUNT, NORMAL, short)
            });
            waited()
        }
        "callback" => {
            ready();
            let (done, ran) = channel();
            armed(n, || {
                let call = move |()| done.send(()).unwrap();
                limiter().consume(call, AMOUNT, NORMAL, ()).unwrap();
                ran.recv().unwrap();
                limiter().blocking_drain();
            });
            waited()
        }
        "child" | "child_waits" => {
            let child = limiter().child(RATE / 2).unwrap();
            ready();
            armed(n, || child.blocking_acquire(AMOUNT, NORMAL)).unwrap();
            args.text(1) == "child" || waited()
        }
        "child_cancel" => {
            let child = limiter().child(RATE / 2).unwrap();
            ready();
            armed(n, || drop(poll_once(child.acquire(AMOUNT, NORMAL))));
            waited()
        }
        "start" => {
            ready();
            let _ = armed(n, || pacer().try_start());
            true
        }
        "start_wait" => {
            ready();
            armed(n, || pacer().blocking_start()).unwrap();
            waited()
        }
        "start_run" => {
            ready();
            armed(n, || futures_executor::block_on(pacer().run(async || ()))).unwrap();
            waited()
        }
        "start_cancel" => {
            ready();
            armed(n, || drop(poll_once(pacer().start())));
            waited()
        }
        "start_timeout" => {
            ready();
            let _ = armed(n, || pacer().blocking_start_until(short));
            waited()
        }
        "start_full" => {
            ready();
            let _ = armed(n, || pacer().blocking_start_until(short));
            true
        }
        "start_spare" => {
            ready();
            let start = pacer().start_holding_until(LONG);
            armed(n, || futures_executor::block_on(start)).unwrap();
            waited()
        }
        "set_rate" => {
            ready();
            armed(n, || segment.set(&Changes::new().rate(2 * RATE))).unwrap();
            others_wait()
        }
        "set_interval" => {
            ready();
            let changes = Changes::new().interval(INTERVAL * 2);
            armed(n, || segment.set(&changes)).unwrap();
            others_wait()
        }
        "add" => {
            ready();
            let changes = Changes::new().rate(RATE).interval(INTERVAL);
            armed(n, || segment.set(&changes)).unwrap();
            true
        }
        other => panic!("no operation {other}"),
    };
    say(if as_meant {
        "survived as meant"
    } else {
        "survived late"
    });
}

pub fn settings() -> Settings {
    Settings::new()
        .concurrency(2)
        .rate(RATE)
        .interval(INTERVAL)
        .max_waiting(PLACES as u32)
        .members(8)
}
