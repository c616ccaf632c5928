//! The binaries of a recording: found by what they were built from, wherever a file of that build id is. What has the same
//! path here may be another version, and a process of the same number is another process: neither is looked at. Where the
//! recording does not tell the build id, a file of the same inode that was not changed since is the same file.

use std::{
    collections::HashMap,
    fmt::Write,
    fs::{File, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Reason,
    elf::Elf,
    maps::Backing,
    process::{FileKey, Known},
    vdso,
};
use crate::sys::file;

/// What is known of a recording's binaries.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Build ids by path, as the recording has them for the binaries that samples are in.
    pub build_ids: HashMap<PathBuf, Arc<[u8]>>,
    /// Where perf keeps copies of binaries: `~/.debug`.
    pub cache: Option<PathBuf>,
    /// When it began, or some time before that, in ns since the Unix epoch; `None` where that is not known, and where it is
    /// of another machine.
    pub begin: Option<i64>,
}

impl Recorded {
    /// The build id of a mapping's file. That of a path is not the one of a file that had been removed there before.
    fn build_id(&self, known: &Known) -> Option<Arc<[u8]>> {
        let key = &known.file.key;
        key.build_id.as_deref().map(Arc::from).or_else(|| self.build_ids.get(Path::new(&*known.file.dso)).cloned())
    }

    /// Opens the binary of a mapping.
    pub(super) fn open(&self, known: &Known) -> Result<Elf, Reason> {
        let shown = known.file.dso.to_string();
        let Some(build_id) = self.build_id(known) else {
            let Some(file) = self.same_file(&known.file.key) else { return Err(Reason::NoBuildId { path: shown }) };
            return Elf::of_file(file).map_err(|error| Reason::Damaged { path: shown, error: error.to_string() });
        };
        if known.file.backing == Backing::Vdso {
            let own = vdso::read()?;
            let same = own.build_id.as_deref() == Some(&*build_id);
            return if same { Ok(own) } else { Err(Reason::NotHere { path: shown, build_id: hex(&build_id) }) };
        }
        let found = self.places(&known.file.key.path, &build_id).into_iter().find_map(|path| {
            let elf = Elf::open(&path).ok()?;
            (elf.build_id.as_deref() == Some(&*build_id)).then_some(elf)
        });
        found.ok_or_else(|| Reason::NotHere { path: shown, build_id: hex(&build_id) })
    }

    /// The very file that was mapped, if it is at its path and nothing was written to it since the recording began. Some file
    /// systems show other numbers in memory maps than `stat` does: that proves nothing.
    fn same_file(&self, key: &FileKey) -> Option<File> {
        let begin = self.begin?;
        if key.inode == 0 || key.deleted {
            return None;
        }
        let file = file::open_regular(&key.path).ok()?;
        let metadata = file.metadata().ok()?;
        let device = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
        let is_it = (device, metadata.ino()) == (key.device, key.inode) && changed_by(&metadata) < i128::from(begin);
        // 0 where the recorder had it from the text of the maps.
        let again = |generation| key.generation != 0 && u64::from(generation) != key.generation;
        (is_it && !file::generation(&file).is_some_and(again)).then_some(file)
    }

    /// Where a binary may be: at its path, in perf's cache, among the debug files of distributions.
    fn places(&self, path: &Path, build_id: &[u8]) -> Vec<PathBuf> {
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

    /// perf's copy of a kernel's symbol list, by the kernel's build id.
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

/// When a file was changed at the latest. The clock of files goes on with each tick, of which there are 100 a second at
/// least; a time without fractions may be of a file system that keeps no more than every second one.
fn changed_by(file: &Metadata) -> i128 {
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
        processes::{Processes, Whose},
    };

    /// It had the names of the file that was put in its place.
    #[test]
    fn a_file_that_was_removed_is_not_the_one_that_has_its_path() {
        let path = std::env::current_exe().unwrap();
        let build_id: Arc<[u8]> = Elf::open(&path).unwrap().build_id.unwrap().to_vec().into();
        let open = |deleted, listed: &str, own: Option<&[u8]>| {
            let recorded =
                Recorded { build_ids: HashMap::from([(listed.into(), build_id.clone())]), ..Recorded::default() };
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
            let known = Processes::new(Whose::Recorded).mmap(7, 1, &mapping).unwrap();
            recorded.open(&known).map(|_| ()).map_err(|reason| reason.to_string())
        };
        let shown = path.display().to_string();
        let removed = format!("{shown} (deleted)");
        assert_eq!(open(false, &shown, None), Ok(()));
        assert!(open(true, &shown, None).unwrap_err().contains(&removed));
        // What was built from the same is the same.
        assert_eq!(open(true, &removed, None), Ok(()));
        assert_eq!(open(true, "/x", Some(&build_id)), Ok(()));
        assert!(open(true, &shown, Some(&[7; 20])).is_err());
    }

    #[test]
    fn a_file_is_the_same_by_its_numbers_and_its_age_only() {
        let path = std::env::current_exe().unwrap();
        let file = File::open(&path).unwrap();
        let metadata = file.metadata().unwrap();
        let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
        let changed = i64::try_from(changed_by(&metadata)).unwrap();
        let is_same = |(major, minor): (u32, u32), inode, generation: Option<u32>, deleted, begin| {
            let generation = generation.map_or(0, u64::from);
            let key =
                FileKey { path: path.clone(), device: (major, minor), inode, generation, build_id: None, deleted };
            Recorded { begin, ..Recorded::default() }.same_file(&key).is_some()
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
