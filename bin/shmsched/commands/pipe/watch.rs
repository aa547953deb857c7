//! Waiting: for the two ends, for tokens, and always for a signal too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::flow::Stop;
use super::progress::Progress;
use crate::signals::{Alarm, Signals};

/// How often who waits for tokens looks whether it still wants so many.
const RECONSIDER: Duration = Duration::from_millis(250);

/// What `poll` reports of an output that nobody reads.
const GONE: PollFlags = PollFlags::ERR.union(PollFlags::HUP);

/// Where the main thread sleeps.
pub struct Watch {
    signals: Signals,
    alarm: Arc<Alarm>,
    /// What has happened so far, for people.
    pub progress: Progress,
}

/// What is known of the two ends.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Of the input: has bytes, has ended, or is broken.
    pub input: PollFlags,
    /// Of the output: has room, or is broken.
    pub output: PollFlags,
}

impl Ready {
    /// Nothing yet.
    pub const NOT: Ready = Ready {
        input: PollFlags::empty(),
        output: PollFlags::empty(),
    };

    /// Whether the reader has gone.
    pub fn reader_gone(self) -> bool {
        self.output.intersects(GONE)
    }
}

impl Watch {
    pub fn new(signals: Signals, progress: Progress) -> io::Result<Watch> {
        Ok(Watch {
            alarm: signals.alarm()?,
            signals,
            progress,
        })
    }

    /// Waits until the input is readable, the output is as asked for or broken, the alarm rings or the time is over. Fails
    /// if a signal ends it. May return for no reason.
    pub fn look(
        &mut self,
        input: Option<BorrowedFd<'_>>,
        output: Option<(BorrowedFd<'_>, PollFlags)>,
        longest: Option<Duration>,
    ) -> Result<Ready, Stop> {
        let longest = [longest, self.progress.show_within()].into_iter().flatten();
        let longest = longest.min().and_then(|time| Timespec::try_from(time).ok());
        let mut ready = Ready::NOT;
        let mut called = true;
        {
            let mut all = Vec::with_capacity(3);
            all.push(PollFd::from_borrowed_fd(
                self.signals.as_fd(),
                PollFlags::IN,
            ));
            all.extend(input.map(|input| PollFd::from_borrowed_fd(input, PollFlags::IN)));
            all.extend(output.map(|(output, want)| PollFd::from_borrowed_fd(output, want)));
            match poll(&mut all, longest.as_ref()) {
                Ok(_) => {
                    called = !all[0].revents().is_empty();
                    if input.is_some() {
                        ready.input = all[1].revents();
                    }
                    if output.is_some() {
                        ready.output = all[all.len() - 1].revents();
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(Stop::Input(error.into())),
            }
        }
        if called && let Some(signal) = self.signals.ending() {
            return Err(Stop::Signal(signal));
        }
        self.progress.show();
        Ok(ready)
    }

    /// Waits for a future, while somebody reads the output. Drops it, and gives nothing, once it is no longer wanted.
    pub fn complete<F: Future>(
        &mut self,
        future: F,
        output: BorrowedFd<'_>,
        wanted: impl Fn() -> bool,
    ) -> Result<Option<F::Output>, Stop> {
        let mut future = pin!(future);
        // Mostly this is all.
        if let Poll::Ready(done) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return Ok(Some(done));
        }
        let begun = Instant::now();
        self.progress.wait_begins(begun);
        let waker = Waker::from(Arc::clone(&self.alarm));
        let mut context = Context::from_waker(&waker);
        let mut first = true;
        let outcome = loop {
            // Rings from before do not count, and must not be missed either.
            if (self.alarm.has_rung() || first)
                && let Poll::Ready(done) = future.as_mut().poll(&mut context)
            {
                break Ok(Some(done));
            }
            first = false;
            if !wanted() {
                break Ok(None);
            }
            match self.look(None, Some((output, PollFlags::empty())), Some(RECONSIDER)) {
                Ok(ready) if ready.reader_gone() => break Err(Stop::ReaderGone),
                Ok(_) => {}
                Err(stop) => break Err(stop),
            }
        };
        self.progress.wait_ends(begun.elapsed());
        outcome
    }
}
