use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;

#[test]
fn opens_a_plain_file_only() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("plain"), "12345").unwrap();
    symlink(at("plain"), at("link")).unwrap();
    rustix::fs::mknodat(
        CWD,
        at("fifo"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();

    let file = open(&at("plain"), true, false).unwrap();
    assert_eq!((len(&file).unwrap(), links(&file).unwrap()), (5, 1));
    assert_eq!(
        identity(&file).unwrap(),
        identity(&open(&at("plain"), false, false).unwrap()).unwrap()
    );
    for writable in [false, true] {
        let refusal = |name| open(&at(name), writable, false).unwrap_err();
        assert!(matches!(refusal("none"), Refusal::Missing));
        assert!(matches!(refusal("none/file"), Refusal::Missing));
        assert!(matches!(refusal("link"), Refusal::Symlink));
        assert!(matches!(refusal("fifo"), Refusal::NotRegular));
        assert!(matches!(refusal("socket"), Refusal::NotRegular));
        assert!(matches!(refusal("."), Refusal::NotRegular));
        assert!(matches!(refusal(".."), Refusal::NotRegular));
    }
    fs::hard_link(at("plain"), at("other")).unwrap();
    assert!(matches!(
        open(&at("plain"), true, false),
        Err(Refusal::HardLinked)
    ));
    fs::remove_file(at("plain")).unwrap();
    fs::remove_file(at("other")).unwrap();
    assert_eq!(links(&file).unwrap(), 0);
}

#[test]
fn a_stranger_in_a_public_directory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs");
    fs::write(&path, "").unwrap();
    if std::os::unix::fs::chown(&path, Some(12345), None).is_err() {
        return; // Only root can give a file away.
    }
    assert!(open(&path, true, false).is_ok());
    rustix::fs::chmod(folder.path(), Mode::from_raw_mode(0o1777)).unwrap();
    assert!(matches!(
        open(&path, true, false),
        Err(Refusal::ForeignOwner { uid: 12345 })
    ));
    assert!(open(&path, true, true).is_ok());
}

#[test]
fn knows_shared_memory() {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    assert_eq!(filesystem(&file).unwrap(), Filesystem::Tmpfs);
}

#[test]
fn splits() {
    assert_eq!(
        split(Path::new("name")),
        Some((Path::new("."), OsStr::new("name")))
    );
    assert_eq!(
        split(Path::new("/name")),
        Some((Path::new("/"), OsStr::new("name")))
    );
    assert_eq!(split(Path::new("/")), None);
}
