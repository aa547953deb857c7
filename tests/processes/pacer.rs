//! The Pacer over processes: one order, one spacing, whoever is stopped or killed.

use crate::support::{
    Args, Chance, Child, LONG, Scene, figure, hear, less, now, one_of, say, until, within,
};
use shmsched::{Changes, Location, Observer, Pacer, PacerInfo, Segment, Settings, StartError};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Calls of one process: `thread ID`, `task ID` wait and say `got ID TIME` or `failed ID ERROR`; `cancel ID` drops a task.
pub fn caller(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let pacer = segment.pacer().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let mut tasks = std::collections::HashMap::new();
    say("ready");
    loop {
        let line = hear();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["thread", id] => {
                let (pacer, id) = (pacer.clone(), id.to_owned());
                std::thread::spawn(move || tell(&id, pacer.blocking_start().map(|()| now())));
                say("= on");
            }
            ["task", id] => {
                let (pacer, id) = (pacer.clone(), id.to_owned());
                let own = id.clone();
                let task =
                    runtime.spawn(async move { tell(&id, pacer.run(|| async { now() }).await) });
                tasks.insert(own, task);
                say("= on");
            }
            ["cancel", id] => {
                let task = tasks.remove(id).unwrap();
                task.abort();
                let _ = runtime.block_on(task);
                say("= off");
            }
            ["try"] => match pacer.try_start() {
                Ok(()) => say(format!("= {}", now())),
                Err(_) => say("= no"),
            },
            ["waiting"] => say(format!("= {}", pacer.stats().waiting)),
            _ => panic!("what is {line:?}?"),
        }
    }
}

fn tell(id: &str, outcome: Result<u64, StartError>) {
    match outcome {
        Ok(at) => say(format!("got {id} {at}")),
        Err(error) => say(format!("failed {id} {error}")),
    }
}

/// Starts again and again, each stamped in the operation and before the poll in which it began, until the test says so.
pub fn pacing(args: &Args) {
    let pacer = Segment::open(&args.location()).unwrap().pacer().unwrap();
    let n = args.number(1);
    say("ready");
    for _ in 0..n {
        let mut before = now();
        let mut call = pin!(pacer.run(|| async { now() }));
        let at = futures_executor::block_on(poll_fn(|context| {
            before = now();
            call.as_mut().poll(context)
        }));
        say(format!("at {before} {}", at.unwrap()));
    }
    hear();
}

/// Waits for starts that it mostly gives up before they come: a task, then a thread.
pub fn hasty(args: &Args) {
    let pacer = Segment::open(&args.location()).unwrap().pacer().unwrap();
    let mut chance = Chance::seeded(args.number(2));
    say("ready");
    let mut outcomes = [0u32; 3];
    for round in 0..args.number(1) {
        let patience = Duration::from_micros(chance.below(300));
        let outcome = match round % 2 {
            0 => futures_executor::block_on(pacer.start_until(patience)),
            _ => pacer.blocking_start_until(patience),
        };
        let which = match outcome {
            Ok(()) => 0,
            Err(StartError::QueueFull(_)) => 1,
            Err(StartError::Failed(shmsched::AcquireError::TimedOut)) => 2,
            Err(other) => panic!("{other}"),
        };
        outcomes[which] += 1;
    }
    let stats = pacer.stats();
    assert_eq!(stats.deferred, stats.completed + stats.cancelled);
    // One that was overtaken between its start and its operation takes another.
    assert!(stats.waiting == 0 && stats.started >= outcomes[0].into());
    say(format!(
        "done {} {} {}",
        outcomes[0], outcomes[1], outcomes[2]
    ));
    hear();
}

struct Caller(Child);

impl Caller {
    fn new(location: &Location) -> Caller {
        let mut child = Child::start("caller", &[&location.path().to_string_lossy()]);
        child.expect("ready");
        Caller(child)
    }

    #[track_caller]
    fn ask(&mut self, what: &str) -> String {
        self.0.tell(what);
        self.0.expect("=")
    }

    #[track_caller]
    fn got(&mut self, id: &str) -> u64 {
        self.0.expect(&format!("got {id}")).parse().unwrap()
    }
}

fn paced(scene: &Scene, interval: Duration, max_waiting: u32) -> (Location, Pacer) {
    let free = (0..)
        .map(|n| format!("P{n}"))
        .find(|name| !scene.path(name).exists());
    let settings = Settings::new()
        .interval(interval)
        .max_waiting(max_waiting)
        .members(32);
    let location = scene.segment_of(&free.unwrap_or_default(), &settings);
    let pacer = Segment::open(&location).unwrap().pacer().unwrap();
    (location, pacer)
}

fn seen(location: &Location) -> PacerInfo {
    let snapshot = Observer::open(location).unwrap().snapshot().unwrap();
    let pacer = snapshot.pacer.unwrap();
    let ended = pacer.completed + pacer.cancelled + pacer.lost;
    let balance = (ended + u64::from(pacer.waiting)).abs_diff(pacer.deferred);
    // Those that change while it is read may be off by as many as there are.
    assert!(balance <= 32, "{pacer:?}");
    pacer
}

#[track_caller]
fn waiting(location: &Location, n: u32) {
    within(LONG, || match seen(location).waiting {
        seen if seen == n => Ok(()),
        seen => Err(format!("{seen} wait, not {n}")),
    });
}

/// Nobody waits, nothing is left, the counters balance, and the whole queue is free.
#[track_caller]
fn rests(location: &Location, pacer: &Pacer) {
    within(Duration::from_secs(8), || {
        let seen = seen(location);
        let ended = seen.completed + seen.cancelled + seen.lost;
        match (seen.waiting, seen.deferred) {
            (0, deferred) if deferred == ended => Ok(()),
            _ => Err(format!("{seen:?}")),
        }
    });
    until(LONG, "a start", || pacer.try_start().is_ok());
}

/// Stamps of several processes, each taken in the operation. One that was stopped or preempted right before it shortens the
/// next gap: that is forgiven once. What nobody can shorten who stands still is the whole: none of them was due before
/// `begun`, and the last stamp is after its start.
#[track_caller]
fn apart(begun: u64, stamps: &[u64], interval: u64) -> Result<(), String> {
    let whole = stamps.iter().max().unwrap() - begun;
    let least = (stamps.len() as u64 - 1) * interval;
    assert!(
        whole + MS >= least,
        "{whole} ns, not {least}, for {stamps:?}"
    );
    let spans: Vec<_> = stamps.iter().map(|stamp| (*stamp, *stamp)).collect();
    apart_within(&spans, interval)
}

/// The same of starts of which each was between two times: whether all could have been that far apart. Of those that may
/// have been next, the one that was over first is.
fn apart_within(spans: &[(u64, u64)], interval: u64) -> Result<(), String> {
    let mut left = spans.to_vec();
    left.sort_unstable();
    let (mut next, mut least, mut short) = (0, u64::MAX, 0);
    while let Some((begins, _)) = left.first() {
        let from = next.max(*begins);
        let open = left
            .iter()
            .enumerate()
            .take_while(|(_, span)| span.0 <= from);
        let (at, _) = open.min_by_key(|(_, span)| span.1).expect("the first");
        let (begun, ended) = left.remove(at);
        if next != 0 {
            least = least.min((ended + interval).saturating_sub(next));
        }
        short += u32::from(ended + MS / 5 < next);
        next = next.max(begun).min(ended) + interval;
    }
    figure!(
        "smallest gap {:.3} of {} ms",
        least as f64 / 1e6,
        interval / MS
    );
    match short {
        0 | 1 => Ok(()),
        _ => Err(format!("{short} gaps below {interval}: {spans:?}")),
    }
}

/// In the order in which they came to wait. One that stands still when it is called is passed over, and one that does so
/// before its stamp tells of a later start.
fn in_order(stamps: &[u64]) -> Result<(), String> {
    match stamps.is_sorted() {
        true => Ok(()),
        false => Err(format!("out of order: {stamps:?}")),
    }
}

/// Several in line behind a start that keeps them there; [`Lined::go`] lets them.
struct Lined {
    location: Location,
    pacer: Pacer,
    callers: Vec<Caller>,
}

impl Lined {
    fn new(scene: &Scene, callers: usize, max_waiting: u32) -> Lined {
        let (location, pacer) = paced(scene, Duration::from_secs(3_600), max_waiting);
        pacer.try_start().unwrap();
        let callers = (0..callers).map(|_| Caller::new(&location)).collect();
        Lined {
            location,
            pacer,
            callers,
        }
    }

    /// The next in line, of this caller: a thread or a task by turns.
    #[track_caller]
    fn join(&mut self, caller: usize, id: &str, at: usize) {
        let how = if at.is_multiple_of(2) {
            "thread"
        } else {
            "task"
        };
        let before = seen(&self.location).waiting;
        self.callers[caller].ask(&format!("{how} {id}"));
        waiting(&self.location, before + 1);
    }

    /// The first starts an interval from now, or a little later.
    fn go(&self, interval: Duration) -> u64 {
        let changes = Changes::new().interval(interval);
        let segment = Segment::open(&self.location).unwrap();
        let before = now();
        segment.set(&changes).unwrap();
        before
    }
}

#[test]
fn p21_p45_twenty_of_five_processes_start_in_order() {
    let scene = Scene::new();
    one_of(3, || {
        let mut line = Lined::new(&scene, 5, 20);
        // Not one process after the other, and never two of one in a row.
        let arrivals: Vec<(usize, String)> =
            (0..20).map(|at| (at * 2 % 5, format!("c{at}"))).collect();
        for (at, (caller, id)) in arrivals.iter().enumerate() {
            line.join(*caller, id, at / 5);
        }
        let interval = Duration::from_millis(50);
        let begun = line.go(interval);
        let stamps: Vec<u64> = arrivals
            .iter()
            .map(|(caller, id)| line.callers[*caller].got(id))
            .collect();
        let first = *stamps.iter().min().unwrap();
        assert!(first + MS >= begun + 50 * MS, "before its time");
        rests(&line.location, &line.pacer);
        apart(begun + 50 * MS, &stamps, 50 * MS).and(in_order(&stamps))
    });
}

#[test]
fn p8_p45_four_processes_share_the_interval() {
    let scene = Scene::new();
    let (location, pacer) = paced(&scene, Duration::from_millis(10), 8);
    let path = location.path().to_string_lossy().into_owned();
    let mut children: Vec<_> = (0..4)
        .map(|_| Child::start("pacing", &[&path, "20"]))
        .collect();
    let mut spans = Vec::new();
    for child in &mut children {
        for _ in 0..20 {
            spans.push(span(&child.expect("at")));
        }
    }
    apart_within(&spans, 10 * MS).unwrap();
    rests(&location, &pacer);
    assert!(seen(&location).started >= 81);
}

/// What one of [`pacing`] says of a start.
fn span(said: &str) -> (u64, u64) {
    let (before, at) = said.split_once(' ').unwrap();
    (before.parse().unwrap(), at.parse().unwrap())
}

#[test]
fn p17_p45_the_queue_is_full_for_all() {
    let scene = Scene::new();
    one_of(3, || {
        let mut line = Lined::new(&scene, 3, 8);
        for at in 0..8 {
            line.join(at % 3, &format!("c{at}"), at);
        }
        for caller in &mut line.callers {
            for how in ["thread", "task"] {
                caller.ask(&format!("{how} late"));
                let why = caller.0.expect("failed late");
                assert_eq!(why, "Shared limiter waiting queue is full");
            }
            assert_eq!(caller.ask("try"), "no");
        }
        assert_eq!(seen(&line.location).rejected, 6);
        // A task in the middle leaves: exactly one new place, for whoever comes first.
        line.callers[0].ask("cancel c3");
        line.callers[2].ask("thread c8");
        waiting(&line.location, 8);
        line.callers[1].ask("thread late");
        line.callers[1].0.expect("failed late");
        line.go(Duration::from_millis(40));
        let ids = [0, 1, 2, 4, 5, 6, 7].map(|at| (at % 3, at));
        let stamps: Vec<u64> = ids
            .into_iter()
            .chain([(2, 8)])
            .map(|(caller, at)| line.callers[caller].got(&format!("c{at}")))
            .collect();
        rests(&line.location, &line.pacer);
        in_order(&stamps)
    });
}

/// A head that is stopped is passed over after the grace, keeps its place, and starts when it goes on.
#[test]
fn y11_the_head_is_stopped() {
    let scene = Scene::alone();
    one_of(3, || {
        let mut line = Lined::new(&scene, 4, 8);
        for at in 0..4 {
            line.join(at, "c", at);
        }
        line.callers[0].0.stop();
        let begun = line.go(Duration::from_millis(40));
        let second = line.callers[1].got("c");
        let passed = Duration::from_nanos(second - begun);
        figure!("passed over {passed:?} after the set, 40 ms of which are the interval");
        assert!(passed >= Duration::from_millis(240), "within its grace");
        let third = line.callers[2].got("c");
        line.callers[0].0.go_on();
        let stamps = [
            line.callers[0].got("c"),
            second,
            third,
            line.callers[3].got("c"),
        ];
        rests(&line.location, &line.pacer);
        apart(begun + 40 * MS, &stamps, 40 * MS)?;
        less("passed over after", passed, Duration::from_millis(1_500))?;
        // The others do not wait for it again.
        less("the next", third.abs_diff(second), 500 * MS)
    });
}

/// One that has started and is stopped delays nobody: there is nothing that it holds.
#[test]
fn y2_y11_one_that_has_started_is_stopped_or_killed() {
    let scene = Scene::alone();
    for kill in [false, true] {
        one_of(3, || {
            let mut line = Lined::new(&scene, 3, 8);
            for at in 0..3 {
                line.join(at, "c", at);
            }
            let begun = line.go(Duration::from_millis(60));
            let first = line.callers[0].got("c");
            match kill {
                true => line.callers[0].0.kill(),
                false => line.callers[0].0.stop(),
            }
            let [second, third] = [1, 2].map(|at| line.callers[at].got("c"));
            line.callers[0].0.go_on();
            rests(&line.location, &line.pacer);
            apart(begun + 60 * MS, &[first, second, third], 60 * MS)?;
            // Who stood still before its stamp tells of too late a start.
            let took = Duration::from_nanos(second.saturating_sub(first));
            less("an interval", Duration::from_millis(59), took)?;
            // Far from the grace.
            less("the next", took, Duration::from_millis(200))
        });
    }
}

/// Case 18: everybody in line is stopped for a second and goes on at once; no burst, nor after an idle while.
#[test]
fn case_18_everybody_is_stopped_for_a_second() {
    let scene = Scene::alone();
    one_of(3, || {
        let mut line = Lined::new(&scene, 4, 20);
        for at in 0..8 {
            line.join(at % 4, &format!("c{at}"), at / 4);
        }
        for caller in &mut line.callers {
            caller.0.stop();
        }
        line.go(Duration::from_millis(50));
        std::thread::sleep(Duration::from_secs(1));
        let gone_on = now();
        line.callers.iter().for_each(|caller| caller.0.go_on());
        let mut stamps: Vec<u64> = (0..8)
            .map(|at| line.callers[at % 4].got(&format!("c{at}")))
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        for at in 0..3 {
            line.callers[at].ask("task again");
        }
        stamps.extend((0..3).map(|at| line.callers[at].got("again")));
        rests(&line.location, &line.pacer);
        // Nobody can have started while all of them were stopped.
        apart(gone_on, &stamps, 50 * MS)
    });
}

/// Case 45: stopped at any moment, also between a turn and its operation.
#[test]
fn case_45_a_storm_of_stops() {
    let scene = Scene::alone();
    let (location, pacer) = paced(&scene, Duration::from_millis(4), 8);
    let path = location.path().to_string_lossy().into_owned();
    let mut children: Vec<_> = (0..4)
        .map(|_| Child::start("pacing", &[&path, "60"]))
        .collect();
    children
        .iter_mut()
        .for_each(|child| drop(child.expect("ready")));
    let mut chance = Chance::new();
    let mut spans = Vec::new();
    while spans.len() < 240 {
        let child = &mut children[chance.below(4) as usize];
        child.signal(rustix::process::Signal::STOP);
        std::thread::sleep(Duration::from_micros(chance.below(12_000)));
        child.go_on();
        for child in &mut children {
            while let Ok(at) = child.listen_for("at", Duration::from_micros(100)) {
                spans.push(span(&at));
            }
        }
    }
    apart_within(&spans, 4 * MS).unwrap();
    rests(&location, &pacer);
}

/// Case 8 and 55: whoever is killed in line leaves its place, and the others their order.
#[test]
fn y3_case_55_killed_waiters_free_their_places() {
    let scene = Scene::alone();
    let mut line = Lined::new(&scene, 5, 8);
    for at in 0..8 {
        line.join(at % 4, &format!("c{at}"), at / 4);
    }
    line.callers[4].ask("thread late");
    line.callers[4].0.expect("failed late");
    for caller in &mut line.callers[..4] {
        caller.0.kill();
    }
    let killed = now();
    for placed in 0..8 {
        let id = format!("n{placed}");
        // A refusal looks for the dead first, though not more often than every 100 ms.
        until(Duration::from_secs(1), "a place", || {
            let caller = &mut line.callers[4];
            caller.ask(&format!("task {id}"));
            within(LONG, || {
                let failed = caller.0.listen_for(&format!("failed {id}"), Duration::ZERO);
                let placed = caller.ask("waiting") == (placed + 1).to_string();
                match failed.is_ok() || placed {
                    true => Ok(placed),
                    false => Err("neither placed nor refused"),
                }
            })
        });
    }
    figure!("8 places after {} ms", (now() - killed) / MS);
    waiting(&line.location, 8);
    assert_eq!(seen(&line.location).lost, 8);
    line.callers[4].ask("thread late");
    line.callers[4].0.expect("failed late");
    line.go(Duration::from_millis(40));
    let stamps: Vec<u64> = (0..8)
        .map(|at| line.callers[4].got(&format!("n{at}")))
        .collect();
    assert!(stamps.is_sorted());
    rests(&line.location, &line.pacer);
}

#[test]
fn y3_case_08_a_killed_head_leaves_the_next_its_turn() {
    let scene = Scene::alone();
    one_of(3, || {
        let mut line = Lined::new(&scene, 4, 8);
        for at in 0..4 {
            line.join(at, "c", at);
        }
        // Head and middle.
        line.callers[0].0.kill();
        line.callers[2].0.kill();
        let begun = line.go(Duration::from_millis(50));
        let second = line.callers[1].got("c");
        let took = Duration::from_nanos(second - begun);
        figure!(
            "the next of a dead head starts {took:?} after the set, an interval of 50 ms included"
        );
        let last = line.callers[3].got("c");
        rests(&line.location, &line.pacer);
        apart(begun + 50 * MS, &[second, last], 50 * MS)?;
        less("the next of a dead head", took, Duration::from_millis(800))
    });
}

/// Case 8: random cancels and starts of two processes come to rest.
#[test]
fn case_08_hasty_callers() {
    let scene = Scene::new();
    let (location, pacer) = paced(&scene, Duration::from_micros(100), 3);
    let path = location.path().to_string_lossy().into_owned();
    let mut children: Vec<_> = ["1", "2"]
        .into_iter()
        .map(|seed| Child::start("hasty", &[&path, "3000", seed]))
        .collect();
    let mut sums = [0u64; 3];
    for child in &mut children {
        let done = child.expect("done");
        for (sum, n) in sums.iter_mut().zip(done.split(' ')) {
            *sum += n.parse::<u64>().unwrap();
        }
    }
    figure!(
        "started {}, refused {}, gave up {}",
        sums[0],
        sums[1],
        sums[2]
    );
    let seen = seen(&location);
    assert_eq!(sums.iter().sum::<u64>(), 6_000);
    assert_eq!((seen.rejected, seen.waiting), (sums[1], 0));
    assert!(seen.started >= sums[0]);
    rests(&location, &pacer);
}
