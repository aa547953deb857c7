//! One operation, each of its writes deadly in turn.

use crate::support::{Child, LONG, Scene, Words, until, within};
use shmsched::{Location, Observer, OwnedPermit, Priority, Scheduler, Segment};
use std::thread;
use std::time::{Duration, Instant};

pub const BUDGET: u32 = 3;
/// No operation writes so often.
const MOST: u64 = 400;
/// What a survivor may take to have everything back.
const SOON: Duration = Duration::from_secs(2);

/// The survivor and its segment.
pub struct Bench {
    _scene: Scene,
    pub location: Location,
    pub segment: Segment,
    pub scheduler: Scheduler,
    pub words: Words,
}

impl Bench {
    pub fn new() -> Bench {
        let scene = Scene::new();
        let location = scene.segment(BUDGET);
        let segment = Segment::open(&location).unwrap();
        Bench {
            scheduler: segment.scheduler().unwrap(),
            words: Words::of(&location),
            _scene: scene,
            location,
            segment,
        }
    }

    pub fn path(&self) -> String {
        self.location.path().to_string_lossy().into_owned()
    }

    /// A child that is ready to do its operation.
    pub fn child(&self, operation: &str, n: u64) -> Child {
        let mut child = Child::start("operate", &[&self.path(), operation, &n.to_string()]);
        child.expect("ready");
        child
    }

    /// The same, off already.
    fn off(&self, operation: &str, n: u64) -> Child {
        let mut child = self.child(operation, n);
        child.tell("go");
        child
    }

    pub fn hold(&self, slots: u32) -> OwnedPermit {
        self.scheduler
            .try_acquire_many_owned(slots, Priority::Normal)
            .unwrap()
    }

    /// Until the child stands in line, or is dead, or through with it.
    pub fn waits_or_ended(&self, child: &mut Child) {
        until(LONG, "in line or dead", || {
            self.words.waiters() > 0 || child.poll().is_some()
        });
    }

    /// Within two seconds exactly the full budget is there, nobody waits, nothing is left over.
    #[track_caller]
    pub fn all_is_back(&self, after: &str) {
        let all = self
            .scheduler
            .blocking_acquire_until(BUDGET, Priority::Normal, SOON);
        let all = all.unwrap_or_else(|error| {
            panic!(
                "{after}: {error}; running {}, estate {}",
                self.words.running(),
                self.words.estate()
            )
        });
        let more = self.scheduler.try_acquire(Priority::Highest);
        assert!(more.is_err(), "{after}: more than the budget was granted");
        drop((all, more));
        within(SOON, || {
            self.scheduler.look();
            let words = &self.words;
            let seen = (
                words.taken(),
                words.waiters(),
                words.summary(),
                words.hurry(),
                words.estate(),
            );
            if seen != (0, 0, 0, 0, 0) {
                return Err(format!(
                    "{after}: running, waiters, summary, hurry, estate are {seen:?}"
                ));
            }
            let snapshot = Observer::open(&self.location).unwrap().snapshot().unwrap();
            let scheduler = snapshot.scheduler.as_ref().unwrap();
            let of_members: u64 = snapshot.members.iter().map(|m| u64::from(m.held)).sum();
            let ended = scheduler.completed + scheduler.cancelled + scheduler.lost;
            if scheduler.queued != [0; 7] || of_members != 0 || scheduler.deferred != ended {
                return Err(format!("{after}: {snapshot:#?}"));
            }
            Ok(())
        });
    }
}

/// Runs `scenario` with each write deadly in turn until the operation got through twice in a row. It gives back whether
/// the child was killed. `least`: an operation has at least so many writes, else the hook does not work.
#[track_caller]
pub fn sweep(name: &str, least: u64, mut scenario: impl FnMut(&Bench, u64) -> bool) {
    let bench = Bench::new();
    let mut through = 0;
    let mut deaths = 0;
    for n in 1..MOST {
        let killed = scenario(&bench, n);
        bench.all_is_back(&format!("{name}, write {n}, killed {killed}"));
        deaths += u64::from(killed);
        through = if killed { 0 } else { through + 1 };
        if through == 2 {
            assert!(deaths >= least, "{name} died only {deaths} times");
            return;
        }
    }
    panic!("{name} never got through");
}

/// An operation that needs nobody else, or somebody who holds and gives back once the child waits.
fn alone(operation: &str, least: u64, partner: u32) {
    sweep(operation, least, |bench, n| {
        let held = (partner != 0).then(|| bench.hold(partner));
        let mut child = bench.off(operation, n);
        if held.is_some() {
            bench.waits_or_ended(&mut child);
        }
        drop(held);
        child.was_killed()
    });
}

#[test]
fn case_02_attach() {
    alone("attach", 10, 0);
}

#[test]
fn case_02_detach() {
    alone("detach", 8, 0);
}

#[test]
fn case_02_try_acquire() {
    alone("try", 3, 0);
}

#[test]
fn case_02_release() {
    alone("release", 3, 0);
}

#[test]
fn case_02_blocking_acquire_that_waits() {
    alone("wait", 15, 3);
}

#[test]
fn case_02_acquire_of_many_slots() {
    alone("many", 15, 2);
}

#[test]
fn case_02_callback_form() {
    alone("callback", 6, 0);
}

#[test]
fn case_02_queued_callback() {
    alone("queued_callback", 15, 3);
}

/// Each hands its slot on to the next.
#[test]
fn case_02_callbacks_in_a_row() {
    alone("callbacks_in_a_row", 40, 0);
}

#[test]
fn case_02_set() {
    alone("set", 15, 0);
}

/// The partner holds to the end: the child's wait is in vain.
fn in_vain(operation: &str, least: u64, partner: u32) {
    sweep(operation, least, |bench, n| {
        let held = bench.hold(partner);
        let mut child = bench.off(operation, n);
        let killed = child.was_killed();
        drop(held);
        killed
    });
}

#[test]
fn case_02_timeout_of_a_wait() {
    in_vain("timeout", 15, 3);
}

#[test]
fn case_02_cancelled_async_acquire() {
    in_vain("cancel", 15, 3);
}

/// A child that holds or queues something before the operation begins: the partner's slots must not be in its way.
fn with_a_queue(operation: &str, least: u64) {
    sweep(operation, least, |bench, n| {
        let held = bench.hold(if operation == "hand_over" { 2 } else { 1 });
        let mut child = bench.child(operation, n);
        until(LONG, "in line", || bench.words.waiters() > 0);
        child.tell("go");
        let killed = child.was_killed();
        drop(held);
        killed
    });
}

#[test]
fn case_02_dispose() {
    with_a_queue("dispose", 8);
}

#[test]
fn case_02_close() {
    with_a_queue("close", 4);
}

#[test]
fn case_02_hand_over() {
    with_a_queue("hand_over", 6);
}

#[test]
fn case_02_release_with_waiters() {
    sweep("release_all", 5, |bench, n| {
        let mut child = bench.child("release_all", n);
        let waiters: Vec<_> = [Priority::Low, Priority::High]
            .into_iter()
            .map(|priority| {
                let scheduler = bench.scheduler.clone();
                thread::spawn(move || {
                    drop(scheduler.blocking_acquire_until(1, priority, LONG).unwrap())
                })
            })
            .collect();
        until(LONG, "queued", || bench.scheduler.stats().pending == 2);
        child.tell("go");
        let killed = child.was_killed();
        let ended = Instant::now();
        for waiter in waiters {
            waiter.join().expect("the waiter got its slot");
        }
        assert!(ended.elapsed() < SOON, "{:?}", ended.elapsed());
        killed
    });
}

#[test]
fn case_02_look_with_a_dead_member_to_clean() {
    sweep("look", 10, |bench, n| {
        let mut child = bench.child("look", n);
        let mut doomed = Child::start("hold", &[&bench.path(), "2"]);
        doomed.expect("held");
        doomed.kill();
        child.tell("go");
        child.was_killed()
    });
}

/// An estate is left when a look dies between adopting and inheriting: found by trying, then inherited write by write.
#[test]
fn case_02_look_with_an_estate_to_inherit() {
    let leave_an_estate = |bench: &Bench, n: u64| {
        // Nobody else may be there to clean, or the count of writes is another.
        bench.segment.look();
        let mut child = bench.child("look", n);
        let mut doomed = Child::start("hold", &[&bench.path(), "2"]);
        doomed.expect("held");
        doomed.kill();
        child.tell("go");
        child.was_killed();
        bench.words.estate() == 2
    };
    let bench = Bench::new();
    let mut adopted = 0;
    for n in 1..MOST {
        if leave_an_estate(&bench, n) {
            adopted = n;
            break;
        }
        bench.all_is_back("looking for the adoption");
    }
    assert_ne!(adopted, 0, "no look ever died with an estate");
    bench.all_is_back("the estate was left behind");
    drop(bench);
    sweep("look", 6, |bench, n| {
        if n == 1 {
            // In member slots that were used before, as above: the first cleaning of one writes more.
            let mut first = [(); 3].map(|()| Child::start("hold", &[&bench.path(), "1"]));
            first
                .iter_mut()
                .for_each(|child| drop(child.expect("held")));
            first.iter_mut().for_each(Child::kill);
            bench.all_is_back("slots were used");
        }
        let mut heir = bench.child("look", n);
        assert!(
            leave_an_estate(bench, adopted),
            "write {adopted} leaves an estate"
        );
        heir.tell("go");
        heir.was_killed()
    });
}

#[test]
fn case_02_evict() {
    sweep("evict", 8, |bench, n| {
        let mut child = bench.child("evict", n);
        let mut doomed = Child::start("orphan", &[&bench.path()]);
        let words = doomed.expect("orphan");
        let (member, command) = words.split_once(' ').unwrap();
        doomed.kill();
        child.tell("go");
        child.tell(member);
        let killed = child.was_killed();
        if !killed {
            // It need not end for its slots to be free.
            let all = bench
                .scheduler
                .blocking_acquire_until(BUDGET, Priority::Normal, SOON);
            drop(all.expect("the evicted orphan's slot is back"));
        }
        let command = rustix::process::Pid::from_raw(command.parse().unwrap()).unwrap();
        rustix::process::kill_process(command, rustix::process::Signal::KILL).unwrap();
        killed
    });
}
