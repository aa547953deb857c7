//! What every row needs: how long it may take, where its files are, and who removes them.

use crate::children::{self, Child};
use shmsched::{Location, OpenOptions, Segment, Settings};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy, PartialEq)]
pub enum Size {
    Full,
    Quick,
    /// As little as shows that it works.
    Test,
}

impl Size {
    /// One value of three.
    pub fn pick<T>(self, full: T, quick: T, test: T) -> T {
        match self {
            Size::Full => full,
            Size::Quick => quick,
            Size::Test => test,
        }
    }
}

pub struct Bench {
    pub size: Size,
    pub directory: PathBuf,
    pub deadline: Instant,
    /// `shmsched` itself, if it was built with its command line.
    pub program: Option<PathBuf>,
    /// Outlives this process, whatever way it ends, and removes what it left.
    reaper: Mutex<Option<Child>>,
}

impl Bench {
    pub fn new(size: Size, deadline: Instant) -> Result<Bench, String> {
        let reaper = Child::apart("reaper", &[])?;
        let directory = tempfile::Builder::new()
            .prefix("shmsched-compare-")
            .tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .map_err(|error| format!("no place for files: {error}"))?
            .keep();
        let mut bench = Bench {
            size,
            deadline,
            program: None,
            reaper: Mutex::new(Some(reaper)),
            directory,
        };
        let name = bench
            .directory
            .to_str()
            .ok_or("a directory that is no text")?;
        bench.remember(&format!("directory {name}"))?;
        let built = option_env!("CARGO_BIN_EXE_shmsched").map(Path::new);
        if let Some(built) = built.filter(|built| built.exists()) {
            bench.program = Some(bench.install(built)?);
        }
        Ok(bench)
    }

    /// The program as `cargo install --path` leaves it: copied. Of a file as the linker has just written it the kernel has
    /// each page by itself, which costs some 7 % of what a brief command takes.
    fn install(&self, built: &Path) -> Result<PathBuf, String> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let place = std::fs::create_dir_all(target).and_then(|()| {
            let directory = tempfile::Builder::new()
                .prefix("installed-")
                .tempdir_in(target)?;
            Ok(directory.keep())
        });
        let place = place.map_err(failed)?;
        let name = place.to_str().ok_or("a directory that is no text")?;
        self.remember(&format!("directory {name}"))?;
        let program = place.join("shmsched");
        std::fs::copy(built, &program).map_err(failed)?;
        Ok(program)
    }

    /// Has it removed in the end: `directory PATH`, `semaphore ID`, `spooler SOCKET`.
    pub fn remember(&self, what: &str) -> Result<(), String> {
        let mut reaper = self.reaper.lock().map_err(|_| "no reaper")?;
        reaper.as_mut().ok_or("no reaper")?.tell(what)
    }

    /// Removes everything now. Nothing may be measured afterwards.
    pub fn clean(&self) {
        let reaper = self.reaper.lock().map(|mut reaper| reaper.take());
        if let Ok(Some(reaper)) = reaper {
            reaper.ended();
        }
    }

    /// For how long a row goes on taking rounds.
    pub fn allowed(&self, full: Duration) -> Duration {
        self.size.pick(full, full / 5, Duration::from_millis(6))
    }

    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// A new segment, attached.
    pub fn segment(&self, name: &str, settings: &Settings) -> Result<Segment, String> {
        segment(&self.directory.join(name), settings)
    }
}

pub fn segment(path: &Path, settings: &Settings) -> Result<Segment, String> {
    let location = Location::File(path.to_owned());
    let opened = Segment::create_or_open(&location, settings, &OpenOptions::new());
    opened.map(|(segment, _)| segment).map_err(failed)
}

/// A row that should have worked.
pub fn failed(error: impl std::fmt::Display) -> String {
    format!("failed: {error}")
}

/// The reaper: takes note of what there is to remove until its parent closes the pipe or dies, then removes it.
pub fn reaper() {
    let noted: Vec<String> = std::io::stdin().lines().map_while(Result::ok).collect();
    for line in noted.iter().rev() {
        match line.split_once(' ') {
            Some(("semaphore", id)) => crate::peers::remove_semaphore(id.parse().unwrap_or(-1)),
            Some(("spooler", socket)) => {
                let mut end = Command::new("tsp");
                let end = end.arg("-K").env("TS_SOCKET", socket);
                let _ = end.stdout(Stdio::null()).stderr(Stdio::null()).status();
            }
            Some(("directory", path)) => children::patiently(|| {
                let gone = std::fs::remove_dir_all(path);
                gone.is_ok() || !Path::new(path).exists()
            }),
            _ => {}
        }
    }
}
