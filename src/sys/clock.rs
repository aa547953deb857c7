//! Time that all processes of one boot agree on.
//!
//! `CLOCK_MONOTONIC` differs between time namespaces by a fixed offset, and so a stamp written in one container would
//! be wrong in the next. [`now`] takes the offset out; [`kernel_timespec`] puts it back for the kernel.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use rustix::thread::futex::Timespec;
use rustix::time::{ClockId, clock_gettime};

use super::fork;

const SECOND: i64 = 1_000_000_000;
/// Inode of the initial time namespace, fixed by the kernel (`PROC_TIME_INIT_INO`).
const INITIAL_TIME_NAMESPACE: u64 = 0xEFFF_FFFA;
/// No offset read yet. The kernel allows no offset of this size.
const UNKNOWN: i64 = i64::MIN;

static MONOTONIC: AtomicI64 = AtomicI64::new(UNKNOWN);
static BOOTTIME: AtomicI64 = AtomicI64::new(UNKNOWN);

/// Nanoseconds of `CLOCK_MONOTONIC` as the initial time namespace sees it. Never fails; an impossible value saturates.
#[inline]
pub fn now() -> u64 {
    less(nanos(clock_gettime(ClockId::Monotonic)), monotonic_offset())
}

/// Like [`now`], from the coarse clock: a few nanoseconds to read, up to one kernel tick late.
#[inline]
pub fn coarse_now() -> u64 {
    less(
        nanos(clock_gettime(ClockId::MonotonicCoarse)),
        monotonic_offset(),
    )
}

/// Which tick of the coarse clock it is: a number that says only whether it is another.
#[inline]
pub fn tick() -> u64 {
    let at = clock_gettime(ClockId::MonotonicCoarse);
    (at.tv_sec as u64)
        .wrapping_mul(SECOND as u64)
        .wrapping_add(at.tv_nsec as u64)
}

/// [`coarse_now`] in milliseconds.
#[inline]
pub fn coarse_ms() -> u64 {
    coarse_now() / 1_000_000
}

/// What the kernel of this process's time namespace calls the moment `at` of [`now`]: an absolute futex deadline.
pub fn kernel_timespec(at: u64) -> Timespec {
    let at = (i128::from(at) + i128::from(monotonic_offset())).max(0);
    Timespec {
        tv_sec: i64::try_from(at / i128::from(SECOND)).unwrap_or(i64::MAX),
        tv_nsec: (at % i128::from(SECOND)) as i64,
    }
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The identifier of this boot.
///
/// # Errors
/// Whatever reading `/proc/sys/kernel/random/boot_id` gives, with that name; `InvalidData` if it is no UUID.
pub fn boot_id() -> io::Result<[u8; 16]> {
    // One read: every attach comes by here.
    let mut text = [0; 64];
    let length = fs::File::open(BOOT_ID)
        .and_then(|mut file| file.read(&mut text))
        .map_err(|error| io::Error::new(error.kind(), format!("{BOOT_ID}: {error}")))?;
    parse_uuid(&String::from_utf8_lossy(&text[..length]))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the boot id is no UUID"))
}

/// Sixteen random bytes from the kernel.
///
/// # Errors
/// Whatever reading `/dev/urandom` gives.
pub fn random_id() -> io::Result<[u8; 16]> {
    let mut id = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(id)
}

/// How far `CLOCK_BOOTTIME` of this process's time namespace is ahead, in nanoseconds. Start times in `/proc` carry it.
pub(super) fn boottime_offset() -> i64 {
    match BOOTTIME.load(Relaxed) {
        UNKNOWN => read_offsets().1,
        known => known,
    }
}

/// The child of a fork may be in another time namespace: read again.
pub(super) fn forget_offsets() {
    MONOTONIC.store(UNKNOWN, Relaxed);
    BOOTTIME.store(UNKNOWN, Relaxed);
}

#[inline]
fn monotonic_offset() -> i64 {
    match MONOTONIC.load(Relaxed) {
        UNKNOWN => read_offsets().0,
        known => known,
    }
}

#[inline]
fn nanos(at: Timespec) -> i64 {
    at.tv_sec.saturating_mul(SECOND).saturating_add(at.tv_nsec)
}

#[inline]
fn less(nanos: i64, offset: i64) -> u64 {
    u64::try_from(nanos.saturating_sub(offset)).unwrap_or(0)
}

#[cold]
fn read_offsets() -> (i64, i64) {
    fork::arm();
    let offsets = own_offsets();
    MONOTONIC.store(offsets.0, Relaxed);
    BOOTTIME.store(offsets.1, Relaxed);
    offsets
}

/// The file tells the offsets that *children* will have. They are ours too unless this process unshared its time
/// namespace and has not forked since; then it is nearly always still in the initial one, where they are zero.
fn own_offsets() -> (i64, i64) {
    let inode = |path| fs::metadata(path).map(|it| it.ino()).ok();
    let own = inode("/proc/self/ns/time");
    if own == Some(INITIAL_TIME_NAMESPACE) || own != inode("/proc/self/ns/time_for_children") {
        return (0, 0);
    }
    fs::read_to_string("/proc/self/timens_offsets").map_or((0, 0), |text| parse_offsets(&text))
}

fn parse_offsets(text: &str) -> (i64, i64) {
    let mut offsets = (0, 0);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(seconds), Some(nanos)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (Ok(seconds), Ok(nanos)) = (seconds.parse::<i64>(), nanos.parse::<i64>()) else {
            continue;
        };
        let offset = seconds
            .saturating_mul(SECOND)
            .saturating_add(nanos)
            .max(UNKNOWN + 1);
        match name {
            "monotonic" | "1" => offsets.0 = offset,
            "boottime" | "7" => offsets.1 = offset,
            _ => {}
        }
    }
    offsets
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|it| *it != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|it| it.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(&digits, 16)
        .ok()
        .map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_both_clocks_agree() {
        let first = now();
        let coarse = coarse_ms();
        let last = now();
        assert!(last >= first);
        // The coarse one is late by a tick, and never ahead.
        assert!(coarse + 1_000 > first / 1_000_000 && coarse <= last / 1_000_000);
    }

    #[test]
    fn offsets_are_parsed_by_name_and_number() {
        assert_eq!(
            parse_offsets("monotonic   -5  500000000\nboottime 7 1\n"),
            (-4_500_000_000, 7_000_000_001)
        );
        assert_eq!(parse_offsets("1 2 3\n7 0 9\n"), (2_000_000_003, 9));
        assert_eq!(parse_offsets("nonsense\nmonotonic x y\n"), (0, 0));
    }

    #[test]
    fn no_value_overflows() {
        assert_eq!(less(5, 10), 0);
        assert_eq!(less(i64::MAX, -1), i64::MAX as u64);
        let last = kernel_timespec(u64::MAX);
        assert!(last.tv_sec > 0 && (0..SECOND).contains(&last.tv_nsec));
    }

    #[test]
    fn identifiers() {
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        assert_ne!(random_id().unwrap(), random_id().unwrap());
        assert_eq!(
            parse_uuid("00000000-0000-0000-0000-0000000000ff\n").unwrap()[15],
            255
        );
        assert!(parse_uuid("short").is_none());
        assert!(parse_uuid("+0000000-0000-0000-0000-000000000000").is_none());
    }
}
