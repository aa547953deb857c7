//! Who of several processes is served first at a Limiter.

use crate::support::{LONG, Scene, figure, less, now, one_of, until};
use crate::taps::{Bucket, MS, Tap, after, in_line, info, queued};
use shmsched::{Observer, PlaceState};
use std::time::Duration;

/// Puts processes in line one after the other, before the first tokens come: `ask` says what each asks for. Then gives
/// back the taps, all asking "w". Once more if the machine was too slow for that.
pub fn line_up(
    bucket: &mut Bucket,
    n: usize,
    debt: u32,
    ask: impl Fn(usize) -> String,
) -> Vec<Tap> {
    for _ in 0..5 {
        let mut taps = Tap::several(&bucket.location, "", n);
        bucket.indebt(debt);
        for (at, tap) in taps.iter_mut().enumerate() {
            tap.begin(&ask(at));
            // Or the first has been served, and there never are so many.
            until(LONG, "in line", || {
                queued(&bucket.location) == at as u64 + 1 || now() >= bucket.due(0)
            });
        }
        if now() + 100 * MS < bucket.due(0) {
            return taps;
        }
        drop(taps);
        bucket.segment.look();
        in_line(&bucket.location, 0);
    }
    panic!("too slow");
}

pub fn kind(at: usize) -> &'static str {
    ["wait", "task"][at % 2]
}

/// Whether each got its tokens when they came and not long after, so that nobody was passed or stood still.
fn each_when_due(bucket: &Bucket, amount: u32, times: &[u64]) -> Result<(), String> {
    for (at, time) in (1..).zip(times) {
        let late = *time as i64 - bucket.due(amount * at) as i64;
        let late = late / MS as i64;
        assert!(late >= -2, "number {at} {} ms too soon", -late);
        less(&format!("number {at} was late, ms"), late, 90)?;
    }
    Ok(())
}

/// Five that want 100 each. `Err`: one of them stood still, and may have been passed over.
fn served_in_order(bucket: &Bucket, mut taps: Vec<Tap>) -> Result<(), String> {
    let times: Vec<u64> = taps.iter_mut().map(|tap| tap.got("w")).collect();
    bucket.balances(500, 0);
    let mut sorted = times.clone();
    sorted.sort_unstable();
    each_when_due(bucket, 100, &sorted)?;
    each_when_due(bucket, 100, &times).unwrap();
    Ok(())
}

#[test]
fn arrivals_are_served_in_order_over_processes() {
    let scene = Scene::alone();
    let mut bucket = Bucket::new(&scene, 1_000);
    let ask = |at| format!("{} w 3 100", kind(at));
    one_of(3, || {
        let taps = line_up(&mut bucket, 5, 400, ask);
        served_in_order(&bucket, taps)
    });
}

/// Each of them is the front of its priority, which must not keep it from hearing that it is nearer now.
#[test]
fn the_most_urgent_comes_first_over_processes() {
    let scene = Scene::alone();
    let mut bucket = Bucket::new(&scene, 1_000);
    for least_urgent_arrives_first in [true, false] {
        let lane = |at: usize| match least_urgent_arrives_first {
            true => at + 1,
            false => 5 - at,
        };
        let ask = |at| format!("{} w {} 100", kind(at), lane(at));
        one_of(3, || {
            let mut taps = line_up(&mut bucket, 5, 400, ask);
            if least_urgent_arrives_first {
                taps.reverse();
            }
            served_in_order(&bucket, taps)
        });
    }
}

/// A big request of low priority beside endless traffic of high priority goes into debt after a second; one a second and
/// priority, whoever asks.
#[test]
fn nobody_starves_and_one_a_second_is_forced() {
    let scene = Scene::alone();
    let mut bucket = Bucket::new(&scene, 2_000);
    one_of(3, || beside_traffic(&mut bucket));
}

fn beside_traffic(bucket: &mut Bucket) -> Result<(), String> {
    let mut high = Tap::several(&bucket.location, "", 3);
    let mut low = Tap::several(&bucket.location, "", 2);
    bucket.empty();
    let before = info(&bucket.location);
    let end = after(Duration::from_millis(3_200));
    for tap in &mut high {
        tap.0.tell(&format!("block 2 4 10 {end}"));
    }
    until(LONG, "busy", || {
        info(&bucket.location).consumed > before.consumed + 100
    });
    let asked = now();
    // Two processes, two each, at two priorities.
    for id in ["a", "b"] {
        for (at, tap) in low.iter_mut().enumerate() {
            tap.begin(&format!("{} {id}0 0 400", kind(at)));
            tap.begin(&format!("{} {id}1 1 300", kind(at)));
        }
    }
    let mut lanes = [0, 1].map(|lane| {
        let mut times = Vec::new();
        for id in ["a", "b"] {
            for tap in &mut low {
                // Of four, two come within the time.
                let id = format!("got {id}{lane}");
                let left = Duration::from_nanos((asked + 2_600 * MS).saturating_sub(now()));
                let got = tap.0.expect_within(&id, left);
                times.extend(got.map(|got| (got.parse::<u64>().unwrap() - asked) / MS));
            }
        }
        times
    });
    let seen = info(&bucket.location);
    let _: u64 = high.iter_mut().map(Tap::taken).sum();
    drop((high, low));
    bucket.segment.look();
    bucket.comes_to_rest();
    // While those of high priority stand still the others need no debt, and who stands still is late.
    for times in &mut lanes {
        times.sort_unstable();
        times.retain(|ms| *ms < 2_600);
        figure!("forced after {times:?} ms");
        let in_time = times.len() == 2
            && (1..)
                .zip(&*times)
                .all(|(at, ms)| (1_000 * at - 5..1_000 * at + 300 + 100 * at).contains(ms));
        if !in_time {
            return Err(format!("forced after {times:?} ms"));
        }
    }
    let most_in_debt = -(400 + 300 + 60);
    match seen.forced >= before.forced + 4 && seen.tokens > most_in_debt {
        true => Ok(()),
        false => Err(format!("{seen:?}")),
    }
}

#[test]
fn a_stopped_waiter_is_passed_over_and_keeps_its_place() {
    let scene = Scene::alone();
    let mut bucket = Bucket::new(&scene, 2_000);
    let amounts = [600, 900, 1_900];
    let ask = |at: usize| format!("wait w 3 {}", amounts[at]);
    for _ in 0..6 {
        let mut taps = line_up(&mut bucket, 3, 1_000, ask);
        taps[0].0.stop();
        let due = bucket.due(600);
        let passed = Duration::from_nanos(taps[1].got("w") - due);
        figure!("passed over after {passed:?}");
        assert!(passed >= Duration::from_millis(200), "too soon: {passed:?}");
        // 450 ms after there were 600 tokens the second leaves as many, for which the first is called at once.
        let again = passed > Duration::from_millis(430);
        let snapshot = Observer::open(&bucket.location)
            .unwrap()
            .snapshot()
            .unwrap();
        let mut places = snapshot.members.iter().flat_map(|m| &m.waiting);
        let first = places.find(|place| place.position == 1).unwrap();
        let lapsed = (first.state, first.amount) == (PlaceState::Lapsed, 600);
        // The third lacks tokens still: awake, the first goes before it.
        taps[0].0.go_on();
        let (first, third) = (taps[0].got("w"), taps[2].got("w"));
        if again || first > third {
            // The second was busy elsewhere when its turn came, and may have been passed over too. Or the first was told
            // so late to go on that there was enough for the third.
            continue;
        }
        assert!(lapsed, "the first keeps its place");
        bucket.balances(3_400, 0);
        return;
    }
    panic!("none was passed over in time");
}
