//! How the program ends: one table of exit codes, and one line of text for every error.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use shmsched::{
    AcquireError, CreateError, EvictError, Gate, Location, LocationError, NoGate, OpenError,
    RemoveError, SetError,
};

use crate::output::escaped;

/// What a command gives back: the exit code, or the failure to report.
pub type Outcome = Result<u8, Failure>;

/// The exit codes that are ours; `run` otherwise passes on the code of its command, or 128+n for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// `doctor` found something, or `pressure` is above.
    Found = 1,
    /// The command line is wrong, or asks for a gate that the segment lacks.
    Usage = 64,
    /// The file is no segment, or damaged.
    Data = 65,
    /// There is no such segment.
    NoSegment = 66,
    /// It can never work as things are.
    Unavailable = 69,
    /// A bug of ours.
    Bug = 70,
    /// The queue of the Pacer is full.
    QueueFull = 71,
    /// The segment cannot be made.
    CannotCreate = 73,
    /// The system refused something else.
    Io = 74,
    /// It would have to wait, or it is in use.
    WouldWait = 75,
    /// The segment is of another format version.
    Format = 76,
    /// The system does not permit it.
    Permission = 77,
    /// Inside a permit of the same segment already.
    Nested = 78,
    /// The time to wait is over, as timeout(1).
    TimedOut = 124,
    /// The command cannot be run, as env(1).
    CannotRun = 126,
    /// The command was not found, as env(1).
    NotFound = 127,
}

/// Every code with its meaning, in order: the help and the tests read it.
pub const TABLE: [(Code, &str); 16] = [
    (
        Code::Found,
        "doctor: something is wrong or left; pressure: above the threshold",
    ),
    (
        Code::Usage,
        "usage, or a gate asked for that the segment lacks",
    ),
    (Code::Data, "not a segment, damaged, or lost"),
    (Code::NoSegment, "no such segment"),
    (
        Code::Unavailable,
        "unavailable: concurrency 0, does not fit, member table full, segment retired",
    ),
    (Code::Bug, "a bug of shmsched"),
    (
        Code::QueueFull,
        "queue full: as many wait for their start as --max-waiting allows",
    ),
    (Code::CannotCreate, "cannot create: it exists, or no space"),
    (Code::Io, "input or output error"),
    (
        Code::WouldWait,
        "would have to wait (--no-wait), or in use (rm, evict)",
    ),
    (Code::Format, "segment of another format version"),
    (Code::Permission, "permission denied"),
    (Code::Nested, "already inside a permit of this segment"),
    (Code::TimedOut, "timed out waiting"),
    (Code::CannotRun, "the command cannot be run"),
    (Code::NotFound, "the command was not found"),
];

/// The codes by which a command says something that the others do not; any may end with the other codes, too.
pub fn own_codes(verb: &str) -> &'static [Code] {
    use Code::*;
    match verb {
        "create" => &[CannotCreate],
        "run" => &[
            Unavailable,
            QueueFull,
            WouldWait,
            Nested,
            TimedOut,
            CannotRun,
            NotFound,
        ],
        "wait" => &[TimedOut],
        "pressure" | "doctor" => &[Found],
        "evict" | "rm" => &[WouldWait],
        _ => &[],
    }
}

/// The table as text for the help.
pub fn table_text() -> String {
    let mut text = String::from(
        "Exit codes (run otherwise passes on that of its command, or 128+n if signal n ended it):\n",
    );
    for (code, meaning) in TABLE {
        text.push_str(&format!("  {:>3}  {meaning}\n", code as u8));
    }
    text
}

/// An error to report: what goes to stderr, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What to say; empty to say nothing.
    text: String,
    /// The signal to die of, so that a shell's loop ends with it.
    pub dies_of: Option<i32>,
}

impl Failure {
    /// A failure that concerns no particular segment.
    pub fn new(code: Code, text: impl Display) -> Failure {
        Failure {
            code: code as u8,
            text: text.to_string(),
            dies_of: None,
        }
    }

    /// A failure of one segment: what, which segment, what to do (which may be empty).
    pub fn at(location: &Location, code: Code, what: impl Display, to_do: &str) -> Failure {
        let separator = if to_do.is_empty() { "" } else { "; " };
        Failure::new(code, format_args!("{location}: {what}{separator}{to_do}"))
    }

    /// Ends by the convention for signal `n`, silently: who sent it knows.
    pub fn signal(n: i32) -> Failure {
        Failure {
            code: 128 + n as u8,
            text: String::new(),
            dies_of: None,
        }
    }

    /// Dies of signal `n` as if it had never been caught.
    pub fn dying(n: i32) -> Failure {
        Failure {
            dies_of: Some(n),
            ..Failure::signal(n)
        }
    }

    /// No failure: everything was said and done, as after --help.
    pub fn done() -> Failure {
        Failure {
            code: 0,
            text: String::new(),
            dies_of: None,
        }
    }

    /// Whether the code is one of those that `run -E` replaces.
    pub fn is_conflict(&self) -> bool {
        self.code == Code::WouldWait as u8 || self.code == Code::TimedOut as u8
    }

    /// Writes the one line to stderr and gives the exit code.
    pub fn report(&self) -> u8 {
        if !self.text.is_empty() {
            note(&self.text);
        }
        self.code
    }
}

/// Writes one line to stderr, as errors and warnings are: in one write, control characters escaped, never a panic.
pub fn note(text: impl Display) {
    let line = format!("shmsched: {}\n", escaped(&text.to_string()));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Makes a panic, which would be a bug of ours, one line and exit code 70.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        note(format_args!(
            "internal error, please report it: {}",
            panic.to_string().replace('\n', " ")
        ));
        std::process::exit(Code::Bug as u8 as i32);
    }));
}

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
    use std::collections::HashSet;

    fn here() -> Location {
        Location::File("/tmp/x".into())
    }

    #[test]
    fn the_table_is_complete_and_collides_with_nothing() {
        // case 36: none of them can be taken for success, a common code of a command, or a signal
        let codes: Vec<u8> = TABLE.iter().map(|(code, _)| *code as u8).collect();
        assert_eq!(
            codes,
            [
                1, 64, 65, 66, 69, 70, 71, 73, 74, 75, 76, 77, 78, 124, 126, 127
            ]
        );
        assert_eq!(codes.iter().collect::<HashSet<_>>().len(), codes.len());
        assert!(codes.iter().all(|code| *code < 128));
        for (code, meaning) in TABLE {
            assert!(table_text().contains(&format!("{:>3}  {meaning}", code as u8)));
        }
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

    #[test]
    fn only_conflicts_are_replaced() {
        for (code, _) in TABLE {
            let replaced = matches!(code, Code::WouldWait | Code::TimedOut);
            assert_eq!(Failure::new(code, "x").is_conflict(), replaced);
        }
    }
}
