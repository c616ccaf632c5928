//! Reads build ids. The build ids of the kernel and its modules come from sysfs; all others come from the files that
//! processes map.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use perf_prof_recordings::write::BuildId;
use perf_prof_symbols::symbol::{Mapping, elf::Elf};

/// Returns the build id of the running kernel.
pub fn of_kernel() -> Option<BuildId> {
    in_notes(&fs::read("/sys/kernel/notes").ok()?)
}

/// Returns the build id of a loaded module.
pub fn of_module(name: &str) -> Option<BuildId> {
    in_notes(&fs::read(format!("/sys/module/{name}/notes/.note.gnu.build-id")).ok()?)
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
            // This link leads to the mapped file itself, even if another file has replaced it at its path. Only
            // processes with CAP_SYS_ADMIN can read the link.
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

/// Returns the build id in ELF notes: the description of the note with name `GNU` and type 3 (NT_GNU_BUILD_ID).
fn in_notes(mut notes: &[u8]) -> Option<BuildId> {
    loop {
        let word = |at: usize| notes.get(at..at + 4)?.first_chunk().map(|word| u32::from_ne_bytes(*word));
        let (name_size, size, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let name = notes.get(12..)?.get(..name_size)?;
        let rest = notes.get(12 + name_size.next_multiple_of(4)..)?;
        let content = rest.get(..size)?;
        if kind == 3 && name == b"GNU\0" {
            return Some(content.into());
        }
        notes = rest.get(size.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, name: &[u8], content: &[u8]) -> Vec<u8> {
        let mut note: Vec<u8> =
            [name.len() as u32, content.len() as u32, kind].iter().flat_map(|word| word.to_ne_bytes()).collect();
        for part in [name, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let notes = [note(0x100, b"Xen\0", b"abc"), note(3, b"GNU\0", &[7; 20]), note(1, b"Linux\0", &[0; 4])].concat();
        assert_eq!(in_notes(&notes).as_deref(), Some(&[7; 20][..]));
        assert_eq!(in_notes(&notes[..40]), None);
        assert_eq!(in_notes(&note(3, b"GNU", &[])), None);
        assert_eq!(in_notes(&[0xff; 64]), None);
    }
}
