//! The directory of plain names, made and checked.

use super::LocationError;
use rustix::fs::{Mode, OFlags};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes the directory that the user chose, if it is missing.
pub(super) fn make_chosen(directory: &Path) -> Result<(), LocationError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|e| LocationError::io(directory, e))
}

/// Makes a directory in a place open to everybody, or accepts the one that is there. `owner` is who it must belong to.
pub(super) fn make_private(directory: &Path, owner: u32) -> Result<(), LocationError> {
    let made = match rustix::fs::mkdir(directory, Mode::RWXU) {
        Ok(()) => true,
        Err(rustix::io::Errno::EXIST) => false,
        Err(error) => return Err(LocationError::io(directory, error)),
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let refuse = |reason| {
        Err(LocationError::Directory {
            path: directory.to_owned(),
            reason,
        })
    };
    let opened = match rustix::fs::open(directory, flags, Mode::empty()) {
        Ok(opened) => opened,
        // NOTDIR is also what a symbolic link answers here.
        Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
            return refuse("it is no directory");
        }
        Err(rustix::io::Errno::ACCESS) => {
            return refuse("it belongs to another user, or its mode is wrong");
        }
        Err(error) => return Err(LocationError::io(directory, error)),
    };
    let found = rustix::fs::fstat(&opened).map_err(|e| LocationError::io(directory, e))?;
    if found.st_uid != owner {
        return refuse("it belongs to another user");
    }
    if made && found.st_mode & 0o777 != 0o700 {
        // The umask took bits away.
        return rustix::fs::fchmod(&opened, Mode::RWXU)
            .map_err(|e| LocationError::io(directory, e));
    }
    if found.st_mode & 0o022 != 0 {
        return refuse("others can write to it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::geteuid;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_private_directory_is_made_and_checked() {
        // case 35
        let base = tempfile::tempdir().unwrap();
        let me = geteuid().as_raw();
        let fresh = base.path().join("fresh");
        make_private(&fresh, me).unwrap();
        assert_eq!(
            fs::metadata(&fresh).unwrap().permissions().mode() & 0o7777,
            0o700
        );
        make_private(&fresh, me).unwrap();

        let foreign = make_private(&fresh, me + 1).unwrap_err().to_string();
        assert!(foreign.contains("another user"), "{foreign}");
        for mode in [0o770, 0o702] {
            fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(
                make_private(&fresh, me),
                Err(LocationError::Directory { .. })
            ));
        }

        let link = base.path().join("link");
        symlink(base.path(), &link).unwrap();
        assert!(matches!(
            make_private(&link, me),
            Err(LocationError::Directory { .. })
        ));
        let file = base.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(
            make_private(&file, me),
            Err(LocationError::Directory { .. })
        ));
        assert!(matches!(
            make_private(&base.path().join("no/such"), me),
            Err(LocationError::DirectoryIo { .. })
        ));
    }

    #[test]
    fn a_chosen_directory_is_made_with_its_parents() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("a/b");
        make_chosen(&deep).unwrap();
        make_chosen(&deep).unwrap();
        assert_eq!(
            fs::metadata(&deep).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }
}
