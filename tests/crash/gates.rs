//! The Limiter and the Pacer: death after every single write of what is done at them.
//!
//! After each death at most one window of the bucket is lost and nothing paid twice, the next caller gets on, places and
//! bits are clean after a look, and no wait is unaccounted for.

use crate::support::{Args, Child, LONG, Scene, figure, hear, now, say, until, within};
use shmsched::{
    Changes, Limiter, Location, Observer, Pacer, Priority, Segment, Settings, StartError, crash,
};
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;
const RATE: u32 = 1_000;
const INTERVAL: Duration = Duration::from_millis(30);
/// Places for callers at the Pacer.
const PLACES: usize = 2;
/// What the children ask for.
const AMOUNT: u32 = 10;
/// More than the bucket holds.
const MORE: u32 = 1_200;
/// No operation writes so often.
const MOST: u64 = 400;
/// How soon a survivor gets on.
const SOON: Duration = Duration::from_secs(3);
/// Of so many children at a time each has a segment of its own.
const AT_ONCE: u64 = 6;

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

fn settings() -> Settings {
    Settings::new()
        .concurrency(2)
        .rate(RATE)
        .interval(INTERVAL)
        .max_waiting(PLACES as u32)
        .members(8)
}

/// The survivor and its segment.
struct Bench {
    _scene: Scene,
    location: Location,
    segment: Segment,
    limiter: Limiter,
    pacer: Pacer,
    /// The balance, and when it was read.
    base: (i64, u64),
}

impl Bench {
    fn new() -> Bench {
        let scene = Scene::new();
        let location = scene.segment_of("S", &settings());
        let segment = Segment::open(&location).unwrap();
        let mut bench = Bench {
            limiter: segment.limiter().unwrap(),
            pacer: segment.pacer().unwrap(),
            _scene: scene,
            location,
            segment,
            base: (0, 0),
        };
        bench.note();
        bench
    }

    fn tokens(&self) -> i64 {
        i64::from(self.limiter.stats().tokens)
    }

    fn note(&mut self) {
        // What was earned before is paid by this one.
        let _ = self.limiter.try_consume(1);
        self.base = (self.tokens(), now());
    }

    /// A child that is ready to do its operation, which others hear of when it is told to.
    fn child(&self, operation: &str, n: u64) -> Child {
        let path = self.location.path();
        let args = [&*path.to_string_lossy(), operation, &n.to_string()];
        let mut child = Child::start("gates", &args);
        child.expect("ready");
        child
    }

    /// So many tokens owed, from a full bucket.
    fn indebt(&mut self, debt: u32) {
        self.limiter.refund(RATE);
        self.limiter.blocking_acquire(RATE + debt, NORMAL).unwrap();
        self.note();
    }

    /// Nobody may start for an interval from now.
    fn just_started(&self) {
        self.pacer.blocking_start().unwrap();
    }

    /// Until the child stands in line, or is dead, or through with it.
    fn waits_or_ended(&self, child: &mut Child) {
        until(LONG, "in line or dead", || {
            let queued = self.snapshot();
            let queued = (
                queued.limiter.unwrap().waiters,
                queued.pacer.unwrap().waiting,
            );
            queued != (0, 0) || child.poll().is_some()
        });
    }

    fn snapshot(&self) -> shmsched::Snapshot {
        Observer::open(&self.location).unwrap().snapshot().unwrap()
    }

    /// Nothing was paid twice since the balance was noted, and no more lost than was asked for. `refunded`: what may have
    /// been given back. A window that died with who had claimed it was earned since then, so the balance is not below
    /// what it was.
    #[track_caller]
    fn balances(&self, after: &str, asked: u32, refunded: u32) {
        let (before, at) = self.base;
        let tokens = self.tokens();
        let passed = Duration::from_nanos(now() - at).as_secs_f64();
        let rate = self.limiter.tokens_per_second();
        let earned = (passed * f64::from(rate)) as i64 + 2;
        let most = before + earned + i64::from(refunded);
        let least = before - i64::from(asked);
        assert!(
            (least..=most).contains(&tokens),
            "{after}: {before} were there, now {tokens}; {earned} earned, {asked} asked for, {refunded} given back"
        );
    }

    /// The next callers get on, everything is clean, and the bucket holds what it may.
    #[track_caller]
    fn is_usable(&self, after: &str) {
        let got = self.limiter.blocking_acquire_until(AMOUNT, NORMAL, SOON);
        got.unwrap_or_else(|error| panic!("{after}: tokens: {error}"));
        let mut last = None::<Instant>;
        for _ in 0..2 {
            let got = self.pacer.blocking_start_until(SOON);
            got.unwrap_or_else(|error| panic!("{after}: a start: {error}"));
            let interval = self.pacer.interval();
            let gap = last.replace(Instant::now()).map(|last| last.elapsed());
            let apart = gap.is_none_or(|gap| gap + Duration::from_millis(1) >= interval);
            assert!(apart, "{after}: {gap:?} between two starts");
        }
        within(SOON, || {
            self.segment.look();
            self.is_clean().map_err(|why| format!("{after}: {why}"))
        });
        self.segment
            .set(&Changes::new().rate(RATE).interval(INTERVAL))
            .unwrap();
        self.limiter.refund(3 * RATE);
        assert_eq!(self.tokens(), i64::from(RATE), "{after}: a full bucket");
        // All places at the Pacer are there, and no more.
        let long = Changes::new().interval(Duration::from_secs(60));
        self.segment.set(&long).unwrap();
        self.just_started();
        let places: Vec<_> = (0..=PLACES).map(|_| Box::pin(self.pacer.start())).collect();
        let mut context = Context::from_waker(Waker::noop());
        let mut polled = places
            .into_iter()
            .map(|mut start| (start.as_mut().poll(&mut context), start));
        let polled: Vec<_> = polled.by_ref().collect();
        let (last, places) = polled.split_last().unwrap();
        assert!(
            matches!(last.0, Poll::Ready(Err(StartError::QueueFull(_)))),
            "{after}: more places than there are"
        );
        assert!(
            places.iter().all(|(poll, _)| poll.is_pending()),
            "{after}: a place is missing"
        );
    }

    fn is_clean(&self) -> Result<(), String> {
        let file = File::open(self.location.path()).unwrap();
        let word = |at: u64| {
            let mut bytes = [0; 4];
            file.read_exact_at(&mut bytes, at).unwrap();
            u32::from_le_bytes(bytes)
        };
        // WAITERS, summary and hurry of both gates; then all bit sets (of 8 members and their places: one word a lane).
        let hot = [0x208, 0x20c, 0x210, 0x310, 0x314, 0x318].map(word);
        let bits: Vec<u32> = (0x1000..0x1000 + 3 * 128).step_by(4).map(word).collect();
        if hot != [0; 6] || bits.iter().any(|bits| *bits != 0) {
            return Err(format!("{hot:x?}, {bits:x?}"));
        }
        let snapshot = self.snapshot();
        let (limiter, pacer) = (
            snapshot.limiter.as_ref().unwrap(),
            snapshot.pacer.as_ref().unwrap(),
        );
        let ended = [
            limiter.completed + limiter.cancelled + limiter.lost,
            pacer.completed + pacer.cancelled + pacer.lost,
        ];
        let nobody = limiter.queued == [0; 7] && pacer.waiting == 0;
        match nobody && [limiter.deferred, pacer.deferred] == ended {
            true => Ok(()),
            false => Err(format!("{snapshot:#?}")),
        }
    }
}

/// Runs `scenario` with each write deadly in turn until the operation got through. It gives back whether the child was
/// killed. `least`: an operation has at least so many writes, else the hook does not work.
#[track_caller]
fn sweep(name: &str, least: u64, scenario: impl Fn(&mut Bench, u64) -> bool + Sync) {
    let begun = Instant::now();
    let mut deaths = 0;
    for from in (1..MOST).step_by(AT_ONCE as usize) {
        let killed: Vec<bool> = std::thread::scope(|scope| {
            let benches = (from..from + AT_ONCE).map(|n| {
                let scenario = &scenario;
                scope.spawn(move || {
                    let mut bench = Bench::new();
                    let killed = scenario(&mut bench, n);
                    bench.is_usable(&format!("{name}, write {n}, killed {killed}"));
                    killed
                })
            });
            let benches: Vec<_> = benches.collect();
            let join = |bench: std::thread::ScopedJoinHandle<'_, bool>| match bench.join() {
                Ok(killed) => killed,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            benches.into_iter().map(join).collect()
        });
        deaths += killed.iter().filter(|killed| **killed).count() as u64;
        if killed.ends_with(&[false, false]) {
            figure!("{deaths} deaths in {:?}", begun.elapsed());
            assert!(deaths >= least, "{name} died only {deaths} times");
            return;
        }
    }
    panic!("{name} never got through");
}

/// An operation at a bucket that is neither empty nor full, and earns while it goes on.
fn at_the_bucket(operation: &str, least: u64, asked: u32, refunded: u32) {
    sweep(operation, least, |bench, n| {
        bench.limiter.try_consume(RATE / 2).unwrap();
        let mut child = bench.child(operation, n);
        bench.note();
        std::thread::sleep(Duration::from_millis(10));
        child.tell("go");
        let killed = child.was_killed();
        bench.balances(operation, asked, refunded);
        killed
    });
}

#[test]
fn case_12_refill_and_debit() {
    at_the_bucket("try", 3, AMOUNT, 0);
}

#[test]
fn case_12_refund() {
    at_the_bucket("refund", 2, AMOUNT, AMOUNT);
}

#[test]
fn case_12_a_child_takes_from_both() {
    at_the_bucket("child", 5, AMOUNT, 0);
}

/// An operation of a child that waits, with somebody behind it, who gets on whatever becomes of it.
fn in_debt(operation: &str, least: u64, debt: u32) {
    sweep(operation, least, |bench, n| {
        let mut child = bench.child(operation, n);
        bench.indebt(debt);
        child.tell("go");
        bench.waits_or_ended(&mut child);
        let behind = bench.limiter.clone();
        let got = behind.blocking_acquire_until(AMOUNT, NORMAL, SOON);
        got.unwrap_or_else(|error| panic!("{operation}, write {n}: behind it: {error}"));
        let killed = child.was_killed();
        bench.balances(operation, 2 * AMOUNT, 0);
        killed
    });
}

#[test]
fn case_12_acquire_that_waits() {
    in_debt("wait", 15, 40);
}

#[test]
fn case_12_acquire_that_times_out() {
    in_debt("timeout", 10, 40);
}

#[test]
fn case_55_acquire_that_is_cancelled() {
    in_debt("cancel", 10, 40);
}

#[test]
fn case_12_queued_callback() {
    in_debt("callback", 15, 40);
}

#[test]
fn case_12_a_child_waits_for_its_parent() {
    in_debt("child", 20, 40);
}

#[test]
fn case_55_a_child_that_waits_for_its_parent_is_cancelled() {
    in_debt("child_cancel", 15, 40);
}

#[test]
fn case_55_detach_with_a_callback_that_waits() {
    sweep("detach", 8, |bench, n| {
        bench.indebt(400);
        let mut child = bench.child("detach", n);
        child.tell("go");
        let killed = child.was_killed();
        bench.balances("detach", 0, 0);
        killed
    });
}

/// What a second's wait admits into debt.
#[test]
fn case_12_forced_into_debt() {
    sweep("guard", 8, |bench, n| {
        let mut child = bench.child("guard", n);
        bench.indebt(3 * RATE);
        child.tell("go");
        let killed = child.was_killed();
        bench.balances("guard", AMOUNT, 0);
        bench.limiter.refund(3 * RATE);
        killed
    });
}

#[test]
fn case_12_more_than_the_bucket_holds() {
    sweep("debt", 10, |bench, n| {
        let mut child = bench.child("debt", n);
        bench.limiter.refund(RATE);
        bench.note();
        child.tell("go");
        let killed = child.was_killed();
        bench.balances("debt", MORE, 0);
        killed
    });
}

#[test]
fn case_45_a_start_that_is_due() {
    sweep("start", 3, |bench, n| {
        let mut child = bench.child("start", n);
        child.tell("go");
        child.was_killed()
    });
}

/// A start that is not due yet; somebody behind it gets on whatever becomes of it.
fn not_due(operation: &str, least: u64) {
    sweep(operation, least, |bench, n| {
        let mut child = bench.child(operation, n);
        bench.just_started();
        child.tell("go");
        bench.waits_or_ended(&mut child);
        let got = bench.pacer.blocking_start_until(SOON);
        got.unwrap_or_else(|error| panic!("{operation}, write {n}: behind it: {error}"));
        child.was_killed()
    });
}

#[test]
fn case_45_a_start_that_waits() {
    not_due("start_wait", 12);
}

#[test]
fn case_45_a_run_that_waits() {
    not_due("start_run", 12);
}

#[test]
fn case_55_a_start_that_is_cancelled() {
    not_due("start_cancel", 10);
}

#[test]
fn case_55_a_start_that_times_out() {
    not_due("start_timeout", 10);
}

/// With the queue full: refused, or in its own place.
fn with_a_full_queue(operation: &str, least: u64) {
    sweep(operation, least, |bench, n| {
        let mut child = bench.child(operation, n);
        bench.just_started();
        let mut context = Context::from_waker(Waker::noop());
        let mut full: Vec<_> = (0..PLACES).map(|_| Box::pin(bench.pacer.start())).collect();
        for start in &mut full {
            assert!(start.as_mut().poll(&mut context).is_pending());
        }
        child.tell("go");
        if operation == "start_spare" {
            let spare = PLACES as u32 + 1;
            until(LONG, "in line or dead", || {
                child.poll().is_some() || bench.snapshot().pacer.unwrap().waiting == spare
            });
            futures_executor::block_on(async {
                for start in full {
                    start.await.unwrap();
                }
            });
            return child.was_killed();
        }
        let killed = child.was_killed();
        drop(full);
        killed
    });
}

#[test]
fn case_55_a_start_that_is_refused() {
    with_a_full_queue("start_full", 1);
}

#[test]
fn case_55_a_start_in_the_place_of_its_own() {
    with_a_full_queue("start_spare", 12);
}

#[test]
fn case_12_set_rate_while_somebody_waits() {
    sweep("set_rate", 4, |bench, n| {
        let mut child = bench.child("set_rate", n);
        bench.indebt(100);
        let waiter = bench.limiter.clone();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.blocking_acquire_until(AMOUNT, NORMAL, SOON));
            until(LONG, "queued", || bench.limiter.stats().pending == 1);
            child.tell("go");
            let killed = child.was_killed();
            waiting.join().unwrap().expect("who waits gets on");
            bench.balances("set_rate", AMOUNT, 0);
            let rate = bench.limiter.tokens_per_second();
            assert!([RATE, 2 * RATE].contains(&rate), "{rate}");
            killed
        })
    });
}

#[test]
fn case_45_set_interval_while_somebody_waits() {
    sweep("set_interval", 2, |bench, n| {
        let mut child = bench.child("set_interval", n);
        bench.just_started();
        let waiter = bench.pacer.clone();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.blocking_start_until(SOON));
            until(LONG, "queued", || {
                bench.snapshot().pacer.unwrap().waiting == 1 || waiting.is_finished()
            });
            child.tell("go");
            let killed = child.was_killed();
            waiting.join().unwrap().expect("who waits gets on");
            let interval = bench.pacer.interval();
            assert!([INTERVAL, INTERVAL * 2].contains(&interval), "{interval:?}");
            killed
        })
    });
}

/// Where there was only a Scheduler: whole, or not there yet, and the next `set` makes it so.
#[test]
fn case_12_set_adds_gates() {
    let mut through = 0;
    for n in 1..MOST {
        let scene = Scene::new();
        let location = scene.segment(1);
        let path = location.path();
        let args = [&*path.to_string_lossy(), "add", &n.to_string()];
        let mut child = Child::start("gates", &args);
        child.expect("ready");
        child.tell("go");
        let killed = child.was_killed();
        let segment = Segment::open(&location).unwrap();
        let there = (segment.limiter().is_ok(), segment.pacer().is_ok());
        assert!(killed || there == (true, true), "{there:?}");
        let added = segment.set(&Changes::new().rate(RATE).interval(INTERVAL));
        added.unwrap();
        let (limiter, pacer) = (segment.limiter().unwrap(), segment.pacer().unwrap());
        assert_eq!(limiter.tokens_per_second(), RATE);
        // The first bucketful may have died, as any window may.
        let full = limiter.blocking_acquire_until(RATE, NORMAL, SOON);
        assert_eq!(full, Ok(()), "write {n}: full");
        assert!(limiter.try_consume(RATE / 2).is_err(), "write {n}: once");
        assert_eq!(pacer.interval(), INTERVAL);
        assert_eq!(pacer.try_start(), Ok(()), "write {n}: due at once");
        through = if killed { 0 } else { through + 1 };
        if through == 2 {
            assert!(n > 6, "died only {n} times");
            return;
        }
    }
    panic!("never got through");
}

/// Nothing, or all of it.
#[test]
fn case_20_create_with_all_gates() {
    let mut through = 0;
    for n in 1..MOST {
        let scene = Scene::new();
        let location = Location::File(scene.path("S"));
        let path = location.path();
        let args = [&*path.to_string_lossy(), "create", &n.to_string()];
        let mut child = Child::start("gates", &args);
        child.expect("ready");
        child.tell("go");
        let killed = child.was_killed();
        assert_eq!(path.exists(), !killed, "write {n}");
        if killed {
            Segment::make(&location, &settings()).unwrap();
        }
        let segment = Segment::open(&location).unwrap();
        assert_eq!(segment.differs(&settings()), Vec::<String>::new());
        assert_eq!(segment.limiter().unwrap().try_consume(RATE), Ok(()));
        assert_eq!(segment.pacer().unwrap().try_start(), Ok(()));
        through = if killed { 0 } else { through + 1 };
        if through == 2 {
            assert!(n > 20, "died only {n} times");
            return;
        }
    }
    panic!("never got through");
}

/// The picture of a segment in use, as an earlier boot left it.
fn of_an_earlier_boot(scene: &Scene) -> Vec<u8> {
    let interval = Duration::from_secs(10);
    let settings = settings().interval(interval).members(2);
    let location = scene.segment_of("used", &settings);
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let (limiter, pacer) = (segment.limiter().unwrap(), segment.pacer().unwrap());
    let _held = scheduler.try_acquire_many(2, NORMAL).unwrap();
    limiter.blocking_acquire(RATE + 500, NORMAL).unwrap();
    pacer.try_start().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut slots = pin!(scheduler.acquire(NORMAL));
    let mut tokens = pin!(limiter.acquire(900, Priority::High));
    let mut start = pin!(pacer.start());
    assert!(slots.as_mut().poll(&mut context).is_pending());
    assert!(tokens.as_mut().poll(&mut context).is_pending());
    assert!(start.as_mut().poll(&mut context).is_pending());
    let mut image = std::fs::read(location.path()).unwrap();
    // Its boot id, see docs/segment-format.md.
    image[64] ^= 0x55;
    image
}

/// Who resets it may die anywhere: the next does it again, and settings stay.
fn reset(every: u64) {
    let scene = Scene::new();
    let image = of_an_earlier_boot(&scene);
    let one = |n: u64| {
        let location = Location::File(scene.path(&format!("S{n}")));
        let path = location.path();
        std::fs::write(&path, &image).unwrap();
        let args = [&*path.to_string_lossy(), "attach", &n.to_string()];
        let mut child = Child::start("operate", &args);
        child.expect("ready");
        child.tell("go");
        let killed = child.was_killed();
        let segment = Segment::open(&location).unwrap();
        let snapshot = Observer::open(&location).unwrap().snapshot().unwrap();
        let (slots, tokens, starts) = (
            snapshot.scheduler.unwrap(),
            snapshot.limiter.unwrap(),
            snapshot.pacer.unwrap(),
        );
        let of_slots = [slots.deferred, slots.admitted, slots.lost, slots.reclaimed];
        let of_tokens = [tokens.deferred, tokens.consumed, tokens.lost, tokens.forced];
        let of_starts = [
            starts.deferred,
            starts.started,
            starts.lost,
            starts.rejected,
        ];
        let counters = [of_slots, of_tokens, of_starts];
        assert_eq!(counters, [[0; 4]; 3], "write {n}, killed {killed}");
        assert_eq!((slots.running_raw, slots.waiters), (0, 0));
        assert_eq!((tokens.tokens, tokens.waiters), (RATE as i32, 0));
        assert_eq!(starts.waiting, 0);
        assert_eq!(starts.interval, Duration::from_secs(10));
        let (scheduler, limiter) = (segment.scheduler().unwrap(), segment.limiter().unwrap());
        let all = scheduler.try_acquire_many(2, NORMAL);
        assert!(all.is_ok(), "write {n}: {all:?}");
        assert_eq!(limiter.try_consume(RATE), Ok(()), "write {n}");
        assert!(limiter.try_consume(RATE / 2).is_err(), "write {n}");
        assert_eq!(segment.pacer().unwrap().try_start(), Ok(()), "write {n}");
        std::fs::remove_file(path).unwrap();
        killed
    };
    let (mut n, mut deaths) = (1, 0);
    loop {
        let step = if n < 40 { 1 } else { every };
        let picks: Vec<u64> = (0..AT_ONCE).map(|at| n + at * step).collect();
        let killed: Vec<bool> = std::thread::scope(|scope| {
            let all: Vec<_> = picks.iter().map(|n| scope.spawn(|| one(*n))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        deaths += killed.iter().filter(|killed| **killed).count();
        n += AT_ONCE * step;
        if killed.iter().all(|killed| !killed) {
            break;
        }
    }
    // The last ones once more, each: the boot id is among them.
    for n in n.saturating_sub(2 * AT_ONCE * every)..n {
        if every > 1 && one(n) {
            deaths += 1;
        }
    }
    figure!("{deaths} deaths before write {n}");
    assert!(deaths > 80, "died only {deaths} times");
}

#[test]
fn case_20_reset_after_a_reboot() {
    reset(11);
}

#[test]
#[ignore = "for scripts/stress: each write of a reset"]
fn stress_case_20_reset_after_a_reboot() {
    reset(1);
}
