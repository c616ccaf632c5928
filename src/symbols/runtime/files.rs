//! Finds the interpreters in executables and libraries, and remembers which files contain one.

use std::{
    collections::VecDeque,
    fs::File,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustc_hash::FxHashMap;

use super::python::{Build, NotSupported};
use crate::symbol::{
    Mapping,
    elf::{Elf, Segment, address_of},
    open::{MappedRange, open_mapped},
};

/// The maximum number of files that are remembered.
const MOST_FILES: usize = 1 << 12;
/// The maximum number of loaded segments of a file with an interpreter. Linkers make fewer than ten.
const MOST_SEGMENTS: usize = 64;
/// The time for which a file is not opened again, in ns. After this time, the file may have changed.
const TRUSTED_FOR: u64 = 1_000_000_000;

/// The files that may contain an interpreter, with the result of reading each of them. Files without an interpreter and
/// files that are no ELF files are remembered too, so that a process that maps such a file often costs little time.
#[derive(Default)]
pub struct Files {
    known: FxHashMap<FileKey, InterpreterFile>,
    /// The keys of `known`, in the order in which the files were found.
    order: VecDeque<FileKey>,
}

/// The device, the inode number and the path of a file. The path is needed because files in several subvolumes can have
/// the same inode number.
type FileKey = ((u32, u32), u64, PathBuf);

/// The result of reading a file.
#[derive(Clone)]
struct InterpreterFile {
    build: Result<Arc<Build>, NotSupported>,
    segments: Arc<[Segment]>,
    /// The version of the file that was read. `None` if the file could not be opened.
    stamp: Option<Stamp>,
    /// The id of the process that had mapped the file when the file was last opened.
    pid: u32,
    /// The time of the event at which the file was last opened, in ns.
    time: u64,
}

/// Identifies a version of a file. The stamp differs if the file was changed, or if a new file has the same inode
/// number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    size: u64,
    /// The time of the last change (ctime): seconds, and ns.
    changed: (i64, i64),
}

/// An interpreter that a process has mapped.
pub struct MappedInterpreter {
    pub build: Arc<Build>,
    /// The address in the process minus the address in the file.
    pub bias: u64,
}

impl Files {
    /// Returns the interpreter in a file that a process mapped at `time`. Opens the file, unless it was opened
    /// recently.
    pub fn find(&mut self, pid: u32, mapping: &Mapping, time: u64) -> Result<MappedInterpreter, NotSupported> {
        let Mapping { start, end, inode, ref path, .. } = *mapping;
        let key = (mapping.device, inode, path.clone());
        if let Some(known) = self.known.get(&key).filter(|known| inode != 0 && known.is_trusted(pid, time)) {
            return known.at(mapping);
        }
        let opened = open_mapped(pid, &MappedRange { start, end, path, inode }).ok().map(|opened| opened.file);
        let stamp = opened.as_ref().and_then(Stamp::of);
        // The file may not be accessible any more, because the process has ended. The earlier result is then used,
        // because the file has probably not changed.
        let is_same = |known: &&mut InterpreterFile| known.stamp == stamp || stamp.is_none() && inode != 0;
        if let Some(known) = self.known.get_mut(&key).filter(is_same) {
            (known.pid, known.time) = (pid, time);
            return known.at(mapping);
        }
        let (build, segments) = opened
            .map_or(Err(NotSupported::NoInterpreter), read)
            .map_or_else(|reason| (Err(reason), [].into()), |(build, segments)| (Ok(build), segments));
        let file = InterpreterFile { build, segments, stamp, pid, time };
        let found = file.at(mapping);
        self.keep(key, file);
        found
    }

    /// Notes the interpreter of a file that cannot be opened.
    #[cfg(test)]
    pub fn know(&mut self, mapping: &Mapping, build: Build) {
        let key = (mapping.device, mapping.inode, mapping.path.clone());
        let all = Segment { offset: 0, size: 1 << 12, memory: 1 << 12, address: 0, executable: true };
        let stamp = Stamp { inode: (0, 0), size: 0, changed: (0, 0) };
        let (build, segments) = (Ok(build.into()), [all].into());
        self.keep(key, InterpreterFile { build, segments, stamp: Some(stamp), pid: 0, time: 0 });
    }

    fn keep(&mut self, key: FileKey, file: InterpreterFile) {
        if self.known.insert(key.clone(), file).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MOST_FILES
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// Returns the interpreter in a file, and the loaded segments of the file.
fn read(file: File) -> Result<(Arc<Build>, Arc<[Segment]>), NotSupported> {
    let elf = Elf::of_file(file).ok().filter(|elf| elf.segments.len() <= MOST_SEGMENTS);
    let elf = elf.ok_or(NotSupported::NoInterpreter)?;
    Ok((Build::of(&elf)?.into(), elf.segments.into()))
}

impl InterpreterFile {
    /// Returns whether the earlier result is used without opening the file again. If the file could not be opened, this
    /// holds only for the same process, because the file may be accessible through another process.
    fn is_trusted(&self, pid: u32, time: u64) -> bool {
        time < self.time.saturating_add(TRUSTED_FOR) && (self.stamp.is_some() || self.pid == pid)
    }

    fn at(&self, mapping: &Mapping) -> Result<MappedInterpreter, NotSupported> {
        let build = self.build.clone()?;
        let address = address_of(&self.segments, mapping.file_offset).ok_or(NotSupported::NoInterpreter)?;
        Ok(MappedInterpreter { build, bias: mapping.start.wrapping_sub(address) })
    }
}

impl Stamp {
    fn of(file: &File) -> Option<Stamp> {
        let found = file.metadata().ok()?;
        let changed = (found.ctime(), found.ctime_nsec());
        Some(Stamp { inode: (found.dev(), found.ino()), size: found.size(), changed })
    }
}

/// Returns whether a file may contain an interpreter, judging by its name.
pub fn may_have_interpreter(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("python") || name.starts_with("libpython")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mapping(path: &Path) -> Mapping {
        let found = fs::metadata(path).unwrap();
        let text = format!("1000-2000 r-xp 00000000 00:01 {} {}\n", found.ino(), path.display());
        crate::symbol::maps::parse(text.as_bytes()).next().unwrap()
    }

    fn find(files: &mut Files, mapping: &Mapping, time: u64) -> Option<NotSupported> {
        files.find(std::process::id(), mapping, time).err()
    }

    /// Notes that a file contains an interpreter that is too old.
    fn keep_as_old(files: &mut Files, mapping: &Mapping, stamp: Option<Stamp>) {
        let key = (mapping.device, mapping.inode, mapping.path.clone());
        let (build, pid) = (Err(NotSupported::TooOld), std::process::id());
        files.keep(key, InterpreterFile { build, segments: [].into(), stamp, pid, time: 0 });
    }

    #[test]
    fn what_is_no_program_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("python-notes");
        fs::write(&path, "no program").unwrap();
        let (mut files, mapping) = (Files::default(), mapping(&path));
        assert_eq!(find(&mut files, &mapping, 5), Some(NotSupported::NoInterpreter));
        assert_eq!(files.known.len(), 1);
        // The earlier result is replaced by `TooOld`, although reading the file would give `NoInterpreter`. So the
        // results show when the file is read.
        let stamp = files.known.values().next().unwrap().stamp;
        keep_as_old(&mut files, &mapping, stamp);
        assert_eq!(find(&mut files, &mapping, 5), Some(NotSupported::TooOld));
        assert_eq!(find(&mut files, &mapping, 5 * TRUSTED_FOR), Some(NotSupported::TooOld));
        // A changed file is read again, but only after `TRUSTED_FOR`.
        fs::write(&path, "no program either").unwrap();
        assert_eq!(find(&mut files, &mapping, 6 * TRUSTED_FOR - 1), Some(NotSupported::TooOld));
        assert_eq!(find(&mut files, &mapping, 6 * TRUSTED_FOR), Some(NotSupported::NoInterpreter));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_tried_again_for_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("python3");
        fs::write(&path, "").unwrap();
        let (mut files, mapping) = (Files::default(), mapping(&path));
        fs::remove_file(&path).unwrap();
        assert_eq!(find(&mut files, &mapping, 5), Some(NotSupported::NoInterpreter));
        keep_as_old(&mut files, &mapping, None);
        let file = files.known.values_mut().next().unwrap();
        assert_eq!((file.is_trusted(file.pid, 7), file.is_trusted(file.pid + 1, 7)), (true, false));
        assert!(!file.is_trusted(file.pid, TRUSTED_FOR));
        // After the file was removed, the earlier result is used.
        file.stamp = Some(Stamp { inode: (1, 1), size: 1, changed: (1, 1) });
        assert_eq!(find(&mut files, &mapping, TRUSTED_FOR), Some(NotSupported::TooOld));
    }

    #[test]
    fn files_with_the_same_inode_are_distinguished_by_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["python3", "python3.13"].map(|name| folder.path().join(name));
        fs::write(&paths[0], "").unwrap();
        fs::hard_link(&paths[0], &paths[1]).unwrap();
        let (mut files, [first, second]) = (Files::default(), paths.map(|path| mapping(&path)));
        keep_as_old(&mut files, &first, None);
        assert_eq!(find(&mut files, &first, 5), Some(NotSupported::TooOld));
        assert_eq!(find(&mut files, &second, 5), Some(NotSupported::NoInterpreter));
    }

    #[test]
    fn the_oldest_file_makes_room_for_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("python3");
        fs::write(&path, "").unwrap();
        let (mut files, first) = (Files::default(), mapping(&path));
        let others = |number: usize| Mapping { path: format!("/python{number}").into(), ..first.clone() };
        keep_as_old(&mut files, &first, None);
        (1..MOST_FILES).for_each(|number| keep_as_old(&mut files, &others(number), None));
        assert_eq!(find(&mut files, &first, 5), Some(NotSupported::TooOld));
        keep_as_old(&mut files, &others(MOST_FILES), None);
        assert_eq!(files.known.len(), MOST_FILES);
        assert_eq!(find(&mut files, &others(1), 5), Some(NotSupported::TooOld));
        assert_eq!(find(&mut files, &first, 5), Some(NotSupported::NoInterpreter));
    }
}
