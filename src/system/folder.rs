//! An open folder, in which files are created and removed by name. Another process may replace the folder's path by a
//! link at any time. The open folder stays the same, so files are created and removed only in it.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};

use super::call::{CallError, failed};

/// An open folder.
#[derive(Debug)]
pub struct Folder(File);

impl Folder {
    /// Opens a folder. Fails if the last part of the path is a symbolic link.
    pub fn open(path: &Path) -> Result<Folder, CallError> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
        options.open(path).map(Folder).map_err(|error| CallError::new(format!("open {}", path.display()), error))
    }

    /// Creates a file for reading and writing that only its owner can read. Fails if the name exists, even as a symbolic
    /// link.
    pub fn create(&self, name: &str) -> Result<File, CallError> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(&self.0, own(name)?, flags, Mode::from_raw_mode(PRIVATE));
        file.map(File::from).map_err(failed(&format!("open {name}")))
    }

    /// Removes a file or a symbolic link.
    pub fn remove(&self, name: &str) -> Result<(), CallError> {
        unlinkat(&self.0, own(name)?, AtFlags::empty()).map_err(failed(&format!("unlink {name}")))
    }
}

/// The mode of new files: only the owner reads and writes them.
const PRIVATE: u32 = 0o600;

/// Creates a file for reading and writing that only its owner can read. Fails if the path exists, even as a symbolic
/// link.
pub fn create_private(path: &Path) -> Result<File, CallError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(PRIVATE).custom_flags(libc::O_NOFOLLOW);
    options.open(path).map_err(|error| CallError::new(format!("open {}", path.display()), error))
}

/// Opens an existing device, pipe or other special file for writing. Never creates a file, follows no symbolic link in
/// the last part of the path, and does not wait for the reader of a pipe.
pub fn open_special(path: &Path) -> Result<File, CallError> {
    let wrong = |error| CallError::new(format!("open {}", path.display()), error);
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY | libc::O_NONBLOCK);
    let file = options.open(path).map_err(wrong)?;
    match file.metadata().map_err(wrong)?.is_file() {
        // Another process has replaced the special file by a regular file after its kind was checked.
        true => Err(wrong(io::Error::from_raw_os_error(libc::EEXIST))),
        false => Ok(file),
    }
}

/// Returns the name if it contains no slash. A name with a slash could lead out of the folder.
fn own(name: &str) -> Result<&str, CallError> {
    match name.contains('/') {
        true => Err(CallError::new(format!("open {name}"), io::ErrorKind::InvalidInput.into())),
        false => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn files_of_an_open_folder_stay_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("ours")).unwrap();
        fs::create_dir(path("other")).unwrap();
        fs::write(path("other/data"), "kept").unwrap();
        let folder = Folder::open(&path("ours")).unwrap();
        // Another process moves the folder away and puts a link in its place.
        fs::rename(path("ours"), path("moved")).unwrap();
        symlink(path("other"), path("ours")).unwrap();
        folder.create("data.0").unwrap();
        assert!(path("moved/data.0").exists() && !path("other/data.0").exists());
        assert_eq!(fs::metadata(path("moved/data.0")).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(folder.remove("data").unwrap_err().errno(), libc::ENOENT);
        assert_eq!(fs::read(path("other/data")).unwrap(), b"kept");
        assert!(Folder::open(&path("ours")).is_err());
        for outside in ["../other/new", "a\0b"] {
            assert!(folder.create(outside).is_err(), "{outside}");
        }
    }

    #[test]
    fn no_file_is_created_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("victim"), "kept").unwrap();
        symlink("victim", path("link")).unwrap();
        symlink("new", path("dangling")).unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        for name in ["link", "dangling", "victim"] {
            assert_eq!(folder.create(name).unwrap_err().errno(), libc::EEXIST, "{name}");
            assert_eq!(create_private(&path(name)).unwrap_err().errno(), libc::EEXIST, "{name}");
            assert!(open_special(&path(name)).is_err(), "{name}");
        }
        assert!(fs::read(path("victim")).unwrap() == b"kept" && !path("new").exists());
        assert!(open_special(Path::new("/dev/null")).is_ok());
    }
}
