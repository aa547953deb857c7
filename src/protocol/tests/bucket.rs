//! The bucket against exact arithmetic.

use crate::layout::LimiterHot;
use crate::protocol::bucket::{Bucket, PARTS, Short, Stamp, TICK_NS};
use proptest::prelude::*;

const MOST: u32 = 2_147_483_647;
const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 86_400 * SECOND;

/// A bucket that was full at `now`.
fn full(hot: &LimiterHot, rate: u32, now: u64) -> Bucket<'_> {
    let bucket = Bucket { hot };
    bucket.fill(rate, now);
    bucket
}

/// One that was empty at `now`.
fn empty(hot: &LimiterHot, rate: u32, now: u64) -> Bucket<'_> {
    let bucket = full(hot, rate, now);
    hot.tokens.put(0);
    bucket
}

/// What so much time earns, exactly: time counts in ticks.
fn earned(from: u64, to: u64, rate: u32) -> u128 {
    let ticks = u128::from((to / TICK_NS).saturating_sub(from / TICK_NS));
    ticks * u128::from(rate) / u128::from(PARTS)
}

/// Refills, and makes room for as much again. Returns what was credited.
fn poll(bucket: Bucket<'_>, now: u64) -> u128 {
    let before = i64::from(i32::MIN);
    bucket.hot.tokens.put(i32::MIN);
    bucket.refill(now);
    (i64::from(bucket.tokens()) - before) as u128
}

/// A span between two polls: from a nanosecond to a year.
fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(1),
        Just(50_000),
        0..2 * TICK_NS,
        0..SECOND,
        0..86_400 * SECOND,
        0..YEAR,
    ]
}

fn rate() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1), Just(MOST), 1..10_000u32, 1..=MOST]
}

fn any_i32() -> impl Strategy<Value = i32> {
    prop_oneof![
        Just(i32::MIN),
        Just(i32::MAX),
        Just(0),
        -3..3i32,
        any::<i32>()
    ]
}

fn any_u64() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), any::<u64>()]
}

#[test]
fn no_fraction_is_lost_however_often_it_is_asked() {
    for rate in [1, 3, 9_999, 10_001, 1_000_000, MOST] {
        let hot = LimiterHot::default();
        let start = 7 * SECOND + 12_345;
        let bucket = empty(&hot, rate, start);
        let (mut sum, mut now) = (0, start);
        while now < start + 60 * SECOND {
            now += 50_000;
            sum += poll(bucket, now);
        }
        assert_eq!(sum, earned(start, now, rate), "{rate} a second");
    }
}

/// Hours at one token a second, asked every 50 us around each token, and now and then in between.
#[test]
fn a_token_a_second_comes_to_the_tick() {
    let hot = LimiterHot::default();
    let bucket = empty(&hot, 1, 0);
    let mut sum = 0;
    for second in 1..=5 * 3_600 {
        let due = second * SECOND;
        for early in [SECOND / 2, 333_333_333, 150_000, 100_000, 50_000, 1] {
            assert_eq!(poll(bucket, due - early), 0, "early by {early} ns");
        }
        sum += poll(bucket, due);
        assert_eq!(sum, u128::from(second));
    }
}

/// Whole and fractional rates at the shortest steps that exist.
#[test]
fn every_nanosecond() {
    for rate in [1, 10_000, 12_345_678, MOST] {
        let hot = LimiterHot::default();
        let start = 5 * TICK_NS - 7;
        let bucket = empty(&hot, rate, start);
        let sum: u128 = (1..=3 * TICK_NS)
            .map(|step| poll(bucket, start + step))
            .sum();
        assert_eq!(sum, earned(start, start + 3 * TICK_NS, rate));
    }
}

#[test]
fn an_idle_bucket_is_full_and_no_more() {
    for rate in [1, 1_000_000, MOST] {
        for idle in [
            SECOND,
            12 * 3_600 * SECOND,
            7 * 86_400 * SECOND,
            YEAR,
            293 * YEAR,
        ] {
            let hot = LimiterHot::default();
            let start = 3 * SECOND;
            let bucket = empty(&hot, rate, start);
            let now = start + idle;
            assert_eq!(bucket.balance(now), rate as i32);
            bucket.refill(now);
            assert_eq!(bucket.tokens(), rate as i32, "{rate} a second, {idle} ns");
            assert_eq!(
                bucket.debit(rate, rate as i32).map(|debit| debit.into_debt),
                Ok(false)
            );
            assert_eq!(bucket.debit(1, 1), Err(Short));
            assert_eq!(bucket.tokens(), 0);
            bucket.refill(now);
            assert_eq!(bucket.tokens(), 0, "paid once");
        }
    }
}

#[test]
fn the_end_of_time_is_no_special_moment() {
    for rate in [1, MOST] {
        let hot = LimiterHot::default();
        let bucket = full(&hot, rate, u64::MAX);
        bucket.refill(u64::MAX);
        hot.tokens.put(i32::MIN);
        assert_eq!(
            bucket.due(rate.into(), u64::MAX),
            u64::MAX,
            "never, rather than long ago"
        );
        let bucket = full(&hot, rate, 0);
        hot.tokens.put(i32::MIN);
        bucket.refill(u64::MAX);
        assert_eq!(bucket.tokens(), rate as i32);
    }
}

#[test]
fn a_machine_that_was_paused_earns_nothing_and_loses_nothing() {
    let hot = LimiterHot::default();
    let start = 9 * SECOND;
    let bucket = empty(&hot, 1_000, start);
    for _ in 0..100 {
        bucket.refill(start + SECOND / 2);
    }
    assert_eq!(bucket.tokens(), 500);
}

#[test]
fn a_clock_that_steps_back_a_little_pays_nothing_twice() {
    let hot = LimiterHot::default();
    let start = 100 * SECOND;
    let bucket = empty(&hot, 1_000, start);
    bucket.refill(start + SECOND / 2);
    for back in [1, TICK_NS, SECOND / 2, SECOND] {
        let stamp = hot.stamp.get();
        bucket.refill(start + SECOND / 2 - back);
        assert_eq!((bucket.tokens(), hot.stamp.get()), (500, stamp));
        assert_eq!(bucket.balance(start + SECOND / 2 - back), 500);
    }
    bucket.refill(start + 6 * SECOND / 10);
    assert_eq!(bucket.tokens(), 600);
}

#[test]
fn a_clock_that_steps_back_for_long_starts_anew() {
    let hot = LimiterHot::default();
    let bucket = empty(&hot, 1_000, 100 * SECOND);
    let now = 50 * SECOND;
    assert_eq!(bucket.balance(now), 0);
    bucket.refill(now);
    assert_eq!((bucket.tokens(), hot.stamp.get()), (0, Stamp::at(now).0));
    bucket.refill(now + SECOND / 10);
    assert_eq!(bucket.tokens(), 100);
}

#[test]
fn a_debit_keeps_to_its_least_and_to_what_a_word_can_say() {
    let hot = LimiterHot::default();
    let bucket = full(&hot, 100, 0);
    assert_eq!(bucket.debit(101, 101), Err(Short));
    assert_eq!(bucket.debit(60, 60).map(|d| d.into_debt), Ok(false));
    assert_eq!(bucket.debit(60, 60), Err(Short));
    assert_eq!(bucket.debit(0, i32::MIN).map(|d| d.into_debt), Ok(false));
    assert_eq!(bucket.debit(41, i32::MIN).map(|d| d.into_debt), Ok(true));
    assert_eq!(bucket.tokens(), -1);
    assert_eq!(
        bucket.debit(0, i32::MIN).map(|d| d.into_debt),
        Ok(false),
        "it was in debt before"
    );
    // To the last token, and not one further.
    assert!(bucket.debit(MOST, i32::MIN).is_ok());
    assert_eq!(bucket.tokens(), i32::MIN);
    assert_eq!(bucket.debit(1, i32::MIN), Err(Short));
    assert_eq!(bucket.debit(u32::MAX, i32::MIN), Err(Short));
    assert_eq!(bucket.tokens(), i32::MIN);
}

#[test]
fn a_credit_stops_at_the_capacity_and_takes_nothing() {
    let hot = LimiterHot::default();
    let bucket = full(&hot, 10, 0);
    bucket.credit(u64::MAX);
    assert_eq!(bucket.tokens(), 10);
    hot.tokens.put(50); // of a larger rate
    bucket.credit(3);
    assert_eq!(bucket.tokens(), 50);
    hot.tokens.put(i32::MIN);
    bucket.credit(1 << 31);
    assert_eq!(bucket.tokens(), 0);
    bucket.credit(u64::MAX);
    assert_eq!(bucket.tokens(), 10);
}

#[test]
fn more_than_the_capacity_wants_a_full_bucket() {
    let hot = LimiterHot::default();
    let bucket = full(&hot, 10, 0);
    assert_eq!(
        [0, 1, 10, 11, MOST].map(|n| bucket.enough(n)),
        [0, 1, 10, 10, 10]
    );
    assert!(bucket.debit(MOST, bucket.enough(MOST)).is_ok());
    assert_eq!(bucket.tokens(), 10 - MOST as i32);
    assert_eq!(bucket.debit(MOST, bucket.enough(MOST)), Err(Short));
}

#[test]
fn another_rate_counts_from_now_on() {
    // The part of a token that the old rate earned is not paid at the new one.
    let hot = LimiterHot::default();
    let start = 10 * SECOND;
    let bucket = empty(&hot, 1, start);
    bucket.set_rate(1_000_000, start + 9 * SECOND / 10);
    bucket.refill(start + 9 * SECOND / 10);
    assert_eq!(bucket.tokens(), 0, "nine tenths of a token");
    bucket.refill(start + SECOND);
    assert_eq!(bucket.tokens(), 100_000);

    // Nor is what was earned at the higher one lost.
    let bucket = empty(&hot, 1_000_000, start);
    bucket.set_rate(1_000, start + SECOND / 10_000);
    assert_eq!(bucket.tokens(), 100);
}

#[test]
fn another_rate_cuts_the_balance_and_leaves_the_debt() {
    let hot = LimiterHot::default();
    let bucket = full(&hot, 1_000, 0);
    bucket.set_rate(10, 0);
    assert_eq!((bucket.tokens(), bucket.rate()), (10, 10));
    bucket.set_rate(1_000, 0);
    assert_eq!((bucket.tokens(), bucket.rate()), (10, 1_000));
    hot.tokens.put(-500);
    bucket.set_rate(10, 0);
    assert_eq!(bucket.tokens(), -500);
    bucket.refill(SECOND);
    assert_eq!(bucket.tokens(), -490);
    bucket.set_rate(MOST, SECOND);
    assert_eq!(bucket.tokens(), -490);
    bucket.refill(3 * SECOND);
    assert_eq!(bucket.tokens(), MOST as i32);
}

#[test]
fn another_rate_while_the_stamp_is_ahead_pays_nothing_twice() {
    let hot = LimiterHot::default();
    let start = 10 * SECOND;
    let bucket = empty(&hot, 1_000, start);
    bucket.set_rate(2_000, start - SECOND / 2);
    bucket.refill(start);
    assert_eq!(bucket.tokens(), 0);
    bucket.refill(start + SECOND / 2);
    assert_eq!(bucket.tokens(), 1_000);
}

#[test]
fn due_of_a_stamp_that_is_ahead_is_when_it_will_be_there() {
    let hot = LimiterHot::default();
    let stamp = 10 * SECOND;
    let bucket = empty(&hot, 1_000, stamp);
    let now = stamp - SECOND / 2;
    let due = bucket.due(1, now);
    bucket.refill(due - TICK_NS);
    assert_eq!(bucket.tokens(), 0);
    bucket.refill(due);
    assert_eq!(bucket.tokens(), 1);
    // One that is absurd is set to now by the next refill.
    let bucket = empty(&hot, 1_000, stamp);
    assert_eq!(bucket.due(1, 0), SECOND / 1_000);
}

#[test]
fn fresh_is_a_stamp_that_has_nothing_to_pay() {
    let hot = LimiterHot::default();
    let bucket = full(&hot, 10, 5 * TICK_NS + 3);
    assert!(bucket.is_fresh(0) && bucket.is_fresh(6 * TICK_NS - 1));
    assert!(!bucket.is_fresh(6 * TICK_NS));
}

proptest! {
    /// Any rate, any moments: what was credited is exactly what the time earned, to the token.
    #[test]
    fn credited_is_earned(
        rate in rate(),
        start in prop_oneof![Just(0), 0..SECOND, 0..YEAR],
        spans in prop::collection::vec(span(), 1..200),
    ) {
        let hot = LimiterHot::default();
        let bucket = empty(&hot, rate, start);
        let (mut sum, mut now, mut paid) = (0u128, start, start);
        for span in spans {
            let due = earned(now, now.saturating_add(span), rate) + 1;
            now = now.saturating_add(span);
            sum += poll(bucket, now);
            if due > u128::from(rate) + (1 << 31) {
                // More than there is room for: full, and everything else is lost.
                prop_assert_eq!(bucket.tokens(), rate as i32);
                bucket.fill(rate, now);
                (sum, paid) = (0, now);
            }
            prop_assert_eq!(sum, earned(paid, now, rate));
        }
    }

    /// Debits and refills in any order: the balance is what was earned less what was taken, never over the capacity, never
    /// less than a word can say; `balance` says it before it is paid.
    #[test]
    fn the_balance_is_exact(
        rate in rate(),
        steps in prop::collection::vec((span(), any::<u32>(), any::<bool>()), 1..100),
    ) {
        let hot = LimiterHot::default();
        let bucket = full(&hot, rate, 0);
        let cap = i128::from(rate);
        // In 1/10,000 token. The stamp keeps what is left of a token when the bucket is full, too.
        let parts = i128::from(PARTS);
        let (mut whole, mut left, mut now, mut ticks) = (cap, 0i128, 0u64, 0u64);
        for (span, amount, force) in steps {
            now = now.saturating_add(span);
            let windows = now / TICK_NS - ticks;
            let grown = i128::from(windows) * cap + left;
            if grown < 1 << 63 {
                left = grown % parts;
                ticks = now / TICK_NS;
                whole = (whole + grown / parts).min(cap);
            } else {
                whole = cap;
            }
            prop_assert_eq!(i128::from(bucket.balance(now)), whole);
            bucket.refill(now);
            prop_assert_eq!(i128::from(bucket.tokens()), whole);
            if grown >= 1 << 63 {
                bucket.fill(rate, now);
                (left, ticks) = (0, now / TICK_NS);
            }
            let amount = amount % MOST;
            let least = if force { i32::MIN } else { bucket.enough(amount) };
            let rest = whole - i128::from(amount);
            let fits = whole >= i128::from(least) && rest >= i128::from(i32::MIN);
            let done = bucket.debit(amount, least);
            prop_assert_eq!(done.is_ok(), fits);
            if let Ok(debit) = done {
                prop_assert_eq!(debit.into_debt, amount != 0 && rest < 0);
                whole = rest;
            }
            prop_assert_eq!(i128::from(bucket.tokens()), whole);
        }
    }

    /// A tick before it is due there is not enough, and when it is due there is.
    #[test]
    fn due_is_exact(
        rate in rate(),
        owed in 0u32..=MOST,
        wanted in 1u32..=MOST,
        start in 0..YEAR,
        parts in 0..PARTS,
        late in prop_oneof![Just(0), 0..SECOND],
    ) {
        let hot = LimiterHot::default();
        let bucket = full(&hot, rate, start);
        hot.tokens.put(-(owed as i32));
        hot.stamp.put(hot.stamp.get() | parts);
        let now = start + late;
        let wanted = bucket.enough(wanted);
        let due = bucket.due(wanted.into(), now);
        let (ticks, stamp) = (hot.tokens.get(), hot.stamp.get());
        if due / TICK_NS > start / TICK_NS {
            bucket.refill(due - TICK_NS);
            prop_assert!(bucket.tokens() < wanted);
        }
        hot.tokens.put(ticks);
        hot.stamp.put(stamp);
        bucket.refill(due);
        prop_assert!(bucket.tokens() >= wanted);
        prop_assert_eq!(bucket.due(wanted.into(), now), now, "it is there");
    }

    /// Whatever is in the words: no panic, nothing endless, and what a refill makes of it is no more than the capacity.
    #[test]
    fn scribbled_words(
        stamp in any_u64(),
        rate in any_i32(),
        tokens in any_i32(),
        steps in prop::collection::vec((0u8..7, any_u64(), any_i32()), 0..20),
    ) {
        let hot = LimiterHot::default();
        hot.stamp.put(stamp);
        hot.rate.put(rate);
        hot.tokens.put(tokens);
        let bucket = Bucket { hot: &hot };
        for (what, now, n) in steps {
            let before = bucket.tokens();
            match what {
                0 => bucket.refill(now),
                1 => bucket.credit(now),
                2 => { let _ = bucket.debit(n as u32, n.wrapping_mul(3)); }
                3 => bucket.set_rate((n as u32 % MOST) + 1, now),
                4 => { bucket.due(n.into(), now); bucket.due(i64::from(n) << 32, now); }
                5 => { bucket.balance(now); bucket.is_fresh(now); }
                _ => { bucket.due(i64::MAX, now); bucket.due(i64::MIN, now); }
            }
            if what < 2 {
                let most = before.max(bucket.rate() as i32);
                prop_assert!(bucket.tokens() >= before && bucket.tokens() <= most);
            }
            if what == 3 {
                prop_assert!(bucket.tokens() <= bucket.rate() as i32);
            }
        }
    }

    /// After anything, a bucket left alone for long enough is full, and then pays as it should.
    #[test]
    fn a_scribbled_bucket_recovers(stamp in any_u64(), tokens in any_i32(), rate in rate()) {
        let hot = LimiterHot::default();
        hot.stamp.put(stamp);
        hot.rate.put(rate as i32);
        hot.tokens.put(tokens);
        let bucket = Bucket { hot: &hot };
        let now = 40 * YEAR;
        // Within a second of what is absurd it heals by itself.
        let seconds = |n: u64| now + n * SECOND;
        bucket.refill(now);
        bucket.refill(seconds(2));
        let before = bucket.tokens();
        bucket.refill(seconds(3));
        let most = i128::from(before.max(rate as i32));
        prop_assert_eq!(i128::from(bucket.tokens()), (i128::from(before) + i128::from(rate)).min(most));
    }
}
