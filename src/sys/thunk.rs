//! A closure by value, whatever its type: what it captures lies within it if that is little, so that to keep one allocates
//! nothing.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

/// How much a closure may capture before it is boxed.
pub(super) const WORDS: usize = 4;

/// Where the closure lies. Pointers, as a copy of them keeps what they may point to.
pub(super) type Room = [MaybeUninit<*mut ()>; WORDS];

/// What can be done with a closure whose type is forgotten. Each takes it out of its room, which is empty afterwards.
pub(super) struct Ways {
    /// How many words of its room a closure takes.
    pub(super) words: usize,
    call: unsafe fn(*mut Room),
    discard: unsafe fn(*mut Room),
}

/// Of a room that was emptied.
static NOTHING: Ways = Ways {
    words: 0,
    call: nothing,
    discard: nothing,
};
const EMPTY: &Ways = &NOTHING;

/// # Safety
///
/// None needed.
unsafe fn nothing(_: *mut Room) {}

struct Of<F>(PhantomData<F>);

impl<F: FnOnce()> Of<F> {
    const WAYS: &'static Ways = &Ways {
        words: size_of::<F>().div_ceil(size_of::<*mut ()>()),
        call: Self::call,
        discard: Self::discard,
    };

    /// # Safety
    ///
    /// An `F` lies there, and is never used again.
    unsafe fn call(room: *mut Room) {
        // SAFETY: the caller's promise.
        let closure = unsafe { room.cast::<F>().read() };
        closure();
    }

    /// # Safety
    ///
    /// As [`Self::call`].
    unsafe fn discard(room: *mut Room) {
        // SAFETY: the caller's promise.
        drop(unsafe { room.cast::<F>().read() });
    }
}

/// An `FnOnce() + Send`, called at most once. Dropped uncalled, it drops what it captured.
///
/// Where many are moved, they are moved in their parts: what was stored in small pieces and is loaded in a large one comes
/// only once all of it is in the cache, some five nanoseconds later.
#[repr(C)]
pub struct Thunk {
    room: Room,
    ways: &'static Ways,
}

// SAFETY: it is made of a closure that is Send, and a shared reference to it gives out nothing.
unsafe impl Send for Thunk {}

impl Thunk {
    /// Keeps a closure.
    #[inline]
    pub fn new<F: FnOnce() + Send + 'static>(closure: F) -> Thunk {
        match size_of::<F>() <= size_of::<Room>() && align_of::<F>() <= align_of::<Room>() {
            true => Thunk::within(closure),
            false => {
                let closure = Box::new(closure);
                Thunk::within(closure)
            }
        }
    }

    #[inline]
    fn within<F: FnOnce() + Send + 'static>(closure: F) -> Thunk {
        let mut room: Room = [MaybeUninit::uninit(); WORDS];
        assert!(size_of::<F>() <= size_of::<Room>() && align_of::<F>() <= align_of::<Room>());
        // SAFETY: it is large and aligned enough, by the assertion, and this function's own.
        unsafe { room.as_mut_ptr().cast::<F>().write(closure) };
        let ways = Of::<F>::WAYS;
        Thunk { room, ways }
    }

    /// One that does nothing, and is there to be [filled](Self::fill_from).
    #[inline]
    pub const fn empty() -> Thunk {
        Thunk {
            room: [MaybeUninit::uninit(); WORDS],
            ways: EMPTY,
        }
    }

    /// Writes its parts to `at`, the ways and then as many words as it takes, and says how many words that were. It is empty
    /// afterwards.
    ///
    /// # Safety
    ///
    /// There is room for all of them.
    #[inline(always)]
    pub(super) unsafe fn write_to(&mut self, at: *mut MaybeUninit<*mut ()>) -> usize {
        let ways = std::mem::replace(&mut self.ways, EMPTY);
        let words = ways.words;
        // SAFETY: the caller's promise.
        unsafe {
            at.cast::<&'static Ways>().write(ways);
            for (word, value) in self.room.iter().enumerate() {
                if word < words {
                    at.add(1 + word).write(*value);
                }
            }
        }
        1 + words
    }

    /// Takes over what [`Self::write_to`] wrote, and says how many words that were.
    ///
    /// # Safety
    ///
    /// It is there, and is taken over once; all words that a thunk may have can be read.
    #[inline(always)]
    pub(super) unsafe fn fill_from(&mut self, at: *const MaybeUninit<*mut ()>) -> usize {
        self.discard();
        // SAFETY: the caller's promise.
        unsafe {
            self.room = at.add(1).cast::<Room>().read();
            self.ways = at.cast::<&'static Ways>().read();
        }
        1 + self.ways.words
    }

    /// Drops what it is.
    #[inline(always)]
    fn discard(&mut self) {
        if !ptr::eq(self.ways, EMPTY) {
            self.discard_now();
        }
    }

    #[inline(never)]
    fn discard_now(&mut self) {
        drop(std::mem::replace(self, Thunk::empty()));
    }

    /// Calls it, where it lies. A second time does nothing.
    #[inline]
    pub fn call(&mut self) {
        let ways = std::mem::replace(&mut self.ways, EMPTY);
        // SAFETY: `within` put a closure of this type there, and from here on the room counts as empty.
        unsafe { (ways.call)(&raw mut self.room) };
    }
}

impl Drop for Thunk {
    #[inline]
    fn drop(&mut self) {
        if !ptr::eq(self.ways, EMPTY) {
            // SAFETY: as in `call`; nobody comes after it.
            unsafe { (self.ways.discard)(&raw mut self.room) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// Captures `N` words beside a count, and counts what becomes of it: called adds 1, dropped 100.
    fn counting<const N: usize>(count: &Arc<AtomicUsize>) -> Thunk {
        struct Counts(Arc<AtomicUsize>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(100, SeqCst);
            }
        }
        let (counts, ballast) = (Counts(count.clone()), [7usize; N]);
        Thunk::new(move || {
            assert_eq!(ballast, [7; N]);
            counts.0.fetch_add(1, SeqCst);
        })
    }

    fn both_ends<const N: usize>() {
        let count = Arc::new(AtomicUsize::new(0));
        let mut thunk = counting::<N>(&count);
        let threads = std::thread::spawn(move || {
            thunk.call();
            thunk.call();
        });
        threads.join().unwrap();
        assert_eq!(count.swap(0, SeqCst), 101, "{N}");
        drop(counting::<N>(&count));
        assert_eq!(count.swap(0, SeqCst), 100, "{N}");
        assert_eq!(Arc::strong_count(&count), 1);
    }

    /// Called or dropped, within its room or boxed: what it captured is dropped once.
    #[test]
    fn what_it_captures_is_dropped_once() {
        both_ends::<0>();
        both_ends::<3>();
        both_ends::<4>();
        both_ends::<40>();
    }

    #[test]
    fn a_panic_drops_it_once() {
        let count = Arc::new(AtomicUsize::new(0));
        let inner = counting::<1>(&count);
        let mut thunk = Thunk::new(move || {
            let _inner = inner;
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(catch_unwind(AssertUnwindSafe(|| thunk.call())).is_err());
        assert_eq!(count.load(SeqCst), 100);
    }

    #[test]
    fn more_aligned_than_its_room() {
        #[repr(align(64))]
        struct Wide(u8);
        let (wide, count) = (Wide(3), Arc::new(AtomicUsize::new(0)));
        let seen = count.clone();
        let thunk = Thunk::new(move || {
            let wide = &wide;
            assert_eq!(std::ptr::from_ref(wide) as usize % 64, 0);
            seen.store(wide.0.into(), SeqCst);
        });
        let moved = [thunk];
        moved.into_iter().for_each(|mut thunk| thunk.call());
        assert_eq!(count.load(SeqCst), 3);
    }

    #[test]
    fn nothing_captured() {
        Thunk::new(|| {}).call();
        drop(Thunk::new(|| {}));
    }
}
