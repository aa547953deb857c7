//! Counts the bytes of files, at most four at a time over all processes that run this at once.
//!
//! ```text
//! cargo run --example share -- src/*.rs &
//! cargo run --example share -- tests/*/*.rs
//! ```
//!
//! With no files it counts its own source. The segment is `$SHMSCHED_SEGMENT`, else `share-example`; look at it
//! meanwhile with `shmsched inspect share-example`, and remove it with `shmsched rm share-example`.

use shmsched::{Concurrency, Location, OpenOptions, Priority, Segment, Settings};
use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

fn main() -> Result<(), Box<dyn Error>> {
    let named = env::var_os("SHMSCHED_SEGMENT").is_some_and(|name| !name.is_empty());
    let location = Location::resolve((!named).then_some(OsStr::new("share-example")))?;

    // Four in all; work of low priority starts only while fewer than two slots are taken.
    let budget = Concurrency::max(4).target(Priority::Low, 2);
    let settings = Settings::new().concurrency(budget);
    let (segment, created) =
        Segment::create_or_open(&location, &settings, &OpenOptions::new().command("share"))?;
    println!("{location}: {}", if created { "made" } else { "was there" });

    let mut files: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        files.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/share.rs"));
    }
    let scheduler = segment.scheduler()?;
    let total = thread::scope(|scope| -> Result<u64, Box<dyn Error>> {
        let workers: Vec<_> = files
            .iter()
            .map(|file| {
                let scheduler = &scheduler;
                // Large files can wait.
                let large = fs::metadata(file).is_ok_and(|found| found.len() > 1 << 20);
                let priority = if large {
                    Priority::Low
                } else {
                    Priority::Normal
                };
                scope.spawn(move || scheduler.run_blocking(|| fs::read(file), priority))
            })
            .collect();
        let mut total = 0;
        for worker in workers {
            total += worker.join().expect("no worker panics")??.len() as u64;
        }
        Ok(total)
    })?;

    let stats = scheduler.stats();
    println!(
        "{} files, {total} bytes; {} had to wait for a slot",
        files.len(),
        stats.total.deferred
    );
    Ok(())
}
