//! In one process, beside what is for one process: semaphores of tokio's, a limiter, the JavaScript scheduler.

use crate::bench::{Bench, failed};
use crate::children::{Child, has};
use crate::report::{Measured, Row};
use crate::rounds::{Side, anew, counted, looped, once, pair, work};
use crate::slots::{NORMAL, ROOM, SECONDS, SHARED, ours, shared};
use futures_executor::block_on;
use shmsched::{Concurrency, Limiter, Scheduler, Settings};
use std::future::ready;
use std::num::NonZeroU32;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

fn local(most: u32) -> Result<Scheduler, String> {
    Scheduler::local(Concurrency::max(most)).map_err(failed)
}

/// The operations of the JavaScript scheduler in a warm process of Node's.
fn node(row: &str, warm: u64) -> Result<impl Side, String> {
    if !has("node") {
        return Err("there is no node".into());
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/compare/peers.mjs");
    let mut command = Command::new("node");
    command.args([path, row, &warm.to_string()]);
    let mut child = Child::of(command.stdout(Stdio::piped()))?;
    child.expect("ready")?;
    Ok(move |calls: u64| {
        child.tell(&calls.to_string())?;
        child.hear()?.parse::<f64>().map_err(failed)
    })
}

fn warm(bench: &Bench, full: u64) -> u64 {
    bench.size.pick(full, full, 1_000)
}

fn tokio_semaphore() -> Arc<tokio::sync::Semaphore> {
    Arc::new(tokio::sync::Semaphore::new(ROOM as usize))
}

/// Calls of futures that are ready, all in one `block_on`.
macro_rules! awaited {
    ($one:expr) => {
        once(|calls| {
            Ok(block_on(async {
                let begun = Instant::now();
                for _ in 0..calls {
                    $one
                }
                begun.elapsed().as_nanos() as f64
            }))
        })
    };
}

pub fn rows(bench: &Bench) -> Vec<Row<'_>> {
    let mut rows = permits(bench);
    rows.extend(queued(bench));
    rows
}

fn permits(bench: &Bench) -> Vec<Row<'_>> {
    vec![
        Row::new(SHARED, "Node, SharedArrayBuffer", move || {
            let scheduler = shared(bench)?;
            let mut node = node("shared", warm(bench, 2_000_000))?;
            pair(bench.allowed(SECONDS), &mut ours(&scheduler), &mut node)
        })
        .goal(0.55),
        Row::new("try_acquire+drop, local", "tokio try_acquire", move || {
            let (scheduler, tokio) = (local(ROOM)?, tokio_semaphore());
            let mut theirs = looped(|| {
                let permit = anew(&*tokio).try_acquire().expect("room");
                work();
                drop(permit);
            });
            pair(bench.allowed(SECONDS), &mut ours(&scheduler), &mut theirs)
        })
        .goal(0.6),
        Row::new(
            "acquire.await+drop, local",
            "tokio acquire().await",
            move || {
                let (scheduler, tokio) = (local(ROOM)?, tokio_semaphore());
                let mut ours = awaited!({
                    let permit = anew(&scheduler).acquire(NORMAL).await.expect("room");
                    work();
                    drop(permit);
                });
                let mut theirs = awaited!({
                    let permit = anew(&*tokio).acquire().await.expect("room");
                    work();
                    drop(permit);
                });
                pair(bench.allowed(SECONDS), &mut ours, &mut theirs)
            },
        )
        .goal(0.8),
        Row::new(
            "try_acquire_owned+drop, local",
            "tokio try_acquire_owned",
            move || {
                let (scheduler, tokio) = (local(ROOM)?, tokio_semaphore());
                let mut ours = looped(|| {
                    let permit = anew(&scheduler).try_acquire_owned(NORMAL).expect("room");
                    work();
                    drop(permit);
                });
                let mut theirs = looped(|| {
                    let permit = anew(&tokio).clone().try_acquire_owned().expect("room");
                    work();
                    drop(permit);
                });
                pair(bench.allowed(SECONDS), &mut ours, &mut theirs)
            },
        ),
        Row::new(
            "acquire_owned.await+drop, local",
            "tokio acquire_owned().await",
            move || {
                let (scheduler, tokio) = (local(ROOM)?, tokio_semaphore());
                let mut ours = awaited!({
                    let permit = anew(&scheduler).acquire_owned(NORMAL).await.expect("room");
                    work();
                    drop(permit);
                });
                let mut theirs = awaited!({
                    let permit = anew(&tokio).clone().acquire_owned().await.expect("room");
                    work();
                    drop(permit);
                });
                pair(bench.allowed(SECONDS), &mut ours, &mut theirs)
            },
        ),
        Row::new("try_acquire+drop, local", "Node, one thread", move || {
            let scheduler = local(ROOM)?;
            let mut node = node("local", warm(bench, 2_000_000))?;
            pair(bench.allowed(SECONDS), &mut ours(&scheduler), &mut node)
        })
        .note("the peer has no atomics at all"),
        Row::new(
            "acquire_with+release, unlimited",
            "Node, one thread",
            move || {
                let scheduler = Scheduler::local(Concurrency::unlimited()).map_err(failed)?;
                let mut ours = looped(|| {
                    let scheduler = anew(&scheduler);
                    scheduler.acquire_with(|()| work(), NORMAL, ());
                    scheduler.release().expect("it is held");
                });
                let mut node = node("unlimited", warm(bench, 2_000_000))?;
                pair(bench.allowed(SECONDS), &mut ours, &mut node)
            },
        )
        .note("a callback; the peer has no atomics at all"),
    ]
}

/// A batch of callbacks behind one slot: queued, then each releases to the next.
fn drain(scheduler: &'static Scheduler) -> impl Side {
    once(move |calls| {
        let begun = Instant::now();
        scheduler.acquire_with(|()| {}, NORMAL, ());
        for _ in 0..calls {
            let step = |scheduler: &'static Scheduler| scheduler.release().expect("it is held");
            scheduler.acquire_with(step, NORMAL, scheduler);
        }
        scheduler.release().expect("it is held");
        Ok(begun.elapsed().as_nanos() as f64)
    })
}

fn batch(bench: &Bench, peer: &str, size: u64, warmth: u64) -> Result<Measured, String> {
    let scheduler = Box::leak(Box::new(local(1)?));
    let mut ours = drain(scheduler);
    let mut node = node(peer, warm(bench, warmth))?;
    counted(bench.allowed(SECONDS), (size, size), &mut ours, &mut node)
}

fn queued(bench: &Bench) -> Vec<Row<'_>> {
    let many = bench.size.pick(1_000_000, 200_000, 1_000);
    vec![
        Row::new("queue drain, large batch", "Node, plain", move || {
            batch(bench, "plain_drain", many, 4 * many)
        })
        .goal(2.0)
        .note(format!("{many} callbacks queued behind one slot and run in their turn, the time of each; the peer has one thread and no lock, and puts a function and its value one after the other into a ring for each priority")),
        Row::new("queue drain, large batch", "Node, tuned", move || {
            batch(bench, "drain", many, 4 * many)
        })
        .note("as above; the peer has a ring of pairs and a bit for each priority at which anybody waits"),
        Row::new("queue drain, batch of 1,000", "Node, tuned", move || {
            batch(bench, "drain", 1_000, 40_000)
        })
        .note("as above, of 1,000 that stay within the caches"),
        Row::new("run of a ready future", "Node, run", move || {
            let scheduler = local(64)?;
            let mut ours = awaited!({
                let ran = anew(&scheduler).run(|| ready(()), NORMAL).await;
                ran.expect("room");
                work();
            });
            let mut node = node("run", warm(bench, 1_000_000))?;
            pair(bench.allowed(SECONDS), &mut ours, &mut node)
        })
        .goal(0.5),
        tokens(bench, "try_consume(1), shared", move || {
            let rate = Settings::new().rate(i32::MAX as u32);
            bench.segment("tokens", &rate)?.limiter().map_err(failed)
        })
        .goal(1.2),
        tokens(bench, "try_consume(1), local", || {
            Limiter::local(i32::MAX as u32).map_err(failed)
        }),
    ]
}

fn tokens<'a>(
    bench: &'a Bench,
    name: &str,
    make: impl Fn() -> Result<Limiter, String> + 'a,
) -> Row<'a> {
    Row::new(name, "governor check", move || {
        let limiter = make()?;
        let quota = governor::Quota::per_second(NonZeroU32::MAX);
        let governor = governor::RateLimiter::direct(quota);
        let mut ours = looped(|| {
            anew(&limiter).try_consume(1).expect("tokens");
            work();
        });
        let mut theirs = looped(|| {
            anew(&governor).check().expect("cells");
            work();
        });
        pair(bench.allowed(SECONDS), &mut ours, &mut theirs)
    })
    .note("tokens at hand; the peer is for one process")
}
