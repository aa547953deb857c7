//! The bytes of a segment, and typed views of them.
//!
//! Other processes write to the same bytes at any time, so nothing here hands out a plain reference to data: only types
//! that are [`Shared`], which is to say atomics all through. With them, bytes that somebody scribbled on are wrong values
//! but not undefined behaviour. A file that somebody *truncates* is another matter: touching a page beyond its end raises
//! `SIGBUS`; see [`super::sigbus`].
//!
//! Every mapping is `MADV_DONTFORK`: a forked child has none of it, so that it can neither write nor keep the open file
//! description, and with it the description's locks, alive. Touching a [`Lent`] there is a fault; handles must know that
//! they were forked before they look. *Dropping* one there is fine and unmaps nothing.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::mem::{ManuallyDrop, align_of, size_of};
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};
use rustix::mm::{Advice, madvise};
use shared_memory::{Shmem, ShmemConf, ShmemError};

use super::{file, fork};

/// Types that may be lent from a mapping which other processes write.
///
/// Use [`shared_record!`](crate::sys::mapping::shared_record) for structures: it needs no `unsafe` where it is used.
///
/// # Safety
/// The type consists of atomics, and arrays and structures of them, and nothing else: every bit pattern is valid, others may write at any
/// moment, no pointers, no destructor. For a layout that is the same in all processes it must be `repr(C)` or
/// `repr(transparent)` too.
pub unsafe trait Shared: Sync + 'static {}

// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU8 {}
// SAFETY: an atomic integer.
unsafe impl Shared for AtomicI32 {}
// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU64 {}
// SAFETY: an array of what the bound vouches for.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {}

/// Defines structures that are [`Shared`], each with the `repr` that the caller writes.
///
/// Takes any number of `#[repr(C)] struct Name { fields }` and `#[repr(transparent)] struct Name(Type);`, with attributes
/// and visibilities. That every field is `Shared` is checked at compile time, so the result is by construction. In the model
/// build (`cfg(shmsched_loom)`) only the structures are emitted: model cells are fat and must not live in a mapping.
macro_rules! shared_record {
    () => {};
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $( $(#[$field_attribute:meta])* $field_visibility:vis $field:ident : $kind:ty ),* $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $( $(#[$field_attribute])* $field_visibility $field: $kind, )*
        }
        $crate::sys::mapping::shared_record!(@lend $name: $($kind),*);
        $crate::sys::mapping::shared_record!($($rest)*);
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident (
            $( $(#[$field_attribute:meta])* $field_visibility:vis $kind:ty ),* $(,)?
        );
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        $visibility struct $name( $( $(#[$field_attribute])* $field_visibility $kind, )* );
        $crate::sys::mapping::shared_record!(@lend $name: $($kind),*);
        $crate::sys::mapping::shared_record!($($rest)*);
    };
    (@lend $name:ident: $($kind:ty),*) => {
        #[cfg(not(shmsched_loom))]
        const _: () = {
            const fn every_field_is<T: $crate::sys::mapping::Shared>() {}
            $( every_field_is::<$kind>(); )*
            assert!(!::core::mem::needs_drop::<$name>());
        };
        // SAFETY: every field is `Shared`, as the constant above has just checked, and there is no destructor.
        #[cfg(not(shmsched_loom))]
        #[allow(unsafe_code)]
        unsafe impl $crate::sys::mapping::Shared for $name {}
    };
}
pub(crate) use shared_record;

/// Owns mapped bytes. They stay where they are until the last [`Arc`] of it, in a [`Lent`] or elsewhere, is gone.
pub struct Mapping {
    at: NonNull<u8>,
    len: usize,
    writable: bool,
    /// Who mapped it: in a forked child the addresses may long be somebody else's.
    epoch: u64,
    bytes: ManuallyDrop<Bytes>,
}

/// Kept for their destructors.
enum Bytes {
    Raw(#[allow(dead_code)] MmapRaw),
    Shm(#[allow(dead_code)] Shmem, #[allow(dead_code)] MmapRaw),
}

// SAFETY: the bytes belong to no thread, and are reached through `Shared` types only.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself has no interior that changes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file`, shared with everybody. The mapping keeps the open file description of `file`
    /// alive, and so the locks it holds. In one that is not `writable` use relaxed and acquire *loads* only: any other access faults.
    ///
    /// # Errors
    /// `InvalidInput` for no bytes, `UnexpectedEof` if the file is shorter, else what the kernel says.
    pub fn file(file: &File, len: usize, writable: bool) -> io::Result<Arc<Mapping>> {
        check_len(file, len)?;
        let _still = fork::hold_off();
        let mut options = MmapOptions::new();
        options.len(len);
        let raw = if writable {
            options.map_raw(file)?
        } else {
            options.map_raw_read_only(file)?
        };
        keep_from_children(raw.as_mut_ptr(), len)?;
        Self::new(raw.as_mut_ptr(), len, writable, Bytes::Raw(raw))
    }

    /// Maps `len` zero bytes of this process's own. A forked child has none of them.
    ///
    /// # Errors
    /// `InvalidInput` for no bytes, else what the kernel says.
    pub fn anonymous(len: usize) -> io::Result<Arc<Mapping>> {
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let _still = fork::hold_off();
        let raw = MmapRaw::from(MmapOptions::new().len(len).map_anon()?);
        keep_from_children(raw.as_mut_ptr(), len)?;
        Self::new(raw.as_mut_ptr(), len, true, Bytes::Raw(raw))
    }

    /// Maps the POSIX shared memory object `name` (without a slash), writable. `locked` must be a description of the same
    /// object: the first page is mapped through it as well, so that this mapping keeps `locked`'s description and its locks
    /// alive. Dropping the mapping does not remove the object.
    ///
    /// # Errors
    /// `NotFound` if the name is gone or means another object than `locked` by now; `UnexpectedEof` if it is shorter
    /// than `len`; `InvalidInput` for no bytes or a bad name; else what the kernel says.
    pub fn shm(name: &str, locked: &File, len: usize) -> io::Result<Arc<Mapping>> {
        if name.is_empty() || name.contains(['/', '\0']) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        check_len(locked, len)?;
        let _still = fork::hold_off();
        let mut shm = ShmemConf::new()
            .os_id(format!("/{name}"))
            .open()
            .map_err(shm_error)?;
        shm.set_owner(false);
        keep_from_children(shm.as_ptr(), shm.len())?;
        // The crate keeps its descriptor to itself and opens by name: see what it got.
        if inode_mapped_at(shm.as_ptr() as usize)? != file::identity(locked)?.ino {
            return Err(io::ErrorKind::NotFound.into());
        }
        if shm.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let page = MmapOptions::new()
            .len(len.min(rustix::param::page_size()))
            .map_raw_read_only(locked)?;
        keep_from_children(page.as_mut_ptr(), page.len())?;
        Self::new(shm.as_ptr(), len, true, Bytes::Shm(shm, page))
    }

    fn new(at: *mut u8, len: usize, writable: bool, bytes: Bytes) -> io::Result<Arc<Mapping>> {
        let at = NonNull::new(at).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arc::new(Self {
            at,
            len,
            writable,
            epoch: fork::epoch(),
            bytes: ManuallyDrop::new(bytes),
        }))
    }

    /// How many bytes there are. Never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether stores are allowed.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The address of the first byte.
    pub(super) fn address(&self) -> usize {
        self.at.as_ptr() as usize
    }

    /// Where `count` items of `T` lie, if they lie within and are aligned.
    fn find<T>(&self, offset: usize, count: usize) -> Option<NonNull<T>> {
        let end = size_of::<T>().checked_mul(count)?.checked_add(offset)?;
        if end > self.len || !(self.address() + offset).is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: `offset` is at most `len`, so the result points into the mapping or just past it.
        Some(unsafe { self.at.add(offset) }.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.epoch == fork::epoch() {
            // SAFETY: dropped here and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.bytes) };
        }
    }
}

/// A `T` in a mapping, which it keeps alive. Looking through it is one pointer read.
pub struct Lent<T: ?Sized + 'static> {
    at: NonNull<T>,
    map: Arc<Mapping>,
}

// SAFETY: gives out nothing but `&T`, which may go to any thread when `T: Sync`.
unsafe impl<T: ?Sized + Sync> Send for Lent<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for Lent<T> {}

#[cfg(test)]
impl<T: ?Sized> Lent<T> {
    /// The mapping that it lies in.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }
}

impl<T: ?Sized> Deref for Lent<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `find` checked bounds and alignment, `T` is `Shared`, and `map` keeps the bytes mapped.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Lent<[T]> {
    /// One of them.
    ///
    /// # Panics
    ///
    /// It is not there.
    pub fn one(&self, at: usize) -> Lent<T> {
        Lent {
            at: NonNull::from(&self[at]),
            map: Arc::clone(&self.map),
        }
    }

    /// Some in a row.
    ///
    /// # Panics
    ///
    /// Not all of them are there.
    pub fn part(&self, range: Range<usize>) -> Lent<[T]> {
        Lent {
            at: NonNull::from(&self[range]),
            map: Arc::clone(&self.map),
        }
    }
}

impl<T: ?Sized> Clone for Lent<T> {
    fn clone(&self) -> Self {
        Self {
            at: self.at,
            map: Arc::clone(&self.map),
        }
    }
}

/// Lends the `T` at byte `offset`. `None` if it is out of bounds or misaligned.
pub fn lend<T: Shared>(map: &Arc<Mapping>, offset: usize) -> Option<Lent<T>> {
    Some(Lent {
        at: map.find(offset, 1)?,
        map: Arc::clone(map),
    })
}

/// Lends `count` items of `T` from byte `offset` on. `None` if they are out of bounds or misaligned.
pub fn lend_slice<T: Shared>(map: &Arc<Mapping>, offset: usize, count: usize) -> Option<Lent<[T]>> {
    let at = NonNull::slice_from_raw_parts(map.find(offset, count)?, count);
    Some(Lent {
        at,
        map: Arc::clone(map),
    })
}

fn check_len(file: &File, len: usize) -> io::Result<()> {
    if len == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if file::len(file)? < len as u64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

fn keep_from_children(at: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: this advice changes nothing in this process, and the range is a mapping of the caller's own.
    Ok(unsafe { madvise(at.cast(), len, Advice::LinuxDontFork) }?)
}

/// The inode behind the mapping that starts at `address`, from `/proc/self/maps`.
fn inode_mapped_at(address: usize) -> io::Result<u64> {
    let start = format!("{address:08x}-");
    let maps = fs::read("/proc/self/maps")?;
    maps.split(|byte| *byte == b'\n')
        .find(|line| line.starts_with(start.as_bytes()))
        .and_then(|line| line.split(|byte| *byte == b' ').nth(4))
        .and_then(|inode| str::from_utf8(inode).ok()?.parse().ok())
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn shm_error(error: ShmemError) -> io::Error {
    match error {
        ShmemError::MapOpenFailed(code) | ShmemError::UnknownOsError(code) => i32::try_from(code)
            .map_or_else(
                |_| io::ErrorKind::Other.into(),
                io::Error::from_raw_os_error,
            ),
        other => io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
