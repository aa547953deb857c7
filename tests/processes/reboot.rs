//! A segment that outlives the boot it was used in, or that is used under two clocks: with `unshare`, where permitted.

use crate::namespaces::unshare;
use crate::support::{
    Args, Child, LONG, Scene, coarse_now, figure, hear, less, now, one_of, say, skipped, until,
};
use crate::taps::{Bucket, MS, Tap};
use shmsched::{
    AcquireError, Location, Observer, Priority, Segment, Settings, Snapshot, StartError,
    TryStartError,
};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;
const RATE: u32 = 100;
const INTERVAL: Duration = Duration::from_secs(60);
/// So deep in debt that who waits for a second goes in deeper by 100 at most, for some seconds.
const MOST: u32 = i32::MAX as u32;
/// Binds another boot id over this one, then goes on as what follows.
const OTHER_BOOT: &str =
    r#"mount --bind "$0" /proc/sys/kernel/random/boot_id || exit 99; exec "$@""#;

fn settings() -> Settings {
    Settings::new()
        .concurrency(2)
        .rate(RATE)
        .interval(INTERVAL)
        .members(16)
}

fn look_at(location: &Location) -> Snapshot {
    Observer::open(location).unwrap().snapshot().unwrap()
}

/// Role: PATH. Takes all slots, goes into debt, starts, and waits at all gates, until it is killed.
pub fn wreck(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let limiter = segment.limiter().unwrap();
    let pacer = segment.pacer().unwrap();
    let _held = scheduler.try_acquire_many(2, NORMAL).unwrap();
    limiter.blocking_acquire(MOST, NORMAL).unwrap();
    pacer.try_start().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| scheduler.blocking_acquire(NORMAL).map(drop));
        scope.spawn(|| limiter.blocking_acquire(1_000, Priority::High));
        scope.spawn(|| pacer.blocking_start());
        say("waits");
        hear();
    });
}

/// A copy of a segment as the machine went down: both slots held, many tokens owed, the next start a minute ahead, and
/// somebody waits for each.
fn as_it_went_down(scene: &Scene) -> PathBuf {
    let location = scene.segment_of("S", &settings());
    let path = location.path();
    let mut wreck = Child::start("wreck", &[&path.to_string_lossy()]);
    wreck.expect("waits");
    until(LONG, "all in line", || {
        let seen = look_at(&location);
        let limiter = seen.limiter.unwrap();
        limiter.waiters == 1 && seen.pacer.unwrap().waiting == 1 && limiter.tokens < -400
    });
    wreck.kill();
    let copy = scene.path("copy");
    std::fs::copy(path, &copy).unwrap();
    copy
}

/// Role: PATH. The first of another boot: finds settings, and nothing else.
pub fn reborn(args: &Args) {
    let location = args.location();
    let before = look_at(&location);
    assert!(!before.segment.boot_is_current);
    let (tokens, starts) = (before.limiter.unwrap(), before.pacer.unwrap());
    // What the next to attach will find.
    assert_eq!((tokens.tokens, tokens.waiters), (RATE as i32, 0));
    assert_eq!(tokens.queued, [0; 7]);
    assert_eq!((starts.waiting, starts.next_start_in), (0, Duration::ZERO));
    let segment = Segment::open(&location).unwrap();
    let after = look_at(&location);
    assert!(after.segment.boot_is_current);
    assert_eq!(segment.differs(&settings()), Vec::<String>::new());
    let tokens = after.limiter.unwrap();
    let starts = after.pacer.unwrap();
    let counters = [
        [tokens.deferred, tokens.completed, tokens.lost],
        [tokens.consumed, tokens.forced, tokens.cancelled],
        [starts.deferred, starts.completed, starts.lost],
        [starts.started, starts.rejected, starts.cancelled],
    ];
    assert_eq!(counters, [[0; 3]; 4]);
    assert_eq!(tokens.tokens, RATE as i32, "full, and not more");
    let scheduler = segment.scheduler().unwrap();
    let limiter = segment.limiter().unwrap();
    let pacer = segment.pacer().unwrap();
    let _all = scheduler.try_acquire_many(2, NORMAL).unwrap();
    let emptied = coarse_now();
    assert_eq!(limiter.try_consume(RATE), Ok(()));
    let left = u64::try_from(limiter.stats().tokens).unwrap();
    let earned = (now() - emptied) * u64::from(RATE) / 1_000_000_000 + 2;
    assert!(
        left <= earned,
        "more than full: {left}, {earned} came since"
    );
    assert_eq!(pacer.try_start(), Ok(()), "due at once");
    assert_eq!(pacer.try_start(), Err(TryStartError::NotYet));
    // A second is enough for some, whatever the clock said before.
    limiter.blocking_acquire(RATE / 2, NORMAL).unwrap();
    let took = Duration::from_nanos(now() - emptied);
    let soon = Duration::from_millis(480)..Duration::from_secs(3);
    assert!(soon.contains(&took), "{took:?}");
    say("reborn");
}

/// The wrapper for another boot, within others, if that is permitted here. Its words are used as arguments.
fn another_boot(scene: &Scene, kind: &[&'static str]) -> Option<Vec<String>> {
    let wrapper = unshare(kind)?;
    let boot = scene.path("boot_id");
    std::fs::write(&boot, "00000000-1111-2222-3333-444444444444\n").unwrap();
    let boot = boot.to_string_lossy();
    let words = wrapper.into_iter().chain(["sh", "-c", OTHER_BOOT, &boot]);
    let words: Vec<String> = words.map(str::to_owned).collect();
    let tried = Command::new(&words[0])
        .args(&words[1..])
        .arg("true")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success()).then_some(words)
}

/// Options for a clock that says little more than a second, as after a boot.
fn young_clock() -> [&'static str; 6] {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let back = format!("-{}", (seconds as u64).saturating_sub(2)).leak();
    ["--time", "--monotonic", back, "--boottime", back, "--fork"]
}

fn state_is_discarded(kind: &[&'static str]) {
    let scene = Scene::new();
    let Some(wrapper) = another_boot(&scene, kind) else {
        skipped!("unshare {} and a bind mount are not permitted", kind[0]);
    };
    let copy = as_it_went_down(&scene);
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let mut reborn = Child::start_under(&wrapper, "reborn", &[&copy.to_string_lossy()]);
    reborn.expect("reborn");
    reborn.finish();
}

#[test]
fn case_20_state_of_an_earlier_boot_is_discarded() {
    state_is_discarded(&["--mount"]);
}

#[test]
fn case_20_stamps_of_an_earlier_boot_that_lie_ahead() {
    let [time, monotonic, back, boottime, _, fork] = young_clock();
    let kind = [time, monotonic, back, boottime, back, fork, "--mount"];
    state_is_discarded(&kind);
}

/// Of the same boot nothing is discarded: debts are paid, distances kept; whoever died is not waited for.
#[test]
fn case_20_the_same_boot_goes_on() {
    let scene = Scene::new();
    let location = Location::File(as_it_went_down(&scene));
    let segment = Segment::open(&location).unwrap();
    let limiter = segment.limiter().unwrap();
    let pacer = segment.pacer().unwrap();
    assert!(
        segment
            .scheduler()
            .unwrap()
            .try_acquire_many(2, NORMAL)
            .is_ok()
    );
    assert_eq!(pacer.try_start(), Err(TryStartError::NotYet));
    let soon = Duration::from_millis(50);
    let vain = Err(StartError::Failed(AcquireError::TimedOut));
    assert_eq!(pacer.blocking_start_until(soon), vain);
    let begun = Instant::now();
    limiter.blocking_acquire(10, NORMAL).unwrap();
    let took = begun.elapsed();
    figure!("10 of a bucket deep in debt after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let seen = look_at(&location);
    let (tokens, starts) = (seen.limiter.unwrap(), seen.pacer.unwrap());
    assert!(tokens.tokens < 0, "{tokens:?}");
    assert_eq!((tokens.lost, starts.lost), (1, 1));
    assert_eq!((tokens.waiters, starts.waiting), (0, 0));
    assert!(starts.next_start_in > Duration::from_secs(30), "{starts:?}");
}

/// Two clocks on one segment: each in line is served when its tokens come.
#[test]
fn case_20_two_clocks_share_a_bucket() {
    let Some(wrapper) = unshare(&young_clock()) else {
        skipped!("unshare --time is not permitted");
    };
    let scene = Scene::new();
    let mut bucket = Bucket::new(&scene, 1_000);
    let mut there = Tap::under(&wrapper, &bucket.location, "");
    let mut here = Tap::under(&[], &bucket.location, "");
    for there_first in [true, false] {
        let (first, second) = match there_first {
            true => (&mut there, &mut here),
            false => (&mut here, &mut there),
        };
        one_of(5, || {
            bucket.indebt(300);
            // Or it was its turn before it was seen there.
            let stands = |n: u32| {
                until(LONG, "in line", || {
                    look_at(&bucket.location).limiter.unwrap().waiters == n
                        || now() >= bucket.due(150)
                });
            };
            first.begin("wait w 3 150");
            stands(1);
            second.begin("task w 3 150");
            stands(2);
            let waited = look_at(&bucket.location).limiter.unwrap().head_wait_ms;
            let in_time = now() < bucket.due(150);
            for tap in [&mut *first, &mut *second] {
                // By our clock, since its own says something else.
                tap.got("w");
            }
            let late = now() as i64 - bucket.due(300) as i64;
            bucket.balances(300, 0);
            if !in_time {
                return Err("its turn came before both were in line".to_owned());
            }
            assert!(waited.is_some_and(|ms| ms < 5_000), "{waited:?}");
            let late = late / MS as i64;
            figure!("both served {late} ms after they were due");
            assert!(late >= -5, "{late} ms");
            less("late, ms", late, 900)
        });
    }
}
