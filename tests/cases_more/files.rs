//! Files that others delete (41), and file systems that make two files of one (52).

use crate::stage::{Job, PROGRAM, SOON, Stage, command, ended, shmsched, unshare};
use crate::support::{Child, LONG, Scene, figure, median, skipped, within};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn case_41_a_deleted_file_is_noticed() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let path = stage.segment().to_string_lossy().into_owned();
    let mut user = Child::start("loops", &[&path]);
    user.expect("attached");
    // An attached one keeps it, idle as it is and whatever the age of the file says.
    stage.call::<&str>("rm", &[]).is(75).one_line();
    let mut holder = stage.hold();
    let mut waiters = [
        stage.job("run", &["--", "echo", "got"]),
        stage.job(
            "run",
            &["-p", "low", "--timeout", "60s", "--", "echo", "got"],
        ),
    ];
    stage.in_line(2);
    fs::remove_file(stage.segment()).expect("deleted");
    let mut noticed = vec![all_notice(&mut waiters)];
    // They look every 100 ms, but one may stand still when it is time.
    while noticed.len() < 3 && median(&noticed) > Duration::from_secs(3) {
        let stage = Stage::new(&["--concurrency", "1"]);
        let _holder = stage.hold();
        let mut waiters = [(); 2].map(|()| stage.job("run", &["--", "echo", "got"]));
        stage.in_line(2);
        fs::remove_file(stage.segment()).expect("deleted");
        noticed.push(all_notice(&mut waiters));
    }
    figure!("waiters had noticed after {noticed:?}");
    assert!(median(&noticed) < Duration::from_secs(3), "{noticed:?}");
    for (verb, rest) in [
        ("doctor", &[][..]),
        ("inspect", &[]),
        ("run", &["--", "true"]),
    ] {
        stage.call(verb, rest).is(66).one_line();
    }
    // A new one of the name: the old users are not let in beside those of the new one.
    stage.call("create", &["--concurrency", "1"]).is(0);
    let mut fresh = stage.hold();
    assert!(!stage.lets_in());
    assert_eq!(holder.poll(), None, "its command goes on");
    holder.let_go();
    assert_eq!(holder.wait(LONG).is(0).err, "");
    user.tell("go");
    let said = user.expect("failed");
    let (turn, why) = said.split_once(' ').expect("two words");
    assert!(why.contains("the segment file is gone"), "{said}");
    let turn: u32 = turn.parse().expect("a number");
    assert!(
        (1..=1_024).contains(&turn),
        "noticed at its {turn}th acquire"
    );
    user.tell("bye");
    user.finish();
    fresh.let_go();
    fresh.wait(LONG).is(0);
    stage.quiet(1);
}

/// How long it takes until all who wait have said that the file is gone.
#[track_caller]
fn all_notice(waiters: &mut [Job]) -> Duration {
    let deleted = Instant::now();
    for waiter in waiters {
        let ended = waiter.wait(SOON);
        let line = ended.is(69).one_line().to_owned();
        assert!(line.contains("the segment file is gone"), "{line}");
    }
    deleted.elapsed()
}

/// The same with another segment moved over it: the inode tells, not the name.
#[test]
fn case_41_a_replaced_file_is_noticed() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let mut holder = stage.hold();
    let mut waiter = stage.job("run", &["--", "echo", "got"]);
    stage.in_line(1);
    let mut watching = stage.job("inspect", &["--watch", "50ms", "--json"]);
    watching.runs();
    let other = stage.scene.path("other");
    ended(&mut shmsched(&[
        OsStr::new("create"),
        other.as_os_str(),
        OsStr::new("--concurrency=1"),
    ]))
    .is(0);
    fs::rename(&other, stage.segment()).expect("moved");
    let line = waiter.wait(SOON).is(69).one_line().to_owned();
    assert!(line.contains("gone"), "{line}");
    let ended = watching.wait(SOON);
    assert!(
        ended.is(66).err.contains("removed or replaced"),
        "{}",
        ended.err
    );
    holder.let_go();
    holder.wait(LONG).is(0);
    stage.quiet(1);
}

/// A mount namespace that a shell has prepared and keeps.
struct Mounts {
    keeper: Job,
    user: bool,
}

impl Mounts {
    /// `Err` says why there is none.
    fn new(script: &str) -> Result<Mounts, String> {
        let wrapper = unshare(&["--mount"]).ok_or("unshare --mount is not permitted")?;
        let script = format!("set -e; {script}; echo ready; exec cat");
        let mut unshared = command(wrapper[0]);
        unshared.args(&wrapper[1..]).args(["sh", "-c", &script]);
        let mut keeper = Job::start(&mut unshared);
        let begun = Instant::now();
        while keeper.out() != "ready\n" {
            if keeper.poll().is_some() || begun.elapsed() > LONG {
                return Err(format!("mount: {}", keeper.err().trim()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let user = wrapper.contains(&"--user");
        Ok(Mounts { keeper, user })
    }

    fn shmsched(&self, arguments: &[&str]) -> Command {
        let mut command = command("nsenter");
        command.args(["--target", &self.keeper.pid().to_string(), "--mount"]);
        if self.user {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").arg(PROGRAM).args(arguments);
        command
    }
}

#[test]
fn case_52_an_overlay_is_reported() {
    let scene = Scene::new();
    let place = |name: &str| {
        let path = scene.path(name);
        fs::create_dir(&path).expect("a directory");
        path.display().to_string()
    };
    let (lower, upper, work, merged) = (
        place("lower"),
        place("upper"),
        place("work"),
        place("merged"),
    );
    let below = format!("{lower}/S");
    ended(&mut shmsched(&["create", &below, "--concurrency", "1"])).is(0);
    let script = format!(
        "mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir={work} {merged}"
    );
    let mounts = match Mounts::new(&script) {
        Ok(mounts) => mounts,
        Err(why) => skipped!("{why}"),
    };
    let s = format!("{merged}/S");
    let call = |arguments: &[&str]| ended(&mut mounts.shmsched(arguments));
    // Read-only before the first write: it has the file of the lower layer.
    let mut watching =
        Job::start(&mut mounts.shmsched(&["inspect", &s, "--watch", "50ms", "--json"]));
    watching.runs();
    let doctor = call(&["doctor", &s, "--json"]).is(1).json();
    assert_eq!(doctor["findings"][0]["kind"], "file-system", "{doctor}");
    assert!(call(&["doctor", &s]).text().contains("overlay"));
    // The first write copies it up.
    let mut holder =
        Job::start(&mut mounts.shmsched(&["run", &s, "--", "sh", "-c", "echo in; exec cat"]));
    holder.runs();
    assert!(PathBuf::from(format!("{upper}/S")).exists(), "copied");
    // The watcher shows what happens, or says that it cannot.
    let saw = within(LONG, || {
        let shows = watching.out().lines().any(|line| {
            let line = serde_json::from_str::<serde_json::Value>(line);
            line.is_ok_and(|line| line["scheduler"]["running"] == 1)
        });
        match (shows, watching.poll()) {
            (true, _) => Ok("the new file"),
            (_, Some(status)) if status.code() == Some(66) => Ok("that its file was replaced"),
            (_, Some(status)) => panic!("{status} {}", watching.err()),
            (_, None) => Err("it watches the old file"),
        }
    });
    figure!("the watcher saw {saw}");
    // In the overlay there is one truth from now on.
    call(&["run", &s, "--no-wait", "--", "true"]).is(75);
    holder.let_go();
    holder.wait(LONG).is(0);
    call(&["run", &s, "--no-wait", "--", "true"]).is(0);
}

#[test]
fn case_52_two_files_of_one_name_can_be_told_apart() {
    let scene = Scene::new();
    let shared = scene.path("shm");
    fs::create_dir(&shared).expect("a directory");
    let script = format!("mount -t tmpfs tmpfs {}", shared.display());
    let (one, two) = match (Mounts::new(&script), Mounts::new(&script)) {
        (Ok(one), Ok(two)) => (one, two),
        (Err(why), _) | (_, Err(why)) => skipped!("{why}"),
    };
    let s = shared.join("S").display().to_string();
    let mut seen = Vec::new();
    for mounts in [&one, &two] {
        ended(&mut mounts.shmsched(&["create", &s, "--concurrency", "1", "--if-missing"])).is(0);
        let table = ended(&mut mounts.shmsched(&["inspect", &s])).is(0).text();
        let line = |name: &str| {
            let found = table.lines().find(|line| line.starts_with(name));
            found
                .unwrap_or_else(|| panic!("{name}: {table}"))
                .to_owned()
        };
        assert!(
            line("file").contains("device ") && line("file").contains("inode "),
            "{table}"
        );
        assert!(line("file").contains("tmpfs"), "{table}");
        seen.push((
            line("id"),
            line("file").split("inode").next().map(str::to_owned),
        ));
    }
    assert_ne!(seen[0].0, seen[1].0, "each has an id of its own");
    assert_ne!(seen[0].1, seen[1].1, "each is on a device of its own");
    // Each has its own limit, then.
    let hold = |mounts: &Mounts| {
        let mut job =
            Job::start(&mut mounts.shmsched(&["run", &s, "--", "sh", "-c", "echo in; exec cat"]));
        job.runs();
        job
    };
    let (_first, _second) = (hold(&one), hold(&two));
}

/// Where no segment can be, `create` says so and leaves nothing.
#[test]
fn case_52_create_refuses_where_it_cannot_work() {
    for place in ["/proc/S", "/proc/self/S", "/sys/S", "/dev/null/S"] {
        let ended = ended(&mut shmsched(&["create", place, "--concurrency", "1"]));
        assert!(matches!(ended.code(), 73 | 74 | 77), "{place}: {ended:?}");
        ended.one_line();
        assert!(fs::metadata(place).is_err());
    }
}

/// Several spellings of one path are one segment.
#[test]
fn spellings_of_a_path_are_one_segment() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let mut holder = stage.hold();
    let directory = stage.scene.path("");
    let link = stage.scene.path("link");
    std::os::unix::fs::symlink(&directory, &link).expect("a link to the directory");
    let inode = fs::metadata(stage.segment()).expect("there").ino();
    for spelling in ["./S", "../*/S", "link/S", "link/./link/S"] {
        let spelling = match spelling {
            "../*/S" => {
                let name = directory
                    .file_name()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned();
                format!("../{name}/S")
            }
            other => other.to_owned(),
        };
        let mut run = shmsched(&["run", &spelling, "--no-wait", "--", "true"]);
        ended(run.current_dir(&directory)).is(75);
        assert_eq!(
            fs::metadata(directory.join(&spelling))
                .expect("there")
                .ino(),
            inode
        );
    }
    holder.let_go();
    holder.wait(LONG).is(0);
    stage.quiet(1);
}
