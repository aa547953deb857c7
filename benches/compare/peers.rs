//! What people use instead, as bare as it can be called: each takes and gives back once.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::addr_of_mut;
use std::sync::atomic::AtomicI32;

/// A page that processes could share, mapped from a file as a segment is.
pub struct Page(memmap2::MmapMut);

impl Page {
    pub fn open(path: &Path) -> io::Result<Page> {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        file.set_len(4096)?;
        // SAFETY: this program's own file, never cut short while mapped, touched through atomics and libc alone.
        Ok(Page(unsafe { memmap2::MmapMut::map_mut(&file) }?))
    }

    /// A line of its own in it: 128 bytes, zero at first.
    pub fn line<T>(&self, line: usize) -> &UnsafeCell<T> {
        assert!(size_of::<T>() <= 128 && align_of::<T>() <= 128 && line < 32);
        // SAFETY: within the page and aligned; callers ask for types of which zeros are a value.
        unsafe { &*self.0.as_ptr().add(line * 128).cast() }
    }

    /// The same as a number that all may touch.
    pub fn number(&self, line: usize) -> &AtomicI32 {
        // SAFETY: in place of its cell; only touched as this number.
        unsafe { &*self.line::<AtomicI32>(line).get() }
    }
}

fn checked(result: i32) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cold]
fn broken(what: &str) -> ! {
    panic!("{what}: {}", io::Error::last_os_error())
}

#[inline(always)]
fn must(result: i32, what: &str) {
    if result != 0 {
        broken(what);
    }
}

/// A POSIX semaphore that processes share.
pub struct Posix<'a>(&'a UnsafeCell<libc::sem_t>);

impl Posix<'_> {
    pub fn new(page: &Page) -> io::Result<Posix<'_>> {
        let semaphore = Posix(page.line(1));
        // SAFETY: room for one, which nobody uses yet.
        checked(unsafe { libc::sem_init(semaphore.0.get(), 1, 1 << 20) })?;
        Ok(semaphore)
    }

    #[inline(always)]
    pub fn take(&self) {
        // SAFETY: a semaphore that was initialised.
        let done = unsafe { libc::sem_wait(self.0.get()) };
        must(done, "sem_wait");
    }

    #[inline(always)]
    pub fn give(&self) {
        // SAFETY: a semaphore that was initialised.
        let done = unsafe { libc::sem_post(self.0.get()) };
        must(done, "sem_post");
    }
}

/// A mutex that processes share and that survives its owner's death.
pub struct Robust<'a>(&'a UnsafeCell<libc::pthread_mutex_t>);

impl Robust<'_> {
    pub fn new(page: &Page) -> io::Result<Robust<'_>> {
        let mutex = Robust(page.line(2));
        let mut attributes = MaybeUninit::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: attributes that are initialised first, and room for a mutex that nobody uses yet.
        let results = unsafe {
            [
                libc::pthread_mutexattr_init(attributes),
                libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST),
                libc::pthread_mutex_init(mutex.0.get(), attributes),
            ]
        };
        match results.into_iter().find(|result| *result != 0) {
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => Ok(mutex),
        }
    }

    #[inline(always)]
    pub fn take(&self) {
        // SAFETY: a mutex that was initialised and is not held by this thread.
        let done = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        must(done, "lock");
    }

    #[inline(always)]
    pub fn give(&self) {
        // SAFETY: a mutex that this thread holds.
        let done = unsafe { libc::pthread_mutex_unlock(self.0.get()) };
        must(done, "unlock");
    }
}

/// A System V semaphore whose slots the kernel gives back when a process dies.
pub struct Undo(i32);

impl Undo {
    pub fn new() -> io::Result<Undo> {
        // SAFETY: no pointers.
        let id = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
        match id {
            -1 => Err(io::Error::last_os_error()),
            id => Ok(Undo(id)),
        }
    }

    pub fn id(&self) -> i32 {
        self.0
    }

    /// Its slots, once somebody is charged with removing it.
    pub fn fill(&self) -> io::Result<()> {
        // SAFETY: SETVAL takes an integer.
        checked(unsafe { libc::semctl(self.0, 0, libc::SETVAL, 32_000) })
    }

    #[inline(always)]
    fn change(&self, by: i16) {
        let mut change = libc::sembuf {
            sem_num: 0,
            sem_op: by,
            sem_flg: libc::SEM_UNDO as i16,
        };
        // SAFETY: one operation.
        let done = unsafe { libc::semop(self.0, &raw mut change, 1) };
        must(done, "semop");
    }

    #[inline(always)]
    pub fn take(&self) {
        self.change(-1);
    }

    #[inline(always)]
    pub fn give(&self) {
        self.change(1);
    }
}

pub fn remove_semaphore(id: i32) {
    // SAFETY: no pointers.
    let _ = unsafe { libc::semctl(id, 0, libc::IPC_RMID) };
}

/// A whole-file lock of a description.
pub struct Flock(pub File);

impl Flock {
    #[inline(always)]
    pub fn take(&self) {
        // SAFETY: an open descriptor.
        let done = unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_EX) };
        must(done, "flock");
    }

    #[inline(always)]
    pub fn give(&self) {
        // SAFETY: an open descriptor.
        let done = unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
        must(done, "flock");
    }
}

/// A lock of a description on one byte.
pub struct ByteLock(pub File);

impl ByteLock {
    #[inline(always)]
    fn change(&self, kind: i32) {
        let lock = byte(kind, 0);
        // SAFETY: an open descriptor and a lock to read.
        let done = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) };
        must(done, "F_OFD_SETLKW");
    }

    #[inline(always)]
    pub fn take(&self) {
        self.change(libc::F_WRLCK);
    }

    #[inline(always)]
    pub fn give(&self) {
        self.change(libc::F_UNLCK);
    }

    /// Whether anybody else holds that byte.
    pub fn is_held(&self, at: i64) -> bool {
        let mut lock = byte(libc::F_WRLCK, at);
        // SAFETY: an open descriptor and room for the answer.
        let done =
            unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_OFD_GETLK, addr_of_mut!(lock)) };
        must(done, "F_OFD_GETLK");
        i32::from(lock.l_type) != libc::F_UNLCK
    }
}

fn byte(kind: i32, at: i64) -> libc::flock {
    // SAFETY: zeros are a lock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = at;
    lock.l_len = 1;
    lock
}

/// A pipe of tokens, as make has it.
pub struct Tokens(OwnedFd, OwnedFd);

impl Tokens {
    pub fn new() -> io::Result<Tokens> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
        // SAFETY: new descriptors, nobody else's.
        let tokens =
            unsafe { Tokens(OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        (0..16).for_each(|_| tokens.give());
        Ok(tokens)
    }

    #[inline(always)]
    pub fn take(&self) {
        let mut token = 0u8;
        // SAFETY: an open descriptor and room for a byte.
        let got = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut token).cast(), 1) };
        must(i32::from(got != 1), "read");
    }

    #[inline(always)]
    pub fn give(&self) {
        let token = b'+';
        // SAFETY: an open descriptor and a byte.
        let put = unsafe { libc::write(self.1.as_raw_fd(), (&raw const token).cast(), 1) };
        must(i32::from(put != 1), "write");
    }
}
