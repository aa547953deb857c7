//! Taking a slot that is free and giving it back, beside what else processes can share.

use crate::bench::{Bench, failed};
use crate::peers::{ByteLock, Flock, Page, Posix, Robust, Tokens, Undo};
use crate::report::Row;
use crate::rounds::{Side, anew, looped, pair, work};
use shmsched::{Priority, Scheduler, Settings};
use std::fs::File;
use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub const NORMAL: Priority = Priority::Normal;
pub const ROOM: u32 = 1 << 20;
pub const SECONDS: Duration = Duration::from_secs(2);
pub const SHARED: &str = "acquire+release, shared";

pub fn shared(bench: &Bench) -> Result<Scheduler, String> {
    let segment = bench.segment("slots", &Settings::new().concurrency(ROOM))?;
    segment.scheduler().map_err(failed)
}

/// As a caller has it: a permit that nobody looks into, and work that may touch any memory.
pub fn ours(scheduler: &Scheduler) -> impl Side {
    looped(|| {
        let permit = anew(scheduler).try_acquire(NORMAL).expect("room");
        work();
        drop(permit);
    })
}

/// Rows of the shared Scheduler beside something that is taken and given back.
fn against<'a, P: 'a>(
    bench: &'a Bench,
    peer: &str,
    make: impl Fn(&'a Bench) -> Result<P, String> + 'a,
    both: impl Fn(&P) + Copy + 'a,
) -> Row<'a> {
    Row::new(SHARED, peer, move || {
        let (scheduler, peer) = (shared(bench)?, make(bench)?);
        let mut ours = ours(&scheduler);
        pair(
            bench.allowed(SECONDS),
            &mut ours,
            &mut looped(|| both(&peer)),
        )
    })
}

fn page(bench: &Bench) -> Result<&'static Page, String> {
    // For the life of the process: what lies in it may be in use as long.
    let page = Page::open(&bench.directory.join("peers")).map_err(failed)?;
    Ok(Box::leak(Box::new(page)))
}

fn file(bench: &Bench) -> Result<File, String> {
    File::create(bench.directory.join("locked")).map_err(failed)
}

#[inline(always)]
fn bare_pair(page: &&Page) {
    let number = anew(page.number(0));
    number.fetch_add(1, Ordering::SeqCst);
    work();
    number.fetch_sub(1, Ordering::SeqCst);
}

macro_rules! taken {
    () => {
        |peer| {
            let peer = anew(peer);
            peer.take();
            work();
            peer.give();
        }
    };
}

pub fn rows(bench: &Bench) -> Vec<Row<'_>> {
    let undo = |bench: &Bench| {
        let undo = Undo::new().map_err(failed)?;
        bench.remember(&format!("semaphore {}", undo.id()))?;
        undo.fill().map_err(failed)?;
        Ok(undo)
    };
    vec![
        against(bench, "fetch_add + fetch_sub", page, bare_pair)
            .goal(1.2)
            .note("try_acquire and drop; the peer counts and survives nothing"),
        against(
            bench,
            "POSIX semaphore (pshared)",
            |b| Posix::new(page(b)?).map_err(failed),
            taken!(),
        )
        .goal(1.1),
        against(bench, "SysV semop, SEM_UNDO", undo, taken!()).goal(0.02),
        against(
            bench,
            "robust mutex (pshared)",
            |b| Robust::new(page(b)?).map_err(failed),
            taken!(),
        )
        .note("one slot only"),
        against(bench, "flock(2)", |b| Ok(Flock(file(b)?)), taken!())
            .goal(0.03)
            .note("one slot only"),
        against(bench, "OFD byte lock", |b| Ok(ByteLock(file(b)?)), taken!()).note("one slot only"),
        against(
            bench,
            "make jobserver pipe",
            |_| Tokens::new().map_err(failed),
            taken!(),
        )
        .goal(0.03),
        Row::new(
            "blocking_acquire+drop, shared",
            "fetch_add + fetch_sub",
            move || {
                let (scheduler, page) = (shared(bench)?, page(bench)?);
                let mut ours = looped(|| {
                    let permit = anew(&scheduler).blocking_acquire(NORMAL).expect("room");
                    work();
                    drop(permit);
                });
                pair(
                    bench.allowed(SECONDS),
                    &mut ours,
                    &mut looped(|| bare_pair(&page)),
                )
            },
        ),
        Row::new(
            "acquire+release, shared, amid stores",
            "fetch_add + fetch_sub",
            move || {
                let (scheduler, page) = (shared(bench)?, page(bench)?);
                let mut ours = looped(|| {
                    let permit = anew(&scheduler).try_acquire(NORMAL).expect("room");
                    black_box(0u64);
                    drop(permit);
                    black_box(0u64);
                });
                let mut bare = looped(|| {
                    let number = anew(page.number(0));
                    number.fetch_add(1, Ordering::SeqCst);
                    black_box(0u64);
                    number.fetch_sub(1, Ordering::SeqCst);
                    black_box(0u64);
                });
                pair(bench.allowed(SECONDS), &mut ours, &mut bare)
            },
        )
        .note("on both sides a word is stored before each of the two: a locked instruction waits for stores, those of the caller too"),
    ]
}
