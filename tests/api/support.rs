//! What the modules share: polling without a runtime, temporary segments, waiting with an end, tests in a process of
//! their own.

use shmsched::{Concurrency, Location, Priority, Scheduler, Segment, Settings};
use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, Once};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const NORMAL: Priority = Priority::Normal;

/// Longer than anything here takes; whoever waits so long has lost something.
pub const FOREVER: Duration = Duration::from_secs(15);

pub fn local(concurrency: impl Into<Concurrency>) -> Scheduler {
    Scheduler::local(concurrency).unwrap()
}

/// A segment in a temporary directory; every `member` is an attachment of its own.
pub struct Shared {
    pub directory: TempDir,
    pub location: Location,
}

impl Shared {
    pub fn new(concurrency: impl Into<Concurrency>) -> Shared {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::File(directory.path().join("segment"));
        let settings = Settings::new().concurrency(concurrency).members(16);
        Segment::make(&location, &settings).unwrap();
        Shared {
            directory,
            location,
        }
    }

    pub fn open(&self) -> Segment {
        Segment::open(&self.location).unwrap()
    }

    pub fn member(&self) -> Scheduler {
        self.open().scheduler().unwrap()
    }
}

/// Sees the assertions within callbacks, whose panics end at the panic hook.
#[derive(Clone, Default)]
pub struct Witness(Arc<Mutex<Vec<String>>>);

impl Witness {
    /// Goes on with whatever panic it sees; one that says nothing is meant.
    pub fn sees<T>(&self, callback: impl FnOnce() -> T) -> T {
        panic::catch_unwind(AssertUnwindSafe(callback)).unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|it| it.to_string()));
            self.0.lock().unwrap().extend(text);
            panic::resume_unwind(payload)
        })
    }

    #[track_caller]
    pub fn saw_nothing(&self) {
        assert_eq!(*self.0.lock().unwrap(), [""; 0]);
    }
}

/// Counts wakes and lets a thread wait for one.
#[derive(Default)]
pub struct Bell {
    wakes: Mutex<usize>,
    rung: Condvar,
}

impl Bell {
    pub fn wakes(&self) -> usize {
        *self.wakes.lock().unwrap()
    }

    /// Waits until there were more than `seen` wakes.
    pub fn wait_past(&self, seen: usize) {
        let wakes = self.wakes.lock().unwrap();
        let waited = self
            .rung
            .wait_timeout_while(wakes, FOREVER, |wakes| *wakes <= seen);
        assert!(!waited.unwrap().1.timed_out(), "no wake came");
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.wakes.lock().unwrap() += 1;
        self.rung.notify_all();
    }
}

/// A future that is polled by hand.
pub struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    pub bell: Arc<Bell>,
}

impl<'a, T> Task<'a, T> {
    pub fn new(future: impl Future<Output = T> + Send + 'a) -> Task<'a, T> {
        Task {
            future: Box::pin(future),
            bell: Arc::default(),
        }
    }

    /// Polled once and found pending.
    pub fn waiting(future: impl Future<Output = T> + Send + 'a) -> Task<'a, T> {
        let mut task = Task::new(future);
        assert!(task.poll().is_none(), "it did not have to wait");
        task
    }

    pub fn poll(&mut self) -> Option<T> {
        let waker = Waker::from(self.bell.clone());
        self.poll_with(&waker)
    }

    pub fn poll_with(&mut self, waker: &Waker) -> Option<T> {
        match self.future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Polls after each wake, and only then, until it is ready.
    pub fn finish(mut self) -> T {
        let mut seen = 0;
        loop {
            self.bell.wait_past(seen);
            seen = self.bell.wakes();
            if let Some(output) = self.poll() {
                return output;
            }
        }
    }
}

/// Whether nobody who was called since then can have been passed over: that takes 250 ms of silence, by a clock that goes
/// in steps of 10 ms. Whoever tells the order of turns by who has them asks this before he judges.
pub fn none_was_passed_over(since: Instant) -> bool {
    since.elapsed() < Duration::from_millis(200)
}

/// Waits for a condition that must come true.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + FOREVER;
    while !condition() {
        assert!(Instant::now() < end, "never came true: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Runs something that must end; if it hangs, the test fails instead of the whole run.
#[track_caller]
pub fn ends<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _ = sender.send(f());
    });
    match result.recv_timeout(FOREVER) {
        Ok(output) => output,
        Err(RecvTimeoutError::Timeout) => panic!("it hangs: {what}"),
        Err(RecvTimeoutError::Disconnected) => {
            panic::resume_unwind(thread.join().expect_err("it sends unless it panics"))
        }
    }
}

/// Panics that start with this are meant: they are counted and not printed.
pub const MEANT: &str = "meant: ";

/// The text of the library's only panic, meant too.
pub const MERGING: &str = "merging permits of different members";

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Has the panic hook remember meant panics.
pub fn watch_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| match info.payload_as_str() {
            Some(text) if text.starts_with(MEANT) || text.starts_with(MERGING) => {
                let thread = thread::current();
                let (name, at) = (thread.name().unwrap_or(""), info.location().unwrap());
                let line = format!("{text} on {name} at {}:{}", at.file(), at.line());
                SEEN.lock().unwrap().push(line);
            }
            _ => others(info),
        }));
    });
}

/// What the hook saw of a meant panic: its text, the name of its thread and its place.
pub fn panics_of(text: &str) -> Vec<String> {
    let seen = SEEN.lock().unwrap();
    seen.iter()
        .filter(|line| line.starts_with(text))
        .cloned()
        .collect()
}

const ALONE: &str = "SHMSCHED_TEST_ALONE";

/// Runs the body in a process of its own, where it may count threads, abort or hang. `name` is the test's.
pub fn alone(name: &str, body: impl FnOnce()) {
    if env::var(ALONE).is_ok_and(|meant| meant == name) {
        return body();
    }
    child(name, "");
}

/// In a child that [`child`] started, what it was told.
pub fn told(name: &str) -> Option<String> {
    let meant = env::var(ALONE).is_ok_and(|meant| meant == name);
    meant.then(|| env::var("SHMSCHED_TEST_TOLD").unwrap())
}

/// Runs one test of this binary again in a child process, which must pass and end.
pub fn child(name: &str, tell: &str) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(ALONE, name)
        .env("SHMSCHED_TEST_TOLD", tell)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Longer than a wait in there.
    let end = Instant::now() + FOREVER * 2;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    let printed =
        [output.stdout, output.stderr].map(|all| String::from_utf8_lossy(&all).into_owned());
    assert!(
        output.status.success() && printed[0].contains("1 passed"),
        "{}\n{}\n{}",
        output.status,
        printed[0],
        printed[1]
    );
}

/// A small generator, so that every run tries the same.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    pub fn priority(&mut self) -> Priority {
        Priority::ALL[self.below(7)]
    }
}
