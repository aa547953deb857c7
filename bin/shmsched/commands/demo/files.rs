//! Files to hash: this program's own, and what the system has.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;

/// Where to look.
const PLACES: [&str; 4] = ["/usr/lib", "/usr/bin", "/usr/share", "/etc"];
/// How many files are enough.
const ENOUGH: usize = 2_000;
/// How many directory entries to look at for them.
const LOOKS: usize = 20_000;
/// The largest file taken.
const LARGEST: u64 = 64 << 20;

/// Readable files with something in them, this program first. Only names that fit in a line.
pub fn gather() -> Vec<(PathBuf, u64)> {
    let own = std::env::current_exe()
        .ok()
        .and_then(|path| Some((path.clone(), fs::metadata(path).ok()?.len())));
    let mut files: Vec<(PathBuf, u64)> = own.into_iter().collect();
    let mut directories: VecDeque<PathBuf> = PLACES.iter().map(PathBuf::from).collect();
    let mut looks = 0;
    while let Some(directory) = directories.pop_front() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            looks += 1;
            if looks > LOOKS || files.len() >= ENOUGH {
                return files;
            }
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else {
                continue;
            };
            let speakable = path
                .to_str()
                .is_some_and(|text| !text.contains(char::is_control));
            if kind.is_dir() {
                directories.push_back(path);
            } else if kind.is_file() && speakable {
                let size = entry.metadata().map_or(0, |metadata| metadata.len());
                if (1..=LARGEST).contains(&size) && fs::File::open(&path).is_ok() {
                    files.push((path, size));
                }
            }
        }
    }
    files
}

/// Deals the files out, round and round, in jobs of about the same size.
pub struct Deal {
    files: Vec<(PathBuf, u64)>,
    next: usize,
}

impl Deal {
    /// How many bytes a job has at least.
    const JOB: u64 = 96 << 20;
    /// How many files a job has at most.
    const FILES: usize = 400;

    pub fn new(files: Vec<(PathBuf, u64)>) -> Deal {
        Deal { files, next: 0 }
    }

    /// The files of the next job.
    pub fn job(&mut self) -> Vec<PathBuf> {
        let mut job = Vec::new();
        let mut bytes = 0;
        while bytes < Deal::JOB && job.len() < Deal::FILES && !self.files.is_empty() {
            let (path, size) = &self.files[self.next % self.files.len()];
            job.push(path.clone());
            bytes += size;
            self.next += 1;
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_something_to_hash() {
        let files = gather();
        assert!(!files.is_empty() && files.len() <= ENOUGH);
        assert!(files.iter().all(|(_, size)| *size > 0));
    }

    #[test]
    fn few_files_are_dealt_again() {
        let mut deal = Deal::new(vec![("a".into(), Deal::JOB / 2), ("b".into(), 1)]);
        assert_eq!(deal.job(), ["a", "b", "a"].map(PathBuf::from));
        assert_eq!(deal.job()[0], PathBuf::from("b"));
        assert!(Deal::new(vec![]).job().is_empty());
    }
}
