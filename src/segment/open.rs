//! Attaching: opening a segment and taking a member slot.

use super::attachment::{Attachment, Parts};
use super::files::{self, Files, MEMBERS, Mapped, Probe};
use super::look::{Scope, bury};
use super::views::Views;
use crate::deadline::Deadline;
use crate::error::OpenError;
use crate::layout::{SchedulerHot, put_bytes};
use crate::location::Location;
use crate::protocol::roster;
use crate::sys::lock::{self, Mode};
use crate::sys::{clock, file, fork, membarrier, process};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How to attach.
///
/// ```
/// # use shmsched::OpenOptions;
/// # use std::time::{Duration, Instant};
/// let options = OpenOptions::new().command("resize photos").wait_for_room(Duration::from_secs(5));
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(crate) command: Option<String>,
    pub(crate) wait_for_room: Option<Deadline>,
    pub(crate) trust_foreign: bool,
    pub(crate) survive_truncation: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// What [`Segment::open`](crate::Segment::open) uses: a full table is an error, foreign files are refused, the
    /// command shown is the process's own.
    pub const fn new() -> OpenOptions {
        OpenOptions {
            command: None,
            wait_for_room: None,
            trust_foreign: false,
            survive_truncation: false,
        }
    }

    /// What others see this member run; the first 64 bytes of it.
    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> OpenOptions {
        self.command = Some(command.into());
        self
    }

    /// With every member slot taken by a living one, blocks until one is free; from then on it is
    /// [`OpenError::TableFull`], as it is at once if this is not said.
    #[must_use]
    pub fn wait_for_room(mut self, until: impl Into<Deadline>) -> OpenOptions {
        self.wait_for_room = Some(until.into());
        self
    }

    /// Opens a segment that belongs to another user in a directory anybody can write to (such as /tmp). Otherwise that is
    /// [`OpenError::Foreign`]: its owner can cut the file short, or change every counter, at any time.
    #[must_use]
    pub fn trust_foreign(mut self, trust: bool) -> OpenOptions {
        self.trust_foreign = trust;
        self
    }

    /// Installs a process-wide SIGBUS handler, so that somebody cutting the file short makes
    /// [`AcquireError::Lost`](crate::AcquireError::Lost) instead of killing the process. It passes on faults that are not
    /// its own, and guards 64 mappings at most. A handler that the program installs later takes its place.
    #[must_use]
    pub fn survive_truncation(mut self, survive: bool) -> OpenOptions {
        self.survive_truncation = survive;
        self
    }
}

/// Attaches to a file or `shm:` segment.
pub(crate) fn attach(
    location: &Location,
    options: &OpenOptions,
) -> Result<Arc<Attachment>, OpenError> {
    membarrier::register()?;
    let mut pause = Duration::from_millis(1);
    let mut resets = 0;
    let patience = Instant::now() + Duration::from_secs(1);
    loop {
        match attempt(location, options)? {
            Attempt::Attached(attachment) => {
                attachment.look(Scope::Concerned);
                return Ok(attachment);
            }
            Attempt::Vanished => {}
            Attempt::EarlierBoot => {
                // Somebody of this boot may be resetting it, or the boot id file changed under a living segment.
                resets += 1;
                if resets > 100 {
                    return Err(OpenError::Damaged(
                        "its boot id is not this boot's, but somebody is attached".into(),
                    ));
                }
                reset_after_reboot(location, options)?;
            }
            Attempt::Incomplete(why) => {
                if Instant::now() >= patience {
                    return Err(OpenError::NotASegment(why));
                }
            }
            Attempt::Full => {
                if options.wait_for_room.is_none_or(|until| until.has_passed()) {
                    return Err(OpenError::TableFull);
                }
                pause = Duration::from_millis(100);
            }
        }
        std::thread::sleep(pause);
    }
}

enum Attempt {
    Attached(Arc<Attachment>),
    /// Unlinked between opening and locking.
    Vanished,
    EarlierBoot,
    /// A `shm:` segment that somebody may be making.
    Incomplete(String),
    Full,
}

fn attempt(location: &Location, options: &OpenOptions) -> Result<Attempt, OpenError> {
    // A fork between opening and registering would leave a child that keeps our lock alive and knows nothing of it.
    let _still = fork::hold_off();
    let file = files::open(location, true, options.trust_foreign)?;
    if !files::lock_attaching(&file, Mode::Shared)? {
        return Err(OpenError::Io(io::Error::new(
            io::ErrorKind::WouldBlock,
            "somebody has been removing or resetting it for two seconds",
        )));
    }
    if file::links(&file)? == 0 {
        return Ok(Attempt::Vanished);
    }
    let Mapped {
        views,
        checked,
        watch,
    } = match files::map(location, &file, true, options.survive_truncation) {
        // Not published by a link: what is empty or incomplete may be under construction.
        Err(OpenError::NotASegment(why)) if matches!(location, Location::Shm(_)) => {
            return Ok(Attempt::Incomplete(why));
        }
        other => other?,
    };
    if checked.boot != clock::boot_id()? {
        return Ok(Attempt::EarlierBoot);
    }
    if views.hot.flags.get() & SchedulerHot::FLAG_RETIRED != 0 {
        return Err(OpenError::Retired);
    }
    // It has a name: links said so under the lock.
    for flags in views.flags() {
        flags.clear_bits(SchedulerHot::FLAG_GONE);
    }
    let mut probe = Probe::new(location.path(), file::identity(&file)?, true);
    let mut claimed = claim(&views, &file, options)?;
    if claimed.is_none() && bury(&views, &mut probe, None, Scope::Everybody) != 0 {
        claimed = claim(&views, &file, options)?;
    }
    let Some((me, generation)) = claimed else {
        return Ok(Attempt::Full);
    };
    lock::unlock(file.as_fd(), files::ATTACHING)?;
    let attachment = Attachment::new(Parts {
        views,
        location: Some(location.clone()),
        checked,
        me,
        generation,
        files: Some(Files::new(file, probe)),
        watch,
        parent: None,
    });
    let aware: Arc<dyn fork::ForkAware> = attachment.clone();
    fork::register(Arc::downgrade(&aware));
    Ok(Attempt::Attached(attachment))
}

/// Takes the first FREE member slot whose byte is free. While we hold the byte nobody else touches it.
fn claim(
    views: &Views,
    file: &File,
    options: &OpenOptions,
) -> Result<Option<(u32, u32)>, OpenError> {
    for (index, member) in (0u32..).zip(views.roster.iter()) {
        if !roster::Status(member.status.get()).is_free() {
            continue;
        }
        let byte = MEMBERS + u64::from(index);
        if !lock::try_lock(file.as_fd(), byte, Mode::Exclusive)? {
            continue;
        }
        if roster::Status(member.status.get()).is_free() {
            roster::raise(&views.cold.members_high, index + 1);
            introduce(member, options);
            if let Some(generation) = roster::claim(member) {
                return Ok(Some((index, generation)));
            }
        }
        lock::unlock(file.as_fd(), byte)?;
    }
    Ok(None)
}

/// Fills in who it is, before the member slot becomes LIVE.
pub(crate) fn introduce(member: &crate::layout::Member, options: &OpenOptions) {
    let me = process::me();
    member.pid.put(me.pid);
    member.start.put(me.start);
    member.namespace.put(me.namespace);
    member.attached.put(clock::now());
    member.held_since.put(0);
    match &options.command {
        Some(command) => roster::put_command(&member.command, command),
        None => roster::put_command(&member.command, &own_command()),
    }
}

fn own_command() -> String {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    words.fold(program, |line, word| line + " " + &word)
}

/// The first of a new boot to attach resets the counters: settings stay. Only if no member's byte is locked, under the
/// exclusive attaching byte; the boot id is written last, so that a reset cut short is done again.
fn reset_after_reboot(location: &Location, options: &OpenOptions) -> Result<(), OpenError> {
    let _still = fork::hold_off();
    let file = files::open(location, true, options.trust_foreign)?;
    if !files::lock_attaching(&file, Mode::Exclusive)? {
        return Ok(());
    }
    let Mapped { views, checked, .. } = files::map(location, &file, true, false)?;
    let boot = clock::boot_id()?;
    if checked.boot == boot || file::links(&file)? == 0 {
        return Ok(());
    }
    let mut probe = Probe::new(location.path(), file::identity(&file)?, true);
    if probe.anybody(checked.geometry.members) {
        return Ok(());
    }
    views.reset(clock::now());
    put_bytes(&views.header.boot, boot);
    Ok(())
}
