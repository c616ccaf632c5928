//! Opens the file of a mapping: the file that the process mapped, and no other file at the same path. This module knows
//! no file format.

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use perf_prof_system::{
    file::{self, InodeNumbers},
    procfs,
};

use super::{Reason, mapping_history::TimedMapping};

/// An open file, and the root directory of the process that mapped it.
#[derive(Debug)]
pub struct OpenedFile {
    /// The file.
    pub file: File,
    /// The root directory of the process, as a prefix for absolute paths. Empty if the root directory cannot be
    /// accessed.
    pub root: PathBuf,
}

/// A range of a process's addresses, and the file that is mapped there.
#[derive(Clone, Copy, Debug)]
pub struct MappedRange<'a> {
    /// The first address of the range.
    pub start: u64,
    /// The address after the last address of the range.
    pub end: u64,
    /// The path of the file as the process sees it.
    pub path: &'a Path,
    /// The inode number of the file; 0 if it is not known.
    pub inode: u64,
}

/// Opens the file of a mapping. The process may have exited since it made the mapping.
pub fn open(pid: u32, known: &TimedMapping) -> Result<OpenedFile, Reason> {
    let TimedMapping { start, end, .. } = *known;
    open_mapped(pid, &MappedRange { start, end, path: &known.file.key.path, inode: known.file.key.inode })
}

/// Opens the file that is mapped in a range. The process may have exited since it mapped the file.
pub fn open_mapped(pid: u32, known: &MappedRange<'_>) -> Result<OpenedFile, Reason> {
    // procfs shows no root and no mapped files of a main thread that has exited, although other threads of the process
    // may still run.
    let thread = procfs::living_thread(pid).unwrap_or(pid);
    let root = PathBuf::from(format!("/proc/{thread}/root"));
    let relative = known.path.strip_prefix("/").unwrap_or(known.path);
    let opened = |file| OpenedFile { file, root: if root.exists() { root.clone() } else { PathBuf::new() } };
    // This link leads to the right file even if the file's path was removed. But it exists only for the exact range of
    // the mapping, and not every user may open it.
    let mapped = format!("/proc/{thread}/map_files/{:x}-{:x}", known.start, known.end);
    if let Some(file) = file::open_regular(Path::new(&mapped)).ok().filter(|file| is_mapped_file(file, known)) {
        return Ok(opened(file));
    }
    let mut reason = None;
    // The path under the process's root is right for a process in another mount namespace. The plain path is for
    // processes that have exited.
    for path in [root.join(relative), known.path.to_owned()] {
        match file::open_regular(&path) {
            Ok(file) if is_mapped_file(&file, known) => return Ok(opened(file)),
            Ok(_) => reason = Some(Reason::Replaced { path: shown(known.path) }),
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let error = error.source.to_string();
                reason.get_or_insert(Reason::Unreadable { path: shown(known.path), error });
            }
        }
    }
    Err(reason.unwrap_or(Reason::FileGone { path: shown(known.path) }))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Returns whether `file` is the mapped file, judging by its inode number. Two kinds of files are always accepted:
/// files of mappings that contain only a build id, because the caller compares the build id later, and files on file
/// systems whose inode numbers in memory maps differ from those of `stat`.
fn is_mapped_file(file: &File, known: &MappedRange<'_>) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    known.inode == 0 || metadata.ino() == known.inode || file::inodes(file) == InodeNumbers::OfOtherFiles
}
