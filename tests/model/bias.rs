//! A mutex with a bias, as `sys::biased` puts it together: the owner by plain stores, everybody else by the mutex, and a
//! bias for who asks for one.

use super::support::explore_at_least;
use loom::sync::Mutex;
use shmsched::model::protocol::mutant;
use shmsched::model::sys::bias::{Bias, Machine, Word};
use shmsched::model::words::{U64, heavy_fence, light_fence, with_membarrier};
use std::sync::Arc;

struct Model;

struct Cell(U64);

impl Word for Cell {
    fn peek(&self) -> u64 {
        self.0.peek()
    }
    fn get(&self) -> u64 {
        self.0.get()
    }
    fn put(&self, value: u64) {
        self.0.put(value);
    }
}

impl Machine for Model {
    type Word = Cell;
    fn light_fence() {
        light_fence();
    }
    fn heavy_fence() {
        heavy_fence().unwrap();
    }
    fn pause(_: u32) {
        loom::thread::yield_now();
    }
    fn lacks(step: &str) -> bool {
        mutant(step)
    }
}

const THIS: u64 = 7;

/// What is under the lock is read and written by relaxed steps: who is not kept out, or does not see what was done
/// before, loses an addition.
struct Biased {
    bias: Bias<Model>,
    /// Of the threads 1, 2 and so on.
    inside: [Cell; 4],
    mutex: Mutex<()>,
    value: U64,
}

impl Biased {
    fn new() -> Arc<Biased> {
        with_membarrier(true);
        Arc::new(Biased {
            bias: Bias::new(Cell(U64::new(0))),
            inside: [(); 4].map(|()| Cell(U64::new(0))),
            mutex: Mutex::new(()),
            value: U64::new(0),
        })
    }

    fn inside(&self, of: u64) -> &Cell {
        match mutant("bias-one-word") {
            true => &self.inside[0],
            false => &self.inside[of as usize - 1],
        }
    }

    fn add(&self) {
        self.value.poke(self.value.peek() + 1);
    }

    /// Whether it went in by the bias. `keen`: it is granted the bias if it did not.
    fn visit(&self, me: u64, keen: bool) -> bool {
        if self.bias.enter(me, self.inside(me), THIS) {
            self.add();
            Bias::<Model>::leave(self.inside(me));
            return true;
        }
        let _held = self.mutex.lock().unwrap();
        if let Some(owner) = self.bias.owner() {
            self.bias.revoke(self.inside(owner), THIS);
        }
        self.add();
        if keen {
            self.bias.grant(me);
        }
        false
    }
}

fn spawn(biased: &Arc<Biased>, f: impl FnOnce(&Biased) + 'static) -> loom::thread::JoinHandle<()> {
    let biased = biased.clone();
    loom::thread::spawn(move || f(&biased))
}

/// The owner goes in and out while another revokes its bias.
#[test]
fn the_owner_against_another() {
    explore_at_least(3, "the_owner_against_another", || {
        let biased = Biased::new();
        let owner = spawn(&biased, |biased| {
            assert!(!biased.visit(1, true));
            biased.visit(1, false);
            biased.visit(1, false);
        });
        biased.visit(2, false);
        owner.join().unwrap();
        biased.visit(2, false);
        assert_eq!(biased.value.peek(), 5);
    });
}

/// Two take the bias from each other.
#[test]
fn it_goes_to_and_fro() {
    explore_at_least(2, "it_goes_to_and_fro", || {
        let biased = Biased::new();
        let other = spawn(&biased, |biased| {
            biased.visit(1, true);
            biased.visit(1, true);
        });
        biased.visit(2, true);
        biased.visit(2, true);
        other.join().unwrap();
        biased.visit(3, false);
        assert_eq!(biased.value.peek(), 5);
    });
}

/// Two revoke it, one after the other, while its owner uses it.
#[test]
fn two_against_the_owner() {
    explore_at_least(2, "two_against_the_owner", || {
        let biased = Biased::new();
        assert!(!biased.visit(1, true));
        let others = [2, 3].map(|me| {
            spawn(&biased, move |biased| {
                biased.visit(me, false);
            })
        });
        biased.visit(1, true);
        biased.visit(1, false);
        others.into_iter().for_each(|other| other.join().unwrap());
        biased.visit(4, false);
        assert_eq!(biased.value.peek(), 6);
    });
}
