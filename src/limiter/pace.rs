//! What the adaptors share: how much at once, whose turn, and tokens that are given back unless they were used.
//!
//! An adaptor has no tokens between two calls. They are taken within the call that moves the bytes, and what it did not
//! move is given back before it returns, on whatever way. So one that is dropped, or never polled again, has none.

use super::Limiter;
use crate::Priority;
use std::fmt;
use std::io::{self, IoSlice};

#[cfg(any(feature = "tokio", feature = "stream"))]
pub(super) use self::turn::Turn;

/// So many chunks a second, where none is said: short enough to be steady, long enough to be cheap.
const CHUNKS_PER_SECOND: u32 = 20;
/// The most that a chunk is where none is said.
const MOST_CHUNK: u32 = 1 << 20;

/// What to obey, and how.
pub(super) struct Pace {
    pub limiter: Limiter,
    pub priority: Priority,
    chunk: Option<u32>,
}

impl Pace {
    pub fn new(limiter: &Limiter, priority: Priority) -> Pace {
        Pace {
            limiter: limiter.clone(),
            priority,
            chunk: None,
        }
    }

    /// The most to move at once from now on.
    pub fn set_chunk(&mut self, bytes: usize) {
        self.chunk = Some(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// The most to move now: never more than a full bucket of any level, so that nothing goes into debt for it.
    pub fn chunk(&self) -> usize {
        let capacity = self.limiter.capacity();
        let chunk = match self.chunk {
            Some(chunk) => chunk.min(capacity),
            None => (capacity / CHUNKS_PER_SECOND).min(MOST_CHUNK),
        };
        chunk.max(1) as usize
    }

    /// Waits on this thread for the tokens of so many bytes, which are a chunk at most.
    pub fn take(&self, bytes: usize) -> io::Result<Taken<'_>> {
        let tokens = tokens(bytes);
        let taken = self.limiter.blocking_acquire(tokens, self.priority);
        taken.map_err(io::Error::other)?;
        Ok(Taken::new(&self.limiter, tokens))
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace")
            .field("limiter", &self.limiter)
            .field("priority", &self.priority)
            .field("chunk", &self.chunk())
            .finish()
    }
}

/// What so many bytes cost.
pub(super) fn tokens(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Tokens for what is done now; those that were not used when it is dropped are given back.
#[must_use]
pub(super) struct Taken<'a> {
    limiter: &'a Limiter,
    left: u32,
}

impl<'a> Taken<'a> {
    pub fn new(limiter: &'a Limiter, tokens: u32) -> Taken<'a> {
        Taken {
            limiter,
            left: tokens,
        }
    }

    /// For so many bytes.
    pub fn bytes(&self) -> usize {
        self.left as usize
    }

    /// So many were moved.
    pub fn spend(mut self, bytes: usize) {
        self.left = self.left.saturating_sub(tokens(bytes));
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.limiter.refund(self.left);
    }
}

/// Bytes that were read and wait for their tokens.
#[derive(Default)]
pub(super) struct Kept {
    bytes: Vec<u8>,
    from: usize,
}

impl Kept {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Only where none are.
    pub fn hold(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.from = 0;
    }

    /// So many were handed on.
    pub fn consume(&mut self, count: usize) {
        self.from = (self.from + count).min(self.bytes.len());
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes().len())
    }
}

/// What to write of several buffers at once.
pub(super) enum Cut<'a> {
    One(&'a [u8]),
    Many(&'a [IoSlice<'a>], usize),
}

impl<'a> Cut<'a> {
    /// As many whole buffers as come to `most` bytes; the beginning of one if not even that fits.
    pub fn of(buffers: &'a [IoSlice<'a>], most: usize) -> Cut<'a> {
        let mut total = 0;
        let mut count = 0;
        for buffer in buffers {
            if buffer.len() > most - total {
                break;
            }
            total += buffer.len();
            count += 1;
        }
        match buffers.get(count) {
            Some(next) if total == 0 => Cut::One(&next[..next.len().min(most)]),
            _ => Cut::Many(&buffers[..count], total),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Cut::One(bytes) => bytes.len(),
            Cut::Many(_, total) => *total,
        }
    }
}

#[cfg(any(feature = "tokio", feature = "stream"))]
mod turn {
    use super::{Limiter, Pace, Taken, fmt};
    use crate::deadline::Deadline;
    use crate::error::AcquireError;
    use crate::limiter::Tokens;
    use crate::waiting::future::Taking;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    /// A task's wait, kept from poll to poll; dropped, it leaves the queue.
    #[derive(Default)]
    pub(in crate::limiter) struct Turn(Option<(u32, Taking<Tokens<Limiter>>)>);

    impl Turn {
        /// Takes so many tokens at once, or waits; then for as many as the poll wanted that began to wait.
        pub fn poll_take<'a>(
            &mut self,
            pace: &'a Pace,
            tokens: u32,
            context: &mut Context<'_>,
        ) -> Poll<Result<Taken<'a>, AcquireError>> {
            let limiter = &pace.limiter;
            if self.0.is_none() && limiter.take_or_tell(tokens, Some(pace.priority))? {
                return Poll::Ready(Ok(Taken::new(limiter, tokens)));
            }
            let begin = || {
                let taking = limiter.acquire_kept(tokens, pace.priority, Deadline::Never);
                (tokens, taking)
            };
            let (amount, taking) = self.0.get_or_insert_with(begin);
            let amount = *amount;
            let result = ready!(Pin::new(taking).poll(context));
            self.0 = None;
            Poll::Ready(result.map(|()| Taken::new(limiter, amount)))
        }
    }

    impl fmt::Debug for Turn {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match &self.0 {
                Some((amount, _)) => write!(f, "waits for {amount}"),
                None => f.write_str("does not wait"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bytes from the front, `most` at most, some if there are any.
    #[test]
    fn a_cut_is_a_beginning() {
        let buffers: [&[u8]; 5] = [b"", b"abc", b"", b"defgh", b"i"];
        let slices = buffers.map(IoSlice::new);
        for first in 0..=slices.len() {
            let all = buffers[first..].concat();
            for most in 1..12 {
                let cut = Cut::of(&slices[first..], most);
                let bytes = match &cut {
                    Cut::One(bytes) => bytes.to_vec(),
                    Cut::Many(slices, _) => slices.iter().flat_map(|s| s.to_vec()).collect(),
                };
                assert_eq!(bytes.len(), cut.len());
                assert!(bytes.len() <= most && all.starts_with(&bytes));
                assert_eq!(bytes.is_empty(), all.is_empty());
            }
        }
    }

    #[test]
    fn a_chunk_fits_every_level() {
        let chunk = |rate| Pace::new(&Limiter::local(rate).unwrap(), Priority::Normal).chunk();
        assert_eq!([1, 19, 20, 2_000].map(chunk), [1, 1, 1, 100]);
        assert_eq!([1 << 20, i32::MAX as u32].map(chunk), [52_428, 1 << 20]);
        let upper = Limiter::local(2_000).unwrap();
        let child = upper.child(1_000_000).unwrap();
        let mut pace = Pace::new(&child, Priority::Normal);
        assert_eq!(pace.chunk(), 100);
        pace.set_chunk(0);
        assert_eq!(pace.chunk(), 1);
        pace.set_chunk(1_500);
        assert_eq!(pace.chunk(), 1_500);
        pace.set_chunk(usize::MAX);
        assert_eq!(pace.chunk(), 2_000);
    }
}
