//! The demo shows what it says, and leaves nothing.

use crate::stage::{Job, shmsched};
use crate::support::{LONG, Scene, figure, within};
use rustix::process::{Pid, test_kill_process_group};
use std::fs;
use std::time::Duration;

#[test]
fn the_demo_ends_soon_and_leaves_nothing() {
    let scene = Scene::alone();
    let directory = scene.path("d");
    let mut demo = shmsched(&["demo"]);
    let mut demo = Job::start(demo.env("SHMSCHED_DIR", &directory));
    let ended = demo.wait(LONG);
    figure!("the demo took {:?}", ended.took);
    assert_eq!(ended.is(0).err, "");
    assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
    let text = ended.text();
    assert!(
        text.lines().count() > 10 && text.contains("SIGKILL"),
        "{text}"
    );
    let left: Vec<_> = fs::read_dir(&directory).expect("made").collect();
    assert!(left.is_empty(), "{left:?}");
    // Its workers were of its group.
    let group = Pid::from_raw(demo.pid() as i32).expect("a pid");
    within(LONG, || match test_kill_process_group(group) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        other => Err(format!("a worker lives: {other:?}")),
    });
}

/// Ended amid the show, it leaves nothing either.
#[test]
fn the_demo_can_be_interrupted() {
    let scene = Scene::new();
    let directory = scene.path("d");
    let mut demo = Job::start(shmsched(&["demo"]).env("SHMSCHED_DIR", &directory));
    demo.runs();
    demo.signal(rustix::process::Signal::INT);
    assert_eq!(demo.wait(LONG).is(130).err, "");
    let left: Vec<_> = fs::read_dir(&directory).expect("made").collect();
    assert!(left.is_empty(), "{left:?}");
    let group = Pid::from_raw(demo.pid() as i32).expect("a pid");
    within(LONG, || match test_kill_process_group(group) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        other => Err(format!("a worker lives: {other:?}")),
    });
}
