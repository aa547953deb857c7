//! Case 35: predictable names in directories that everybody can write to. Nothing is followed that somebody planted, no
//! other file is touched, nothing hangs.

use crate::codes::EVERY;
use crate::stage::{Elsewhere, Job, NOBODY, SOON, command, ended, shmsched, under};
use crate::support::{Scene, skipped};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

/// Everything that a name can be used for.
fn every() -> Vec<(&'static str, &'static [&'static str])> {
    let more: [(&str, &[&str]); 4] = [
        ("create", &["--concurrency", "1"]),
        ("create", &["--concurrency", "1", "--if-missing"]),
        ("run", &["--concurrency", "1", "--", "true"]),
        ("rm", &["--force"]),
    ];
    [EVERY, &more].concat()
}

/// Refused without a wait, with one line and a code of ours.
#[track_caller]
fn refused(path: &Path, verb: &str, rest: &[&str]) -> i32 {
    let mut command = shmsched(&[OsStr::new(verb), path.as_os_str()]);
    let mut job = Job::start(command.args(rest));
    job.let_go();
    let ended = job.wait(SOON);
    assert!(
        (64..=78).contains(&ended.code()),
        "{verb} {rest:?}: {ended:?}"
    );
    ended.one_line();
    ended.code()
}

/// A directory as /tmp is.
fn sticky(scene: &Scene) -> PathBuf {
    let directory = scene.path("tmp");
    fs::create_dir(&directory).expect("a directory");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).expect("its mode");
    directory
}

#[test]
fn case_35_symbolic_links_are_not_followed() {
    let scene = Scene::new();
    let directory = sticky(&scene);
    let letter = scene.path("letter");
    fs::write(&letter, "dear victim\n").expect("a file");
    let segment = scene.path("segment");
    ended(&mut shmsched(&[
        OsStr::new("create"),
        segment.as_os_str(),
        OsStr::new("--concurrency=1"),
    ]))
    .is(0);
    let missing = scene.path("missing");
    let pristine = fs::read(&segment).expect("a segment");
    for target in [&letter, &segment, &missing] {
        let link = directory.join("x.seg");
        symlink(target, &link).expect("a link");
        if geteuid().is_root() {
            lchown(&link, Some(NOBODY), Some(NOBODY)).expect("its owner");
        }
        for (verb, rest) in every() {
            let code = refused(&link, verb, rest);
            assert_ne!(code, 66, "{verb}: it is there");
            assert!(!missing.exists(), "{verb} made what the link names");
        }
        assert_eq!(fs::read_link(&link).expect("still a link"), *target);
        fs::remove_file(&link).expect("removed");
    }
    assert_eq!(fs::read(&letter).expect("there"), b"dear victim\n");
    assert!(
        fs::read(&segment).expect("there") == pristine,
        "the victim is untouched"
    );
}

#[test]
fn case_35_what_is_no_plain_file_is_refused() {
    let scene = Scene::new();
    let directory = sticky(&scene);
    let fifo = directory.join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    let folder = directory.join("folder");
    fs::create_dir(&folder).expect("a directory");
    let socket = directory.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let letter = scene.path("letter");
    fs::write(&letter, "dear victim\n").expect("a file");
    let hard = directory.join("hard");
    fs::hard_link(&letter, &hard).expect("a link");
    let mut planted = vec![fifo.clone(), folder, socket, hard];
    let device = directory.join("device");
    // The null device: what is written there harms nobody.
    if mknodat(
        CWD,
        &device,
        FileType::CharacterDevice,
        Mode::RUSR | Mode::WUSR,
        makedev(1, 3),
    )
    .is_ok()
    {
        planted.push(device);
    }
    for path in &planted {
        for (verb, rest) in every() {
            let code = refused(path, verb, rest);
            assert_ne!(code, 66, "{verb} {}: it is there", path.display());
        }
        assert!(
            fs::symlink_metadata(path).is_ok(),
            "{} is still there",
            path.display()
        );
    }
    assert!(
        fs::symlink_metadata(&fifo)
            .expect("there")
            .file_type()
            .is_fifo()
    );
    assert_eq!(fs::read(&letter).expect("there"), b"dear victim\n");
    assert_eq!(fs::metadata(&letter).expect("there").nlink(), 2);
}

/// A segment that has a second name: removing one of them removes nothing.
#[test]
fn case_35_a_segment_with_two_names_is_refused() {
    let scene = Scene::new();
    let (one, two) = (scene.path("one"), scene.path("two"));
    ended(&mut shmsched(&[
        OsStr::new("create"),
        one.as_os_str(),
        OsStr::new("--concurrency=1"),
    ]))
    .is(0);
    fs::hard_link(&one, &two).expect("a link");
    let pristine = fs::read(&one).expect("there");
    for (verb, rest) in every() {
        refused(&two, verb, rest);
    }
    assert!(two.exists() && fs::read(&one).expect("there") == pristine);
    fs::remove_file(&two).expect("removed");
    ended(&mut shmsched(&[
        OsStr::new("run"),
        one.as_os_str(),
        OsStr::new("--"),
        OsStr::new("true"),
    ]))
    .is(0);
}

#[test]
fn case_35_the_mode_is_what_was_asked_for_whatever_the_umask() {
    let scene = Scene::new();
    for (umask, mode, expected) in [
        ("000", None, 0o600),
        ("077", None, 0o600),
        ("077", Some("0660"), 0o660),
        ("077", Some("666"), 0o666),
        ("000", Some("600"), 0o600),
        ("777", Some("640"), 0o640),
    ] {
        let path = scene.path("S");
        let mut create = shmsched(&[
            OsStr::new("create"),
            path.as_os_str(),
            OsStr::new("--concurrency=1"),
        ]);
        if let Some(mode) = mode {
            create.args(["--mode", mode]);
        }
        let script = format!("umask {umask}; exec \"$@\"");
        ended(&mut under(&["sh", "-c", &script, "sh"], &create)).is(0);
        let found = fs::metadata(&path).expect("made").mode() & 0o7777;
        assert_eq!(found, expected, "umask {umask}, --mode {mode:?}: {found:o}");
        fs::remove_file(&path).expect("removed");
    }
    // The private directory of plain names.
    let directory = scene.path("d");
    let mut create = shmsched(&["create", "n", "--concurrency=1"]);
    create.env("SHMSCHED_DIR", &directory);
    ended(&mut under(
        &["sh", "-c", "umask 000; exec \"$@\"", "sh"],
        &create,
    ))
    .is(0);
    let mode = fs::metadata(&directory).expect("made").mode() & 0o7777;
    assert_eq!(mode, 0o700, "{mode:o}");
}

#[test]
fn case_35_a_segment_of_another_user_in_a_sticky_directory_needs_trust() {
    if !geteuid().is_root() {
        skipped!("needs root, to give a file to another user");
    }
    let scene = Scene::new();
    let directory = sticky(&scene);
    for (place, foreign) in [(directory.join("S"), true), (scene.path("S"), false)] {
        ended(&mut shmsched(&[
            OsStr::new("create"),
            place.as_os_str(),
            OsStr::new("--concurrency=1"),
        ]))
        .is(0);
        chown(&place, Some(NOBODY), Some(NOBODY)).expect("given away");
        let pristine = fs::read(&place).expect("there");
        let call = |verb: &str, rest: &[&str]| {
            let mut command = shmsched(&[OsStr::new(verb), place.as_os_str()]);
            ended(command.args(rest))
        };
        let (run, trusting) = (["--", "true"], ["--trust-foreign", "--", "true"]);
        if !foreign {
            // Its directory is root's alone: who put it there was trusted.
            call("run", &run).is(0);
            continue;
        }
        for (verb, rest) in EVERY.iter().filter(|(verb, _)| *verb != "rm") {
            let ended = call(verb, rest);
            let line = ended.is(77).one_line().to_owned();
            assert!(
                line.contains("65534") && line.contains("--trust-foreign"),
                "{line}"
            );
        }
        assert!(fs::read(&place).expect("there") == pristine, "untouched");
        call("run", &trusting).is(0);
        call("inspect", &["--trust-foreign"]).is(0);
        call("doctor", &["--repair", "--trust-foreign"]).is(0);
        call("set", &["--concurrency", "2", "--trust-foreign"]).is(0);
    }
}

#[test]
fn case_35_the_default_directory_must_be_ones_own() {
    let Some(elsewhere) = Elsewhere::new().filter(|_| geteuid().is_root()) else {
        skipped!("needs root, for a second user");
    };
    // A user whose directory in /dev/shm somebody else made first.
    const VICTIM: u32 = 61_234;
    let theirs = PathBuf::from(format!("/dev/shm/shmsched-{VICTIM}"));
    if fs::create_dir(&theirs).is_err() {
        skipped!("{} is taken", theirs.display());
    }
    let outcome = std::panic::catch_unwind(|| {
        let create = |program: &Path| {
            let mut inner = command(program);
            inner.args(["create", "n", "--concurrency", "1"]);
            let uid = format!("--reuid={VICTIM}");
            let wrapper = [
                "setpriv",
                &uid,
                "--regid=65534",
                "--clear-groups",
                "--",
                "env",
            ];
            ended(&mut under(&wrapper, &inner))
        };
        for (owner, mode) in [(NOBODY, 0o777), (VICTIM, 0o777)] {
            chown(&theirs, Some(owner), None).expect("given away");
            fs::set_permissions(&theirs, fs::Permissions::from_mode(mode)).expect("its mode");
            let line = create(&elsewhere.program).is(77).one_line().to_owned();
            assert!(
                line.contains("not safe") && line.contains("SHMSCHED_DIR"),
                "{line}"
            );
        }
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o700)).expect("its mode");
        create(&elsewhere.program).is(0);
        assert!(theirs.join("n").exists());
    });
    fs::remove_dir_all(&theirs).expect("removed");
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}
