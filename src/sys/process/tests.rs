use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::super::fork::tests::in_child;
use super::super::{file, lock};
use super::*;

fn until(pid: u32, start: u64, wanted: Seen) {
    let begin = Instant::now();
    while look(pid, start) != wanted {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "{:?} is not {wanted:?}",
            look(pid, start)
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn parses_after_the_last_parenthesis() {
    let text = b"12 (a) S (b c) R 1 1 1 0 -1 4 0 0 0 0 5 6 0 0 20 0 3 0 777 1 2 3\n";
    assert_eq!(
        Stat::parse(text),
        Some(Stat {
            state: 'R',
            flags: 4,
            threads: 3,
            start: 777
        })
    );
    assert_eq!(Stat::parse(b"12 (a) S 1"), None);
    assert_eq!(Stat::parse(b""), None);
}

#[test]
fn the_life_of_a_child() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    let start = Stat::read(&format!("/proc/{pid}/stat")).unwrap().start;
    until(pid, start, Seen::Alive { state: 'S' });
    assert_eq!(command_of(pid).unwrap(), "sleep 60");
    assert_eq!(look(pid, start + 2), Seen::Gone);
    signal(&child, Signal::STOP);
    until(pid, start, Seen::Stopped);
    signal(&child, Signal::KILL);
    until(pid, start, Seen::Zombie);
    child.wait().unwrap();
    assert_eq!(look(pid, start), Seen::Gone);
    assert_eq!(command_of(pid), None);
    assert_eq!(look(0, 0), Seen::Gone);
}

#[test]
fn me_is_this_process_and_not_its_parent() {
    let mine = me();
    assert_eq!(me(), mine);
    assert!(mine.start > 0 && mine.namespace > 0);
    assert!(matches!(look(mine.pid, mine.start), Seen::Alive { .. }));
    assert_eq!(
        in_child(|| i32::from(me().pid == mine.pid || me().namespace != mine.namespace)),
        0
    );
}

#[test]
fn a_lock_tells_its_holder() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(lock::try_lock(file.as_file().as_fd(), 70, lock::Mode::Exclusive).unwrap());
    let which = file::identity(file.as_file()).unwrap();
    assert!(holders_of(which.dev, which.ino, 70).contains(&std::process::id()));
    assert!(!holders_of(which.dev, which.ino, 71).contains(&std::process::id()));
    let line = "lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:1b:1234 5 EOF";
    assert!(is_lock_on(line, 1234, 5) && !is_lock_on(line, 1234, 4) && !is_lock_on(line, 123, 5));
    assert!(!is_lock_on(
        "lock:\t1: POSIX  ADVISORY  WRITE 9 00:1b:1234 0 EOF",
        1234,
        5
    ));
}
