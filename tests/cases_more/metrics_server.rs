//! `metrics --listen`: what it answers, and whom.

use crate::metrics::{ended_ok, value};
use crate::stage::{Job, Stage, ended, shmsched, under};
use crate::support::{LONG, until};
use rustix::process::Signal;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// A listening `metrics`.
pub struct Server {
    pub job: Job,
    address: SocketAddr,
}

impl Server {
    #[track_caller]
    pub fn of(stage: &Stage, more: &[&str]) -> Server {
        Server::started(stage.job("metrics", &[more, &["--listen", "0"]].concat()))
    }

    #[track_caller]
    pub fn started(mut job: Job) -> Server {
        until(LONG, "it listens", || {
            job.out().ends_with('\n') || job.poll().is_some()
        });
        let out = job.out();
        let address = out
            .strip_prefix("listening on http://")
            .and_then(|rest| rest.strip_suffix("/metrics\n"))
            .unwrap_or_else(|| panic!("{out}{}", job.err()));
        let address: SocketAddr = address.parse().expect("an address");
        assert!(address.ip().is_loopback(), "{address}");
        Server { job, address }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it accepts");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        stream
    }

    /// The whole answer to that.
    pub fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream
            .read_to_end(&mut answer)
            .expect("an answer and its end");
        String::from_utf8(answer).expect("text")
    }

    #[track_caller]
    pub fn page(&self) -> String {
        let answer = self.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, page) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(page.ends_with("# EOF\n"));
        page.to_owned()
    }

    /// A page that was asked for a whole page's life after now.
    pub fn fresh_page(&self) -> String {
        std::thread::sleep(Duration::from_millis(150));
        self.page()
    }
}

#[test]
fn what_a_server_answers() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let server = Server::of(&stage, &[]);
    let metrics = server.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(metrics.contains(
        "\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
    ));
    let older = server.ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n");
    assert!(older.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    let root = server.ask("GET / HTTP/1.0\r\n\r\n");
    assert!(root.starts_with("HTTP/1.0 200 OK\r\n") && root.contains("/metrics"));
    assert_eq!(
        root.split_once("\r\n\r\n")
            .expect("a body")
            .1
            .lines()
            .count(),
        1
    );
    for (request, code) in [
        ("GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (
            "POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
            404,
        ),
        (
            "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
            405,
        ),
        ("DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        ("rubbish\r\n\r\n", 400),
        ("GET /metrics HTTP/9.9\r\n\r\n", 400),
        ("\0\x01\x02\x03\r\n\r\n", 400),
    ] {
        let answer = server.ask(request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code} ")),
            "{request:?}: {answer}"
        );
        assert_eq!(code == 405, answer.contains("allow: GET, HEAD"), "{answer}");
    }
    // HEAD is GET without a body.
    for path in ["/", "/metrics", "/nothing"] {
        let [get, head] = ["GET", "HEAD"].map(|method| {
            let answer = server.ask(&format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            let fields = head.lines().filter(|line| !line.starts_with("date: "));
            let lengthless =
                |line: &&str| path != "/metrics" || !line.starts_with("content-length: ");
            let fields: Vec<String> = fields.filter(lengthless).map(str::to_owned).collect();
            (
                fields,
                body.is_empty(),
                head.contains("\r\ncontent-length: "),
            )
        });
        assert_eq!((get.0, true, true), (head.0, head.1, head.2), "{path}");
        assert!(!get.1);
    }
    // A path's query is nobody's concern.
    assert!(
        server
            .ask("GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
            .contains(" 200 OK")
    );
}

/// Others may have a connection for five seconds. Who does not wait for that is served sooner, also if the server stands still
/// for a second.
const BEFORE_OTHERS: Duration = Duration::from_secs(4);

/// Served at once, whatever others do.
#[track_caller]
fn good_client(server: &Server) {
    let begun = Instant::now();
    server.page();
    let took = begun.elapsed();
    assert!(took < BEFORE_OTHERS, "{took:?}");
}

#[test]
fn hostile_clients_keep_nobody_out() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let server = Server::of(&stage, &[]);
    // Half a request, and then nothing.
    let half: Vec<TcpStream> = (0..100)
        .map(|at| {
            let mut stream = server.connect();
            let part = &b"GET /metrics HTTP/1.1\r\nHost: "[..at % 28];
            stream.write_all(part).expect("sent");
            stream
        })
        .collect();
    good_client(&server);
    // A head of a megabyte: refused before all of it is read.
    let mut large = server.connect();
    let head = format!(
        "GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n",
        "a".repeat(1 << 20)
    );
    let _ = large.write_all(head.as_bytes());
    let mut answer = Vec::new();
    match large.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
        "{answer}"
    );
    good_client(&server);
    // Whole requests whose answers nobody reads, and a byte now and then.
    let deaf: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = server.connect();
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                .expect("sent");
            stream
        })
        .collect();
    good_client(&server);
    let begun = Instant::now();
    let mut slow = server.connect();
    let mut sent = 0;
    while begun.elapsed() < LONG {
        match slow.write_all(b"a") {
            Ok(()) => sent += 1,
            Err(_) => break,
        }
        if sent % 10 == 0 {
            good_client(&server);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let took = begun.elapsed();
    assert!(
        took > Duration::from_secs(4) && took < Duration::from_secs(12),
        "cut off after {took:?}"
    );
    // All of the first hundred have been let go by now.
    for mut stream in half {
        let mut rest = Vec::new();
        if let Err(error) = stream.read_to_end(&mut rest) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
    drop(deaf);
    good_client(&server);
    // It holds few descriptors, and no memory to speak of.
    let descriptors = fs::read_dir(format!("/proc/{}/fd", server.job.pid()))
        .expect("its files")
        .count();
    assert!(descriptors < 100, "{descriptors}");
}

#[test]
fn signals_end_a_server_as_they_end_others() {
    let stage = Stage::new(&["--concurrency", "1"]);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut server = Server::of(&stage, &[]);
        // Also with a client in the middle of something.
        let mut client = server.connect();
        client.write_all(b"GET /met").expect("sent");
        server.page();
        server.job.signal(signal);
        let ended = server.job.wait(BEFORE_OTHERS);
        assert_eq!(ended.is(code).err, "");
    }
    stage.quiet(1);
}

#[test]
fn addresses_that_cannot_be_listened_on() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let server = Server::of(&stage, &[]);
    let taken = server.address.to_string();
    let refused = stage.call("metrics", &["--listen", &taken]);
    let line = refused.is(74).one_line();
    assert!(
        line.contains(&taken) && line.contains("choose another port"),
        "{line}"
    );
    // Of the documentation's net: of no machine.
    let refused = stage.call("metrics", &["--listen", "192.0.2.1:0"]);
    refused.is(74).one_line();
    for wrong in ["::1", "127.0.0.1", "x", "65536", "-1"] {
        stage
            .call("metrics", &["--listen", wrong])
            .is(64)
            .one_line();
    }
    // No segment named is the default one, which is not there.
    let missing = ended(&mut shmsched(&["metrics"])).is(66).text();
    assert!(missing.contains("shmsched_up{segment=\"default\"} 0"));
    assert_eq!(server.job.err(), "");
}

/// Runs a command with so few files, as a shell's `ulimit -n` says.
fn with_files(soft: u32, hard: u32, inner: &Command) -> Command {
    let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"");
    under(&["sh", "-c", &script], inner)
}

#[test]
fn more_segments_than_files() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let names: Vec<String> = (0..60)
        .map(|n| {
            let path = stage.scene.path(&format!("n{n}"));
            let name = path.to_string_lossy().into_owned();
            ended_ok(&["create", &name, "--concurrency", "1", "--members", "16"]);
            name
        })
        .collect();
    // The limit may be raised; it may not; either way all are seen.
    for (soft, hard) in [(20, 4_096), (40, 40), (20, 20)] {
        let mut command = with_files(soft, hard, &stage.command("metrics", &names));
        let page = ended(&mut command).is(0).text();
        let ups = page.lines().filter(|line| line.starts_with("shmsched_up{"));
        assert!(
            ups.clone().count() == 61 && ups.clone().all(|line| line.ends_with("} 1")),
            "{page}"
        );
        let mut command = with_files(soft, hard, &stage.command("top", &names));
        let text = ended(&mut command).is(0).text();
        assert_eq!(text.matches("running ").count(), 61, "{text}");
    }
    // With too few for even one it says so.
    for verb in ["metrics", "top"] {
        let ended = ended(&mut with_files(4, 4, &stage.command(verb, &names[..1])));
        ended.is(74);
        let line = ended.err.lines().next().expect("a line");
        assert!(
            line.contains("Too many open files") && line.contains("ulimit -Hn"),
            "{line}"
        );
    }
}

/// Clients take files only as far as there are some left for the segments.
#[test]
fn idle_clients_leave_files_for_the_segments() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let other = stage.scene.path("other").to_string_lossy().into_owned();
    ended_ok(&["create", &other, "--rate", "5"]);
    let command = stage.command("metrics", &[&other, "--listen", "0"]);
    let server = Server::started(Job::start(&mut with_files(24, 24, &command)));
    let _idle: Vec<TcpStream> = (0..60).map(|_| server.connect()).collect();
    for _ in 0..5 {
        let page = server.fresh_page();
        for name in ["S\"", "other"] {
            assert_eq!(value(&page, &format!("shmsched_up{{{name}")), 1.0);
        }
        good_client(&server);
    }
}
