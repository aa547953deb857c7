//! Making a segment, and changing its settings.

use super::files;
use super::views::Views;
use crate::concurrency::Concurrency;
use crate::error::{CreateError, OpenError};
use crate::layout::{Checked, Gate, Geometry, Header, LANES, Map, SchedulerCold, SchedulerHot};
use crate::location::Location;
use crate::settings::Settings;
use crate::sys::file::{Publish, publish};
use crate::sys::mapping::Mapping;
use crate::sys::{clock, file, lock};
use shared_memory::{ShmemConf, ShmemError};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// `configured`: no target given.
const NOT_GIVEN: i32 = -2;
/// Anywhere: unlimited.
const UNLIMITED: i32 = -1;

/// Makes a complete segment appear under its name, or nothing.
pub(crate) fn create(location: &Location, settings: &Settings) -> Result<(), CreateError> {
    settings.validate()?;
    let geometry = Geometry::of(settings.members, settings.max_waiting);
    let bytes = Map::of(geometry).bytes;
    let boot = clock::boot_id()?;
    let id = clock::random_id()?;
    let mut fill = |file: &File| -> io::Result<()> {
        usable(file)?;
        let map = Mapping::file(file, bytes as usize, true)?;
        let views = Views::new(map, geometry).ok_or(io::ErrorKind::UnexpectedEof)?;
        fill(&views, settings, id, boot);
        Ok(())
    };
    match location {
        Location::Shm(name) => create_shm(name, bytes, settings.mode, &mut fill),
        Location::File(path) => {
            location.prepare_directory()?;
            publish(path, bytes, settings.mode, &mut fill)
                .map(drop)
                .map_err(published)
        }
    }
}

fn published(failure: Publish) -> CreateError {
    match failure {
        Publish::Exists => CreateError::Exists,
        Publish::NoSpace => CreateError::NoSpace,
        Publish::MissingDirectory => CreateError::MissingDirectory,
        Publish::Permission => CreateError::Permission,
        Publish::Io(error) if error.kind() == io::ErrorKind::Unsupported => {
            CreateError::Unsupported(error.to_string())
        }
        Publish::Io(error) => CreateError::Io(error),
    }
}

/// Byte locks and shared mappings must work here, or the segment would be worse than none.
fn usable(file: &File) -> io::Result<()> {
    let locked = lock::try_lock(file.as_fd(), files::MEMBERS, lock::Mode::Exclusive);
    let unlocked = locked.and_then(|_| lock::unlock(file.as_fd(), files::MEMBERS));
    unlocked.map_err(|error| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            format!("no byte locks: {error}"),
        )
    })
}

fn fill(views: &Views, settings: &Settings, id: [u8; 16], boot: [u8; 16]) {
    let now = clock::now();
    let gates = [
        (Gate::Scheduler, settings.concurrency.is_some()),
        (Gate::Limiter, settings.rate.is_some()),
        (Gate::Pacer, settings.interval.is_some()),
    ];
    let gates = gates.iter().filter(|(_, given)| *given);
    let gates = gates.fold(0, |bits, (gate, _)| bits | gate.bit());
    write_concurrency(
        &views.hot,
        &views.cold,
        &settings.concurrency.clone().unwrap_or_default(),
    );
    // A bucket is full at creation, and not again when somebody attaches (X4); the first start is due at once (P7).
    if let Some(rate) = settings.rate {
        views.limiter().bucket().fill(rate, now);
    }
    let interval = settings.interval.map_or(1, interval_word);
    views.pacer_hot.interval.put(interval);
    views.cold.members_high.put(0);
    views.cold.records_high.put(views.geometry.members);
    views
        .header
        .fill(views.geometry, id, boot, gates, settings.mode, now);
    views.header.ready.put(1);
}

/// POSIX shared memory has no link that publishes: the creator's byte is held while it builds, and `ready` is written
/// last. What a creator that died left is removed by the next.
fn create_shm(
    name: &str,
    bytes: u64,
    mode: u32,
    fill: &mut dyn FnMut(&File) -> io::Result<()>,
) -> Result<(), CreateError> {
    let _still = crate::sys::fork::hold_off();
    // Beyond this limit the kernel would not only refuse but send SIGXFSZ, which kills.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < bytes) {
        return Err(CreateError::NoSpace);
    }
    let make = || {
        ShmemConf::new()
            .os_id(format!("/{name}"))
            .size(bytes as usize)
            .create()
    };
    let mut made = match make() {
        Err(ShmemError::MappingIdExists) if remove_half_made(name) => make(),
        other => other,
    }
    .map_err(|error| match error {
        ShmemError::MappingIdExists => CreateError::Exists,
        other => CreateError::Io(io::Error::other(other.to_string())),
    })?;
    let path = Location::Shm(name.to_owned()).path();
    let built = (|| -> Result<(), CreateError> {
        let file = file::open(&path, true, false)
            .map_err(|refusal| CreateError::Open(files::refused(refusal)))?;
        // An opener holds it for a moment while it finds that nothing is ready.
        if !files::lock_attaching(&file, lock::Mode::Exclusive)? || file::links(&file)? == 0 {
            return Err(CreateError::Exists);
        }
        // The crate only truncates: on a full tmpfs the first store would be a SIGBUS.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
            .map_err(|error| published(Publish::from(io::Error::from(error))))?;
        fill(&file)?;
        // Last, so that nobody else can open it half made.
        rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(mode))
            .map_err(io::Error::from)?;
        Ok(())
    })();
    // The crate unlinks on drop what it owns: on failure that is what we want.
    made.set_owner(built.is_err() && !matches!(built, Err(CreateError::Exists)));
    built
}

/// Removes a `shm:` object that is no segment and that nobody is building.
fn remove_half_made(name: &str) -> bool {
    let location = Location::Shm(name.to_owned());
    let Ok(file) = files::open(&location, true, false) else {
        return false;
    };
    let nobody =
        lock::try_lock(file.as_fd(), files::ATTACHING, lock::Mode::Exclusive).unwrap_or(false);
    let half = matches!(
        files::map(&location, &file, true, false),
        Err(OpenError::NotASegment(_))
    );
    // A creator locks right after making it: one younger than a second may be between the two.
    let young = file
        .metadata()
        .and_then(|about| about.modified())
        .is_ok_and(|made| made.elapsed().is_ok_and(|age| age.as_secs() < 1));
    nobody
        && half
        && !young
        && file::links(&file).is_ok_and(|links| links == 1)
        && std::fs::remove_file(location.path()).is_ok()
}

/// Writes the configured and the resolved values. Each word alone is right at any moment, and admission checks all that
/// concern it.
pub(crate) fn write_concurrency(
    hot: &SchedulerHot,
    cold: &SchedulerCold,
    concurrency: &Concurrency,
) {
    let word =
        |limit: Option<u32>| limit.map_or(UNLIMITED, |limit| limit.min(i32::MAX as u32) as i32);
    for (lane, target) in concurrency.resolve().into_iter().enumerate() {
        let given = concurrency.targets[lane];
        cold.configured[lane].put(given.map_or(NOT_GIVEN, |given| word(Some(given))));
        hot.targets[lane].put(word(target));
    }
    hot.concurrency.put(word(concurrency.max));
}

/// The settings as they were given.
pub(crate) fn read_concurrency(hot: &SchedulerHot, cold: &SchedulerCold) -> Concurrency {
    let mut concurrency = Concurrency::unlimited();
    concurrency.max = u32::try_from(hot.concurrency.get()).ok();
    for lane in 0..LANES {
        concurrency.targets[lane] = u32::try_from(cold.configured[lane].get()).ok();
    }
    concurrency
}

/// An interval as the segment has it: in ns, at least one.
pub(crate) fn interval_word(interval: Duration) -> u64 {
    u64::try_from(interval.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1)
}

/// In what a segment differs from settings that were asked for.
pub(crate) fn differences(views: &Views, checked: &Checked, settings: &Settings) -> Vec<String> {
    let mut differences = Vec::new();
    if let (Some(wanted), false) = (&settings.concurrency, views.has(Gate::Scheduler)) {
        let show = |max: Option<u32>| max.map_or("unlimited".to_owned(), |max| max.to_string());
        differences.push(format!("no concurrency, not {}", show(wanted.max)));
    } else if let Some(wanted) = &settings.concurrency {
        let has = read_concurrency(&views.hot, &views.cold);
        let show = |max: Option<u32>| max.map_or("unlimited".to_owned(), |max| max.to_string());
        if has.max != wanted.max {
            let (has, wanted) = (show(has.max), show(wanted.max));
            differences.push(format!("concurrency is {has}, not {wanted}"));
        }
        for priority in crate::Priority::ALL {
            let [has, wanted] = [&has, wanted].map(|c| c.targets[priority.index()]);
            if let (true, Some(target)) = (has != wanted, wanted) {
                let has = has.map_or("not set".to_owned(), |has| has.to_string());
                differences.push(format!("target {priority} is {has}, not {target}"));
            }
        }
    }
    let lacks = |gate: Gate| !views.has(gate);
    match settings.rate {
        Some(wanted) if lacks(Gate::Limiter) => differences.push(format!("no rate, not {wanted}")),
        Some(wanted) if wanted != views.limiter().bucket().rate() => {
            let has = views.limiter().bucket().rate();
            differences.push(format!("rate is {has}, not {wanted}"));
        }
        _ => {}
    }
    match settings.interval {
        Some(wanted) if lacks(Gate::Pacer) => {
            differences.push(format!("no interval, not {wanted:?}"))
        }
        Some(wanted) if interval_word(wanted) != views.pacer().interval() => {
            let has = Duration::from_nanos(views.pacer().interval());
            differences.push(format!("interval is {has:?}, not {wanted:?}"));
        }
        _ => {}
    }
    let usual = Settings::new();
    let geometry = checked.geometry;
    if settings.max_waiting != usual.max_waiting && settings.max_waiting != geometry.max_waiting {
        let (has, wanted) = (geometry.max_waiting, settings.max_waiting);
        differences.push(format!("max waiting is {has}, not {wanted}"));
    }
    if settings.members != usual.members && settings.members != geometry.members {
        let (has, wanted) = (geometry.members, settings.members);
        differences.push(format!("members are {has}, not {wanted}"));
    }
    if settings.mode != usual.mode && settings.mode != checked.mode {
        let (has, wanted) = (checked.mode, settings.mode);
        differences.push(format!("mode is {has:o}, not {wanted:o}"));
    }
    differences
}

/// A private segment of one process: the same records over an anonymous mapping.
pub(crate) fn local(settings: Settings) -> Result<(Views, Checked), CreateError> {
    let settings = settings.members(1);
    settings.validate()?;
    let geometry = Geometry {
        members: 1,
        records: 512,
        max_waiting: settings.interval.map_or(0, |_| settings.max_waiting),
    };
    let bytes = Map::of(geometry).bytes;
    let map: Arc<Mapping> = Mapping::anonymous(bytes as usize)?;
    let views = Views::new(map, geometry).ok_or(OpenError::Layout)?;
    fill(
        &views,
        &settings,
        clock::random_id()?,
        clock::boot_id().unwrap_or_default(),
    );
    let header: &Header = &views.header;
    let checked = header.check(bytes).map_err(|_| OpenError::Layout)?;
    Ok((views, checked))
}
