//! A mutex among the threads of one process that a fork may cross.
//!
//! The standard library's mutex cannot be unlocked in the child of a fork by whom did not lock it through a guard there,
//! and poisons. This one is a plain word: the prepare handler [holds](Mutex::hold) it, parent and child each
//! [let it go](Mutex::let_go).
//!
//! | state | meaning | who leaves it |
//! | --- | --- | --- |
//! | 0 | free | any thread: to 1, or to 2 if it has slept |
//! | 1 | held, nobody sleeps | the holder: to 0; a waiter: to 2 |
//! | 2 | held, somebody may sleep | the holder: to 0, and wakes one |
//!
//! Waits are process-private and untimed, so the atomic-wait crate serves.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
/// Short sections are the rule: look some more before asking the kernel.
const SPINS: u32 = 100;

/// Mutual exclusion among threads, without poisoning. See the module.
pub struct Mutex<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the one holder reaches the value, so sharing the mutex hands the value from thread to thread.
unsafe impl<T: Send> Sync for Mutex<T> {}
// SAFETY: a mutex owns its value and nothing else.
unsafe impl<T: Send> Send for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the mutex, waiting as long as that needs. Not re-entrant. The guard gives it back, also in a panic.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.hold();
        Guard {
            of: self,
            not_send: PhantomData,
        }
    }

    /// Takes the mutex if that needs no waiting.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.state
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .ok()?;
        Some(Guard {
            of: self,
            not_send: PhantomData,
        })
    }

    /// Takes the mutex without a guard. For the prepare handler of a fork only: see [`Self::let_go`].
    #[inline]
    pub fn hold(&self) {
        if self
            .state
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_err()
        {
            self.wait();
        }
    }

    /// Gives back what [`Self::hold`] took. For fork handlers only, in the thread that held it: the parent's and the
    /// child's handler each call it once. In the child the word may count waiters of the parent; it is set to free
    /// whatever it says, and the wake finds nobody.
    #[inline]
    pub fn let_go(&self) {
        if self.state.swap(FREE, Release) == CONTENDED {
            atomic_wait::wake_one(&self.state);
        }
    }

    /// Where the value is. Reading or writing through it is for the holder only.
    #[inline]
    pub(super) fn as_ptr(&self) -> *mut T {
        self.value.get()
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            if self.state.load(Relaxed) == FREE
                && self
                    .state
                    .compare_exchange(FREE, HELD, Acquire, Relaxed)
                    .is_ok()
            {
                return;
            }
            std::hint::spin_loop();
        }
        // From here on the word says 2: who has slept cannot know whether others still do.
        while self.state.swap(CONTENDED, Acquire) != FREE {
            atomic_wait::wait(&self.state, CONTENDED);
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Mutex")
            .field("state", &self.state.load(Relaxed))
            .finish_non_exhaustive()
    }
}

/// Access to the value of a locked [`Mutex`]. Dropping it unlocks. Stays in its thread.
#[must_use]
pub struct Guard<'a, T> {
    of: &'a Mutex<T>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives out nothing but `&T`.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread holds the mutex and nobody else reaches the value.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` makes this the only borrow.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.of.let_go();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn excludes_under_contention() {
        let total = Mutex::new(0u64);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut total = total.lock();
                        let seen = *total;
                        std::hint::black_box(seen);
                        *total = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*total.lock(), 80_000);
        assert_eq!(total.state.load(Relaxed), FREE);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let mutex = Mutex::new(());
        thread::scope(|scope| {
            mutex.hold();
            assert!(mutex.try_lock().is_none());
            let sleeper = scope.spawn(|| drop(mutex.lock()));
            while mutex.state.load(Relaxed) != CONTENDED {
                thread::sleep(Duration::from_millis(1));
            }
            mutex.let_go();
            sleeper.join().unwrap();
        });
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    fn a_panic_unlocks() {
        let mutex = Mutex::new(1);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let _guard = mutex.lock();
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(result.is_err());
        assert_eq!(*mutex.lock(), 1);
    }
}
