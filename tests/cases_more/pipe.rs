//! `pipe`: its pace, what it costs, how it ends.

use crate::stage::{
    Job, PIDS, PROGRAM, SOON, Stage, catches, ended, shmsched, state, under, unshare, works,
};
use crate::support::{LONG, figure, median, skipped, until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const RATE: usize = 1_000_000;

/// A segment of a megabyte a second.
fn megabyte() -> Stage {
    Stage::new(&["--rate", "1MB/s"])
}

/// Bytes that differ from place to place.
fn data(count: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(byte).take(count).collect()
}

/// `pipe S` between pipes of this process.
struct Stream(Child);

impl Stream {
    fn start(stage: &Stage, options: &[&str]) -> Stream {
        let mut command = stage.command("pipe", options);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Stream(command.stderr(Stdio::piped()).spawn().expect("it starts"))
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_raw(self.0.id() as i32).expect("a pid"), signal);
    }

    /// Writes it all after a pause, then the end. Stops when nobody reads it.
    fn feed(&mut self, pause: Duration, bytes: Vec<u8>) {
        let mut stdin = self.0.stdin.take().expect("piped");
        thread::spawn(move || {
            thread::sleep(pause);
            let _ = stdin.write_all(&bytes);
        });
    }

    /// Writes for ever.
    fn flood(&mut self) {
        let mut stdin = self.0.stdin.take().expect("piped");
        thread::spawn(move || while stdin.write_all(&[b'y'; 4_096]).is_ok() {});
    }

    /// Waits until it sleeps, with so much in the pipe behind it that no more has room.
    fn is_held_up(&self) {
        let stdout = self.0.stdout.as_ref().expect("piped");
        until(LONG, "no room", || {
            let waiting = rustix::io::ioctl_fionread(stdout).expect("a pipe");
            waiting >= 60_000 && state(self.0.id()) == Some('S')
        });
    }

    /// Reads everything as fast as it comes.
    fn read(&mut self) -> JoinHandle<Arrivals> {
        let mut stdout = self.0.stdout.take().expect("piped");
        thread::spawn(move || {
            let mut arrivals = Arrivals::default();
            let mut piece = vec![0; 65_536];
            loop {
                let before = Instant::now();
                let Ok(count @ 1..) = stdout.read(&mut piece) else {
                    break;
                };
                let after = Instant::now();
                arrivals.times.push(Arrival {
                    before,
                    after,
                    count,
                });
                arrivals.bytes.extend_from_slice(&piece[..count]);
            }
            arrivals
        })
    }

    /// Its exit code, what it said, and how long it took from now.
    #[track_caller]
    fn end(&mut self) -> (i32, String, Duration) {
        let begun = Instant::now();
        let mut status = None;
        until(LONG, "an end", || {
            status = self.0.try_wait().expect("waiting works");
            status.is_some()
        });
        let took = begun.elapsed();
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().expect("piped");
        stderr.read_to_string(&mut said).expect("text");
        (
            status.map_or(-1, |status| match status.signal() {
                // As cat: it dies of the signal, which a shell shows so.
                Some(signal) => 128 + signal,
                None => status.code().expect("code or signal"),
            }),
            said,
            took,
        )
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// So many bytes came out at some time between these two: the reader may stand still on either side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    before: Instant,
    after: Instant,
    count: usize,
}

/// What came out, and when.
#[derive(Default)]
struct Arrivals {
    bytes: Vec<u8>,
    times: Vec<Arrival>,
}

impl Arrivals {
    /// The most that came for sure within so long a time.
    fn most_within(&self, time: Duration) -> usize {
        let from = |at: usize| {
            let begun = self.times[at].before;
            let within = self.times[at..]
                .iter()
                .take_while(move |arrival| arrival.after.saturating_duration_since(begun) <= time);
            within.map(|arrival| arrival.count).sum()
        };
        (0..self.times.len()).map(from).max().unwrap_or(0)
    }

    /// What came for sure after that time.
    fn since(&self, time: Instant) -> usize {
        let late = self.times.iter().filter(|arrival| arrival.before >= time);
        late.map(|arrival| arrival.count).sum()
    }

    /// The first were there by then.
    fn begun(&self) -> Instant {
        self.times.first().expect("something came").after
    }
}

/// The most that may come within a second: a full bucket, a second's rate, what the pipe held while nobody read, and a
/// chunk that was paid before.
const MOST_IN_A_SECOND: usize = 2 * RATE + 2 * 65_536;

fn tokens(stage: &Stage) -> i64 {
    stage.inspect()["limiter"]["tokens"]
        .as_i64()
        .expect("a number")
}

fn queued(stage: &Stage) -> u64 {
    let seen = stage.inspect();
    let lanes = seen["limiter"]["queued"].as_object().expect("lanes");
    lanes
        .values()
        .map(|lane| lane.as_u64().expect("a number"))
        .sum()
}

#[test]
fn case_16_reads_larger_than_the_bucket_are_paced() {
    let stage = megabyte();
    let script = "head -c 5000000 /dev/zero | \"$0\" pipe \"$1\" | wc -c";
    // One of them may be held up.
    let paced = (0..3).any(|_| {
        let mut command = Command::new("sh");
        command.args(["-c", script, PROGRAM]).arg(stage.segment());
        let ended = ended(&mut command);
        assert_eq!(ended.is(0).text().trim(), "5000000");
        figure!("5 MB at 1 MB/s took {:?}", ended.took);
        let seconds = ended.took.as_secs_f64();
        assert!(seconds >= 3.9, "{seconds} s");
        seconds < 6.0
    });
    assert!(paced, "slower than its rate each time");
}

#[test]
fn case_49_nothing_is_hoarded_while_the_source_is_quiet() {
    let stage = megabyte();
    let bytes = data(6 * RATE);
    let mut stream = Stream::start(&stage, &[]);
    let quiet = Duration::from_secs(3);
    // Nothing comes before that.
    let begun = Instant::now() + quiet;
    stream.feed(quiet, bytes.clone());
    let reading = stream.read();
    let arrivals = reading.join().expect("a reader");
    let took = begun.elapsed().as_secs_f64();
    assert_eq!(stream.end().0, 0);
    assert!(arrivals.bytes == bytes, "{} bytes", arrivals.bytes.len());
    let second = arrivals.most_within(Duration::from_secs(1));
    let three = arrivals.most_within(Duration::from_secs(3));
    figure!("6 MB in {took:.2} s; {second} bytes in one second, {three} in three");
    assert!(second <= MOST_IN_A_SECOND, "{second}");
    assert!(three <= MOST_IN_A_SECOND + 2 * RATE, "{three}");
    // How long it may take is case 16's.
    assert!(took >= 4.8, "{took} s");
}

#[test]
fn case_49_two_pipes_share() {
    let stage = megabyte();
    let begun = Instant::now();
    let mut streams = [Stream::start(&stage, &[]), Stream::start(&stage, &[])];
    let reading = streams.each_mut().map(|stream| {
        stream.flood();
        stream.read()
    });
    thread::sleep(Duration::from_secs(5));
    let told = Instant::now();
    for stream in &streams {
        stream.signal(Signal::TERM);
    }
    let arrivals = reading.map(|reading| reading.join().expect("a reader"));
    for stream in &mut streams {
        assert_eq!(stream.end().0, 143);
    }
    // All of it came in this time; both had begun, and neither was told to end, in that.
    let passed = begun.elapsed().as_secs_f64();
    let both = arrivals[0].begun().max(arrivals[1].begun());
    let beside = told.saturating_duration_since(both).as_secs_f64();
    let sum: usize = arrivals.iter().map(|arrivals| arrivals.bytes.len()).sum();
    let counts = arrivals.each_ref().map(|arrivals| arrivals.since(both));
    let times = arrivals.into_iter().flat_map(|arrivals| arrivals.times);
    let mut all = Arrivals {
        bytes: Vec::new(),
        times: times.collect(),
    };
    all.times.sort_unstable();
    let second = all.most_within(Duration::from_secs(1));
    figure!("{counts:?} in {beside:.2} s, {sum} in {passed:.2} s, {second} within one");
    assert!(second <= MOST_IN_A_SECOND, "{second}");
    // At most what the bucket had, and what was earned; at least what was earned, if they stand still for no more than the
    // second for which a full bucket makes up.
    let rate = RATE as f64;
    assert!(sum as f64 <= rate * (1.0 + passed), "{sum} in {passed} s");
    assert!(sum as f64 >= rate * beside, "{sum} in {beside} s");
    for count in counts {
        assert!(count * 100 >= (counts[0] + counts[1]) * 35, "{counts:?}");
    }
}

#[test]
fn case_49_empty_input_costs_nothing() {
    let stage = Stage::new(&["--rate", "1000"]);
    let mut stream = Stream::start(&stage, &[]);
    stream.feed(Duration::ZERO, Vec::new());
    assert_eq!(stream.read().join().expect("a reader").bytes, b"");
    let (code, said, _) = stream.end();
    assert_eq!((code, said.as_str(), tokens(&stage)), (0, "", 1_000));
}

#[test]
fn case_49_a_reader_that_goes_ends_it() {
    // Waiting for tokens; and at full speed.
    for rate in ["20", "1GB/s"] {
        let stage = Stage::new(&["--rate", rate]);
        let gone_soon = || {
            let mut stream = Stream::start(&stage, &[]);
            stream.flood();
            let mut stdout = stream.0.stdout.take().expect("piped");
            stdout.read_exact(&mut [0; 10]).expect("ten bytes");
            thread::sleep(Duration::from_millis(1_500));
            drop(stdout);
            let (code, said, took) = stream.end();
            assert_eq!((code, said.as_str()), (141, ""), "as SIGPIPE");
            figure!("gone after {took:?} at {rate}");
            assert_eq!(queued(&stage), 0);
            // Tight: 200 ms.
            took < Duration::from_millis(600)
        };
        assert!((0..3).any(|_| gone_soon()), "late each time at {rate}");
    }
}

#[test]
fn case_49_a_slow_reader_costs_neither_memory_nor_tokens() {
    let stage = Stage::new(&["--rate", "20MB/s"]);
    let mut stream = Stream::start(&stage, &[]);
    let bytes = data(10_000_000);
    stream.feed(Duration::ZERO, bytes.clone());
    let resident = |stream: &Stream| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", stream.0.id()));
        let status = status.expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kilobytes
            .and_then(|text| text.parse::<u64>().ok())
            .expect("a size")
    };
    stream.is_held_up();
    thread::sleep(Duration::from_millis(700));
    let before = resident(&stream);
    thread::sleep(Duration::from_millis(1_300));
    // What has gone into the pipe is paid and earned again; nothing else is taken.
    assert_eq!(tokens(&stage), 20_000_000);
    let reading = stream.read();
    assert!(reading.join().expect("a reader").bytes == bytes);
    let (code, said, _) = stream.end();
    assert_eq!((code, said.as_str()), (0, ""));
    figure!("{before} kB resident");
    assert!(before < 20_000, "{before} kB");
}

#[test]
fn case_49_errors_are_one_line_and_74() {
    let stage = Stage::new(&["--rate", "1000"]);
    let said = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, PROGRAM]).arg(stage.segment());
        command.current_dir(stage.scene.path(""));
        ended(&mut command)
    };
    for (script, words) in [
        (
            "echo text | \"$0\" pipe \"$1\" > /dev/full",
            "No space left",
        ),
        ("\"$0\" pipe \"$1\" < \"$0\" > /dev/full", "No space left"),
        ("\"$0\" pipe \"$1\" <&-", "Bad file descriptor"),
        ("\"$0\" pipe \"$1\" < /", "Is a directory"),
        ("echo a > f; \"$0\" pipe \"$1\" < f >> f", "output file"),
    ] {
        let ended = said(script);
        let line = ended.is(74).one_line();
        assert!(line.contains(words), "{script}: {line}");
    }
    assert_eq!(tokens(&stage), 1_000, "nothing was moved");
    for script in [
        "\"$0\" pipe \"$1\" < /dev/null",
        "echo text | \"$0\" pipe \"$1\" > f && [ \"$(cat f)\" = text ]",
        "echo text | \"$0\" pipe \"$1\" >> g && [ \"$(cat g)\" = text ]",
        "[ \"$(\"$0\" pipe \"$1\" < /proc/self/stat | wc -w)\" -gt 20 ]",
        "head -c 100 /dev/zero | \"$0\" pipe \"$1\" > /dev/null",
    ] {
        let ended = said(script);
        assert_eq!(ended.is(0).err, "", "{script}");
    }
}

#[test]
fn case_36_codes_of_pipe() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let said = |arguments: &[&str], code: i32| {
        let ended = ended(&mut shmsched(&[&["pipe"], arguments].concat()));
        ended.is(code).one_line().to_owned()
    };
    let name = stage.segment().to_string_lossy().into_owned();
    let line = said(&[&name], 64);
    assert!(
        line.contains(&name) && line.to_lowercase().contains("limiter"),
        "{line}"
    );
    said(&[&format!("{name}.none")], 66);
    said(&[&name, "-p", "urgent"], 64);
    said(&[&name, "more"], 64);
}

#[test]
fn case_47_signals_end_every_wait() {
    let stage = Stage::new(&["--rate", "1"]);
    // Whatever is in the bucket is used up; one byte a second comes from now on.
    let mut first = Stream::start(&stage, &[]);
    first.flood();
    let _reading = first.read();
    until(LONG, "in line", || queued(&stage) == 1);
    let signals = [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
    ];
    let check = |mut stream: Stream, at: usize| {
        let (signal, code) = signals[at % signals.len()];
        stream.signal(signal);
        let (ended, said, took) = stream.end();
        assert_eq!((ended, said.as_str()), (code, ""));
        took
    };
    let (mut for_tokens, mut for_input) = (Vec::new(), Vec::new());
    for at in 0..signals.len() {
        let mut waiting = Stream::start(&stage, &["-p", "lowest"]);
        waiting.flood();
        until(LONG, "in line", || queued(&stage) >= 2);
        for_tokens.push(check(waiting, at));
        let quiet = Stream::start(&stage, &[]);
        until(LONG, "asleep", || state(quiet.0.id()) == Some('S'));
        thread::sleep(Duration::from_millis(100));
        for_input.push(check(quiet, at));
    }
    for_tokens.push(check(first, 1));
    // Tight: 300 ms for each. Some of them may have stood still.
    for times in [for_tokens, for_input] {
        figure!("they went after {times:?}");
        assert!(median(&times) < Duration::from_millis(900), "{times:?}");
    }
    let limiter = &stage.inspect()["limiter"];
    assert_eq!((queued(&stage), &limiter["lost"]), (0, &0.into()));
}

#[test]
fn case_25_as_pid_1_it_ends_when_told() {
    let Some(wrapper) = unshare(&PIDS) else {
        skipped!("no pid namespaces here");
    };
    let stage = Stage::new(&["--rate", "1"]);
    // One of them may stand still on its way out.
    for _ in 0..3 {
        let mut job = Job::start(&mut under(&wrapper, &stage.command::<&str>("pipe", &[])));
        until(LONG, "attached", || {
            stage.inspect()["segment"]["members"]["used"] == 1
        });
        let children = format!("/proc/{0}/task/{0}/children", job.pid());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let Some(pid) = children.trim().parse().ok().and_then(Pid::from_raw) else {
            skipped!("the kernel does not name the children");
        };
        catches(pid.as_raw_pid() as u32, Signal::TERM);
        let sent = Instant::now();
        let _ = kill_process(pid, Signal::TERM);
        job.wait(LONG).is(143);
        let took = sent.elapsed();
        figure!("gone after {took:?}");
        if took < Duration::from_secs(1) {
            return;
        }
    }
    panic!("it took longer than a second each time");
}

#[test]
fn a_stop_and_a_continuation_lose_nothing() {
    let stage = megabyte();
    let bytes = data(2 * RATE);
    let mut stream = Stream::start(&stage, &[]);
    // The end of the input comes when it goes on: until then there is somebody to stop.
    let mut stdin = stream.0.stdin.take().expect("piped");
    let (go_on, gone_on) = std::sync::mpsc::channel();
    let fed = bytes.clone();
    thread::spawn(move || {
        let (first, last) = fed.split_at(3 * RATE / 2);
        let _ = stdin.write_all(first);
        let _ = gone_on.recv();
        let _ = stdin.write_all(last);
    });
    let reading = stream.read();
    thread::sleep(Duration::from_millis(300));
    stream.signal(Signal::TSTP);
    until(LONG, "stopped", || state(stream.0.id()) == Some('T'));
    thread::sleep(Duration::from_millis(300));
    stream.signal(Signal::CONT);
    go_on.send(()).expect("it waits for it");
    assert!(reading.join().expect("a reader").bytes == bytes);
    assert_eq!(stream.end().0, 0);
}

#[test]
fn a_new_rate_counts_at_once() {
    let stage = Stage::new(&["--rate", "1"]);
    let bytes = data(100_000);
    let mut stream = Stream::start(&stage, &[]);
    stream.feed(Duration::ZERO, bytes.clone());
    let reading = stream.read();
    thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    stage.call("set", &["--rate", "1MB/s"]).is(0);
    assert!(reading.join().expect("a reader").bytes == bytes);
    assert_eq!(stream.end().0, 0);
    let took = begun.elapsed();
    figure!("done {took:?} after the change");
    // At the old rate it takes a day.
    assert!(took < SOON, "{took:?}");
}

#[test]
fn a_terminal_sees_how_it_goes() {
    if !works(&["script", "-qec", "true", "/dev/null"]) {
        skipped!("no script(1)");
    }
    let stage = megabyte();
    let name = stage.segment().to_string_lossy().into_owned();
    // Two seconds in which it shows one of these four times a second, unless it stands still.
    let shows = |text: &str| text.contains("\r1.") || text.contains("\r2.");
    for (script, code) in [
        (
            format!("head -c 3000000 /dev/zero | {PROGRAM} pipe {name} > /dev/null"),
            0,
        ),
        (
            format!(
                "{PROGRAM} pipe {name} < /dev/zero > /dev/null & echo $! > new; mv new pid; wait $!"
            ),
            143,
        ),
    ] {
        let mut command = Command::new("script");
        command.args(["-qec", &script, "/dev/null"]);
        command
            .current_dir(stage.scene.path(""))
            .env("SHELL", "/bin/sh");
        let mut job = Job::start(&mut command);
        if code == 143 {
            until(LONG, "it shows how it goes", || shows(&job.out()));
            let pid = std::fs::read_to_string(stage.scene.path("pid")).expect("its number");
            let pid = Pid::from_raw(pid.trim().parse().expect("a number"));
            kill_process(pid.expect("a pid"), Signal::TERM).expect("it runs");
        }
        job.let_go();
        let ended = job.wait(LONG);
        let text = ended.text();
        assert_eq!(ended.code(), code, "{text}");
        assert!(shows(&text) && text.contains(" for tokens"), "{text:?}");
        assert!(text.trim_end_matches(' ').ends_with("\r\n"), "{text:?}");
        assert!(!text.contains('\x1b'));
    }
}

/// How long `head | WHAT | cat` takes for so many bytes, and the processor time of WHAT, in seconds.
fn measured(what: &str, segment: &Path, bytes: u64) -> (f64, f64) {
    let script = format!("head -c {bytes} /dev/zero | {{ {what}; times >&2; }} | cat > /dev/null");
    let mut command = Command::new("bash");
    command.args(["-c", &script, PROGRAM]).arg(segment);
    let ended = ended(&mut command);
    let times = ended
        .is(0)
        .err
        .lines()
        .nth(1)
        .expect("of the children")
        .to_owned();
    let seconds = |text: &str| {
        let (minutes, seconds) = text.trim_end_matches('s').split_once('m').expect("0m0.1s");
        minutes.parse::<f64>().expect("minutes") * 60.0 + seconds.parse::<f64>().expect("seconds")
    };
    (
        ended.took.as_secs_f64(),
        times.split(' ').map(seconds).sum(),
    )
}

#[test]
#[ignore = "for scripts/stress: measures speed"]
fn stress_pipe_is_as_fast_as_cat() {
    const PIPE: &str = "\"$0\" pipe \"$1\"";
    let fast = Stage::alone(&["--rate", "2147483647"]);
    let best = |what: &str| {
        let took = (0..5).map(|_| measured(what, fast.segment(), 1_900_000_000).0);
        took.fold(f64::MAX, f64::min)
    };
    let (cat, pipe) = (best("cat"), best(PIPE));
    figure!("1.9 GB: cat {cat:.2} s, pipe {pipe:.2} s");
    assert!(cat / pipe >= 0.8);
    drop(fast);
    let steady = Stage::alone(&["--rate", "100MB/s"]);
    let busy = |what: &str| measured(what, steady.segment(), 800_000_000).1;
    let (cat, pipe) = (busy("cat"), busy(PIPE));
    figure!("0.8 GB at 100 MB/s: cat {cat:.2} s of a CPU, pipe {pipe:.2} s");
    assert!(pipe <= 1.5 * cat + 0.02);
}
