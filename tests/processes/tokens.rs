//! The Limiter between processes: one bucket, one line, whoever dies, stops or forks.
//!
//! Tokens are counted by who was given them, in the test's own tally, and held against the clock: what was taken and what
//! is left must be what the time since the bucket was drained earned, to a tick of its stamp.

use crate::support::{Chance, Child, LONG, Scene, figure, less, now, one_of, skipped, until};
use crate::taps::{Bucket, MS, Tap, after, in_line, info};
use crate::token_order::{kind, line_up};
use crate::traced::strace_works;
use crate::wakes::costs_little;
use shmsched::{
    AcquireError, Changes, Location, Observer, Priority, Segment, Settings, TryStartError,
};
use std::time::{Duration, Instant};

// How much, and to whom.

/// All processes do that until then: what they took, with what is left, must be what the time earned, and nobody leaves
/// tokens lying who does not stand still.
#[track_caller]
fn all_do(bucket: &mut Bucket, taps: &mut [Tap], line: &str, time: Duration) {
    one_of(3, || {
        bucket.empty();
        let end = after(time);
        for tap in taps.iter_mut() {
            tap.0.tell(&format!("{line} {end}"));
        }
        let taken: Vec<u64> = taps.iter_mut().map(Tap::taken).collect();
        let sum = taken.iter().sum();
        bucket.balances(sum, 0);
        let earned = time.as_secs_f64() * f64::from(bucket.rate);
        figure!("{line}: {sum} of {earned} by {}", taps.len());
        less(line, earned * 0.95, sum as f64)
    });
}

fn one_bucket_for_all(time: Duration) {
    let scene = Scene::alone();
    let mut bucket = Bucket::new(&scene, 50_000);
    let mut taps = Tap::several(&bucket.location, "", 16);
    for line in ["try 1", "block 1 3 37"] {
        all_do(&mut bucket, &mut taps, line, time);
    }
    bucket.comes_to_rest();
}

#[test]
fn case_12_one_bucket_for_all() {
    one_bucket_for_all(Duration::from_millis(1_500));
}

#[test]
#[ignore = "for scripts/stress: ten seconds each"]
fn stress_case_12_one_bucket_for_all() {
    one_bucket_for_all(Duration::from_secs(10));
}

#[test]
fn case_56_however_the_load_is_spread() {
    let scene = Scene::new();
    let mut bucket = Bucket::new(&scene, 20_000);
    for (processes, threads) in [(1, 8), (8, 1), (4, 2)] {
        let mut taps = Tap::several(&bucket.location, "", processes);
        let line = format!("block {threads} 3 50");
        let time = Duration::from_millis(700);
        all_do(&mut bucket, &mut taps, &line, time);
    }
    bucket.comes_to_rest();
}

/// Each has a share, whoever has more threads.
#[test]
fn case_27_processes_that_block_get_equal_shares() {
    let scene = Scene::alone();
    let mut bucket = Bucket::new(&scene, 4_000);
    let mut taps = Tap::several(&bucket.location, "", 4);
    for threads in [[1, 1, 1, 1], [1, 2, 4, 8]] {
        // One that stands still loses turns.
        one_of(3, || {
            bucket.empty();
            let end = after(Duration::from_millis(1_400));
            for (tap, threads) in taps.iter_mut().zip(threads) {
                tap.0.tell(&format!("block {threads} 3 20 {end}"));
            }
            let taken: Vec<u64> = taps.iter_mut().map(Tap::taken).collect();
            let sum: u64 = taken.iter().sum();
            bucket.balances(sum, 0);
            figure!("{threads:?} threads: {taken:?}");
            let fair = sum as f64 / 4.0;
            let equal = |taken: &u64| (*taken as f64 - fair).abs() <= fair * 0.15;
            match taken.iter().all(equal) {
                true => Ok(()),
                false => Err(format!("{taken:?}")),
            }
        });
    }
    bucket.comes_to_rest();
}

#[test]
fn case_27_who_asks_more_often_gets_no_more() {
    let scene = Scene::alone();
    let mut bucket = Bucket::new(&scene, 4_000);
    let mut taps = Tap::several(&bucket.location, "", 4);
    let lines = ["block 1 3 20", "block 1 3 20", "try 20", "restless 20 500"];
    // One that stands still loses turns.
    one_of(3, || {
        bucket.empty();
        let end = after(Duration::from_millis(1_000));
        for (tap, line) in taps.iter_mut().zip(lines) {
            tap.0.tell(&format!("{line} {end}"));
        }
        let taken: Vec<u64> = taps.iter_mut().map(Tap::taken).collect();
        let sum: u64 = taken.iter().sum();
        bucket.balances(sum, 0);
        figure!("{lines:?} took {taken:?}");
        let fair = sum / 4;
        match taken[0].min(taken[1]) >= fair && taken[2].max(taken[3]) <= fair {
            true => Ok(()),
            false => Err(format!("{taken:?}")),
        }
    });
}

/// Whoever cancels the head of the line, by whatever end: those behind it get on when they can.
#[test]
fn case_08_who_stands_behind_one_that_gives_up_gets_on() {
    let scene = Scene::new();
    let mut bucket = Bucket::new(&scene, 1_000);
    for end in ["cancel", "leave"] {
        one_of(5, || {
            // The head wants more than there will be for long, the next what there is soon.
            let ask = |at: usize| ["task w 3 900", "wait w 3 10"][at].to_owned();
            let mut taps = line_up(&mut bucket, 2, 200, ask);
            until(LONG, "enough for the second", || {
                info(&bucket.location).tokens >= 20
            });
            let ended = now();
            match end {
                "leave" => taps[0].0.tell("leave"),
                _ => taps[0].0.tell("cancel w"),
            }
            let delay = Duration::from_nanos(taps[1].got("w").saturating_sub(ended));
            figure!("got on after {delay:?}");
            // It would look by itself 300 ms after it came.
            less("got on after", delay, Duration::from_millis(50))
        });
    }
    bucket.comes_to_rest();
}

// Who dies.

#[test]
fn case_08_a_killed_front_and_a_killed_second() {
    let scene = Scene::new();
    let mut bucket = Bucket::new(&scene, 2_000);
    for (dead, next) in [(0, 1), (1, 2)] {
        one_of(3, || {
            // More than the bucket holds for two at once: nobody gets on beside a dead one.
            let ask = |at| format!("{} w 3 1200", kind(at));
            let mut taps = line_up(&mut bucket, 3, 400, ask);
            // Here, since those of a line that took too long were killed in it.
            let before = info(&bucket.location).lost;
            taps[dead].0.kill();
            let due = bucket.due(1_200 * next as u32);
            let mut delay = Duration::ZERO;
            for (at, tap) in taps.iter_mut().enumerate().filter(|(at, _)| *at != dead) {
                let got = tap.got("w");
                if at == next {
                    delay = Duration::from_nanos(got.saturating_sub(due));
                }
            }
            // It had its turn before.
            if taps[dead].0.listen_for("got w", Duration::ZERO).is_ok() {
                return Err("killed too late".to_owned());
            }
            bucket.balances(2_400, 0);
            assert_eq!(info(&bucket.location).lost, before + 1);
            figure!("served after {delay:?}");
            less("served after", delay, Duration::from_millis(1_300))
        });
    }
    bucket.comes_to_rest();
}

/// Who watches is dead, and so is everybody else before the last, who finds out when it looks up by itself.
#[test]
fn case_08_everybody_is_killed_but_the_last() {
    let scene = Scene::new();
    let mut bucket = Bucket::new(&scene, 1_000);
    let ask = |at| format!("{} w 3 600", kind(at));
    one_of(3, || {
        let mut taps = line_up(&mut bucket, 13, 800, ask);
        let before = info(&bucket.location).lost;
        let mut last = taps.pop().unwrap();
        taps.iter_mut().for_each(|tap| tap.0.kill_only());
        taps.iter_mut().for_each(|tap| tap.0.kill());
        let dead = now();
        let got = last.got("w");
        // The first had its turn before.
        let mut lived = taps.iter_mut();
        if lived.any(|tap| tap.0.listen_for("got w", Duration::ZERO).is_ok()) {
            return Err("killed too late".to_owned());
        }
        let took = Duration::from_nanos(got.saturating_sub(dead));
        figure!("the last of 13 was served after {took:?}");
        assert!(took < Duration::from_secs(6), "{took:?}");
        assert_eq!(info(&bucket.location).lost, before + 12);
        Ok(())
    });
    bucket.comes_to_rest();
}

/// Processes are killed at random while all of them take: after each the bucket is usable, and at the end every token is
/// accounted for, but what died with who had just claimed or been given it.
fn storm(rounds: u64, processes: usize) {
    let scene = Scene::new();
    let mut bucket = Bucket::new(&scene, 50_000);
    let tally = scene.path("tally");
    std::fs::write(&tally, []).unwrap();
    let mut chance = Chance::new();
    let mut index = 0u64;
    let mut start = |location: &Location| {
        let (path, tally) = (location.path(), tally.to_string_lossy());
        let args = [&*path.to_string_lossy(), &*tally, &index.to_string()];
        index += 1;
        Child::start("drip", &args)
    };
    let mut workers: Vec<_> = (0..processes).map(|_| start(&bucket.location)).collect();
    for worker in &mut workers {
        worker.expect("dripping");
    }
    // From here on there is no moment at which it could be full.
    until(LONG, "used up", || info(&bucket.location).tokens < 10_000);
    let sum = || -> u64 {
        let bytes = std::fs::read(&tally).unwrap();
        let counts = bytes.chunks_exact(8);
        counts
            .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
            .sum()
    };
    // What they had taken and what was there, and times around both readings.
    let count = || {
        let from = now();
        let counts = (sum(), i64::from(info(&bucket.location).tokens));
        (from, counts, now())
    };
    let begun = count();
    let (mut kills, mut own, mut worst) = (0, 0, Duration::ZERO);
    for _ in 0..rounds {
        for _ in 0..4 {
            std::thread::sleep(Duration::from_micros(chance.below(20_000)));
            let at = chance.below(processes as u64) as usize;
            workers[at].kill();
            workers[at] = start(&bucket.location);
            kills += 1;
        }
        let asked = Instant::now();
        let wait = Duration::from_secs(5);
        let got = bucket
            .limiter
            .blocking_acquire_until(1, Priority::High, wait);
        got.expect("usable after the kills");
        own += 1;
        worst = worst.max(asked.elapsed());
    }
    let ended = count();
    let ((before, there), (after, left)) = (begun.1, ended.1);
    let taken = (after - before + own) as i64 + left - there;
    let earned = |ns: u64| (u128::from(ns) * 50_000 / 1_000_000_000) as i64;
    let (least, most) = (earned(ended.0 - begun.2), earned(ended.2 - begun.0));
    figure!("{kills} kills: {taken} of {most}, usable after {worst:?} at worst");
    // Read while they go on: what 16 processes may take between two readings.
    let noise = 16 * 400 + 5_000;
    assert!(taken <= most + noise, "{taken} of {most}");
    assert!(
        taken >= least * 95 / 100 - noise - kills * 400,
        "{taken} of {least}"
    );
    assert!(worst < Duration::from_secs(2), "{worst:?}");
    for worker in &mut workers {
        worker.tell("stop");
    }
    workers.iter_mut().for_each(Child::finish);
    drop(workers);
    bucket.segment.look();
    bucket.comes_to_rest();
}

#[test]
fn case_12_a_storm_of_kills() {
    storm(8, 8);
}

#[test]
#[ignore = "for scripts/stress: 16 processes, 150 rounds"]
fn stress_case_12_a_storm_of_kills() {
    storm(150, 16);
}

// What changes while they wait.

#[test]
fn who_waits_notices_another_rate_at_once() {
    let scene = Scene::new();
    let mut bucket = Bucket::new(&scene, 100);
    one_of(5, || {
        bucket.segment.set(&Changes::new().rate(100)).unwrap();
        bucket.rate = 100;
        // Due in 1.2 s and later.
        let ask = |at| format!("{} w 3 80", kind(at));
        let mut taps = line_up(&mut bucket, 3, 40, ask);
        let set = now();
        bucket.segment.set(&Changes::new().rate(5_000)).unwrap();
        let delays = taps
            .iter_mut()
            .map(|tap| Duration::from_nanos(tap.got("w").saturating_sub(set)));
        let delay = delays.max().unwrap();
        figure!("a higher rate: served after {delay:?}");
        // They would look by themselves 300 ms after they came.
        less("served after", delay, Duration::from_millis(80))
    });
    one_of(3, || {
        // Due in 0.5 s, which becomes 1 s or so.
        bucket.segment.set(&Changes::new().rate(1_000)).unwrap();
        bucket.rate = 1_000;
        let ask = |at| format!("{} w 3 200", kind(at));
        let mut taps = line_up(&mut bucket, 1, 300, ask);
        let due = bucket.due(200);
        let from = now();
        bucket.segment.set(&Changes::new().rate(500)).unwrap();
        let to = now();
        let got = taps[0].got("w");
        // Half as fast for the time that was left. After a second it goes into debt.
        let latest = due + due.saturating_sub(from);
        let earliest = (due + due.saturating_sub(to)).min(bucket.empty.0 + 1_000 * MS);
        figure!(
            "a lower rate: {} ms after it was due",
            (got as i64 - latest as i64) / MS as i64
        );
        assert!(got + 5 * MS >= earliest, "too early");
        less("served too late", got, latest + 500 * MS)
    });
    // What the bucket held before and what it may hold now.
    bucket.rate = 500;
    bucket.comes_to_rest();
}

/// Deep in debt, with an interval of an hour: whoever waits there does so until something happens to the segment.
fn stuck(scene: &Scene, how: &str) -> (Bucket, Vec<Tap>) {
    let settings = Settings::new()
        .interval(Duration::from_secs(3_600))
        .members(64);
    let bucket = Bucket::bottomless(scene, settings);
    bucket.segment.pacer().unwrap().try_start().unwrap();
    let mut taps = Tap::several(&bucket.location, how, 3);
    for tap in &mut taps {
        for line in [
            "wait a 3 1000",
            "wait b 3 1000",
            "task c 5 1000",
            "start d",
            "start_task e",
        ] {
            tap.begin(line);
        }
    }
    until(LONG, "all in line", || {
        let snapshot = Observer::open(&bucket.location)
            .unwrap()
            .snapshot()
            .unwrap();
        snapshot.limiter.unwrap().queued.iter().sum::<u64>() == 9
            && snapshot.pacer.unwrap().waiting == 6
    });
    (bucket, taps)
}

/// Every wait of theirs ends with that error: after how long the last one did.
#[track_caller]
fn all_fail(taps: &mut [Tap], tokens: &str, starts: &str) -> Duration {
    let begun = Instant::now();
    for tap in taps {
        for (ids, why) in [
            (["a", "b", "c"].as_slice(), tokens),
            (["d", "e"].as_slice(), starts),
        ] {
            for id in ids {
                assert_eq!(tap.0.expect(&format!("failed {id}")), why);
            }
        }
    }
    begun.elapsed()
}

#[test]
fn a_retired_segment_ends_every_wait_at_once() {
    one_of(3, || {
        let scene = Scene::new();
        let (bucket, mut taps) = stuck(&scene, "");
        Segment::remove(&bucket.location, true).unwrap();
        let took = all_fail(&mut taps, "Retired", "Failed(Retired)");
        let why = AcquireError::Retired;
        assert_eq!(bucket.limiter.try_consume(1), Err(why.clone().into()));
        let pacer = bucket.segment.pacer().unwrap();
        assert_eq!(pacer.try_start(), Err(TryStartError::Failed(why)));
        for tap in &mut taps {
            tap.0.tell("leave");
            tap.0.finish();
        }
        less("ended after", took, Duration::from_secs(1))
    });
}

#[test]
fn an_unlinked_file_is_noticed_by_who_waits() {
    let scene = Scene::new();
    let (bucket, mut taps) = stuck(&scene, "");
    std::fs::remove_file(bucket.location.path()).unwrap();
    let took = all_fail(&mut taps, "Gone", "Failed(Gone)");
    figure!("noticed after {took:?}");
    // One that does not watch would do so after 3.5 s.
    assert!(took < Duration::from_secs(3), "{took:?}");
    until(Duration::from_secs(2), "noticed by who takes", || {
        bucket.limiter.try_consume(1) == Err(AcquireError::Gone.into())
    });
}

#[test]
fn case_40_waiters_of_a_cut_file_end() {
    let scene = Scene::new();
    let (bucket, mut taps) = stuck(&scene, "survive");
    let path = bucket.location.path();
    // Nobody here touches it any more.
    std::mem::forget(bucket);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(0).unwrap();
    let took = all_fail(&mut taps, "Lost", "Failed(Lost)");
    figure!("noticed after {took:?}");
    // The two that watch within a second, the third when it looks up: no bell can be rung any more.
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[test]
fn case_05_inherited_handles_say_forked() {
    let scene = Scene::new();
    let settings = Settings::new().rate(1_000).members(64);
    let settings = settings.interval(Duration::from_secs(60));
    let mut bucket = Bucket::of(&scene, &settings);
    let path = bucket.location.path();
    let mut parent = Child::start("fork_tokens", &[&path.to_string_lossy()]);
    parent.expect("served");
    parent.expect("done");
    let (mut steps, mut bad) = (0, Vec::new());
    while let Ok(step) = parent.listen_for("step", Duration::ZERO) {
        steps += 1;
        if !step.ends_with("good") {
            bad.push(step);
        }
    }
    assert_eq!((steps, bad), (6, Vec::<String>::new()));
    parent.finish();
    bucket.comes_to_rest();
}

// What waiting costs.

/// Due in two seconds, it sleeps until then but for its watches.
#[test]
fn who_waits_makes_few_calls() {
    if !strace_works() {
        skipped!("strace is missing or not permitted");
    }
    let scene = Scene::new();
    let bucket = Bucket::bottomless(&scene, Settings::new().members(64));
    let out = scene.path("trace");
    let file = out.to_string_lossy().into_owned();
    let wrapper = ["strace", "-f", "-qq", "-e", "trace=futex", "-o", &file];
    let mut tap = Tap::under(&wrapper, &bucket.location, "");
    // Its process may have taken its time to begin.
    let asked = now();
    let tokens = 4 + (asked - bucket.empty.0) / (1_000 * MS);
    tap.begin(&format!("wait w 3 {tokens}"));
    let took = Duration::from_nanos(tap.got("w") - asked);
    tap.0.tell("leave");
    tap.0.finish();
    let trace = std::fs::read_to_string(&out).unwrap();
    // A word of the segment is never private, and its times are monotonic; what the test's own threads sleep on is, and
    // who joins them asks for the other clock.
    let ours = trace.lines().filter(|line| {
        line.contains("FUTEX_WAIT_BITSET")
            && !line.contains("PRIVATE")
            && !line.contains("CLOCK_REALTIME")
    });
    let calls: Vec<&str> = ours.collect();
    figure!("{} waits in {took:?}", calls.len());
    assert!(took >= Duration::from_millis(1_000), "{took:?}");
    assert!(!calls.is_empty() && calls.len() <= 8, "{calls:#?}");
}

/// Many wait, and it costs next to nothing. For longer than any of them sleeps.
fn crowd(waiters: usize, time: Duration) {
    let scene = Scene::alone();
    let settings = Settings::new().members(waiters as u32 + 8);
    let bucket = Bucket::bottomless(&scene, settings);
    let mut taps = Tap::several(&bucket.location, "", waiters);
    for (at, tap) in taps.iter_mut().enumerate() {
        tap.begin(&format!("{} w {} 1000", kind(at), at % 7));
    }
    in_line(&bucket.location, waiters as u64);
    let idle: Vec<_> = taps.iter().map(|tap| &tap.0).collect();
    // Two watch, the front of each priority knows its time, the others doze.
    costs_little(&idle, time, 0.02, 9);
    drop(taps);
    bucket.segment.look();
    let seen = info(&bucket.location);
    assert_eq!((seen.queued, seen.lost), ([0; 7], waiters as u64));
}

#[test]
fn case_50_many_waiters_cost_nothing() {
    crowd(60, Duration::from_secs(4));
}

#[test]
#[ignore = "for scripts/stress: 300 processes"]
fn stress_case_50_300_waiters_for_tokens() {
    crowd(300, Duration::from_secs(10));
}
