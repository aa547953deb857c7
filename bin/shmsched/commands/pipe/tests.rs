//! The flow between real descriptors, with counted tokens: what the tests share.

mod accounts;
mod endings;

use std::fs::{File, OpenOptions};
use std::future;
use std::io::{self, ErrorKind, Read, Seek, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::fcntl_getfl;
use rustix::io::ioctl_fionread;

use super::ends::Ends;
use super::flow::{self, Budget, Stop, chunk};
use super::progress::Progress;
use super::watch::Watch;
use crate::signals::Signals;

const FAST: u32 = i32::MAX as u32;

/// What a flow has done with its tokens.
#[derive(Default)]
struct Tally {
    taken: AtomicU64,
    given: AtomicU64,
    largest: AtomicU64,
}

impl Tally {
    fn used(&self) -> u64 {
        self.taken.load(SeqCst) - self.given.load(SeqCst)
    }
}

/// So many tokens and no more, at a rate that it only claims.
struct Counted<'a> {
    tally: &'a Tally,
    rate: u32,
    left: u64,
}

impl Budget for Counted<'_> {
    fn rate(&self) -> u32 {
        self.rate
    }

    fn take(
        &mut self,
        tokens: u32,
        watch: &mut Watch,
        output: BorrowedFd<'_>,
    ) -> Result<bool, Stop> {
        let tokens = u64::from(tokens);
        if tokens > self.left {
            watch.complete(future::pending::<()>(), output, || true)?;
        }
        self.left -= tokens;
        self.tally.taken.fetch_add(tokens, SeqCst);
        self.tally.largest.fetch_max(tokens, SeqCst);
        Ok(true)
    }

    fn give_back(&mut self, tokens: u32) {
        self.tally.given.fetch_add(tokens.into(), SeqCst);
    }
}

fn watch() -> Watch {
    Watch::new(Signals::catch().unwrap(), Progress::hidden()).unwrap()
}

/// Moves everything, or what `left` permits.
fn flow(
    input: impl AsFd,
    output: impl AsFd,
    rate: u32,
    left: u64,
    tally: &Tally,
) -> Result<(), Stop> {
    let mut budget = Counted { tally, rate, left };
    let mut ends = Ends::new(input.as_fd(), output.as_fd())?;
    flow::run(&mut ends, &mut budget, &mut watch())
}

/// Moves everything, fast.
fn free_flow(input: impl AsFd, output: impl AsFd, tally: &Tally) -> Result<(), Stop> {
    flow(input, output, FAST, u64::MAX, tally)
}

/// Bytes that differ from place to place.
fn data(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(byte).take(count).collect()
}

const SOURCES: [&str; 3] = ["pipe", "socket", "file"];

/// An input of that kind with these bytes, and then its end.
fn source(kind: &str, bytes: &[u8]) -> OwnedFd {
    if kind == "file" {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        return file.into();
    }
    let (near, far) = ends_of(kind);
    let bytes = bytes.to_vec();
    thread::spawn(move || File::from(far).write_all(&bytes));
    near
}

/// Something to read from, and what writes to it.
fn ends_of(kind: &str) -> (OwnedFd, OwnedFd) {
    match kind {
        "socket" => {
            let (near, far) = UnixStream::pair().unwrap();
            (near.into(), far.into())
        }
        _ => {
            let (reader, writer) = pipe().unwrap();
            (reader.into(), writer.into())
        }
    }
}

/// What has arrived at the end of a flow into an output of that kind.
fn arrived(kind: &str, flow: impl FnOnce(OwnedFd)) -> Vec<u8> {
    let mut bytes = Vec::new();
    if kind == "file" || kind == "append" {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut options = OpenOptions::new();
        let options = options.append(kind == "append").write(true);
        flow(options.open(file.path()).unwrap().into());
        file.read_to_end(&mut bytes).unwrap();
        return bytes;
    }
    let (reader, writer) = ends_of(kind);
    thread::scope(|scope| {
        scope.spawn(|| File::from(reader).read_to_end(&mut bytes).unwrap());
        flow(writer);
    });
    bytes
}

/// Waits until the two are the same, and stay so for a while.
#[track_caller]
fn settles(values: impl Fn() -> (u64, u64)) {
    let begun = Instant::now();
    let mut since = None;
    loop {
        let (left, right) = values();
        if left != right {
            since = None;
        } else if since.get_or_insert_with(Instant::now).elapsed() > Duration::from_millis(80) {
            return;
        }
        assert!(begun.elapsed().as_secs() < 10, "{left} is not {right}");
        thread::sleep(Duration::from_millis(5));
    }
}
