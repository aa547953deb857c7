//! `Read` and `Write` at the Limiter's pace, on a thread that may block.

use super::Limiter;
use super::pace::{Cut, Kept, Pace};
use crate::Priority;
use std::io::{self, IoSlice, Read, Write};

impl Limiter {
    /// Paces a reader: a byte is a token (L2), and who reads it gets no more than there are tokens for (L1, L8).
    ///
    /// ```
    /// # use shmsched::{Limiter, Priority};
    /// use std::io::{self, Read};
    ///
    /// let limiter = Limiter::local(1_000_000)?;
    /// let source = io::repeat(b'x').take(300_000); // a file, a socket
    /// let mut paced = limiter.reader(source, Priority::Low);
    /// let mut target = Vec::new();
    /// assert_eq!(io::copy(&mut paced, &mut target)?, 300_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reader<R>(&self, inner: R, priority: Priority) -> PacedReader<R> {
        PacedReader {
            inner,
            pace: Pace::new(self, priority),
            kept: Kept::default(),
        }
    }

    /// Paces a writer: a byte is a token (L2), and it is written when its token is there (L1, L8).
    ///
    /// ```
    /// # use shmsched::{Limiter, Priority};
    /// use std::io::Write;
    ///
    /// let limiter = Limiter::local(1_000_000)?;
    /// let mut paced = limiter.writer(Vec::new(), Priority::Normal).chunk(4_096);
    /// paced.write_all(b"a line\n")?;
    /// assert_eq!(paced.into_inner(), b"a line\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn writer<W>(&self, inner: W, priority: Priority) -> PacedWriter<W> {
        PacedWriter {
            inner,
            pace: Pace::new(self, priority),
        }
    }
}

/// A reader at the pace of a [`Limiter`]: made by [`Limiter::reader`].
///
/// Each read reads first, a chunk at most, and then waits for the tokens of what it got: as many as bytes, none at the end
/// of the input. A source that is quiet for long saves up nothing but what the bucket holds, a second's worth.
///
/// # Errors
///
/// Those of the inner reader, for which nothing is taken; and an [`AcquireError`](crate::AcquireError) within an error of
/// kind [`Other`](io::ErrorKind::Other), if the wait for tokens ended without them. The bytes are kept for the next read,
/// and [`PacedReader::buffer`] shows them.
#[derive(Debug)]
pub struct PacedReader<R> {
    inner: R,
    pace: Pace,
    kept: Kept,
}

impl<R> PacedReader<R> {
    /// The most to read, and wait for, at once (L6); 0 counts as 1. If it is not said it is a twentieth of a second's
    /// worth, of the lowest rate where there are several, but at least 1 byte and at most 1 MiB. What is said counts up
    /// to one second's worth.
    pub fn chunk(mut self, bytes: usize) -> PacedReader<R> {
        self.pace.set_chunk(bytes);
        self
    }

    /// Bytes that were read and not yet handed on, after a wait that failed.
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

    /// The inner reader, without what [`PacedReader::buffer`] shows.
    pub fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Read> Read for PacedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.pace.chunk().min(buffer.len());
        let buffer = &mut buffer[..most];
        let again = !self.kept.is_empty();
        let count = match again {
            true => self.kept.bytes().read(buffer)?,
            false => self.inner.read(buffer)?.min(most),
        };
        if count == 0 {
            return Ok(0);
        }
        match self.pace.take(count) {
            Ok(taken) => taken.spend(count),
            Err(error) => {
                if !again {
                    self.kept.hold(&buffer[..count]);
                }
                return Err(error);
            }
        }
        if again {
            self.kept.consume(count);
        }
        Ok(count)
    }
}

/// A writer at the pace of a [`Limiter`]: made by [`Limiter::writer`].
///
/// Each write waits for the tokens of a chunk at most, and then writes so much. What the inner writer did not take is given
/// back at once, all of it if it fails or panics. While the inner writer blocks, the tokens of that one chunk are taken.
/// Flushing needs none.
///
/// # Errors
///
/// Those of the inner writer; and an [`AcquireError`](crate::AcquireError) within an error of kind
/// [`Other`](io::ErrorKind::Other), if the wait for tokens ended without them: nothing was written.
#[derive(Debug)]
pub struct PacedWriter<W> {
    inner: W,
    pace: Pace,
}

impl<W> PacedWriter<W> {
    /// The most to wait for, and write, at once (L6): as [`PacedReader::chunk`].
    pub fn chunk(mut self, bytes: usize) -> PacedWriter<W> {
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

    /// The inner writer. Nothing is buffered here.
    pub fn into_inner(self) -> W {
        self.inner
    }
}

impl<W: Write> Write for PacedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return self.inner.write(bytes);
        }
        let taken = self.pace.take(self.pace.chunk().min(bytes.len()))?;
        let count = self.inner.write(&bytes[..taken.bytes()])?;
        taken.spend(count);
        Ok(count)
    }

    /// Several buffers at once as far as they fit into a chunk.
    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let cut = Cut::of(buffers, self.pace.chunk());
        if cut.len() == 0 {
            return self.inner.write_vectored(buffers);
        }
        let taken = self.pace.take(cut.len())?;
        let count = match cut {
            Cut::One(bytes) => self.inner.write(bytes)?,
            Cut::Many(buffers, _) => self.inner.write_vectored(buffers)?,
        };
        taken.spend(count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
