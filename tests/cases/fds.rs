//! What a command inherits.

use crate::shell::{Play, SOON, comes_to_rest, create, script, shmsched};
use crate::support::{LONG, Scene, figure};
use rustix::process::{Pid, Signal, kill_process};
use shmsched::{Location, Segment};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

#[test]
fn case_24_what_a_command_leaves_behind_keeps_no_slot() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let left = scene.path("left");
    let daemon = "setsid sh -c 'echo $$ > \"$LEFT\"; exec sleep 60' >/dev/null 2>&1 </dev/null & \
                  until [ -s \"$LEFT\" ]; do sleep 0.01; done; exit 0";
    let mut command = shmsched!["run", &segment, "--", "sh", "-c", daemon];
    command.env("LEFT", &left);
    let ended = command.started().wait_for(SOON).is(0);
    let next = shmsched!["run", "--no-wait", &segment, "--", "true"]
        .ended()
        .is(0);
    figure!("ended after {:?}, the next {:?}", ended.took, next.took);
    let pid = std::fs::read_to_string(&left)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let pid = Pid::from_raw(pid).unwrap();
    kill_process(pid, Signal::KILL).expect("what was left behind still ran");
    comes_to_rest(&segment, 1);
}

/// What `ls -l /proc/self/fd` says: each descriptor but its own for the directory, and where it leads.
fn descriptors(listing: &str) -> BTreeMap<u32, String> {
    let fd = |line: &str| {
        let (before, target) = line.split_once(" -> ")?;
        let number = before.rsplit(' ').next()?.parse().ok()?;
        Some((number, target.to_owned()))
    };
    let fds = listing.lines().filter_map(fd);
    fds.filter(|(_, target)| !target.contains("/proc/"))
        .collect()
}

/// Under the program a command has what it has without, and one descriptor more.
#[track_caller]
fn one_more(scene: &Scene, before: &str) -> u32 {
    let list = |how: &str| {
        let mut command = script(&[], &format!("{before}\n{how} ls -l /proc/self/fd"));
        command.env("S", scene.path("S")).env("D", scene.path(""));
        let ended = command.ended().is(0);
        // Standard output and error are other files each time.
        let mut fds = descriptors(&ended.out);
        assert!((0..3).all(|fd| fds.remove(&fd).is_some()), "{ended:?}");
        fds
    };
    let (without, mut with) = (list("exec"), list("exec \"$B\" run \"$S\" --"));
    let new: Vec<u32> = with
        .keys()
        .copied()
        .filter(|fd| !without.contains_key(fd))
        .collect();
    assert_eq!(new.len(), 1, "{without:?} became {with:?}");
    let target = with.remove(&new[0]).expect("just seen");
    assert!(target.starts_with("/dev/shm/"), "{target}");
    assert_eq!(with, without);
    new[0]
}

#[test]
fn case_24_one_descriptor_is_inherited() {
    let scene = Scene::new();
    create(&scene, &["--concurrency", "1"]);
    assert!(one_more(&scene, "") >= 100);
}

#[test]
fn case_24_the_callers_descriptors_are_passed_on() {
    let scene = Scene::new();
    create(&scene, &["--concurrency", "1"]);
    let open = (3..=9)
        .map(|fd| format!("exec {fd}<>\"$D/fd{fd}\"\n"))
        .collect::<String>();
    assert!(one_more(&scene, &open) >= 100);
    // With fewer than a hundred: the highest that is free.
    let highest = one_more(&scene, &format!("ulimit -n 40\n{open}"));
    assert!((10..40).contains(&highest), "{highest}");
    // A make jobserver: a pipe at 3 and 4.
    let jobserver = "mkfifo \"$D/jobs\"; exec 3<>\"$D/jobs\" 4>&3; printf xy >&4\n\
                     exec \"$B\" run \"$S\" -- sh -c 'head -c 1 <&3; printf z >&4; head -c 2 <&3'";
    let mut command = script(&[], jobserver);
    command.env("S", scene.path("S")).env("D", scene.path(""));
    assert_eq!(command.ended().is(0).out, "xyz");
}

/// Commands of a library user's other threads, started while segments are opened and closed.
fn nothing_leaks(rounds: u32) {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "1"]);
    let location = Location::File(segment.clone());
    let over = AtomicBool::new(false);
    let opened = AtomicU64::new(0);
    let mut commands = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let segment = Segment::open(&location).expect("it opens");
                drop(segment.scheduler().expect("a scheduler"));
                opened.fetch_add(1, Ordering::Relaxed);
            }
        });
        // More of them while the other thread stands still.
        let begun = Instant::now();
        while commands < rounds || opened.load(Ordering::Relaxed) < 20 && begun.elapsed() < LONG {
            commands += 1;
            let mut list = crate::shell::clean("ls");
            let ended = list.args(["-l", "/proc/self/fd"]).output().expect("ls");
            let listing = String::from_utf8_lossy(&ended.stdout).into_owned();
            let leaked = listing.contains(&*segment.to_string_lossy());
            if leaked {
                over.store(true, Ordering::Relaxed);
            }
            assert!(!leaked, "{listing}");
        }
        over.store(true, Ordering::Relaxed);
    });
    let opened = opened.into_inner();
    figure!("{opened} times opened during {commands} commands");
    assert!(opened >= 20);
    comes_to_rest(&segment, 1);
}

#[test]
fn case_24_nothing_leaks_into_other_commands() {
    nothing_leaks(100);
}

#[test]
#[ignore = "for scripts/stress: 10 s"]
fn stress_case_24_nothing_leaks_into_other_commands() {
    nothing_leaks(1_000);
}
