//! Getting past a gate: at once, or in the line, where signals and the deadline end the wait. One loop for all gates.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use shmsched::{Deadline, Segment};

use super::news::Sight;
use crate::cli::Run;
use crate::commands::observer;
use crate::exit::{Code, Failure, note};
use crate::output::time;
use crate::signals::Signals;

/// After so long a silence it says what it waits for.
const SILENCE: Duration = Duration::from_secs(1);

/// A gate, and what is wanted of it.
pub trait Door {
    /// What one has who is through.
    type Pass;

    /// Passes without waiting.
    fn at_once(&self) -> Result<Self::Pass, Refusal>;

    /// Passes when it is its turn. Dropping the future leaves the line.
    fn in_turn(&self, until: Deadline) -> impl Future<Output = Result<Self::Pass, Refusal>>;

    /// What it waits for, in words, if that can be seen.
    fn news(&self, sight: &Sight) -> Option<String>;
}

/// Why one did not pass.
#[derive(Debug)]
pub enum Refusal {
    /// Others are ahead; perhaps dead ones, whom nobody has noticed yet.
    Busy(Failure),
    /// For another reason.
    Final(Failure),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        match refusal {
            Refusal::Busy(failure) | Refusal::Final(failure) => failure,
        }
    }
}

/// How a run waits, gate after gate.
pub struct Queue<'a> {
    segment: &'a Segment,
    arguments: &'a Run,
    deadline: Deadline,
    signals: &'a mut Signals,
    /// When it last said something; at first, when it came.
    spoke: Instant,
}

impl<'a> Queue<'a> {
    pub fn new(
        segment: &'a Segment,
        arguments: &'a Run,
        deadline: Deadline,
        signals: &'a mut Signals,
    ) -> Queue<'a> {
        Queue {
            segment,
            arguments,
            deadline,
            signals,
            spoke: Instant::now(),
        }
    }

    /// Passes a gate, as patiently as the arguments say. Before it is refused, it looks for the dead.
    pub fn pass<D: Door>(&mut self, door: &D) -> Result<D::Pass, Failure> {
        let mut passed = self.attempt(door);
        if let Err(Refusal::Busy(_)) = passed {
            self.segment.look();
            passed = self.attempt(door);
        }
        passed.map_err(Failure::from)
    }

    fn attempt<D: Door>(&mut self, door: &D) -> Result<D::Pass, Refusal> {
        match self.arguments.no_wait {
            true => door.at_once(),
            false => self.wait(door),
        }
    }

    fn wait<D: Door>(&mut self, door: &D) -> Result<D::Pass, Refusal> {
        let begun = Instant::now();
        let mut turn = pin!(door.in_turn(self.deadline));
        // Mostly this is all: no alarm, no thread.
        if let Poll::Ready(passed) = turn.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return passed;
        }

        let alarm = self
            .signals
            .alarm()
            .map_err(|error| Refusal::Final(Failure::new(Code::Io, error)))?;
        let waker = Waker::from(alarm.clone());
        let mut context = Context::from_waker(&waker);
        let mut silent = self.arguments.verbose || io::stderr().is_terminal();
        loop {
            if let Some(signal) = self.signals.ending() {
                // Dropping the wait leaves the line.
                return Err(Refusal::Final(Failure::signal(signal)));
            }
            if alarm.has_rung()
                && let Poll::Ready(passed) = turn.as_mut().poll(&mut context)
            {
                if self.arguments.verbose && passed.is_ok() {
                    let waited = time(begun.elapsed().as_millis() as u64);
                    self.say(&format!("its turn came after {waited}"));
                }
                return passed;
            }
            let left = silent.then(|| SILENCE.saturating_sub(self.spoke.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                silent = false;
                if let Some(news) = self.sight().and_then(|sight| door.news(&sight)) {
                    self.say(&format!("waiting for {news}"));
                }
                continue;
            }
            self.signals.sleep(left);
        }
    }

    fn say(&mut self, what: &str) {
        note(format_args!("{}: {what}", self.segment.location()));
        self.spoke = Instant::now();
    }

    fn sight(&self) -> Option<Sight> {
        let trust_foreign = self.arguments.existing.trust_foreign;
        let mut observer = observer(self.segment.location(), trust_foreign).ok()?;
        let snapshot = observer.snapshot().ok()?;
        Some(Sight {
            own: self.segment.member().index,
            snapshot,
            keepers: Box::new(move |member| observer.keepers(member)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;
    use shmsched::{Location, Settings};
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// Refuses so often, then opens; in turn, a while after somebody came, or was told so often what he waits for.
    struct Sluggish {
        refuses: u32,
        opens_after: Duration,
        after_words: u32,
        tries: Cell<u32>,
        told: Arc<AtomicU32>,
    }

    impl Sluggish {
        fn new(refuses: u32, opens_after: Duration) -> Sluggish {
            Sluggish {
                refuses,
                opens_after,
                after_words: 0,
                tries: Cell::new(0),
                told: Arc::default(),
            }
        }

        fn words(&self) -> u32 {
            self.told.load(Ordering::SeqCst)
        }
    }

    impl Door for Sluggish {
        type Pass = u32;

        fn at_once(&self) -> Result<u32, Refusal> {
            let tries = self.tries.get() + 1;
            self.tries.set(tries);
            match tries > self.refuses {
                true => Ok(tries),
                false => Err(Refusal::Busy(Failure::new(Code::WouldWait, "others"))),
            }
        }

        async fn in_turn(&self, _: Deadline) -> Result<u32, Refusal> {
            let open = Arc::new(AtomicBool::new(false));
            let mut begun = false;
            std::future::poll_fn(|context| {
                if open.load(Ordering::SeqCst) {
                    return Poll::Ready(());
                }
                // The last waker, as futures have it: the first is that of nobody.
                if std::mem::replace(&mut begun, true) {
                    let (open, waker, after) =
                        (Arc::clone(&open), context.waker().clone(), self.opens_after);
                    let (told, words) = (Arc::clone(&self.told), self.after_words);
                    std::thread::spawn(move || {
                        // Ten seconds, if it is not told.
                        let told = || told.load(Ordering::SeqCst) >= words;
                        (0..1_000)
                            .take_while(|_| !told())
                            .for_each(|_| std::thread::sleep(Duration::from_millis(10)));
                        std::thread::sleep(after);
                        open.store(true, Ordering::SeqCst);
                        waker.wake();
                    });
                }
                Poll::Pending
            })
            .await;
            self.at_once()
        }

        fn news(&self, _: &Sight) -> Option<String> {
            self.told.fetch_add(1, Ordering::SeqCst);
            None
        }
    }

    /// In a process of its own: a signal is for all threads of a process, and would end the waits of other tests.
    #[test]
    fn ways_to_wait() {
        const ALONE: &str = "SHMSCHED_TEST_ALONE";
        if std::env::var_os(ALONE).is_some() {
            return ways_to_wait_alone();
        }
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["commands::run::queue::tests::ways_to_wait", "--exact"])
            .env(ALONE, "")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && printed.contains("1 passed"),
            "{output:?}"
        );
    }

    fn ways_to_wait_alone() {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::File(directory.path().join("S"));
        let segment =
            Segment::create(&location, &Settings::new().concurrency(1).members(4)).unwrap();
        let mut signals = Signals::catch().unwrap();
        let mut pass = |options: &str, door: &Sluggish| {
            let line = format!("shmsched run S {options} -- true");
            let Verb::Run(run) = Cli::parse_from(line.split_whitespace()).verb else {
                unreachable!("it says run")
            };
            let mut queue = Queue::new(&segment, &run, Deadline::Never, &mut signals);
            queue.pass(door).map_err(|failure| failure.code)
        };

        // Once more after a look for the dead, not oftener.
        let (soon, late) = (Duration::from_millis(20), Duration::from_secs(3_600));
        for options in ["--no-wait", ""] {
            assert_eq!(pass(options, &Sluggish::new(0, soon)), Ok(1));
            assert_eq!(pass(options, &Sluggish::new(1, soon)), Ok(2));
            assert_eq!(pass(options, &Sluggish::new(2, soon)), Err(75));
        }
        // A second of silence, one word, and silence again.
        for (options, words) in [("-v", 1), ("", u32::from(io::stderr().is_terminal()))] {
            let silence = if words == 0 { 1_200 } else { 200 };
            let mut door = Sluggish::new(0, Duration::from_millis(silence));
            door.after_words = words;
            assert_eq!(pass(options, &door), Ok(1));
            assert_eq!(door.words(), words, "{options:?}");
        }
        // A signal ends the wait, and who waits does not come in.
        let thread = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGTERM)
                .unwrap();
        });
        let door = Sluggish::new(0, late);
        assert_eq!((pass("", &door), door.tries.get()), (Err(143), 0));
        thread.join().unwrap();
    }
}
