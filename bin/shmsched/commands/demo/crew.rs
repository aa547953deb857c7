//! The workers as the demo sees them: started, given jobs, killed, replaced.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use shmsched::{Location, Priority};

use super::files::{Deal, gather};
use super::report::Verdict;
use super::worker::{Said, now};

/// The priorities of the jobs, in turn.
const PRIORITIES: [Priority; 5] = [
    Priority::Normal,
    Priority::Low,
    Priority::High,
    Priority::Normal,
    Priority::Lowest,
];

/// How many workers may end before the demo gives up; one is killed on purpose.
const MOST_REPLACED: u32 = 8;

/// A job that was handed out.
#[derive(Clone, Debug)]
pub struct Job {
    pub priority: Priority,
    files: Vec<PathBuf>,
    given: u64,
    /// When it got its slot, if it has.
    pub started: Option<u64>,
}

/// One worker process.
pub struct Worker {
    pub pid: u32,
    child: Child,
    orders: ChildStdin,
    pub job: Option<Job>,
    pub done: u32,
    /// It has said its last word.
    silent: bool,
}

/// A stretch of time in which a slot was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    from: u64,
    to: u64,
}

/// The worker that was killed.
pub struct Killed {
    pub seat: usize,
    pub pid: u32,
    at: u64,
}

/// How long the jobs of one priority waited.
#[derive(Clone, Copy, Default)]
pub struct Waited {
    pub jobs: u64,
    nanoseconds: u64,
}

impl Waited {
    /// The mean in milliseconds.
    pub fn mean_ms(&self) -> u64 {
        self.nanoseconds / self.jobs.max(1) / 1_000_000
    }
}

/// All workers, and the books.
pub struct Crew {
    pub workers: Vec<Worker>,
    deal: Deal,
    again: VecDeque<Job>,
    heard: Receiver<(u32, Option<Said>)>,
    say: Sender<(u32, Option<Said>)>,
    held: Vec<Held>,
    pub given: u64,
    pub done: u64,
    pub bytes: u64,
    pub replaced: u32,
    pub killed: Option<Killed>,
    pub waited: [Waited; 7],
}

impl Crew {
    pub fn hire(location: &Location, count: usize) -> io::Result<Crew> {
        let (say, heard) = mpsc::channel();
        let workers = (0..count)
            .map(|_| hire(location, &say))
            .collect::<io::Result<_>>()?;
        Ok(Crew {
            workers,
            deal: Deal::new(gather()),
            again: VecDeque::new(),
            heard,
            say,
            held: Vec::new(),
            given: 0,
            done: 0,
            bytes: 0,
            replaced: 0,
            killed: None,
            waited: Default::default(),
        })
    }

    /// Gives every idle worker something to do.
    pub fn hand_out_jobs(&mut self) {
        for worker in self
            .workers
            .iter_mut()
            .filter(|worker| worker.job.is_none())
        {
            let mut job = self.again.pop_front().unwrap_or_else(|| {
                self.given += 1;
                let priority = PRIORITIES[self.given as usize % PRIORITIES.len()];
                Job {
                    priority,
                    files: self.deal.job(),
                    given: 0,
                    started: None,
                }
            });
            (job.given, job.started) = (now(), None);
            let mut order = job.priority.to_string();
            for file in &job.files {
                order.push('\t');
                order.push_str(&file.to_string_lossy());
            }
            order.push('\n');
            worker.job = Some(job);
            // If it is dead, that is heard of below, and the job is given to another.
            let _ = worker.orders.write_all(order.as_bytes());
        }
    }

    /// Whether every job handed out is done.
    pub fn is_idle(&self) -> bool {
        self.again.is_empty() && self.workers.iter().all(|worker| worker.job.is_none())
    }

    /// Listens for so long, and then to all that was said meanwhile.
    pub fn hear(&mut self, patience: Duration) -> Result<(), RecvTimeoutError> {
        let first = self.heard.recv_timeout(patience)?;
        self.note(first);
        while let Ok(more) = self.heard.try_recv() {
            self.note(more);
        }
        Ok(())
    }

    fn note(&mut self, (pid, said): (u32, Option<Said>)) {
        let Some(worker) = self.workers.iter_mut().find(|worker| worker.pid == pid) else {
            return;
        };
        match (said, worker.job.as_mut()) {
            (Some(Said::Start { at }), Some(job)) => {
                job.started = Some(at);
                let waited = &mut self.waited[job.priority.index()];
                waited.jobs += 1;
                waited.nanoseconds += at.saturating_sub(job.given);
            }
            (Some(Said::End { at, bytes }), Some(job)) => {
                if let Some(from) = job.started {
                    self.held.push(Held { from, to: at });
                }
                (worker.job, worker.done) = (None, worker.done + 1);
                self.done += 1;
                self.bytes += bytes;
            }
            (None, job) => {
                worker.silent = true;
                if let Some(killed) = self.killed.as_ref().filter(|killed| killed.pid == pid) {
                    match job.and_then(|job| job.started.take()) {
                        // It held its slot at least until then.
                        Some(from) => self.held.push(Held {
                            from,
                            to: killed.at,
                        }),
                        // It had given it back before it was hit: another one then.
                        None => self.killed = None,
                    }
                }
            }
            _ => {}
        }
    }

    /// Kills a worker that holds a slot, with SIGKILL, if there is one now. Whether it still held it shows once all is heard
    /// that it had said.
    pub fn kill_one(&mut self) -> io::Result<()> {
        let holds = |worker: &Worker| worker.job.as_ref().is_some_and(|job| job.started.is_some());
        let Some(seat) = self.workers.iter().position(holds) else {
            return Ok(());
        };
        let worker = &mut self.workers[seat];
        let at = now();
        worker.child.kill()?;
        self.killed = Some(Killed {
            seat,
            pid: worker.pid,
            at,
        });
        Ok(())
    }

    /// Puts a new process in the place of each that has ended; its job goes to whoever is next.
    pub fn replace_the_dead(&mut self, location: &Location) -> io::Result<()> {
        for worker in &mut self.workers {
            if worker.silent && worker.child.try_wait()?.is_some() {
                self.again.extend(worker.job.take());
                let done = worker.done;
                *worker = hire(location, &self.say)?;
                worker.done = done;
                self.replaced += 1;
            }
        }
        match self.replaced > MOST_REPLACED {
            true => Err(io::Error::other("the workers keep dying")),
            false => Ok(()),
        }
    }

    /// What is to be said of it all.
    pub fn verdict(&self, budget: u32, all_done: bool, reclaimed: u64) -> Verdict {
        let killed = self.killed.as_ref();
        Verdict {
            budget,
            peak: peak(&self.held),
            given: self.given,
            done: self.done,
            all_done: all_done && self.done == self.given,
            bytes: self.bytes,
            processes: self.workers.len() as u32 + self.replaced,
            killed: killed.map(|killed| (killed.seat, killed.pid)),
            reused_ms: killed.and_then(|killed| {
                Some((full_again(&self.held, killed.at, budget)? - killed.at) / 1_000_000)
            }),
            reclaimed,
            waited: self.waited,
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

fn hire(location: &Location, say: &Sender<(u32, Option<Said>)>) -> io::Result<Worker> {
    let mut child = Command::new("/proc/self/exe")
        .arg("demo-worker")
        .arg(location.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let pid = child.id();
    let (Some(orders), Some(words)) = (child.stdin.take(), child.stdout.take()) else {
        unreachable!("both are pipes")
    };
    let say = say.clone();
    thread::Builder::new().spawn(move || {
        for line in BufReader::new(words).lines().map_while(Result::ok) {
            if let Some(said) = Said::parse(&line)
                && say.send((pid, Some(said))).is_err()
            {
                return;
            }
        }
        let _ = say.send((pid, None));
    })?;
    Ok(Worker {
        pid,
        child,
        orders,
        job: None,
        done: 0,
        silent: false,
    })
}

/// The most slots held at the same time.
fn peak(held: &[Held]) -> u32 {
    counts(held)
        .into_iter()
        .map(|(_, open)| open)
        .max()
        .unwrap_or(0)
}

/// The first moment from `after` on at which the whole budget is in use.
fn full_again(held: &[Held], after: u64, budget: u32) -> Option<u64> {
    counts(held)
        .into_iter()
        .find(|(at, open)| *at >= after && *open >= budget)
        .map(|(at, _)| at)
}

/// How many slots are held from each moment on at which that changes.
fn counts(held: &[Held]) -> Vec<(u64, u32)> {
    // At the same nanosecond an end comes before a start.
    let ends = held.iter().map(|held| (held.to, false));
    let mut events: Vec<(u64, bool)> = held
        .iter()
        .map(|held| (held.from, true))
        .chain(ends)
        .collect();
    events.sort_unstable();
    let mut open = 0_u32;
    let after = |(at, start): (u64, bool)| {
        open = if start {
            open + 1
        } else {
            open.saturating_sub(1)
        };
        (at, open)
    };
    events.into_iter().map(after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretches(of: &[(u64, u64)]) -> Vec<Held> {
        of.iter()
            .map(|(from, to)| Held {
                from: *from,
                to: *to,
            })
            .collect()
    }

    #[test]
    fn the_most_at_once() {
        assert_eq!(peak(&[]), 0);
        assert_eq!(peak(&stretches(&[(0, 5), (5, 9), (6, 7)])), 2);
        assert_eq!(peak(&stretches(&[(0, 5), (1, 6), (4, 9), (20, 30)])), 3);
    }

    #[test]
    fn the_slot_of_the_dead_comes_back() {
        // killed at 10; at 12 another hands over to a third; at 15 both slots are in use again
        let held = stretches(&[(0, 10), (1, 12), (12, 20), (15, 30)]);
        assert_eq!(full_again(&held, 10, 2), Some(15));
        assert_eq!(full_again(&held, 21, 2), None);
    }
}
