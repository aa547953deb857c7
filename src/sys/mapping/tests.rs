#![allow(unsafe_code)]

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::SeqCst;

use super::super::fork::tests::in_child;
use super::super::lock::{self, tests::until_free};
use super::*;

shared_record! {
    /// A cell.
    #[repr(transparent)]
    struct Cell(AtomicU64);

    /// A record.
    #[repr(C, align(64))]
    struct Record {
        /// First.
        small: AtomicU32,
        cells: [Cell; 3],
    }
}

fn sized(len: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(len).unwrap();
    file
}

#[test]
fn lends_within_bounds_and_alignment_only() {
    let map = Mapping::anonymous(4096).unwrap();
    assert!(lend::<Record>(&map, 4096 - 64).is_some());
    assert!(lend::<Record>(&map, 4096 - 63).is_none());
    assert!(lend::<Record>(&map, 32).is_none());
    assert!(lend::<Record>(&map, 4096).is_none());
    assert!(lend::<AtomicU32>(&map, usize::MAX - 3).is_none());
    assert_eq!(lend_slice::<Record>(&map, 0, 64).unwrap().len(), 64);
    assert!(lend_slice::<Record>(&map, 64, 64).is_none());
    assert!(lend_slice::<AtomicU64>(&map, 0, usize::MAX).is_none());
    assert!(lend_slice::<AtomicU64>(&map, 4096, 0).unwrap().is_empty());
}

#[test]
fn two_mappings_of_a_file_share_and_outlive_their_makers() {
    let file = sized(8192);
    let writer = lend::<Record>(&Mapping::file(file.as_file(), 8192, true).unwrap(), 4096).unwrap();
    let reader = Mapping::file(file.as_file(), 8192, false).unwrap();
    assert!(!reader.is_writable() && writer.mapping().is_writable());
    let seen = lend::<Record>(&reader, 4096).unwrap().clone();
    drop(reader);
    writer.cells[2].0.store(7, SeqCst);
    writer.small.store(1, SeqCst);
    assert_eq!(
        (seen.cells[2].0.load(Relaxed), seen.small.load(Relaxed)),
        (7, 1)
    );
}

#[test]
fn refuses_what_would_fault() {
    let file = sized(100);
    assert_eq!(
        Mapping::file(file.as_file(), 101, true)
            .err()
            .unwrap()
            .kind(),
        io::ErrorKind::UnexpectedEof
    );
    assert_eq!(
        Mapping::file(file.as_file(), 0, true).err().unwrap().kind(),
        io::ErrorKind::InvalidInput
    );
    assert!(Mapping::anonymous(0).is_err());
    assert!(Mapping::shm("a/b", file.as_file(), 1).is_err());
}

#[test]
fn a_mapping_keeps_the_lock_of_its_description() {
    let file = sized(4096);
    let mapped = file.reopen().unwrap();
    assert!(lock::try_lock(mapped.as_fd(), 9, lock::Mode::Exclusive).unwrap());
    let map = Mapping::file(&mapped, 4096, true).unwrap();
    drop(mapped);
    assert_eq!(
        lock::is_locked(file.as_file().as_fd(), 9, 1).unwrap(),
        Some(9)
    );
    drop(map);
    until_free(file.as_file(), 9);
}

#[test]
fn a_child_has_none_of_it_and_unmaps_nothing() {
    let map = Mapping::anonymous(4096).unwrap();
    let word = lend::<AtomicU32>(&map, 0).unwrap();
    word.store(5, SeqCst);
    let (address, page) = (map.address(), 4096);
    let mut handles = Some((map, word));
    let code = in_child(|| {
        // SAFETY: nothing is mapped there in the child; with no flag but FIXED_NOREPLACE the call fails if something is.
        let ours = unsafe {
            libc::mmap(
                address as *mut _,
                page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if ours as usize != address {
            return 1;
        }
        drop(handles.take());
        // SAFETY: mapped just above, and the drop must not have unmapped it.
        i32::from(unsafe { *(address as *const u32) } != 0)
    });
    assert_eq!(code, 0);
    let (map, word) = handles.unwrap();
    assert_eq!((word.load(SeqCst), map.len()), (5, 4096));
}

#[test]
fn shm_by_name_keeps_the_lock_and_the_object() {
    let name = format!("shmsched-test-{}", std::process::id());
    let path = format!("/dev/shm/{name}");
    let locked = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    locked.set_len(8192).unwrap();
    assert!(lock::try_lock(locked.as_fd(), 0, lock::Mode::Exclusive).unwrap());
    let map = Mapping::shm(&name, &locked, 8192).unwrap();
    lend::<AtomicU32>(&map, 4).unwrap().store(u32::MAX, SeqCst);
    drop(locked);

    let other = File::options().read(true).write(true).open(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap()[4..8], [255; 4]);
    assert_eq!(lock::is_locked(other.as_fd(), 0, 1).unwrap(), Some(0));
    drop(map);
    until_free(&other, 0);

    let imposter = sized(8192);
    assert_eq!(
        Mapping::shm(&name, imposter.as_file(), 8192)
            .err()
            .unwrap()
            .kind(),
        io::ErrorKind::NotFound
    );
    fs::remove_file(&path).unwrap();
    assert_eq!(
        Mapping::shm(&name, &other, 8192).err().unwrap().kind(),
        io::ErrorKind::NotFound
    );
}
