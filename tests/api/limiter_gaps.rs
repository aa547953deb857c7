//! What the Limiter once did wrong, found by proof-reading.

use crate::calm::{calm, scene, undisturbed, waits};
use crate::limiter_support::{Log, Rated, drain_to, limiter};
use crate::support::{FOREVER, MEANT, NORMAL, Task, panics_of, until, watch_panics};
use shmsched::{
    AcquireError, Changes, Limiter, Location, OwnedPermit, Pacer, Priority, Scheduler, Segment,
    Settings, TryAcquireError,
};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SECOND: Duration = Duration::from_secs(1);
/// A tick of the coarse clock: who takes all of a full bucket by the fast path leaves the time since the last refill to be
/// paid.
const TICK: Duration = Duration::from_millis(10);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Asks on a thread of its own, and is in line when this returns: how long after `since` it was served.
fn ask(limiter: &Limiter, tokens: u32, priority: Priority, since: Instant) -> JoinHandle<Duration> {
    let own = limiter.clone();
    let before = limiter.stats().pending;
    let thread = thread::spawn(move || {
        own.blocking_acquire(tokens, priority).unwrap();
        since.elapsed()
    });
    until("it is in line", || {
        limiter.stats().pending > before || thread.is_finished()
    });
    thread
}

/// The front of the third priority in line knows no time of its own but the end of its second: it is told when it is
/// nearer.
#[test]
fn i12_three_priorities_are_served_as_tokens_come() {
    undisturbed(|| {
        let shared = Rated::new(1_000);
        let members = [(); 3].map(|()| shared.member());
        let begun = Instant::now();
        drain_to(&members[0], 0);
        let urgent_first = [Priority::High, NORMAL, Priority::Low];
        let asked = members.each_ref().into_iter().zip(urgent_first);
        let threads: Vec<_> = asked
            .map(|(member, priority)| ask(member, 100, priority, begun))
            .collect();
        let waited: Vec<Duration> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert!(waited[2] >= ms(300) - TICK, "{waited:?}");
        waited[2] < ms(600)
    });
}

/// The parent calls somebody for a child whose tokens went to a more urgent one of the child meanwhile: he leaves the
/// parent's line instead of holding it up until he is passed over.
#[test]
fn k4_a_child_holds_nobody_up_at_its_parent() {
    undisturbed(|| {
        let parent = limiter(1_000);
        let child = parent.child(100).unwrap();
        let begun = Instant::now();
        drain_to(&parent, 0);
        let first = ask(&parent, 300, Priority::Highest, begun);
        // Waits above, then the more urgent one of the child does too.
        let late = ask(&child, 100, NORMAL, begun);
        let urgent = ask(&child, 100, Priority::High, begun);
        let other = ask(&parent, 10, Priority::Low, begun);
        let [first, urgent, other] = [first, urgent, other].map(|t| t.join().unwrap());
        let all = (first, urgent, other, late.join().unwrap());
        // With 300, 400 and 410 tokens of the parent; the last when the child has earned its own.
        // A slow machine may have let the last come before those whom it was to wait for.
        if urgent >= other || other >= ms(550) {
            return false;
        }
        let in_time = first >= ms(300) - TICK && other >= ms(410) - TICK;
        assert!(in_time && all.3 >= SECOND - TICK, "{all:?}");
        true
    });
}

/// Who never has to wait asks too, through a child as well, whether the file still has a name.
#[test]
fn o_a_file_without_a_name_is_noticed_through_a_child() {
    type Ask = fn(&Limiter) -> Option<AcquireError>;
    let blocks: Ask = |limiter| limiter.blocking_acquire(1, NORMAL).err();
    let tries: Ask = |limiter| match limiter.try_consume(1).err()? {
        TryAcquireError::Failed(error) => Some(error),
        TryAcquireError::NoTokens => panic!("no tokens"),
        other => panic!("{other}"),
    };
    for (ask, generations) in [(blocks, 1), (tries, 1), (blocks, 2), (blocks, 0)] {
        let shared = Rated::new(1_000_000);
        let mut limiter = shared.member();
        for _ in 0..generations {
            limiter = limiter.child(1_000_000).unwrap();
        }
        assert_eq!(ask(&limiter), None);
        fs::remove_file(shared.location.path()).unwrap();
        let removed = Instant::now();
        let noticed = loop {
            match ask(&limiter) {
                Some(error) => break error,
                None if removed.elapsed() > FOREVER => panic!("not noticed"),
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        assert_eq!(noticed, AcquireError::Gone);
    }
}

/// A waker whose panic is meant.
struct Bad(&'static str);

impl Wake for Bad {
    fn wake(self: Arc<Self>) {
        panic!("{MEANT}{}", self.0);
    }
}

/// All gates of a segment, with nothing to be had at any.
struct Spent {
    _directory: TempDir,
    location: Location,
    held: OwnedPermit,
    scheduler: Scheduler,
    limiter: Limiter,
    pacer: Pacer,
}

fn spent() -> Spent {
    let directory = tempfile::tempdir().unwrap();
    let location = Location::File(directory.path().join("segment"));
    let settings = Settings::new()
        .rate(10)
        .concurrency(1)
        .interval(Duration::from_secs(3_600))
        .members(8);
    let segment = Segment::create(&location, &settings).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let (limiter, pacer) = (segment.limiter().unwrap(), segment.pacer().unwrap());
    limiter.try_consume(10).unwrap();
    pacer.try_start().unwrap();
    Spent {
        _directory: directory,
        location,
        held: scheduler.try_acquire_owned(NORMAL).unwrap(),
        scheduler,
        limiter,
        pacer,
    }
}

/// The thread that wakes a member's tasks goes on after a waker's panic, and so does who drains a queue.
#[test]
fn h10_a_panicking_waker_harms_nobody_else() {
    scene(|| {
        watch_panics();
        let bad = Waker::from(Arc::new(Bad("one gate's")));
        let seen = || panics_of(&format!("{MEANT}one gate's")).len();
        let before = seen();
        let spent = spent();
        // Woken for its turn, by that thread.
        let mut panics = Task::new(spent.scheduler.acquire(NORMAL));
        assert!(panics.poll_with(&bad).is_none());
        let soon = waits(spent.limiter.acquire(1, NORMAL));
        // Woken when nobody waits any more, by whoever was the last.
        let mut drained = Task::new(spent.limiter.drain());
        calm(drained.poll_with(&bad).is_none());
        drop(spent.held);
        soon.finish().unwrap();
        until("both had panicked", || seen() >= before + 2);
        // By the helper: a callback that was the last.
        let mut drained = Task::new(spent.limiter.drain());
        let log = Log::new();
        while spent.limiter.try_consume(1).is_ok() {}
        log.queue(&spent.limiter, 5, NORMAL, ());
        calm(drained.poll_with(&bad).is_none());
        log.next();
        waits(spent.limiter.acquire(1, NORMAL)).finish().unwrap();
        drop((panics, drained));
    });
}

/// When a segment is retired each gate's waits are ended one after the other, on one thread.
#[test]
fn k10_a_panicking_waker_when_the_segment_is_retired() {
    watch_panics();
    let bad = Waker::from(Arc::new(Bad("the retired one's")));
    let spent = spent();
    let mut panics = Task::new(spent.scheduler.acquire(NORMAL));
    assert!(panics.poll_with(&bad).is_none());
    let tokens = Task::waiting(spent.limiter.acquire(100, Priority::Low));
    let start = Task::waiting(spent.pacer.start());
    let behind = Task::waiting(spent.scheduler.acquire(NORMAL));
    Segment::remove(&spent.location, true).unwrap();
    assert_eq!(tokens.finish(), Err(AcquireError::Retired));
    assert_eq!(start.finish().unwrap_err(), AcquireError::Retired.into());
    assert_eq!(behind.finish().unwrap_err(), AcquireError::Retired);
    drop(panics);
}

/// One that adds a Limiter while another does has seen that there is none yet: it does not fill the bucket again, from which
/// somebody may have taken.
#[test]
fn h7_two_that_add_a_limiter_fill_it_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("segment");
    let location = Location::File(path.clone());
    Segment::make(&location, &Settings::new().concurrency(1).members(4)).unwrap();
    let members = [(); 2].map(|()| Segment::open(&location).unwrap());
    let adds = |member: &Segment| {
        // As docs/segment-format.md has it: which gates there are.
        overwrite(&path, 44, 1);
        member.set(&Changes::new().rate(1_000)).unwrap();
        assert_eq!(word(&path, 44), 3);
    };
    let begun = Instant::now();
    adds(&members[0]);
    members[0].limiter().unwrap().try_consume(1_000).unwrap();
    adds(&members[1]);
    let twice = members[1].limiter().unwrap().try_consume(900).is_ok();
    assert!(!twice || begun.elapsed() >= ms(850), "two buckets full");
}

/// The same, as close together as two threads can come; tests/model goes through all the ways in which they can.
#[test]
fn h7_two_that_add_a_limiter_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (begun, mut rounds) = (Instant::now(), 0);
    while begun.elapsed() < SECOND / 2 || rounds < 2 {
        let location = Location::File(directory.path().join(format!("segment{rounds}")));
        Segment::make(&location, &Settings::new().concurrency(1).members(2)).unwrap();
        let ready = AtomicU32::new(0);
        let since = Instant::now();
        let adds = || {
            let segment = Segment::open(&location).unwrap();
            ready.fetch_add(1, Ordering::SeqCst);
            while ready.load(Ordering::SeqCst) < 2 {
                std::hint::spin_loop();
            }
            segment.set(&Changes::new().rate(1_000)).unwrap();
            let limiter = segment.limiter().unwrap();
            u32::from(limiter.try_consume(900).is_ok())
        };
        let taken: u32 = thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(adds));
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        // The second one of them only with what was earned since.
        assert!(taken >= 1, "round {rounds}: an empty bucket");
        assert!(taken == 1 || since.elapsed() >= ms(750), "round {rounds}");
        fs::remove_file(location.path()).unwrap();
        rounds += 1;
    }
    assert!(rounds > 1);
}

/// Nobody checks what is given back, so more may be than was ever taken.
#[test]
fn h9_more_given_back_than_taken_counts_as_nothing() {
    let shared = Rated::new(10);
    let member = shared.member();
    member.refund(5);
    assert_eq!(shared.info().consumed, 0);
    member.try_consume(7).unwrap();
    assert_eq!(shared.info().consumed, 2);
}

fn overwrite(path: &Path, at: u64, word: u32) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&word.to_le_bytes(), at).unwrap();
}

fn word(path: &Path, at: u64) -> u32 {
    let mut bytes = [0; 4];
    fs::File::open(path)
        .unwrap()
        .read_exact_at(&mut bytes, at)
        .unwrap();
    u32::from_le_bytes(bytes)
}

/// Bits of no priority, which a scribbler set: nobody leaves, so nobody would clear them. A look does.
#[test]
fn scribbled_bits_of_no_priority_heal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("segment");
    let location = Location::File(path.clone());
    let settings = Settings::new()
        .rate(1_000_000)
        .concurrency(1)
        .interval(Duration::from_nanos(1))
        .members(8);
    let segment = Segment::create(&location, &settings).unwrap();
    let (limiter, pacer) = (segment.limiter().unwrap(), segment.pacer().unwrap());
    // As docs/segment-format.md has them: the summary of Scheduler, Limiter and Pacer, and how many lanes they have.
    for (summary, lanes) in [(0x10c, 7), (524, 7), (788, 1)] {
        for bit in lanes..32 {
            overwrite(&path, summary, 1 << bit);
            // It holds up nobody meanwhile.
            limiter.try_consume(1).unwrap();
            pacer.try_start().unwrap();
            drop(segment.scheduler().unwrap().try_acquire(NORMAL).unwrap());
            segment.look();
            assert_eq!(word(&path, summary), 0, "bit {bit} of {summary:#x}");
        }
    }
    // Beside one that really waits.
    limiter.blocking_acquire(2_000_000, NORMAL).unwrap();
    let waits = Task::waiting(limiter.acquire(1, NORMAL));
    overwrite(&path, 524, 1 << 3 | 1 << 7 | 1 << 31);
    segment.look();
    assert_eq!(word(&path, 524), 1 << 3);
    waits.finish().unwrap();
    assert_eq!(word(&path, 524), 0);
}
