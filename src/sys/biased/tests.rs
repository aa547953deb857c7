use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

fn with_the_bias<T>(biased: &Biased<T>) {
    for _ in 0..2 * WARY {
        drop(biased.lock());
        if biased.enter().is_some() {
            return;
        }
    }
    panic!("no bias");
}

#[test]
fn who_takes_it_again_and_again_has_the_bias() {
    let biased = Biased::new(0);
    for _ in 0..EAGER - 1 {
        assert!(!biased.lock().is_biased());
        assert!(biased.enter().is_none());
    }
    drop(biased.lock());
    assert!(biased.lock().is_biased());
    assert!(biased.enter().unwrap().is_biased());
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(biased.enter().is_none());
            assert!(!biased.lock().is_biased());
        });
    });
    assert!(biased.enter().is_none(), "revoked");
    assert!(!biased.lock().is_biased());
}

#[test]
fn a_bias_that_did_not_last_is_granted_less_easily() {
    let biased = Biased::new(());
    let wanted = || biased.mutex.lock().wanted;
    let revoke = || thread::scope(|scope| scope.spawn(|| drop(biased.lock())).join().unwrap());
    for _ in 0..4 {
        let (before, begun) = (wanted(), std::time::Instant::now());
        with_the_bias(&biased);
        revoke();
        if begun.elapsed() < Duration::from_nanos(LASTED_NS) {
            assert_eq!(wanted(), 2 * before);
        }
    }
    with_the_bias(&biased);
    thread::sleep(Duration::from_nanos(LASTED_NS));
    revoke();
    assert_eq!(wanted(), EAGER);
}

/// By its bias a thread is in one of them at a time.
#[test]
fn one_within_another() {
    let (outer, inner) = (Biased::new(1), Biased::new(2));
    with_the_bias(&outer);
    with_the_bias(&inner);
    let out = outer.enter().unwrap();
    assert!(inner.enter().is_none());
    assert_eq!(*inner.lock() + *out, 3);
    drop(out);
    assert!(outer.enter().is_some());
}

/// The next thread with the same desk has the bias of the one before it.
#[test]
fn a_desk_is_left_to_the_next() {
    let biased = Biased::new(0);
    for round in 0..100 {
        thread::scope(|scope| {
            scope.spawn(|| (0..300).for_each(|_| *biased.lock() += 1));
        });
        assert_eq!(*biased.lock(), 300 * (round + 1));
    }
}

/// One thread has it nearly always, and others come now and then, in the middle of what it does.
#[test]
fn excludes_while_it_is_revoked_in_the_middle() {
    let (biased, stop) = (Biased::new(0u64), AtomicBool::new(false));
    let others = AtomicUsize::new(0);
    let add = || {
        let mut total = biased.lock();
        let seen = *total;
        std::hint::black_box(seen);
        *total = seen + 1;
        total.is_biased()
    };
    let (mut owned, mut calls) = (0u64, 0u64);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    add();
                    others.fetch_add(1, Relaxed);
                    thread::sleep(Duration::from_micros(300));
                }
            });
        }
        while owned < 500_000 || others.load(Relaxed) < 100 {
            owned += u64::from(add());
            calls += 1;
        }
        stop.store(true, Relaxed);
    });
    assert_eq!(*biased.lock(), calls + others.load(Relaxed) as u64);
}

#[test]
fn excludes_where_everybody_comes_at_once() {
    let biased = Biased::new(0u64);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    let mut total = biased.lock();
                    let seen = *total;
                    std::hint::black_box(seen);
                    *total = seen + 1;
                }
            });
        }
    });
    assert_eq!(*biased.lock(), 200_000);
}

/// Who has the bias and is inside when another comes is waited for.
#[test]
fn waits_until_the_owner_is_outside() {
    let (biased, came) = (Biased::new(1), AtomicBool::new(false));
    with_the_bias(&biased);
    thread::scope(|scope| {
        let mut inside = biased.enter().unwrap();
        scope.spawn(|| {
            assert_eq!(*biased.lock(), 2);
            came.store(true, SeqCst);
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!came.load(SeqCst));
        *inside = 2;
    });
    assert!(came.load(SeqCst));
}

#[test]
fn the_bias_of_a_thread_that_ended_is_revoked() {
    let biased = Biased::new(1);
    thread::scope(|scope| scope.spawn(|| with_the_bias(&biased)).join().unwrap());
    assert!(biased.enter().is_none());
    assert_eq!(*biased.lock(), 1);
}

#[test]
fn a_panic_goes_out() {
    let biased = Biased::new(1);
    with_the_bias(&biased);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _inside = biased.enter().unwrap();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(result.is_err());
    assert_eq!(*biased.enter().unwrap(), 1);
    thread::scope(|scope| scope.spawn(|| drop(biased.lock())).join().unwrap());
}

/// As the fork handlers do it, by the owner and by another.
#[test]
fn held_without_a_guard_it_has_no_owner() {
    let biased = Biased::new(1);
    with_the_bias(&biased);
    biased.hold();
    assert!(biased.enter().is_none());
    biased.let_go();
    with_the_bias(&biased);
    thread::scope(|scope| {
        scope.spawn(|| biased.hold()).join().unwrap();
    });
    assert!(biased.enter().is_none());
    biased.let_go();
    assert_eq!(*biased.lock(), 1);
}
