//! Signals as the main thread takes them: one at a time, with their senders, without a thread of their own.

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as NixSignal};
use signal_hook::consts::signal::*;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
pub use signal_hook::low_level::siginfo::{Cause, Origin};

/// What ends a wait, and is caught from the start. Other deadly signals have their default effect until a command starts.
const ENDING: [c_int; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Often sent, and deadly for who does not expect them: caught before the command starts.
const COMMON: [c_int; 3] = [SIGUSR1, SIGUSR2, SIGALRM];

/// Everything else that can be passed on to a command, without the real-time signals.
///
/// Not here: SIGKILL and SIGSTOP, which nobody can catch; SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP and SIGSYS, which tell of
/// faults of this very process; SIGPIPE, which the standard library ignores for us and resets for the command.
const OTHERS: [c_int; 14] = [
    SIGABRT, SIGCONT, SIGIO, SIGPROF, SIGPWR, SIGSTKFLT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG,
    SIGVTALRM, SIGWINCH, SIGXCPU, SIGXFSZ,
];

/// These tell of faults of this very process.
const FAULTS: [c_int; 6] = [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS];

/// Linux has these two; signal-hook does not name them.
const SIGPWR: c_int = 30;
const SIGSTKFLT: c_int = 16;

/// The real-time signals that libc leaves to programs.
const REAL_TIME: std::ops::RangeInclusive<c_int> = 34..=64;

/// The signals that this process has caught. Those that were ignored when it began stay ignored.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    alarm: UnixStream,
    ignored: u64,
}

impl Signals {
    /// Catches SIGCHLD and what ends a wait.
    pub fn catch() -> io::Result<Signals> {
        let ignored = ignored_signals();
        let (read, write) = UnixStream::pair()?;
        let alarm = write.try_clone()?;
        let first = ENDING.into_iter().filter(|signal| !is_in(ignored, *signal));
        // SIGCHLD also if it was ignored: then the kernel would not keep the command's exit code.
        let delivery =
            SignalDelivery::with_pipe(read, write, WithOrigin::default(), first.chain([SIGCHLD]))?;
        Ok(Signals {
            delivery,
            alarm,
            ignored,
        })
    }

    /// Catches what is often sent to a command, before it starts.
    pub fn catch_common(&self) -> io::Result<()> {
        let handle = self.delivery.handle();
        let mut common = COMMON
            .into_iter()
            .filter(|signal| !is_in(self.ignored, *signal));
        common.try_for_each(|signal| handle.add_signal(signal))
    }

    /// Catches everything else that can be passed on. Takes a fifth of a millisecond, most of it for the real-time signals. Lets go of what was held back.
    pub fn catch_all(&self) -> io::Result<()> {
        let handle = self.delivery.handle();
        let mut all = OTHERS
            .into_iter()
            .chain(REAL_TIME)
            .filter(|signal| !is_in(self.ignored, *signal));
        let caught = all.try_for_each(|signal| handle.add_signal(signal));
        let _ = SigSet::all().thread_unblock();
        caught
    }

    /// Catches everything else that would end this process, and what concerns a terminal that it draws on; not what stops
    /// who touches the terminal from the background.
    pub fn catch_for_a_screen(&self) -> io::Result<()> {
        let handle = self.delivery.handle();
        let mut all = COMMON
            .into_iter()
            .chain(OTHERS)
            .chain(REAL_TIME)
            .filter(|signal| ![SIGTTIN, SIGTTOU, SIGURG].contains(signal))
            .filter(|signal| !is_in(self.ignored, *signal));
        all.try_for_each(|signal| handle.add_signal(signal))
    }

    /// Holds back everything else that can be passed on, from when the command has started until [`Self::catch_all`]:
    /// such a signal would end this process alone.
    pub fn hold_others_back() {
        let mut others = SigSet::all();
        for signal in ENDING
            .into_iter()
            .chain(COMMON)
            .chain([SIGCHLD])
            .chain(FAULTS)
        {
            others.remove(NixSignal::try_from(signal).expect("a named signal"));
        }
        // Fails for no set.
        let _ = others.thread_block();
    }

    /// What has arrived since the last call, in no particular order.
    pub fn arrived(&mut self) -> impl Iterator<Item = Origin> {
        self.delivery.pending()
    }

    /// The first signal that has arrived and ends a wait, if any; forgets the others.
    pub fn ending(&mut self) -> Option<c_int> {
        let mut arrived = self
            .arrived()
            .filter(|origin| ENDING.contains(&origin.signal));
        let first = arrived.next().map(|origin| origin.signal);
        arrived.for_each(drop);
        first
    }

    /// Sleeps until a signal arrives, the alarm rings, or the time is over, whichever is first; perhaps without reason.
    pub fn sleep(&mut self, time: Option<Duration>) {
        if time.is_some_and(|time| time.is_zero()) {
            return;
        }
        let read = self.delivery.get_read_mut();
        // Fails for no time but zero.
        let _ = read.set_read_timeout(time);
        // An error is a timeout or an interruption: reason enough to look.
        let _ = read.read(&mut [0]);
    }

    /// An alarm that ends a [`Signals::sleep`] from other threads.
    pub fn alarm(&self) -> io::Result<Arc<Alarm>> {
        let stream = self.alarm.try_clone()?;
        Ok(Arc::new(Alarm {
            stream,
            rung: AtomicBool::new(true),
        }))
    }
}

/// Readable when a signal has arrived or the alarm has rung, until [`Signals::arrived`] or [`Signals::ending`]: for who waits
/// for more than that.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

/// Ends a sleep of the main thread; rings from the start.
pub struct Alarm {
    stream: UnixStream,
    rung: AtomicBool,
}

impl Alarm {
    /// Whether it has rung since the last call.
    pub fn has_rung(&self) -> bool {
        self.rung.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // At most one byte is under way at a time, so this never blocks.
        if !self.rung.swap(true, Ordering::SeqCst) {
            let _ = (&self.stream).write(&[0]);
        }
    }
}

/// The set of signals that are ignored; empty if the kernel does not say.
fn ignored_signals() -> u64 {
    // One read is enough: the line is within the first 2 kB, and this is on the way of every `run`.
    let mut status = [0; 4_096];
    let read = File::open("/proc/self/status").and_then(|mut file| file.read(&mut status));
    let status = str::from_utf8(&status[..read.unwrap_or(0)]).unwrap_or("");
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}

fn is_in(set: u64, signal: c_int) -> bool {
    set >> (signal - 1) & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn an_alarm_ends_the_sleep() {
        let mut signals = Signals::catch().unwrap();
        let alarm = signals.alarm().unwrap();
        assert!(alarm.has_rung() && !alarm.has_rung());
        let ringing = {
            let alarm = Arc::clone(&alarm);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                alarm.wake();
            })
        };
        let begun = Instant::now();
        while !alarm.has_rung() {
            signals.sleep(Some(Duration::from_secs(10)));
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
        ringing.join().unwrap();

        let begun = Instant::now();
        signals.sleep(Some(Duration::from_millis(30)));
        signals.sleep(Some(Duration::ZERO));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn sets_of_signals() {
        assert!(is_in(1, SIGHUP) && is_in(1 << 63, 64) && !is_in(1, SIGINT));
    }

    #[test]
    fn every_catchable_signal_is_in_one_list() {
        let left: Vec<c_int> = (1..32)
            .filter(|signal| ![&ENDING[..], &COMMON, &OTHERS].concat().contains(signal))
            .collect();
        assert_eq!(
            left,
            [
                SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGPIPE, SIGCHLD, SIGSTOP,
                SIGSYS
            ]
        );
    }
}
