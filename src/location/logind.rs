//! What systemd's logind does to shared memory when its user logs out.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The first user id of a person, as logind sees it.
const FIRST_PERSON: u32 = 1_000;

/// Whether logind, if any, clears the shared memory of user `uid` at log-out. `root` is `/` but in tests.
pub(super) fn logind_clears(root: &Path, uid: u32) -> bool {
    // 65534 is nobody, who never logs in.
    if uid < FIRST_PERSON || uid == 65_534 || !root.join("run/systemd/seats").is_dir() {
        return false;
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for directory in [
        "usr/lib/systemd/logind.conf.d",
        "run/systemd/logind.conf.d",
        "etc/systemd/logind.conf.d",
    ] {
        if let Ok(entries) = root.join(directory).read_dir() {
            files.extend(
                entries
                    .flatten()
                    .map(|entry| entry.path())
                    .filter(|path| path.extension() == Some(OsStr::new("conf"))),
            );
        }
    }
    // Drop-ins are read in the order of their names, whichever directory they are in, and after the main file.
    files.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    let main = ["etc", "run", "usr/lib"]
        .into_iter()
        .map(|place| root.join(place).join("systemd/logind.conf"))
        .find(|path| path.is_file());
    let texts = main
        .into_iter()
        .chain(files)
        .filter_map(|path| std::fs::read_to_string(path).ok());
    texts
        .filter_map(|text| remove_ipc(&text))
        .next_back()
        .unwrap_or(true)
}

/// What a logind configuration file says of `RemoveIPC`, if anything.
fn remove_ipc(text: &str) -> Option<bool> {
    let mut values = text.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("RemoveIPC")?
            .trim_start()
            .strip_prefix('=')
    });
    let value = values.next_back()?.trim();
    Some(
        !["no", "false", "off", "0", "n", "f"]
            .iter()
            .any(|no| value.eq_ignore_ascii_case(no)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn logind_clears_for_people_unless_told_not_to() {
        // case 41
        let root = tempfile::tempdir().unwrap();
        assert!(!logind_clears(root.path(), 1000), "no logind here");
        fs::create_dir_all(root.path().join("run/systemd/seats")).unwrap();
        assert!(logind_clears(root.path(), 1000));
        assert!(!logind_clears(root.path(), 0));
        assert!(!logind_clears(root.path(), 999));
        fs::create_dir_all(root.path().join("etc/systemd/logind.conf.d")).unwrap();
        fs::write(
            root.path().join("etc/systemd/logind.conf"),
            "[Login]\n#RemoveIPC=no\n",
        )
        .unwrap();
        assert!(logind_clears(root.path(), 1000));
        fs::write(
            root.path().join("etc/systemd/logind.conf"),
            "[Login]\nRemoveIPC = no\n",
        )
        .unwrap();
        assert!(!logind_clears(root.path(), 1000));
        fs::write(
            root.path().join("etc/systemd/logind.conf.d/50-x.conf"),
            "[Login]\nRemoveIPC=yes\n",
        )
        .unwrap();
        assert!(logind_clears(root.path(), 1000));
    }
}
