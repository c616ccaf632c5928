//! Reads build ids. The build ids of the kernel and its modules come from sysfs; all others come from the files that
//! processes map.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use perf_prof_recordings::write::BuildId;
use perf_prof_symbols::{
    running_kernel::{build_id_in_notes, running_build_id},
    symbol::{Mapping, elf::Elf},
};

/// Returns the build id of the running kernel.
pub fn of_kernel() -> Option<BuildId> {
    running_build_id().map(Into::into)
}

/// Returns the build id of a loaded module.
pub fn of_module(name: &str) -> Option<BuildId> {
    let notes = fs::read(format!("/sys/module/{name}/notes/.note.gnu.build-id")).ok()?;
    build_id_in_notes(&notes).map(Into::into)
}

/// Returns the build id of an ELF file.
pub fn of_file(path: &Path) -> Option<BuildId> {
    Elf::open(path).ok()?.build_id.map(|id| (*id).into())
}

/// The build ids of the files that processes map, by device and inode. Each file is read only once.
#[derive(Debug, Default)]
pub struct MappedFileBuildIds(HashMap<((u32, u32), u64), Option<BuildId>>);

impl MappedFileBuildIds {
    /// Returns the build id of the file that a process has mapped.
    pub fn find(&mut self, pid: u32, mapping: &Mapping) -> Option<BuildId> {
        let found = self.0.entry((mapping.device, mapping.inode)).or_insert_with(|| {
            // This link leads to the mapped file, even if another file is at its path now. Only processes with
            // CAP_SYS_ADMIN can read the link.
            let link = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
            let by_path = || {
                let path = mapping.path.strip_prefix("/").ok().filter(|_| !mapping.deleted)?;
                of_file(&PathBuf::from(format!("/proc/{pid}/root")).join(path))
            };
            of_file(Path::new(&link)).or_else(by_path)
        });
        found.clone()
    }
}
