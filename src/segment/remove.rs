//! Removing a segment: under the exclusive attaching byte, so that nobody attaches to what is about to go.

use super::files::{self, Mapped, Probe};
use crate::error::{OpenError, RemoveError};
use crate::layout::SchedulerHot;
use crate::location::Location;
use crate::park;
use crate::sys::lock::Mode;
use crate::sys::{file, fork};
use std::io;

pub(crate) fn remove(location: &Location, force: bool) -> Result<(), RemoveError> {
    let _still = fork::hold_off();
    let opened = match files::open(location, true, true) {
        Ok(opened) => opened,
        Err(OpenError::NotFound) => return Err(RemoveError::NotFound),
        Err(OpenError::Permission) => return Err(RemoveError::Permission),
        Err(OpenError::Io(error)) => return Err(RemoveError::Io(error)),
        Err(other) => return Err(RemoveError::Open(other)),
    };
    if !files::lock_attaching(&opened, Mode::Exclusive)? {
        return Err(RemoveError::InUse { members: 1 });
    }
    if file::links(&opened)? == 0 {
        return Err(RemoveError::NotFound);
    }
    let path = location.path();
    let identity = file::identity(&opened)?;
    let usable = files::map(location, &opened, true, false);
    if !force {
        // Of a damaged one nobody knows how many slots it had: ask about all there could be.
        let slots = usable
            .as_ref()
            .map_or(crate::layout::Geometry::MAX_MEMBERS, |mapped| {
                mapped.checked.geometry.members
            });
        let mut probe = Probe::new(path.clone(), identity, true);
        if probe.anybody(slots) {
            let members = (0..slots.min(1 << 14))
                .filter(|member| !probe.is_dead(*member))
                .count();
            return Err(RemoveError::InUse {
                members: members.max(1) as u32,
            });
        }
    }
    match usable {
        Ok(Mapped { views, .. }) => {
            if force {
                views.raise_flag(SchedulerHot::FLAG_RETIRED);
            }
            unlink(&path)?;
            for member in views.members() {
                park::ring_everybody(&member.bell);
            }
            Ok(())
        }
        // Not one of ours, or no more: only by force, so that a typing error does not cost a file.
        Err(why) if !force => Err(RemoveError::Open(why)),
        // What a creator of a shm: segment that died left is ours to remove; another file is not.
        Err(OpenError::NotASegment(why)) => match location {
            Location::Shm(_) if file::len(&opened).is_ok_and(|length| length == 0) => unlink(&path),
            _ => Err(RemoveError::Open(OpenError::NotASegment(why))),
        },
        Err(_) => unlink(&path),
    }
}

fn unlink(path: &std::path::Path) -> Result<(), RemoveError> {
    std::fs::remove_file(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => RemoveError::NotFound,
        io::ErrorKind::PermissionDenied => RemoveError::Permission,
        _ => RemoveError::Io(error),
    })
}
