//! A service that answers 429 to whoever comes too early, and five processes that call it over one Pacer.

#[path = "../support/mod.rs"]
mod support;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use shmsched::{Segment, Settings};
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use support::{Args, Child, Scene, figure, now, say};

/// What the service asks for.
const LIMIT: Duration = Duration::from_millis(100);
/// What we keep, longer by the jitter of what lies between.
const INTERVAL: Duration = Duration::from_millis(150);
/// More than a start is late on a machine that is only busy.
const LATE: Duration = Duration::from_millis(50);
const PROCESSES: u32 = 5;
const CALLS: u32 = 12;

#[test]
#[ignore = "the children's entry point"]
fn child() {
    support::enter(&[("client", client)]);
}

/// Calls the service, each time at a start of the Pacer.
fn client(args: &Args) {
    let pacer = Segment::open(&args.location()).unwrap().pacer().unwrap();
    let address: SocketAddr = args.text(1).parse().unwrap();
    let paced = args.text(2) == "paced";
    say("ready");
    support::hear();
    for _ in 0..CALLS {
        if paced {
            pacer.blocking_start().unwrap();
        }
        let begun = now();
        say(format!("status {} {begun}", get(address)));
    }
    support::hear();
}

/// The status of one request, on a connection of its own.
fn get(address: SocketAddr) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1);
    status.unwrap().parse().unwrap()
}

type Arrivals = Arc<Mutex<Vec<Instant>>>;

/// Serves until the test ends.
fn serve() -> (SocketAddr, Arrivals) {
    let arrivals = Arrivals::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let seen = arrivals.clone();
    thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_io().build().unwrap().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let seen = seen.clone();
                tokio::spawn(async move {
                    let answer = service_fn(|_: Request<Incoming>| {
                        let status = judge(&seen);
                        let mut response = Response::new(Full::new(Bytes::new()));
                        *response.status_mut() = status;
                        async { Ok::<_, Infallible>(response) }
                    });
                    let connection = http1::Builder::new();
                    let _ = connection
                        .serve_connection(TokioIo::new(stream), answer)
                        .await;
                });
            }
        });
    });
    (address, arrivals)
}

fn judge(arrivals: &Arrivals) -> StatusCode {
    let now = Instant::now();
    let mut arrivals = arrivals.lock().unwrap();
    let early = arrivals.last().is_some_and(|last| now - *last < LIMIT);
    arrivals.push(now);
    match early {
        true => StatusCode::TOO_MANY_REQUESTS,
        false => StatusCode::OK,
    }
}

/// What came of the calls.
struct Calls {
    /// Before the first began.
    told: Instant,
    answers: Vec<u16>,
    /// When they began, in their processes.
    starts: Vec<u64>,
    /// When they came to the service.
    arrivals: Vec<Instant>,
}

/// All calls of the clients, with or without the Pacer.
fn call(paced: bool) -> Calls {
    let (address, arrivals) = serve();
    let scene = Scene::alone();
    let location = scene.segment_of("P", &Settings::new().interval(INTERVAL).max_waiting(8));
    let path = location.path().to_string_lossy().into_owned();
    let how = if paced { "paced" } else { "at once" };
    let mut clients: Vec<_> = (0..PROCESSES)
        .map(|_| Child::start("client", &[&path, &address.to_string(), how]))
        .collect();
    clients
        .iter_mut()
        .for_each(|client| drop(client.expect("ready")));
    let told = Instant::now();
    clients.iter_mut().for_each(|client| client.tell("go"));
    let (mut answers, mut starts) = (Vec::new(), Vec::new());
    for client in &mut clients {
        for _ in 0..CALLS {
            let answer = client.expect("status");
            let (status, begun) = answer.split_once(' ').unwrap();
            answers.push(status.parse().unwrap());
            starts.push(begun.parse().unwrap());
        }
    }
    starts.sort_unstable();
    let arrivals = arrivals.lock().unwrap().clone();
    Calls {
        told,
        answers,
        starts,
        arrivals,
    }
}

#[test]
fn the_service_is_strict() {
    let answers = call(false).answers;
    let refused = answers.iter().filter(|status| **status == 429).count();
    assert!(refused > answers.len() / 2, "{answers:?}");
}

/// No more calls than the interval allows, on any machine. When each is seen to start and to arrive is up to the machine
/// too: one that stands still before it notes its time is seen too late, and the next too soon after it. So they may try
/// again.
#[test]
fn sixty_calls_of_five_processes_are_all_answered() {
    for tries_left in (0..3).rev() {
        // What sleeping as often takes on this machine at this time.
        let sleeps = PROCESSES * CALLS - 1;
        let yardstick = thread::spawn(move || {
            let begun = Instant::now();
            (0..sleeps).for_each(|_| thread::sleep(INTERVAL));
            begun.elapsed()
        });
        let calls = call(true);
        assert_eq!(calls.arrivals.len(), 60);
        let gaps: Vec<_> = calls
            .starts
            .windows(2)
            .map(|two| Duration::from_nanos(two[1] - two[0]))
            .collect();
        let short = gaps
            .iter()
            .filter(|gap| **gap + Duration::from_micros(200) < INTERVAL)
            .count();
        let whole = *calls.arrivals.last().unwrap() - calls.told;
        // Who stands still at its turn holds the others up until it is passed over: that does not happen often.
        let held = gaps.iter().map(|gap| gap.saturating_sub(INTERVAL));
        let held: Vec<_> = held.filter(|late| *late > LATE).collect();
        let stood: Duration = match held.len() {
            0..=3 => held.iter().sum(),
            _ => Duration::ZERO,
        };
        let arrivals = calls.arrivals.windows(2).map(|two| two[1] - two[0]);
        let (least, ideal) = (arrivals.min().unwrap(), INTERVAL * sleeps);
        let slept = yardstick.join().unwrap();
        let refused = calls
            .answers
            .iter()
            .filter(|status| **status != 200)
            .count();
        figure!(
            "{whole:?} for {ideal:?}, {stood:?} of standing still, {slept:?} of sleeping; {short} starts too close; arrivals {least:?} apart at least, {refused} refused"
        );
        // From before the first start until after the last.
        assert!(whole >= ideal, "{whole:?}");
        let in_time = whole <= ideal.max(slept).mul_f64(1.03) + stood;
        if short <= 1 && refused == 0 && in_time {
            return;
        }
        assert!(
            tries_left > 0,
            "{refused} of 60 were refused, and it took {whole:?}: {gaps:?}"
        );
    }
}
