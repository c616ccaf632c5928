//! The file behind a mapping: the one that the process mapped, not another one of its name. Knows nothing of formats.

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{Reason, process::Known};
use crate::sys::{
    file::{self, Inodes},
    procfs,
};

/// A file that was opened.
#[derive(Debug)]
pub struct Opened {
    /// It.
    pub file: File,
    /// What the process's absolute paths begin with for us; empty where they are ours.
    pub root: PathBuf,
}

/// Opens the file of a mapping of a process that may have exited meanwhile.
pub fn open(pid: u32, known: &Known) -> Result<Opened, Reason> {
    let key = &known.file.key;
    // A main thread that has exited has neither root nor files, while the process goes on.
    let thread = procfs::living_thread(pid).unwrap_or(pid);
    let root = PathBuf::from(format!("/proc/{thread}/root"));
    let relative = key.path.strip_prefix("/").unwrap_or(&key.path);
    let opened = |file| Opened { file, root: if root.exists() { root.clone() } else { PathBuf::new() } };
    // Right even for a file that was removed, but its range has to be the mapping's, and not everybody may.
    let mapped = format!("/proc/{thread}/map_files/{:x}-{:x}", known.start, known.end);
    if let Some(file) = file::open_regular(Path::new(&mapped)).ok().filter(|file| is_it(file, known)) {
        return Ok(opened(file));
    }
    let mut reason = None;
    // The first is right in other mount namespaces; the other is for processes that have exited.
    for path in [root.join(relative), key.path.clone()] {
        match file::open_regular(&path) {
            Ok(file) if is_it(&file, known) => return Ok(opened(file)),
            Ok(_) => reason = Some(Reason::Replaced { path: shown(&key.path) }),
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let error = error.source.to_string();
                reason.get_or_insert(Reason::Unreadable { path: shown(&key.path), error });
            }
        }
    }
    Err(reason.unwrap_or(Reason::FileGone { path: shown(&key.path) }))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Whether an open file is the mapped one, by its inode. Where only a build id is known, that tells later.
fn is_it(file: &File, known: &Known) -> bool {
    let key = &known.file.key;
    let Ok(metadata) = file.metadata() else { return false };
    key.inode == 0 || metadata.ino() == key.inode || file::inodes(file) == Inodes::OfOtherFiles
}
