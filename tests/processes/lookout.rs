//! Whoever waits notices the end of the process that holds its slot: how soon, and what it leaves behind.
#![allow(unsafe_code)]

use crate::forks::{fork, reap};
use crate::puppet::Puppet;
use crate::support::{
    Args, Child, LONG, Scene, Words, figure, hear, less, median, now, one_of, quiet, say, until,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shmsched::{AcquireError, Location, Priority, Scheduler, Segment};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NORMAL: Priority = Priority::Normal;
/// After so long the lookout of one who waits is there, also on a busy machine.
const WATCHED: Duration = Duration::from_millis(60);

/// At which moment of the wait a holder dies: any of its first tenth of a second.
fn moment(round: usize) -> Duration {
    Duration::from_micros(round as u64 * 7_919 % 100_000)
}

/// In order of size, and shown.
fn sorted(what: &str, mut delays: Vec<Duration>) -> Vec<Duration> {
    delays.sort_unstable();
    let worst = delays[delays.len() - 1];
    figure!("{what}: median {:?}, worst {worst:?}", median(&delays));
    delays
}

/// What is exceeded by one in ten at most: more do not stand still, however busy the machine.
fn p90(sorted: &[Duration]) -> Duration {
    sorted[(sorted.len() * 9).div_ceil(10) - 1]
}

/// Holders that are killed while a puppet waits so (`wait`, `task`): from the kill to its admission.
fn killed(rounds: usize, how: &str) -> Vec<Duration> {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let mut waiter = Puppet::new(&location);
    let delays = (0..rounds).map(|round| {
        let mut holder = Puppet::new(&location);
        holder.take("one", 1);
        waiter.ask(&format!("{how} w 3 1"));
        until(LONG, "in line", || words.waiters() == 1);
        std::thread::sleep(moment(round));
        let dead = now();
        holder.0.kill();
        let got = waiter.got("w");
        waiter.drop("w");
        Duration::from_nanos(got.saturating_sub(dead))
    });
    let delays = sorted(how, delays.collect());
    quiet(&location, 1);
    delays
}

/// By the timer alone the median is 50 ms, and one in a hundred takes 98.
#[test]
fn a_thread_that_waits_has_a_killed_holders_slot_in_some_milliseconds() {
    let delays = killed(40, "wait");
    assert!(median(&delays) < Duration::from_millis(15), "{delays:?}");
    assert!(p90(&delays) < Duration::from_millis(150), "{delays:?}");
}

#[test]
fn a_task_that_waits_has_a_killed_holders_slot_in_some_milliseconds() {
    let delays = killed(25, "task");
    assert!(median(&delays) < Duration::from_millis(15), "{delays:?}");
    assert!(p90(&delays) < Duration::from_millis(150), "{delays:?}");
}

fn run(location: &Location) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shmsched"));
    command.arg("run").arg(location.path()).arg("--");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    for name in ["SHMSCHED_SEGMENT", "SHMSCHED_DIR", "SHMSCHED_PERMIT"] {
        command.env_remove(name);
    }
    command
}

#[test]
fn a_run_that_waits_has_a_killed_holders_slot_in_some_milliseconds() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let delays = (0..30).map(|round| {
        let mut holder = Puppet::new(&location);
        holder.take("one", 1);
        let mut waiter = run(&location).arg("true").spawn().unwrap();
        until(LONG, "in line", || words.waiters() == 1);
        std::thread::sleep(moment(round));
        let dead = Instant::now();
        holder.0.kill();
        // Its command is begun and ended within it.
        assert!(waiter.wait().unwrap().success());
        dead.elapsed()
    });
    let delays = sorted("run", delays.collect());
    assert!(median(&delays) < Duration::from_millis(30), "{delays:?}");
    assert!(p90(&delays) < Duration::from_millis(150), "{delays:?}");
    quiet(&location, 1);
}

/// Who held the slot when the wait began gave it to another, who dies: one who stood before the waiter in the line, and
/// one who came from nowhere.
#[test]
fn the_end_of_a_holder_that_came_later_is_noticed() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let words = Words::of(&location);
    let mut waiter = Puppet::new(&location);
    let delays = (0..20).map(|_| {
        let mut first = Puppet::new(&location);
        let mut next = Puppet::new(&location);
        first.take("one", 1);
        next.wait("w", 3, 1);
        until(LONG, "in line", || words.waiters() == 1);
        waiter.wait("w", 3, 1);
        until(LONG, "both in line", || words.waiters() == 2);
        std::thread::sleep(WATCHED);
        first.drop("one");
        next.got("w");
        let dead = now();
        next.0.kill();
        let got = waiter.got("w");
        waiter.drop("w");
        Duration::from_nanos(got.saturating_sub(dead))
    });
    let delays = sorted("next", delays.collect());
    assert!(median(&delays) < Duration::from_millis(15), "{delays:?}");
    quiet(&location, 1);
}

#[test]
fn a_stopped_holder_keeps_its_slot_from_who_waits() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let mut holder = Puppet::new(&location);
    let mut waiter = Puppet::new(&location);
    one_of(3, || {
        holder.take("one", 1);
        waiter.wait("w", 3, 1);
        std::thread::sleep(WATCHED);
        holder.0.stop();
        let early = waiter.0.expect_within("got w", Duration::from_millis(500));
        assert_eq!(early, None);
        holder.0.go_on();
        let freed = holder.drop("one");
        let after = Duration::from_nanos(waiter.got("w").saturating_sub(freed));
        waiter.drop("w");
        less("served after", after, Duration::from_millis(50))
    });
    quiet(&location, 1);
}

/// `run` is killed, and its command holds its lock on: nothing is found, however often its end is told. Once the command
/// has ended the timer finds it.
#[test]
fn the_command_of_a_killed_run_keeps_the_slot_from_who_waits() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let mut waiter = Puppet::new(&location);
    one_of(3, || {
        let mut held = run(&location);
        held.args(["sh", "-c", "echo $$; exec sleep 60"]);
        let mut held = held.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut said = std::io::BufReader::new(held.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        let command = rustix::process::Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        waiter.wait("w", 3, 1);
        std::thread::sleep(WATCHED);
        held.kill().unwrap();
        held.wait().unwrap();
        let early = waiter.0.expect_within("got w", Duration::from_millis(500));
        assert_eq!(early, None);
        let (spent, switches) = waiter.0.usage();
        std::thread::sleep(Duration::from_secs(1));
        let (later, more) = waiter.0.usage();
        figure!(
            "beside an orphan: {:?}, {} sleeps",
            later - spent,
            more - switches
        );
        assert!(later - spent < Duration::from_millis(50), "it never sleeps");
        let _ = rustix::process::kill_process(command, rustix::process::Signal::KILL);
        let dead = now();
        let after = Duration::from_nanos(waiter.got("w").saturating_sub(dead));
        waiter.drop("w");
        less("served after", after, Duration::from_millis(500))
    });
    quiet(&location, 1);
}

/// Answers `pidfd_open` by ENOSYS, in this thread and those that it starts.
fn without_pidfds() {
    let statement = |code: u32, jt, jf, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (load, equal, ret) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let mut filter = [
        statement(load, 0, 0, number),
        statement(equal, 0, 1, libc::SYS_pidfd_open as u32),
        statement(ret, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        statement(ret, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: plain system calls on numbers, and on a program that outlives them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        );
        assert_eq!(set, 0);
    }
}

/// Descriptors that are left: a few, which are left to others.
fn without_descriptors() {
    let free = std::fs::File::open("/dev/null").unwrap();
    let lowest = std::os::fd::AsRawFd::as_raw_fd(&free) as u64;
    let now = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(lowest + 8),
            ..now
        },
    )
    .unwrap();
}

/// Role: PATH WHAT. Waits without something, again and again, and says when it was served.
pub fn lacks(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    match args.text(1) {
        "pidfds" => without_pidfds(),
        "descriptors" => without_descriptors(),
        _ => {}
    }
    say("ready");
    while hear() == "wait" {
        let permit = scheduler.blocking_acquire(NORMAL).unwrap();
        say(format!("got {}", now()));
        drop(permit);
    }
}

#[test]
fn where_no_descriptor_of_a_process_is_to_be_had_the_timer_finds_the_dead() {
    for what in ["pidfds", "descriptors", "nothing"] {
        let scene = Scene::alone();
        let location = scene.segment(1);
        let words = Words::of(&location);
        let path = location.path();
        let mut waiter = Child::start("lacks", &[&path.to_string_lossy(), what]);
        waiter.expect("ready");
        let delays = (0..6).map(|round| {
            let mut holder = Puppet::new(&location);
            holder.take("one", 1);
            waiter.tell("wait");
            until(LONG, "in line", || words.waiters() == 1);
            std::thread::sleep(WATCHED + moment(round * 3));
            let dead = now();
            holder.0.kill();
            let got: u64 = waiter.expect("got").parse().unwrap();
            Duration::from_nanos(got.saturating_sub(dead))
        });
        let delays = sorted(what, delays.collect());
        // What the timer does takes 50 ms, give or take.
        let by_timer = median(&delays) > Duration::from_millis(15);
        assert_eq!(by_timer, what != "nothing", "{what}: {delays:?}");
        assert!(delays[3] < Duration::from_millis(150), "{what}: {delays:?}");
        waiter.tell("end");
        waiter.finish();
        quiet(&location, 1);
    }
}

fn names(directory: &str) -> BTreeSet<String> {
    let found = std::fs::read_dir(directory).unwrap().flatten();
    let names = found.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

fn descriptors() -> BTreeSet<String> {
    // The descriptor of the directory itself is closed by the time it is asked where it leads.
    let led = |fd: String| {
        let led_to = std::fs::read_link(Path::new("/proc/self/fd").join(&fd)).ok()?;
        Some(format!("{fd} {}", led_to.display()))
    };
    names("/proc/self/fd").into_iter().filter_map(led).collect()
}

/// The name of each thread of this process.
fn threads() -> Vec<String> {
    let comm = |task: &String| std::fs::read_to_string(format!("/proc/self/task/{task}/comm"));
    let tasks = names("/proc/self/task");
    let names = tasks.iter().filter_map(|task| comm(task).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

fn looks_out() -> bool {
    threads().iter().any(|name| name == "shmsched-look")
}

fn wait_in_vain(scheduler: &Scheduler, time: Duration) {
    let failed = scheduler.blocking_acquire_until(1, NORMAL, time);
    assert_eq!(failed.map(drop), Err(AcquireError::TimedOut));
}

/// Waits in vain until the lookout has been asked for: not by one that slept past its time.
fn have_looked_out(scheduler: &Scheduler) {
    until(LONG, "a lookout", || {
        wait_in_vain(scheduler, Duration::from_millis(30));
        looks_out()
    });
}

/// Role: PATH. Detaches while the lookout is there, by every way.
pub fn leaves(args: &Args) {
    let (before, quiet) = (descriptors(), threads());
    for round in 0..8 {
        one_of(3, || {
            let segment = Segment::open(&args.location()).unwrap();
            let scheduler = segment.scheduler().unwrap();
            have_looked_out(&scheduler);
            match round % 4 {
                0 => scheduler.dispose(),
                1 => scheduler.close(),
                _ => {}
            }
            drop((scheduler, segment));
            let ended = Instant::now();
            until(LONG, "no thread is left", || threads() == quiet);
            let took = ended.elapsed();
            assert_eq!(descriptors(), before, "round {round}");
            // Not by itself, a second after the wait.
            less("its thread ended after", took, Duration::from_millis(800))
        });
    }
    // And by itself, a second after nobody has waited any more.
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let attached = descriptors();
    for _ in 0..2 {
        have_looked_out(&scheduler);
        until(LONG, "it is over", || threads() == quiet);
        assert_eq!(descriptors(), attached);
    }
    say("done");
}

#[test]
fn who_detaches_leaves_no_thread_and_no_descriptor() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    let path = location.path();
    let mut child = Child::start("leaves", &[&path.to_string_lossy()]);
    child.expect("done");
    child.finish();
    holder.drop("one");
    quiet(&location, 1);
}

/// A wait that is short asks for no thread.
#[test]
fn who_waits_for_a_millisecond_starts_no_thread() {
    let scene = Scene::alone();
    let location = scene.segment(1);
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let mut holder = Puppet::new(&location);
    holder.take("one", 1);
    one_of(10, || {
        let mut longest = Duration::ZERO;
        for _ in 0..25 {
            let begun = Instant::now();
            wait_in_vain(&scheduler, Duration::from_millis(1));
            longest = longest.max(begun.elapsed());
        }
        if looks_out() {
            until(LONG, "it is over", || !looks_out());
            // It is asked for after 7 ms, also by one that slept past its time.
            assert!(longest >= Duration::from_millis(7), "{longest:?}");
            return Err(format!("a wait of a millisecond took {longest:?}"));
        }
        Ok(())
    });
    holder.drop("one");
}

/// Role: PATH. Forks while its lookout waits for the end of a holder.
pub fn forks(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let before = descriptors();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let permit = scheduler.blocking_acquire(NORMAL).unwrap();
            say(format!("got {}", now()));
            drop(permit);
        });
        until(LONG, "a lookout", looks_out);
        until(LONG, "of a process", || {
            descriptors().iter().any(|led| led.contains("pidfd"))
        });
        for _ in 0..20 {
            let pid = fork(|| {
                let here = descriptors();
                // Of what the parent had, the segment's are closed too.
                u8::from(!here.is_subset(&before) || here.len() >= before.len())
            });
            let ended = reap(pid, LONG);
            if ended != Some(0) {
                say(format!("bad {ended:?}"));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        say("forked");
        waiter.join().unwrap();
    });
    say("done");
}

#[test]
fn a_fork_takes_no_descriptor_along_and_the_parent_goes_on() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let path = location.path();
    one_of(3, || {
        let mut holder = Puppet::new(&location);
        holder.take("one", 1);
        let mut child = Child::start("look_forks", &[&path.to_string_lossy()]);
        child.expect("forked");
        let bad = child.listen_for("bad", Duration::ZERO);
        assert!(bad.is_err(), "{bad:?}");
        let dead = now();
        holder.0.kill();
        let got: u64 = child.expect("got").parse().unwrap();
        let after = Duration::from_nanos(got.saturating_sub(dead));
        figure!("after 20 forks: {after:?}");
        child.expect("done");
        child.finish();
        less("served after", after, Duration::from_millis(150))
    });
    quiet(&location, 1);
}

/// Role: PATH. Closes all descriptors while its lookout waits, and uses the numbers for others.
pub fn closes(args: &Args) {
    let segment = Segment::open(&args.location()).unwrap();
    let scheduler = segment.scheduler().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let permit = scheduler.blocking_acquire(NORMAL).unwrap();
            say(format!("got {}", now()));
            drop(permit);
        });
        until(LONG, "of a process", || {
            descriptors().iter().any(|led| led.contains("pidfd"))
        });
        // SAFETY: whoever had them is to find out.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        let others: Vec<_> = (0..40)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        say("closed");
        waiter.join().unwrap();
        let whole = others.iter().all(|file| file.metadata().is_ok());
        say(format!("whole {whole}"));
    });
    drop((scheduler, segment));
    say("done");
}

#[test]
fn descriptors_that_the_program_closes_leave_it_to_the_timer() {
    let scene = Scene::new();
    let location = scene.segment(1);
    let path = location.path();
    one_of(3, || {
        let mut holder = Puppet::new(&location);
        holder.take("one", 1);
        let mut child = Child::start("closes", &[&path.to_string_lossy()]);
        child.expect("closed");
        std::thread::sleep(WATCHED);
        let (spent, _) = child.usage();
        std::thread::sleep(Duration::from_millis(500));
        let spent = child.usage().0 - spent;
        assert!(
            spent < Duration::from_millis(50),
            "it never sleeps: {spent:?}"
        );
        let dead = now();
        holder.0.kill();
        let got: u64 = child.expect("got").parse().unwrap();
        let after = Duration::from_nanos(got.saturating_sub(dead));
        figure!("after closing all: {after:?}");
        assert_eq!(child.expect("whole"), "true");
        child.expect("done");
        child.finish();
        less("served after", after, Duration::from_millis(250))
    });
    quiet(&location, 1);
}
