//! Backs off under pressure: turns away what can wait while work is held up, and everything while nothing gets on.
//!
//! ```text
//! cargo run --example backoff           # a film of half a minute, five times as fast
//! cargo run --example backoff -- 1      # as fast as it is
//! ```
//!
//! For ten seconds it offers twice the work that two slots can do, then a fifth of it. It prints what became of it, second
//! by second: `shed` comes after 7 s of delay, and goes when the queue has been empty for a good while. That is the end.
//!
//! The film is the same at any speed, since a controller goes by the time it is told. A program that has no need to hurry
//! uses `Clocked`, which reads the clock.

use shmsched::pressure::{Controller, SAMPLE_MS, Sample};
use shmsched::{Priority, Scheduler};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, thread};

/// A Scheduler, its controller, and a count of what has ended.
struct Gate {
    scheduler: Scheduler,
    pressure: Mutex<Controller>,
    ended: AtomicU64,
    film: Film,
}

/// A clock that runs faster.
#[derive(Clone, Copy)]
struct Film {
    begun: Instant,
    speed: u32,
}

impl Film {
    fn now(self) -> Duration {
        self.begun.elapsed() * self.speed
    }

    fn sleep(self, time: Duration) {
        thread::sleep(time / self.speed);
    }
}

impl Gate {
    /// One look. The loop around it is the program's own.
    fn sample(&self) {
        let ended = self.ended.load(Ordering::Relaxed);
        let sample = Sample::scheduler(&self.scheduler.stats(), &self.scheduler.targets(), ended);
        let mut pressure = self.pressure.lock().expect("nobody panics");
        pressure.update(&sample, self.film.now());
    }

    /// Whether work is taken on now: costs two booleans, no look at the counters.
    fn takes(&self, priority: Priority) -> bool {
        let pressure = self.pressure.lock().expect("nobody panics");
        !pressure.paused() && (priority > Priority::Low || !pressure.shed())
    }

    /// Runs a task on a thread of its own, unless it is turned away.
    fn submit(self: &Arc<Gate>, task: fn(Film), priority: Priority) -> bool {
        let taken = self.takes(priority);
        if taken {
            let gate = Arc::clone(self);
            thread::spawn(move || {
                // However it ended, and whether it waited or not: it got on.
                let done = gate.scheduler.run_blocking(|| task(gate.film), priority);
                gate.ended.fetch_add(1, Ordering::Relaxed);
                done
            });
        }
        taken
    }
}

fn work(film: Film) {
    film.sleep(Duration::from_millis(40));
}

fn main() -> Result<(), Box<dyn Error>> {
    let speed = env::args().nth(1).map_or(Ok(5), |speed| speed.parse())?;
    let film = Film {
        begun: Instant::now(),
        speed: u32::max(speed, 1),
    };
    let gate = Arc::new(Gate {
        scheduler: Scheduler::local(2)?,
        pressure: Mutex::new(Controller::new(film.now())),
        ended: AtomicU64::new(0),
        film,
    });
    // The loop ends with the program: nobody joins it.
    let watched = Arc::clone(&gate);
    thread::spawn(move || {
        loop {
            watched.sample();
            film.sleep(Duration::from_millis(SAMPLE_MS));
        }
    });

    println!("second  offered  taken  turned away  queued   some   full  shed  paused");
    for second in 1..=60 {
        let offered: u32 = if second <= 10 { 100 } else { 10 };
        let mut taken = 0;
        for at in 0..offered {
            let priority = if at % 4 == 0 {
                Priority::Normal
            } else {
                Priority::Low
            };
            taken += u32::from(gate.submit(work, priority));
            let next =
                Duration::from_secs(second - 1) + Duration::from_secs(1) * (at + 1) / offered;
            film.sleep(next.saturating_sub(film.now()));
        }
        let queued = gate.scheduler.stats().pending;
        let pressure = gate.pressure.lock().expect("nobody panics");
        println!(
            "{second:>6}  {offered:>7}  {taken:>5}  {:>11}  {queued:>6}  {:>5.2}  {:>5.2}  {:>4}  {:>6}",
            offered - taken,
            pressure.some(),
            pressure.full(),
            yes(pressure.shed()),
            yes(pressure.paused()),
        );
        if second > 10 && !pressure.shed() {
            break;
        }
    }
    Ok(())
}

fn yes(on: bool) -> &'static str {
    if on { "yes" } else { "-" }
}
