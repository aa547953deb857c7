//! Segments: making, opening, changing and removing them.

pub(crate) mod attachment;
pub(crate) mod create;
pub(crate) mod files;
mod look;
pub(crate) mod observe;
mod open;
mod remove;
pub(crate) mod views;

pub use look::Looked;
pub(crate) use look::Scope;
pub use observe::Observer;
pub use open::OpenOptions;

use crate::deadline::Deadline;
use crate::error::{
    AcquireError, CreateError, EvictError, NoGate, OpenError, RemoveError, SetError,
};
use crate::layout::Gate;
use crate::limiter::Limiter;
use crate::location::Location;
use crate::pacer::Pacer;
use crate::protocol::roster::{self, Status};
use crate::protocol::turn::Why;
use crate::scheduler::Scheduler;
use crate::settings::{Changes, Settings};
use crate::sys::process::{self, Seen};
use crate::sys::{clock, fork, membarrier};
use attachment::{Attachment, Parts, state};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// One attachment to a segment: a member. Clones are the same member; opening the segment again makes another.
///
/// Dropping the last clone, with every [`Scheduler`] and permit made from it, detaches: whatever is still held is given
/// back. A process that dies any other way leaves that to the survivors.
///
/// After a fork the child's copies answer [`AcquireError::Forked`] and do nothing; the child opens the segment afresh.
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
    Ok(Arc::new(Handle { attachment }))
}

/// Which member: its slot, and which attachment of that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberId {
    /// Slot in the roster.
    pub index: u32,
    /// Counts the slot's attachments.
    pub generation: u32,
}

impl Segment {
    fn of(attachment: Arc<Attachment>) -> Segment {
        Segment {
            handle: Arc::new(Handle { attachment }),
        }
    }

    /// Makes a segment, without attaching to it. It appears complete under its name, or not at all.
    ///
    /// # Errors
    ///
    /// [`CreateError::Exists`] and what keeps a file from being made; nothing is left behind then.
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

    /// Random identity of this life of the segment.
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

    /// Changes settings; what `changes` does not name stays. A gate that was not there is added.
    ///
    /// Takes effect for the next admission; slots that are held stay held, so after lowering the limit `running` exceeds
    /// it until enough were released. A rate counts from now: what was earned before is paid at the old one, a balance
    /// above the new capacity is cut to it, a debt stays. The next start is at most the new interval away. Who waits is
    /// told.
    ///
    /// # Errors
    ///
    /// [`SetError::Invalid`] and nothing was changed.
    pub fn set(&self, changes: &Changes) -> Result<(), SetError> {
        changes.validate()?;
        let attachment = self.attachment();
        if let Some(failure) = attachment.failure() {
            return Err(failure.into());
        }
        let views = &attachment.views;
        let now = clock::now();
        let mut gates = 0;
        if changes.concurrency.is_some() || changes.targets.iter().any(Option::is_some) {
            let mut concurrency = create::read_concurrency(&views.hot, &views.cold);
            if let Some(max) = changes.concurrency {
                concurrency.max = max;
            }
            for (target, change) in concurrency.targets.iter_mut().zip(changes.targets) {
                *target = change.or(*target);
            }
            concurrency.validate()?;
            create::write_concurrency(&views.hot, &views.cold, &concurrency);
            gates |= Gate::Scheduler.bit();
        }
        if let Some(rate) = changes.rate {
            let bucket = views.limiter().bucket();
            if !bucket.begin(rate, clock::now) {
                bucket.set_rate(rate, clock::now());
            }
            gates |= Gate::Limiter.bit();
        }
        if let Some(interval) = changes.interval {
            let interval = create::interval_word(interval);
            views.pacer().set_interval(interval, now);
            gates |= Gate::Pacer.bit();
        }
        views.header.gates.set_bits(gates);
        attachment.advance_after_freeing();
        for gate in [Gate::Limiter, Gate::Pacer] {
            if gates & gate.bit() != 0 {
                attachment.advance(gate, None, Why::Sooner);
            }
        }
        Ok(())
    }

    /// In what an existing segment differs from settings, a sentence each: for who asked for a segment of his own
    /// settings and got one that was there. Empty in a forked child.
    pub fn differs(&self, settings: &Settings) -> Vec<String> {
        if self.is_forked() {
            return Vec::new();
        }
        create::differences(
            &self.attachment().views,
            &self.attachment().checked,
            settings,
        )
    }

    /// Looks for the dead now and gives their slots back. Waiters and refusals do so by themselves.
    pub fn look(&self) -> Looked {
        self.attachment().look(Scope::Everybody)
    }

    /// Frees an orphan: a member whose process is gone but whose lock lives on, because a command that inherited it
    /// (of a killed `shmsched run`) still runs. Returns the slots it held. The command goes on, without a permit.
    ///
    /// # Errors
    ///
    /// [`EvictError`] for anybody else; nothing was changed then.
    pub fn evict(&self, member: u32) -> Result<u32, EvictError> {
        let attachment = self.attachment();
        if let Some(failure) = attachment.failure() {
            return Err(failure.into());
        }
        let views = &attachment.views;
        // This member is here only to evict.
        let found = views
            .members()
            .get(member as usize)
            .filter(|_| member != attachment.me)
            .ok_or(EvictError::NoSuchMember)?;
        let generation = Status(found.status.get())
            .live()
            .ok_or(EvictError::NoSuchMember)?;
        if found.namespace.get() != process::me().namespace {
            return Err(EvictError::OtherNamespace(member));
        }
        if !matches!(
            process::look(found.pid.get(), found.start.get()),
            Seen::Gone | Seen::Zombie
        ) {
            return Err(EvictError::Living(member));
        }
        let dead = attachment
            .files
            .lock()
            .as_mut()
            .is_none_or(|files| files.probe.is_dead(member));
        if dead {
            return Err(EvictError::NotOrphaned(member));
        }
        let held = observe::held_by(views, member, generation);
        if !roster::retire(found, generation) {
            return Err(EvictError::NoSuchMember);
        }
        attachment.look(Scope::Concerned);
        Ok(held)
    }

    /// A duplicate of the descriptor whose description is this member's lock, for a command that is to keep the
    /// member's slots should this process be killed: inherited on exec, numbered 100 or above where the limit allows.
    /// The lock ends when every copy is closed, or when this member detaches.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn keep_for_child(&self) -> io::Result<OwnedFd> {
        let files = self.attachment().files.lock();
        let lock = files
            .as_ref()
            .and_then(|files| files.lock())
            .ok_or(io::ErrorKind::Unsupported)?;
        use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
        let copy = match fcntl_dupfd_cloexec(lock, 100) {
            Ok(copy) => copy,
            // The limit is below 100: the highest there is.
            Err(_) => {
                let most = rustix::process::getrlimit(rustix::process::Resource::Nofile)
                    .current
                    .unwrap_or(64);
                (3..most.min(100) as i32)
                    .rev()
                    .find_map(|least| fcntl_dupfd_cloexec(lock, least).ok())
                    .ok_or(io::Error::from(rustix::io::Errno::MFILE))?
            }
        };
        fcntl_setfd(&copy, FdFlags::empty())?;
        Ok(copy)
    }

    /// Says that this process ends right after its last handle is dropped, so that the detach need not wake the thread
    /// that waited for its tasks: one futex wake less. The thread of a process that goes on after all stays until then.
    pub fn expect_exit(&self) {
        self.attachment().helper.lock().abandon();
    }

    /// Waits until nothing is held and nobody waits, looking for the dead meanwhile. Reads 20 times a second: there is
    /// no place in the line for this.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`], or the segment is no use any more.
    pub fn wait_idle(&self, until: impl Into<Deadline>) -> Result<(), AcquireError> {
        let until = until.into();
        let attachment = self.attachment();
        loop {
            if let Some(failure) = attachment.failure() {
                return Err(failure);
            }
            attachment.look_if_stale();
            let hot = attachment.hot();
            let lines = attachment.views.lines();
            if hot.running.get() <= 0 && lines.iter().all(|line| line.entries().is_empty()) {
                // So does a file that was cut short or overwritten with zeros.
                attachment.notice_damage();
                return attachment.failure().map_or(Ok(()), Err);
            }
            if until.has_passed() {
                return Err(AcquireError::TimedOut);
            }
            attachment.notice_gone();
            std::thread::sleep(
                until
                    .remaining()
                    .unwrap_or(Duration::MAX)
                    .min(Duration::from_millis(50)),
            );
        }
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
