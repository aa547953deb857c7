//! What a fork does to this process's handles.
//!
//! The prepare handler takes the registry and then every registered thing's own locks, in order of registration; parent
//! and child give them back in reverse. So the child never finds a lock that a thread holds which it does not have.
//!
//! A thread can also [hold forks off](hold_off) for a moment: between opening a description and registering what closes it
//! in a child, a fork would leave a child that keeps the description alive and knows nothing of it.
//!
//! Only forks through libc run handlers. A raw `clone` call without exec is not supported.
#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Weak};
use std::thread;

use super::clock;
use super::mutex::Mutex;

/// Something that must hear of a fork.
///
/// All three run in the forking thread. A lock that `prepare` takes must not be held by a thread that calls
/// [`register`] or [`hold_off`]: take the hold-off first. The child may drop the last reference, on any thread that it
/// starts later or inside the handler: dropping there must touch nothing that is still the parent's.
pub trait ForkAware: Send + Sync {
    /// Before the fork: take the locks that must be free in the child.
    fn prepare(&self);
    /// After it in the parent: give them back.
    fn parent(&self);
    /// After it in the child: give them back, close what must not be inherited, remember that it is not ours.
    fn child(&self);
}

struct Registry {
    aware: Vec<Weak<dyn ForkAware>>,
    /// Those that heard `prepare`, while a fork is under way.
    prepared: Vec<Arc<dyn ForkAware>>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    aware: Vec::new(),
    prepared: Vec::new(),
});

/// One more in each child along a line of forks.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// Nobody, the pid of the process that is arming, or `ARMED`.
static HANDLERS: AtomicU64 = AtomicU64::new(NOT_ARMED);
const NOT_ARMED: u64 = 0;
const ARMED: u64 = u64::MAX;

thread_local! {
    /// How often this thread holds the registry.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// How many prepare handlers this thread has run for the fork under way. See [`arm`] for why it may be two.
    static FORKING: Cell<usize> = const { Cell::new(0) };
}

/// Adds `what` to those that hear of forks, for as long as it lives. May be called under a [`hold_off`].
pub fn register(what: Weak<dyn ForkAware>) {
    let _still = hold_off();
    with_registry(|registry| {
        registry.aware.retain(|it| it.strong_count() > 0);
        registry.aware.push(what);
    });
}

/// Lets no thread of this process fork until the result is dropped. A thread may hold it more than once. A fork by this
/// thread itself meanwhile is allowed, and the child then holds it too.
pub fn hold_off() -> HoldOff {
    arm();
    enter();
    HoldOff {
        not_send: PhantomData,
    }
}

/// While it exists, no other thread of this process can fork. See [`hold_off`].
#[must_use]
pub struct HoldOff {
    not_send: PhantomData<*const ()>,
}

impl Drop for HoldOff {
    fn drop(&mut self) {
        leave();
    }
}

/// A number that differs between a process and every process it was forked from: keep it to know later whether one is
/// still the same process. Cheap.
#[inline]
pub fn epoch() -> u64 {
    arm();
    epoch_in_handler()
}

/// [`epoch`] for signal handlers: right if [`epoch`] has been called before in this process or an ancestor.
#[inline]
pub(super) fn epoch_in_handler() -> u64 {
    EPOCH.load(Relaxed)
}

/// Makes sure that the handlers are installed.
#[inline]
pub(super) fn arm() {
    if HANDLERS.load(Acquire) != ARMED {
        arm_now();
    }
}

/// Not a `Once`: a fork during the very first call would leave the child with a `Once` that never completes. The child
/// sees another's pid instead and arms again. If its parent had got past `pthread_atfork`, the handlers then run twice for
/// each fork, which `FORKING` makes harmless.
#[cold]
fn arm_now() {
    let me = u64::from(std::process::id());
    loop {
        let seen = HANDLERS.load(Acquire);
        if seen == ARMED {
            return;
        }
        if seen == me {
            thread::yield_now();
        } else if HANDLERS.compare_exchange(seen, me, AcqRel, Acquire).is_ok() {
            break;
        }
    }
    // SAFETY: the three functions live as long as the code that is linked here, and none of them unwinds.
    let result = unsafe { libc::pthread_atfork(Some(on_prepare), Some(on_parent), Some(on_child)) };
    if result != 0 {
        // It fails for lack of memory only, a few words of it.
        handle_alloc_error(Layout::new::<[usize; 4]>());
    }
    HANDLERS.store(ARMED, Release);
}

fn enter() {
    DEPTH.with(|depth| {
        if depth.get() == 0 {
            REGISTRY.hold();
        }
        depth.set(depth.get() + 1);
    });
}

fn leave() {
    DEPTH.with(|depth| {
        depth.set(depth.get() - 1);
        if depth.get() == 0 {
            REGISTRY.let_go();
        }
    });
}

/// For a thread that holds the registry. `with` must call nothing that could come back here.
fn with_registry<R>(with: impl FnOnce(&mut Registry) -> R) -> R {
    debug_assert!(DEPTH.get() > 0);
    // SAFETY: this thread holds the mutex, and no other borrow lives, as `with` does not come back here.
    with(unsafe { &mut *REGISTRY.as_ptr() })
}

extern "C" fn on_prepare() {
    if FORKING.replace(FORKING.get() + 1) > 0 {
        return;
    }
    enter();
    let prepared: Vec<_> =
        with_registry(|registry| registry.aware.iter().filter_map(Weak::upgrade).collect());
    // The youngest first: who holds a lock of one may take those of what it was made from, never the reverse.
    for it in prepared.iter().rev() {
        it.prepare();
    }
    with_registry(|registry| registry.prepared = prepared);
}

extern "C" fn on_parent() {
    after_fork(|it| it.parent(), || {});
}

extern "C" fn on_child() {
    after_fork(
        |it| it.child(),
        || {
            EPOCH.fetch_add(1, Relaxed);
            clock::forget_offsets();
        },
    );
}

fn after_fork(tell: impl Fn(&dyn ForkAware), first: impl FnOnce()) {
    FORKING.set(FORKING.get() - 1);
    if FORKING.get() > 0 {
        return;
    }
    first();
    let prepared = with_registry(|registry| mem::take(&mut registry.prepared));
    for it in &prepared {
        tell(it.as_ref());
    }
    leave();
    // Outside the registry: the last reference may go here, and its destructor may do anything.
    drop(prepared);
}

#[cfg(test)]
pub(in crate::sys) mod tests;
