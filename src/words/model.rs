//! The same cells over loom's atomics. loom treats sequentially consistent accesses as acquire-release but models the
//! fences, so the fence of "read-modify-write and full fence" is spelled out here.
//!
//! Beside the cells: what a model needs to let a thread die ([`mortal`]) and to leave a step out ([`mutant`]).

use loom::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

// The threads of a model are coroutines of one thread of the machine, so a thread-local is a global of one model.
thread_local! {
    static MEMBARRIER: Cell<bool> = const { Cell::new(false) };
    static DYING: Cell<Option<(loom::thread::ThreadId, u32)>> = const { Cell::new(None) };
}

/// Whether the named step is left out (`SHMSCHED_MUTANT`).
pub fn mutant(name: &str) -> bool {
    static WANTED: OnceLock<Option<String>> = OnceLock::new();
    cfg!(feature = "mutants")
        && WANTED
            .get_or_init(|| std::env::var("SHMSCHED_MUTANT").ok())
            .as_deref()
            == Some(name)
}

/// Whether this model has somebody who passes [`heavy_fence`]. Only then is [`light_fence`] worth anything.
pub fn with_membarrier(yes: bool) {
    MEMBARRIER.set(yes);
}

/// The cheap side of the dispose pair: nothing by itself, and a full fence in effect once somebody passes the
/// expensive one, which a model says by [`with_membarrier`].
pub fn light_fence() {
    if MEMBARRIER.get() && !mutant("membarrier") {
        fence(Ordering::SeqCst);
    }
}

/// The expensive side of the dispose pair.
pub fn heavy_fence() -> std::io::Result<()> {
    if !mutant("membarrier") {
        fence(Ordering::SeqCst);
    }
    Ok(())
}

fn full_fence() {
    if !mutant("full-fence") {
        fence(Ordering::SeqCst);
    }
}

/// Runs `life` on this thread until its `writes`-th write to a cell, right after which it dies: nothing of it runs any
/// more. Returns whether it died. At most one thread of a model is mortal.
pub fn mortal(writes: u32, life: impl FnOnce()) -> bool {
    DYING.set(Some((loom::thread::current().id(), writes)));
    let end = catch_unwind(AssertUnwindSafe(life));
    let died = DYING.take().is_none();
    match end {
        Ok(()) => died,
        Err(_) if died => true,
        Err(panic) => resume_unwind(panic),
    }
}

/// Called after every write to a cell.
fn wrote() {
    let Some((thread, left)) = DYING.get() else {
        return;
    };
    if loom::thread::current().id() != thread {
        return;
    }
    if left > 1 {
        DYING.set(Some((thread, left - 1)));
    } else {
        DYING.set(None);
        resume_unwind(Box::new("died"));
    }
}

macro_rules! cell {
    ($name:ident, $atomic:ident, $int:ident) => {
        /// A cell of the model, and who wrote it last.
        #[derive(Debug, Default)]
        pub struct $name {
            atomic: $atomic,
            last: Cell<Option<(loom::thread::ThreadId, $int)>>,
        }

        #[allow(missing_docs)]
        impl $name {
            pub fn new(value: $int) -> Self {
                Self {
                    atomic: $atomic::new(value),
                    last: Cell::new(None),
                }
            }

            /// Who wrote a cell last reads what it wrote, without asking loom: loom remembers one access a cell, and
            /// one's own load would hide somebody else's from one's next store, and so the race between the two.
            fn load(&self, ordering: Ordering) -> $int {
                match self.last.get() {
                    Some((writer, value)) if writer == loom::thread::current().id() => value,
                    _ => self.atomic.load(ordering),
                }
            }

            fn change(&self, value: $int) {
                self.last.set(Some((loom::thread::current().id(), value)));
            }

            pub fn get(&self) -> $int {
                self.load(Ordering::Acquire)
            }
            pub fn peek(&self) -> $int {
                self.load(Ordering::Relaxed)
            }
            pub fn put(&self, value: $int) {
                self.atomic.store(value, Ordering::Release);
                self.change(value);
                wrote();
            }
            pub fn poke(&self, value: $int) {
                self.atomic.store(value, Ordering::Relaxed);
                self.change(value);
                wrote();
            }
            pub fn replace(&self, old: $int, new: $int) -> Result<$int, $int> {
                let done =
                    self.atomic
                        .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
                if done.is_ok() {
                    self.change(new);
                }
                full_fence();
                if done.is_ok() {
                    wrote();
                }
                done
            }
            fn modify(&self, old: $int, new: $int) -> $int {
                self.change(new);
                full_fence();
                wrote();
                old
            }
            pub fn swap(&self, new: $int) -> $int {
                self.modify(self.atomic.swap(new, Ordering::AcqRel), new)
            }
            pub fn add(&self, n: $int) -> $int {
                let old = self.atomic.fetch_add(n, Ordering::AcqRel);
                self.modify(old, old.wrapping_add(n))
            }
            pub fn sub(&self, n: $int) -> $int {
                let old = self.atomic.fetch_sub(n, Ordering::AcqRel);
                self.modify(old, old.wrapping_sub(n))
            }
            pub fn set_bits(&self, bits: $int) -> $int {
                let old = self.atomic.fetch_or(bits, Ordering::AcqRel);
                self.modify(old, old | bits)
            }
            pub fn clear_bits(&self, bits: $int) -> $int {
                let old = self.atomic.fetch_and(!bits, Ordering::AcqRel);
                self.modify(old, old & !bits)
            }
        }
    };
}

cell!(I32, AtomicI32, i32);
cell!(U32, AtomicU32, u32);
cell!(U64, AtomicU64, u64);

/// In the model a record is a plain struct: it lives on the heap, never in a mapping.
macro_rules! shared_record {
    ($($record:item)*) => { $($record)* };
}
pub(crate) use shared_record;
