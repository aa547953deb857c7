use std::fs;
use std::os::unix::fs::MetadataExt;

use super::super::file;
use super::*;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn job<'a>(directory: &'a OwnedFd, name: &'a str) -> Job<'a> {
    Job {
        directory,
        name: OsStr::new(name),
        len: 10_000,
        mode: Mode::from_raw_mode(0o666),
    }
}

/// Closes what is being built without naming it, and waits until nobody has it.
fn die(directory: &OwnedFd, name: &OsStr, file: File) {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let other = rustix::fs::openat(directory, name, flags, Mode::empty()).unwrap();
    drop(file);
    lock::tests::until_free(&other.into(), BUILDING);
}

fn check(file: &File, path: &Path) {
    let stat = fs::metadata(path).unwrap();
    assert_eq!(
        (stat.len(), stat.nlink(), stat.mode() & 0o7777),
        (10_000, 1, 0o666)
    );
    assert!(stat.blocks() * 512 >= 10_000);
    assert_eq!(
        file::identity(file).unwrap(),
        file::identity(&file::open(path, true, false).unwrap()).unwrap()
    );
    assert_eq!(&fs::read(path).unwrap()[..3], b"yes");
}

#[test]
fn appears_complete_with_the_exact_mode() {
    for folder in [
        tempfile::tempdir().unwrap(),
        tempfile::tempdir_in("/dev/shm").unwrap(),
    ] {
        let path = folder.path().join("seg");
        let mut fill = |file: &File| {
            assert!(!path.exists());
            file.write_all_at(b"yes", 0)
        };
        let made = publish(&path, 10_000, 0o666, &mut fill).unwrap();
        check(&made, &path);
        assert!(matches!(
            publish(&path, 1, 0o600, &mut |_| unreachable!()),
            Err(Publish::Exists)
        ));
        assert_eq!(names(folder.path()), ["seg"]);
    }
}

#[test]
fn the_named_way_does_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let directory = open_directory(folder.path()).unwrap();
    let mut fill = |file: &File| file.write_all_at(b"yes", 0);
    let made = job(&directory, "seg").named(&mut fill).unwrap();
    check(&made, &folder.path().join("seg"));
    let other = file::open(&folder.path().join("seg"), false, false).unwrap();
    assert_eq!(
        lock::is_locked(other.as_fd(), 0, i64::MAX as u64).unwrap(),
        None
    );
    assert!(matches!(
        job(&directory, "seg").named(&mut fill),
        Err(Publish::Exists)
    ));
    let broken = job(&directory, "new").named(&mut |_| Err(io::ErrorKind::NotFound.into()));
    assert!(matches!(broken, Err(Publish::Io(_))));
    assert_eq!(names(folder.path()), ["seg"]);
}

#[test]
fn what_the_dead_left_is_swept_and_what_is_being_built_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let directory = open_directory(folder.path()).unwrap();
    let (dead, dead_name) = job(&directory, "seg").create_temporary().unwrap();
    let (alive, alive_name) = job(&directory, "seg").create_temporary().unwrap();
    let (other, other_name) = job(&directory, "seg.x").create_temporary().unwrap();
    die(&directory, &dead_name, dead);
    die(&directory, &other_name, other);
    fs::write(folder.path().join(".seg.notes.tmp"), "").unwrap();
    publish(&folder.path().join("seg"), 1, 0o600, &mut |_| Ok(())).unwrap();
    let mut expected = [
        alive_name.to_str().unwrap(),
        other_name.to_str().unwrap(),
        ".seg.notes.tmp",
        "seg",
    ]
    .map(str::to_owned);
    expected.sort();
    assert_eq!(names(folder.path()), expected);
    drop(alive);
}

#[test]
fn a_creator_that_died_between_link_and_unlink_is_cleared_up() {
    let folder = tempfile::tempdir().unwrap();
    let directory = open_directory(folder.path()).unwrap();
    let (dead, temporary) = job(&directory, "seg").create_temporary().unwrap();
    rustix::fs::linkat(&directory, &temporary, &directory, "seg", AtFlags::empty()).unwrap();
    die(&directory, &temporary, dead);
    assert!(matches!(
        file::open(&folder.path().join("seg"), false, false),
        Err(file::Refusal::HardLinked)
    ));
    file::open(&folder.path().join("seg"), true, false).unwrap();
    assert_eq!(names(folder.path()), ["seg"]);
}

#[test]
fn reasons() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let at = |name: &str| folder.path().join(name);
    let fail = |path: &Path, len| publish(path, len, 0o600, &mut |_| Ok(())).unwrap_err();
    assert!(matches!(
        fail(&at("none/seg"), 1),
        Publish::MissingDirectory
    ));
    assert!(matches!(fail(&at("seg"), 1 << 50), Publish::NoSpace));
    assert!(matches!(
        fail(Path::new("/proc/seg"), 1),
        Publish::MissingDirectory | Publish::Permission
    ));
    assert!(matches!(fail(Path::new("/"), 1), Publish::Exists));
    let zeros = tempfile::tempfile().unwrap();
    write_zeros(&zeros, 100_001).unwrap();
    assert_eq!(file::len(&zeros).unwrap(), 100_001);
    assert!(names(folder.path()).is_empty());
}
