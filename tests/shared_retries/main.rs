//! The example of two executions with retries over one Pacer: as it is in `examples/`, in one process and in three.

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code)]
#[path = "../../examples/shared_retries.rs"]
mod example;

use example::{Failure, Reason, collect_with_shared_retries};
use shmsched::{CallError, CancelToken, Location, Pacer, QueueFull, Segment, Settings};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use support::{Args, Child, Scene, now, say};

const MS: u64 = 1_000_000;

#[test]
#[ignore = "the children's entry point"]
fn child() {
    support::enter(&[("both", both)]);
}

/// The service: fails each job so many times first, and remembers who called when.
#[derive(Default)]
struct Service {
    fails: HashMap<&'static str, u32>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    starts: Vec<u64>,
    attempts: HashMap<&'static str, u32>,
    inside: [usize; 2],
    most: [usize; 2],
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    Passing,
    Lasting,
}

impl Service {
    fn failing(fails: &[(&'static str, u32)]) -> Service {
        Service {
            fails: fails.iter().copied().collect(),
            seen: Mutex::default(),
        }
    }

    /// Begins when it is called, as an operation must. Jobs of the second execution have capitals.
    fn call(
        &self,
        job: &'static str,
        takes: Duration,
    ) -> impl Future<Output = Result<String, Trouble>> {
        let execution = usize::from(job.starts_with(char::is_uppercase));
        let attempt = {
            let mut seen = self.seen.lock().unwrap();
            seen.starts.push(now());
            seen.inside[execution] += 1;
            seen.most[execution] = seen.most[execution].max(seen.inside[execution]);
            let attempt = seen.attempts.entry(job).or_default();
            *attempt += 1;
            *attempt
        };
        async move {
            tokio::time::sleep(takes).await;
            self.seen.lock().unwrap().inside[execution] -= 1;
            match self.fails.get(job) {
                Some(fails) if attempt <= *fails => Err(Trouble::Passing),
                _ if job == "broken" => Err(Trouble::Lasting),
                _ => Ok(format!("{job} done")),
            }
        }
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(future)
}

type Lists = (Vec<String>, Vec<String>);

fn collect(
    pacer: &Pacer,
    token: &CancelToken<Reason>,
    service: &Service,
    jobs: [&[&'static str]; 2],
    takes: Duration,
) -> Result<Lists, Failure<Trouble>> {
    let [first, second] = jobs.map(<[&str]>::to_vec);
    let call = |job: &&'static str, _token| service.call(job, takes);
    let transient = |trouble: &Trouble| *trouble == Trouble::Passing;
    run(collect_with_shared_retries(
        pacer, token, first, second, call, transient,
    ))
}

/// Whether they were seen so far apart. A moment is noted after its start: one that is late shortens the next gap, which is
/// forgiven once. What nobody can shorten who stands still is the whole, since a moment before the first.
#[track_caller]
fn apart(begun: u64, mut starts: Vec<u64>, interval: u64) -> bool {
    starts.sort_unstable();
    let (whole, least) = (
        starts[starts.len() - 1] - begun,
        (starts.len() as u64 - 1) * interval,
    );
    assert!(whole + MS >= least, "{whole} ns, not {least}: {starts:?}");
    let gaps: Vec<u64> = starts.windows(2).map(|two| two[1] - two[0]).collect();
    let short = gaps.iter().filter(|gap| **gap + MS / 5 < interval).count();
    if short > 1 {
        println!("not {interval} ns apart: {gaps:?}");
    }
    short <= 1
}

/// Tries again what is only seen if nobody stands still for longer than an interval.
#[track_caller]
fn undisturbed(attempt: impl Fn() -> bool) {
    assert!((0..4).any(|_| attempt()), "it was always disturbed");
}

#[test]
fn p40_p41_p43_p44_the_example() {
    undisturbed(|| {
        let begun = now();
        let pacer = Pacer::local(Duration::from_millis(100), 8).unwrap();
        let service = Service::failing(&[("a", 2), ("C", 1)]);
        // Longer than the interval: calls overlap.
        let takes = Duration::from_millis(250);
        let jobs: [&[_]; 2] = [&["a", "b", "c"], &["A", "B", "C"]];
        let both = collect(&pacer, &CancelToken::new(), &service, jobs, takes);
        let done = |jobs: &[&str]| {
            jobs.iter()
                .map(|job| format!("{job} done"))
                .collect::<Vec<_>>()
        };
        assert_eq!(both, Ok((done(jobs[0]), done(jobs[1]))));
        let seen = service.seen.into_inner().unwrap();
        assert_eq!(
            (seen.attempts["a"], seen.attempts["b"], seen.attempts["C"]),
            (3, 1, 2)
        );
        assert_eq!(seen.starts.len(), 9);
        let stats = pacer.stats();
        assert_eq!((stats.rejected, stats.waiting), (0, 0));
        assert!(seen.most.iter().all(|most| *most <= 2), "{:?}", seen.most);
        // In flight at once.
        apart(begun, seen.starts, 100 * MS) && seen.most == [2, 2]
    });
}

#[test]
fn p42_what_is_retried() {
    let takes = Duration::from_millis(1);
    // A passing failure that does not pass: three attempts.
    let pacer = Pacer::local(Duration::from_millis(10), 8).unwrap();
    let service = Service::failing(&[("a", 9)]);
    let failed = collect(&pacer, &CancelToken::new(), &service, [&["a"], &[]], takes);
    assert_eq!(failed, Err(Failure::Job(Trouble::Passing)));
    assert_eq!(service.seen.into_inner().unwrap().attempts["a"], 3);
    // A lasting one: a single one.
    let service = Service::default();
    let failed = collect(
        &pacer,
        &CancelToken::new(),
        &service,
        [&["broken"], &[]],
        takes,
    );
    assert_eq!(failed, Err(Failure::Job(Trouble::Lasting)));
    assert_eq!(service.seen.into_inner().unwrap().attempts["broken"], 1);
    // A full queue: it never came to the service, and was asked for once.
    let pacer = Pacer::local(Duration::from_secs(60), 0).unwrap();
    let service = Service::default();
    let failed = collect(
        &pacer,
        &CancelToken::new(),
        &service,
        [&["a"], &["A"]],
        takes,
    );
    assert_eq!(failed, Err(Failure::Call(CallError::QueueFull(QueueFull))));
    let stats = pacer.stats();
    assert_eq!((stats.started, stats.rejected), (1, 1));
}

#[test]
fn both_executions_are_cancelled_with_the_reason() {
    let pacer = Pacer::local(Duration::from_secs(60), 8).unwrap();
    let token = CancelToken::new();
    let reason: Reason = "the user left".into();
    let service = Service::default();
    let cancels = {
        let (token, reason, pacer) = (token.clone(), reason.clone(), pacer.clone());
        std::thread::spawn(move || {
            support::until(support::LONG, "three wait", || pacer.stats().waiting == 3);
            token.cancel(reason)
        })
    };
    let takes = Duration::from_secs(60);
    let ended = collect(&pacer, &token, &service, [&["a", "b"], &["A", "B"]], takes);
    assert!(cancels.join().unwrap());
    match ended {
        Err(Failure::Call(CallError::Cancelled(why))) => assert!(std::ptr::eq(&*why, &*reason)),
        other => panic!("{other:?}"),
    }
    assert_eq!((pacer.stats().waiting, token.listeners()), (0, 0));
}

/// A child: both executions over the segment; says when each call started.
fn both(args: &Args) {
    let pacer = Segment::open(&args.location()).unwrap().pacer().unwrap();
    let service = Service::failing(&[("a", 1)]);
    let takes = Duration::from_millis(150);
    say("ready");
    support::hear();
    let both = collect(
        &pacer,
        &CancelToken::new(),
        &service,
        [&["a", "b"], &["A", "B"]],
        takes,
    );
    let lists = both.expect("all of it is done");
    assert_eq!((lists.0.len(), lists.1.len()), (2, 2));
    for at in &service.seen.lock().unwrap().starts {
        say(format!("at {at}"));
    }
    support::hear();
}

#[test]
fn p41_p45_three_processes_share_it() {
    undisturbed(|| {
        let scene = Scene::new();
        let settings = Settings::new()
            .interval(Duration::from_millis(100))
            .max_waiting(24);
        let location: Location = scene.segment_of("P", &settings);
        let path = location.path().to_string_lossy().into_owned();
        let mut children: Vec<_> = (0..3).map(|_| Child::start("both", &[&path])).collect();
        children
            .iter_mut()
            .for_each(|child| drop(child.expect("ready")));
        let begun = now();
        children.iter_mut().for_each(|child| child.tell("go"));
        let mut starts = Vec::new();
        for child in &mut children {
            for _ in 0..5 {
                starts.push(child.expect("at").parse().unwrap());
            }
        }
        apart(begun, starts, 100 * MS)
    });
}
