//! Kernel and bytes. Knows nothing of what a segment means, and is the only place with `unsafe`.
//!
//! | module | facility | why |
//! | --- | --- | --- |
//! | [`biased`], [`bias`] | a mutex whose usual user takes no locked instruction | the queue of a member is mostly one thread's |
//! | [`clock`] | `CLOCK_MONOTONIC` less the time-namespace offset | stamps in a segment agree in every container of one boot |
//! | [`file`](mod@file) | careful open, publish complete under a name | a file under its name is whole, its blocks are reserved |
//! | [`fork`] | `pthread_atfork`, hold-off, epoch | a child must not use, unmap or keep alive what its parent holds |
//! | [`futex`] | shared `FUTEX_WAIT_BITSET`, `FUTEX_WAKE_BITSET` | a wake must cross processes and a wait must end in time |
//! | [`lock`] | open-file-description byte locks | the kernel drops them at death: liveness without pids |
//! | [`mapping`] | `mmap` with `MADV_DONTFORK`, checked lending | typed atomics over bytes that others write |
//! | [`membarrier`] | global expedited barrier | a fence for other threads and processes, paid by the rare side only |
//! | [`mutex`] | process-private futex mutex | can be held across a fork and let go in the child |
//! | [`pidfd`] | `pidfd_open`, `ppoll` | the end of another process can be slept for |
//! | [`process`] | `/proc` | who is it, does it still run, what is it called (display, never a decision about liveness) |
//! | [`sigbus`] | opt-in `SIGBUS` handler | a truncated segment is an error, not a death |
//!
//! rustix makes the calls wherever it has them; libc serves for open-file-description locks, `pthread_atfork`, signal
//! actions, and a poll of numbers that may not be descriptors any more. [`thunk`] and [`thunks`] are no kernel's affair:
//! queued callbacks by value, in a few lines of unsafe code.

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("shmsched needs 64-bit Linux (5.10 or later) on x86-64 or aarch64");

pub mod bias;
pub mod biased;
pub mod clock;
pub mod file;
pub mod fork;
pub mod futex;
pub mod lock;
pub mod mapping;
pub mod membarrier;
pub mod mutex;
pub mod pidfd;
pub mod process;
mod publish;
pub mod sigbus;
pub mod threads;
pub mod thunk;
pub mod thunks;
