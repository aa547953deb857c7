//! What the tests of the adaptors move bytes with: ends that are ragged, metered or stuck, and every way through an adaptor.

use crate::limiter_support::Rated;
use crate::support::NORMAL;
use shmsched::Limiter;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// Tokens taken and not given back, ever.
pub fn consumed(rated: &Rated) -> u64 {
    rated.info().consumed
}

/// A member with an empty bucket; what it took for that is counted.
pub fn drained(rated: &Rated) -> Limiter {
    let member = rated.member();
    drain(&member);
    member
}

/// Takes what is there.
pub fn drain(limiter: &Limiter) -> u64 {
    let tokens = limiter.stats().tokens.max(0) as u32;
    limiter.try_consume(tokens).unwrap();
    tokens.into()
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(future)
}

pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * n / 7) as u8).collect()
}

/// Moves a few bytes at a time, the next of a list, round and round; 0: not now.
pub struct Ragged<T> {
    inner: T,
    steps: Vec<usize>,
    at: usize,
}

impl<T> Ragged<T> {
    pub fn new(inner: T, steps: &[usize]) -> Ragged<T> {
        // Some must move.
        let steps = steps.iter().copied().chain([3]).collect();
        Ragged {
            inner,
            steps,
            at: 0,
        }
    }

    fn step(&mut self) -> usize {
        self.at += 1;
        self.steps[self.at % self.steps.len()]
    }

    pub fn now(&mut self) -> io::Result<usize> {
        match self.step() {
            0 => Err(ErrorKind::Interrupted.into()),
            most => Ok(most),
        }
    }

    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        match self.step() {
            0 => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            most => Poll::Ready(most),
        }
    }
}

impl<T: Read> Read for Ragged<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.now()?.min(buffer.len());
        self.inner.read(&mut buffer[..most])
    }
}

impl<T: Write> Write for Ragged<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = self.now()?.min(bytes.len());
        self.inner.write(&bytes[..most])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read + Unpin> AsyncRead for Ragged<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = std::task::ready!(self.poll(context)).min(buffer.remaining());
        let count = self.inner.read(buffer.initialize_unfilled_to(most))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<T: Write + Unpin> AsyncWrite for Ragged<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let most = std::task::ready!(self.poll(context)).min(bytes.len());
        Poll::Ready(self.inner.write(&bytes[..most]))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.inner.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// Notes when how many bytes came.
#[derive(Clone, Default)]
pub struct Meter(Arc<Mutex<Vec<(Instant, usize)>>>);

impl Meter {
    fn note(&self, bytes: usize) {
        self.0.lock().unwrap().push((Instant::now(), bytes));
    }

    pub fn total(&self) -> usize {
        self.0.lock().unwrap().iter().map(|(_, bytes)| bytes).sum()
    }

    /// The most that came within any stretch of so long.
    pub fn peak(&self, stretch: Duration) -> usize {
        let notes = self.0.lock().unwrap();
        let within = |from: usize| {
            let begun = notes[from].0;
            let inside = notes[from..]
                .iter()
                .take_while(|(at, _)| *at - begun <= stretch);
            inside.map(|(_, bytes)| bytes).sum()
        };
        (0..notes.len()).map(within).max().unwrap_or(0)
    }

    pub fn largest(&self) -> usize {
        let notes = self.0.lock().unwrap();
        notes.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Write for Meter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.note(bytes.len());
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = buffers.iter().map(|buffer| buffer.len()).sum();
        self.note(count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Endless, and notes what was asked for.
impl Read for Meter {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.note(buffer.len());
        Ok(buffer.len())
    }
}

impl AsyncRead for Meter {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = Read::read(&mut *self, buffer.initialize_unfilled())?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Meter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Write::write(&mut *self, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Write::write_vectored(&mut *self, buffers))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// Never ready for more than some bytes in all.
pub struct Stuck {
    pub room: usize,
    pub polls: usize,
}

impl AsyncWrite for Stuck {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.polls += 1;
        let count = self.room.min(bytes.len());
        self.room -= count;
        match count {
            0 => Poll::Pending,
            count => Poll::Ready(Ok(count)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Way {
    Reader,
    Writer,
    Vectored,
    AsyncReader,
    AsyncWriter,
    AsyncVectored,
}

impl Way {
    pub const ALL: [Way; 6] = [
        Way::Reader,
        Way::Writer,
        Way::Vectored,
        Way::AsyncReader,
        Way::AsyncWriter,
        Way::AsyncVectored,
    ];

    /// Moves it all, `sizes` bytes at a time, through an adaptor over what moves `steps` bytes at a time.
    pub fn copy(
        self,
        limiter: &Limiter,
        chunk: usize,
        (steps, sizes): (&[usize], &[usize]),
        bytes: &[u8],
    ) -> Vec<u8> {
        let mut sizes = sizes.iter().copied().cycle();
        let mut output = Vec::new();
        match self {
            Way::Reader => {
                let source = Ragged::new(bytes, steps);
                let mut paced = limiter.reader(source, NORMAL).chunk(chunk);
                loop {
                    let mut buffer = vec![0; sizes.next().unwrap()];
                    match paced.read(&mut buffer) {
                        Ok(0) => return output,
                        Ok(count) => output.extend_from_slice(&buffer[..count]),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted),
                    }
                }
            }
            Way::Writer | Way::Vectored => {
                let target = Ragged::new(&mut output, steps);
                let mut paced = limiter.writer(target, NORMAL).chunk(chunk);
                let mut left = bytes;
                while !left.is_empty() {
                    let size = sizes.next().unwrap().min(left.len());
                    let wrote = match self {
                        Way::Writer => paced.write(&left[..size]),
                        _ => paced.write_vectored(&slices(left, size)),
                    };
                    match wrote {
                        Ok(count) => left = &left[count..],
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted),
                    }
                }
                paced.flush().unwrap();
                output
            }
            Way::AsyncReader => block_on(async {
                let source = Ragged::new(bytes, steps);
                let mut paced = limiter.async_reader(source, NORMAL).chunk(chunk);
                loop {
                    let mut buffer = vec![0; sizes.next().unwrap()];
                    match paced.read(&mut buffer).await.unwrap() {
                        0 => return output,
                        count => output.extend_from_slice(&buffer[..count]),
                    }
                }
            }),
            Way::AsyncWriter | Way::AsyncVectored => block_on(async {
                let target = Ragged::new(&mut output, steps);
                let mut paced = limiter.async_writer(target, NORMAL).chunk(chunk);
                let mut left = bytes;
                while !left.is_empty() {
                    let size = sizes.next().unwrap().min(left.len());
                    let count = match self {
                        Way::AsyncWriter => paced.write(&left[..size]).await,
                        _ => paced.write_vectored(&slices(left, size)).await,
                    };
                    left = &left[count.unwrap()..];
                }
                paced.shutdown().await.unwrap();
                output
            }),
        }
    }
}

/// All that is left in pieces of a size, with an empty one before.
fn slices(bytes: &[u8], size: usize) -> Vec<IoSlice<'_>> {
    let pieces = bytes.chunks(size).map(IoSlice::new);
    [IoSlice::new(b"")].into_iter().chain(pieces).collect()
}
