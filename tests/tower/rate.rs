use super::{By, Inner, Request, cost, none_was_passed_over, polled, priority, run, undisturbed};
use shmsched::tower::{ConcurrencyLayer, RateLayer};
use shmsched::{AcquireError, Limiter, Priority, Scheduler};
use std::pin::pin;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

/// A full bucket of so many tokens.
fn rate(tokens: u32) -> (Limiter, Inner, RateLayer<By<u32>, By<Priority>>) {
    let limiter = Limiter::local(tokens).unwrap();
    let layer = RateLayer::new(limiter.clone(), cost as By<u32>, priority as By<Priority>);
    (limiter, Inner::default(), layer)
}

/// So deep in debt that whoever comes must wait for a minute, unless it is paid.
const DEBT: u32 = 60_000;

/// Takes all of a full bucket and as much as that.
fn into_debt(limiter: &Limiter) {
    let all = limiter.tokens_per_second() + DEBT;
    limiter.blocking_acquire(all, Priority::Highest).unwrap();
}

#[test]
fn requests_come_at_the_rate() {
    let (_, inner, layer) = rate(1_000);
    let mut service = layer.layer(inner.clone());
    let begun = Instant::now();
    run(async {
        // The bucket is full, so this costs no time; each of the five after it costs 50 ms.
        service.call(Request::costing(1_000)).await.unwrap();
        for _ in 0..5 {
            service.call(Request::costing(50)).await.unwrap();
        }
    });
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(249), "{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(inner.calls().len(), 6);
}

#[test]
fn the_most_urgent_request_first() {
    undisturbed(in_order);
}

/// Whether none was so late for its turn that another went first.
fn in_order() -> bool {
    let (limiter, inner, layer) = rate(1_000);
    into_debt(&limiter);
    let service = layer.layer(inner.clone());
    let judged = run(async {
        let requests = [
            ("low", Priority::Low),
            ("normal", Priority::Normal),
            ("high", Priority::High),
        ];
        let calls = requests.map(|(name, priority)| {
            // Nearly a second of the rate: one at a time.
            let request = Request {
                cost: 1_000,
                ..Request::quick(name, priority)
            };
            tokio::spawn(service.clone().call(request))
        });
        while limiter.stats().pending < 3 {
            tokio::task::yield_now().await;
        }
        limiter.refund(DEBT);
        let mut judged = true;
        for served in 1..=3 {
            let filled = Instant::now();
            limiter.refund(1_000);
            while inner.calls().len() < served {
                tokio::task::yield_now().await;
            }
            judged &= none_was_passed_over(filled);
        }
        for call in calls {
            call.await.unwrap().unwrap();
        }
        judged
    });
    let calls = inner.calls();
    assert!(calls == ["high", "normal", "low"] || !judged, "{calls:?}");
    judged
}

#[test]
fn dropped_in_the_queue_it_has_taken_nothing() {
    undisturbed(|| {
        let (limiter, inner, layer) = rate(10);
        let begun = Instant::now();
        {
            let mut service = layer.layer(inner.clone());
            limiter.try_consume(3).unwrap();
            let mut call = pin!(service.call(Request::costing(10)));
            let polled = polled(call.as_mut());
            let passed = limiter.try_consume(1);
            // In 300 ms it has what it lacks.
            if begun.elapsed() > Duration::from_millis(250) {
                return false;
            }
            assert!(polled.is_none());
            assert!(passed.is_err(), "nobody passes the line");
        }
        assert!(limiter.try_consume(7).is_ok());
        assert!(inner.calls().is_empty());
        true
    });
}

#[test]
fn what_was_paid_for_no_call_is_refunded() {
    let (limiter, mut inner, layer) = rate(10);
    inner.busy.store(true, SeqCst);
    {
        let costly = Request::costing(10 + DEBT);
        let mut call = pin!(layer.layer(inner.clone()).call(costly));
        assert!(polled(call.as_mut()).is_none());
        assert_eq!(inner.asked.load(SeqCst), 1, "it has paid");
        assert!(limiter.try_consume(1).is_err());
    }
    inner.broken = true;
    let costly = Request::costing(10 + DEBT);
    let error = run(layer.layer(inner.clone()).call(costly));
    assert_eq!(error.unwrap_err().to_string(), "broken");
    assert!(limiter.try_consume(10).is_ok());
}

#[test]
fn a_wait_has_an_end() {
    let (limiter, inner, layer) = rate(10);
    into_debt(&limiter);
    let layer = layer.wait_at_most(Duration::ZERO);
    let mut call = pin!(layer.layer(inner.clone()).call(Request::costing(10)));
    let error = polled(call.as_mut()).expect("at once").unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&AcquireError::TimedOut));
    assert!(inner.calls().is_empty());
}

#[test]
fn outside_a_concurrency_layer_it_waits_without_a_slot() {
    let (limiter, inner, layer) = rate(1_000);
    into_debt(&limiter);
    let scheduler = Scheduler::local(1).unwrap();
    let service = ServiceBuilder::new()
        .layer(layer)
        .layer(ConcurrencyLayer::new(scheduler.clone(), priority))
        .service(inner);
    let mut call = pin!(service.oneshot(Request::costing(100)));
    assert!(polled(call.as_mut()).is_none());
    assert_eq!(scheduler.available_permits(), 1);
    limiter.refund(DEBT + 1_000);
    run(call).unwrap();
}
