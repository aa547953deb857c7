//! The two ends: how much can go from one to the other, and moving it without waiting.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;
use rustix::io::{Errno, ioctl_fionread};
use rustix::pipe::{SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, splice};

use super::descriptor::{Descriptor, Kind};
use super::flow::Stop;
use super::watch::{Ready, Watch};

/// The largest pipe that everybody may ask for.
const WIDEST: usize = 1 << 20;

/// The smallest attempt after one that was too large.
const LEAST: usize = 4_096;

/// Input and output.
pub struct Ends<'a> {
    input: Descriptor<'a>,
    output: Descriptor<'a>,
    way: Way,
    /// The most to try at once. After an attempt that was too large, what it moved: a slow reader has no more room.
    stride: usize,
    ended: bool,
}

/// How bytes move.
enum Way {
    /// Out of a pipe, past this process.
    Splice,
    /// Through a buffer, of which these bytes have been read and not yet written.
    Copy(Vec<u8>, Range<usize>),
}

impl<'a> Ends<'a> {
    /// Looks at the two. Fails if one is not open for its purpose, or if a file would be copied to its own end.
    pub fn new(input: BorrowedFd<'a>, output: BorrowedFd<'a>) -> Result<Ends<'a>, Stop> {
        let input = Descriptor::input(input).map_err(|error| Stop::Input(error.into()))?;
        let output = Descriptor::output(output).map_err(|error| Stop::Output(error.into()))?;
        if input.would_feed(&output) {
            return Err(Stop::Input(io::Error::other("it is the output file too")));
        }
        let mut ends = Ends {
            input,
            output,
            way: Way::Splice,
            stride: WIDEST,
            ended: false,
        };
        match (ends.input.kind, ends.output.kind) {
            (Kind::Pipe, Kind::Pipe | Kind::File | Kind::Other) => {}
            // Not from a file: what splice(2) puts into a pipe changes with the file until it is read.
            _ => ends.copy(),
        }
        Ok(ends)
    }

    pub fn output(&self) -> BorrowedFd<'a> {
        self.output.fd
    }

    /// Makes pipes hold two chunks, so that the neighbours seldom wait; as far as the system permits.
    pub fn widen(&self, chunk: usize) {
        let wanted = chunk.saturating_mul(2).next_power_of_two().min(WIDEST);
        for end in [&self.input, &self.output] {
            if end.kind == Kind::Pipe && fcntl_getpipe_size(end.fd).is_ok_and(|size| size < wanted)
            {
                let _ = fcntl_setpipe_size(end.fd, wanted);
            }
        }
    }

    /// Waits until there are bytes and room, and says how many to move; `None` at the end of the input.
    pub fn ready(&mut self, most: usize, watch: &mut Watch) -> Result<Option<usize>, Stop> {
        let mut known = Ready::NOT;
        while !self.ended {
            if !self.has_bytes(known.input, most)? {
                known.input = PollFlags::empty();
            } else if known.reader_gone() {
                return Err(Stop::ReaderGone);
            } else if known.output.contains(PollFlags::OUT) {
                return Ok(Some(self.at_hand().clamp(1, most.min(self.stride))));
            } else {
                known.input = PollFlags::IN;
            }
            if self.ended {
                break;
            }
            // That the reader has gone matters once there is something to write, as to cat(1).
            let input = known.input.is_empty().then_some(self.input.fd);
            let output = (self.output.fd, PollFlags::OUT);
            let output = known.output.is_empty().then_some(output);
            let ready = watch.look(input, output, None)?;
            known.input |= ready.input;
            known.output |= ready.output;
        }
        Ok(None)
    }

    /// Moves so many bytes at most, without waiting: how many it did.
    pub fn advance(&mut self, most: usize) -> Result<usize, Stop> {
        let splices = matches!(self.way, Way::Splice);
        let outcome = match &mut self.way {
            Way::Splice => {
                let (from, to) = (self.input.fd, self.output.fd);
                splice(from, None, to, None, most, SpliceFlags::NONBLOCK)
            }
            Way::Copy(buffer, held) => {
                let end = held.end.min(held.start + most);
                let written = self.output.write(&buffer[held.start..end]);
                held.start += written.unwrap_or(0);
                written
            }
        };
        let moved = match outcome {
            Ok(moved) => moved,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            // A file opened for appending, many a device: known only now.
            Err(Errno::INVAL) if splices => {
                self.copy();
                return Ok(0);
            }
            Err(Errno::PIPE) => return Err(Stop::ReaderGone),
            // Not of the input: nothing goes wrong with a pipe.
            Err(error) => return Err(Stop::Output(error.into())),
        };
        self.ended = splices && outcome == Ok(0);
        self.stride = match moved < most {
            true => moved.max(LEAST),
            false => self.stride.saturating_mul(2),
        };
        Ok(moved)
    }

    /// From now on bytes go through a buffer.
    fn copy(&mut self) {
        self.output.open_again();
        self.way = Way::Copy(Vec::new(), 0..0);
    }

    /// Whether there are bytes to write, by what `poll` said of the input; reads some if they go through the buffer. Notes
    /// the end of the input.
    fn has_bytes(&mut self, input: PollFlags, most: usize) -> Result<bool, Stop> {
        match &mut self.way {
            Way::Splice => {
                // The flags are of two moments: a writer may have come and gone between them.
                let no_writers = !input.is_empty() && !input.contains(PollFlags::IN);
                self.ended = no_writers && self.at_hand() == 0;
                Ok(!input.is_empty() && !self.ended)
            }
            Way::Copy(_, held) if held.start < held.end => Ok(true),
            Way::Copy(..) if input.is_empty() => Ok(false),
            Way::Copy(buffer, held) => {
                buffer.resize(most.max(buffer.len()), 0);
                match self.input.read(&mut buffer[..most]) {
                    Ok(got) => {
                        *held = 0..got;
                        self.ended = got == 0;
                        Ok(got != 0)
                    }
                    Err(Errno::AGAIN | Errno::INTR) => Ok(false),
                    Err(error) => Err(Stop::Input(error.into())),
                }
            }
        }
    }

    /// How many bytes there are, as far as is known.
    fn at_hand(&self) -> usize {
        match &self.way {
            Way::Splice => ioctl_fionread(self.input.fd).map_or(0, |count| count as usize),
            Way::Copy(_, held) => held.len(),
        }
    }
}
