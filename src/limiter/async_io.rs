//! tokio's `AsyncRead` and `AsyncWrite` at the Limiter's pace.

use super::Limiter;
use super::pace::{Cut, Kept, Pace, Turn, tokens};
use crate::Priority;
use pin_project_lite::pin_project;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

impl Limiter {
    /// [`Limiter::reader`] for tokio's readers, on any executor. Needs the feature `tokio`.
    ///
    /// ```
    /// # use shmsched::{Limiter, Priority};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = Limiter::local(1_000_000)?;
    /// let source = &b"from a file or a socket"[..];
    /// let mut paced = limiter.async_reader(source, Priority::Low);
    /// let mut target = Vec::new();
    /// tokio::io::copy(&mut paced, &mut target).await?;
    /// assert_eq!(target, source);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn async_reader<R>(&self, inner: R, priority: Priority) -> AsyncPacedReader<R> {
        AsyncPacedReader {
            inner,
            pace: Pace::new(self, priority),
            kept: Kept::default(),
            turn: Turn::default(),
        }
    }

    /// [`Limiter::writer`] for tokio's writers, on any executor. Needs the feature `tokio`.
    ///
    /// ```
    /// # use shmsched::{Limiter, Priority};
    /// use tokio::io::AsyncWriteExt;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = Limiter::local(1_000_000)?;
    /// let mut paced = limiter.async_writer(Vec::new(), Priority::Normal);
    /// paced.write_all(b"a line\n").await?;
    /// assert_eq!(paced.into_inner(), b"a line\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn async_writer<W>(&self, inner: W, priority: Priority) -> AsyncPacedWriter<W> {
        AsyncPacedWriter {
            inner,
            pace: Pace::new(self, priority),
            turn: Turn::default(),
        }
    }
}

pin_project! {
    /// A reader at the pace of a [`Limiter`]: made by [`Limiter::async_reader`].
    ///
    /// Each read reads first, a chunk at most, and then waits for the tokens of what it got: as many as bytes, none at the
    /// end of the input. The bytes are kept meanwhile, so that nothing more is read (L8). A source that is quiet for long
    /// saves up nothing but what the bucket holds, a second's worth.
    ///
    /// # Errors
    ///
    /// Those of the inner reader, for which nothing is taken; and an [`AcquireError`](crate::AcquireError) within an error of
    /// kind [`Other`](io::ErrorKind::Other), if the wait for tokens ended without them. The bytes are kept for the next
    /// read, and [`AsyncPacedReader::buffer`] shows them.
    ///
    /// # Cancel safety
    ///
    /// A read that is given up has taken no tokens and lost no bytes: the next one gets what this one waits with. Until
    /// then its place in the queue is kept; when its turn comes and nobody reads, the next go first. Dropping the reader
    /// leaves the queue, and those behind get on (L7); the bytes are dropped with it, unpaid (X35).
    #[derive(Debug)]
    pub struct AsyncPacedReader<R> {
        #[pin]
        inner: R,
        pace: Pace,
        kept: Kept,
        turn: Turn,
    }
}

impl<R> AsyncPacedReader<R> {
    /// The most to read, and wait for, at once (L6): as [`PacedReader::chunk`](crate::PacedReader::chunk).
    pub fn chunk(mut self, bytes: usize) -> AsyncPacedReader<R> {
        self.pace.set_chunk(bytes);
        self
    }

    /// Bytes that were read and wait for their tokens.
    pub fn buffer(&self) -> &[u8] {
        self.kept.bytes()
    }

    /// The inner reader.
    pub fn get_ref(&self) -> &R {
        &self.inner
    }

    /// The inner reader; what is read from it directly is not paced.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// The inner reader, pinned.
    pub fn get_pin_mut(self: Pin<&mut Self>) -> Pin<&mut R> {
        self.project().inner
    }

    /// The inner reader, without what [`AsyncPacedReader::buffer`] shows.
    pub fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: AsyncRead> AsyncRead for AsyncPacedReader<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let most = this.pace.chunk().min(buffer.remaining());
        if most == 0 {
            return Poll::Ready(Ok(()));
        }
        if this.kept.is_empty() {
            // Straight into the caller's buffer: it is copied only if it must wait.
            let space = buffer.initialize_unfilled_to(most);
            let mut part = ReadBuf::new(space);
            ready!(this.inner.poll_read(context, &mut part))?;
            let count = part.filled().len();
            if count == 0 {
                return Poll::Ready(Ok(()));
            }
            // Nobody waits where nothing is kept, so this is about these bytes.
            let taken = this.turn.poll_take(this.pace, tokens(count), context);
            if let Poll::Ready(Ok(taken)) = taken {
                taken.spend(count);
                buffer.advance(count);
                return Poll::Ready(Ok(()));
            }
            this.kept.hold(part.filled());
            return taken.map(|failed| failed.map(drop).map_err(io::Error::other));
        }
        let wanted = most.min(this.kept.bytes().len());
        let taken = ready!(this.turn.poll_take(this.pace, tokens(wanted), context));
        let taken = taken.map_err(io::Error::other)?;
        let count = taken.bytes().min(wanted);
        buffer.put_slice(&this.kept.bytes()[..count]);
        this.kept.consume(count);
        taken.spend(count);
        Poll::Ready(Ok(()))
    }
}

pin_project! {
    /// A writer at the pace of a [`Limiter`]: made by [`Limiter::async_writer`].
    ///
    /// Each write waits for the tokens of a chunk at most, and then writes so much. What the inner writer did not take is
    /// given back at once, all of it if it is not ready, fails or panics: a slow writer holds no tokens. Flushing and
    /// shutting down need none.
    ///
    /// # Errors
    ///
    /// Those of the inner writer; and an [`AcquireError`](crate::AcquireError) within an error of kind
    /// [`Other`](io::ErrorKind::Other), if the wait for tokens ended without them: nothing was written.
    ///
    /// # Cancel safety
    ///
    /// A write that is given up has taken no tokens and written nothing. Until the next one, or a shutdown, its place in
    /// the queue is kept; when its turn comes and nobody writes, the next go first. Dropping the writer leaves the queue,
    /// and those behind get on (L7, X35).
    #[derive(Debug)]
    pub struct AsyncPacedWriter<W> {
        #[pin]
        inner: W,
        pace: Pace,
        turn: Turn,
    }
}

impl<W> AsyncPacedWriter<W> {
    /// The most to wait for, and write, at once (L6): as [`PacedReader::chunk`](crate::PacedReader::chunk).
    pub fn chunk(mut self, bytes: usize) -> AsyncPacedWriter<W> {
        self.pace.set_chunk(bytes);
        self
    }

    /// The inner writer.
    pub fn get_ref(&self) -> &W {
        &self.inner
    }

    /// The inner writer; what is written to it directly is not paced.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// The inner writer, pinned.
    pub fn get_pin_mut(self: Pin<&mut Self>) -> Pin<&mut W> {
        self.project().inner
    }

    /// The inner writer. Nothing is buffered here.
    pub fn into_inner(self) -> W {
        self.inner
    }
}

impl<W: AsyncWrite> AsyncWrite for AsyncPacedWriter<W> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        if bytes.is_empty() {
            return this.inner.poll_write(context, bytes);
        }
        let most = this.pace.chunk().min(bytes.len());
        let taken = ready!(this.turn.poll_take(this.pace, tokens(most), context));
        let taken = taken.map_err(io::Error::other)?;
        // The wait may have begun with other bytes.
        let most = taken.bytes().min(bytes.len());
        let count = ready!(this.inner.poll_write(context, &bytes[..most]))?;
        taken.spend(count);
        Poll::Ready(Ok(count))
    }

    /// Several buffers at once as far as they fit into a chunk.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let wanted = Cut::of(buffers, this.pace.chunk()).len();
        if wanted == 0 {
            return this.inner.poll_write_vectored(context, buffers);
        }
        let taken = ready!(this.turn.poll_take(this.pace, tokens(wanted), context));
        let taken = taken.map_err(io::Error::other)?;
        let count = match Cut::of(buffers, taken.bytes()) {
            Cut::One(bytes) => ready!(this.inner.poll_write(context, bytes))?,
            Cut::Many(buffers, _) => ready!(this.inner.poll_write_vectored(context, buffers))?,
        };
        taken.spend(count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        // Nothing is written any more.
        *this.turn = Turn::default();
        this.inner.poll_shutdown(context)
    }
}
