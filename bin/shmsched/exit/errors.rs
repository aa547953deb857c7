//! What each error of the library and of the system becomes: a code, a line, and what to do.

use std::io::{self, ErrorKind};

use shmsched::{
    AcquireError, CreateError, EvictError, Gate, Location, LocationError, NoGate, OpenError,
    RemoveError, SetError,
};

use super::{Code, Failure};

/// A failure to open a segment.
pub fn opening(error: OpenError, location: &Location) -> Failure {
    let (code, to_do) = match &error {
        OpenError::NotFound => (Code::NoSegment, "make it with 'shmsched create'"),
        OpenError::NotASegment(_) => (Code::Data, "remove the file, or name another"),
        OpenError::Damaged(_) => (
            Code::Data,
            "end its users, delete the file, and create it anew",
        ),
        OpenError::Format { .. } | OpenError::Layout => (
            Code::Format,
            "use the shmsched that made it, or remove it and create it anew",
        ),
        OpenError::Permission => (Code::Permission, "ask its owner, or see 'create --mode'"),
        OpenError::Foreign { .. } => (
            Code::Permission,
            "if you trust that user, add --trust-foreign",
        ),
        OpenError::TableFull => (
            Code::Unavailable,
            "try again later, or create it anew with more --members",
        ),
        OpenError::Retired => (Code::Unavailable, "create it anew"),
        OpenError::Name(error) => return locating(error),
        OpenError::Io(error) => (system(error, Code::Io), for_want(error)),
        _ => (Code::Io, ""),
    };
    Failure::at(location, code, error, to_do)
}

/// What to do if the system had not enough of something.
fn for_want(error: &io::Error) -> &'static str {
    use rustix::io::Errno;
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    match is(Errno::MFILE) {
        true => "raise the limit of open files (ulimit -Hn), or name fewer segments",
        false => "",
    }
}

/// A failure to make a segment, or to make or open it.
pub fn creating(error: CreateError, location: &Location) -> Failure {
    let error = match error {
        CreateError::Open(error) => return opening(error, location),
        CreateError::Invalid(error) => return Failure::new(Code::Usage, error),
        CreateError::Name(error) => return locating(&error),
        error => error,
    };
    let (code, to_do) = match &error {
        CreateError::Exists => (
            Code::CannotCreate,
            "change it with 'shmsched set', or add --if-missing",
        ),
        CreateError::NoSpace => (
            Code::CannotCreate,
            "free some space, or use fewer --members",
        ),
        CreateError::MissingDirectory => (Code::CannotCreate, "make the directory first"),
        CreateError::Permission => (Code::Permission, "choose another directory"),
        CreateError::Unsupported(_) => {
            (Code::CannotCreate, "choose a local file system, best tmpfs")
        }
        CreateError::Io(error) => (system(error, Code::CannotCreate), ""),
        _ => (Code::CannotCreate, ""),
    };
    Failure::at(location, code, error, to_do)
}

/// What was watched is not there any more.
pub fn removed(location: &Location) -> Failure {
    Failure::at(
        location,
        Code::NoSegment,
        "the segment was removed or replaced",
        "look again",
    )
}

/// A failure to remove a segment.
pub fn removing(error: RemoveError, location: &Location) -> Failure {
    let error = match error {
        RemoveError::Open(error) => return opening(error, location),
        error => error,
    };
    let (code, to_do) = match &error {
        RemoveError::NotFound => (Code::NoSegment, ""),
        RemoveError::InUse { .. } => (Code::WouldWait, "wait with 'shmsched wait', or add --force"),
        RemoveError::Permission => (Code::Permission, ""),
        RemoveError::Io(error) => (system(error, Code::Io), ""),
        _ => (Code::Io, ""),
    };
    Failure::at(location, code, error, to_do)
}

/// A failure to get slots.
pub fn acquiring(error: AcquireError, location: &Location) -> Failure {
    let (code, to_do) = match &error {
        AcquireError::TimedOut => (Code::TimedOut, SHOWS_WHO_WAITS),
        AcquireError::Zero => (
            Code::Unavailable,
            "raise it with 'shmsched set --concurrency'",
        ),
        AcquireError::DoesNotFit { .. } => (
            Code::Unavailable,
            "ask for fewer, or raise the limit with 'shmsched set --concurrency'",
        ),
        AcquireError::Retired | AcquireError::Gone => (Code::Unavailable, "create it anew"),
        AcquireError::Lost => (
            Code::Data,
            "end its users, delete the file, and create it anew",
        ),
        AcquireError::NoThread(_) => (Code::Io, ""),
        _ => (Code::Bug, ""),
    };
    Failure::at(location, code, error, to_do)
}

/// A failure to pass one of the gates: to get slots, a start, tokens.
pub fn passing(error: AcquireError, gate: Gate, location: &Location) -> Failure {
    if error != AcquireError::TimedOut {
        return acquiring(error, location);
    }
    let (what, to_do) = match gate {
        Gate::Limiter => ("timed out waiting for tokens", SHOWS_WHO_WAITS),
        Gate::Pacer => ("timed out waiting for its turn to start", SHOWS_WHO_WAITS),
        _ => ("timed out waiting for a slot", SHOWS_WHO_HOLDS),
    };
    Failure::at(location, Code::TimedOut, what, to_do)
}

/// It would have to wait at a gate, and must not.
pub fn would_wait(gate: Gate, location: &Location) -> Failure {
    let (what, to_do) = match gate {
        Gate::Limiter => ("too few tokens", SHOWS_WHO_WAITS),
        Gate::Pacer => ("its turn to start has not come", SHOWS_WHO_WAITS),
        _ => ("no slot is free", SHOWS_WHO_HOLDS),
    };
    Failure::at(location, Code::WouldWait, what, to_do)
}

/// As many wait for their start as may.
pub fn queue_full(location: &Location) -> Failure {
    let what = "the queue is full: as many wait for their start as --max-waiting allows";
    Failure::at(location, Code::QueueFull, what, "try again later")
}

/// What to do if the slots are taken.
const SHOWS_WHO_HOLDS: &str = "'shmsched inspect' shows who holds them";

/// What to do if others are ahead.
const SHOWS_WHO_WAITS: &str = "'shmsched inspect' shows who waits, and for how long";

/// A failure to change settings.
pub fn setting(error: SetError, location: &Location) -> Failure {
    match error {
        SetError::Invalid(error) => Failure::new(Code::Usage, error),
        SetError::Concurrency(error) => Failure::new(Code::Usage, error),
        SetError::Segment(error) => acquiring(error, location),
        error => Failure::at(location, Code::Usage, error, ""),
    }
}

/// A failure to evict a member.
pub fn evicting(error: EvictError, location: &Location) -> Failure {
    let error = match error {
        EvictError::Segment(error) => return acquiring(error, location),
        error => error,
    };
    let (code, to_do) = match &error {
        EvictError::NoSuchMember => (Code::Usage, "'shmsched inspect' shows the members"),
        EvictError::Living(_) => (Code::WouldWait, "end the process first"),
        EvictError::OtherNamespace(_) => (Code::Unavailable, "evict it from its own container"),
        EvictError::NotOrphaned(_) => (
            Code::Unavailable,
            "'shmsched doctor --repair' gives back what it held",
        ),
        EvictError::Io(error) => (system(error, Code::Io), ""),
        _ => (Code::Io, ""),
    };
    Failure::at(location, code, error, to_do)
}

/// A name that is no name, or a directory of names that cannot be used.
pub fn locating(error: &LocationError) -> Failure {
    let code = match error {
        LocationError::Name { .. } => Code::Usage,
        LocationError::Directory { .. } => Code::Permission,
        LocationError::DirectoryIo { source, .. } => system(source, Code::CannotCreate),
        _ => Code::Usage,
    };
    Failure::new(code, error)
}

/// A gate that the segment does not have.
pub fn lacking(error: NoGate, location: &Location) -> Failure {
    let option = match error.0 {
        "limiter" => "--rate",
        "pacer" => "--interval",
        _ => "--concurrency",
    };
    let to_do = format!("add one with 'shmsched set {option}'");
    Failure::at(location, Code::Usage, error, &to_do)
}

/// An address that cannot be listened on.
pub fn listening(error: &io::Error, address: &str) -> Failure {
    let to_do = match error.kind() {
        ErrorKind::AddrInUse => "; choose another port",
        ErrorKind::AddrNotAvailable => "; choose an address of this machine",
        _ => "",
    };
    let text = format!("cannot listen on {address}: {error}{to_do}");
    Failure::new(system(error, Code::Io), text)
}

/// What the system refused, as a code of its own where it has one.
fn system(error: &io::Error, otherwise: Code) -> Code {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::Permission,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::CannotCreate,
        _ => otherwise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Location {
        Location::File("/tmp/x".into())
    }

    #[test]
    fn every_open_error_has_its_code() {
        let table: [(OpenError, u8); 12] = [
            (OpenError::NotFound, 66),
            (OpenError::NotASegment("empty".into()), 65),
            (OpenError::Damaged("x".into()), 65),
            (
                OpenError::Format {
                    found: 2,
                    supported: 1,
                },
                76,
            ),
            (OpenError::Layout, 76),
            (OpenError::Permission, 77),
            (OpenError::Foreign { uid: 7 }, 77),
            (OpenError::TableFull, 69),
            (OpenError::Retired, 69),
            (
                OpenError::Name(Location::resolve(Some("..".as_ref())).unwrap_err()),
                64,
            ),
            (
                OpenError::Io(io::Error::from(ErrorKind::PermissionDenied)),
                77,
            ),
            (OpenError::Io(io::Error::other("x")), 74),
        ];
        for (error, code) in table {
            let named = !matches!(error, OpenError::Name(_));
            let failure = opening(error, &here());
            assert_eq!(failure.code, code, "{failure:?}");
            assert!(
                !named || failure.text.starts_with("/tmp/x: "),
                "{failure:?}"
            );
        }
    }

    #[test]
    fn the_other_errors_have_their_codes() {
        let create: [(CreateError, u8); 7] = [
            (CreateError::Exists, 73),
            (CreateError::NoSpace, 73),
            (CreateError::MissingDirectory, 73),
            (CreateError::Permission, 77),
            (CreateError::Unsupported("no locks".into()), 73),
            (CreateError::Open(OpenError::Retired), 69),
            (CreateError::Io(io::Error::from(ErrorKind::StorageFull)), 73),
        ];
        for (error, code) in create {
            assert_eq!(creating(error, &here()).code, code);
        }
        let acquire: [(AcquireError, u8); 10] = [
            (AcquireError::TimedOut, 124),
            (AcquireError::Zero, 69),
            (
                AcquireError::DoesNotFit {
                    amount: 3,
                    concurrency: 2,
                },
                69,
            ),
            (AcquireError::Retired, 69),
            (AcquireError::Gone, 69),
            (AcquireError::Lost, 65),
            (AcquireError::NoThread("x".into()), 74),
            (AcquireError::Forked, 70),
            (AcquireError::Closed, 70),
            (AcquireError::Disposed, 70),
        ];
        for (error, code) in acquire {
            assert_eq!(acquiring(error, &here()).code, code);
        }
        assert_eq!(removing(RemoveError::NotFound, &here()).code, 66);
        assert_eq!(removing(RemoveError::Permission, &here()).code, 77);
        assert_eq!(
            removing(
                RemoveError::Open(OpenError::NotASegment("x".into())),
                &here()
            )
            .code,
            65
        );
        assert_eq!(evicting(EvictError::Living(1), &here()).code, 75);
        assert_eq!(evicting(EvictError::NoSuchMember, &here()).code, 64);
        for (gate, option) in [
            ("scheduler", "--concurrency"),
            ("limiter", "--rate"),
            ("pacer", "--interval"),
        ] {
            let failure = lacking(NoGate(gate), &here());
            assert_eq!(failure.code, 64);
            let text =
                format!("/tmp/x: the segment has no {gate}; add one with 'shmsched set {option}'");
            assert_eq!(failure.text, text);
        }
        assert_eq!(Failure::signal(15).code, 143);
    }

    #[test]
    fn every_gate_says_what_it_was() {
        let gates = [
            (Gate::Scheduler, "slot"),
            (Gate::Limiter, "tokens"),
            (Gate::Pacer, "turn to start"),
        ];
        for (gate, word) in gates {
            let late = passing(AcquireError::TimedOut, gate, &here());
            let busy = would_wait(gate, &here());
            assert_eq!((late.code, busy.code), (124, 75));
            assert!(
                late.text.contains(word) && busy.text.contains(word),
                "{late:?} {busy:?}"
            );
            assert!(late.is_conflict() && busy.is_conflict());
            assert_eq!(passing(AcquireError::Retired, gate, &here()).code, 69);
            assert_eq!(passing(AcquireError::Lost, gate, &here()).code, 65);
        }
        let full = queue_full(&here());
        assert_eq!(full.code, 71);
        assert!(full.text.starts_with("/tmp/x: the queue is full"));
        assert!(!full.is_conflict());
    }

    #[test]
    fn in_use_says_by_how_many() {
        // case 11
        let failure = removing(RemoveError::InUse { members: 1 }, &here());
        assert_eq!(failure.code, 75);
        assert!(
            failure.text.starts_with("/tmp/x: in use by 1 process;"),
            "{}",
            failure.text
        );
    }
}
