//! File servers that share one budget for their thread pools, though each is a process of its own: at most two files are
//! read and compressed at once, over all servers, and a request's `x-priority` header says which goes first.
//!
//! ```text
//! cargo run --example file_server         # two servers and a load on them, for two seconds
//!
//! shmsched create files --concurrency 2
//! cargo run --example file_server -- serve files 127.0.0.1:8080 docs
//! cargo run --example file_server -- serve files 127.0.0.1:8081 docs    # in another terminal
//! curl --compressed -H 'x-priority: high' http://127.0.0.1:8081/design.md
//! ```
//!
//! A server ends with its standard input (Ctrl-D). It prints a line for each file: when it was asked for, when the work
//! on it began and ended, in microseconds of the monotonic clock, which all processes of a machine share. So the log says
//! how many worked at once, and asks no counter of ours. `scripts/serve` puts a real load generator on two servers.
//!
//! The header is as good as who sends it: a server that strangers reach sets it in the proxy before it.

use flate2::{Compression, write::GzEncoder};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_ENCODING;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use shmsched::{AcquireError, Location, OpenOptions, Priority, Scheduler, Segment, Settings};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longer than anybody waits for a file.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => demo().await,
        ["serve", segment, address, root] => {
            let location = Location::resolve(Some(segment.as_ref()))?;
            let options = OpenOptions::new().command("file_server");
            let scheduler = Segment::open_with(&location, &options)?.scheduler()?;
            let root = PathBuf::from(root);
            serve(Files { scheduler, root }, address).await
        }
        _ => {
            eprintln!("usage: file_server [serve SEGMENT ADDRESS DIRECTORY]");
            std::process::exit(2)
        }
    }
}

/// What a server serves, and under which budget.
struct Files {
    scheduler: Scheduler,
    root: PathBuf,
}

async fn serve(files: Files, address: &str) -> Result<(), Box<dyn Error>> {
    let files = Arc::new(files);
    let listener = TcpListener::bind(address).await?;
    say(format!("listening on {}", listener.local_addr()?));
    let mut stdin = tokio::io::stdin();
    let mut typed = [0; 512];
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            read = stdin.read(&mut typed) => match read {
                Ok(1..) => continue,
                _ => return Ok(()),
            },
        };
        let (stream, _) = accepted?;
        let files = files.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let files = files.clone();
                async move { Ok::<_, Infallible>(files.answer(&request).await) }
            });
            // A connection that breaks is the client's affair.
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            let _ = connection.await;
        });
    }
}

type Answer = Response<Full<Bytes>>;

impl Files {
    async fn answer(&self, request: &Request<Incoming>) -> Answer {
        let header = request.headers().get("x-priority");
        let priority = match header.map(|value| value.to_str().unwrap_or_default().parse()) {
            None => Priority::Normal,
            Some(Ok(priority)) => priority,
            Some(Err(_)) => return refusal(StatusCode::BAD_REQUEST),
        };
        let Some(path) = below(&self.root, request.uri().path()) else {
            return refusal(StatusCode::NOT_FOUND);
        };
        let asked = micros();
        let permit = self.scheduler.acquire_owned_until(1, priority, PATIENCE);
        let permit = match permit.await {
            Ok(permit) => permit,
            Err(AcquireError::TimedOut) => return refusal(StatusCode::SERVICE_UNAVAILABLE),
            Err(_) => return refusal(StatusCode::INTERNAL_SERVER_ERROR),
        };
        // The permit goes with the work, not with this future: if the client hangs up the future is dropped, but the
        // thread goes on, and so long the slot is taken.
        let work = tokio::task::spawn_blocking(move || {
            let began = micros();
            let packed = pack(&path);
            let ended = micros();
            drop(permit);
            let name = path.file_name().unwrap_or_default().display();
            say(format!("{asked} {began} {ended} {priority} {name}"));
            packed
        });
        match work.await {
            Ok(Ok(packed)) => {
                let answer = Response::builder().header(CONTENT_ENCODING, "gzip");
                answer.body(packed.into()).expect("a header that is one")
            }
            _ => refusal(StatusCode::NOT_FOUND),
        }
    }
}

fn refusal(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

/// The file that is meant, if it lies below the root: no `..` and no links out of it.
fn below(root: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path.trim_start_matches('/'));
    let plain = |part| matches!(part, Component::Normal(_));
    let file = root.join(path).canonicalize().ok()?;
    let inside = path.components().all(plain) && file.starts_with(root.canonicalize().ok()?);
    (inside && file.is_file()).then_some(file)
}

/// What the budget is for.
fn pack(path: &Path) -> io::Result<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    io::copy(&mut std::fs::File::open(path)?, &mut packer)?;
    packer.finish()
}

fn micros() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// A line of the log. Nobody need read it.
fn say(line: String) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Two servers, twelve clients that can wait and two that cannot.
async fn demo() -> Result<(), Box<dyn Error>> {
    const BUDGET: u32 = 2;
    const TIME: Duration = Duration::from_secs(2);
    let name = format!("file-server-{}", std::process::id());
    let location = Location::resolve(Some(name.as_ref()))?;
    Segment::make(&location, &Settings::new().concurrency(BUDGET))?;
    let mut servers = [Server::start(&name)?, Server::start(&name)?];

    let until = Instant::now() + TIME;
    let clients = (0..14).map(|at| {
        let address = servers[at % 2].address.clone();
        let priority = if at < 12 { "low" } else { "high" };
        tokio::spawn(async move {
            let mut answered = 0;
            while Instant::now() < until {
                answered += u32::from(get(&address, "/design.md", priority).await? == 200);
            }
            Ok::<u32, io::Error>(answered)
        })
    });
    let mut answered = 0;
    for client in clients.collect::<Vec<_>>() {
        answered += client.await??;
    }
    let mut log = Vec::new();
    for server in &mut servers {
        log.append(&mut server.end()?);
    }
    Segment::remove(&location, false)?;

    println!("2 servers with a budget of {BUDGET} answered {answered} requests in {TIME:?}");
    println!("at most {} worked at once", most_at_once(&log));
    println!("priority  requests  median wait  longest wait");
    let mut waits = BTreeMap::<&str, Vec<Duration>>::new();
    for Entry {
        times: [asked, began, _],
        priority,
    } in &log
    {
        let wait = Duration::from_micros(began - asked);
        waits.entry(priority).or_default().push(wait);
    }
    for (priority, mut waits) in waits {
        waits.sort_unstable();
        let (count, median) = (waits.len(), waits[waits.len() / 2]);
        let ms = |wait: Duration| format!("{:.1} ms", wait.as_secs_f64() * 1e3);
        let (median, longest) = (ms(median), ms(waits[count - 1]));
        println!("{priority:<8}  {count:>8}  {median:>11}  {longest:>12}");
    }
    Ok(())
}

/// A line of a server's log.
struct Entry {
    times: [u64; 3],
    priority: String,
}

fn most_at_once(log: &[Entry]) -> i32 {
    let steps = |entry: &Entry| [(entry.times[1], 1), (entry.times[2], -1)];
    let mut steps: Vec<(u64, i32)> = log.iter().flat_map(steps).collect();
    // Of one microsecond, ends first.
    steps.sort_unstable();
    let add = |inside: &mut i32, (_, step): (u64, i32)| {
        *inside += step;
        Some(*inside)
    };
    steps.into_iter().scan(0, add).max().unwrap_or(0)
}

/// A server of the demo: this program again.
struct Server {
    process: Child,
    address: String,
    log: Option<JoinHandle<Vec<Entry>>>,
}

impl Server {
    fn start(segment: &str) -> Result<Server, Box<dyn Error>> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", segment, "127.0.0.1:0", root])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let first = lines.next().ok_or("the server did not start")??;
        let address = first.rsplit(' ').next().unwrap_or_default().to_owned();
        // Read at once: a full pipe would hold the server up.
        let log = std::thread::spawn(move || lines.filter_map(|line| entry(&line.ok()?)).collect());
        Ok(Server {
            process,
            address,
            log: Some(log),
        })
    }

    /// Ends it: what it did.
    fn end(&mut self) -> io::Result<Vec<Entry>> {
        drop(self.process.stdin.take());
        self.process.wait()?;
        let log = self.log.take().map(JoinHandle::join);
        Ok(log.and_then(Result::ok).unwrap_or_default())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also when the demo fails.
        let _ = self.end();
    }
}

fn entry(line: &str) -> Option<Entry> {
    let mut words = line.split(' ');
    let mut time = || words.next()?.parse().ok();
    Some(Entry {
        times: [time()?, time()?, time()?],
        priority: words.next()?.to_owned(),
    })
}

/// The status of one request, on a connection of its own.
async fn get(address: &str, path: &str, priority: &str) -> io::Result<u16> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let request = format!("{head}X-Priority: {priority}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let status = answer.split(|byte| *byte == b' ').nth(1);
    let status = status.and_then(|status| str::from_utf8(status).ok()?.parse().ok());
    status.ok_or(io::Error::other("no answer"))
}
