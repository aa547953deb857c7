use super::{By, Inner, Request, cost, polled, priority, run};
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
    let (limiter, inner, layer) = rate(1_000);
    limiter.try_consume(1_000).unwrap();
    let service = layer.layer(inner.clone());
    run(async {
        let requests = [
            ("low", Priority::Low),
            ("normal", Priority::Normal),
            ("high", Priority::High),
        ];
        let calls = requests.map(|(name, priority)| {
            // More than comes in before all three wait.
            let request = Request {
                cost: 300,
                ..Request::quick(name, priority)
            };
            tokio::spawn(service.clone().call(request))
        });
        for call in calls {
            call.await.unwrap().unwrap();
        }
    });
    assert_eq!(inner.calls(), ["high", "normal", "low"]);
}

#[test]
fn dropped_in_the_queue_it_has_taken_nothing() {
    // So slow that nothing is earned meanwhile.
    let (limiter, inner, layer) = rate(10);
    {
        let mut service = layer.layer(inner.clone());
        limiter.try_consume(3).unwrap();
        let mut call = pin!(service.call(Request::costing(10)));
        assert!(polled(call.as_mut()).is_none());
        assert!(limiter.try_consume(1).is_err(), "nobody passes the line");
    }
    assert!(limiter.try_consume(7).is_ok());
    assert!(inner.calls().is_empty());
}

#[test]
fn what_was_paid_for_no_call_is_refunded() {
    let (limiter, mut inner, layer) = rate(10);
    inner.busy.store(true, SeqCst);
    {
        let mut call = pin!(layer.layer(inner.clone()).call(Request::costing(10)));
        assert!(polled(call.as_mut()).is_none());
        assert_eq!(inner.asked.load(SeqCst), 1, "it has paid");
        assert!(limiter.try_consume(9).is_err());
    }
    inner.broken = true;
    let error = run(layer.layer(inner.clone()).call(Request::costing(10)));
    assert_eq!(error.unwrap_err().to_string(), "broken");
    assert!(limiter.try_consume(10).is_ok());
}

#[test]
fn a_wait_has_an_end() {
    let (limiter, inner, layer) = rate(10);
    limiter.try_consume(10).unwrap();
    let layer = layer.wait_at_most(Duration::ZERO);
    let mut call = pin!(layer.layer(inner.clone()).call(Request::costing(10)));
    let error = polled(call.as_mut()).expect("at once").unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&AcquireError::TimedOut));
    assert!(inner.calls().is_empty());
}

#[test]
fn outside_a_concurrency_layer_it_waits_without_a_slot() {
    let (limiter, inner, layer) = rate(1_000);
    limiter.try_consume(1_000).unwrap();
    let scheduler = Scheduler::local(1).unwrap();
    let service = ServiceBuilder::new()
        .layer(layer)
        .layer(ConcurrencyLayer::new(scheduler.clone(), priority))
        .service(inner);
    let mut call = pin!(service.oneshot(Request::costing(100)));
    assert!(polled(call.as_mut()).is_none());
    assert_eq!(scheduler.available_permits(), 1);
    run(call).unwrap();
}
