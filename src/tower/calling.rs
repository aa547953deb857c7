//! One request on its way: through the gate, until the inner service is ready, to its answer.

use super::BoxError;
use crate::error::AcquireError;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// What came of a call, and what is still held.
type Answer<T, Grant> = Result<(T, Option<Grant>), BoxError>;

/// A wait at a gate, and what comes of it.
pub(super) trait Claim {
    /// Gives back what it is for when it is dropped.
    type Grant;
    /// Dropped before it is ready, it has taken nothing.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Self::Grant, AcquireError>>;
    /// The call is about to be made.
    fn spend(_grant: &mut Self::Grant) {}
}

pin_project! {
    pub(super) struct Calling<C: Claim, S: Service<R>, R> {
        // Dropped in this order: what is done under the grant ends before the grant.
        #[pin]
        running: Option<S::Future>,
        call: Option<(S, R)>,
        claim: Option<C>,
        grant: Option<C::Grant>,
    }
}

impl<C: Claim, S: Service<R>, R> Calling<C, S, R> {
    pub fn new(claim: C, service: S, request: R) -> Calling<C, S, R> {
        Calling {
            running: None,
            call: Some((service, request)),
            claim: Some(claim),
            grant: None,
        }
    }
}

impl<C: Claim, S: Service<R, Error: Into<BoxError>>, R> Calling<C, S, R> {
    pub fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Answer<S::Response, C::Grant>> {
        let answer = ready!(self.as_mut().proceed(context));
        // Whoever keeps this value keeps nothing else.
        let mut this = self.project();
        this.running.set(None);
        *this.call = None;
        *this.claim = None;
        let grant = this.grant.take();
        Poll::Ready(answer.map(|response| (response, grant)))
    }

    fn proceed(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<S::Response, BoxError>> {
        let mut this = self.project();
        if let Some(claim) = this.claim {
            *this.grant = Some(ready!(claim.poll(context))?);
            *this.claim = None;
        }
        if let Some((service, _)) = this.call {
            ready!(service.poll_ready(context)).map_err(Into::into)?;
        }
        if let Some((mut service, request)) = this.call.take() {
            this.grant.iter_mut().for_each(C::spend);
            this.running.set(Some(service.call(request)));
        }
        let running = this.running.as_pin_mut();
        let running = running.expect("not polled after it was ready");
        running.poll(context).map_err(Into::into)
    }
}
