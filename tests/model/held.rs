//! How many slots callbacks hold: counted by a word, and in part under the lock of the queue.

use super::support::explore_at_least;
use loom::sync::Mutex;
use shmsched::model::protocol::held::{Held, Lent, Refused};
use std::sync::Arc;

#[derive(Default)]
struct Callbacks {
    held: Held,
    queue: Mutex<Lent>,
}

impl Callbacks {
    /// One callback begins, with one slot.
    fn with_one() -> Arc<Callbacks> {
        let callbacks = Callbacks::default();
        callbacks.held.add();
        Arc::new(callbacks)
    }

    /// A release, as anybody does it.
    fn release(&self) -> bool {
        loop {
            match self.held.sub() {
                Ok(()) => return true,
                Err(Refused::Nothing) => return false,
                Err(Refused::Lent) => self.held.take_back(&mut self.queue.lock().unwrap()),
            }
        }
    }

    /// A release by the short way.
    fn hand_on(&self) -> bool {
        self.held.sub_lent(&mut self.queue.lock().unwrap())
    }

    /// The next begins.
    fn begin(&self) {
        if !self.held.add_lent(&mut self.queue.lock().unwrap()) {
            self.held.add();
        }
    }
}

fn spawn<T: 'static>(
    callbacks: &Arc<Callbacks>,
    f: impl FnOnce(&Callbacks) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let callbacks = callbacks.clone();
    loom::thread::spawn(move || f(&callbacks))
}

/// A queue drains, each turn handing on to the next, while another releases once too often: as many releases are granted
/// as callbacks began, whoever is refused.
#[test]
fn one_release_too_many() {
    explore_at_least(3, "one_release_too_many", || {
        let callbacks = Callbacks::with_one();
        let stranger = spawn(&callbacks, |callbacks| u32::from(callbacks.release()));
        let mut granted = 0;
        let mut begun = 1;
        for _ in 0..2 {
            if callbacks.hand_on() {
                granted += 1;
                callbacks.begin();
                begun += 1;
            }
        }
        granted += stranger.join().unwrap();
        while callbacks.release() {
            granted += 1;
        }
        assert_eq!(granted, begun);
    });
}

/// Between a release and the next beginning nothing is held: a stranger is refused then.
#[test]
fn refused_between_two() {
    explore_at_least(3, "refused_between_two", || {
        let callbacks = Callbacks::with_one();
        assert!(callbacks.hand_on());
        let strangers = [(); 2].map(|()| spawn(&callbacks, Callbacks::release));
        for stranger in strangers {
            assert!(!stranger.join().unwrap());
        }
        callbacks.begin();
        assert!(callbacks.release());
        assert!(!callbacks.release());
    });
}

/// One that takes a slot without the lock while the part is taken back is counted.
#[test]
fn taken_back_as_another_begins() {
    explore_at_least(3, "taken_back_as_another_begins", || {
        let callbacks = Callbacks::with_one();
        assert!(callbacks.hand_on());
        let beginner = spawn(&callbacks, |callbacks| callbacks.held.add());
        let stranger = spawn(&callbacks, |callbacks| u32::from(callbacks.release()));
        callbacks.begin();
        beginner.join().unwrap();
        let mut granted = stranger.join().unwrap();
        while callbacks.release() {
            granted += 1;
        }
        assert_eq!(granted, 2);
    });
}
