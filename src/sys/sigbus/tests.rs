#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;

use super::super::fork::tests::in_child;
use super::super::mapping::lend;
use super::*;

const LEN: usize = 4 * 65536;

fn mapped(file: &tempfile::NamedTempFile, writable: bool) -> Arc<Mapping> {
    file.as_file().set_len(LEN as u64).unwrap();
    Mapping::file(file.as_file(), LEN, writable).unwrap()
}

fn truncate_and_touch(guarded: bool, writable: bool) -> i32 {
    let file = tempfile::NamedTempFile::new().unwrap();
    // A child has no mapping of its parent's, so it makes its own.
    in_child(|| {
        let map = mapped(&file, writable);
        let words: [_; 2] = [0, LEN - 4].map(|at| lend::<AtomicU32>(&map, at).unwrap());
        install().unwrap();
        let watch = guarded.then(|| watch(&map));
        file.as_file().set_len(4096).unwrap();
        let mut right =
            words[0].load(Acquire) == 0 && watch.as_ref().is_some_and(|it| !it.is_lost());
        right &= words[1].load(Acquire) == 0;
        if writable {
            words[1].store(1, Release);
            right &= words[1].load(Acquire) == 1;
        }
        i32::from(!(right && watch.is_some_and(|it| it.is_lost())))
    })
}

#[test]
fn a_watched_mapping_survives_truncation() {
    assert_eq!(truncate_and_touch(true, true), 0);
    assert_eq!(truncate_and_touch(true, false), 0);
}

#[test]
fn any_other_fault_kills_as_before() {
    assert_eq!(truncate_and_touch(false, true), 128 + libc::SIGBUS);
    let sent = in_child(|| {
        // SAFETY: the default action. (The Rust runtime's handler would swallow the first signal that is sent.)
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        install().unwrap();
        // SAFETY: sends this process a signal.
        unsafe { libc::raise(libc::SIGBUS) }
    });
    assert_eq!(sent, 128 + libc::SIGBUS);
}

#[test]
fn a_handler_that_was_there_is_called() {
    extern "C" fn leave(_: libc::c_int) {
        // SAFETY: ends the process, and is async-signal-safe.
        unsafe { libc::_exit(42) }
    }
    let code = in_child(|| {
        // SAFETY: the handler has the right type.
        unsafe {
            libc::signal(
                libc::SIGBUS,
                leave as extern "C" fn(libc::c_int) as libc::sighandler_t,
            )
        };
        install().unwrap();
        // SAFETY: sends this process a signal.
        unsafe { libc::raise(libc::SIGBUS) }
    });
    assert_eq!(code, 42);
}

#[test]
fn slots_are_given_back_and_may_run_out() {
    let map = Mapping::anonymous(4096).unwrap();
    let watches: Vec<_> = (0..=SLOTS).map(|_| watch(&map)).collect();
    assert!(!watches[SLOTS].is_active() && !watches[SLOTS].is_lost());
    drop(watches);
    assert!(watch(&map).is_active());
}
