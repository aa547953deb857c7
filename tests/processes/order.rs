//! One order over all processes.

use crate::puppet::Puppet;
use crate::support::{LONG, Scene, Words, figure, less, median, now, one_of, quiet, until};
use shmsched::{Changes, Concurrency, Location, Observer, PlaceState, Priority, Segment, Settings};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The draw that names the highest priority, which has nobody here: order alone decides.
const HIGHEST: u32 = 0;

/// Ends a loop in another thread.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A holder of all slots and so many puppets, none of which draws lots.
fn with_holder(location: &Location, slots: u32, puppets: usize) -> (Puppet, Vec<Puppet>) {
    let mut holder = Puppet::new(location);
    holder.ask(&format!("draw {HIGHEST}"));
    holder.take("all", slots);
    let puppets = (0..puppets)
        .map(|_| {
            let mut puppet = Puppet::new(location);
            puppet.ask(&format!("draw {HIGHEST}"));
            puppet
        })
        .collect();
    (holder, puppets)
}

/// Once they are let: whether these are served in this order. Each gives back at once. One that stands still when it is
/// called is passed over after a quarter of a second, so then nothing is said.
#[track_caller]
fn served_in_order(holder: &mut Puppet, puppets: &mut [Puppet]) -> Result<(), String> {
    for puppet in &mut *puppets {
        puppet.0.tell("drop w");
    }
    let mut last = holder.drop("all");
    let mut times: Vec<u64> = puppets.iter_mut().map(|puppet| puppet.got("w")).collect();
    let told = format!("{times:?}, let at {last}");
    let in_order = times.is_sorted();
    times.sort_unstable();
    let stood_still = times.into_iter().any(|time| {
        let since = time - std::mem::replace(&mut last, time);
        since > 200_000_000
    });
    for puppet in puppets {
        puppet.0.expect("=");
    }
    assert!(in_order || stood_still, "{told}");
    match in_order {
        true => Ok(()),
        false => Err(told),
    }
}

#[test]
fn arrivals_are_served_in_order_over_processes() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let (mut holder, mut puppets) = with_holder(&location, 1, 5);
    one_of(3, || {
        // A thread and a task by turns.
        for (at, puppet) in puppets.iter_mut().enumerate() {
            let how = if at % 2 == 0 { "wait" } else { "task" };
            puppet.ask(&format!("{how} w 3 1"));
            until(LONG, "in line", || words.waiters() as usize == at + 1);
        }
        let ordered = served_in_order(&mut holder, &mut puppets);
        holder.take("all", 1);
        ordered
    });
    holder.drop("all");
    quiet(&location, 1);
}

#[test]
fn the_most_urgent_comes_first_over_processes() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let (mut holder, mut puppets) = with_holder(&location, 1, 6);
    one_of(3, || {
        // The least urgent arrives first; the highest is left to the draw.
        for (priority, puppet) in puppets.iter_mut().enumerate() {
            puppet.wait("w", priority, 1);
            until(LONG, "in line", || words.waiters() as usize == priority + 1);
        }
        puppets.reverse();
        let ordered = served_in_order(&mut holder, &mut puppets);
        puppets.reverse();
        holder.take("all", 1);
        ordered
    });
    holder.drop("all");
    quiet(&location, 1);
}

#[test]
fn case_27_a_process_that_queues_many_takes_turns() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let (mut holder, mut puppets) = with_holder(&location, 1, 2);
    let mut round = 0;
    one_of(3, || {
        round += 1;
        let log = scene.path(&format!("order{round}"));
        let file = log.to_string_lossy().into_owned();
        puppets[0].ask(&format!("work 100 3 200 many {file}"));
        until(LONG, "queued", || puppets[0].ask("pending") == "100");
        puppets[1].ask(&format!("work 3 3 200 few {file}"));
        until(LONG, "queued", || puppets[1].ask("pending") == "3");
        holder.drop("all");
        puppets[1].0.expect("worked few");
        puppets[0].0.expect("worked many");
        holder.take("all", 1);
        let order = std::fs::read_to_string(&log).unwrap();
        let places: Vec<usize> = order
            .lines()
            .enumerate()
            .filter_map(|(at, tag)| (tag == "few").then_some(at))
            .collect();
        assert_eq!(order.lines().count(), 103);
        // Strict turns would be 1, 3, 5. Before a head's mark is set a newcomer may get in, never for long. Who stands still
        // when it is called is passed over.
        less("the first of the few", places[0], 11)?;
        less("the last of the few", places[2], 31)
    });
    holder.drop("all");
    quiet(&location, 1);
}

#[test]
fn case_27_newcomers_do_not_starve_who_sleeps() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let mut puppets = [Puppet::new(&location), Puppet::new(&location)];
    let stop = AtomicBool::new(false);
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        // Also when the test fails, or the scope would never end.
        let _stopping = Stopping(&stop);
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let wait = Duration::from_millis(500);
                let permit = scheduler.blocking_acquire_until(1, Priority::Normal, wait);
                std::thread::sleep(Duration::from_millis(1));
                drop(permit);
            }
        });
        for _ in 0..10 {
            let asked = now();
            puppets[0].ask("wait w 3 1");
            puppets[1].ask("task w 3 1");
            // In whatever order: each gives back at once.
            let mut left = vec![0, 1];
            until(LONG, "both served", || {
                left.retain(|at| {
                    let puppet: &mut Puppet = &mut puppets[*at];
                    let got = puppet.0.expect_within("got w", Duration::from_millis(1));
                    let Some(got) = got else { return true };
                    puppet.drop("w");
                    times.push(got.parse::<u64>().unwrap().saturating_sub(asked));
                    false
                });
                left.is_empty()
            });
        }
    });
    times.sort_unstable();
    // One of them may have stood still.
    assert!(times[times.len() - 2] < 1_000_000_000, "starved: {times:?}");
    drop((scheduler, segment));
    quiet(&location, 1);
}

/// A head that asks for more than is free bars newcomers once it has waited 500 us, also if nobody ever called it.
#[test]
fn case_27_newcomers_leave_room_to_a_big_request() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let words = Words::of(&location);
    let (mut holder, mut puppets) = with_holder(&location, 1, 2);
    puppets[0].wait("big", 3, 3);
    until(LONG, "in line", || words.waiters() == 1);
    // The head itself may have stood still for the first 20 ms.
    let barred = (0..3).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        !puppets[1].could_take()
    });
    assert!(barred, "newcomers passed a head that had waited 20 ms");
    puppets[1].wait("urgent", 4, 1);
    puppets[1].got("urgent");
    puppets[1].drop("urgent");
    holder.drop("all");
    puppets[0].got("big");
    puppets[0].drop("big");
    quiet(&location, 3);
}

/// Others take and give one slot each without a pause; who wants all three is served nevertheless.
#[test]
fn case_27_a_big_request_does_not_starve() {
    let scene = Scene::new();
    let location = scene.segment(3);
    // Two that never have to wait, so that only the head's mark can hold them back.
    let mut small: Vec<_> = (0..2).map(|_| Puppet::new(&location)).collect();
    for puppet in &mut small {
        puppet.ask(&format!("draw {HIGHEST}"));
        puppet.ask("loop 1 3 1000");
    }
    let mut big = Puppet::new(&location);
    let mut times = Vec::new();
    for _ in 0..5 {
        let asked = now();
        big.wait("big", 3, 3);
        let got = big.0.expect_within("got big", Duration::from_secs(5));
        let got: u64 = got.expect("starved").parse().unwrap();
        big.drop("big");
        times.push((got - asked) / 1_000_000);
    }
    times.sort_unstable();
    // One that held a slot may have stood still.
    assert!(times[3] < 1_000, "{times:?} ms");
    drop(small);
    quiet(&location, 3);
}

#[test]
fn case_28a_the_lowest_is_served_beside_endless_high_work() {
    let scene = Scene::new();
    let low = Concurrency::max(4).target(Priority::Low, 1);
    let location = scene.segment_of("S", &Settings::new().concurrency(low).members(64));
    let log = scene.path("high").to_string_lossy().into_owned();
    // More work than can be done in this time, two of each process at once in the line.
    let mut high: Vec<_> = (0..4).map(|_| Puppet::new(&location)).collect();
    for puppet in &mut high {
        puppet.ask(&format!("work 4000 4 10000 h {log}"));
    }
    let mut lowest = Puppet::new(&location);
    let turns = || std::fs::metadata(&log).map_or(0, |log| log.len() / 2);
    let mut waits = Vec::new();
    for _ in 0..5 {
        let before = turns();
        lowest.wait("w", 0, 1);
        lowest.got("w");
        waits.push(turns() - before);
        lowest.drop("w");
    }
    figure!("lowest waited for {waits:?} turns of others");
    // One turn in 127 is its own, and 400 are had in a second by those who do not stand still.
    assert!(waits.iter().all(|turns| *turns < 2_000), "{waits:?}");
    drop(high);
    quiet(&location, 4);
}

fn high_passes_low(rounds: usize) {
    let scene = Scene::alone();
    let low = Concurrency::max(4).target(Priority::Low, 1);
    let location = scene.segment_of("S", &Settings::new().concurrency(low).members(64));
    let words = Words::of(&location);
    let (mut holder, mut puppets) = with_holder(&location, 3, 2);
    assert_eq!(
        holder.ask("try low 2 1"),
        "no",
        "its target counts what runs"
    );
    holder.drop("all");
    assert_eq!(holder.ask("try low 2 1"), "yes");
    holder.take("a", 1);
    holder.take("b", 1);
    let mut delays = Vec::new();
    for _ in 0..rounds {
        holder.take("c", 1);
        for at in 0..5 {
            puppets[0].wait(&format!("low{at}"), 2, 1);
            until(LONG, "queued", || {
                puppets[0].ask("pending") == (at + 1).to_string()
            });
        }
        until(LONG, "in line", || words.waiters() == 1);
        puppets[1].wait("high", 4, 1);
        until(LONG, "in line", || words.waiters() == 2);
        let freed = holder.drop("c");
        let got = puppets[1].got("high");
        delays.push(Duration::from_nanos(got.saturating_sub(freed)));
        puppets[1].drop("high");
        // The low ones get in when nothing else runs.
        for id in ["a", "b", "low"] {
            holder.drop(id);
        }
        for at in 0..5 {
            puppets[0].got(&format!("low{at}"));
            puppets[0].drop(&format!("low{at}"));
        }
        until(LONG, "line empty", || words.waiters() == 0);
        assert_eq!(holder.ask("try low 2 1"), "yes");
        holder.take("a", 1);
        holder.take("b", 1);
    }
    delays.sort_unstable();
    figure!(
        "high starts after {:?}, worst {:?}",
        median(&delays),
        delays[rounds - 1]
    );
    assert!(median(&delays) < Duration::from_millis(50), "{delays:?}");
    // One of them may have stood still.
    assert!(delays[rounds - 2] < Duration::from_secs(1), "{delays:?}");
}

#[test]
fn case_28b_a_freed_slot_wakes_the_high_one_behind_low_ones() {
    high_passes_low(20);
}

#[test]
#[ignore = "for scripts/stress: 200 rounds"]
fn stress_case_28b_a_freed_slot_wakes_the_high_one_behind_low_ones() {
    high_passes_low(200);
}

#[test]
fn case_28c_targets_resolve() {
    let scene = Scene::new();
    let targets = Concurrency::max(100)
        .target(Priority::Low, 20)
        .target(Priority::Lowest, 5);
    let location = scene.segment_of("S", &Settings::new().concurrency(targets));
    let snapshot = Observer::open(&location).unwrap().snapshot().unwrap();
    let wanted = [5, 5, 20, 100, 100, 100, 100].map(Some);
    assert_eq!(snapshot.scheduler.unwrap().targets, wanted);
}

#[test]
fn a_stopped_waiter_is_passed_over_and_keeps_its_place() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let (mut holder, mut puppets) = with_holder(&location, 1, 3);
    let first_in_line = || {
        let snapshot = Observer::open(&location).unwrap().snapshot().unwrap();
        let mut waiting = snapshot.members.into_iter().flat_map(|m| m.waiting);
        waiting.find(|w| w.position == 1)
    };
    one_of(3, || {
        for (at, puppet) in puppets.iter_mut().enumerate() {
            puppet.wait("w", 3, 1);
            until(LONG, "in line", || words.waiters() as usize == at + 1);
        }
        puppets[0].0.stop();
        // Served before the others give back, whichever of them is.
        puppets[2].0.tell("drop w");
        let freed = holder.drop("all");
        let got = puppets[1].got("w");
        let passed = Duration::from_nanos(got - freed);
        figure!("passed over after {passed:?}");
        assert!(
            passed >= Duration::from_millis(200),
            "its turn was taken away after {passed:?}"
        );
        assert_eq!(first_in_line().unwrap().state, PlaceState::Lapsed);
        // Awake before the next turn is given, it is first.
        puppets[0].0.go_on();
        until(LONG, "awake", || {
            first_in_line().is_some_and(|first| first.state != PlaceState::Lapsed)
        });
        puppets[0].0.tell("drop w");
        let next = puppets[1].drop("w");
        let (first, third) = (puppets[0].got("w"), puppets[2].got("w"));
        for at in [0, 2] {
            puppets[at].0.expect("=");
        }
        holder.take("all", 1);
        less("passed over after", passed, Duration::from_secs(1))?;
        // Unless it stood still again when it was called.
        assert!(first < third || third - next > 200_000_000);
        less("it was served", first, third)
    });
    holder.drop("all");
    quiet(&location, 1);
}

/// With both that watch stopped, the next finds out when it looks up by itself, every four seconds; from then on each
/// further stopped one costs little.
#[test]
fn stopped_waiters_in_a_row_cost_little() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let (mut holder, mut puppets) = with_holder(&location, 1, 6);
    for (at, puppet) in puppets.iter_mut().enumerate() {
        puppet.wait("w", 3, 1);
        until(LONG, "in line", || words.waiters() as usize == at + 1);
    }
    for puppet in &mut puppets[..5] {
        puppet.0.stop();
    }
    let freed = holder.drop("all");
    let passed = Duration::from_nanos(puppets[5].got("w") - freed);
    figure!("five passed over after {passed:?}");
    assert!(
        passed < Duration::from_secs(6),
        "as if each were waited for: {passed:?}"
    );
    puppets.iter().for_each(|puppet| puppet.0.go_on());
    puppets[5].drop("w");
    // In the order in which they woke: each gives back once it is served.
    for puppet in &mut puppets[..5] {
        puppet.0.tell("drop w");
    }
    for puppet in &mut puppets[..5] {
        puppet.0.expect("=");
    }
    quiet(&location, 1);
}

#[test]
fn raising_the_limit_wakes_who_fits() {
    let scene = Scene::new();
    let mut round = 0;
    one_of(3, || {
        round += 1;
        let settings = Settings::new().concurrency(1).members(16);
        let location = scene.segment_of(&format!("S{round}"), &settings);
        let words = Words::of(&location);
        let (mut holder, mut puppets) = with_holder(&location, 1, 4);
        for (at, puppet) in puppets.iter_mut().enumerate() {
            puppet.wait("w", 3, 1);
            until(LONG, "in line", || words.waiters() as usize == at + 1);
        }
        let set = now();
        assert_eq!(holder.ask("set 3"), "set");
        for puppet in &mut puppets[..2] {
            // One that stands still when it is called is passed over.
            let got = puppet.0.expect_within("got w", Duration::from_secs(3));
            let got: u64 = got.ok_or("passed over")?.parse().unwrap();
            less("woken after", got.saturating_sub(set), 1_000_000_000)?;
        }
        assert_eq!(
            puppets[2]
                .0
                .expect_within("got w", Duration::from_millis(300)),
            None,
            "3 + 1 run"
        );
        // Unlimited lets everybody in.
        Segment::open(&location)
            .unwrap()
            .set(&Changes::new().concurrency(None))
            .unwrap();
        puppets[2].got("w");
        puppets[3].got("w");
        puppets.iter_mut().for_each(|puppet| {
            puppet.drop("w");
        });
        holder.ask("set 3");
        holder.drop("all");
        quiet(&location, 3);
        Ok(())
    });
}

#[test]
fn lowering_the_limit_takes_nothing_and_admits_nobody() {
    let scene = Scene::new();
    let location = scene.segment(4);
    let words = Words::of(&location);
    let (mut holder, mut puppets) = with_holder(&location, 1, 1);
    for id in ["a", "b", "c"] {
        holder.take(id, 1);
    }
    puppets[0].wait("one", 3, 1);
    puppets[0].wait("three", 4, 3);
    until(LONG, "in line", || puppets[0].ask("pending") == "2");
    holder.ask("set 2");
    // What can never fit any more ends at once and holds nobody up.
    let why = puppets[0].0.expect("failed three");
    assert!(why.contains("DoesNotFit"), "{why}");
    assert_eq!(words.running(), 4, "held slots stay held");
    holder.drop("a");
    holder.drop("b");
    assert_eq!(
        puppets[0]
            .0
            .expect_within("got one", Duration::from_millis(300)),
        None,
        "2 of 2"
    );
    holder.drop("c");
    puppets[0].got("one");
    puppets[0].drop("one");
    // Zero pauses: who waits goes on waiting.
    puppets[0].wait("one", 3, 1);
    assert!(puppets[0].got("one") > 0);
    puppets[0].wait("two", 3, 1);
    until(LONG, "in line", || words.waiters() == 1);
    holder.ask("set 0");
    puppets[0].drop("one");
    holder.drop("all");
    assert_eq!(
        puppets[0]
            .0
            .expect_within("got two", Duration::from_millis(300)),
        None
    );
    assert!(
        holder.ask("try x 3 1").contains("0"),
        "newcomers are refused"
    );
    holder.ask("set 2");
    puppets[0].got("two");
    puppets[0].drop("two");
    quiet(&location, 2);
}
