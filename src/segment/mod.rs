//! Segments: making, opening, changing and removing them.

pub(crate) mod attachment;
mod change;
pub(crate) mod create;
pub(crate) mod files;
mod look;
pub(crate) mod observe;
mod open;
mod remove;
mod upkeep;
pub(crate) mod views;

pub use look::Looked;
pub(crate) use look::{Scope, concerned};
pub use observe::Observer;
pub use open::OpenOptions;

use crate::error::{CreateError, NoGate, OpenError, RemoveError};
use crate::layout::Gate;
use crate::limiter::Limiter;
use crate::location::Location;
use crate::pacer::Pacer;
use crate::protocol::roster;
use crate::scheduler::Scheduler;
use crate::settings::Settings;
use crate::sys::{fork, membarrier};
use attachment::{Attachment, Parts, state};
use std::sync::Arc;

/// One attachment to a segment: a member. Clones are the same member; opening the segment again makes another.
///
/// Dropping the last clone, with every [`Scheduler`] and permit made from it, detaches: whatever is still held is given
/// back. A process that dies any other way leaves that to the survivors.
///
/// After a fork the child's copies answer [`AcquireError::Forked`](crate::AcquireError::Forked) and do nothing; the child opens the segment afresh.
///
/// ```
/// use shmsched::{Location, OpenOptions, Priority, Segment, Settings};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("thumbs");
/// let location = Location::resolve(Some(path.as_os_str()))?; // or just a name, "thumbs"
/// let settings = Settings::new().concurrency(8);
/// let (segment, created) = Segment::create_or_open(&location, &settings, &OpenOptions::new())?;
/// assert!(created);
/// let permit = segment.scheduler()?.blocking_acquire_owned(Priority::Normal)?;
/// // ... at most 8 of these at once, over all processes
/// drop(permit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Segment {
    handle: Arc<Handle>,
}

/// What detaches: shared by a segment, its schedulers and their owned permits.
pub(crate) struct Handle {
    pub(crate) attachment: Arc<Attachment>,
}

impl Handle {
    /// The only one of an attachment.
    fn new(attachment: Arc<Attachment>) -> Arc<Handle> {
        let handle = Arc::new(Handle { attachment });
        let _ = handle.attachment.handle.set(Arc::downgrade(&handle));
        handle
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.attachment.shut_down();
        self.attachment.detach();
    }
}

/// A member of a private segment, of this process alone. `parent`: of a child's Limiter.
pub(crate) fn local(
    settings: Settings,
    parent: Option<Arc<Handle>>,
) -> Result<Arc<Handle>, CreateError> {
    membarrier::register()?;
    let (views, checked) = create::local(settings)?;
    views.cold.members_high.put(1);
    let generation = roster::claim(&views.roster[0]).unwrap_or(1);
    let attachment = Attachment::new(Parts {
        views,
        location: None,
        checked,
        me: 0,
        generation,
        files: None,
        watch: None,
        parent,
    });
    let aware: Arc<dyn fork::ForkAware> = attachment.clone();
    fork::register(Arc::downgrade(&aware));
    Ok(Handle::new(attachment))
}

/// Which member: its member slot, and which attachment to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberId {
    /// Member slot: the row of the roster.
    pub index: u32,
    /// Counts the attachments to it.
    pub generation: u32,
}

impl Segment {
    fn of(attachment: Arc<Attachment>) -> Segment {
        Segment {
            handle: Handle::new(attachment),
        }
    }

    /// Makes a segment, without attaching to it. It appears complete under its name, or not at all.
    ///
    /// # Errors
    ///
    /// [`CreateError::Exists`], [`CreateError::Invalid`] for a number out of its range, and what keeps a file from being
    /// made. Nothing is left behind then.
    pub fn make(location: &Location, settings: &Settings) -> Result<(), CreateError> {
        create::create(location, settings)
    }

    /// Makes a segment and attaches to it.
    ///
    /// # Errors
    ///
    /// As [`Segment::make`] and [`Segment::open`].
    pub fn create(location: &Location, settings: &Settings) -> Result<Segment, CreateError> {
        Segment::make(location, settings)?;
        Ok(Segment::open(location)?)
    }

    /// Attaches to a segment.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: nothing there, no segment, another version, no permission, no member slot.
    pub fn open(location: &Location) -> Result<Segment, OpenError> {
        Segment::open_with(location, &OpenOptions::new())
    }

    /// Attaches to a segment, see [`OpenOptions`].
    ///
    /// # Errors
    ///
    /// As [`Segment::open`].
    pub fn open_with(location: &Location, options: &OpenOptions) -> Result<Segment, OpenError> {
        open::attach(location, options).map(Segment::of)
    }

    /// Attaches to a segment, making it first if there is none; says whether this call made it. Of many that race,
    /// one makes it. The settings of one that exists are left alone: see [`Segment::differs`].
    ///
    /// # Errors
    ///
    /// As [`Segment::make`] and [`Segment::open`].
    pub fn create_or_open(
        location: &Location,
        settings: &Settings,
        options: &OpenOptions,
    ) -> Result<(Segment, bool), CreateError> {
        settings.validate()?;
        // Somebody may remove it between finding and opening it.
        for _ in 0..100 {
            match Segment::open_with(location, options) {
                Ok(segment) => return Ok((segment, false)),
                Err(OpenError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
            match Segment::make(location, settings) {
                Ok(()) => match Segment::open_with(location, options) {
                    Ok(segment) => return Ok((segment, true)),
                    Err(OpenError::NotFound) => {}
                    Err(error) => return Err(error.into()),
                },
                Err(CreateError::Exists) => {}
                Err(error) => return Err(error),
            }
        }
        Err(CreateError::Open(OpenError::NotFound))
    }

    /// Removes a segment. While anybody is attached it refuses, unless `force`: then the segment is retired, its
    /// waiters fail at once and its users at their next acquire; their slots in use stay theirs.
    ///
    /// # Errors
    ///
    /// [`RemoveError::InUse`], and what keeps a file from being removed. Nothing was changed then.
    ///
    /// ```
    /// use shmsched::{Location, OpenError, RemoveError, Segment, Settings};
    /// # let directory = tempfile::tempdir()?;
    /// # let location = Location::File(directory.path().join("thumbs"));
    /// let segment = Segment::create(&location, &Settings::new().rate(1_000))?;
    /// assert!(matches!(Segment::remove(&location, false), Err(RemoveError::InUse { .. })));
    /// drop(segment);
    /// Segment::remove(&location, false)?;
    /// assert!(matches!(Segment::open(&location), Err(OpenError::NotFound)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(location: &Location, force: bool) -> Result<(), RemoveError> {
        remove::remove(location, force)
    }

    /// The Scheduler of this segment.
    ///
    /// # Errors
    ///
    /// [`NoGate`] if it was made without `concurrency`.
    pub fn scheduler(&self) -> Result<Scheduler, NoGate> {
        self.gate(Gate::Scheduler, "scheduler")?;
        Ok(Scheduler::shared(self.handle.clone()))
    }

    /// The Limiter of this segment.
    ///
    /// # Errors
    ///
    /// [`NoGate`] if it was made without `rate`.
    pub fn limiter(&self) -> Result<Limiter, NoGate> {
        self.gate(Gate::Limiter, "limiter")?;
        Ok(Limiter::of(self.handle.clone()))
    }

    /// The Pacer of this segment.
    ///
    /// # Errors
    ///
    /// [`NoGate`] if it was made without `interval`.
    pub fn pacer(&self) -> Result<Pacer, NoGate> {
        self.gate(Gate::Pacer, "pacer")?;
        Ok(Pacer::of(self.handle.clone()))
    }

    fn gate(&self, gate: Gate, name: &'static str) -> Result<(), NoGate> {
        // In a forked child the mapping is not there; the handle will say so.
        match self.is_forked() || self.attachment().views.has(gate) {
            true => Ok(()),
            false => Err(NoGate(name)),
        }
    }

    /// Random identity of this life of the segment: one that was removed and made again has another.
    pub fn id(&self) -> [u8; 16] {
        self.attachment().checked.id
    }

    /// Where it is.
    pub fn location(&self) -> &Location {
        self.attachment()
            .location
            .as_ref()
            .expect("a segment has a place; only local schedulers have none")
    }

    /// This member.
    pub fn member(&self) -> MemberId {
        let attachment = self.attachment();
        MemberId {
            index: attachment.me,
            generation: attachment.generation,
        }
    }

    pub(crate) fn attachment(&self) -> &Arc<Attachment> {
        &self.handle.attachment
    }

    fn is_forked(&self) -> bool {
        self.attachment().state.get() & state::FORKED != 0
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment")
            .field("location", &self.location())
            .field("member", &self.member())
            .finish()
    }
}
