//! What the Pacer once did wrong, found by proof-reading.

use crate::pacer::ms;
use crate::support::{FOREVER, Task};
use shmsched::{
    AcquireError, Location, Pacer, QueueFull, Segment, Settings, StartError, TryStartError,
};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

fn shared(interval: Duration, max_waiting: u32) -> (tempfile::TempDir, Location, Segment) {
    let directory = tempfile::tempdir().unwrap();
    let location = Location::File(directory.path().join("segment"));
    let settings = Settings::new()
        .interval(interval)
        .max_waiting(max_waiting)
        .members(MEMBERS);
    let segment = Segment::create(&location, &settings).unwrap();
    (directory, location, segment)
}

const MEMBERS: u32 = 8;

/// Who never has to wait asks too whether the file still has a name.
#[test]
fn a_file_without_a_name_is_noticed_by_starts_at_hand() {
    type Ask = fn(&Pacer) -> Option<AcquireError>;
    let tries: Ask = |pacer| match pacer.try_start() {
        Ok(()) | Err(TryStartError::NotYet) => None,
        Err(TryStartError::Failed(error)) => Some(error),
        Err(other) => panic!("{other}"),
    };
    let blocks: Ask = |pacer| match pacer.blocking_start() {
        Ok(()) => None,
        Err(StartError::Failed(error)) => Some(error),
        Err(other) => panic!("{other}"),
    };
    for ask in [tries, blocks] {
        let (_directory, location, segment) = shared(Duration::from_nanos(1), 4);
        let pacer = segment.pacer().unwrap();
        assert_eq!(ask(&pacer), None);
        fs::remove_file(location.path()).unwrap();
        let removed = Instant::now();
        let noticed = loop {
            match ask(&pacer) {
                Some(error) => break error,
                None if removed.elapsed() > FOREVER => panic!("not noticed"),
                None => thread::sleep(ms(1)),
            }
        };
        assert_eq!(noticed, AcquireError::Gone);
        // Its name is somebody else's now, and the old one does not start beside it.
        let settings = Settings::new().interval(Duration::from_secs(3_600));
        let other = Segment::create(&location, &settings).unwrap();
        assert_eq!(other.pacer().unwrap().try_start(), Ok(()));
        assert_eq!(ask(&pacer), Some(AcquireError::Gone));
    }
}

/// Places that a scribbler gave to nobody that could give them up are free again before anybody is refused.
#[test]
fn scribbled_places_heal() {
    let (_directory, location, segment) = shared(Duration::from_secs(3_600), 3);
    let pacer = segment.pacer().unwrap();
    pacer.try_start().unwrap();
    let me = segment.member();
    assert!(me.index < MEMBERS);
    // A number beyond the roster, one that is not attached, and an attached one in a generation that never was.
    let nobody = [
        u64::from(u32::MAX),
        5 << 32 | u64::from(MEMBERS),
        u64::from(me.generation + 7) << 32 | u64::from(me.index + 1),
    ];
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(location.path())
        .unwrap();
    let places = places_of_the_pacer(&file);
    for (place, owner) in (u64::from(MEMBERS)..).zip(nobody) {
        let at = places + place * 64 + 24;
        file.write_all_at(&owner.to_le_bytes(), at).unwrap();
    }
    // A look that just was is not repeated.
    let begun = Instant::now();
    loop {
        match Task::new(pacer.start()).poll() {
            None => break,
            Some(Err(StartError::QueueFull(_))) if begun.elapsed() < FOREVER => {
                thread::sleep(ms(5))
            }
            other => panic!("{other:?}"),
        }
    }
    // All of them, and no more.
    let waiting = [(); 3].map(|()| Task::waiting(pacer.start()));
    let full = Task::new(pacer.start()).poll();
    assert!(matches!(
        full,
        Some(Err(StartError::QueueFull(QueueFull { .. })))
    ));
    drop(waiting);
}

/// As docs/segment-format.md reckons it.
fn places_of_the_pacer(file: &fs::File) -> u64 {
    let number = |at| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from(u32::from_le_bytes(bytes))
    };
    let (members, records, waiting) = (number(32), number(36), number(40));
    let up = |n: u64| n.next_multiple_of(128);
    let set = 7 * members.div_ceil(64) * 8;
    let roster = up(up(up(0x1000 + set) + set) + (members + waiting).div_ceil(64) * 8);
    let scheduler = up(roster + members * 1408 + records * 128);
    let limiter = up(scheduler + members * 7 * 64);
    up(limiter + members * 7 * 64)
}
