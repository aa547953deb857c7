//! Callers that panic, release too often, or die in their own destructors.

use crate::puppet::Puppet;
use crate::support::{Args, Child, Scene, Words, quiet, say, until};
use shmsched::{AcquireError, NothingHeld, Priority, Segment};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const NORMAL: Priority = Priority::Normal;

fn quietly<T>(f: impl FnOnce() -> T) -> std::thread::Result<T> {
    // resume_unwind does not call the hook: no thousand backtraces.
    catch_unwind(AssertUnwindSafe(f))
}

fn block(future: impl Future<Output = Result<(), AcquireError>>) -> Result<(), AcquireError> {
    futures_executor::block_on(future)
}

fn panics() -> ! {
    std::panic::resume_unwind(Box::new("as the test wants"))
}

#[test]
fn case_26_one_release_too_many_is_refused() {
    let scene = Scene::new();
    let location = scene.segment(2);
    let mut other = Puppet::new(&location);
    other.take("one", 1);
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let words = Words::of(&location);
    assert_eq!(scheduler.release(), Err(NothingHeld));
    assert_eq!(words.running(), 1, "the other's slot is its own");
    assert!(scheduler.acquire_with(|()| {}, NORMAL, ()));
    assert_eq!(scheduler.release(), Ok(()));
    assert_eq!(scheduler.release(), Err(NothingHeld));
    assert_eq!(words.running(), 1);
    // A callback that panics while it holds gives back once.
    let panicked = quietly(|| scheduler.acquire_with(|()| panics(), NORMAL, ()));
    assert!(panicked.is_err());
    assert_eq!(scheduler.release(), Err(NothingHeld));
    assert_eq!(words.running(), 1);
    other.drop("one");
    quiet(&location, 2);
}

#[test]
fn case_26_a_million_pairs_do_not_drift() {
    let scene = Scene::new();
    let location = scene.segment(2);
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..500_000 {
                    drop(scheduler.try_acquire(NORMAL).unwrap());
                }
            });
        }
    });
    let words = Words::of(&location);
    assert_eq!(
        (words.running(), words.summary(), scheduler.stats().running),
        (0, 0, 0)
    );
    quiet(&location, 2);
}

/// Role: PATH. Panics in a destructor while it unwinds: the process aborts, holding.
pub fn panics_in_drop(args: &Args) {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let _held = scheduler.try_acquire(NORMAL).unwrap();
    say("held");
    let _bad = Bad;
    panic!("once");
}

/// Role: PATH. Aborts, as a build with `panic = "abort"` would.
pub fn aborts(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let _held = scheduler.try_acquire(NORMAL).unwrap();
    say("held");
    std::process::abort();
}

#[test]
fn case_44_an_aborted_process_gives_back_once() {
    let scene = Scene::new();
    let location = scene.segment(2);
    let path = location.path();
    for role in ["panics_in_drop", "aborts"] {
        let mut other = Puppet::new(&location);
        let mut child = Child::start(role, &[&path.to_string_lossy()]);
        child.expect("held");
        assert!(!child.wait().success());
        until(Duration::from_secs(2), "reclaimed", || {
            let both = other.ask("try both 3 2") == "yes";
            if both {
                assert_eq!(other.ask("try more 3 1"), "no");
                other.drop("both");
            }
            both
        });
        quiet(&location, 2);
    }
}

#[test]
fn case_44_failing_work_gives_its_slot_back() {
    const TIMES: usize = 1_000;
    let scene = Scene::new();
    let location = scene.segment(2);
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    for _ in 0..TIMES {
        assert!(quietly(|| scheduler.run_blocking(|| panics(), NORMAL).map(drop)).is_err());
        assert!(
            quietly(|| block(async { scheduler.run(|| async { panics() }, NORMAL).await }))
                .is_err()
        );
        let after_an_await = || {
            block(async {
                let work = || async {
                    std::future::ready(()).await;
                    panics()
                };
                scheduler.run(work, NORMAL).await
            })
        };
        assert!(quietly(after_an_await).is_err());
        assert!(
            quietly(|| block(scheduler.run::<(), std::future::Ready<()>>(|| panics(), NORMAL)))
                .is_err()
        );
        let fails = || Err::<(), _>("no");
        assert_eq!(scheduler.run_blocking(fails, NORMAL), Ok(Err("no")));
        if scheduler.stats().running != 0 {
            panic!("a failure kept its slot");
        }
    }
    let spawns = || {
        std::process::Command::new("/nowhere/at/all")
            .spawn()
            .is_err()
    };
    assert_eq!(scheduler.run_blocking(spawns, NORMAL), Ok(true));
    // More than the system takes as one argument.
    let too_long = || {
        let spawned = std::process::Command::new("true")
            .arg("x".repeat(200_000))
            .spawn();
        spawned.unwrap_err().raw_os_error()
    };
    assert_eq!(
        scheduler.run_blocking(too_long, NORMAL),
        Ok(Some(libc::E2BIG))
    );
    assert_eq!(scheduler.available_permits(), 2);
    quiet(&location, 2);
}
