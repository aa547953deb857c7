//! Pid namespaces, and another boot: with `unshare`, where that is permitted.

use crate::puppet::Puppet;
use crate::support::{Child, LONG, Scene, Words, quiet, skipped, until};
use shmsched::{Observer, Settings};
use std::process::{Command, Stdio};

/// The wrapper for a namespace of that kind, if this system permits one.
pub fn unshare(kind: &[&'static str]) -> Option<Vec<&'static str>> {
    for user in [&[][..], &["--user", "--map-root-user"]] {
        let wrapper: Vec<&'static str> = ["unshare"]
            .iter()
            .chain(user)
            .chain(kind)
            .copied()
            .collect();
        let tried = Command::new(wrapper[0])
            .args(&wrapper[1..])
            .arg("true")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if tried.is_ok_and(|status| status.success()) {
            return Some(wrapper);
        }
    }
    None
}

const PIDS: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];

#[test]
fn case_33_pid_namespaces_do_not_matter() {
    let Some(wrapper) = unshare(&PIDS) else {
        skipped!("unshare --pid is not permitted");
    };
    let scene = Scene::new();
    let location = scene.segment(1);
    let mut a = Puppet::under(&wrapper, &location);
    let mut b = Puppet::under(&wrapper, &location);
    let mut here = Puppet::new(&location);
    // Each is pid 1 of its own namespace.
    a.take("one", 1);
    assert!(!b.could_take() && !here.could_take());
    assert_eq!(b.ask("look"), "0 0");
    let snapshot = Observer::open(&location).unwrap().snapshot().unwrap();
    let owner = snapshot
        .members
        .iter()
        .find(|member| member.held == 1)
        .unwrap();
    assert!(!owner.same_namespace && owner.pid == 1, "{owner:?}");
    assert_eq!(
        snapshot
            .members
            .iter()
            .filter(|member| member.pid == 1)
            .count(),
        2
    );
    b.wait("w", 3, 1);
    // The wrapper takes its child with it.
    a.0.kill();
    b.got("w");
    assert!(!here.could_take(), "one slot only");
    b.drop("w");
    // Killed and started again as pid 1: one slot only.
    for _ in 0..3 {
        let mut again = Puppet::under(&wrapper, &location);
        again.take("one", 1);
        assert!(!here.could_take());
        again.0.kill();
        until(LONG, "granted", || here.could_take());
    }
    drop(b);
    quiet(&location, 1);
}

#[test]
fn case_20_a_segment_of_an_earlier_boot_is_reset_by_the_first() {
    let Some(wrapper) = unshare(&["--mount"]) else {
        skipped!("unshare --mount is not permitted");
    };
    let scene = Scene::new();
    let boot = scene.path("boot_id");
    std::fs::write(&boot, "00000000-1111-2222-3333-444444444444\n").unwrap();
    let bind = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id && exec \"$@\"",
        boot.display()
    );
    let mut inside = wrapper.clone();
    inside.extend(["sh", "-c", bind.as_str().to_owned().leak(), "sh"]);
    let works = Command::new(inside[0])
        .args(&inside[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status();
    if !works.is_ok_and(|status| status.success()) {
        skipped!("a bind mount over boot_id is not permitted");
    }
    let location = scene.segment_of("S", &Settings::new().concurrency(2).members(64));
    let words = Words::of(&location);
    // Both slots held and somebody waiting when the machine goes down.
    let mut dead: Vec<_> = (0..3).map(|_| Puppet::new(&location)).collect();
    dead[0].take("one", 1);
    dead[1].take("one", 1);
    dead[2].wait("w", 3, 1);
    until(LONG, "in line", || words.waiters() == 1);
    // While somebody lives nothing is reset, whatever the boot id says.
    let path = location.path();
    let mut early = Child::start_under(&inside, "puppet", &[&path.to_string_lossy()]);
    assert!(
        !early.wait().success(),
        "it must not reset a segment in use"
    );
    assert_eq!((words.running(), words.waiters()), (2, 1));
    // Who waits first: it would take a dead holder's slot.
    dead.iter_mut().rev().for_each(|puppet| puppet.0.kill());
    assert_eq!(words.running(), 2);
    let mut first = Puppet::under(&inside, &location);
    assert_eq!(
        (
            words.running(),
            words.waiters(),
            words.summary(),
            words.estate()
        ),
        (0, 0, 0, 0)
    );
    first.take("both", 2);
    let mut second = Puppet::under(&inside, &location);
    assert!(!second.could_take(), "reset once, by the first");
    assert_eq!(words.running(), 2);
    first.drop("both");
    assert_eq!(second.ask("try both 3 2"), "yes");
    assert_eq!(second.ask("try more 3 1"), "no", "its settings stayed");
}
