//! An axum service under tower layers of this crate: so many reports at once, so many a second, a request's `x-priority`
//! header says which goes first, and who would wait too long is turned away.
//!
//! ```text
//! cargo run --example tower_service --features tower           # sixty requests to itself
//!
//! shmsched create reports --concurrency 2 --rate 20/s
//! cargo run --example tower_service --features tower -- 127.0.0.1:8080 reports
//! cargo run --example tower_service --features tower -- 127.0.0.1:8081 reports   # in another terminal
//! curl -i -H 'x-priority: high' http://127.0.0.1:8080/report/sales
//! ```

use axum::error_handling::HandleErrorLayer;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{BoxError, Router};
use shmsched::tower::{ConcurrencyLayer, RateLayer};
use shmsched::{AcquireError, Limiter, Location, OpenOptions, Priority, Scheduler, Segment};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceBuilder;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => demo().await,
        [address, segment] => {
            let location = Location::resolve(Some(segment.as_ref()))?;
            let options = OpenOptions::new().command("tower_service");
            let segment = Segment::open_with(&location, &options)?;
            let app = app(segment.scheduler()?, segment.limiter()?, Arc::default());
            let listener = TcpListener::bind(address).await?;
            println!("listening on {}", listener.local_addr()?);
            Ok(axum::serve(listener, app).await?)
        }
        _ => {
            eprintln!("usage: tower_service [ADDRESS SEGMENT]");
            std::process::exit(2)
        }
    }
}

fn app(scheduler: Scheduler, limiter: Limiter, work: Arc<Work>) -> Router {
    // From the outside in. Who waits for the rate has no slot meanwhile.
    let layers = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(turned_away))
        .layer(RateLayer::new(limiter, |_: &Request| 1, priority).wait_at_most(PATIENCE))
        .layer(ConcurrencyLayer::new(scheduler, priority).wait_at_most(PATIENCE));
    Router::new()
        .route("/report/{name}", get(report))
        .with_state(work)
        .layer(layers)
}

const PATIENCE: Duration = Duration::from_secs(1);

/// What it says of itself. A server that strangers reach sets the header in the proxy before it.
fn priority(request: &Request) -> Priority {
    let header = request.headers().get("x-priority");
    let header = header.and_then(|value| value.to_str().ok()?.parse().ok());
    header.unwrap_or_default()
}

async fn turned_away(error: BoxError) -> (StatusCode, String) {
    let status = match error.downcast_ref() {
        Some(AcquireError::TimedOut) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, format!("{error}\n"))
}

/// How many reports are at work, and were at once.
#[derive(Default)]
struct Work {
    now: AtomicU32,
    most: AtomicU32,
}

async fn report(State(work): State<Arc<Work>>, Path(name): Path<String>) -> String {
    work.most
        .fetch_max(work.now.fetch_add(1, Relaxed) + 1, Relaxed);
    // A slow database.
    tokio::time::sleep(Duration::from_millis(20)).await;
    work.now.fetch_sub(1, Relaxed);
    format!("all about {name}\n")
}

/// Forty-five requests that can wait and fifteen that cannot, all at once.
async fn demo() -> Result<(), Box<dyn Error>> {
    let work = Arc::new(Work::default());
    let app = app(Scheduler::local(2)?, Limiter::local(20)?, work.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move { axum::serve(listener, app).await });

    let calls = (0..60).map(|at| {
        let address = address.clone();
        let priority = if at % 4 == 3 { "high" } else { "low" };
        tokio::spawn(async move {
            let begun = Instant::now();
            let status = status_of(&address, "/report/sales", priority).await?;
            Ok::<_, io::Error>((priority, status, begun.elapsed()))
        })
    });
    let mut answers = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        answers.push(call.await??);
    }

    let most = work.most.load(Relaxed);
    println!("60 requests at once, at 20 a second after the first 20; at most {most} at work");
    println!("priority  answered  turned away  median time");
    for asked in ["high", "low"] {
        let of = |status| move |(p, s, _): &&(&str, u16, _)| *p == asked && *s == status;
        let away = answers.iter().filter(of(503)).count();
        let mut times: Vec<_> = answers
            .iter()
            .filter(of(200))
            .map(|answer| answer.2)
            .collect();
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let (answered, median) = (times.len(), format!("{} ms", median.as_millis()));
        println!("{asked:<8}  {answered:>8}  {away:>11}  {median:>11}");
    }
    Ok(())
}

/// The status of one request, on a connection of its own.
async fn status_of(address: &str, path: &str, priority: &str) -> io::Result<u16> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let request = format!("{head}X-Priority: {priority}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.ok_or(io::Error::other("no answer"))
}
