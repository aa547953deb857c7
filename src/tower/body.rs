//! A slot that is held until the body of a response has ended.

use super::concurrency::Hold;
use crate::scheduler::OwnedPermit;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A slot is held until the body of an [`http::Response`] has ended: its last frame was handed on, it failed, or it was
/// dropped, as a server does when the client hangs up. A body that is empty from the beginning holds none.
#[derive(Clone, Copy, Debug)]
pub struct UntilBody;

impl<B: Body> Hold<Response<B>> for UntilBody {
    type Response = Response<HeldBody<B>>;

    fn hold(response: Response<B>, permit: OwnedPermit) -> Response<HeldBody<B>> {
        response.map(|body| HeldBody {
            permit: (!body.is_end_stream()).then_some(permit),
            body,
        })
    }
}

pin_project! {
    /// A body under a slot: see [`UntilBody`].
    #[derive(Debug)]
    pub struct HeldBody<B> {
        // Dropped first.
        #[pin]
        body: B,
        permit: Option<OwnedPermit>,
    }
}

impl<B: Body> Body for HeldBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        // Who is told that this was the last one need not ask again.
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            *this.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
