//! Which types and futures may cross threads: a table that compiles or does not.

use shmsched::{
    AcquireError, Changes, Concurrency, CreateError, Deadline, EvictError, Gate,
    InvalidConcurrency, InvalidSettings, LimiterInfo, Location, LocationError, Looked, MemberId,
    MemberInfo, MemberState, NoGate, NothingHeld, Observer, OpenError, OpenOptions, OwnedPermit,
    PacerInfo, ParsePriorityError, Permit, PlaceState, Priority, QueueStats, RemoveError,
    Scheduler, SchedulerInfo, Segment, SegmentInfo, SetError, Settings, SharedStats, Snapshot,
    Stats, TryAcquireError, WaitingInfo,
};
use std::fmt::Debug;
use std::marker::PhantomData;

fn crosses<T: Send + Sync + Unpin + Debug + 'static>() {}
fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
fn is_value<T: Clone + PartialEq + Send + Sync>() {}
fn borrowed<'a, T: Send + Sync + Unpin + Debug + 'a>() {}

macro_rules! table {
    ($check:ident: $($name:ty),* $(,)?) => {
        $($check::<$name>();)*
    };
}

#[test]
fn a16_types() {
    table!(crosses: Scheduler, Segment, Observer, OwnedPermit, Location, OpenOptions, Settings, Changes,
        Concurrency, Priority, Deadline, MemberId, Looked, Stats, QueueStats, SharedStats, Snapshot, SegmentInfo,
        SchedulerInfo, LimiterInfo, PacerInfo, MemberInfo, MemberState, WaitingInfo, PlaceState, Gate);
    borrowed::<Permit<'_>>();
    table!(is_error: AcquireError, TryAcquireError, CreateError, OpenError, RemoveError, SetError, EvictError,
        NoGate, NothingHeld, InvalidConcurrency, InvalidSettings, LocationError, ParsePriorityError);
    table!(is_value: Concurrency, Priority, Deadline, Settings, Changes, Stats, QueueStats, SharedStats,
        MemberId, Looked, Snapshot, Location, AcquireError, TryAcquireError, NothingHeld, NoGate);
}

/// Tells whether a type is Sync and Unpin: an inherent function wins over the trait's where its bound holds.
struct Of<T>(PhantomData<T>);

impl<T: Sync> Of<T> {
    fn sync(&self) -> bool {
        true
    }
}

impl<T: Unpin> Of<T> {
    fn unpin(&self) -> bool {
        true
    }
}

trait Lacks {
    fn sync(&self) -> bool {
        false
    }
    fn unpin(&self) -> bool {
        false
    }
}

impl<T> Lacks for &Of<T> {}

fn sent<T: Future + Send>(_: &T) -> Of<T> {
    Of(PhantomData)
}

/// Of a future that must be Send.
macro_rules! traits_of {
    ($future:expr) => {{
        let of = sent(&$future);
        ((&of).sync(), (&of).unpin())
    }};
}

/// Send and Sync, so that any executor may move them and any struct hold them; not Unpin, as every async function's.
#[test]
fn a16_futures() {
    let scheduler = Scheduler::local(1).unwrap();
    let (normal, soon) = (Priority::Normal, std::time::Duration::from_secs(1));
    let table = [
        traits_of!(scheduler.acquire(normal)),
        traits_of!(scheduler.acquire_many(1, normal)),
        traits_of!(scheduler.acquire_until(1, normal, soon)),
        traits_of!(scheduler.acquire_until(1, normal, Deadline::Never)),
        traits_of!(scheduler.acquire_owned(normal)),
        traits_of!(scheduler.acquire_many_owned(1, normal)),
        traits_of!(scheduler.run(|| std::future::ready(1), normal)),
        traits_of!(scheduler.run(|| async { 1 }, normal)),
    ];
    assert_eq!(table, [(true, false); 8]);
    // The macro can tell.
    assert_eq!(traits_of!(std::future::ready(1)), (true, true));
    let cell = std::cell::Cell::new(1);
    assert_eq!(traits_of!(std::future::ready(cell)), (false, true));
    // A run is as movable as its work, also when that borrows.
    let text = String::from("borrowed");
    assert!(traits_of!(scheduler.run(|| async { text.len() }, normal)).0);
}
