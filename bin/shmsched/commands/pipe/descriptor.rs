//! A standard descriptor: what it is, and how to read and write it without waiting. Its flags stay as they are, since others
//! share them.

use std::io::IsTerminal;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::fs::{fcntl_getfl, fstat, makedev, open, seek};
use rustix::io::{Errno, read, write};
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// What a pipe takes without waiting if it has room at all.
const PIPE_ROOM: usize = 4_096;

/// What a terminal mostly takes.
const TERMINAL_ROOM: usize = 64;

/// What it is, as far as it makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pipe or FIFO.
    Pipe,
    /// A socket.
    Socket,
    /// A terminal.
    Terminal,
    /// A regular file.
    File,
    /// A device, a directory.
    Other,
}

/// One end.
pub struct Descriptor<'a> {
    pub fd: BorrowedFd<'a>,
    pub kind: Kind,
    flags: OFlags,
    stat: Stat,
    /// The same once more, with flags of its own.
    own: Option<OwnedFd>,
}

impl<'a> Descriptor<'a> {
    /// Standard input, or what stands for it.
    pub fn input(fd: BorrowedFd<'a>) -> Result<Descriptor<'a>, Errno> {
        let input = Descriptor::new(fd)?;
        let null = input.stat.st_rdev == makedev(1, 3);
        match input.flags & OFlags::RWMODE {
            OFlags::WRONLY => Err(Errno::BADF),
            // What the standard library opens where it finds standard input closed.
            OFlags::RDWR if null && input.kind == Kind::Other => Err(Errno::BADF),
            _ => Ok(input),
        }
    }

    /// Standard output, or what stands for it.
    pub fn output(fd: BorrowedFd<'a>) -> Result<Descriptor<'a>, Errno> {
        let output = Descriptor::new(fd)?;
        match output.flags & OFlags::RWMODE {
            OFlags::RDONLY => Err(Errno::BADF),
            _ => Ok(output),
        }
    }

    fn new(fd: BorrowedFd<'a>) -> Result<Descriptor<'a>, Errno> {
        let (flags, stat) = (fcntl_getfl(fd)?, fstat(fd)?);
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => Kind::Pipe,
            FileType::Socket => Kind::Socket,
            FileType::RegularFile => Kind::File,
            _ if fd.is_terminal() => Kind::Terminal,
            _ => Kind::Other,
        };
        Ok(Descriptor {
            fd,
            kind,
            flags,
            stat,
            own: None,
        })
    }

    /// Whether reading this file and writing that one would go on for ever, as cat(1) sees it: one file, and the output is
    /// ahead of the input.
    pub fn would_feed(&self, output: &Descriptor<'_>) -> bool {
        let identity = |stat: &Stat| (stat.st_dev, stat.st_ino);
        let at = |fd| seek(fd, SeekFrom::Current(0)).unwrap_or(0);
        self.kind == Kind::File
            && identity(&self.stat) == identity(&output.stat)
            && (output.flags.contains(OFlags::APPEND) || at(self.fd) < at(output.fd))
    }

    /// Reads what is there.
    pub fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        match self.kind {
            Kind::Socket => recv(self.fd, into, RecvFlags::DONTWAIT).map(|(got, _)| got),
            // Asked only once it is readable.
            _ => read(self.fd, into),
        }
    }

    /// Prepares for [`Self::write`].
    pub fn open_again(&mut self) {
        // The master of a pseudo terminal: opening it makes a new one.
        let master = self.stat.st_rdev == makedev(5, 2);
        if matches!(self.kind, Kind::Pipe | Kind::Terminal) && !master && self.own.is_none() {
            let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            self.own = open(path, flags, Mode::empty()).ok();
        }
    }

    /// Writes what there is room for.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let at_most = |room: usize| &bytes[..bytes.len().min(room)];
        match (self.kind, &self.own) {
            (Kind::Socket, _) => send(self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            (_, Some(own)) => write(own, bytes),
            (Kind::Pipe, None) => write(self.fd, at_most(PIPE_ROOM)),
            (Kind::Terminal, None) => write(self.fd, at_most(TERMINAL_ROOM)),
            (Kind::File | Kind::Other, None) => write(self.fd, bytes),
        }
    }
}
