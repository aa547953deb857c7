//! Slots that brisk threads keep though somebody waits: the limit is exact, who waits gets on, and nobody is passed for
//! long.

use crate::puppet::Puppet;
use crate::support::lending::{LENT, Lending, OFF};
use crate::support::{
    Args, Chance, Child, Inside, LONG, Scene, Words, figure, hear, median, now, quiet,
    quiet_within, say, until,
};
use shmsched::{
    Changes, Concurrency, Deadline, Location, Observer, Priority, Scheduler, Segment, Settings,
};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;
/// Far more than lending takes, and less than any watch.
const SOON: Duration = Duration::from_millis(60);

/// Role: PATH COUNTS PROCESS PRIORITY. A thread that takes and gives back slots as fast as it can, once it is told "go",
/// until it is told "idle". `for US`: so long, then idle.
pub fn brisk(args: &Args) {
    let scheduler = Segment::open(&args.location())
        .unwrap()
        .scheduler()
        .unwrap();
    let inside = Inside::open(Path::new(args.text(1)));
    let process = args.number(2) as usize;
    let priority = Priority::from_index(args.number(3) as usize).unwrap();
    let (goes, idle, pairs) = (
        AtomicBool::new(false),
        AtomicBool::new(true),
        AtomicU64::new(0),
    );
    say("ready");
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                if !goes.load(Ordering::SeqCst) {
                    idle.store(true, Ordering::SeqCst);
                    while !goes.load(Ordering::SeqCst) {
                        thread::park_timeout(Duration::from_millis(1));
                    }
                }
                idle.store(false, Ordering::SeqCst);
                for _ in 0..32 {
                    let Ok(_permit) = scheduler.blocking_acquire(priority) else {
                        return;
                    };
                    inside.enter(process, 1);
                    inside.leave(process, 1);
                }
                pairs.fetch_add(32, Ordering::Relaxed);
            }
        });
        let rests = || until(LONG, "idle", || idle.load(Ordering::SeqCst));
        loop {
            let line = hear();
            match &*line.split(' ').collect::<Vec<_>>() {
                ["go"] => {
                    goes.store(true, Ordering::SeqCst);
                    until(LONG, "going", || !idle.load(Ordering::SeqCst));
                }
                ["for", us] => {
                    goes.store(true, Ordering::SeqCst);
                    let begun = Instant::now();
                    let time = Duration::from_micros(us.parse().unwrap());
                    while begun.elapsed() < time || idle.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    goes.store(false, Ordering::SeqCst);
                    rests();
                }
                // The lottery names the top alone.
                ["draws", "top"] => scheduler.fix_draw(Some(0)),
                ["idle"] => {
                    goes.store(false, Ordering::SeqCst);
                    rests();
                }
                _ => panic!("what is {line:?}?"),
            }
            say(format!("= {}", pairs.load(Ordering::Relaxed)));
        }
    });
}

/// Another process that is brisk.
struct Brisk(Child);

impl Brisk {
    fn at(location: &Location, counts: &Path, process: usize, priority: Priority) -> Brisk {
        let path = location.path();
        let args = [
            &*path.to_string_lossy(),
            &*counts.to_string_lossy(),
            &process.to_string(),
            &priority.index().to_string(),
        ];
        let mut child = Child::start("brisk", &args);
        child.expect("ready");
        Brisk(child)
    }

    fn new(location: &Location, counts: &Path, process: usize) -> Brisk {
        Brisk::at(location, counts, process, NORMAL)
    }

    #[track_caller]
    fn asks(&mut self, line: &str) -> u64 {
        self.0.tell(line);
        self.0.expect("=").parse().unwrap()
    }
}

/// Waits for one slot, by a thread, a task or a callback: for how long.
fn wait(
    scheduler: &Scheduler,
    how: usize,
    priority: Priority,
    held: impl Fn() + Send + Sync,
) -> Duration {
    let begun = Instant::now();
    match how {
        0 => {
            let _permit = scheduler.blocking_acquire(priority).unwrap();
            let took = begun.elapsed();
            held();
            took
        }
        1 => {
            let _permit = futures_executor::block_on(scheduler.acquire(priority)).unwrap();
            let took = begun.elapsed();
            held();
            took
        }
        _ => {
            let (sender, ran) = channel();
            scheduler.acquire_with(move |()| _ = sender.send(begun.elapsed()), priority, ());
            let took = ran.recv().unwrap();
            held();
            scheduler.release().unwrap();
            took
        }
    }
}

/// Role: PATH COUNTS PROCESS SEED MOST_US. Threads that wait in every way, again and again, with pauses.
pub fn waits(args: &Args) {
    let scheduler = Segment::open(&args.location())
        .unwrap()
        .scheduler()
        .unwrap();
    let inside = Inside::open(Path::new(args.text(1)));
    let (process, most) = (args.number(2) as usize, args.number(4));
    let (over, took) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for how in 0..3 {
            let (scheduler, inside, over, took) = (&scheduler, &inside, &over, &took);
            let mut chance = Chance::seeded(args.number(3) * 7 + how as u64);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let priority = Priority::from_index(chance.below(7) as usize).unwrap();
                    if how == 0 && chance.below(3) == 0 {
                        let until = Deadline::from(Duration::from_micros(chance.below(2_000)));
                        if let Ok(_permit) = scheduler.blocking_acquire_until(1, priority, until) {
                            inside.enter(process, 1);
                            inside.leave(process, 1);
                        }
                    } else {
                        let waited = wait(scheduler, how, priority, || {
                            inside.enter(process, 1);
                            inside.leave(process, 1);
                        });
                        took.lock().unwrap().push(waited.as_micros() as u64);
                    }
                    thread::sleep(Duration::from_micros(chance.below(most)));
                }
            });
        }
        say("waiting");
        hear();
        over.store(true, Ordering::Relaxed);
    });
    let mut took = took.into_inner().unwrap();
    took.sort_unstable();
    let last = took.last().copied().unwrap_or(0);
    let middle = if took.is_empty() { 0 } else { median(&took) };
    say(format!("took {} {middle} {last}", took.len()));
}

fn waiting(location: &Location, counts: &Path, process: usize, seed: u64, most_us: u64) -> Child {
    let path = location.path();
    let args = [
        &*path.to_string_lossy(),
        &*counts.to_string_lossy(),
        &process.to_string(),
        &seed.to_string(),
        &most_us.to_string(),
    ];
    let mut child = Child::start("waits", &args);
    child.expect("waiting");
    child
}

/// How many waits, the middle and the longest of them.
#[track_caller]
fn over(child: &mut Child) -> (u64, Duration, Duration) {
    child.tell("over");
    let took = child.expect("took");
    let took: Vec<u64> = took.split(' ').map(|n| n.parse().unwrap()).collect();
    (
        took[0],
        Duration::from_micros(took[1]),
        Duration::from_micros(took[2]),
    )
}

/// Says so when it is dropped, also by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Brisk processes and such that wait, stopped and killed at any time, while slots are lent by themselves and, after some
/// waits, by this process.
fn storm(time: Duration, budget: u32, brisk: usize, kills: bool) {
    const WAITERS: usize = 2;
    let scene = Scene::alone();
    let location = scene.segment(budget);
    let counts = scene.path("counts");
    let inside = Inside::open(&counts);
    let lending = Lending::of(&location.path());
    let mut chance = Chance::new();
    let start = |process: usize, seed: u64| match process < WAITERS {
        true => waiting(&location, &counts, process, seed, 3_000),
        false => {
            let mut brisk = Brisk::new(&location, &counts, process);
            brisk.asks("go");
            brisk.0
        }
    };
    let mut workers: Vec<Child> = (0..WAITERS + brisk)
        .map(|process| start(process, chance.below(1 << 31)))
        .collect();
    let (over_now, forged) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut lent, mut rounds, mut stops, mut killed) = (0, 0, 0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over_now.load(Ordering::Relaxed) {
                if lending.phase() == OFF {
                    forged.fetch_add(lending.lend().into(), Ordering::Relaxed);
                }
                thread::sleep(Duration::from_micros(300));
            }
        });
        let _ends = Ends(&over_now);
        let begun = Instant::now();
        while begun.elapsed() < time {
            thread::sleep(Duration::from_micros(chance.below(6_000)));
            rounds += 1;
            lent += usize::from(lending.phase() == LENT);
            let at = chance.below(workers.len() as u64) as usize;
            if chance.below(3) == 0 {
                workers[at].stop_all();
                stops += 1;
                thread::sleep(Duration::from_micros(chance.below(8_000)));
                if kills && chance.below(6) == 0 {
                    inside.dies(at);
                    workers[at].kill();
                    killed += 1;
                    workers[at] = start(at, chance.below(1 << 31));
                } else {
                    workers[at].go_on();
                }
            }
            if inside.most() > u64::from(budget) {
                break;
            }
        }
    });
    let most = inside.most();
    let forged = forged.into_inner();
    figure!(
        "peak {most} of {budget}, {brisk} brisk, {stops} stops, {killed} kills, lent {lent} of {rounds} times, {forged} forged"
    );
    assert!(most <= u64::from(budget), "the limit is kept");
    for worker in &mut workers[WAITERS..] {
        worker.tell("idle");
        worker.expect("=");
    }
    for worker in &mut workers[..WAITERS] {
        let took = over(worker);
        figure!("waits, median, longest: {took:?}");
        assert!(took.0 > 0);
    }
    assert!(lent > 0 && stops > 2 && (!kills || killed > 0));
    drop(workers);
    quiet_within(Duration::from_secs(4), &location, budget);
}

#[test]
fn case_26_a_storm_of_lent_slots_and_stops() {
    for (budget, brisk) in [(1, 2), (2, 2), (4, 6)] {
        storm(Duration::from_millis(900), budget, brisk, false);
    }
}

#[test]
fn case_02_a_storm_of_lent_slots_and_kills() {
    for (budget, brisk) in [(1, 2), (2, 6), (4, 2)] {
        storm(Duration::from_millis(900), budget, brisk, true);
    }
}

#[test]
#[ignore = "for scripts/stress: three minutes"]
fn stress_case_02_a_storm_of_lent_slots_and_kills() {
    for (budget, brisk) in [(1, 2), (2, 2), (4, 2), (1, 6), (2, 6), (4, 6)] {
        storm(Duration::from_secs(30), budget, brisk, true);
    }
}

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
        let (served, middle, longest) = over(&mut waiter);
        figure!(
            "{budget} slots, {brisk} brisk: {served} served, median {middle:?}, longest {longest:?}, {episodes} recalls"
        );
        assert!(served > 20, "{served}");
        // Two processors for all of them: the processor is what is waited for.
        assert!(
            middle < Duration::from_millis(10 * brisk as u64),
            "{middle:?}"
        );
        assert!(longest < Duration::from_secs(1), "{longest:?}");
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
        assert!(times[times.len() - 2] < SOON, "{how}: {times:?}");
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
    assert!(longest < Duration::from_secs(1), "{longest:?}");
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
        let mut longest = Duration::ZERO;
        for _ in 0..4 {
            let mut first = Puppet::new(&location);
            let at = leave_lent(&lending, &own, || {
                match how {
                    "timed out" => first.ask("wait w 3 1 30"),
                    _ => first.ask("task w 3 1"),
                };
                until(LONG, "in line", || words.waiters() == 1);
                next.wait("n", 3, 1);
                until(LONG, "in line", || words.waiters() == 2);
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
                // It may get it before.
                "timed out" => at + 30_000_000,
                _ => at,
            };
            // It may have got it before that.
            if how == "timed out"
                && first
                    .0
                    .expect_within("got w", Duration::from_millis(40))
                    .is_some()
            {
                first.drop("w");
            }
            let got = next.got("n");
            longest = longest.max(Duration::from_nanos(got.saturating_sub(at)));
            next.drop("n");
            first.0.kill();
        }
        figure!("{how}: longest {longest:?}");
        assert!(longest < Duration::from_millis(bound), "{how}: {longest:?}");
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
        assert!(
            took < Duration::from_millis(1_000),
            "killed {killed}: {took:?}"
        );
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
    assert!(
        times[times.len() - 2] < Duration::from_millis(150),
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
        drop(held);
        owner.asks("go");
        let at = top.got("t");
        top.drop("t");
        first += u32::from(at < bottom.got("b"));
        bottom.drop("b");
        owner.asks("idle");
    }
    figure!("the top was first {first} of 20 times");
    // The owner itself draws too, by chance: one in 127 names the bottom.
    assert!(first >= 18, "{first}");
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
            let failed = waiter
                .0
                .listen_for(&format!("failed {id}"), Duration::from_millis(500));
            if failed.is_err() {
                waiter.got(id);
            }
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
    figure!(
        "{} pairs; waits, median, longest: {took:?}",
        pairs.into_inner()
    );
    assert!(inside.most() <= 2);
    assert!(
        took.0 > 20 && took.2 < Duration::from_millis(300),
        "{took:?}"
    );
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
