//! What the demo shows while it runs, and what it says in the end.

use std::time::Duration;

use shmsched::{Priority, Snapshot};

use super::crew::{Crew, Waited, Worker};
use crate::output::{bytes, counted, time};

/// Clears to the end of the line.
const REST: &str = "\x1b[K";

/// How progress is shown.
pub struct Report {
    redraw: bool,
    /// The lines to go up before the next picture.
    drawn: usize,
}

impl Report {
    /// `terminal`: draws one picture in place; else a line each time.
    pub fn new(terminal: bool) -> Report {
        Report {
            redraw: terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
            drawn: 0,
        }
    }

    pub fn redraws(&self) -> bool {
        self.redraw
    }

    /// The state of things: the counters of the segment, and what the workers have said.
    pub fn progress(&mut self, crew: &Crew, snapshot: &Snapshot, elapsed: Duration) -> String {
        let (running, waiting) = snapshot
            .scheduler
            .as_ref()
            .map_or((0, 0), |scheduler| (scheduler.running, scheduler.waiters));
        let killed = crew.killed.as_ref().map_or(String::new(), |killed| {
            format!(", worker {} (pid {}) killed", killed.seat + 1, killed.pid)
        });
        let line = format!(
            "{:>5}  running {running}, waiting {waiting}, jobs done {}, {} hashed{killed}",
            time(elapsed.as_millis() as u64),
            crew.done,
            bytes(crew.bytes),
        );
        if !self.redraw {
            return format!("{line}\n");
        }
        let mut text = match self.drawn {
            0 => String::new(),
            lines => format!("\x1b[{lines}A"),
        };
        text.push_str(&format!("{line}{REST}\n"));
        for (seat, worker) in crew.workers.iter().enumerate() {
            text.push_str(&format!("       {}{REST}\n", doing(seat, worker)));
        }
        self.drawn = crew.workers.len() + 1;
        text
    }
}

/// `worker 1  pid 77  high     hashing      12 jobs done`
fn doing(seat: usize, worker: &Worker) -> String {
    let (priority, what) = match &worker.job {
        None => ("", "idle"),
        Some(job) if job.started.is_some() => (job.priority.name(), "hashing"),
        Some(job) => (job.priority.name(), "waiting"),
    };
    format!(
        "worker {}  pid {:<8} {what:<8} {priority:<8} {} done",
        seat + 1,
        worker.pid,
        counted(worker.done.into(), "job")
    )
}

/// What was seen.
#[derive(Clone)]
pub struct Verdict {
    pub budget: u32,
    pub peak: u32,
    pub given: u64,
    pub done: u64,
    pub all_done: bool,
    pub bytes: u64,
    pub processes: u32,
    /// The seat and the pid of the worker that was killed.
    pub killed: Option<(usize, u32)>,
    pub reused_ms: Option<u64>,
    pub reclaimed: u64,
    pub waited: [Waited; 7],
}

impl Verdict {
    /// Whether the budget was kept, and used, and nothing was lost.
    pub fn is_good(&self) -> bool {
        self.peak <= self.budget
            && self.all_done
            && self.done > 0
            && self.killed.is_some()
            && self.reused_ms.is_some()
    }

    /// The end of the story.
    pub fn text(&self) -> String {
        let kept = match self.peak <= self.budget {
            true => format!(
                "never more than {} at once ({} seen)",
                self.budget, self.peak
            ),
            false => format!(
                "WRONG: {} at once, though {} are allowed",
                self.peak, self.budget
            ),
        };
        let done = match self.all_done {
            true => format!(
                "all {} done, {} hashed",
                counted(self.done, "job"),
                bytes(self.bytes)
            ),
            false => format!(
                "WRONG: {} of {} done",
                self.done,
                counted(self.given, "job")
            ),
        };
        let killed = match (self.killed, self.reused_ms) {
            (Some((seat, pid)), Some(ms)) => format!(
                "worker {} (pid {pid}) was killed with SIGKILL while it held a slot: the slot was in use again {} later",
                seat + 1,
                time(ms)
            ),
            (Some((_, pid)), None) => {
                format!("WRONG: pid {pid} was killed, and its slot was not used again")
            }
            (None, _) => "WRONG: nobody held a slot when one was to be killed".into(),
        };
        let waited = Priority::ALL
            .iter()
            .zip(self.waited)
            .rev()
            .filter(|(_, waited)| waited.jobs > 0);
        let waited: Vec<String> = waited
            .map(|(priority, waited)| format!("{priority} {}", time(waited.mean_ms())))
            .collect();
        format!(
            "\nBudget     {kept}, by the stamps of {} processes\n\
             Jobs       {done}\n\
             Killed     {killed}; reclaimed {}\n\
             Mean wait  {}\n",
            self.processes,
            self.reclaimed,
            waited.join(", "),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Verdict {
        Verdict {
            budget: 2,
            peak: 2,
            given: 40,
            done: 40,
            all_done: true,
            bytes: 3_000_000_000,
            processes: 7,
            killed: Some((2, 77)),
            reused_ms: Some(43),
            reclaimed: 1,
            waited: Default::default(),
        }
    }

    #[test]
    fn a_good_end() {
        let text = good().text();
        assert!(good().is_good() && !text.contains("WRONG"), "{text}");
        assert!(
            text.contains("never more than 2 at once (2 seen)")
                && text.contains("worker 3 (pid 77)")
                && text.contains("43ms"),
            "{text}"
        );
    }

    #[test]
    fn every_wrong_is_said() {
        let wrong = [
            Verdict { peak: 3, ..good() },
            Verdict {
                all_done: false,
                done: 39,
                ..good()
            },
            Verdict {
                killed: None,
                ..good()
            },
            Verdict {
                reused_ms: None,
                ..good()
            },
        ];
        for verdict in wrong {
            assert!(!verdict.is_good() && verdict.text().contains("WRONG"));
        }
    }
}
