//! Cells over the machine's atomics. `repr(transparent)`: a cell in a segment is exactly its little-endian integer.

use crate::sys::mapping::shared_record;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, compiler_fence};

#[cfg(not(target_endian = "little"))]
compile_error!("the segment format is little-endian");

/// Called after every write to a cell; the crash tests die here.
#[inline(always)]
fn wrote() {
    #[cfg(feature = "crash-hook")]
    super::crash::wrote();
}

/// The fence half of "read-modify-write and full fence": nothing where the locked instruction is one.
#[inline(always)]
fn full_fence() {
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// The cheap side of the pairs `dispose` and `spare`: orders this thread's store before its next load, given that the other side
/// runs [`heavy_fence`].
#[inline(always)]
pub fn light_fence() {
    compiler_fence(Ordering::SeqCst);
}

/// The expensive side: every thread of every attached process passes a full fence before this returns.
pub fn heavy_fence() -> std::io::Result<()> {
    crate::sys::membarrier::barrier()
}

macro_rules! cell {
    ($name:ident, $atomic:ident, $int:ident, $doc:literal) => {
        shared_record! {
            #[doc = $doc]
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name($atomic);
        }

        // Not every cell needs every operation.
        #[allow(dead_code)]
        impl $name {
            /// A cell outside any segment.
            pub const fn new(value: $int) -> Self {
                Self($atomic::new(value))
            }

            /// Acquire load.
            #[inline(always)]
            pub fn get(&self) -> $int {
                self.0.load(Ordering::Acquire)
            }

            /// Relaxed load: a hint, or a word only this thread writes.
            #[inline(always)]
            pub fn peek(&self) -> $int {
                self.0.load(Ordering::Relaxed)
            }

            /// Release store.
            #[inline(always)]
            pub fn put(&self, value: $int) {
                self.0.store(value, Ordering::Release);
                wrote();
            }

            /// Relaxed store.
            #[inline(always)]
            pub fn poke(&self, value: $int) {
                self.0.store(value, Ordering::Relaxed);
                wrote();
            }

            /// Replaces `old` by `new` if it is still there; else what is there. Full fence either way.
            #[inline(always)]
            pub fn replace(&self, old: $int, new: $int) -> Result<$int, $int> {
                let done = self
                    .0
                    .compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
                full_fence();
                wrote();
                done
            }

            /// Stores `new`, returns what was there. Full fence.
            #[inline(always)]
            pub fn swap(&self, new: $int) -> $int {
                let old = self.0.swap(new, Ordering::SeqCst);
                full_fence();
                wrote();
                old
            }

            /// Adds, wrapping; returns what was there. Full fence.
            #[inline(always)]
            pub fn add(&self, n: $int) -> $int {
                let old = self.0.fetch_add(n, Ordering::SeqCst);
                full_fence();
                wrote();
                old
            }

            /// Subtracts, wrapping; returns what was there. Full fence.
            #[inline(always)]
            pub fn sub(&self, n: $int) -> $int {
                let old = self.0.fetch_sub(n, Ordering::SeqCst);
                full_fence();
                wrote();
                old
            }

            /// Sets bits; returns what was there. Full fence.
            #[inline(always)]
            pub fn set_bits(&self, bits: $int) -> $int {
                let old = self.0.fetch_or(bits, Ordering::SeqCst);
                full_fence();
                wrote();
                old
            }

            /// Clears bits; returns what was there. Full fence.
            #[inline(always)]
            pub fn clear_bits(&self, bits: $int) -> $int {
                let old = self.0.fetch_and(!bits, Ordering::SeqCst);
                full_fence();
                wrote();
                old
            }
        }
    };
}

cell!(I32, AtomicI32, i32, "A signed 32-bit word.");
cell!(U32, AtomicU32, u32, "An unsigned 32-bit word.");
cell!(U64, AtomicU64, u64, "An unsigned 64-bit word.");

impl U32 {
    /// Sleeps while the word is `expected`, until a wake of one of `bits` or the deadline (`sys::clock::now` units).
    pub fn wait(
        &self,
        expected: u32,
        bits: NonZeroU32,
        deadline: Option<u64>,
    ) -> crate::sys::futex::Woken {
        crate::sys::futex::wait(&self.0, expected, bits, deadline)
    }

    /// Changes the word and wakes the sleepers of `bits`, in any process.
    pub fn ring(&self, bits: NonZeroU32) -> usize {
        self.add(1);
        crate::sys::futex::wake(&self.0, bits)
    }
}
