//! Checks whether a file can be written, before the long work that produces its contents starts.

use std::{
    ffi::CString,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// What happens to an existing file with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingFile {
    /// The existing file is overwritten.
    Overwritten,
    /// A folder, a symbolic link, or a regular file that is not empty is renamed. An empty file is replaced by a new
    /// one. Anything else, for example a device, is overwritten.
    Renamed,
}

/// What a symbolic link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    /// A regular file, or nothing.
    File,
    /// A folder.
    Folder,
    /// Something else, such as a device or a pipe, or the open file of a process: `/dev/stdout` is such a link.
    Special,
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputPathError {
    /// The folder of the file does not exist.
    #[error(
        "cannot write '{}': there is no folder '{}'; create it or give another file", .0.display(), folder(.0).display()
    )]
    NoFolder(PathBuf),
    /// The parent of the path is not a folder.
    #[error("cannot write '{}': '{}' is not a folder; give another file", .0.display(), folder(.0).display())]
    NotInFolder(PathBuf),
    /// Files cannot be created or renamed in the folder.
    #[error(
        "cannot write '{}': no write access to '{}': {source}; give another file",
        .path.display(), folder(.path).display()
    )]
    Closed {
        /// The path of the file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The path is a folder.
    #[error("cannot write '{}': it is a folder; give the path of a file", .0.display())]
    Folder(PathBuf),
    /// The path is a symbolic link to a device or to an open file.
    #[error(
        "cannot write '{}': it is a symbolic link to something that is not a regular file; give the path of a file, or \
         '-' for the standard output", .0.display()
    )]
    Link(PathBuf),
    /// The existing file cannot be written.
    #[error("cannot write '{}': {source}", .path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Checks whether the file `path` can be written, without changing anything. Without this check, an error would be
/// noticed only at the end, and all work would be lost. The check cannot find every error.
pub fn check(path: &Path, former: ExistingFile) -> Result<(), OutputPathError> {
    let Ok(found) = fs::symlink_metadata(path) else { return check_folder(path) };
    if former == ExistingFile::Renamed {
        let target = if found.is_symlink() { link_target(path) } else { LinkTarget::File };
        match target {
            LinkTarget::Folder => return Err(OutputPathError::Folder(path.to_owned())),
            LinkTarget::Special => return Err(OutputPathError::Link(path.to_owned())),
            LinkTarget::File if found.is_symlink() || found.is_file() || found.is_dir() => return check_folder(path),
            LinkTarget::File => {}
        }
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(OutputPathError::Folder(path.to_owned())),
        Ok(_) => access(path, libc::W_OK).map_err(|source| OutputPathError::File { path: path.to_owned(), source }),
        // The symbolic link leads to nothing. A write through the link may create the file.
        Err(_) => Ok(()),
    }
}

/// Returns what a symbolic link leads to.
pub fn link_target(link: &Path) -> LinkTarget {
    // The links in /proc/PID/fd lead to open files. /dev/stdout leads to one of these links. Renaming /dev/stdout would
    // harm other programs.
    let leads_to_proc = fs::read_link(link).is_ok_and(|target| target.starts_with("/proc"));
    match fs::metadata(link) {
        Ok(found) if found.is_dir() => LinkTarget::Folder,
        Ok(found) if leads_to_proc || !found.is_file() => LinkTarget::Special,
        Ok(_) | Err(_) => LinkTarget::File,
    }
}

fn check_folder(path: &Path) -> Result<(), OutputPathError> {
    let folder = folder(path);
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(OutputPathError::NotInFolder(path.to_owned())),
        Err(error) => {
            return Err(match error.kind() {
                io::ErrorKind::NotFound => OutputPathError::NoFolder(path.to_owned()),
                io::ErrorKind::NotADirectory => OutputPathError::NotInFolder(path.to_owned()),
                _ => OutputPathError::File { path: path.to_owned(), source: error },
            });
        }
    }
    access(folder, libc::W_OK | libc::X_OK).map_err(|source| OutputPathError::Closed { path: path.to_owned(), source })
}

/// Returns the folder that contains `path`; `.` for a plain file name.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks whether this process may access `path` with `mode`. Takes the permissions and the file system into account.
fn access(path: &Path, mode: libc::c_int) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is a string that ends with a NUL and outlives the call.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Expect) {
        expected.assert_eq(&answers(name));
    }

    /// Returns the results of both checks of `name`: for an existing file that is overwritten, and for one that is
    /// renamed.
    fn answers(name: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("full"), "text").unwrap();
        fs::write(path("empty"), "").unwrap();
        fs::create_dir(path("folder")).unwrap();
        for (to, link) in [("full", "link"), ("folder", "folder-link"), ("nothing", "new-link"), ("/dev/null", "null")]
        {
            symlink(to, path(link)).unwrap();
        }
        let shown =
            [ExistingFile::Overwritten, ExistingFile::Renamed].map(|former| match super::check(&path(name), former) {
                Ok(()) => format!("{former:?}: yes\n"),
                Err(error) => format!("{former:?}: {error}\n").replace(dir.path().to_str().unwrap(), "DIR"),
            });
        shown.concat()
    }

    #[test]
    fn output_paths_are_checked_in_advance() {
        for name in ["new", "full", "empty", "link", "new-link"] {
            assert_eq!(answers(name), "Overwritten: yes\nRenamed: yes\n", "{name}");
        }
        check(
            "null",
            expect![[r#"
                Overwritten: yes
                Renamed: cannot write 'DIR/null': it is a symbolic link to something that is not a regular file; give the path of a file, or '-' for the standard output
            "#]],
        );
        check(
            "folder",
            expect![[r#"
                Overwritten: cannot write 'DIR/folder': it is a folder; give the path of a file
                Renamed: yes
            "#]],
        );
        check(
            "folder-link",
            expect![[r#"
                Overwritten: cannot write 'DIR/folder-link': it is a folder; give the path of a file
                Renamed: cannot write 'DIR/folder-link': it is a folder; give the path of a file
            "#]],
        );
        check(
            "none/new",
            expect![[r#"
                Overwritten: cannot write 'DIR/none/new': there is no folder 'DIR/none'; create it or give another file
                Renamed: cannot write 'DIR/none/new': there is no folder 'DIR/none'; create it or give another file
            "#]],
        );
        check(
            "full/new",
            expect![[r#"
                Overwritten: cannot write 'DIR/full/new': 'DIR/full' is not a folder; give another file
                Renamed: cannot write 'DIR/full/new': 'DIR/full' is not a folder; give another file
            "#]],
        );
    }
}
