//! One error per operation. Each says what happened; the command line adds which segment and what to do.

use crate::concurrency::InvalidConcurrency;
use crate::location::LocationError;
use crate::settings::InvalidSettings;
use std::io;

/// Why a segment could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no file of that name.
    #[error("no such segment")]
    NotFound,
    /// The file is something else, or was never completed.
    #[error("not a segment: {0}")]
    NotASegment(String),
    /// It was a segment, but what it says cannot be.
    #[error("the segment is damaged: {0}")]
    Damaged(String),
    /// It was made by another version of the format.
    #[error("segment format {found:#x}, this program reads {supported:#x}")]
    Format {
        /// What the file says.
        found: u32,
        /// What this library reads.
        supported: u32,
    },
    /// The format number is right, but the records have other sizes.
    #[error("the segment's records have another layout than this program's")]
    Layout,
    /// The file's mode forbids it.
    #[error("permission denied")]
    Permission,
    /// It lies in a directory where anybody can plant files, and belongs to somebody else.
    #[error("it belongs to user {uid} in a directory anybody can write to")]
    Foreign {
        /// The owner.
        uid: u32,
    },
    /// Every member slot is taken by a living member.
    #[error("the member table is full")]
    TableFull,
    /// It was removed by force.
    #[error("the segment was retired")]
    Retired,
    /// The name is no name.
    #[error(transparent)]
    Name(#[from] LocationError),
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Why a segment could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// There is one already.
    #[error("the segment exists already")]
    Exists,
    /// No room for all of it; nothing was left behind.
    #[error("no space left for the segment")]
    NoSpace,
    /// The directory it belongs in is not there.
    #[error("no such directory")]
    MissingDirectory,
    /// The directory's mode forbids it.
    #[error("permission denied")]
    Permission,
    /// The name is no name, or the directory of names is not safe.
    #[error(transparent)]
    Name(#[from] LocationError),
    /// A setting is out of its range.
    #[error(transparent)]
    Invalid(#[from] InvalidSettings),
    /// The file system lacks something a segment needs, or this version lacks a gate that was asked for.
    #[error("cannot be made: {0}")]
    Unsupported(String),
    /// It was made, or found, but could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Why a segment was not removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// There is no such file.
    #[error("no such segment")]
    NotFound,
    /// Somebody is attached.
    #[error("in use by {members} {}", if *members == 1 { "process" } else { "processes" })]
    InUse {
        /// Members alive, or at least one when they come and go.
        members: u32,
    },
    /// It is no file that we would remove.
    #[error(transparent)]
    Open(OpenError),
    /// The directory's mode forbids it.
    #[error("permission denied")]
    Permission,
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Why an acquire ended without a permit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The deadline passed first.
    #[error("timed out waiting")]
    TimedOut,
    /// [`Scheduler::close`](crate::Scheduler::close) was called.
    #[error("Scheduler is closed")]
    Closed,
    /// [`Scheduler::dispose`](crate::Scheduler::dispose) was called.
    #[error("Scheduler is disposed")]
    Disposed,
    /// Nothing can start: the concurrency is zero.
    #[error("Scheduler concurrency is 0")]
    Zero,
    /// More than there will ever be.
    #[error("{amount} slots do not fit into a concurrency of {concurrency}")]
    DoesNotFit {
        /// Slots asked for.
        amount: u32,
        /// Slots in all.
        concurrency: u32,
    },
    /// More tokens than one request may ask for (I6).
    #[error("{amount} tokens are more than 2147483647")]
    TooManyTokens {
        /// Tokens asked for.
        amount: u32,
    },
    /// The segment was removed by force.
    #[error("the segment was retired")]
    Retired,
    /// The segment's file was deleted behind our back.
    #[error("the segment file is gone")]
    Gone,
    /// The segment's file was cut short or overwritten.
    #[error("the segment is damaged")]
    Lost,
    /// The handle was inherited by a forked process, which must open the segment afresh.
    #[error("handle used after fork")]
    Forked,
    /// The thread that wakes waiting tasks could not be started.
    #[error("no thread to wait with: {0}")]
    NoThread(String),
}

/// Why a try took nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryAcquireError {
    /// It would have to wait.
    #[error("no slot is free")]
    NoPermits,
    /// The Limiter's balance is too low, or somebody waits.
    #[error("too few tokens now")]
    NoTokens,
    /// It can never succeed on this handle.
    #[error(transparent)]
    Failed(#[from] AcquireError),
}

/// The Pacer has `max_waiting` callers already (P5, P17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Shared limiter waiting queue is full")]
pub struct QueueFull;

/// Why a call did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Too many wait; nothing was left behind (P48).
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// The wait ended otherwise.
    #[error(transparent)]
    Failed(#[from] AcquireError),
}

/// Why a try did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryStartError {
    /// It would have to wait.
    #[error("it is not time yet")]
    NotYet,
    /// It can never succeed on this handle.
    #[error(transparent)]
    Failed(#[from] AcquireError),
}

impl From<StartError> for TryStartError {
    fn from(error: StartError) -> TryStartError {
        match error {
            StartError::QueueFull(_) => TryStartError::NotYet,
            StartError::Failed(failure) => TryStartError::Failed(failure),
        }
    }
}

/// [`Scheduler::release`](crate::Scheduler::release) without a slot taken by `acquire_with`; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("release without a slot to release")]
pub struct NothingHeld;

/// The segment has no such gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the segment has no {0}")]
pub struct NoGate(pub &'static str);

/// Why settings were not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// A value is out of its range.
    #[error(transparent)]
    Invalid(#[from] InvalidSettings),
    /// A slot count is out of its range.
    #[error(transparent)]
    Concurrency(#[from] InvalidConcurrency),
    /// This version cannot change that.
    #[error("{0} cannot be set")]
    Unsupported(&'static str),
    /// The segment is retired, gone or damaged, or the handle is of before a fork.
    #[error(transparent)]
    Segment(#[from] AcquireError),
}

/// Why a member was not evicted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvictError {
    /// Nobody is there.
    #[error("no such member")]
    NoSuchMember,
    /// Its process runs.
    #[error("member {0} is alive")]
    Living(u32),
    /// Its process cannot be seen from here.
    #[error("member {0} belongs to another pid namespace")]
    OtherNamespace(u32),
    /// Its process is gone and so is its lock: it needs no eviction.
    #[error("member {0} is no orphan")]
    NotOrphaned(u32),
    /// The segment is retired, gone or damaged, or the handle is of before a fork.
    #[error(transparent)]
    Segment(#[from] AcquireError),
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
}
