//! The bucket: every window is paid once, and no debit or credit is lost.

use super::support::explore;
use shmsched::model::layout::LimiterHot;
use shmsched::model::protocol::bucket::{Bucket, TICK_NS};
use shmsched::model::words::mortal;
use std::sync::Arc;

/// One token a tick.
const RATE: u32 = 10_000;

type Words = Arc<LimiterHot>;

/// A bucket with so much in it at time 0.
fn words(rate: u32, tokens: i32) -> Words {
    let hot = Arc::new(LimiterHot::default());
    Bucket { hot: &hot }.fill(rate, 0);
    hot.tokens.put(tokens);
    hot
}

fn thread<T: 'static>(
    hot: &Words,
    f: impl FnOnce(Bucket<'_>) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let hot = hot.clone();
    loom::thread::spawn(move || f(Bucket { hot: &hot }))
}

/// Refills at the given tick.
fn refill(hot: &Words, tick: u64) -> loom::thread::JoinHandle<()> {
    thread(hot, move |bucket| bucket.refill(tick * TICK_NS))
}

/// Takes three tokens, if they are there. Returns what it took.
fn debit(bucket: Bucket<'_>) -> i32 {
    match bucket.debit(3, 3) {
        Ok(_) => 3,
        Err(_) => 0,
    }
}

/// Two refill at different times while one takes.
#[test]
fn refills_against_a_debit() {
    explore("refills_against_a_debit", || {
        let hot = words(RATE, 2);
        let refills = [refill(&hot, 10), refill(&hot, 20)];
        let debtor = thread(&hot, debit);
        for refill in refills {
            refill.join().unwrap();
        }
        let taken = debtor.join().unwrap();
        let bucket = Bucket { hot: &hot };
        bucket.refill(20 * TICK_NS);
        assert_eq!(bucket.tokens(), 22 - taken);
    });
}

/// Three notice the same window.
#[test]
fn one_window() {
    explore("one_window", || {
        let hot = words(RATE, 0);
        let refills = [0; 2].map(|_| refill(&hot, 10));
        Bucket { hot: &hot }.refill(10 * TICK_NS);
        for refill in refills {
            refill.join().unwrap();
        }
        assert_eq!(Bucket { hot: &hot }.tokens(), 10);
    });
}

/// Two take what is there for one, while what one of them took is given back.
#[test]
fn debits_and_a_credit() {
    explore("debits_and_a_credit", || {
        let hot = words(RATE, 4);
        let debtors = [0; 2].map(|_| thread(&hot, debit));
        let refund = thread(&hot, |bucket| bucket.credit(1));
        let taken: i32 = debtors.map(|debtor| debtor.join().unwrap()).iter().sum();
        refund.join().unwrap();
        assert_eq!(Bucket { hot: &hot }.tokens(), 5 - taken);
        assert_eq!(taken, 3);
    });
}

/// One dies after it claimed its window, or after it paid it: at most that window is lost, and nothing is paid twice.
#[test]
fn a_refiller_dies() {
    for (writes, lost) in [(1, 10), (2, 0)] {
        explore("a_refiller_dies", move || {
            let hot = words(RATE, 0);
            let dying = thread(&hot, move |bucket| {
                mortal(writes, || bucket.refill(10 * TICK_NS))
            });
            let living = refill(&hot, 15);
            let died = dying.join().unwrap();
            living.join().unwrap();
            let bucket = Bucket { hot: &hot };
            bucket.refill(20 * TICK_NS);
            match died {
                true => assert_eq!(bucket.tokens(), 20 - lost),
                false => assert_eq!(bucket.tokens(), 20),
            }
        });
    }
}

/// The rate rises while one refills and one takes: each window is paid once, at one rate or the other.
#[test]
fn a_higher_rate() {
    explore("a_higher_rate", || {
        let hot = words(RATE, 2);
        let sets = thread(&hot, |bucket| bucket.set_rate(2 * RATE, 10 * TICK_NS));
        let refills = refill(&hot, 10);
        let debtor = thread(&hot, debit);
        sets.join().unwrap();
        refills.join().unwrap();
        let taken = debtor.join().unwrap();
        let bucket = Bucket { hot: &hot };
        // Both looked at the same moment, so that all time before is the old rate's.
        bucket.refill(20 * TICK_NS);
        assert_eq!(bucket.tokens(), 32 - taken);
    });
}

/// The time that earned less than a token is the old rate's too.
#[test]
fn a_much_higher_rate() {
    explore("a_much_higher_rate", || {
        let hot = words(1, 0);
        let now = 9_999 * TICK_NS;
        let sets = thread(&hot, move |bucket| bucket.set_rate(RATE, now));
        let refills = refill(&hot, 9_999);
        sets.join().unwrap();
        refills.join().unwrap();
        let bucket = Bucket { hot: &hot };
        bucket.refill(now);
        assert_eq!(bucket.tokens(), 0);
        bucket.refill(now + 5 * TICK_NS);
        assert_eq!(bucket.tokens(), 5);
    });
}

/// The rate falls while one refills and one takes: what is left is no more than the old capacity, nor than the new one and
/// the window that was on its way; and what was taken is gone.
#[test]
fn a_lower_rate() {
    explore("a_lower_rate", || {
        let hot = words(RATE, 9);
        let sets = thread(&hot, |bucket| bucket.set_rate(4, 2 * TICK_NS));
        let refills = refill(&hot, 2);
        let debtor = thread(&hot, debit);
        sets.join().unwrap();
        refills.join().unwrap();
        let taken = debtor.join().unwrap();
        let tokens = Bucket { hot: &hot }.tokens();
        assert_eq!(taken, 3);
        assert!((1..=4 + 2).contains(&tokens), "{tokens}");
        // Two windows' worth came in, and what was over the capacity went.
        assert!(tokens + taken <= 11);
    });
}

/// A balance is cut while one takes: what was taken is gone.
#[test]
fn a_cut_against_a_debit() {
    explore("a_cut_against_a_debit", || {
        let hot = words(RATE, 6);
        let sets = thread(&hot, |bucket| bucket.set_rate(4, 0));
        let debtor = thread(&hot, debit);
        sets.join().unwrap();
        let taken = debtor.join().unwrap();
        let tokens = Bucket { hot: &hot }.tokens();
        assert!(taken == 3 && (1..=3).contains(&tokens), "{tokens}");
    });
}

/// Two give a bucket its first rate, and each takes all there is: it is full once.
#[test]
fn two_that_begin() {
    explore("two_that_begin", || {
        let hot = Words::default();
        let now = 20_000 * TICK_NS;
        let adds = [0; 2].map(|_| {
            thread(&hot, move |bucket| {
                if !bucket.begin(3, || now) {
                    bucket.set_rate(3, now);
                }
                debit(bucket)
            })
        });
        let taken: i32 = adds.map(|add| add.join().unwrap()).iter().sum();
        assert_eq!(Bucket { hot: &hot }.tokens(), 3 - taken);
    });
}
