//! Test only (feature `crash-hook`): the process kills itself after the n-th write to a cell.

use std::sync::atomic::{AtomicI64, Ordering};

/// Writes left until death; negative: nobody dies, and the writes are counted downwards from -1.
static LEFT: AtomicI64 = AtomicI64::new(i64::MIN);

/// From now on, die by SIGKILL right after the `n`-th write (1 is the next one); `None` only counts.
pub fn arm(n: Option<u64>) {
    LEFT.store(n.map_or(-1, |n| n as i64), Ordering::SeqCst);
}

/// Writes since `arm(None)`.
pub fn counted() -> u64 {
    (-1 - LEFT.load(Ordering::SeqCst)).max(0) as u64
}

#[inline]
pub(super) fn wrote() {
    if LEFT.load(Ordering::Relaxed) == i64::MIN {
        return;
    }
    if LEFT.fetch_sub(1, Ordering::SeqCst) == 1 {
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}
