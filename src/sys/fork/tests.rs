#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use super::*;

/// Runs `child` in a forked process and returns its exit code, or 128 and the signal. The child must not panic or
/// allocate much.
pub fn in_child(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls what it was given and ends with `_exit`; no destructor and no test harness runs there.
    unsafe {
        match libc::fork() {
            -1 => panic!("fork failed"),
            0 => {
                libc::alarm(20);
                libc::_exit(child())
            }
            pid => {
                let mut status = 0;
                while libc::waitpid(pid, &mut status, 0) == -1 {}
                if libc::WIFEXITED(status) {
                    libc::WEXITSTATUS(status)
                } else {
                    128 + libc::WTERMSIG(status)
                }
            }
        }
    }
}

#[derive(Default)]
struct Probe {
    mutex: Mutex<u64>,
    forked: AtomicBool,
    prepared: AtomicU32,
    parents: AtomicU32,
}

impl ForkAware for Probe {
    fn prepare(&self) {
        self.mutex.hold();
        self.prepared.fetch_add(1, SeqCst);
    }
    fn parent(&self) {
        self.parents.fetch_add(1, SeqCst);
        self.mutex.let_go();
    }
    fn child(&self) {
        self.forked.store(true, SeqCst);
        self.mutex.let_go();
    }
}

fn weak(probe: &Arc<Probe>) -> Weak<dyn ForkAware> {
    let aware: Arc<dyn ForkAware> = probe.clone();
    Arc::downgrade(&aware)
}

#[test]
fn both_sides_hear_of_it() {
    let probe = Arc::new(Probe::default());
    register(weak(&probe));
    let before = epoch();
    let code = in_child(|| {
        let told = probe.forked.load(SeqCst) && probe.mutex.try_lock().is_some();
        i32::from(!(told && epoch() == before + 1 && REGISTRY.try_lock().is_some()))
    });
    assert_eq!(code, 0);
    assert_eq!(epoch(), before);
    assert!(!probe.forked.load(SeqCst));
    assert!(probe.parents.load(SeqCst) >= 1); // Other tests fork as well.
    drop(probe.mutex.lock());
}

#[test]
fn a_child_can_fork_again_and_open_afresh() {
    let code = in_child(|| {
        let probe = Arc::new(Probe::default());
        register(weak(&probe));
        in_child(|| i32::from(!probe.forked.load(SeqCst)))
            + 2 * i32::from(probe.forked.load(SeqCst))
    });
    assert_eq!(code, 0);
}

#[test]
fn a_fork_amid_everything_leaves_the_child_no_held_lock() {
    let probe = Arc::new(Probe::default());
    register(weak(&probe));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                register(weak(&Arc::new(Probe::default())));
                let _still = (hold_off(), hold_off());
            }
        });
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                *probe.mutex.lock() += 1;
            }
        });
        for _ in 0..50 {
            let code = in_child(|| {
                *probe.mutex.lock() += 1;
                drop(hold_off());
                i32::from(!probe.forked.load(SeqCst))
            });
            assert_eq!(code, 0);
        }
        stop.store(true, SeqCst);
    });
}

#[test]
fn the_holder_itself_may_fork() {
    let _still = hold_off();
    assert_eq!(in_child(|| i32::from(DEPTH.get() != 1)), 0);
    assert_eq!(DEPTH.get(), 1);
}

#[test]
fn handlers_that_run_twice_act_once() {
    let _still = hold_off(); // Other tests fork as well.
    let probe = Arc::new(Probe::default());
    register(weak(&probe));
    on_prepare();
    on_prepare();
    on_parent();
    on_parent();
    assert_eq!(
        (probe.prepared.load(SeqCst), probe.parents.load(SeqCst)),
        (1, 1)
    );
    assert!(probe.mutex.try_lock().is_some());
}
