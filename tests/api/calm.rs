//! Scenes that a machine spoils on which a thread stands still: tokens are earned and intervals pass meanwhile, and what was
//! to wait does not have to.

use crate::support::Task;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

/// What a scene ends with that was disturbed.
struct Disturbed;

/// No scene has a premise that is over so soon: one that fails within it was not disturbed, it is wrong.
const QUICK: Duration = Duration::from_millis(5);

/// As often a scene may be disturbed. It must come off once.
const TRIES: u32 = 8;

thread_local! {
    static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Plays a scene until it was not disturbed. It says so by [`calm`], on this thread.
#[track_caller]
pub fn scene<T>(mut body: impl FnMut() -> T) -> T {
    for _ in 0..TRIES {
        let outer = BEGUN.replace(Some(Instant::now()));
        let played = panic::catch_unwind(AssertUnwindSafe(&mut body));
        BEGUN.set(outer);
        match played {
            Ok(output) => return output,
            Err(payload) if payload.is::<Disturbed>() => {}
            Err(payload) => panic::resume_unwind(payload),
        }
    }
    panic!("disturbed {TRIES} times");
}

/// What holds unless somebody stood still. Outside of a scene it must hold.
#[track_caller]
pub fn calm(holds: bool) {
    if holds {
        return;
    }
    match BEGUN.get() {
        Some(begun) if begun.elapsed() >= QUICK => spoilt(),
        Some(_) => panic!("nothing can have disturbed it so soon"),
        None => panic!("it does not hold"),
    }
}

/// Ends a scene that cannot be judged, to be played again.
fn spoilt() -> ! {
    // Without a word from the panic hook.
    panic::resume_unwind(Box::new(Disturbed))
}

/// Plays a scene until it says that it could be judged. It may not have been though nobody stood still for long.
#[track_caller]
pub fn undisturbed(mut scene_is_judged: impl FnMut() -> bool) {
    scene(|| {
        if !scene_is_judged() {
            spoilt();
        }
    });
}

/// What holds for so long since a moment that was before it began, whoever stands still.
#[track_caller]
pub fn holds_for(since: Instant, time: Duration, holds: bool) {
    let passed = since.elapsed();
    assert!(
        holds || passed >= time,
        "it did not hold for {time:?}, but {passed:?} at most"
    );
    calm(holds);
}

/// Polled once and found pending, unless what it waits for came meanwhile.
#[track_caller]
pub fn waits<'a, T>(future: impl Future<Output = T> + Send + 'a) -> Task<'a, T> {
    let mut task = Task::new(future);
    calm(task.poll().is_none());
    task
}
