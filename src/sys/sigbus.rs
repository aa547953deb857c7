//! Survives a segment file that somebody truncated.
//!
//! Touching a mapped page beyond the end of its file raises `SIGBUS`, which kills. With the handler [installed](install),
//! a fault in a [watched](watch) mapping puts an anonymous page of zeros there, marks the mapping lost and goes on; all
//! other faults do what they did before. A signal action belongs to the whole process, so in a library this is opt-in.
//!
//! The handler makes system calls and atomic accesses only. Ranges lie in a fixed table; each slot's word is
//! generation << 2 | state:
//!
//! | state | meaning | next |
//! | --- | --- | --- |
//! | FREE | no range | SETTING, by [`watch`] |
//! | SETTING | its fields are being written | WATCHED, by the same |
//! | WATCHED | range is valid | LOST by the handler; FREE of the next generation by the drop |
//! | LOST | range is valid, a fault was caught | FREE of the next generation by the drop |
//!
//! The handler changes the word by compare-exchange on what it read before the fields, so a slot that was reused meanwhile
//! is not marked.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use super::fork;
use super::mapping::Mapping;
use super::mutex::Mutex;

const SLOTS: usize = 64;
const FREE: u64 = 0;
const SETTING: u64 = 1;
const WATCHED: u64 = 2;
const LOST: u64 = 3;
const STATE: u64 = 3;
const ONE_GENERATION: u64 = 4;

struct Slot {
    word: AtomicU64,
    start: AtomicUsize,
    len: AtomicUsize,
    epoch: AtomicU64,
    writable: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        word: AtomicU64::new(FREE),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        epoch: AtomicU64::new(0),
        writable: AtomicBool::new(false),
    }
}; SLOTS];

static INSTALLING: Mutex<bool> = Mutex::new(false);
/// Read by the handler, so known before it is installed.
static PAGE: AtomicUsize = AtomicUsize::new(0);
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once per process; later calls do nothing. What the process had installed before is called for
/// faults that are not ours.
///
/// # Errors
/// Those of `sigaction`.
pub fn install() -> io::Result<()> {
    // A fork meanwhile would leave the child a mutex that nobody there lets go of.
    let _still = super::fork::hold_off();
    let mut installed = INSTALLING.lock();
    if *installed {
        return Ok(());
    }
    PAGE.store(rustix::param::page_size(), Relaxed);
    // SAFETY: all zeros is a valid sigaction: default action, empty mask, no flags.
    let (mut action, mut before) = unsafe { mem::zeroed::<(libc::sigaction, libc::sigaction)>() };
    // SAFETY: a null new action only asks, and `before` may be written.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let _ = BEFORE.set(before);
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler has the type that SA_SIGINFO asks for and is async-signal-safe.
    if unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *installed = true;
    Ok(())
}

/// Guards `map` for as long as the result lives, if the handler is or gets [installed](install). At most 64 mappings are
/// guarded at a time; for one more the result watches nothing.
pub fn watch(map: &Arc<Mapping>) -> Watch {
    let epoch = fork::epoch();
    let slot = TABLE.iter().enumerate().find_map(|(index, slot)| {
        let word = slot.word.load(Relaxed);
        if word & STATE != FREE
            || slot
                .word
                .compare_exchange(word, word | SETTING, Acquire, Relaxed)
                .is_err()
        {
            return None;
        }
        slot.start.store(map.address(), Relaxed);
        slot.len.store(map.len(), Relaxed);
        slot.epoch.store(epoch, Relaxed);
        slot.writable.store(map.is_writable(), Relaxed);
        slot.word.store(word | WATCHED, Release);
        Some(index)
    });
    Watch {
        slot,
        _map: Arc::clone(map),
    }
}

/// Keeps a mapping guarded and alive. See [`watch`].
#[must_use]
pub struct Watch {
    slot: Option<usize>,
    _map: Arc<Mapping>,
}

impl Watch {
    /// Whether a fault in the mapping was caught. From then on a page of it, and what this process wrote there, is nobody
    /// else's: stop using the segment.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.slot
            .is_some_and(|index| TABLE[index].word.load(Relaxed) & STATE == LOST)
    }

    #[cfg(test)]
    /// Whether the mapping has a place in the table.
    pub fn is_active(&self) -> bool {
        self.slot.is_some()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(index) = self.slot {
            let word = TABLE[index].word.load(Relaxed);
            TABLE[index]
                .word
                .store((word & !STATE).wrapping_add(ONE_GENERATION) | FREE, Release);
        }
    }
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo, and for a positive code of SIGBUS it has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // SAFETY: errno is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    if code <= 0 || !rescue(address) {
        as_before(signal, info, context, code <= 0);
    }
    // SAFETY: as above. What was interrupted must not see ours.
    unsafe { *libc::__errno_location() = errno };
}

/// Puts a page of zeros under `address` if it lies in a watched mapping of this very process.
fn rescue(address: usize) -> bool {
    let epoch = fork::epoch_in_handler();
    for slot in &TABLE {
        let word = slot.word.load(Acquire);
        if word & STATE < WATCHED || slot.epoch.load(Relaxed) != epoch {
            continue;
        }
        if address.wrapping_sub(slot.start.load(Relaxed)) >= slot.len.load(Relaxed) {
            continue;
        }
        let protection = libc::PROT_READ
            | if slot.writable.load(Relaxed) {
                libc::PROT_WRITE
            } else {
                0
            };
        let marked = word & !STATE | LOST;
        match slot.word.compare_exchange(word, marked, AcqRel, Relaxed) {
            Ok(_) => {}
            Err(seen) if seen == marked => {}
            Err(_) => continue,
        }
        let page = PAGE.load(Relaxed);
        let start = address & !(page - 1);
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: replaces one page of a mapping that is alive, as a thread is touching it, and holds atomics only.
        let new = unsafe { libc::mmap(start as *mut libc::c_void, page, protection, flags, -1, 0) };
        if new == libc::MAP_FAILED {
            return false;
        }
        // SAFETY: the page was mapped just above; the advice changes nothing in this process.
        let _ = unsafe { libc::madvise(new, page, libc::MADV_DONTFORK) };
        return true;
    }
    false
}

/// Does what the process would have done without us. `sent`: by kill(2) and the like, not by a fault.
fn as_before(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    sent: bool,
) {
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        libc::SIG_IGN if sent => {}
        libc::SIG_IGN | libc::SIG_DFL => {
            // SAFETY: all zeros is the default action. A fault happens again on return, and then kills; the kernel
            // does not let a fault be ignored either. A sent signal is pending until return.
            unsafe {
                let action = mem::zeroed::<libc::sigaction>();
                libc::sigaction(signal, &action, ptr::null_mut());
                if sent {
                    libc::raise(signal);
                }
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the process installed this address as a three-argument handler.
            unsafe {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    mem::transmute(handler);
                handler(signal, info, context);
            }
        }
        handler => {
            // SAFETY: the process installed this address as a one-argument handler.
            unsafe {
                let handler: extern "C" fn(libc::c_int) = mem::transmute(handler);
                handler(signal);
            }
        }
    }
}

#[cfg(test)]
mod tests;
