//! Many processes at few slots: what that does to the throughput, and how evenly they are served.

use crate::bench::{Bench, failed, segment};
use crate::children::{Child, orders, say};
use crate::report::{Measured, Row};
use crate::rounds::{between, sorted};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use shmsched::{Priority, Settings};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Of all processes: what they did in a slice, one number each.
type Counts = Vec<u64>;

/// The slices of one number of processes.
#[derive(Default, Clone)]
struct Scene {
    slices: Vec<Counts>,
}

impl Scene {
    /// Each process's tasks of all slices.
    fn sums(&self) -> Counts {
        let processes = self.slices[0].len();
        (0..processes)
            .map(|at| self.slices.iter().map(|slice| slice[at]).sum())
            .collect()
    }
}

/// Jain's index: 1 if all did the same, 1/n if one did everything.
fn jain(counts: &[u64]) -> f64 {
    let sum = counts.iter().sum::<u64>() as f64;
    let squares: f64 = counts.iter().map(|count| (*count as f64).powi(2)).sum();
    sum * sum / (counts.len() as f64 * squares).max(1.0)
}

/// The processes, which wait for orders between the slices, and what was measured already.
struct Lab<'a> {
    bench: &'a Bench,
    workers: Vec<Child>,
    spins_per_us: f64,
    done: HashMap<(u32, u32), Result<HashMap<usize, Scene>, String>>,
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Work of a fixed amount, so that a task is the same also where it is interrupted.
fn spin(times: u64) {
    let mut x = 1u64;
    for _ in 0..times {
        x = black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

fn spins_per_us() -> f64 {
    const SPINS: u64 = 1_000_000;
    let once = |_| {
        let begun = Instant::now();
        spin(SPINS);
        SPINS as f64 * 1e3 / begun.elapsed().as_nanos() as f64
    };
    (0..5).map(once).fold(0.0, f64::max)
}

/// A worker's life: `attach PATH`, then `run FROM TO SPINS`, answered with how many tasks it did.
pub fn worker() -> Result<(), String> {
    let orders = orders();
    let hear = || orders.recv().map_err(failed);
    loop {
        let attach = hear()?;
        let path = attach
            .strip_prefix("attach ")
            .ok_or("failed: an order to attach")?;
        let segment = segment(Path::new(path), &Settings::new().concurrency(1))?;
        let scheduler = segment.scheduler().map_err(failed)?;
        say("ready")?;
        let run = hear()?;
        let numbers: Result<Vec<u64>, _> = run.split(' ').skip(1).map(str::parse).collect();
        let [from, to, spins] = numbers.map_err(failed)?[..] else {
            return Err(failed("three numbers"));
        };
        std::thread::sleep(Duration::from_nanos(from.saturating_sub(now())));
        // The clock costs as much as the shortest task does.
        let every = if spins == 0 { 32 } else { 1 };
        let mut count = 0u64;
        loop {
            let permit = scheduler
                .blocking_acquire(Priority::Normal)
                .map_err(failed)?;
            spin(spins);
            drop(permit);
            count += 1;
            if count.is_multiple_of(every) && now() >= to {
                break;
            }
        }
        drop((scheduler, segment));
        say(count)?;
    }
}

impl Lab<'_> {
    fn processes(&self) -> &'static [usize] {
        self.bench.size.pick(&[2, 8, 64], &[2, 8], &[2, 8])
    }

    /// How many slices of how long, for each number of processes.
    fn slices(&self) -> (u32, Duration) {
        let ms = Duration::from_millis;
        self.bench
            .size
            .pick((4, ms(2_500)), (2, ms(1_500)), (1, ms(20)))
    }

    fn slice(&mut self, budget: u32, task: u32, processes: usize) -> Result<Counts, String> {
        while self.workers.len() < processes {
            self.workers.push(Child::start("worker", &[])?);
        }
        let path = self.bench.directory.join(format!("contended-{budget}"));
        drop(segment(&path, &Settings::new().concurrency(budget))?);
        let long = self.slices().1;
        let workers = &mut self.workers[..processes];
        for worker in &mut *workers {
            worker.tell(&format!("attach {}", path.display()))?;
        }
        for worker in &mut *workers {
            worker.expect("ready")?;
        }
        let from = now() + 10_000_000;
        let to = from + long.as_nanos() as u64;
        let spins = (f64::from(task) * self.spins_per_us).round();
        for worker in &mut *workers {
            worker.tell(&format!("run {from} {to} {spins}"))?;
        }
        let count = |worker: &mut Child| worker.hear()?.parse().map_err(failed);
        workers.iter_mut().map(count).collect()
    }

    fn measure(&mut self, budget: u32, task: u32) -> Result<HashMap<usize, Scene>, String> {
        let (slices, long) = self.slices();
        let all = self.processes();
        let needed = long * slices * all.len() as u32;
        if needed + needed / 10 > self.bench.left() {
            return Err(format!("there is no time left for {needed:?} of it"));
        }
        if self.spins_per_us == 0.0 {
            self.spins_per_us = spins_per_us();
        }
        let mut scenes = HashMap::<usize, Scene>::new();
        for _ in 0..slices {
            for processes in all {
                let counts = self.slice(budget, task, *processes)?;
                scenes.entry(*processes).or_default().slices.push(counts);
            }
        }
        Ok(scenes)
    }

    fn scenes(&mut self, budget: u32, task: u32) -> Result<HashMap<usize, Scene>, String> {
        if !self.done.contains_key(&(budget, task)) {
            let measured = self.measure(budget, task);
            if measured.is_err() {
                // Who was in the middle of a slice is in no state for the next.
                self.workers.clear();
            }
            self.done.insert((budget, task), measured);
        }
        self.done[&(budget, task)].clone()
    }

    /// Nanoseconds of the clock for each task of all processes, slice by slice.
    fn per_task(&self, scene: &Scene) -> Vec<f64> {
        let long = self.slices().1.as_nanos() as f64;
        let per = |slice: &Counts| long / (slice.iter().sum::<u64>().max(1) as f64);
        scene.slices.iter().map(per).collect()
    }

    fn throughput(&mut self, budget: u32, task: u32, processes: usize) -> Result<Measured, String> {
        let scenes = self.scenes(budget, task)?;
        let many = self.per_task(&scenes[&processes]);
        let two = self.per_task(&scenes[&2]);
        let rounds: Vec<(f64, f64)> = many.into_iter().zip(two).collect();
        Ok(crate::rounds::settled(&rounds))
    }

    fn fairness(&mut self, budget: u32, task: u32, processes: usize) -> Result<Measured, String> {
        let scene = self.scenes(budget, task)?[&processes].clone();
        let counts = scene.sums();
        let long = self.slices().1 * self.slices().0;
        let total = counts.iter().sum::<u64>().max(1);
        let fair = long.as_nanos() as f64 * processes as f64 / total as f64;
        let mut measured = Measured::new(fair / jain(&counts), fair);
        let of_slices = sorted(scene.slices.iter().map(|slice| 1.0 / jain(slice)).collect());
        measured.spread = Some((between(&of_slices, 0.25), between(&of_slices, 0.75)));
        let second = total as f64 / long.as_secs_f64();
        Ok(measured
            .with("jain", json!(jain(&counts)))
            .with("jain_worst_slice", json!(1.0 / between(&of_slices, 1.0)))
            .with("tasks_per_second", json!(second.round()))
            .with("budget", json!(budget))
            .with("task_us", json!(task))
            .with("processes", json!(processes))
            .with("counts", json!(counts)))
    }
}

pub fn rows(bench: &Bench) -> Vec<Row<'_>> {
    let lab = Rc::new(RefCell::new(Lab {
        bench,
        workers: Vec::new(),
        spins_per_us: 0.0,
        done: HashMap::new(),
    }));
    let (slices, long) = lab.borrow().slices();
    let (full, all) = (
        bench.size.pick(true, false, false),
        lab.borrow().processes(),
    );
    let tasks: &[u32] = bench.size.pick(&[0, 1, 10, 100], &[10], &[10]);
    let mut rows = Vec::new();
    for (budget, task) in [1, 4]
        .iter()
        .flat_map(|budget| tasks.iter().map(|task| (*budget, *task)))
    {
        let scene = format!("contention, budget {budget}, {task} us");
        let long_enough = task >= 10;
        for processes in all.iter().copied().filter(|processes| *processes > 2) {
            let lab = lab.clone();
            let measure = move || lab.borrow_mut().throughput(budget, task, processes);
            rows.push(
                Row::new(format!("{scene}, {processes} processes: throughput"), "2 processes", measure)
                    .goal(if long_enough { 1.25 } else { 2.5 })
                    .note(format!("time for each task of all processes together, {slices} slices of {long:?} in turn")),
            );
        }
        for processes in all.iter().copied() {
            let lab = lab.clone();
            let measure = move || lab.borrow_mut().fairness(budget, task, processes);
            let goal: f64 = if long_enough { 1.0 / 0.98 } else { 1.0 / 0.9 };
            rows.push(
                Row::new(format!("{scene}, {processes} processes: fairness"), "all alike", measure)
                    .goal(full.then(|| (goal * 1e4).round() / 1e4))
                    .note("peer_ns is the time for each task of one process if all did the same; ours_ns is that divided by Jain's index over the processes, all slices together; the quartiles are of single slices"),
            );
        }
    }
    rows
}
