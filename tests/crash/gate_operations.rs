//! What the children of [`crate::gates`] do at the Limiter and the Pacer, with one write of it deadly.

use crate::support::{Args, LONG, hear, say};
use shmsched::{Changes, Priority, Segment, Settings, crash};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

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

/// Role: PATH OPERATION N. Says "ready" when prepared, waits for a line, and says "survived".
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
        say("survived");
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
        say("survived");
        return;
    }
    let limiter = segment.limiter();
    let pacer = segment.pacer();
    // Of a segment without gates only `set` makes use.
    let limiter = || limiter.as_ref().unwrap();
    let pacer = || pacer.as_ref().unwrap();
    let short = Duration::from_millis(4);
    match args.text(1) {
        "try" => {
            ready();
            let _ = armed(n, || limiter().try_consume(AMOUNT));
        }
        "wait" => {
            ready();
            armed(n, || limiter().blocking_acquire(AMOUNT, NORMAL)).unwrap();
        }
        "debt" => {
            ready();
            armed(n, || limiter().blocking_acquire(MORE, NORMAL)).unwrap();
        }
        "guard" => {
            ready();
            let waiter = limiter().clone();
            let waiting = std::thread::spawn(move || waiter.blocking_acquire(AMOUNT, NORMAL));
            // It has looked up at 800 ms; what is left is the turn itself.
            std::thread::sleep(Duration::from_millis(900));
            armed(n, || waiting.join().unwrap()).unwrap();
        }
        "refund" => {
            limiter().try_consume(AMOUNT).unwrap();
            ready();
            armed(n, || limiter().refund(AMOUNT));
        }
        "cancel" => {
            ready();
            armed(n, || drop(poll_once(limiter().acquire(AMOUNT, NORMAL))));
        }
        "timeout" => {
            ready();
            let _ = armed(n, || {
                limiter().blocking_acquire_until(AMOUNT, NORMAL, short)
            });
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
        }
        "child" => {
            let child = limiter().child(RATE / 2).unwrap();
            ready();
            armed(n, || child.blocking_acquire(AMOUNT, NORMAL)).unwrap();
        }
        "child_cancel" => {
            let child = limiter().child(RATE / 2).unwrap();
            ready();
            armed(n, || drop(poll_once(child.acquire(AMOUNT, NORMAL))));
        }
        "start" => {
            ready();
            let _ = armed(n, || pacer().try_start());
        }
        "start_wait" => {
            ready();
            armed(n, || pacer().blocking_start()).unwrap();
        }
        "start_run" => {
            ready();
            armed(n, || futures_executor::block_on(pacer().run(async || ()))).unwrap();
        }
        "start_cancel" => {
            ready();
            armed(n, || drop(poll_once(pacer().start())));
        }
        "start_timeout" => {
            ready();
            let _ = armed(n, || pacer().blocking_start_until(short));
        }
        "start_full" => {
            ready();
            let _ = armed(n, || pacer().blocking_start_until(short));
        }
        "start_spare" => {
            ready();
            let start = pacer().start_holding_until(LONG);
            armed(n, || futures_executor::block_on(start)).unwrap();
        }
        "set_rate" => {
            ready();
            armed(n, || segment.set(&Changes::new().rate(2 * RATE))).unwrap();
        }
        "set_interval" => {
            ready();
            let changes = Changes::new().interval(INTERVAL * 2);
            armed(n, || segment.set(&changes)).unwrap();
        }
        "add" => {
            ready();
            let changes = Changes::new().rate(RATE).interval(INTERVAL);
            armed(n, || segment.set(&changes)).unwrap();
        }
        other => panic!("no operation {other}"),
    }
    say("survived");
}

pub fn settings() -> Settings {
    Settings::new()
        .concurrency(2)
        .rate(RATE)
        .interval(INTERVAL)
        .max_waiting(PLACES as u32)
        .members(8)
}
