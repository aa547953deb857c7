//! How many requests at once.

use super::calling::{Calling, Claim};
use super::{BoxError, until};
use crate::Priority;
use crate::error::AcquireError;
use crate::scheduler::{OwnedPermit, Scheduler, Slots};
use crate::waiting::future::Taking;
use pin_project_lite::pin_project;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// Calls the inner service under a slot of a [`Scheduler`], the most urgent request of any process first.
///
/// The slot is held until the response is there, and given back whatever way that ends: by a response, an error, a panic
/// or the future being dropped. A response with a body is there when its body *begins*; [`ConcurrencyLayer::holding`] a
/// slot [until the body has ended](super::UntilBody) is the choice where the body is the work, as with files. Choose it
/// with care: then a client that reads slowly keeps a slot from all others.
///
/// See [the module](super) for when it waits, errors and cancel safety.
pub struct ConcurrencyLayer<P, H = UntilResponse> {
    scheduler: Scheduler,
    priority: P,
    most: Option<Duration>,
    held: PhantomData<fn() -> H>,
}

/// What [`ConcurrencyLayer`] makes of a service. Clones share the Scheduler.
pub struct ConcurrencyService<S, P, H = UntilResponse> {
    inner: S,
    layer: ConcurrencyLayer<P, H>,
}

/// For how long a slot is held: [`UntilResponse`], [`UntilBody`](super::UntilBody), or a type of your own, for responses
/// that end in a way of their own.
///
/// ```
/// use shmsched::tower::{ConcurrencyLayer, Hold};
/// use shmsched::{OwnedPermit, Priority, Scheduler};
///
/// /// Until the caller has dropped the answer.
/// struct UntilDropped;
///
/// impl<T> Hold<T> for UntilDropped {
///     type Response = (T, OwnedPermit);
///
///     fn hold(response: T, permit: OwnedPermit) -> (T, OwnedPermit) {
///         (response, permit)
///     }
/// }
///
/// let layer = ConcurrencyLayer::new(Scheduler::local(4)?, |_: &String| Priority::Normal)
///     .holding::<UntilDropped>();
/// # let _ = layer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Hold<Response> {
    /// What becomes of the response.
    type Response;
    /// Puts the permit where it is dropped in time.
    fn hold(response: Response, permit: OwnedPermit) -> Self::Response;
}

/// A slot is held until the response future is ready.
#[derive(Clone, Copy, Debug)]
pub struct UntilResponse;

impl<Response> Hold<Response> for UntilResponse {
    type Response = Response;

    fn hold(response: Response, _: OwnedPermit) -> Response {
        response
    }
}

impl<P> ConcurrencyLayer<P> {
    /// A slot for each request, at the priority that `priority` gives it.
    pub fn new<R>(scheduler: Scheduler, priority: P) -> ConcurrencyLayer<P>
    where
        P: Fn(&R) -> Priority,
    {
        ConcurrencyLayer {
            scheduler,
            priority,
            most: None,
            held: PhantomData,
        }
    }
}

impl<P, H> ConcurrencyLayer<P, H> {
    /// Lets a request wait for its slot for so long at most, from the call on; then it fails with
    /// [`AcquireError::TimedOut`] and has not come to the inner service. [`Duration::ZERO`]: it does not wait at all.
    #[must_use]
    pub fn wait_at_most(mut self, most: Duration) -> ConcurrencyLayer<P, H> {
        self.most = Some(most);
        self
    }

    /// Holds slots for another time: `layer.holding::<UntilBody>()`.
    #[must_use]
    pub fn holding<Other>(self) -> ConcurrencyLayer<P, Other> {
        ConcurrencyLayer {
            scheduler: self.scheduler,
            priority: self.priority,
            most: self.most,
            held: PhantomData,
        }
    }
}

impl<S, P: Clone, H> Layer<S> for ConcurrencyLayer<P, H> {
    type Service = ConcurrencyService<S, P, H>;

    fn layer(&self, inner: S) -> ConcurrencyService<S, P, H> {
        let layer = self.clone();
        ConcurrencyService { inner, layer }
    }
}

impl<S, R, P, H> Service<R> for ConcurrencyService<S, P, H>
where
    S: Service<R, Error: Into<BoxError>> + Clone,
    P: Fn(&R) -> Priority,
    H: Hold<S::Response>,
{
    type Response = H::Response;
    type Error = BoxError;
    type Future = ConcurrencyFuture<S, R, H>;

    /// Always ready: see [the module](super).
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> ConcurrencyFuture<S, R, H> {
        let scheduler = &self.layer.scheduler;
        let priority = (self.layer.priority)(&request);
        let claim = Claimed {
            wait: scheduler.acquire_kept(priority, until(self.layer.most)),
            scheduler: scheduler.clone(),
        };
        ConcurrencyFuture {
            calling: Calling::new(claim, self.inner.clone(), request),
            held: PhantomData,
        }
    }
}

struct Claimed {
    wait: Taking<Slots<Scheduler>>,
    scheduler: Scheduler,
}

impl Claim for Claimed {
    type Grant = OwnedPermit;

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<OwnedPermit, AcquireError>> {
        ready!(Pin::new(&mut self.wait).poll(context))?;
        let waited = self.wait.has_waited();
        Poll::Ready(Ok(self.scheduler.owned(1, waited)))
    }
}

pin_project! {
    /// The response of a [`ConcurrencyService`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves the queue, or ends the inner future and then gives its slot back.
    #[must_use = "futures do nothing unless polled"]
    pub struct ConcurrencyFuture<S: Service<R>, R, H> {
        #[pin]
        calling: Calling<Claimed, S, R>,
        held: PhantomData<fn() -> H>,
    }
}

impl<S, R, H> Future for ConcurrencyFuture<S, R, H>
where
    S: Service<R, Error: Into<BoxError>>,
    H: Hold<S::Response>,
{
    type Output = Result<H::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (response, permit) = ready!(self.project().calling.poll(context))?;
        let permit = permit.expect("no call without a slot");
        Poll::Ready(Ok(H::hold(response, permit)))
    }
}

// Not derived: that would ask for a `H` that can be cloned.
impl<P: Clone, H> Clone for ConcurrencyLayer<P, H> {
    fn clone(&self) -> Self {
        ConcurrencyLayer {
            scheduler: self.scheduler.clone(),
            priority: self.priority.clone(),
            most: self.most,
            held: PhantomData,
        }
    }
}

impl<S: Clone, P: Clone, H> Clone for ConcurrencyService<S, P, H> {
    fn clone(&self) -> Self {
        ConcurrencyService {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

// Functions have no Debug.
impl<P, H> fmt::Debug for ConcurrencyLayer<P, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLayer")
            .field("scheduler", &self.scheduler)
            .field("wait_at_most", &self.most)
            .finish_non_exhaustive()
    }
}

impl<S: fmt::Debug, P, H> fmt::Debug for ConcurrencyService<S, P, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyService")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish()
    }
}

impl<S: Service<R>, R, H> fmt::Debug for ConcurrencyFuture<S, R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyFuture").finish_non_exhaustive()
    }
}
