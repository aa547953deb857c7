//! Closures by value in a row, first in, first out: each takes the room that it needs, and stays where it was put until
//! it is taken out.
#![allow(unsafe_code)]

use super::thunk::{Thunk, WORDS};
use std::mem::MaybeUninit;
use std::ptr;

/// Words of a chunk, which with the link makes a page less what the allocator adds: what reads ahead in memory does so
/// within a page.
const CHUNK: usize = 509;
/// Past this one nothing begins: the largest would not fit.
const LAST: usize = CHUNK - 1 - WORDS;
/// So many chunks are kept when nothing is in them.
const KEPT: usize = 4;
/// So many while it is not empty: 16 MB.
const MOST: usize = 4_096;

struct Chunk {
    next: *mut Chunk,
    /// Of each closure its ways, then what it captured. Pointers, as a copy of them keeps what they may point to.
    words: [MaybeUninit<*mut ()>; CHUNK],
}

/// A row of [`Thunk`]s.
pub struct Thunks {
    /// The first and the last chunk with a closure in it, or null; linked.
    head: *mut Chunk,
    tail: *mut Chunk,
    /// Where the first begins in its chunk, and where the next will in the last. Past LAST: in the next chunk.
    read: usize,
    write: usize,
    len: usize,
    /// Chunks for later, linked in the order in which they were used, as they lie in memory; and how many.
    spare: *mut Chunk,
    last_spare: *mut Chunk,
    spares: usize,
}

// SAFETY: it owns its chunks and the closures in them, which are Send.
unsafe impl Send for Thunks {}

impl Thunks {
    /// None.
    pub const fn new() -> Thunks {
        Thunks {
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
            read: 0,
            write: LAST + 1,
            len: 0,
            spare: ptr::null_mut(),
            last_spare: ptr::null_mut(),
            spares: 0,
        }
    }

    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// At the end. The thunk is empty afterwards.
    #[inline]
    pub fn push(&mut self, thunk: &mut Thunk) {
        if self.write > LAST {
            self.begin_chunk();
        }
        // SAFETY: the tail is there, and from `write` on it has room for a whole thunk.
        self.write += unsafe {
            let at = (&raw mut (*self.tail).words).cast::<MaybeUninit<*mut ()>>();
            thunk.write_to(at.add(self.write))
        };
        self.len += 1;
    }

    /// The first, if there is one: `to` takes over what it is.
    #[inline(always)]
    pub fn pop(&mut self, to: &mut Thunk) -> bool {
        if self.len == 0 {
            return false;
        }
        if self.read > LAST {
            self.leave_chunk();
        }
        // SAFETY: a thunk begins there in the head, as `push` wrote it, and is taken over once. A whole one lies within the
        // chunk.
        self.read += unsafe {
            let at = (&raw const (*self.head).words).cast::<MaybeUninit<*mut ()>>();
            to.fill_from(at.add(self.read))
        };
        self.len -= 1;
        true
    }

    #[inline(never)]
    fn begin_chunk(&mut self) {
        let chunk = match self.spare.is_null() {
            true => {
                let words = [MaybeUninit::uninit(); CHUNK];
                let next = ptr::null_mut();
                Box::into_raw(Box::new(Chunk { next, words }))
            }
            false => {
                let chunk = self.spare;
                self.spares -= 1;
                // SAFETY: spare chunks are ours and linked.
                unsafe { self.spare = std::mem::replace(&mut (*chunk).next, ptr::null_mut()) };
                chunk
            }
        };
        match self.tail.is_null() {
            true => (self.head, self.read) = (chunk, 0),
            // SAFETY: the tail is a chunk of ours.
            false => unsafe { (*self.tail).next = chunk },
        }
        (self.tail, self.write) = (chunk, 0);
    }

    /// The head is read to its end, and is not the tail: something is left.
    #[inline(never)]
    fn leave_chunk(&mut self) {
        let chunk = self.head;
        // SAFETY: the head is a chunk of ours, and its successor too.
        unsafe { self.head = std::mem::replace(&mut (*chunk).next, ptr::null_mut()) };
        self.keep(MOST - 1);
        match self.spare.is_null() {
            true => self.spare = chunk,
            // SAFETY: if there are spare chunks, this is one.
            false => unsafe { (*self.last_spare).next = chunk },
        }
        self.last_spare = chunk;
        self.spares += 1;
        self.read = 0;
    }

    /// Gives up chunks with nothing in them, but for a few.
    pub fn trim(&mut self) {
        self.keep(KEPT);
    }

    fn clear(&mut self) {
        let mut thunk = Thunk::empty();
        while self.pop(&mut thunk) {
            drop(std::mem::replace(&mut thunk, Thunk::empty()));
        }
    }

    fn keep(&mut self, most: usize) {
        while self.spares > most {
            let chunk = self.spare;
            self.spares -= 1;
            // SAFETY: it was made by `Box::into_raw`, and nobody else knows it.
            unsafe {
                self.spare = (*chunk).next;
                drop(Box::from_raw(chunk));
            }
        }
    }
}

impl Drop for Thunks {
    fn drop(&mut self) {
        let rest = Rest(self);
        rest.0.clear();
    }
}

/// What is left when one panics while it is dropped; in the end, the chunks.
struct Rest<'a>(&'a mut Thunks);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.clear();
        self.0.keep(0);
        // The one that was written and read last is left.
        if !self.0.head.is_null() {
            // SAFETY: it was made by `Box::into_raw`, and nobody else knows it: it is the tail too.
            drop(unsafe { Box::from_raw(self.0.head) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    fn pop(row: &mut Thunks) -> Option<Thunk> {
        let mut thunk = Thunk::empty();
        row.pop(&mut thunk).then_some(thunk)
    }

    fn push(row: &mut Thunks, out: &Arc<AtomicUsize>, n: usize) {
        let out = out.clone();
        match n % 6 {
            0 => row.push(&mut Thunk::new(move || out.store(n, SeqCst))),
            1 => row.push(&mut Thunk::new(move || out.store(n, SeqCst))),
            2 => {
                let ballast = [n; 2];
                row.push(&mut Thunk::new(move || out.store(ballast[1], SeqCst)));
            }
            3 => {
                let ballast = [n; 3];
                row.push(&mut Thunk::new(move || out.store(ballast[2], SeqCst)));
            }
            4 => {
                let ballast = [n as u8; 3];
                row.push(&mut Thunk::new(move || {
                    out.store(n, SeqCst);
                    assert_eq!(ballast[2], n as u8);
                }));
            }
            _ => {
                let ballast = [n; 30];
                row.push(&mut Thunk::new(move || out.store(ballast[29], SeqCst)));
            }
        }
    }

    #[test]
    fn in_order_whatever_their_size() {
        let (mut row, out) = (Thunks::new(), Arc::new(AtomicUsize::new(0)));
        let (mut pushed, mut popped) = (0, 0);
        for (more, less) in [(1, 1), (500, 100), (3, 402), (1_000, 999), (1, 3), (60, 60)] {
            for _ in 0..more {
                pushed += 1;
                push(&mut row, &out, pushed);
            }
            for _ in 0..less.min(row.len()) {
                popped += 1;
                pop(&mut row).unwrap().call();
                assert_eq!(out.load(SeqCst), popped);
            }
            assert_eq!(row.len(), pushed - popped);
        }
        assert!(pop(&mut row).is_none());
        row.trim();
        assert!(row.spares <= KEPT);
        push(&mut row, &out, 7);
        pop(&mut row).unwrap().call();
        assert_eq!(out.load(SeqCst), 7);
    }

    #[test]
    fn one_that_panics_when_dropped_keeps_no_other() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new(()));
            }
        }
        let (mut row, out) = (Thunks::new(), Arc::new(AtomicUsize::new(0)));
        push(&mut row, &out, 1);
        let panics = Panics;
        row.push(&mut Thunk::new(move || drop(panics)));
        (0..100).for_each(|n| push(&mut row, &out, n));
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(row)));
        assert!(dropped.is_err());
        assert_eq!(Arc::strong_count(&out), 1);
    }

    #[test]
    fn what_is_left_is_dropped() {
        let (mut row, out) = (Thunks::new(), Arc::new(AtomicUsize::new(0)));
        (0..300).for_each(|n| push(&mut row, &out, n));
        (0..70).for_each(|_| drop(pop(&mut row)));
        assert_eq!(Arc::strong_count(&out), 231);
        drop(row);
        assert_eq!(Arc::strong_count(&out), 1);
        drop(Thunks::new());
    }
}
