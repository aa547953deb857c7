//! What a fork without exec does: prefork servers.
#![allow(unsafe_code)]

use crate::puppet::Puppet;
use crate::support::{Args, Child, LONG, Scene, hear, quiet, say, until};
use shmsched::{AcquireError, Priority, Scheduler, Segment};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;

/// Runs `inside` in a forked child, which ends without running anything else. The child's pid.
pub fn fork(inside: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child runs only `inside`, which the tests keep to our library, memory and writes to a descriptor, and
    // ends by _exit; the allocator and our library have fork handlers of their own.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: no child outlives the test for long, whatever happens.
        unsafe { libc::alarm(60) };
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(inside)).unwrap_or(101);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(code)) };
    }
    pid
}

/// Waits for a forked child: its exit code, or 256 and more if a signal ended it, or nothing if it hangs.
pub fn reap(pid: i32, time: Duration) -> Option<i32> {
    let begun = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: `status` may be written.
        let found = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
        if found == pid {
            return Some(match libc::WIFEXITED(status) {
                true => libc::WEXITSTATUS(status),
                false => 256 + libc::WTERMSIG(status),
            });
        }
        if begun.elapsed() > time {
            // SAFETY: it is our child, and not reaped.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Role: PATH. Takes 2 of 2 and forks three children that only sleep.
pub fn prefork(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let _held = scheduler.try_acquire_many(2, NORMAL).unwrap();
    let pids: Vec<String> = (0..3)
        .map(|_| {
            fork(|| {
                std::thread::sleep(Duration::from_secs(50));
                0
            })
            .to_string()
        })
        .collect();
    say(format!("forked {}", pids.join(" ")));
    hear();
}

#[test]
fn case_05_forked_children_do_not_keep_a_dead_parent_alive() {
    let scene = Scene::new();
    let location = scene.segment(2);
    let path = location.path();
    let mut parent = Child::start("prefork", &[&path.to_string_lossy()]);
    let children = parent.expect("forked");
    let alive = |pid: &str| std::path::Path::new(&format!("/proc/{pid}")).exists();
    let mut other = Puppet::new(&location);
    assert!(!other.could_take());
    parent.kill();
    until(Duration::from_secs(2), "granted", || other.could_take());
    assert!(children.split(' ').all(alive), "the children live on");
    quiet(&location, 2);
    for pid in children.split(' ') {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Role: PATH. A forked child uses all that it inherited. It must be told so, and change nothing.
pub fn inherit(args: &Args) {
    let location = args.location();
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let owned = scheduler.try_acquire_owned(NORMAL).unwrap();
    let borrowed = scheduler.try_acquire(NORMAL).unwrap();
    scheduler.acquire_with(|()| {}, NORMAL, ());
    let waiting = scheduler.acquire_many(3, NORMAL);
    let mut waiting = Box::pin(waiting);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    let forked = Err(AcquireError::Forked);
    // One thing per child: the first bad one would hide the others.
    let step = |name: &str, inside: &mut dyn FnMut() -> bool| {
        let pid = fork(|| u8::from(!inside()));
        let ended = reap(pid, LONG);
        say(match ended {
            Some(0) => format!("step {name} good"),
            other => format!("step {name} bad {other:?}"),
        });
    };
    step("try", &mut || {
        scheduler.try_acquire(NORMAL).map(drop) == forked.clone().map_err(Into::into)
    });
    step("blocking", &mut || {
        scheduler.blocking_acquire(NORMAL).map(drop) == forked
    });
    step("other_thread", &mut || {
        let scheduler = scheduler.clone();
        std::thread::spawn(move || scheduler.blocking_acquire(NORMAL).map(drop) == forked_error())
            .join()
            .unwrap()
    });
    step("poll", &mut || {
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        matches!(
            waiting.as_mut().poll(&mut context),
            std::task::Poll::Ready(Err(AcquireError::Forked))
        )
    });
    step("callback", &mut || {
        !scheduler.acquire_with(|()| {}, NORMAL, ())
    });
    step("release", &mut || {
        let _ = scheduler.release();
        true
    });
    step("close", &mut || {
        scheduler.close();
        scheduler.dispose();
        true
    });
    step("stats", &mut || {
        scheduler.stats().running == 0 && scheduler.available_permits() == 0
    });
    step("look", &mut || {
        segment.look().dead == 0 && scheduler.look().dead == 0
    });
    step("scheduler", &mut || segment.scheduler().is_ok());
    step("set", &mut || {
        segment
            .set(&shmsched::Changes::new().concurrency(Some(9)))
            .is_err()
    });
    step("differs", &mut || {
        let _ = segment.differs(&shmsched::Settings::new().concurrency(7));
        true
    });
    step("evict", &mut || segment.evict(0).is_err());
    step("keep", &mut || segment.keep_for_child().is_err());
    step("idle", &mut || {
        segment.wait_idle(Duration::from_millis(10)) == forked
    });
    step("debug", &mut || {
        let text = format!(
            "{segment:?} {scheduler:?} {:?} {:?}",
            segment.id(),
            segment.member()
        );
        !text.is_empty()
    });
    let mut inherited = Some((owned, borrowed, waiting));
    // A drop in the child: the parent's stay.
    let pid = fork(|| {
        drop(inherited.take());
        let fresh = Segment::open(&location).unwrap();
        let own = fresh.scheduler().unwrap();
        // More urgent than the parent's waiter, which may bar others.
        let refused = own.try_acquire_many(2, Priority::High).is_err();
        let one = own.try_acquire(Priority::High).is_ok();
        u8::from(!(refused && one && fresh.member() != segment.member()))
    });
    say(match reap(pid, LONG) {
        Some(0) => "step drop_and_open good".to_owned(),
        other => format!("step drop_and_open bad {other:?}"),
    });
    say(format!("running {}", scheduler.stats().running));
    say("done");
    drop(inherited);
    scheduler.release().unwrap();
}

fn forked_error() -> Result<(), AcquireError> {
    Err(AcquireError::Forked)
}

#[test]
fn case_05_inherited_handles_say_forked() {
    let scene = Scene::new();
    let location = scene.segment(4);
    let path = location.path();
    let mut parent = Child::start("inherit", &[&path.to_string_lossy()]);
    let running = parent.expect("running");
    parent.expect("done");
    let mut bad = Vec::new();
    let mut steps = 0;
    while let Ok(step) = parent.listen_for("step", Duration::ZERO) {
        steps += 1;
        if !step.ends_with("good") {
            bad.push(step);
        }
    }
    assert_eq!((steps, bad), (17, Vec::<String>::new()));
    assert_eq!(running, "3", "the parent's own slots, untouched");
    parent.finish();
    quiet(&location, 4);
}

/// Role: PATH. Forks while other threads are inside acquire, release, wait and open.
pub fn fork_amid(args: &Args) {
    let location = args.location();
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let stop = AtomicBool::new(false);
    let mut bad = 0;
    std::thread::scope(|scope| {
        for thread in 0..3usize {
            let (scheduler, location, stop) = (&scheduler, &location, &stop);
            scope.spawn(move || {
                let mut turn = thread;
                while !stop.load(Ordering::Relaxed) {
                    turn += 1;
                    match (thread, turn % 8) {
                        (0, 0) => drop(Segment::open(location)),
                        (1, _) => drop(futures_executor::block_on(scheduler.acquire(NORMAL))),
                        _ => drop(scheduler.blocking_acquire(NORMAL)),
                    }
                }
            });
        }
        for _ in 0..args.number(1) {
            let pid = fork(|| {
                let fresh = Segment::open(&location).unwrap();
                let own = fresh.scheduler().unwrap();
                let got = own.blocking_acquire_until(1, NORMAL, LONG).is_ok();
                let told = scheduler.try_acquire(NORMAL).is_err();
                u8::from(!(got && told))
            });
            let ended = reap(pid, LONG);
            if ended != Some(0) {
                say(format!("child {ended:?}"));
                bad += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    say(format!("done {bad}"));
}

#[test]
fn case_05_a_fork_amid_an_acquire_leaves_a_child_that_can_open() {
    let scene = Scene::new();
    let location = scene.segment(2);
    let path = location.path();
    let mut parent = Child::start("fork_amid", &[&path.to_string_lossy(), "40"]);
    let bad = parent.expect("done");
    assert_eq!(bad, "0");
    parent.finish();
    quiet(&location, 2);
}

/// A queue that one thread drains, so often in a row that it needs no lock, goes on over forks by another thread and by
/// callbacks; and a child can use its own.
#[test]
fn forks_while_a_queue_drains() {
    const MANY: usize = 20_000;
    let own = Scheduler::local(1).unwrap();
    let (ran, done) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
    let in_child = |parents: &Scheduler| {
        let refused = parents.try_acquire(NORMAL).is_err();
        let fresh = Scheduler::local(1).unwrap();
        u8::from(!refused || fresh.try_acquire(NORMAL).is_err())
    };
    let mut children = Vec::new();
    std::thread::scope(|scope| {
        let forking = scope.spawn(|| {
            let mut children = Vec::new();
            while !done.load(Ordering::SeqCst) && children.len() < 30 {
                children.push(fork(|| in_child(&own)));
                std::thread::sleep(Duration::from_millis(1));
            }
            children
        });
        let (give, given) = std::sync::mpsc::channel();
        own.acquire_with(drop, NORMAL, ());
        for n in 0..MANY {
            let (again, ran, give) = (own.clone(), ran.clone(), give.clone());
            let callback = move |()| {
                ran.fetch_add(1, Ordering::SeqCst);
                if n % 5_000 == 2_500 {
                    give.send(fork(|| in_child(&again))).unwrap();
                }
                again.release().unwrap();
            };
            assert!(!own.acquire_with(callback, NORMAL, ()));
        }
        own.release().unwrap();
        done.store(true, Ordering::SeqCst);
        drop(give);
        children.extend(given);
        children.extend(forking.join().unwrap());
    });
    assert_eq!(ran.load(Ordering::SeqCst), MANY);
    assert_eq!(own.stats().running, 0);
    for child in children {
        assert_eq!(reap(child, LONG), Some(0));
    }
}

/// Role: PATH N. The N-th of five callbacks in a row gives its slot back, and forks; the child returns from it. Says how many ran
/// in the child, and what its release said.
pub fn fork_in_callback(args: &Args) {
    let scheduler = Segment::open(&args.location())
        .unwrap()
        .scheduler()
        .unwrap();
    let (parent, at) = (std::process::id(), args.number(1));
    let (ran, child) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    assert!(scheduler.acquire_with(drop, NORMAL, ()));
    // The child has nothing to give back of what its parent holds.
    let gave = reap(fork(|| u8::from(scheduler.release().is_ok())), LONG);
    assert_eq!(gave, Some(0));
    for n in 0..5 {
        let (own, ran, child) = (scheduler.clone(), ran.clone(), child.clone());
        let callback = move |n| {
            ran.fetch_add(1, Ordering::SeqCst);
            let _ = own.release();
            if n == at {
                // SAFETY: the child runs only our library and memory, and ends by _exit below.
                let pid = unsafe { libc::fork() };
                child.store(pid as usize, Ordering::SeqCst);
                if pid == 0 {
                    ran.store(0, Ordering::SeqCst);
                }
            }
        };
        assert!(!scheduler.acquire_with(callback, NORMAL, n));
    }
    let _ = scheduler.release();
    if std::process::id() != parent {
        let refused = scheduler.release().is_err();
        let code = ran.load(Ordering::SeqCst) as i32 * 2 + i32::from(!refused);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let code = reap(child.load(Ordering::SeqCst) as i32, LONG);
    say(format!("ran {} {code:?}", ran.load(Ordering::SeqCst)));
}

/// Whether the next has its turn already, or is to have it when the callback returns: not in the child.
#[test]
fn case_05_a_child_that_returns_from_a_callback_runs_no_other() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let path = location.path();
    for at in ["0", "1", "4"] {
        let mut parent = Child::start("fork_in_callback", &[&path.to_string_lossy(), at]);
        assert_eq!(parent.expect("ran"), "5 Some(0)", "{at}");
        parent.finish();
        quiet(&location, 1);
    }
}
