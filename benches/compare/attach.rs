//! What being a member costs: time to come and go, and memory.

use crate::bench::{Bench, failed, segment};
use crate::children::{Child, orders, say};
use crate::report::{Measured, Row};
use crate::rounds::pair;
use serde_json::json;
use shmsched::{Location, Priority, Segment, Settings};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

const MEMBERS: usize = 8;
const PAGE: f64 = 4096.0;
const SECOND: Duration = Duration::from_secs(1);

/// Attaches, uses it as its users do, and says how much memory of its own that took.
pub fn member(path: &str) -> Result<(), String> {
    let orders = orders();
    let own = || {
        number(
            &std::fs::read_to_string("/proc/self/status").unwrap_or_default(),
            "RssAnon:",
        )
    };
    let before = own();
    let segment = segment(Path::new(path), &Settings::new().concurrency(4))?;
    let scheduler = segment.scheduler().map_err(failed)?;
    for _ in 0..1_000 {
        drop(
            scheduler
                .blocking_acquire(Priority::Normal)
                .map_err(failed)?,
        );
    }
    say(own().saturating_sub(before))?;
    let _ = orders.recv();
    Ok(())
}

/// The bytes behind a word of /proc, which says them in kB.
fn number(text: &str, word: &str) -> u64 {
    let line = text
        .lines()
        .find(|line| line.starts_with(word))
        .unwrap_or_default();
    let number = line
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

/// Of a process's mapping of the segment: what it has touched, and its share of that.
fn mapped(pid: u32, path: &str) -> Result<(u64, u64), String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).map_err(failed)?;
    let (_, found) = maps
        .split_once(path)
        .ok_or_else(|| failed("no mapping of the segment"))?;
    Ok((number(found, "Rss:"), number(found, "Pss:")))
}

fn memory(bench: &Bench) -> Result<Measured, String> {
    let path = bench.directory.join("members");
    drop(bench.segment("members", &Settings::new().concurrency(4))?);
    let path = path.to_str().ok_or("a path that is no text")?;
    let start = |_| {
        let mut child = Child::start("member", &[path])?;
        let own: u64 = child.hear()?.parse().map_err(failed)?;
        Ok((child, own))
    };
    let children: Vec<(Child, u64)> = (0..MEMBERS).map(start).collect::<Result<_, String>>()?;
    let (mut touched, mut shares, mut own) = (0, 0, 0);
    for (child, of_its_own) in &children {
        let (rss, pss) = mapped(child.id(), path)?;
        touched += rss;
        shares += pss;
        own += of_its_own;
    }
    let each = |sum: u64| sum as f64 / MEMBERS as f64;
    Ok(Measured::new(each(touched), PAGE)
        .with("share_bytes", json!(each(shares)))
        .with("private_bytes", json!(each(own)))
        .with("members", json!(MEMBERS)))
}

fn attach(bench: &Bench) -> Result<Measured, String> {
    drop(bench.segment("attached", &Settings::new().concurrency(4))?);
    let location = Location::File(bench.directory.join("attached"));
    let mut ours = |calls| {
        let begun = Instant::now();
        for _ in 0..calls {
            drop(Segment::open(&location).map_err(failed)?);
        }
        Ok(begun.elapsed().as_nanos() as f64)
    };
    let mut bound = |calls: u64| Ok(calls as f64 * 100e3);
    pair(bench.allowed(SECOND), &mut ours, &mut bound)
}

fn size(bench: &Bench) -> Result<Measured, String> {
    let path = bench.directory.join("size");
    drop(bench.segment("size", &Settings::new().concurrency(4))?);
    let file = std::fs::metadata(path).map_err(failed)?;
    Ok(Measured::new(file.blocks() as f64 * 512.0, PAGE).with("length", json!(file.len())))
}

pub fn rows(bench: &Bench) -> Vec<Row<'_>> {
    let bytes = "ours_ns and peer_ns are bytes";
    vec![
        Row::new("attach+detach", "bound of 100 us", || attach(bench)).goal(1.0),
        Row::new("segment, reserved on disk or in memory", "a page", || size(bench))
            .unit("bytes")
            .note(format!("{bytes}; 1,024 members and 4,096 threads at once")),
        Row::new("segment, touched by each member", "a page", || memory(bench))
            .unit("bytes")
            .note(format!("{bytes}; of {MEMBERS} members that took and gave slots; share_bytes counts shared pages by shares, private_bytes is each one's own memory")),
    ]
}
