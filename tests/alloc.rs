//! The fast path allocates nothing and makes no system call (Q9). A binary of its own, since it counts allocations.
#![allow(unsafe_code)]

use shmsched::trace::{Trace, Writer};
use shmsched::{Concurrency, Location, Priority, Scheduler, Segment, Settings};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const NORMAL: Priority = Priority::Normal;
const PAIRS: usize = 10_000;

/// The system's allocator, counting per thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: everything is the system allocator's; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(f: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    f();
    COUNT.get() - before
}

fn pairs(scheduler: &Scheduler, pairs: usize) {
    for n in 0..pairs {
        drop(scheduler.try_acquire(Priority::ALL[n % 7]).unwrap());
    }
}

/// A local scheduler, one over a segment, one with targets of its own, and those whose tracing is off.
fn kinds() -> Vec<(&'static str, Scheduler)> {
    let directory = tempfile::tempdir().unwrap();
    let location = Location::File(directory.path().join("segment"));
    let settings = Settings::new().concurrency(Concurrency::max(4).target(Priority::Low, 2));
    Segment::make(&location, &settings).unwrap();
    let shared = Segment::open(&location).unwrap().scheduler().unwrap();
    // The file must keep its name.
    std::mem::forget(directory);
    let lowered = shared.with(3);
    let silent = Writer::new(|_, _| unreachable!("it is off"));
    silent.switch(false);
    vec![
        ("untraced", shared.with_trace(Trace::Disabled)),
        ("silent", shared.with_trace(Trace::Writer(silent))),
        ("local", Scheduler::local(4).unwrap()),
        ("shared", shared),
        ("lowered", lowered),
    ]
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(std::hint::black_box(Box::new(1)))) >= 2);
}

#[test]
fn q9_try_acquire_and_drop_allocate_nothing() {
    for (kind, scheduler) in kinds() {
        pairs(&scheduler, 10);
        let count = allocations(|| pairs(&scheduler, PAIRS));
        assert_eq!(count, 0, "{kind}");
    }
}

#[test]
fn q9_the_other_ways_in_allocate_nothing() {
    for (kind, scheduler) in kinds() {
        pairs(&scheduler, 10);
        let count = allocations(|| {
            for _ in 0..PAIRS {
                drop(scheduler.blocking_acquire(NORMAL).unwrap());
                drop(scheduler.try_acquire_many(2, NORMAL).unwrap());
                drop(scheduler.try_acquire_owned(NORMAL).unwrap());
                scheduler.run_blocking(|| (), NORMAL).unwrap();
                assert!(scheduler.acquire_with(drop, NORMAL, ()));
                scheduler.release().unwrap();
                let mut future = std::pin::pin!(scheduler.acquire(NORMAL));
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                assert!(future.as_mut().poll(&mut context).is_ready());
            }
        });
        assert_eq!(count, 0, "{kind}");
    }
}

const SEALED: &str = "SHMSCHED_TEST_SEALED";

/// The child seals itself: whatever system call but write and exit kills it.
fn sealed(kind: &str) {
    let (_, scheduler) = kinds().into_iter().find(|(name, _)| *name == kind).unwrap();
    pairs(&scheduler, 10);
    // A filter and not the strict mode, which forbids the processor's counter too: every 1,024th acquire reads a clock.
    let statement = |code: u32, jt, jf, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (load, equal, ret) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let mut filter = [
        statement(load, 0, 0, number),
        statement(equal, 2, 0, libc::SYS_write as u32),
        statement(equal, 1, 0, libc::SYS_exit as u32),
        statement(ret, 0, 0, libc::SECCOMP_RET_KILL_THREAD),
        statement(ret, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: plain system calls on numbers, and on a program that outlives them; after the seal the thread only computes
    // and exits.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program
            ),
            0
        );
    }
    // Every 1,024th acquire asks whether the file still has its name, which is documented; a local one has none.
    pairs(&scheduler, if kind == "local" { PAIRS } else { 1_000 });
    let done = b"no system call\n";
    // SAFETY: as above; the buffer lives. `exit` ends this thread, the process's only other one waits for it.
    unsafe {
        libc::write(1, done.as_ptr().cast(), done.len());
        libc::syscall(libc::SYS_exit, 0);
    }
}

#[test]
fn q9_the_fast_path_makes_no_system_call() {
    if let Ok(kind) = env::var(SEALED) {
        return sealed(&kind);
    }
    for kind in ["local", "shared", "lowered", "untraced", "silent"] {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([
                "q9_the_fast_path_makes_no_system_call",
                "--exact",
                "--nocapture",
            ])
            .env(SEALED, kind)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The test's thread is gone without a word, so the harness would wait for it for ever.
        let mut printed = Vec::new();
        let mut stdout = child.stdout.take().unwrap();
        let reads = std::thread::spawn(move || {
            let mut byte = [0; 256];
            while let Ok(n @ 1..) = std::io::Read::read(&mut stdout, &mut byte) {
                printed.extend_from_slice(&byte[..n]);
                if printed.windows(14).any(|text| text == b"no system call") {
                    break;
                }
            }
            String::from_utf8_lossy(&printed).into_owned()
        });
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !reads.is_finished() && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        child.kill().unwrap();
        let status = child.wait().unwrap();
        let printed = reads.join().unwrap();
        assert!(
            printed.contains("no system call"),
            "{kind}: {printed} {:?}",
            status.signal()
        );
    }
}
