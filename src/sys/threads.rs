//! What a thread of this library's own must not do: take signals that are meant for the program.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;

/// Blocks every signal in this thread but those that tell of a fault of its own. The program's threads get them.
pub fn leave_signals_to_others() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call initialises the set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    for fault in [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
        libc::SIGSYS,
    ] {
        // SAFETY: the set is initialised.
        unsafe { libc::sigdelset(set.as_mut_ptr(), fault) };
    }
    // SAFETY: the set is initialised, and the old mask is not asked for. It cannot fail with a valid `how`.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_reach_the_thread() {
        let blocked = std::thread::spawn(|| {
            leave_signals_to_others();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("SigBlk:"));
            u64::from_str_radix(line.unwrap()[7..].trim(), 16).unwrap()
        });
        let blocked = blocked.join().unwrap();
        let has = |signal: i32| blocked >> (signal - 1) & 1 == 1;
        assert!(has(libc::SIGUSR1) && has(libc::SIGTERM) && has(libc::SIGCHLD) && has(40));
        assert!(!has(libc::SIGSEGV) && !has(libc::SIGBUS));
    }
}
