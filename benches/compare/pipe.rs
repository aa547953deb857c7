//! `shmsched pipe` in the middle of a pipeline, beside `cat` and `pv -L` in its place.
#![allow(unsafe_code)]

use crate::bench::{Bench, failed};
use crate::children::{ends_within, has};
use crate::report::{Measured, Row};
use crate::rounds::{Side, counted};
use shmsched::{Location, Segment, Settings};
use std::mem::MaybeUninit;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SECONDS: Duration = Duration::from_secs(8);
const HIGHEST: u32 = i32::MAX as u32;
const STEADY: u32 = 100_000_000;
const MOST: Duration = Duration::from_secs(20);

/// How one program in the middle of a pipeline did.
struct Middle {
    took: Duration,
    /// Its user and system time.
    busy: Duration,
}

/// A pipeline whose processes end with it, whatever way that is.
struct Line(Vec<Child>);

impl Drop for Line {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs it between `head -c COUNT /dev/zero` and `cat > /dev/null`.
fn middle(command: &[String], count: u64) -> Result<Middle, String> {
    let mut line = Line(Vec::new());
    let begun = Instant::now();
    let count = count.to_string();
    let all = [
        vec!["head".into(), "-c".into(), count, "/dev/zero".into()],
        command.to_vec(),
        vec!["cat".into()],
    ];
    let mut input = Stdio::null();
    for (at, arguments) in all.iter().enumerate() {
        let mut command = Command::new(&arguments[0]);
        command.args(&arguments[1..]).stdin(input);
        command.stdout(if at == 2 {
            Stdio::null()
        } else {
            Stdio::piped()
        });
        let mut child = command.spawn().map_err(failed)?;
        input = child.stdout.take().map_or(Stdio::null(), Stdio::from);
        line.0.push(child);
    }
    ends_within(&line.0[2], MOST)?;
    let took = begun.elapsed();
    let busy = ended(line.0.remove(1))?;
    Ok(Middle { took, busy })
}

/// Waits for its end: its user and system time.
fn ended(child: Child) -> Result<Duration, String> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: a child that nobody has waited for, and room for both results; zeros are an rusage.
    let usage = unsafe {
        libc::wait4(child.id() as i32, &raw mut status, 0, usage.as_mut_ptr());
        usage.assume_init()
    };
    if status != 0 {
        return Err(failed(format!(
            "a part of the pipeline ended with {status}"
        )));
    }
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

fn ours(bench: &Bench, rate: u32) -> Result<Vec<String>, String> {
    let program = bench
        .program
        .as_ref()
        .ok_or("built without the command line")?;
    let path = bench.directory.join(format!("pipe-{rate}"));
    if !path.exists() {
        let settings = Settings::new().rate(rate);
        Segment::make(&Location::File(path.clone()), &settings).map_err(failed)?;
    }
    let text = |path: &std::path::Path| path.display().to_string();
    Ok(vec![text(program), "pipe".into(), text(&path)])
}

fn pv(rate: u32) -> Result<Vec<String>, String> {
    if !has("pv") {
        return Err("there is no pv, of the package pv".into());
    }
    Ok(vec![
        "pv".into(),
        "-q".into(),
        "-L".into(),
        rate.to_string(),
    ])
}

/// Nanoseconds of one megabyte, of the clock or of a processor.
fn side(command: Vec<String>, megabytes: u64, busy: bool) -> impl Side {
    move |_| {
        let middle = middle(&command, megabytes * 1_000_000)?;
        let time = if busy { middle.busy } else { middle.took };
        Ok(time.as_nanos() as f64 / megabytes as f64)
    }
}

fn measure(
    bench: &Bench,
    ours: Vec<String>,
    peer: Vec<String>,
    megabytes: u64,
    busy: bool,
) -> Result<Measured, String> {
    let mut both = (side(ours, megabytes, busy), side(peer, megabytes, busy));
    counted(bench.allowed(SECONDS), (1, 1), &mut both.0, &mut both.1)
}

pub fn rows(bench: &Bench) -> Vec<Row<'_>> {
    let size = bench.size.pick(1_000, 500, 2);
    // More than the bucket holds, or nothing would be paced.
    let some = bench.size.pick(150, 120, 2);
    vec![
        Row::new("pipe at the highest rate, a MB", "cat", move || {
            measure(
                bench,
                ours(bench, HIGHEST)?,
                vec!["cat".into()],
                size,
                false,
            )
        })
        .note("from head through it to cat; the rate is 2147483647 bytes a second"),
        Row::new("pipe at the highest rate, a MB", "pv -L", move || {
            measure(bench, ours(bench, HIGHEST)?, pv(HIGHEST)?, size, false)
        })
        .note("the same rate for the peer"),
        Row::new("pipe, processor time of a MB", "cat", move || {
            measure(bench, ours(bench, HIGHEST)?, vec!["cat".into()], size, true)
        })
        .note("user and system time of the program in the middle, at the highest rate"),
        Row::new(
            "pipe at 100 MB/s, processor time of a MB",
            "pv -L",
            move || measure(bench, ours(bench, STEADY)?, pv(STEADY)?, some, true),
        )
        .note("user and system time of the program in the middle; both are paced"),
    ]
}
