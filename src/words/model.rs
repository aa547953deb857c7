//! The same cells over loom's atomics. loom treats sequentially consistent accesses as acquire-release but models the
//! fences, so the fence of "read-modify-write and full fence" is spelled out here.

use loom::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};

/// The cheap side of the dispose pair; a full fence in the model, where there is no membarrier.
pub fn light_fence() {
    fence(Ordering::SeqCst);
}

/// The expensive side of the dispose pair.
pub fn heavy_fence() -> std::io::Result<()> {
    fence(Ordering::SeqCst);
    Ok(())
}

fn full_fence() {
    fence(Ordering::SeqCst);
}

macro_rules! cell {
    ($name:ident, $atomic:ident, $int:ident) => {
        /// A cell of the model.
        #[derive(Debug, Default)]
        pub struct $name($atomic);

        #[allow(missing_docs)]
        impl $name {
            pub fn new(value: $int) -> Self {
                Self($atomic::new(value))
            }
            pub fn get(&self) -> $int {
                self.0.load(Ordering::Acquire)
            }
            pub fn peek(&self) -> $int {
                self.0.load(Ordering::Relaxed)
            }
            pub fn put(&self, value: $int) {
                self.0.store(value, Ordering::Release);
            }
            pub fn poke(&self, value: $int) {
                self.0.store(value, Ordering::Relaxed);
            }
            pub fn replace(&self, old: $int, new: $int) -> Result<$int, $int> {
                let done = self
                    .0
                    .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
                full_fence();
                done
            }
            pub fn swap(&self, new: $int) -> $int {
                let old = self.0.swap(new, Ordering::AcqRel);
                full_fence();
                old
            }
            pub fn add(&self, n: $int) -> $int {
                let old = self.0.fetch_add(n, Ordering::AcqRel);
                full_fence();
                old
            }
            pub fn sub(&self, n: $int) -> $int {
                let old = self.0.fetch_sub(n, Ordering::AcqRel);
                full_fence();
                old
            }
            pub fn set_bits(&self, bits: $int) -> $int {
                let old = self.0.fetch_or(bits, Ordering::AcqRel);
                full_fence();
                old
            }
            pub fn clear_bits(&self, bits: $int) -> $int {
                let old = self.0.fetch_and(!bits, Ordering::AcqRel);
                full_fence();
                old
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
