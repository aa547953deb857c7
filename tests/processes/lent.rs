//! Slots that brisk threads keep though somebody waits: the limit is exact, who waits gets on, and nobody is passed for
//! long.

use crate::lent_roles::{Brisk, Ends, over, wait, waiting};
use crate::puppet::Puppet;
use crate::support::lending::{LENT, Lending, OFF};
use crate::support::{
    Chance, Inside, LONG, Scene, Words, figure, median, now, quiet, until, within,
};
use shmsched::{Changes, Concurrency, Observer, Priority, Scheduler, Segment, Settings};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;
/// Far more than lending takes, and less than any watch.
const SOON: Duration = Duration::from_millis(60);

/// Behind owners that never rest.
#[test]
fn case_27_who_waits_behind_brisk_owners_is_served_soon() {
    for (budget, brisk) in [(1, 1), (1, 2), (2, 2), (4, 6)] {
        let scene = Scene::alone();
        let location = scene.segment(budget);
        let counts = scene.path("counts");
        let lending = Lending::of(&location.path());
        let mut owners: Vec<_> = (0..brisk)
            .map(|at| Brisk::new(&location, &counts, at))
            .collect();
        for owner in &mut owners {
            owner.asks("go");
        }
        let mut waiter = waiting(&location, &counts, 7, 1, 2_000);
        let episode = lending.episode();
        thread::sleep(Duration::from_secs(1));
        let episodes = lending.episode() - episode;
        let took = over(&mut waiter);
        let (served, middle, longest) = (took.waits, took.median, took.longest);
        figure!(
            "{budget} slots, {brisk} brisk: {served} served, median {middle:?}, longest {longest:?}, {episodes} recalls"
        );
        assert!(served > 20, "{served}");
        // Two processors for all of them: the processor is what is waited for.
        assert!(
            middle < Duration::from_millis(10 * brisk as u64),
            "{middle:?}"
        );
        assert!(longest < Duration::from_secs(2), "{longest:?}");
        for owner in &mut owners {
            owner.asks("idle");
        }
        drop(owners);
        quiet(&location, budget);
    }
}

/// The owner leaves what was lent to it, and sleeps. Whoever waits meanwhile or joins then gets it at once.
#[test]
fn case_27_what_an_idle_owner_keeps_is_had_soon() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let counts = scene.path("counts");
    let words = Words::of(&location);
    let lending = Lending::of(&location.path());
    let mut owner = Brisk::new(&location, &counts, 0);
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let mut chance = Chance::new();
    let mut seen = 0;
    for how in 0..3 {
        let mut times = Vec::new();
        for round in 0..60 {
            thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    // Now and then it is there first.
                    thread::sleep(Duration::from_micros(chance.below(3_000)));
                    let mut last = (Duration::ZERO, now());
                    for _ in 0..3 {
                        last.0 = last.0.max(wait(&own, how, NORMAL, || ()));
                        last.1 = now();
                    }
                    last
                });
                owner.asks(&format!("for {}", 1_000 + round * 37));
                if round % 3 == 0 {
                    // As it rests, with somebody in line, by chance.
                    lending.lend();
                }
                let idle = now();
                seen += usize::from(lending.phase() == LENT && words.spare() == 1);
                let (longest, got) = waits.join().unwrap();
                times.push(longest.max(Duration::from_nanos(got.saturating_sub(idle))));
            });
        }
        times.sort_unstable();
        figure!(
            "kind {how}: median {:?}, longest {:?}",
            median(&times),
            times[times.len() - 1]
        );
        // One in ten may have stood still.
        assert!(times[times.len() * 9 / 10] < SOON, "{how}: {times:?}");
    }
    figure!("seen lent {seen} times");
    drop((owner, own));
    quiet(&location, 1);
}

/// A slot lies there, lent by somebody who has died or stopped since, while `waiters` wait: by the first pair it finds its
/// record.
fn leave_lent(lending: &Lending, own: &Scheduler, in_line: impl FnOnce()) -> u64 {
    drop(own.blocking_acquire(NORMAL).unwrap());
    let held = own.blocking_acquire(NORMAL).unwrap();
    in_line();
    assert!(lending.lend());
    let at = now();
    drop(held);
    at
}

/// Nobody told the first in line: its own timer finds out.
#[test]
fn case_08_a_first_in_line_that_was_told_nothing_finds_out() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let lending = Lending::of(&location.path());
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let mut waiter = Puppet::new(&location);
    let mut longest = 0;
    for round in 0..6 {
        let how = ["wait", "task"][round % 2];
        let at = leave_lent(&lending, &own, || {
            waiter.ask(&format!("{how} w 3 1"));
            until(LONG, "in line", || words.waiters() == 1);
        });
        longest = longest.max(waiter.got("w") - at);
        waiter.drop("w");
    }
    let longest = Duration::from_nanos(longest);
    figure!("longest {longest:?}");
    // One that does not watch would look after 3.5 s.
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    drop((own, waiter));
    quiet(&location, 1);
}

/// The first in line goes, in any way, while a slot is lent and an idle owner keeps it.
#[test]
fn case_08_the_first_in_line_goes_while_slots_are_lent() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let lending = Lending::of(&location.path());
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let mut next = Puppet::new(&location);
    for (how, bound) in [
        ("killed", 400),
        ("stopped", 700),
        ("cancelled", 60),
        ("timed out", 60),
        ("left", 60),
    ] {
        let mut times = Vec::new();
        for _ in 0..5 {
            let mut first = Puppet::new(&location);
            let at = leave_lent(&lending, &own, || {
                match how {
                    "timed out" => first.ask("wait w 3 1 30"),
                    _ => first.ask("task w 3 1"),
                };
                // It may have stood still until its time was over.
                let mut there = 1;
                until(LONG, "in line", || {
                    there -= i32::from(first.0.listen_for("failed w", Duration::ZERO).is_ok());
                    words.waiters() == there
                });
                next.wait("n", 3, 1);
                until(LONG, "in line", || {
                    there -= i32::from(first.0.listen_for("failed w", Duration::ZERO).is_ok());
                    words.waiters() == there + 1
                });
                if how == "stopped" {
                    first.0.stop_all();
                }
            });
            let at = match how {
                "killed" => {
                    first.0.kill();
                    at
                }
                "cancelled" => {
                    first.ask("cancel w");
                    at
                }
                "left" => {
                    first.0.tell("leave");
                    at
                }
                "timed out" => at + 30_000_000,
                _ => at,
            };
            let got = within(LONG, || {
                // It may get it before that.
                if how == "timed out" && first.0.listen_for("got w", Duration::ZERO).is_ok() {
                    first.drop("w");
                }
                next.0.listen_for("got n", Duration::from_millis(1))
            });
            let got: u64 = got.parse().unwrap();
            times.push(Duration::from_nanos(got.saturating_sub(at)));
            next.drop("n");
            first.0.kill();
        }
        // Of five two may have stood still.
        let middle = median(&times);
        figure!("{how}: {times:?}");
        assert!(middle < Duration::from_millis(bound), "{how}: {times:?}");
    }
    drop((own, next));
    quiet(&location, 1);
}

/// Those who would recall are stopped, or dead, and the owners go on: they do not keep their slots for ever.
#[test]
fn case_08_the_first_two_in_line_are_stopped_or_dead_and_owners_are_brisk() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let counts = scene.path("counts");
    let words = Words::of(&location);
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let mut third = Puppet::new(&location);
    let mut owner = Brisk::new(&location, &counts, 0);
    for killed in [false, true] {
        let mut two = [Puppet::new(&location), Puppet::new(&location)];
        let held = own.blocking_acquire(NORMAL).unwrap();
        for (at, first) in two.iter_mut().enumerate() {
            first.wait("w", 3, 1);
            until(LONG, "in line", || words.waiters() as usize == at + 1);
        }
        third.wait("w", 3, 1);
        until(LONG, "in line", || words.waiters() == 3);
        two.iter_mut().for_each(|first| first.0.stop_all());
        let at = now();
        drop(held);
        owner.asks("go");
        if killed {
            two.iter_mut().for_each(|first| first.0.kill());
        }
        let took = Duration::from_nanos(third.got("w") - at);
        figure!("killed {killed}: {took:?}");
        third.drop("w");
        owner.asks("idle");
        drop(two);
        // The third would look by itself after 3.5 s.
        assert!(took < Duration::from_secs(2), "killed {killed}: {took:?}");
    }
    drop((own, third, owner));
    quiet(&location, 1);
}

/// A try is refused only if somebody holds all slots.
#[test]
fn case_27_a_try_gets_what_is_lent() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let lending = Lending::of(&location.path());
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let mut other = Puppet::new(&location);
    // With nobody in line, since a command draws by chance.
    if let Some(program) = option_env!("CARGO_BIN_EXE_shmsched") {
        for round in 0..6 {
            drop(own.try_acquire(NORMAL).unwrap());
            lending.lend();
            drop(own.try_acquire(NORMAL).unwrap());
            let mut run = std::process::Command::new(program);
            run.arg("run")
                .arg(location.path())
                .args(["--no-wait", "--", "true"]);
            assert!(run.status().unwrap().success(), "round {round}");
        }
    }
    // Its target lets it in by a draw alone: it waits for as long as this takes.
    let segment = Segment::open(&location).unwrap();
    segment
        .set(&Changes::new().target(Priority::Lowest, 0))
        .unwrap();
    let mut waiter = Puppet::new(&location);
    waiter.wait("w", 0, 1);
    until(LONG, "in line", || words.waiters() == 1);
    other.ask("draw 0");
    own.fix_draw(Some(0));
    waiter.ask("draw 0");
    for round in 0..30 {
        lending.lend();
        if round % 2 == 0 {
            drop(own.try_acquire(NORMAL).unwrap());
            drop(own.try_acquire(NORMAL).unwrap());
        }
        other.take("t", 1);
        other.drop("t");
    }
    drop((own, segment, other, waiter));
    quiet(&location, 1);
}

/// `shmsched run` behind a brisk owner, and behind one that has just gone to sleep.
#[test]
fn case_27_a_command_that_waits_is_served_soon() {
    let Some(program) = option_env!("CARGO_BIN_EXE_shmsched") else {
        return;
    };
    let scene = Scene::alone();
    let location = scene.segment(1);
    let counts = scene.path("counts");
    let mut owner = Brisk::new(&location, &counts, 0);
    let mut times = Vec::new();
    for round in 0..20 {
        match round % 2 {
            0 => owner.asks("go"),
            _ => owner.asks("for 2000"),
        };
        let begun = Instant::now();
        let mut run = std::process::Command::new(program);
        run.arg("run").arg(location.path()).args(["--", "true"]);
        assert!(run.status().unwrap().success());
        times.push(begun.elapsed());
        owner.asks("idle");
    }
    times.sort_unstable();
    figure!(
        "median {:?}, longest {:?}",
        median(&times),
        times[times.len() - 1]
    );
    // One in five may have stood still.
    assert!(
        times[times.len() * 4 / 5] < Duration::from_millis(150),
        "{times:?}"
    );
    drop(owner);
    quiet(&location, 1);
}

/// Brisk owners, and one that waits at the top and one at the bottom: the top goes first, and the bottom gets on.
#[test]
fn case_28_priorities_while_owners_are_brisk() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let counts = scene.path("counts");
    let words = Words::of(&location);
    let mut owner = Brisk::new(&location, &counts, 0);
    let (mut top, mut bottom) = (Puppet::new(&location), Puppet::new(&location));
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    // Both in line before the owner begins. All draws by those who recall name the top.
    for waiter in [&mut top, &mut bottom] {
        waiter.ask("draw 0");
    }
    own.fix_draw(Some(0));
    let mut first = 0;
    for _ in 0..20 {
        let held = own.blocking_acquire(NORMAL).unwrap();
        bottom.wait("b", 0, 1);
        until(LONG, "bottom in line", || words.waiters() == 1);
        top.wait("t", 6, 1);
        until(LONG, "top in line", || words.waiters() == 2);
        // Whichever is served first gives back.
        top.0.tell("drop t");
        bottom.0.tell("drop b");
        drop(held);
        owner.asks("go");
        first += u32::from(top.got("t") < bottom.got("b"));
        top.0.expect("=");
        bottom.0.expect("=");
        owner.asks("idle");
    }
    figure!("the top was first {first} of 20 times");
    // The owner itself draws too, by chance: one in 127 names the bottom. And who stands still when called is passed over.
    assert!(first >= 16, "{first}");
    // The top never rests; the bottom gets on by the draw.
    for waiter in [&mut top, &mut bottom] {
        waiter.ask("draw 126");
    }
    own.fix_draw(None);
    top.ask("loop 2 6 0");
    owner.asks("go");
    let begun = Instant::now();
    for _ in 0..10 {
        bottom.wait("b", 0, 1);
        bottom.got("b");
        bottom.drop("b");
    }
    figure!("ten turns of the bottom in {:?}", begun.elapsed());
    owner.asks("idle");
    drop((top, bottom, owner, own));
    quiet(&location, 1);
}

/// Settings and ends while slots are lent.
#[test]
fn changes_and_ends_while_slots_are_lent() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let words = Words::of(&location);
    let lending = Lending::of(&location.path());
    let segment = Segment::open(&location).unwrap();
    let own = segment.scheduler().unwrap();
    for round in 0..24 {
        let member = Segment::open(&location).unwrap();
        let owner = member.scheduler().unwrap();
        drop(owner.try_acquire(NORMAL).unwrap());
        let held = owner.try_acquire(NORMAL).unwrap();
        assert!(lending.lend(), "round {round}");
        drop(held);
        assert_eq!((words.spare(), words.taken()), (1, 1), "round {round}");
        match round % 6 {
            0 => {
                segment.set(&Changes::new().concurrency(Some(1))).unwrap();
                assert_eq!(words.spare(), 0);
                assert!(own.try_acquire(NORMAL).is_ok());
                segment.set(&Changes::new().concurrency(Some(3))).unwrap();
            }
            1 => owner.close(),
            2 => {
                owner.dispose();
                assert_eq!(words.taken(), 0);
            }
            3 => {
                drop((owner, member));
                assert_eq!(words.taken(), 0);
                drop(own.try_acquire_many(3, NORMAL).unwrap());
                continue;
            }
            4 => {
                // Another thread's, which has ended.
                thread::scope(|scope| {
                    scope.spawn(|| {
                        drop(owner.try_acquire(NORMAL).unwrap());
                        drop(owner.try_acquire(NORMAL).unwrap());
                    });
                });
                segment.look();
            }
            _ => {
                let seen = Observer::open(&location).unwrap().snapshot().unwrap();
                assert_eq!(seen.scheduler.unwrap().running, 0);
                assert_eq!(own.available_permits(), 3);
                segment.wait_idle(LONG).unwrap();
            }
        }
        let all = own.try_acquire_many(3, NORMAL);
        let all = all.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(own.try_acquire(NORMAL).is_err());
        drop(all);
        drop((owner, member));
        assert_eq!(words.taken(), 0, "round {round}");
    }
    // A killed owner's, found by a look, by a try, by one that waits, and by one that evicts.
    let counts = scene.path("counts");
    for round in 0..8 {
        let mut owner = Brisk::new(&location, &counts, 0);
        owner.asks("for 200");
        lending.lend();
        owner.asks("for 200");
        owner.0.kill();
        match round % 4 {
            0 => drop(segment.look()),
            1 => {
                let all = own.try_acquire_many(3, NORMAL);
                assert!(
                    all.is_ok(),
                    "round {round}: {} spare of {}",
                    words.spare(),
                    words.taken()
                );
            }
            2 => drop(own.blocking_acquire_many(3, NORMAL).unwrap()),
            _ => {}
        }
        until(LONG, "all is back", || {
            own.try_acquire_many(3, NORMAL).is_ok()
        });
        assert_eq!(own.available_permits(), 3);
    }
    drop((own, segment));
    quiet(&location, 3);
}

/// Removed by force while owners are brisk and others wait: everybody ends.
#[test]
fn removed_while_slots_are_lent() {
    let scene = Scene::new();
    let counts = scene.path("counts");
    for at in 0..3 {
        let location = scene.segment_of(&format!("S{at}"), &Settings::new().concurrency(1));
        let words = Words::of(&location);
        let mut owner = Brisk::new(&location, &counts, 0);
        let mut waiter = Puppet::new(&location);
        let own = Segment::open(&location).unwrap().scheduler().unwrap();
        let held = own.blocking_acquire(NORMAL).unwrap();
        waiter.ask("wait w 3 1");
        waiter.ask("task t 0 1");
        until(LONG, "in line", || words.summary() != 0);
        drop(held);
        owner.asks("go");
        Segment::remove(&location, true).unwrap();
        // Whoever has not had it by then.
        for id in ["w", "t"] {
            until(LONG, "it ended", || {
                ["failed", "got"].iter().any(|how| {
                    let word = format!("{how} {id}");
                    waiter.0.listen_for(&word, Duration::from_millis(1)).is_ok()
                })
            });
        }
        // Its worker ends as it fails.
        owner.0.kill();
        assert!(own.try_acquire(NORMAL).is_err());
    }
}

/// Many threads of one process, brisk, at two slots, with somebody of another process in line; and one process that is
/// two members.
#[test]
fn case_27_threads_of_one_process_and_two_members_of_one() {
    let scene = Scene::alone();
    let location = scene.segment(2);
    let counts = scene.path("counts");
    let inside = Inside::open(&counts);
    let segments = [
        Segment::open(&location).unwrap(),
        Segment::open(&location).unwrap(),
    ];
    let members = segments
        .each_ref()
        .map(|segment| segment.scheduler().unwrap());
    let mut waiter = waiting(&location, &counts, 7, 3, 1_000);
    let (over_now, pairs) = (AtomicBool::new(false), AtomicU64::new(0));
    let lending = Lending::of(&location.path());
    thread::scope(|scope| {
        for at in 0..6 {
            let (members, inside, over_now, pairs) = (&members, &inside, &over_now, &pairs);
            scope.spawn(move || {
                let mut n = 0;
                while !over_now.load(Ordering::Relaxed) {
                    // Two threads change from one to the other all the time.
                    let which = if at < 2 { n % 2 } else { at % 2 };
                    let _permit = members[which].blocking_acquire(NORMAL).unwrap();
                    inside.enter(0, 1);
                    inside.leave(0, 1);
                    n += 1;
                }
                pairs.fetch_add(n as u64, Ordering::Relaxed);
            });
        }
        let _ends = Ends(&over_now);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            if lending.phase() == OFF {
                lending.lend();
            }
            thread::sleep(Duration::from_micros(700));
        }
    });
    let took = over(&mut waiter);
    figure!("{} pairs; {took:?}", pairs.into_inner());
    assert!(inside.most() <= 2);
    assert!(took.waits > 20, "{took:?}");
    assert!(took.most < Duration::from_millis(300), "{took:?}");
    assert!(took.longest < Duration::from_secs(2), "{took:?}");
    drop((members, segments, waiter));
    quiet(&location, 2);
}

/// Tasks of a millisecond are not lent slots, whoever waits; idle waiters cost what they did.
#[test]
fn case_50_slow_owners_lend_nothing_and_brisk_ones_cost_waiters_little() {
    const WAITERS: usize = 30;
    let scene = Scene::alone();
    let concurrency = Concurrency::max(2).target(Priority::Lowest, 0);
    let location = scene.segment_of("S", &Settings::new().concurrency(concurrency).members(64));
    let words = Words::of(&location);
    let lending = Lending::of(&location.path());
    let counts = scene.path("counts");
    let mut crowd: Vec<_> = (0..WAITERS).map(|_| Puppet::new(&location)).collect();
    for waiter in &mut crowd {
        waiter.ask("draw 0");
        waiter.wait("w", 0, 1);
    }
    until(LONG, "all in line", || words.waiters() as usize == WAITERS);
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    own.fix_draw(Some(0));
    // Slow ones, of this process.
    let mut lent = 0;
    for _ in 0..400 {
        let held = own.blocking_acquire(NORMAL).unwrap();
        thread::sleep(Duration::from_micros(900));
        drop(held);
        lent += u32::from(lending.phase() == LENT);
    }
    assert_eq!(lent, 0);
    let usage = |crowd: &[Puppet]| {
        let all = crowd.iter().map(|waiter| waiter.0.usage());
        all.fold((Duration::ZERO, 0), |sum, one| {
            (sum.0 + one.0, sum.1 + one.1)
        })
    };
    // A brisk one of another process.
    let mut owner = Brisk::new(&location, &counts, 0);
    owner.asks("draws top");
    owner.asks("go");
    let (before, episode, rings) = (usage(&crowd), lending.episode(), words.rings());
    let begun = Instant::now();
    thread::sleep(Duration::from_secs(2));
    let took = begun.elapsed().as_secs_f64();
    let after = usage(&crowd);
    let pairs = owner.asks("idle");
    let share = (after.0 - before.0).as_secs_f64() / took;
    let recalls = f64::from(lending.episode() - episode) / took;
    figure!(
        "{WAITERS} waiters use {share:.3} of a processor, {:.0} wakes/s, {:.0} rings/s, {recalls:.0} recalls/s, {pairs} pairs",
        (after.1 - before.1) as f64 / took,
        (words.rings() - rings) as f64 / took,
    );
    // In debug builds, of two processors, with the owner on one of them.
    assert!(share < 0.6, "{share}");
    assert!(recalls < 2_500.0, "{recalls}");
    drop((crowd, own, owner));
    quiet(&location, 2);
}
