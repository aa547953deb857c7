//! From a release in one process to the admission in another that waits, beside a bare futex ping-pong.
#![allow(unsafe_code)]

use crate::bench::{Bench, failed, segment};
use crate::children::{Child, orders, say};
use crate::peers::Page;
use crate::report::{Measured, Row};
use crate::rounds::{percentiles, settled};
use rustix::thread::{CpuSet, futex, sched_getaffinity, sched_setaffinity};
use serde_json::json;
use shmsched::{Permit, Priority, Scheduler, Settings};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;
const SECONDS: Duration = Duration::from_secs(4);

/// How the two sides of a round play.
#[derive(Clone, Copy)]
struct Game<'a> {
    directory: &'a Path,
    turns: u32,
    /// Between getting a slot and giving it back, so that who waits falls asleep.
    hold: Duration,
    as_task: bool,
    /// The processor of each side and all its threads; without it they are where the kernel likes.
    cpus: Option<[usize; 2]>,
}

/// Binds this thread, and what it starts from here on.
fn bind(cpu: usize) -> Result<(), String> {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).map_err(failed)
}

impl Game<'_> {
    fn arguments(&self) -> [String; 4] {
        let directory = self.directory.display().to_string();
        let hold = self.hold.as_nanos().to_string();
        [
            directory,
            self.turns.to_string(),
            hold,
            self.as_task.to_string(),
        ]
    }

    /// The other side, which inherits where it is bound.
    fn start(&self, role: &str) -> Result<Child, String> {
        let arguments = self.arguments();
        self.cpus.map_or(Ok(()), |[_, theirs]| bind(theirs))?;
        let child = Child::start(role, &arguments.each_ref().map(String::as_str));
        self.cpus.map_or(Ok(()), |[mine, _]| bind(mine))?;
        child
    }

    fn hold(&self) {
        let begun = Instant::now();
        while begun.elapsed() < self.hold {
            std::hint::spin_loop();
        }
    }
}

/// The other side, in a process of its own.
pub fn other_side(role: &str, arguments: &[String]) -> Result<(), String> {
    let [directory, turns, hold, as_task] = arguments else {
        return Err(failed("four arguments"));
    };
    let game = Game {
        directory: Path::new(directory),
        turns: turns.parse().map_err(failed)?,
        hold: Duration::from_nanos(hold.parse().map_err(failed)?),
        as_task: as_task == "true",
        cpus: None,
    };
    let _orders = orders();
    match role {
        "bare" => bare_side(&game, 1, || say("ready")),
        _ => our_side(&game, 1, || say("ready")),
    }
    .map(|_| ())
}

/// Two words in a mapped file; each side sleeps on its own and wakes the other's. Side 0 begins. Returns what each turn of
/// side 0 took, there and back.
fn bare_side(
    game: &Game,
    side: usize,
    ready: impl FnOnce() -> Result<(), String>,
) -> Result<Vec<Duration>, String> {
    let page = Page::open(&game.directory.join("bare")).map_err(failed)?;
    // SAFETY: lines of the page that are only touched as these words.
    let words = [0, 1].map(|line| unsafe { &*page.line::<AtomicU32>(line).get() });
    let (mine, other) = (words[side], words[1 - side]);
    let give = || {
        other.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(other, futex::Flags::empty(), 1);
    };
    let take = |wanted| loop {
        let seen = mine.load(Ordering::Acquire);
        if seen >= wanted {
            break;
        }
        let _ = futex::wait(mine, futex::Flags::empty(), seen, None);
    };
    ready()?;
    let mut took = Vec::with_capacity(game.turns as usize);
    for turn in 1..=game.turns {
        let begun = Instant::now();
        if side == 0 {
            game.hold();
            give();
            take(turn);
            took.push(begun.elapsed());
        } else {
            take(turn);
            game.hold();
            give();
        }
    }
    Ok(took)
}

/// Ours: three segments of one slot in turn, so that each acquire waits for the other side's release. Side 0 begins with
/// the first and the third, side 1 with the second; it gives 0, 2, 1, 0, ... and takes 1, 0, 2, ...; side 1 takes what
/// it gives and gives what it takes.
fn our_side(
    game: &Game,
    side: usize,
    ready: impl FnOnce() -> Result<(), String>,
) -> Result<Vec<Duration>, String> {
    let one = Settings::new().concurrency(1);
    let open = |name: &str| {
        let segment = segment(&game.directory.join(name), &one)?;
        segment.scheduler().map_err(failed)
    };
    let all = [open("first")?, open("second")?, open("third")?];
    let mut held = [const { None }; 3];
    let mine: &[usize] = if side == 0 { &[0, 2] } else { &[1] };
    for at in mine {
        held[*at] = Some(all[*at].blocking_acquire(NORMAL).map_err(failed)?);
    }
    ready()?;
    if !game.as_task {
        let waits = |scheduler| std::future::ready(Scheduler::blocking_acquire(scheduler, NORMAL));
        return futures_executor::block_on(turns(game, side, &all, held, waits));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let awaits = |scheduler| Scheduler::acquire(scheduler, NORMAL);
    runtime
        .map_err(failed)?
        .block_on(turns(game, side, &all, held, awaits))
}

/// The turns of one side, whichever way it waits: a future that has blocked is ready when it is polled.
async fn turns<'a, F>(
    game: &Game<'_>,
    side: usize,
    all: &'a [Scheduler; 3],
    mut held: [Option<Permit<'a>>; 3],
    acquire: impl Fn(&'a Scheduler) -> F,
) -> Result<Vec<Duration>, String>
where
    F: Future<Output = Result<Permit<'a>, shmsched::AcquireError>>,
{
    let mut took = Vec::with_capacity(game.turns as usize);
    for turn in 0..game.turns as usize {
        let (first, second) = ((turn * 2) % 3, (turn * 2 + 1) % 3);
        let begun = Instant::now();
        if side == 0 {
            game.hold();
            held[first] = None;
            held[second] = Some(acquire(&all[second]).await.map_err(failed)?);
            took.push(begun.elapsed());
        } else {
            held[first] = Some(acquire(&all[first]).await.map_err(failed)?);
            game.hold();
            held[second] = None;
        }
    }
    Ok(took)
}

/// One round of both: nanoseconds of each hand-over, the mean of a turn's two.
fn round(game: &Game, our: bool) -> Result<Vec<f64>, String> {
    let mut other = None;
    let took = if our {
        // Not before our slots are held, or it would run ahead.
        let ready = || {
            let child = other.insert(game.start("hand")?);
            child.expect("ready")
        };
        our_side(game, 0, ready)?
    } else {
        let _ = std::fs::remove_file(game.directory.join("bare"));
        let ready = || {
            let child = other.insert(game.start("bare")?);
            child.expect("ready")
        };
        bare_side(game, 0, ready)?
    };
    // By itself: a killed one's slots would have to be found first in the next round.
    other.map_or(Ok(()), Child::finished)?;
    let hold = game.hold.as_nanos() as f64;
    let of_turn = |turn: &Duration| (turn.as_nanos() as f64 / 2.0 - hold).max(0.0);
    Ok(took.iter().map(of_turn).collect())
}

/// How a row is measured.
#[derive(Clone, Copy)]
struct Way {
    hold: Duration,
    as_task: bool,
    on: On,
}

/// Where the two sides are. Where they are free the kernel has them on one processor or on two, ours and the peer's not
/// always alike, which is most of their spread.
#[derive(Clone, Copy)]
enum On {
    Any,
    /// One processor, where who waits awake is in the other's way.
    One,
    /// One for each.
    Two,
}

fn measure(bench: &Bench, way: Way) -> Result<Measured, String> {
    let all = sched_getaffinity(None).map_err(failed)?;
    let mut each = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    let first = each.next().unwrap_or(0);
    let cpus = match way.on {
        On::Any => None,
        On::One => Some([first, first]),
        On::Two => Some([first, each.next().ok_or("there is one processor only")?]),
    };
    let measured = measure_on(bench, way, cpus);
    sched_setaffinity(None, &all).map_err(failed)?;
    measured
}

fn measure_on(bench: &Bench, way: Way, cpus: Option<[usize; 2]>) -> Result<Measured, String> {
    let directory = &bench.directory.join("hand");
    std::fs::create_dir_all(directory).map_err(failed)?;
    let turns = bench.size.pick(2_000, 1_000, 20);
    let game = Game {
        directory,
        turns,
        hold: way.hold,
        as_task: way.as_task,
        cpus,
    };
    let mean = |turns: &[f64]| turns.iter().sum::<f64>() / turns.len() as f64;
    let (mut rounds, mut ours, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    let begun = Instant::now();
    while rounds.len() < bench.size.pick(5, 5, 1) || begun.elapsed() < bench.allowed(SECONDS) {
        let (mine, theirs) = (round(&game, true)?, round(&game, false)?);
        rounds.push((mean(&mine), mean(&theirs)));
        ours.extend(mine);
        bare.extend(theirs);
    }
    let latency = json!({ "ours": percentiles(ours), "peer": percentiles(bare) });
    Ok(settled(&rounds).with("latency_ns", latency))
}

pub fn rows(bench: &Bench) -> Vec<Row<'_>> {
    let row = |name, (as_task, on, micros): (bool, On, u64)| {
        let hold = Duration::from_micros(micros);
        let way = Way { hold, as_task, on };
        Row::new(name, "futex ping-pong", move || measure(bench, way))
    };
    vec![
        // With a goal where each side has a processor to itself: else the kernel puts the peer's two on one or on two, as
        // it likes, and a ping-pong takes 1.4 us or 40.
        row("hand-over between processes, blocking", (false, On::Two, 0))
            .goal(1.2)
            .note("a release in one process to the admission in another, each bound to a processor of its own; the mean of a round"),
        row("hand-over between processes, async task", (true, On::Two, 0))
            .goal(1.6)
            .note("as above; a task of tokio's current-thread runtime on each side, the peer blocks"),
        row("hand-over where the kernel puts them, blocking", (false, On::Any, 0))
            .note("as the first, bound to none: on one processor or on two, which is most of the spread"),
        row("hand-over where the kernel puts them, async task", (true, On::Any, 0)).note("as above"),
        row("hand-over on one processor, blocking", (false, On::One, 0))
            .note("as the first, both bound to one processor"),
        row("hand-over on one processor, async task", (true, On::One, 0)).note("as above"),
        row("hand-over to a sleeper, blocking", (false, On::Any, 100))
            .note("as the first, each slot held for 100 us before, so that who waits sleeps"),
        row("hand-over to a sleeper, async task", (true, On::Any, 100)).note("as above"),
    ]
}
