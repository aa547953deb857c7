//! Two executions that call one service, with retries, over one Pacer: no two calls start within 100 ms of each other,
//! whoever makes them and however often.
//!
//! ```text
//! cargo run --example shared_retries                # two executions in this process
//! cargo run --example shared_retries -- uplink &    # the same, over the segment `uplink`:
//! cargo run --example shared_retries -- uplink &    # all executions of three processes
//! cargo run --example shared_retries -- uplink
//! ```
//!
//! A segment is left behind; look at it with `shmsched inspect uplink`, and remove it with `shmsched rm uplink`.

use backon::{ConstantBuilder, Retryable};
use futures_util::{StreamExt, TryStreamExt, stream};
use shmsched::{CallError, CancelToken, Location, OpenOptions, Pacer, Segment, Settings};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Why the executions end early.
pub type Reason = Arc<str>;

/// What an attempt, and at last a job, comes to.
#[derive(Debug, PartialEq)]
pub enum Failure<E> {
    /// It did not start: cancelled, or too many wait.
    Call(CallError<Reason>),
    /// The service said so.
    Job(E),
}

/// Both executions, awaited together; the first failure ends both. Each has two jobs at work at most, and each job two
/// retries, which wait at the end of the queue like any other call.
pub async fn collect_with_shared_retries<T, U, E, F: Future<Output = Result<U, E>>>(
    pacer: &Pacer,
    token: &CancelToken<Reason>,
    first: Vec<T>,
    second: Vec<T>,
    process_job: impl Fn(&T, CancelToken<Reason>) -> F,
    is_transient: impl Fn(&E) -> bool,
) -> Result<(Vec<U>, Vec<U>), Failure<E>> {
    let (process_job, is_transient) = (&process_job, &is_transient);
    let attempt = async |job: &T| {
        // It begins its I/O at once, and is handed the token to stop it by.
        let call = pacer.run_cancellable(token, |token| process_job(job, token));
        call.await.map_err(Failure::Call)?.map_err(Failure::Job)
    };
    let process = async |job: T| {
        let retries = ConstantBuilder::new()
            .with_delay(Duration::ZERO)
            .with_max_times(2);
        let transient = |failure: &Failure<E>| match failure {
            // A full queue is no passing trouble of the service: more attempts would only keep it full.
            Failure::Call(_) => false,
            Failure::Job(error) => is_transient(error),
        };
        (|| attempt(&job)).retry(retries).when(transient).await
    };
    let execute = |jobs: Vec<T>| stream::iter(jobs).map(&process).buffered(2).try_collect();
    tokio::try_join!(execute(first), execute(second))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pacer = match std::env::args_os().nth(1) {
        None => Pacer::local(Duration::from_millis(100), 8)?,
        Some(name) => {
            // Places for the executions of six processes.
            let settings = Settings::new()
                .interval(Duration::from_millis(100))
                .max_waiting(24);
            let location = Location::resolve(Some(&name))?;
            let options = OpenOptions::new().command("shared_retries");
            Segment::create_or_open(&location, &settings, &options)?
                .0
                .pacer()?
        }
    };
    let begun = Instant::now();
    let calls = AtomicU32::new(0);
    // Every third call fails for a moment, and every call takes longer than the interval.
    let service = |job: &u32, _token| {
        let (job, call) = (*job, calls.fetch_add(1, Ordering::Relaxed));
        println!("{:4} ms: job {job}", begun.elapsed().as_millis());
        async move {
            tokio::time::sleep(Duration::from_millis(130)).await;
            match call % 3 {
                2 => Err("try again"),
                _ => Ok(job * job),
            }
        }
    };
    let token = CancelToken::new();
    let (first, second) = ((1..=4).collect(), (5..=8).collect());
    let squares =
        collect_with_shared_retries(&pacer, &token, first, second, service, |_| true).await;
    println!("{squares:?}; {:?}", pacer.stats());
    Ok(())
}
