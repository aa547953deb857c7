//! What `top` and `metrics` share: many segments at once, each of them once, and a file descriptor for each.

use std::path::PathBuf;

use rustix::process::{Resource, getrlimit, setrlimit};
use shmsched::Location;

/// The file, however its path is spelled: the same directory has the same path. The file itself is no
/// link, and has no second name: the library refuses such ones.
pub fn place(location: &Location) -> PathBuf {
    let path = location.path();
    let directory = path.parent().and_then(|parent| match parent.as_os_str() {
        parent if parent.is_empty() => std::fs::canonicalize(".").ok(),
        parent => std::fs::canonicalize(parent).ok(),
    });
    match (directory, path.file_name()) {
        (Some(directory), Some(name)) => directory.join(name),
        _ => path,
    }
}

/// Raises the limit of open files as far as this process may, and says what it is now.
pub fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let mut raised = limit;
    raised.current = limit.maximum;
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised,
        Err(_) => limit,
    };
    now.current
        .and_then(|most| usize::try_from(most).ok())
        .unwrap_or(usize::MAX)
}

/// For reading about members while everything else is open.
const SPARE: usize = 6;

/// How many more files may be open at the limit, beside so many that come yet; 1 at least, for a try.
pub fn room(limit: usize, later: usize) -> usize {
    // Reading the directory is one of those counted.
    let open = std::fs::read_dir("/proc/self/fd").map_or(10, |all| all.count() - 1);
    limit.saturating_sub(open + SPARE + later).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        std::fs::create_dir(path.join("d")).unwrap();
        std::os::unix::fs::symlink("d", path.join("link")).unwrap();
        let of = |text: &str| place(&Location::File(path.join(text)));
        for text in ["./a", "d/../a", "link/../a"] {
            assert_eq!(of(text), of("a"), "{text}");
        }
        assert_eq!(of("link/a"), of("d/a"));
        assert_ne!(of("d/a"), of("a"));
        // Not there at all.
        let nowhere = Location::File("/nowhere/x/a".into());
        assert_eq!(place(&nowhere), nowhere.path());
    }

    #[test]
    fn room_for_more() {
        assert_eq!(room(0, 0), 1);
        assert!(room(1 << 20, 5) > (1 << 20) - 10_000);
        assert!(raise_limit() > 3);
    }
}
