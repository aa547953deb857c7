use super::{
    By, End, Inner, Request, none_was_passed_over, polled, priority, run, sure, undisturbed,
};
use shmsched::tower::{BoxError, ConcurrencyLayer};
use shmsched::{AcquireError, Priority, Scheduler};
use std::pin::pin;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

fn one_slot() -> (Scheduler, Inner, ConcurrencyLayer<By<Priority>>) {
    let scheduler = Scheduler::local(1).unwrap();
    let layer = ConcurrencyLayer::new(scheduler.clone(), priority as By<Priority>);
    (scheduler, Inner::default(), layer)
}

#[test]
fn the_slot_is_held_until_the_response_is_there() {
    let (scheduler, inner, layer) = one_slot();
    let (end, request) = Request::new("a", Priority::Normal);
    let mut call = pin!(layer.layer(inner.clone()).call(request));
    assert_eq!(
        scheduler.available_permits(),
        1,
        "nothing before it is polled"
    );
    assert!(polled(call.as_mut()).is_none());
    assert_eq!(
        (scheduler.available_permits(), inner.calls()),
        (0, vec!["a"])
    );
    end.send(End::Well).ok();
    assert_eq!(run(call.as_mut()).unwrap(), "a");
    // Though the future is still there.
    assert_eq!(scheduler.available_permits(), 1);
}

#[test]
fn the_most_urgent_request_first() {
    undisturbed(in_order);
}

/// Whether none was so late for its turn that another went first.
fn in_order() -> bool {
    let (scheduler, inner, layer) = one_slot();
    // The lottery never draws another lane.
    scheduler.fix_draw(Some(0));
    let permit = scheduler.try_acquire_owned(Priority::Normal).unwrap();
    let service = layer.layer(inner.clone());
    let judged = run(async {
        let requests = [
            ("low", Priority::Low),
            ("normal", Priority::Normal),
            ("highest", Priority::Highest),
            ("high", Priority::High),
            ("low too", Priority::Low),
        ];
        let mut calls = Vec::new();
        for (at, (name, priority)) in requests.into_iter().enumerate() {
            // Each from a clone, as servers do.
            let mut service = service.clone();
            calls.push(tokio::spawn(service.call(Request::quick(name, priority))));
            while scheduler.stats().pending <= at as u64 {
                tokio::task::yield_now().await;
            }
        }
        assert!(inner.calls().is_empty());
        let freed = Instant::now();
        drop(permit);
        for call in calls {
            call.await.unwrap().unwrap();
        }
        none_was_passed_over(freed)
    });
    let (order, calls) = (
        ["highest", "high", "normal", "low", "low too"],
        inner.calls(),
    );
    assert!(calls == order || !judged, "{calls:?}");
    judged
}

#[test]
fn whatever_ends_a_call_gives_its_slot_back() {
    let (scheduler, inner, layer) = one_slot();
    let service = layer.layer(inner.clone());
    let free = || assert_eq!(scheduler.available_permits(), 1);
    run(async {
        // An error, which comes through as it was.
        let (end, request) = Request::new("error", Priority::Normal);
        end.send(End::Badly).ok();
        let error = service.clone().call(request).await.unwrap_err();
        assert_eq!(
            error.downcast::<std::io::Error>().unwrap().to_string(),
            "badly"
        );
        free();
        // A panic.
        let (end, request) = Request::new("panic", Priority::Normal);
        end.send(End::Panic).ok();
        let call = tokio::spawn(service.clone().call(request));
        assert!(call.await.unwrap_err().is_panic());
        free();
        // Dropped at work.
        let (end, request) = Request::new("dropped", Priority::Normal);
        {
            let mut call = pin!(service.clone().call(request));
            assert!(polled(call.as_mut()).is_none());
            assert_eq!(scheduler.available_permits(), 0);
        }
        assert!(end.is_closed(), "the inner future is gone too");
        free();
    });
    assert_eq!(inner.calls(), ["error", "panic", "dropped"]);
}

#[test]
fn dropped_in_the_queue_it_leaves_the_queue() {
    let (scheduler, inner, layer) = one_slot();
    let permit = scheduler.try_acquire(Priority::Normal).unwrap();
    let service = layer.layer(inner.clone());
    {
        let mut first = pin!(
            service
                .clone()
                .call(Request::quick("first", Priority::High))
        );
        assert!(polled(first.as_mut()).is_none());
        assert_eq!(scheduler.stats().pending, 1);
    }
    assert_eq!(scheduler.stats().pending, 0);
    let mut second = pin!(
        service
            .clone()
            .call(Request::quick("second", Priority::Low))
    );
    assert!(polled(second.as_mut()).is_none());
    drop(permit);
    assert_eq!(run(second).unwrap(), "second");
    assert_eq!(inner.calls(), ["second"]);
}

#[test]
fn a_request_that_waits_asks_nothing_of_the_inner_service() {
    let (scheduler, inner, layer) = one_slot();
    let mut service = layer.layer(inner.clone());
    let permit = scheduler.try_acquire(Priority::Normal).unwrap();
    assert!(polled(pin!(service.ready())).is_some(), "always ready");
    let mut call = pin!(service.call(Request::quick("a", Priority::Normal)));
    assert!(polled(call.as_mut()).is_none());
    assert_eq!(inner.asked.load(SeqCst), 0);
    inner.busy.store(true, SeqCst);
    drop(permit);
    // It has its slot now, and waits for the inner service.
    run(async {
        while inner.asked.load(SeqCst) == 0 {
            tokio::select! {
                biased;
                _ = call.as_mut() => panic!("not ready"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(scheduler.available_permits(), 0);
        inner.busy.store(false, SeqCst);
        call.as_mut().await.unwrap();
    });
    assert_eq!(scheduler.available_permits(), 1);
}

#[test]
fn an_inner_service_that_is_never_ready_again_is_an_error() {
    let (scheduler, mut inner, layer) = one_slot();
    inner.broken = true;
    let mut service = layer.layer(inner);
    let error = run(service.call(Request::quick("a", Priority::Normal))).unwrap_err();
    assert_eq!(error.to_string(), "broken");
    assert_eq!(scheduler.available_permits(), 1);
}

#[test]
fn a_wait_has_an_end() {
    let (scheduler, inner, layer) = one_slot();
    let permit = scheduler.try_acquire(Priority::Normal).unwrap();
    let timed_out = |error: BoxError| {
        assert_eq!(error.downcast_ref(), Some(&AcquireError::TimedOut));
        assert_eq!(scheduler.stats().pending, 0);
    };
    let at_once = layer.clone().wait_at_most(Duration::ZERO);
    let mut call = pin!(
        at_once
            .layer(inner.clone())
            .call(Request::quick("a", Priority::Highest))
    );
    timed_out(polled(call.as_mut()).expect("at once").unwrap_err());
    let soon = layer.wait_at_most(Duration::from_millis(20));
    timed_out(
        run(soon
            .layer(inner.clone())
            .call(Request::quick("b", Priority::Low)))
        .unwrap_err(),
    );
    drop(permit);
    run(at_once
        .layer(inner.clone())
        .call(Request::quick("c", Priority::Low)))
    .unwrap();
    scheduler.close();
    let error = run(soon
        .layer(inner.clone())
        .call(Request::quick("d", Priority::Low)));
    assert_eq!(
        error.unwrap_err().downcast_ref(),
        Some(&AcquireError::Closed)
    );
    assert_eq!(inner.calls(), ["c"]);
}

/// As a router would have them: in a stack, cloned, sent to another thread, shared.
#[test]
fn layers_stack_and_services_cross_threads() {
    fn crosses<T: Send + Sync + Clone + std::fmt::Debug + 'static>(_: &T) {}
    let outer = Scheduler::local(2).unwrap();
    let narrow = Scheduler::local(1).unwrap();
    let always = |(): &()| Priority::Normal;
    let stack = ServiceBuilder::new()
        .layer(ConcurrencyLayer::new(outer.clone(), always))
        .layer(ConcurrencyLayer::new(narrow.clone(), always));
    let seen = (outer.clone(), narrow.clone());
    let service = stack.service(sure(move || {
        let seen = (seen.0.available_permits(), seen.1.available_permits());
        async move { seen }
    }));
    crosses(&ConcurrencyLayer::new(narrow, always));
    let answer = std::thread::spawn(move || run(service.oneshot(())).unwrap());
    assert_eq!(answer.join().unwrap(), (1, 0));
    assert_eq!(outer.available_permits(), 2);
}

#[test]
fn the_slot_is_given_back_after_the_inner_future_has_gone() {
    struct Last(Scheduler);
    impl Drop for Last {
        fn drop(&mut self) {
            assert_eq!(self.0.available_permits(), 0);
        }
    }
    let scheduler = Scheduler::local(1).unwrap();
    let layer = ConcurrencyLayer::new(scheduler.clone(), |(): &()| Priority::Normal);
    for ends in [true, false] {
        let seen = scheduler.clone();
        let inner = sure(move || {
            let last = Last(seen.clone());
            async move {
                let _last = last;
                if !ends {
                    std::future::pending().await
                }
            }
        });
        let mut call = Box::pin(layer.layer(inner).call(()));
        assert_eq!(polled(call.as_mut()).is_some(), ends);
        drop(call);
        assert_eq!(scheduler.available_permits(), 1);
    }
}
