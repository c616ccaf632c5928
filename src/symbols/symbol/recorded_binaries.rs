//! Finds the binaries of a recording by their build ids. The path does not identify a binary, because another version
//! of the file may be at the path now. The pid does not help either, because another process may have the pid now. If
//! the recording contains no build id for a file, a file with the same inode is accepted if it was not changed after
//! the recording started.

use std::{
    collections::HashMap,
    fmt::Write,
    fs::{File, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use perf_prof_system::file;

use super::{
    Reason,
    elf::Elf,
    mapping_history::{FileKey, TimedMapping},
    maps::Backing,
    vdso,
};

/// The facts that a recording states about its binaries, and the places where the binaries are searched.
#[derive(Clone, Debug, Default)]
pub struct RecordedBinaries {
    /// The build ids by path. A recording contains the build ids of the binaries that its samples refer to.
    pub build_ids: HashMap<PathBuf, Arc<[u8]>>,
    /// The directory in which perf keeps copies of binaries: `~/.debug`.
    pub cache: Option<PathBuf>,
    /// The time at which the recording started, or an earlier time, in ns since the Unix epoch. `None` if it is not
    /// known, or if the recording is from another machine.
    pub begin: Option<i64>,
    /// Whether the recorded kernel is the running kernel, by its build id. The vdso is a part of the kernel.
    pub is_running_kernel: bool,
}

impl RecordedBinaries {
    /// Returns the build id of the file of a mapping. The recording lists a removed file with the suffix "(deleted)",
    /// because it may list a newer file under the path alone.
    pub(super) fn build_id(&self, known: &TimedMapping) -> Option<Arc<[u8]>> {
        let key = &known.file.key;
        key.build_id.as_deref().map(Arc::from).or_else(|| self.build_ids.get(Path::new(&*known.file.dso)).cloned())
    }

    /// Opens the binary of a mapping.
    pub(super) fn open(&self, known: &TimedMapping) -> Result<Elf, Reason> {
        let shown = known.file.dso.to_string();
        let build_id = self.build_id(known);
        if known.file.backing == Backing::Vdso {
            // The kernel never reports the build id of the vdso, because the vdso is no file (perf_event_mmap_event()
            // in kernel/events/core.c). perf writes the build id of the vdso to its recordings.
            let own = vdso::read()?;
            return match build_id {
                Some(id) if own.build_id.as_deref() == Some(&*id) => Ok(own),
                Some(id) => Err(Reason::BuildNotFound { path: shown, build_id: hex(&id) }),
                None if self.is_running_kernel => Ok(own),
                None => Err(Reason::NoBuildId { path: shown }),
            };
        }
        let Some(build_id) = build_id else {
            let Some(file) = self.same_file(&known.file.key) else { return Err(Reason::NoBuildId { path: shown }) };
            return Elf::of_file(file).map_err(|error| Reason::Damaged { path: shown, error: error.to_string() });
        };
        let found = self.candidate_paths(&known.file.key.path, &build_id).into_iter().find_map(|path| {
            let elf = Elf::open(&path).ok()?;
            (elf.build_id.as_deref() == Some(&*build_id)).then_some(elf)
        });
        found.ok_or_else(|| Reason::BuildNotFound { path: shown, build_id: hex(&build_id) })
    }

    /// Opens the mapped file, if it is still at its path and was not written since the recording started. On some file
    /// systems, memory maps show other device and inode numbers than `stat`. Files on these file systems are not
    /// recognized.
    fn same_file(&self, key: &FileKey) -> Option<File> {
        let begin = self.begin?;
        if key.inode == 0 || key.deleted {
            return None;
        }
        let file = file::open_regular(&key.path).ok()?;
        let metadata = file.metadata().ok()?;
        let device = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
        let is_it = (device, metadata.ino()) == (key.device, key.inode) && latest_change(&metadata) < i128::from(begin);
        // A recorder that reads the mapping from /proc/PID/maps writes 0 as the generation. In this case, generations
        // are not compared.
        let again = |generation| key.generation != 0 && u64::from(generation) != key.generation;
        (is_it && !file::generation(&file).is_some_and(again)).then_some(file)
    }

    /// Returns the paths at which a binary may be: its own path, its paths in perf's cache, and the path of its debug
    /// file from the distribution.
    fn candidate_paths(&self, path: &Path, build_id: &[u8]) -> Vec<PathBuf> {
        let hex = hex(build_id);
        let (first, rest) = hex.split_at(hex.len().min(2));
        let mut places = vec![path.to_owned()];
        if let Some(cache) = &self.cache {
            let kept = cache.join(".build-id").join(first).join(rest);
            places.extend([kept.join("elf"), kept.join("debug"), kept]);
        }
        places.push(Path::new("/usr/lib/debug/.build-id").join(first).join(format!("{rest}.debug")));
        places
    }

    /// Returns the path of perf's copy of kallsyms for a kernel, by the kernel's build id.
    pub fn kallsyms(&self, build_id: &[u8]) -> Option<PathBuf> {
        let hex = hex(build_id);
        let (first, rest) = hex.split_at(hex.len().min(2));
        let cache = self.cache.as_ref()?;
        let places = [
            cache.join("[kernel.kallsyms]").join(&hex).join("kallsyms"),
            cache.join(".build-id").join(first).join(rest).join("kallsyms"),
        ];
        places.into_iter().find(|place| place.is_file())
    }
}

/// Returns the latest time at which a file may have been changed, in ns since the Unix epoch: the time in the metadata,
/// plus one step of the clock that the kernel uses for file times. This clock advances with each timer tick, at least
/// 100 times per second. A time without a fraction of a second may come from a file system with steps of two seconds.
fn latest_change(file: &Metadata) -> i128 {
    const NANOS: i128 = 1_000_000_000;
    let step = if file.ctime_nsec() == 0 { 2 * NANOS } else { NANOS / 100 };
    i128::from(file.ctime()) * NANOS + i128::from(file.ctime_nsec()) + step
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::{
        Mapping,
        processes::{ProcessOrigin, Processes},
    };

    /// A removed file must not get the names of the file that is at its path now.
    #[test]
    fn a_removed_file_differs_from_a_new_one_with_its_path() {
        let path = std::env::current_exe().unwrap();
        let build_id: Arc<[u8]> = Elf::open(&path).unwrap().build_id.unwrap().to_vec().into();
        let open = |deleted, listed: &str, own: Option<&[u8]>| {
            let recorded = RecordedBinaries {
                build_ids: HashMap::from([(listed.into(), build_id.clone())]),
                ..RecordedBinaries::default()
            };
            let mapping = Mapping {
                start: 0x1000,
                end: 0x2000,
                file_offset: 0,
                device: (8, 1),
                inode: 42,
                generation: 0,
                path: path.clone(),
                deleted,
                executable: true,
                build_id: own.map(Into::into),
            };
            let known = Processes::new(ProcessOrigin::Recording, crate::symbol::Data::No).mmap(7, 1, &mapping).unwrap();
            recorded.open(&known).map(|_| ()).map_err(|reason| reason.to_string())
        };
        let shown = path.display().to_string();
        let removed = format!("{shown} (deleted)");
        assert_eq!(open(false, &shown, None), Ok(()));
        assert!(open(true, &shown, None).unwrap_err().contains(&removed));
        // A file with the recorded build id is accepted, because files with the same build id are the same binary.
        assert_eq!(open(true, &removed, None), Ok(()));
        assert_eq!(open(true, "/x", Some(&build_id)), Ok(()));
        assert!(open(true, &shown, Some(&[7; 20])).is_err());
    }

    #[test]
    fn the_vdso_is_known_by_its_build_id_or_by_the_kernel() {
        let Ok(own) = vdso::read() else { return };
        let open = |build_id: Option<&[u8]>, is_running_kernel| {
            let build_ids = build_id.map(|id| (PathBuf::from("[vdso]"), Arc::from(id))).into_iter().collect();
            let recorded = RecordedBinaries { build_ids, is_running_kernel, ..RecordedBinaries::default() };
            let mapping = Mapping {
                start: 0x7fff_0000_0000,
                end: 0x7fff_0000_2000,
                file_offset: 0,
                device: (0, 0),
                inode: 0,
                generation: 0,
                path: "[vdso]".into(),
                deleted: false,
                executable: true,
                build_id: None,
            };
            let mut processes = Processes::new(ProcessOrigin::Recording, crate::symbol::Data::No);
            processes.mmap(7, 1, &mapping);
            recorded.open(&processes.locate(7, 0x7fff_0000_0010, 2).unwrap().mapping).map(|elf| elf.build_id)
        };
        assert!(open(own.build_id.as_deref(), false).is_ok_and(|id| id == own.build_id));
        assert!(open(None, true).is_ok_and(|id| id == own.build_id));
        assert!(matches!(open(Some(&[7; 20]), true), Err(Reason::BuildNotFound { .. })));
        assert!(matches!(open(None, false), Err(Reason::NoBuildId { .. })));
    }

    #[test]
    fn a_file_is_the_same_by_its_numbers_and_its_age_only() {
        let path = std::env::current_exe().unwrap();
        let file = File::open(&path).unwrap();
        let metadata = file.metadata().unwrap();
        let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
        let changed = i64::try_from(latest_change(&metadata)).unwrap();
        let is_same = |(major, minor): (u32, u32), inode, generation: Option<u32>, deleted, begin| {
            let generation = generation.map_or(0, u64::from);
            let key = FileKey {
                path: path.clone(),
                device: (major, minor),
                inode,
                generation,
                build_id: None,
                deleted,
                contents: crate::symbol::Contents::Code,
            };
            RecordedBinaries { begin, ..RecordedBinaries::default() }.same_file(&key).is_some()
        };
        let (device, inode, after) = ((major, minor), metadata.ino(), Some(changed + 1));
        let generation = file::generation(&file);
        assert!(is_same(device, inode, generation, false, after));
        assert!(is_same(device, inode, None, false, after));
        assert!(!is_same(device, inode, generation.map(|own| own ^ 2), false, after) || generation.is_none());
        assert!(!is_same(device, inode, generation, true, after));
        assert!(!is_same(device, inode, generation, false, Some(changed)));
        assert!(!is_same(device, inode, generation, false, None));
        assert!(!is_same(device, inode + 1, generation, false, after));
        assert!(!is_same(device, 0, generation, false, after));
        assert!(!is_same((major, minor + 1), inode, generation, false, after));
        assert!(!is_same((major + 1, minor), inode, generation, false, after));
    }
}
