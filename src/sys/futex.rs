//! Waiting on a word of a segment, and waking who waits there, across processes.
//!
//! The only place that makes a futex call on a segment word, and it never sets `FUTEX_PRIVATE_FLAG`: with the flag the
//! kernel looks for sleepers of the calling process only. For that reason the atomic-wait crate cannot serve here: it
//! always sets the flag, and it has no timeout. (It does serve in [`super::mutex`], where both are fine.)
//!
//! No function here fails: whatever the kernel answers, the caller looks at the word again.

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};

use super::clock;

/// Why a [`wait`] ended. Every one of them may be spurious: look at the word again.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::enum_variant_names)] // Woken is what the kernel calls it, too.
pub enum Woken {
    /// Somebody woke us.
    Woken,
    /// The word did not hold the expected value, or the kernel would not wait.
    Changed,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// Sleeps while `word` holds `expected`, until a [`wake`] with one of `bits`, or until `deadline` (in
/// [`clock::now`] units; `None` waits for ever).
pub fn wait(word: &AtomicU32, expected: u32, bits: NonZeroU32, deadline: Option<u64>) -> Woken {
    let deadline = deadline.map(clock::kernel_timespec);
    match futex::wait_bitset(word, Flags::empty(), expected, deadline.as_ref(), bits) {
        Ok(()) => Woken::Woken,
        Err(Errno::TIMEDOUT) => Woken::TimedOut,
        Err(Errno::INTR) => Woken::Interrupted,
        Err(Errno::AGAIN) => Woken::Changed,
        Err(_) => {
            // The page is gone, or a filter forbids the call: the caller polls, so at least let others run.
            std::thread::yield_now();
            Woken::Changed
        }
    }
}

/// Wakes all sleepers on `word` that wait for one of `bits`, in any process. Returns how many there were.
pub fn wake(word: &AtomicU32, bits: NonZeroU32) -> usize {
    futex::wake_bitset(word, Flags::empty(), i32::MAX as u32, bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;
    use std::time::Duration;

    use super::super::fork::tests::in_child;
    use super::super::mapping::{Mapping, lend};
    use super::*;

    const ONE: NonZeroU32 = NonZeroU32::new(1).unwrap();
    const TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();

    #[test]
    fn another_value_does_not_sleep() {
        assert_eq!(wait(&AtomicU32::new(1), 2, ONE, None), Woken::Changed);
    }

    #[test]
    fn the_deadline_is_absolute() {
        let word = AtomicU32::new(0);
        let begin = clock::now();
        assert_eq!(
            wait(&word, 0, ONE, Some(begin + 20_000_000)),
            Woken::TimedOut
        );
        assert!(clock::now() - begin >= 20_000_000);
        assert_eq!(wait(&word, 0, ONE, Some(0)), Woken::TimedOut);
    }

    #[test]
    fn only_the_named_bits_wake() {
        let word = AtomicU32::new(0);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait(&word, 0, TWO, Some(clock::now() + 10_000_000_000)));
            thread::sleep(Duration::from_millis(30));
            assert_eq!(wake(&word, ONE), 0);
            while wake(&word, TWO) == 0 {
                assert!(!sleeper.is_finished());
                thread::yield_now();
            }
            assert_eq!(sleeper.join().unwrap(), Woken::Woken);
        });
        assert_eq!(word.load(SeqCst), 0);
    }

    #[test]
    fn a_wake_crosses_processes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let word =
            || lend::<AtomicU32>(&Mapping::file(file.as_file(), 4096, true).unwrap(), 64).unwrap();
        let ours = word();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait(&ours, 0, ONE, Some(clock::now() + 20_000_000_000)));
            let woken = in_child(|| {
                let theirs = word();
                let end = clock::now() + 10_000_000_000;
                while clock::now() < end {
                    if wake(&theirs, ONE) == 1 {
                        return 1;
                    }
                    thread::yield_now();
                }
                0
            });
            assert_eq!((woken, sleeper.join().unwrap()), (1, Woken::Woken));
        });
    }
}
