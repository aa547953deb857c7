//! A [`Mutex`] that costs the thread which takes it again and again no locked instruction; see
//! [`bias`](super::bias).
//!
//! The bias is granted to who took the mutex so often in a row. To revoke it takes some 15 us while the owner runs. So
//! after a bias that did not last, the next is granted less easily: what is lost stays a few nanoseconds a use.
#![allow(unsafe_code)]

use super::bias::{Bias, Machine, Word};
use super::mutex::Mutex;
use super::{clock, membarrier};
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, compiler_fence};
use std::time::Duration;

/// So often in a row one thread takes the mutex before it gets the bias, if the last bias lasted.
const EAGER: u32 = 256;
/// And so often if none does.
const WARY: u32 = 1 << 16;
/// A bias lasted if it did so long.
const LASTED_NS: u64 = 1_000_000;
/// Short sections are the rule: look some more before sleeping.
const SPINS: u32 = 100;

/// The word of a thread, on a line of its own, as its thread writes it all the time.
#[repr(align(128))]
struct Desk {
    inside: AtomicU64,
}

impl Desk {
    /// What a mutex knows the thread by.
    #[inline(always)]
    fn name(&'static self) -> u64 {
        ptr::from_ref(self).expose_provenance() as u64
    }
}

/// Of threads that ended; for the next. A bias that such a thread had is its successor's.
static FREE: Mutex<Vec<&'static Desk>> = Mutex::new(Vec::new());

thread_local! {
    /// This thread's, once it has one.
    static MINE: Cell<Option<&'static Desk>> = const { Cell::new(None) };
    static KEEPER: Keeper = const { Keeper };
}

/// Leaves a thread's desk to the next. Later destructors of the thread come by the mutex.
struct Keeper;

impl Drop for Keeper {
    fn drop(&mut self) {
        // Not waited for: whoever holds that mutex may not be there, in the child of a fork. Then nobody has the desk any
        // more.
        if let (Some(desk), Some(mut free)) = (MINE.take(), FREE.try_lock()) {
            free.push(desk);
        }
    }
}

/// A desk for this thread, unless it is ending.
#[cold]
fn sit_down() -> Option<&'static Desk> {
    KEEPER.try_with(|_| ()).ok()?;
    let left = FREE.try_lock().and_then(|mut free| free.pop());
    let desk = left.unwrap_or_else(|| {
        let inside = AtomicU64::new(0);
        Box::leak(Box::new(Desk { inside }))
    });
    MINE.set(Some(desk));
    Some(desk)
}

/// The machine that this runs on.
struct Here;

impl Word for AtomicU64 {
    #[inline(always)]
    fn peek(&self) -> u64 {
        self.load(Relaxed)
    }
    #[inline(always)]
    fn get(&self) -> u64 {
        self.load(Acquire)
    }
    #[inline(always)]
    fn put(&self, value: u64) {
        self.store(value, Release);
    }
}

impl Machine for Here {
    type Word = AtomicU64;

    #[inline(always)]
    fn light_fence() {
        compiler_fence(SeqCst);
    }

    fn heavy_fence() {
        if membarrier::barrier_here().is_err() {
            // Forbidden since the bias was granted, by a filter. No store stays in a processor's buffer for so long, and a
            // thread that does not run has none there.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn pause(rounds: u32) {
        match rounds < SPINS {
            true => std::hint::spin_loop(),
            // It was interrupted inside, and needs a processor.
            false => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// Who took the mutex lately. Read and written by its holder.
struct Habit {
    last: u64,
    /// How often in a row.
    row: u32,
    /// How often it takes.
    wanted: u32,
    /// When the last bias was granted.
    granted: u64,
}

/// Mutual exclusion among threads, without poisoning, which a fork may cross.
pub struct Biased<T> {
    bias: Bias<Here>,
    mutex: Mutex<Habit>,
    value: UnsafeCell<T>,
}

// SAFETY: only one thread at a time is inside, by the bias or by the mutex, so sharing hands the value from thread to
// thread.
unsafe impl<T: Send> Sync for Biased<T> {}
// SAFETY: it owns its value and words.
unsafe impl<T: Send> Send for Biased<T> {}

impl<T> Biased<T> {
    /// Free, around `value`.
    pub const fn new(value: T) -> Self {
        Biased {
            bias: Bias::new(AtomicU64::new(0)),
            mutex: Mutex::new(Habit {
                last: 0,
                row: 0,
                wanted: EAGER,
                granted: 0,
            }),
            value: UnsafeCell::new(value),
        }
    }

    /// What a desk says while its thread is in here.
    #[inline(always)]
    fn name(&self) -> u64 {
        ptr::from_ref(self) as u64
    }

    /// Goes in, waiting as long as that needs. Not re-entrant. The guard goes out, also in a panic.
    #[inline]
    pub fn lock(&self) -> Inside<'_, T> {
        if let Some(inside) = self.enter() {
            return inside;
        }
        self.hold();
        Inside {
            of: self,
            by: None,
            not_send: PhantomData,
        }
    }

    /// Goes in if this thread has the bias.
    #[inline(always)]
    pub fn enter(&self) -> Option<Inside<'_, T>> {
        let desk = MINE.get()?;
        let entered = self.bias.enter(desk.name(), &desk.inside, self.name());
        entered.then_some(Inside {
            of: self,
            by: Some(desk),
            not_send: PhantomData,
        })
    }

    /// Goes in by the mutex, without a guard. For the prepare handler of a fork: see [`Self::let_go`].
    #[inline(never)]
    pub fn hold(&self) {
        self.mutex.hold();
        if let Some(owner) = self.bias.owner() {
            self.revoke(owner);
        }
    }

    #[cold]
    fn revoke(&self, owner: u64) {
        let desk = ptr::with_exposed_provenance::<Desk>(owner as usize);
        // SAFETY: an owner's name is the address of its desk, and desks are there for ever.
        let desk = unsafe { &*desk };
        self.bias.revoke(&desk.inside, self.name());
        // SAFETY: this thread holds the mutex.
        let habit = unsafe { &mut *self.mutex.as_ptr() };
        habit.wanted = match clock::now().saturating_sub(habit.granted) >= LASTED_NS {
            true => EAGER,
            false => (habit.wanted * 2).min(WARY),
        };
        habit.row = 0;
    }

    /// Goes out after [`Self::hold`]. For fork handlers, in the thread that held it, as [`Mutex::let_go`].
    pub fn let_go(&self) {
        self.mutex.let_go();
    }

    /// Goes out of the mutex, with the bias if this thread took it often enough.
    #[inline(never)]
    fn let_go_of_mutex(&self) {
        // SAFETY: this thread holds the mutex.
        let habit = unsafe { &mut *self.mutex.as_ptr() };
        if let Some(desk) = MINE.get().or_else(sit_down) {
            let me = desk.name();
            if habit.last != me {
                (habit.last, habit.row) = (me, 0);
            }
            habit.row += 1;
            if habit.row >= habit.wanted {
                self.grant(habit, me);
            }
        }
        self.mutex.let_go();
    }

    #[cold]
    fn grant(&self, habit: &mut Habit, me: u64) {
        habit.row = 0;
        if membarrier::is_at_hand() {
            habit.granted = clock::now();
            self.bias.grant(me);
        }
    }
}

/// Access to what is in a [`Biased`]. Dropping it goes out. Stays in its thread.
#[must_use]
pub struct Inside<'a, T> {
    of: &'a Biased<T>,
    by: Option<&'static Desk>,
    not_send: PhantomData<*const ()>,
}

#[cfg(test)]
impl<T> Inside<'_, T> {
    /// Whether this thread has the bias.
    pub fn is_biased(&self) -> bool {
        self.by.is_some()
    }
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread is inside, and nobody else.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for Inside<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` makes this the only borrow.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for Inside<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.by {
            Some(desk) => Bias::<Here>::leave(&desk.inside),
            None => self.of.let_go_of_mutex(),
        }
    }
}

#[cfg(test)]
mod tests;
