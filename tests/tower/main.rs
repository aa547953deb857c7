//! The layers for tower services: what they hold, in which order, and that whatever ends a call gives it back.

#[path = "../support/mod.rs"]
mod support;

mod bodies;
mod concurrency;
mod processes;
mod rate;

use shmsched::Priority;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tower::Service;

#[test]
#[ignore = "the children's entry point"]
fn child() {
    support::enter(&[("server", processes::server)]);
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

/// Polls once: whether it is ready.
fn polled<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Tries what a busy machine may disturb, until it was not: `true`.
#[track_caller]
fn undisturbed(mut attempt: impl FnMut() -> bool) {
    assert!((0..8).any(|_| attempt()), "it was always disturbed");
}

/// Whether nobody who was called since then can have been passed over: that takes 250 ms of silence, by a clock that goes
/// in steps of 10 ms.
fn none_was_passed_over(since: Instant) -> bool {
    since.elapsed() < Duration::from_millis(200)
}

struct Request {
    name: &'static str,
    priority: Priority,
    cost: u32,
    ends: oneshot::Receiver<End>,
}

/// How a call ends, when the test says so.
enum End {
    Well,
    Badly,
    Panic,
}

impl Request {
    fn new(name: &'static str, priority: Priority) -> (oneshot::Sender<End>, Request) {
        let (sender, ends) = oneshot::channel();
        let cost = 0;
        let request = Request {
            name,
            priority,
            cost,
            ends,
        };
        (sender, request)
    }

    /// One that ends well at once.
    fn quick(name: &'static str, priority: Priority) -> Request {
        let (end, request) = Request::new(name, priority);
        let _ = end.send(End::Well);
        request
    }

    fn costing(cost: u32) -> Request {
        let request = Request::quick("costs", Priority::Normal);
        Request { cost, ..request }
    }
}

/// What layers of these tests are told of a request by.
type By<T> = fn(&Request) -> T;

fn priority(request: &Request) -> Priority {
    request.priority
}

fn cost(request: &Request) -> u32 {
    request.cost
}

/// The inner service: remembers who called in which order, and is ready when the test says so.
#[derive(Clone, Default)]
struct Inner {
    calls: Arc<Mutex<Vec<&'static str>>>,
    busy: Arc<AtomicBool>,
    asked: Arc<AtomicU32>,
    broken: bool,
}

impl Inner {
    fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().clone()
    }
}

impl Service<Request> for Inner {
    type Response = &'static str;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<&'static str, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        self.asked.fetch_add(1, SeqCst);
        if self.broken {
            return Poll::Ready(Err(std::io::Error::other("broken")));
        }
        if self.busy.load(SeqCst) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        self.calls.lock().unwrap().push(request.name);
        Box::pin(async move {
            match request.ends.await {
                Ok(End::Well) => Ok(request.name),
                Ok(End::Panic) => panic!("as the test wants it"),
                Ok(End::Badly) | Err(_) => Err(std::io::Error::other("badly")),
            }
        })
    }
}

/// One that cannot fail, for what is not about failures.
fn sure<F>(
    f: impl Fn() -> F + Clone,
) -> impl Service<(), Response = F::Output, Error = Infallible, Future: Future + Send> + Clone
where
    F: Future + Send,
{
    tower::service_fn(move |()| {
        let future = f();
        async move { Ok(future.await) }
    })
}
