//! Slots that threads keep though nobody holds them: nobody ever lacks one for that, and none is there twice.

use crate::forks::{fork, reap};
use crate::puppet::Puppet;
use crate::support::{
    Args, Chance, Child, Inside, LONG, Scene, Words, figure, hear, now, quiet, say, until,
};
use shmsched::{
    AcquireError, Changes, Concurrency, Location, Observer, OwnedPermit, Priority, Scheduler,
    SchedulerInfo, Segment,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;
/// What anybody may have to wait for a slot that nobody holds, who may stand still for a second.
const PROMPT: Duration = Duration::from_secs(2);

/// Leaves a spare with this thread. By its first pair it may find its record, or that its last one was claimed.
fn park(scheduler: &Scheduler) {
    scheduler.allow_spares();
    for _ in 0..2 {
        drop(scheduler.try_acquire(NORMAL).unwrap());
    }
}

fn seen(location: &Location) -> SchedulerInfo {
    let mut observer = Observer::open(location).unwrap();
    observer.snapshot().unwrap().scheduler.unwrap()
}

/// Role: PATH THREADS. Each thread keeps a spare, then sleeps. The first does what it is told.
pub fn keeps(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let words = Words::of(&args.location());
    let others = args.number(1) as usize - 1;
    let parked = Arc::new(Barrier::new(others + 1));
    // Taken first, so that each of the others has a slot of its own.
    let first = scheduler.try_acquire(NORMAL).unwrap();
    let threads: Vec<(Sender<()>, thread::JoinHandle<()>)> = (0..others)
        .map(|_| {
            let (scheduler, parked) = (scheduler.clone(), parked.clone());
            let (end, told) = channel::<()>();
            let sleeper = thread::spawn(move || {
                let held = scheduler.try_acquire(NORMAL).unwrap();
                parked.wait();
                scheduler.allow_spares();
                drop(held);
                parked.wait();
                let _ = told.recv();
            });
            (end, sleeper)
        })
        .collect();
    parked.wait();
    scheduler.allow_spares();
    drop(first);
    parked.wait();
    say("kept");
    let mut held = Vec::new();
    loop {
        match &*hear() {
            "park" => {
                park(&scheduler);
                say(format!("= {}", words.spare()));
            }
            "pair" => {
                let taken = (0..10).filter(|_| scheduler.try_acquire(NORMAL).is_ok());
                say(format!("= {}", taken.count()));
            }
            "take" => {
                held.extend(scheduler.try_acquire(NORMAL).ok());
                say(format!("= {}", held.len()));
            }
            "drop" => {
                held.clear();
                say("= 0");
            }
            "end threads" => break,
            other => panic!("what is {other:?}?"),
        }
    }
    for (end, sleeper) in threads {
        drop(end);
        sleeper.join().unwrap();
    }
    say("= ended");
    hear();
}

/// Another process whose threads keep spares.
struct Keeper(Child);

impl Keeper {
    fn new(location: &Location, threads: usize) -> Keeper {
        let path = location.path();
        let mut child = Child::start("keeps", &[&path.to_string_lossy(), &threads.to_string()]);
        child.expect("kept");
        Keeper(child)
    }

    #[track_caller]
    fn asks(&mut self, line: &str) -> String {
        self.0.tell(line);
        self.0.expect("=")
    }
}

/// All slots lie with processes that sleep, and with stopped ones: who waits gets them at once, however it waits.
#[test]
fn case_02_who_waits_gets_the_spares_of_the_idle_and_the_stopped() {
    let scene = Scene::new();
    let location = scene.segment(4);
    let words = Words::of(&location);
    let mut waiter = Puppet::new(&location);
    let mut keepers = [Keeper::new(&location, 1), Keeper::new(&location, 2)];
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let mut longest = 0;
    for (how, slots) in [
        ("wait", 1),
        ("wait", 4),
        ("task", 1),
        ("task", 4),
        ("try", 1),
        ("try", 4),
    ] {
        keepers[0].asks("park");
        keepers[1].asks("park");
        while words.spare() < 4 {
            park(&own);
            thread::scope(|scope| drop(scope.spawn(|| park(&own))));
        }
        assert_eq!((words.spare(), words.taken()), (4, 4), "{how} {slots}");
        for stopped in [false, true] {
            if stopped {
                keepers.iter_mut().for_each(|keeper| keeper.0.stop());
            }
            let begun = now();
            let answer = waiter.ask(&format!("{how} w 3 {slots}"));
            let got = match how {
                "try" => {
                    assert_eq!(answer, "yes");
                    now()
                }
                _ => waiter.got("w"),
            };
            longest = longest.max(got - begun);
            assert!(got - begun < PROMPT.as_nanos() as u64, "{how} {slots}");
            waiter.drop("w");
            if stopped {
                keepers.iter().for_each(|keeper| keeper.0.go_on());
            }
        }
        // They notice what became of theirs.
        for keeper in &mut keepers {
            assert_eq!(keeper.asks("pair"), "10");
        }
    }
    figure!("at most {:?}", Duration::from_nanos(longest));
    drop(own);
    drop(keepers);
    quiet(&location, 4);
}

/// The usual way, a sleeping one and a stopped one; in a process of its own and in many.
#[test]
fn case_26_the_limit_is_exact_while_spares_lie_about() {
    let scene = Scene::new();
    let location = scene.segment(4);
    let words = Words::of(&location);
    let segment = Segment::open(&location).unwrap();
    let own = segment.scheduler().unwrap();
    let mut keepers = [Keeper::new(&location, 2), Keeper::new(&location, 1)];
    park(&own);
    for round in 0..10 {
        assert_eq!((words.spare(), words.taken()), (4, 4), "round {round}");
        // One each, by the spare; then somebody else's.
        assert_eq!(keepers[0].asks("take"), "1");
        assert_eq!(keepers[1].asks("take"), "1");
        assert_eq!((words.spare(), words.running()), (2, 2));
        assert_eq!(keepers[1].asks("take"), "2");
        let last = own.try_acquire(NORMAL).unwrap();
        assert_eq!(keepers[0].asks("take"), "1", "all are taken");
        assert!(own.try_acquire(Priority::Highest).is_err());
        assert_eq!((words.spare(), words.taken()), (0, 4));
        own.allow_spares();
        drop(last);
        assert_eq!(keepers[0].asks("take"), "2");
        assert!(own.try_acquire(Priority::Highest).is_err());
        for keeper in &mut keepers {
            keeper.asks("drop");
            assert_eq!(keeper.asks("pair"), "10");
        }
        let all = own.try_acquire_many(4, NORMAL).unwrap();
        assert_eq!(keepers[0].asks("take"), "0");
        drop(all);
        // As it was: the first threads' and two of others.
        own.allow_spares();
        keepers[0].asks("park");
        keepers[1].asks("park");
        park(&own);
        thread::scope(|scope| drop(scope.spawn(|| park(&own))));
    }
    drop((own, segment));
    assert_eq!(keepers[0].asks("end threads"), "ended");
    drop(keepers);
    quiet(&location, 4);
}

/// Fewer slots than spares lie about, then more again.
#[test]
fn case_26_fewer_slots_than_spares() {
    let scene = Scene::new();
    let location = scene.segment(4);
    let words = Words::of(&location);
    let segment = Segment::open(&location).unwrap();
    let own = segment.scheduler().unwrap();
    let mut keeper = Keeper::new(&location, 3);
    park(&own);
    let set = |slots| {
        let changes = Changes::new().concurrency(Some(slots));
        segment.set(&changes).unwrap();
    };
    for fewer in [1, 2, 1] {
        set(fewer);
        assert_eq!(own.available_permits(), fewer);
        let held = own.try_acquire_many(fewer, NORMAL).unwrap();
        assert_eq!(keeper.asks("take"), "0");
        own.allow_spares();
        drop(held);
        // Spares that were left before the limit fell, by who held them meanwhile.
        set(4);
        own.allow_spares();
        let all: Vec<_> = (0..4).map(|_| own.try_acquire(NORMAL).unwrap()).collect();
        set(fewer);
        own.allow_spares();
        drop(all);
        let held = own.try_acquire_many(fewer, NORMAL).unwrap();
        assert!(own.try_acquire(Priority::Highest).is_err());
        assert_eq!(keeper.asks("take"), "0");
        drop(held);
        assert_eq!(keeper.asks("pair"), "10");
        set(4);
        own.allow_spares();
        keeper.asks("park");
        park(&own);
        assert_eq!(words.running(), 0);
    }
    // A waiter gets in as soon as the limit is raised, with a spare under it.
    set(0);
    let mut waiter = Puppet::new(&location);
    set(2);
    park(&own);
    waiter.wait("w", 3, 2);
    waiter.got("w");
    waiter.drop("w");
    set(4);
    drop((own, segment, keeper));
    quiet(&location, 4);
}

/// Under a target that the spares of others fill.
#[test]
fn case_28_a_target_does_not_count_spares() {
    let scene = Scene::new();
    let concurrency = Concurrency::max(4).target(Priority::Low, 1);
    let settings = shmsched::Settings::new().concurrency(concurrency);
    let location = scene.segment_of("S", &settings);
    let words = Words::of(&location);
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let mut keeper = Keeper::new(&location, 3);
    for round in 0..5 {
        keeper.asks("park");
        park(&own);
        assert_ne!(words.spare(), 0);
        // By its own spare, if nobody holds anything; by others' too.
        let low = own.try_acquire(Priority::Low);
        let low = low.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(own.try_acquire(Priority::Low).is_err(), "its target is 1");
        assert_eq!(words.running(), 1);
        own.allow_spares();
        drop(low);
        // Somebody holds one: not even its own spare may be taken.
        assert_eq!(keeper.asks("take"), "1");
        park(&own);
        assert_eq!(words.spare(), 1);
        assert!(own.try_acquire(Priority::Low).is_err(), "one is held");
        assert_eq!((words.spare(), words.taken()), (0, 1));
        let waited = own.blocking_acquire_until(1, Priority::Low, Duration::from_millis(20));
        assert_eq!(waited.err(), Some(AcquireError::TimedOut));
        keeper.asks("drop");
        drop(
            own.blocking_acquire_until(1, Priority::Low, PROMPT)
                .unwrap(),
        );
    }
    drop((own, keeper));
    quiet(&location, 4);
}

/// A spare is free, whoever asks.
#[test]
fn case_02_spares_count_as_free() {
    let scene = Scene::new();
    let location = scene.segment(4);
    let words = Words::of(&location);
    let segment = Segment::open(&location).unwrap();
    let own = segment.scheduler().unwrap();
    let mut keeper = Keeper::new(&location, 2);
    park(&own);
    for taken in [0, 1] {
        if taken == 1 {
            assert_eq!(keeper.asks("take"), "1");
        }
        assert_eq!((words.spare() as u32, words.taken()), (3 - taken, 3));
        assert_eq!(own.available_permits(), 4 - taken);
        let stats = own.stats();
        assert_eq!((stats.running, stats.shared.unwrap().running), (0, taken));
        let mut observer = Observer::open(&location).unwrap();
        let snapshot = observer.snapshot().unwrap();
        let scheduler = snapshot.scheduler.unwrap();
        assert_eq!((scheduler.running, scheduler.waiters), (taken, 0));
        let held: Vec<u32> = snapshot.members.iter().map(|m| m.held).collect();
        assert_eq!(held.iter().sum::<u32>(), taken, "{held:?}");
        if let Some(program) = option_env!("CARGO_BIN_EXE_shmsched") {
            let mut inspect = std::process::Command::new(program);
            inspect.arg("inspect").arg(location.path()).arg("--json");
            let told: serde_json::Value =
                serde_json::from_slice(&inspect.output().unwrap().stdout).unwrap();
            assert_eq!(told["scheduler"]["running"], taken);
        }
        if taken != 0 {
            assert!(segment.wait_idle(Duration::from_millis(200)).is_err());
        }
        // Nobody is short of slots for all that.
        assert_eq!(words.spare() as u32, 3 - taken);
    }
    keeper.asks("drop");
    // With a dead keeper: what it kept is not held either.
    keeper.0.kill();
    let seen = seen(&location);
    assert_eq!(seen.running, 0);
    assert_eq!(segment.wait_idle(LONG), Ok(()));
    assert_eq!(own.available_permits(), 4);
    drop((own, segment));
    quiet(&location, 4);
}

/// A thread ends with a spare, which goes to the next one of its process, or to whoever wants it.
#[test]
fn case_02_a_thread_that_ends_leaves_its_spare() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let words = Words::of(&location);
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let other = Segment::open(&location).unwrap().scheduler().unwrap();
    for round in 0..20 {
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| park(&own));
            }
        });
        if words.spare() == 0 {
            // The last of them found nothing but spares, and recalled them. Now there is room.
            thread::scope(|scope| drop(scope.spawn(|| park(&own))));
        }
        assert!(words.spare() > 0, "round {round}");
        match round % 3 {
            0 => drop(other.try_acquire_many(3, NORMAL).unwrap()),
            1 => {
                // Threads that come later go on with the records.
                thread::scope(|scope| {
                    scope.spawn(|| {
                        for _ in 0..10 {
                            drop(own.try_acquire(NORMAL).unwrap());
                        }
                    });
                });
            }
            _ => drop(own.blocking_acquire_many(3, NORMAL).unwrap()),
        }
        assert_eq!(words.running(), 0);
    }
    drop((own, other));
    quiet(&location, 3);
}

/// One takes, another gives back: nets below zero, with spares on both sides.
#[test]
fn case_02_permits_that_move_between_threads_that_keep_spares() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let words = Words::of(&location);
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let other = Segment::open(&location).unwrap().scheduler().unwrap();
    let (permits, dropper): (Sender<OwnedPermit>, Receiver<OwnedPermit>) = channel();
    let (done, dropped) = channel();
    let dropping = {
        let own = own.clone();
        thread::spawn(move || {
            for permit in dropper {
                own.allow_spares();
                drop(permit);
                done.send(()).unwrap();
            }
        })
    };
    for round in 0..300 {
        own.allow_spares();
        permits
            .send(own.try_acquire_owned(NORMAL).unwrap())
            .unwrap();
        dropped.recv().unwrap();
        if round % 7 == 0 {
            let all = other.try_acquire_many(3, NORMAL).unwrap();
            assert_eq!((words.spare(), words.taken()), (0, 3));
            assert!(own.try_acquire(NORMAL).is_err());
            drop(all);
        }
        assert_eq!(words.running(), 0);
    }
    // Detaching gives back exactly what is there.
    drop(permits);
    dropping.join().unwrap();
    own.allow_spares();
    let kept = own.try_acquire_owned(NORMAL).unwrap();
    thread::scope(|scope| drop(scope.spawn(|| drop(kept))));
    own.dispose();
    assert_eq!((words.spare(), words.taken()), (0, 0));
    drop((own, other));
    quiet(&location, 3);
}

/// Handles that are closed, disposed of, or dropped, with a spare, one that was claimed, and a permit.
#[test]
fn case_44_handles_that_end_with_spares_give_back_once() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let words = Words::of(&location);
    let other = Segment::open(&location).unwrap().scheduler().unwrap();
    for round in 0..12 {
        let (how, claimed) = (round % 3, round / 3 % 2 == 1);
        let segment = Segment::open(&location).unwrap();
        let own = segment.scheduler().unwrap();
        let held = own.try_acquire_owned(NORMAL).unwrap();
        park(&own);
        assert_eq!((words.spare(), words.taken()), (1, 2), "round {round}");
        let theirs = claimed.then(|| other.try_acquire_many(2, NORMAL).unwrap());
        if claimed {
            assert_eq!((words.spare(), words.taken()), (0, 3), "round {round}");
            other.allow_spares();
        }
        let rest = if claimed { 2 } else { 0 };
        match how {
            0 => own.close(),
            1 => {
                own.dispose();
                assert_eq!(words.taken(), rest, "round {round}");
            }
            _ => {
                drop(held);
                drop((own, segment));
                assert_eq!(words.taken(), rest, "round {round}");
                drop(theirs);
                drop(other.try_acquire_many(3, NORMAL).unwrap());
                continue;
            }
        }
        assert!(own.try_acquire(NORMAL).is_err());
        drop(held);
        drop(theirs);
        assert_eq!(words.running(), 0);
        let all = other.try_acquire_many(3, NORMAL).unwrap();
        assert!(other.try_acquire(NORMAL).is_err());
        assert!(own.try_acquire(NORMAL).is_err());
        assert_eq!((words.spare(), words.taken()), (0, 3), "round {round}");
        drop(all);
        drop((own, segment));
        assert_eq!(words.taken(), 0, "round {round}");
    }
    drop(other);
    quiet(&location, 3);
}

/// What a snapshot says was taken and given back.
#[test]
fn case_02_counters_are_exact_with_spares() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let segment = Segment::open(&location).unwrap();
    let own = segment.scheduler().unwrap();
    let other = Segment::open(&location).unwrap().scheduler().unwrap();
    let mut taken = 0;
    let check = |taken: u64, held: u64, what: &str| {
        let seen = seen(&location);
        let counts = (seen.admitted, seen.released, seen.reclaimed);
        assert_eq!(counts, (taken, taken - held, 0), "{what}");
    };
    for round in 0..50u64 {
        own.allow_spares();
        for pair in 0..round {
            let permit = own.try_acquire(NORMAL).unwrap();
            taken += 1;
            if pair % 5 == 0 {
                check(taken, 1, "while one is held");
            }
            drop(permit);
        }
        check(taken, 0, "a spare lies there");
        drop(other.try_acquire_many(3, NORMAL).unwrap());
        taken += 3;
        check(taken, 0, "it was claimed");
        if round % 2 == 0 {
            own.allow_spares();
        }
        drop(own.try_acquire(NORMAL).unwrap());
        taken += 1;
        check(taken, 0, "its owner has noticed");
        drop(own.try_acquire_many(3, NORMAL).unwrap());
        taken += 3;
        check(taken, 0, "it was its own that it recalled");
    }
    // One of its own, under a limit that leaves no room for it.
    park(&own);
    taken += 2;
    let two = other.try_acquire_many(2, NORMAL).unwrap();
    taken += 2;
    assert!(own.with(2).try_acquire(NORMAL).is_err());
    check(taken, 2, "it was given back");
    drop(two);
    check(taken, 0, "all are back");
}

/// The same where a member ends, by itself and by death, with a spare that nobody held.
#[test]
fn case_02_counters_are_exact_when_a_keeper_ends() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let counts = || {
        let seen = seen(&location);
        (seen.admitted, seen.released, seen.reclaimed)
    };
    let segment = Segment::open(&location).unwrap();
    let own = segment.scheduler().unwrap();
    park(&own);
    let held = own.try_acquire(NORMAL).unwrap();
    thread::scope(|scope| drop(scope.spawn(|| park(&own))));
    assert_eq!(counts(), (5, 4, 0));
    own.dispose();
    assert_eq!(
        counts(),
        (5, 5, 0),
        "what was held was given back, and the spare had been"
    );
    drop(held);
    drop((own, segment));
    assert_eq!(counts(), (5, 5, 0));
}

/// Role: PATH. A process with a spare forks: the child has none of it.
pub fn forks(args: &Args) {
    let location = args.location();
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let words = Words::of(&location);
    for round in 0..20 {
        park(&scheduler);
        assert_eq!((words.spare(), words.taken()), (1, 1), "round {round}");
        let mut held = (round % 2 == 1).then(|| scheduler.try_acquire(NORMAL).unwrap());
        if held.is_some() {
            // By the spare; another one instead.
            park(&scheduler);
        }
        let holds = u32::from(held.is_some());
        let inherited = &mut held;
        let pid = fork(|| {
            let before = (words.spare(), words.taken());
            let told = scheduler.try_acquire(NORMAL).map(drop) == Err(AcquireError::Forked.into());
            drop(inherited.take());
            let told = told && scheduler.try_acquire(NORMAL).is_err();
            let same = (words.spare(), words.taken()) == before && before.0 == 1;
            // What it opens itself is another member, which recalls it like any other.
            let fresh = Segment::open(&location).unwrap().scheduler().unwrap();
            let all = fresh.try_acquire_many(3 - holds, NORMAL);
            let exact = all.is_ok() && fresh.try_acquire(NORMAL).is_err();
            drop(all);
            fresh.allow_spares();
            for _ in 0..2 {
                drop(fresh.try_acquire(NORMAL));
            }
            let left = words.spare() == 1;
            u8::from(!told) | u8::from(!same) << 1 | u8::from(!exact) << 2 | u8::from(!left) << 3
        });
        // It ended by _exit, with a spare.
        let ended = reap(pid, LONG);
        assert_eq!(ended, Some(0), "round {round}");
        // What the child dropped is still held here.
        let rest = scheduler.try_acquire_many(3 - holds, NORMAL);
        say(format!(
            "round {} {}",
            rest.is_ok(),
            scheduler.try_acquire(NORMAL).is_err()
        ));
        drop((rest, held));
    }
    say("done");
}

#[test]
fn case_05_a_forked_child_uses_no_spare_of_its_parent() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let path = location.path();
    let mut parent = Child::start("forks_with_spares", &[&path.to_string_lossy()]);
    for _ in 0..20 {
        assert_eq!(parent.expect("round"), "true true");
    }
    parent.expect("done");
    parent.finish();
    quiet(&location, 3);
}

/// Nobody waits for one of these slots: they are recalled, not rung for.
#[test]
fn case_02_a_killed_process_leaves_its_spares() {
    let scene = Scene::new();
    let location = scene.segment(3);
    let mut waiter = Puppet::new(&location);
    for round in 0..5 {
        let mut keeper = Keeper::new(&location, 3);
        if round % 2 == 0 {
            keeper.0.stop();
        }
        keeper.0.kill();
        let begun = now();
        waiter.wait("w", 3, 3);
        let took = Duration::from_nanos(waiter.got("w") - begun);
        assert!(took < PROMPT, "{took:?}");
        waiter.drop("w");
    }
    until(LONG, "none is left", || Words::of(&location).taken() == 0);
    quiet(&location, 3);
}

/// A slot is left as a spare just as somebody joins the line for it, by one who then sleeps.
#[test]
fn case_02_a_spare_left_while_another_joins_the_line() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let other = Segment::open(&location).unwrap().scheduler().unwrap();
    let mut chance = Chance::new();
    let (round, served) = (AtomicU64::new(0), AtomicU64::new(0));
    // Awake, so that both go on in the same moment; but where they have one processor it is the other's.
    let meet = |word: &AtomicU64, number| {
        let mut looks = 0;
        while word.load(Ordering::SeqCst) < number {
            looks += 1;
            match looks < 10_000 {
                true => std::hint::spin_loop(),
                false => thread::yield_now(),
            }
        }
    };
    const ROUNDS: u64 = 4_000;
    let mut kept = 0;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            for number in 1..=ROUNDS {
                meet(&round, number);
                let begun = Instant::now();
                let got = other.blocking_acquire_until(1, NORMAL, LONG);
                longest = longest.max(begun.elapsed());
                drop(got);
                served.store(number, Ordering::SeqCst);
                if longest >= PROMPT {
                    break;
                }
            }
            served.store(ROUNDS, Ordering::SeqCst);
            longest
        });
        for number in 1..=ROUNDS {
            let held = own.blocking_acquire(NORMAL).unwrap();
            round.store(number, Ordering::SeqCst);
            for _ in 0..chance.below(1_500) {
                std::hint::spin_loop();
            }
            own.allow_spares();
            drop(held);
            kept += u32::from(own.available_permits() == 1);
            meet(&served, number);
        }
        let longest = waiting.join().unwrap();
        figure!("at most {longest:?}, seen free {kept} times");
        assert!(longest < PROMPT, "{longest:?}");
    });
    drop((own, other));
    quiet(&location, 1);
}

/// One takes and leaves its spare by plain stores, as fast as it can, while another recalls it again and again.
#[test]
fn case_26_a_recall_against_plain_stores() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let own = Segment::open(&location).unwrap().scheduler().unwrap();
    let other = Segment::open(&location).unwrap().scheduler().unwrap();
    let inside = Inside::open(&scene.path("counts"));
    let over = AtomicBool::new(false);
    let (mut pairs, mut recalls) = (0u64, 0u64);
    thread::scope(|scope| {
        let spinning = scope.spawn(|| {
            let mut pairs = 0u64;
            while !over.load(Ordering::Relaxed) {
                if let Ok(_permit) = own.try_acquire(NORMAL) {
                    inside.enter(0, 1);
                    inside.leave(0, 1);
                    pairs += 1;
                }
            }
            pairs
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1_500) && inside.most() < 2 {
            other.allow_spares();
            for _ in 0..50 {
                std::hint::spin_loop();
            }
            if let Ok(_permit) = other.try_acquire(NORMAL) {
                inside.enter(1, 1);
                recalls += 1;
                inside.leave(1, 1);
            }
        }
        over.store(true, Ordering::Relaxed);
        pairs = spinning.join().unwrap();
    });
    figure!("{pairs} pairs, {recalls} times taken by the other");
    assert_eq!(inside.most(), 1);
    assert!(recalls > 100);
    drop((own, other));
    quiet(&location, 1);
}
