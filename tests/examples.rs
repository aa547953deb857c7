//! The examples as a user starts them: whole programs, each of which ends by itself, says what the promise is about, and
//! leaves nothing behind. `cargo test` has built them.

#[path = "support/mod.rs"]
mod support;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use support::{LONG, Scene};

/// The example's own build, beside this test's.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("target/profile");
    let program = profile.join("examples").join(name);
    assert!(
        program.is_file(),
        "'cargo build --examples' makes {program:?}"
    );
    program
}

/// Runs an example with names of its own: what it printed.
#[track_caller]
fn run(scene: &Scene, name: &str, args: &[&str]) -> String {
    let mut process = Command::new(program(name))
        .args(args)
        .env("SHMSCHED_DIR", scene.path(""))
        .env_remove("SHMSCHED_SEGMENT")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdout = process.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut said = String::new();
        stdout.read_to_string(&mut said).map(|_| said)
    });
    let begun = Instant::now();
    let status = loop {
        match process.try_wait().expect("waiting works") {
            Some(status) => break status,
            None if begun.elapsed() > LONG => {
                let _ = process.kill();
                break process.wait().expect("reaped");
            }
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    let said = reader.join().expect("it reads").expect("text");
    assert!(
        status.success(),
        "{name} ended by {status} after {:?}:\n{said}",
        begun.elapsed()
    );
    println!("{name}, {:.1?}:\n{said}", begun.elapsed());
    said
}

#[track_caller]
fn leaves_nothing(scene: &Scene) {
    let left = std::fs::read_dir(scene.path("")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The words of the first line that begins with `start`.
#[track_caller]
fn line<'a>(said: &'a str, start: &str) -> Vec<&'a str> {
    let found = said.lines().find(|line| line.starts_with(start));
    let found = found.unwrap_or_else(|| panic!("no line {start:?} in\n{said}"));
    found.split_whitespace().collect()
}

#[track_caller]
fn number(word: &str) -> f64 {
    word.parse()
        .unwrap_or_else(|_| panic!("{word:?} is no number"))
}

/// What an example measures, a pause of the machine may spoil: three tries at most, of which one must be as it should be.
/// What goes wrong else fails at once.
#[track_caller]
fn measured(mut example: impl FnMut() -> (bool, String)) {
    let mut said = Vec::new();
    for _ in 0..3 {
        let (fits, text) = example();
        if fits {
            return;
        }
        said.push(text);
    }
    panic!("not once of three times:\n{}", said.join("\n"));
}

#[test]
fn file_server() {
    measured(file_server_once);
}

fn file_server_once() -> (bool, String) {
    let scene = Scene::new();
    let said = run(&scene, "file_server", &[]);
    leaves_nothing(&scene);
    // The log of both servers. Both slots were used at some time.
    assert_eq!(line(&said, "at most")[2], "2");
    let requests = |priority| number(line(&said, priority)[1]);
    let median = |priority| number(line(&said, priority)[2]);
    // All that were answered are in the log.
    let answered = number(line(&said, "2 servers")[8]);
    assert_eq!(requests("high") + requests("low"), answered);
    // Six times as many clients that can wait stand in line; on a machine at rest it is 2 ms to 80.
    (median("high") < median("low") / 2.0, said)
}

#[test]
fn uploads() {
    measured(uploads_once);
}

fn uploads_once() -> (bool, String) {
    let scene = Scene::new();
    let said = run(&scene, "uploads", &[]);
    leaves_nothing(&scene);
    let rate = number(line(&said, "3 uploads")[3]);
    let [mb, seconds] = [1, 4].map(|at| number(line(&said, "together")[at]));
    assert_eq!(mb, 9.0);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 5, "{said}");
    // Timed from before the bucket was emptied; the seconds are rounded.
    assert!(mb <= rate * seconds * 1.01, "{said}");
    // The one in a hurry did not share. It had a third to send.
    let high = number(line(&said, "high")[4]);
    let first = high < seconds * 0.7 && lines[1].starts_with("high");
    (first, said)
}

#[test]
fn shared_retries() {
    let scene = Scene::new();
    let said = run(&scene, "shared_retries", &[]);
    // Eight jobs, of whose calls each third failed: in milliseconds since the beginning.
    let starts: Vec<f64> = said
        .lines()
        .filter(|line| line.contains(" ms: job "))
        .map(|line| number(line.split_whitespace().next().unwrap()))
        .collect();
    assert!(starts.len() > 8, "{said}");
    // 100 ms apart, and the first after the beginning. When it was is not said: a busy machine may print it late.
    let last = starts[starts.len() - 1];
    assert!(last >= 100.0 * (starts.len() - 1) as f64, "{said}");
    assert!(
        said.contains("Ok(([1, 4, 9, 16], [25, 36, 49, 64]))"),
        "{said}"
    );
}

#[test]
fn backoff() {
    measured(backoff_once);
}

fn backoff_once() -> (bool, String) {
    let said = run(&Scene::new(), "backoff", &[]);
    let rows: Vec<Vec<&str>> = said
        .lines()
        .skip(1)
        .map(|row| row.split_whitespace().collect())
        .collect();
    // Second, offered, taken, turned away, queued, some, full, shed, paused.
    let first = rows
        .iter()
        .position(|row| row[7] == "yes")
        .expect("it sheds");
    assert!(rows[..first].iter().all(|row| row[3] == "0"), "{said}");
    let last = rows.last().unwrap();
    assert_eq!((last[4], last[7]), ("0", "-"), "{said}");
    // After 7 s or so; and what is not of low priority is a fourth.
    let in_time = (5..10).contains(&first);
    let sheds = |row: &Vec<&str>| number(row[3]) >= 50.0;
    let fits = in_time && rows[first + 1..10].iter().all(sheds);
    (fits, said)
}

#[test]
fn share() {
    let scene = Scene::new();
    let said = run(&scene, "share", &["Cargo.toml", "README.md"]);
    assert!(said.contains("share-example: made\n2 files, "), "{said}");
    // Another process finds what that one left.
    let said = run(&scene, "share", &["README.md"]);
    assert!(
        said.contains("share-example: was there\n1 files, "),
        "{said}"
    );
}

#[cfg(feature = "tower")]
mod tower_service {
    use super::*;
    use shmsched::{Priority, Segment, Settings};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpStream;
    use std::process::Child;

    #[test]
    fn alone() {
        measured(alone_once);
    }

    fn alone_once() -> (bool, String) {
        let said = run(&Scene::new(), "tower_service", &[]);
        assert!(said.contains("at most 2 at work"), "{said}");
        let row = |priority| {
            let words = line(&said, priority);
            (number(words[1]), number(words[2]))
        };
        let (high, low) = (row("high"), row("low"));
        assert_eq!((high.0 + high.1, low.0 + low.1), (15.0, 45.0), "{said}");
        // 20 at once and 20 in the second for which they wait.
        let paced = high.0 + low.0 <= 42.0;
        (paced && high.0 / 15.0 > low.0 / 45.0, said)
    }

    struct Server(Child, String);

    impl Server {
        fn start(scene: &Scene, segment: &str) -> Server {
            let mut process = Command::new(program("tower_service"))
                .args(["127.0.0.1:0", segment])
                .env("SHMSCHED_DIR", scene.path(""))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut first = String::new();
            let stdout = process.stdout.take().unwrap();
            BufReader::new(stdout).read_line(&mut first).unwrap();
            let address = first.trim().rsplit(' ').next().unwrap().to_owned();
            Server(process, address)
        }

        fn ask(&self) -> String {
            let mut stream = TcpStream::connect(&self.1).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream
                .write_all(b"GET /report/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Who holds the only slot holds up both.
    #[test]
    fn two_over_one_segment() {
        let scene = Scene::new();
        let location = scene.segment_of("reports", &Settings::new().concurrency(1).rate(20));
        let scheduler = Segment::open(&location).unwrap().scheduler().unwrap();
        let servers = [(); 2].map(|()| Server::start(&scene, "reports"));
        let permit = scheduler.try_acquire(Priority::Normal).unwrap();
        std::thread::scope(|scope| {
            let asked = servers
                .each_ref()
                .map(|server| scope.spawn(|| server.ask()));
            for answer in asked {
                let answer = answer.join().unwrap();
                assert!(
                    answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("timed out waiting\n"),
                    "{answer}"
                );
            }
        });
        drop(permit);
        for server in &servers {
            let answer = server.ask();
            assert!(
                answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("all about x\n"),
                "{answer}"
            );
        }
    }
}
