//! Places that somebody names for what is to be written at the end of long work: what can be known of them before it begins.

use std::{
    ffi::CString,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// What becomes of a file that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former {
    /// It is written over.
    Overwritten,
    /// It gets another name, unless there is nothing in it or it is no file of its own: a device, a symbolic link.
    Renamed,
}

/// Why nothing can be written at a place.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// There is no such folder.
    #[error(
        "cannot write '{}': there is no folder '{}'; make it, or name another place", .0.display(), folder(.0).display()
    )]
    NoFolder(PathBuf),
    /// What it is to lie in is something else.
    #[error("cannot write '{}': '{}' is no folder; name another place", .0.display(), folder(.0).display())]
    NotInFolder(PathBuf),
    /// No file can be created, or renamed, in the folder.
    #[error("cannot write '{}': '{}': {source}; name another place", .path.display(), folder(.path).display())]
    Closed {
        /// Where it was to be.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// It is a folder.
    #[error("cannot write '{}': it is a folder; name a file", .0.display())]
    Folder(PathBuf),
    /// The file that is there cannot be written to.
    #[error("cannot write '{}': {source}", .path.display())]
    File {
        /// Where it was to be.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

/// Whether a file can be written at a place, as far as that can be known before anything is touched: who finds out at the end
/// has worked for nothing.
pub fn check(path: &Path, former: Former) -> Result<(), PlaceError> {
    let Ok(found) = fs::symlink_metadata(path) else { return check_folder(path) };
    let is_renamed = found.is_dir() || found.is_file() && found.len() > 0;
    if former == Former::Renamed && is_renamed {
        return check_folder(path);
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(PlaceError::Folder(path.to_owned())),
        Ok(_) => access(path, libc::W_OK).map_err(|source| PlaceError::File { path: path.to_owned(), source }),
        // Where a link leads to, a file may be created.
        Err(_) => Ok(()),
    }
}

fn check_folder(path: &Path) -> Result<(), PlaceError> {
    let folder = folder(path);
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(PlaceError::NotInFolder(path.to_owned())),
        Err(error) => {
            return Err(match error.kind() {
                io::ErrorKind::NotFound => PlaceError::NoFolder(path.to_owned()),
                io::ErrorKind::NotADirectory => PlaceError::NotInFolder(path.to_owned()),
                _ => PlaceError::File { path: path.to_owned(), source: error },
            });
        }
    }
    access(folder, libc::W_OK | libc::X_OK).map_err(|source| PlaceError::Closed { path: path.to_owned(), source })
}

/// The folder that a path lies in.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether we may do that, as far as its permissions and its file system's say.
fn access(path: &Path, mode: libc::c_int) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is a string with a NUL at its end, which lives until the call returns.
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

    /// Whether `name` can be written, over what is there and beside it.
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
        let shown = [Former::Overwritten, Former::Renamed].map(|former| match super::check(&path(name), former) {
            Ok(()) => format!("{former:?}: yes\n"),
            Err(error) => format!("{former:?}: {error}\n").replace(dir.path().to_str().unwrap(), "DIR"),
        });
        shown.concat()
    }

    #[test]
    fn places() {
        for name in ["new", "full", "empty", "link", "new-link", "null"] {
            assert_eq!(answers(name), "Overwritten: yes\nRenamed: yes\n", "{name}");
        }
        check(
            "folder",
            expect![[r#"
                Overwritten: cannot write 'DIR/folder': it is a folder; name a file
                Renamed: yes
            "#]],
        );
        check(
            "folder-link",
            expect![[r#"
                Overwritten: cannot write 'DIR/folder-link': it is a folder; name a file
                Renamed: cannot write 'DIR/folder-link': it is a folder; name a file
            "#]],
        );
        check(
            "none/new",
            expect![[r#"
                Overwritten: cannot write 'DIR/none/new': there is no folder 'DIR/none'; make it, or name another place
                Renamed: cannot write 'DIR/none/new': there is no folder 'DIR/none'; make it, or name another place
            "#]],
        );
        check(
            "full/new",
            expect![[r#"
                Overwritten: cannot write 'DIR/full/new': 'DIR/full' is no folder; name another place
                Renamed: cannot write 'DIR/full/new': 'DIR/full' is no folder; name another place
            "#]],
        );
    }
}
