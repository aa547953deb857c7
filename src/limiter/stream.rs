//! A futures `Stream` at the Limiter's pace.

use super::Limiter;
use super::pace::{Pace, Turn};
use crate::Priority;
use crate::error::AcquireError;
use futures_core::stream::{FusedStream, Stream};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

impl Limiter {
    /// Paces a stream: an item goes on when the tokens that it weighs are there (L1, L2), on any executor. Needs
    /// the feature `stream`.
    ///
    /// `weight` is asked once for each item. What has no weight, `None`, needs no tokens, and passes while the bucket is
    /// in debt (L4); but like one that weighs 0 it waits for those that queue before it (L5). An item that weighs more than
    /// a full bucket holds is let through when it is full, into debt.
    ///
    /// ```
    /// # use shmsched::{Limiter, Priority};
    /// use futures_util::{StreamExt, stream};
    ///
    /// # futures_executor::block_on(async {
    /// let limiter = Limiter::local(1_000_000)?;
    /// let chunks = stream::iter([vec![0; 1_000], vec![0; 250_000]]);
    /// let mut paced = limiter.stream(chunks, Priority::Low, |chunk| u32::try_from(chunk.len()).ok());
    /// while let Some(chunk) = paced.next().await {
    ///     println!("{} bytes", chunk?.len());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stream<S, F>(&self, inner: S, priority: Priority, weight: F) -> PacedStream<S, F>
    where
        S: Stream,
        F: Fn(&S::Item) -> Option<u32>,
    {
        PacedStream {
            inner,
            weight,
            pace: Pace::new(self, priority),
            held: None,
            turn: Turn::default(),
            ended: false,
        }
    }
}

pin_project! {
    /// A stream at the pace of a [`Limiter`]: made by [`Limiter::stream`].
    ///
    /// One item at most is kept while it waits for its tokens, and the inner stream is not polled meanwhile (L8). Tokens are
    /// taken within the poll that hands the item on. After its end it goes on saying so.
    ///
    /// # Errors
    ///
    /// An item is an [`AcquireError`] if the wait for its tokens ended without them, or if it weighs more than 2147483647.
    /// That ends the stream; [`PacedStream::into_inner`] has the item.
    ///
    /// # Cancel safety
    ///
    /// Giving up a wait for the next item loses neither item nor tokens. Its place in the queue is kept; when its turn comes
    /// and nobody polls, the next go first. Dropping the stream drops the item unpaid, leaves the queue, and those behind
    /// get on (L7, X35).
    #[must_use = "streams do nothing unless polled"]
    pub struct PacedStream<S: Stream, F> {
        #[pin]
        inner: S,
        weight: F,
        pace: Pace,
        held: Option<(u32, S::Item)>,
        turn: Turn,
        ended: bool,
    }
}

impl<S: Stream, F> PacedStream<S, F> {
    /// The inner stream.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner stream; what is taken from it directly is not paced.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner stream, pinned.
    pub fn get_pin_mut(self: Pin<&mut Self>) -> Pin<&mut S> {
        self.project().inner
    }

    /// The inner stream, and the item that waits for its tokens.
    pub fn into_inner(self) -> (S, Option<S::Item>) {
        (self.inner, self.held.map(|(_, item)| item))
    }
}

impl<S: Stream, F: Fn(&S::Item) -> Option<u32>> Stream for PacedStream<S, F> {
    type Item = Result<S::Item, AcquireError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        if *this.ended {
            return Poll::Ready(None);
        }
        if this.held.is_none() {
            let Some(item) = ready!(this.inner.poll_next(context)) else {
                *this.ended = true;
                return Poll::Ready(None);
            };
            let weight = (this.weight)(&item).unwrap_or(0);
            *this.held = Some((weight, item));
        }
        let weight = this.held.as_ref().map_or(0, |(weight, _)| *weight);
        match ready!(this.turn.poll_take(this.pace, weight, context)) {
            Ok(taken) => {
                taken.spend(weight as usize);
                Poll::Ready(this.held.take().map(|(_, item)| Ok(item)))
            }
            Err(error) => {
                *this.ended = true;
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.ended {
            return (0, Some(0));
        }
        let held = usize::from(self.held.is_some());
        let (least, most) = self.inner.size_hint();
        let most = most.and_then(|most| most.checked_add(held));
        (least.saturating_add(held), most)
    }
}

impl<S: Stream, F: Fn(&S::Item) -> Option<u32>> FusedStream for PacedStream<S, F> {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl<S: Stream + fmt::Debug, F> fmt::Debug for PacedStream<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedStream")
            .field("inner", &self.inner)
            .field("limiter", &self.pace.limiter)
            .field("priority", &self.pace.priority)
            .field("turn", &self.turn)
            .finish_non_exhaustive()
    }
}
