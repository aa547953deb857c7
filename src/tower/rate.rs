//! How many tokens a second.

use super::calling::{Calling, Claim};
use super::{BoxError, until};
use crate::Priority;
use crate::error::AcquireError;
use crate::limiter::{Limiter, Tokens};
use crate::waiting::future::Taking;
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// Calls the inner service at the pace of a [`Limiter`]: a request waits for the tokens that it costs, the most urgent of
/// any process first.
///
/// The tokens are spent when the inner service is called; if it cannot be, they are refunded. A request that costs more
/// than the Limiter's capacity, a second's worth, is let through when the bucket is full, into debt.
///
/// See [the module](super) for when it waits, errors and cancel safety.
#[derive(Clone)]
pub struct RateLayer<C, P> {
    limiter: Limiter,
    cost: C,
    priority: P,
    most: Option<Duration>,
}

/// What [`RateLayer`] makes of a service. Clones share the Limiter.
#[derive(Clone)]
pub struct RateService<S, C, P> {
    inner: S,
    layer: RateLayer<C, P>,
}

impl<C, P> RateLayer<C, P> {
    /// So many tokens for each request as `cost` says, at the priority that `priority` gives it.
    ///
    /// One token a request makes it requests a second: `|_: &Request| 1`.
    pub fn new<R>(limiter: Limiter, cost: C, priority: P) -> RateLayer<C, P>
    where
        C: Fn(&R) -> u32,
        P: Fn(&R) -> Priority,
    {
        RateLayer {
            limiter,
            cost,
            priority,
            most: None,
        }
    }

    /// Lets a request wait for its tokens for so long at most, from the call on; then it fails with
    /// [`AcquireError::TimedOut`] and has not come to the inner service. [`Duration::ZERO`]: it does not wait at all.
    #[must_use]
    pub fn wait_at_most(mut self, most: Duration) -> RateLayer<C, P> {
        self.most = Some(most);
        self
    }
}

impl<S, C: Clone, P: Clone> Layer<S> for RateLayer<C, P> {
    type Service = RateService<S, C, P>;

    fn layer(&self, inner: S) -> RateService<S, C, P> {
        let layer = self.clone();
        RateService { inner, layer }
    }
}

impl<S, R, C, P> Service<R> for RateService<S, C, P>
where
    S: Service<R, Error: Into<BoxError>> + Clone,
    C: Fn(&R) -> u32,
    P: Fn(&R) -> Priority,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = RateFuture<S, R>;

    /// Always ready: see [the module](super).
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> RateFuture<S, R> {
        let RateLayer { limiter, most, .. } = &self.layer;
        let tokens = (self.layer.cost)(&request);
        let priority = (self.layer.priority)(&request);
        let claim = Claimed {
            wait: limiter.acquire_kept(tokens, priority, until(*most)),
            limiter: limiter.clone(),
            tokens,
        };
        RateFuture {
            calling: Calling::new(claim, self.inner.clone(), request),
        }
    }
}

struct Claimed {
    wait: Taking<Tokens<Limiter>>,
    limiter: Limiter,
    tokens: u32,
}

/// Tokens that are refunded unless they are spent.
struct Paid {
    limiter: Limiter,
    tokens: u32,
}

impl Claim for Claimed {
    type Grant = Paid;

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Paid, AcquireError>> {
        ready!(Pin::new(&mut self.wait).poll(context))?;
        let (limiter, tokens) = (self.limiter.clone(), self.tokens);
        Poll::Ready(Ok(Paid { limiter, tokens }))
    }

    fn spend(paid: &mut Paid) {
        paid.tokens = 0;
    }
}

impl Drop for Paid {
    fn drop(&mut self) {
        self.limiter.refund(self.tokens);
    }
}

pin_project! {
    /// The response of a [`RateService`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves the queue and has taken nothing; tokens are spent only once the inner service is called.
    #[must_use = "futures do nothing unless polled"]
    pub struct RateFuture<S: Service<R>, R> {
        #[pin]
        calling: Calling<Claimed, S, R>,
    }
}

impl<S: Service<R, Error: Into<BoxError>>, R> Future for RateFuture<S, R> {
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (response, _) = ready!(self.project().calling.poll(context))?;
        Poll::Ready(Ok(response))
    }
}

// Functions have no Debug.
impl<C, P> fmt::Debug for RateLayer<C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLayer")
            .field("limiter", &self.limiter)
            .field("wait_at_most", &self.most)
            .finish_non_exhaustive()
    }
}

impl<S: fmt::Debug, C, P> fmt::Debug for RateService<S, C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateService")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish()
    }
}

impl<S: Service<R>, R> fmt::Debug for RateFuture<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateFuture").finish_non_exhaustive()
    }
}
