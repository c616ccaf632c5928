//! Files with interpreters.

use std::{path::Path, sync::Arc};

use rustc_hash::FxHashMap;

use super::python::{Build, NotSupported};
use crate::symbol::{
    Mapping,
    elf::{Elf, Segment, address_of},
    open::{MappedRange, open_mapped},
};

/// The most files whose interpreters are kept.
const MOST_FILES: usize = 1 << 12;

/// The interpreters of files.
#[derive(Default)]
pub struct Files(FxHashMap<FileKey, InterpreterFile>);

/// The device of a file, and its inode.
type FileKey = ((u32, u32), u64);

/// What a file has.
#[derive(Clone)]
struct InterpreterFile {
    build: Result<Arc<Build>, NotSupported>,
    segments: Arc<[Segment]>,
}

/// An interpreter in a process.
pub struct MappedInterpreter {
    pub build: Arc<Build>,
    /// The distance between addresses in the process and in the file.
    pub bias: u64,
}

impl Files {
    /// Returns the interpreter in a mapping of a process. `None` if the file is not known yet.
    pub fn known(&self, mapping: &Mapping) -> Option<Result<MappedInterpreter, NotSupported>> {
        let file = self.0.get(&(mapping.device, mapping.inode)).filter(|_| mapping.inode != 0)?;
        Some(file.at(mapping))
    }

    /// Returns the interpreter in a mapping of a process, and opens the file if it is not known yet. `None` if the process has ended, or
    /// the file cannot be read.
    pub fn find(&mut self, pid: u32, mapping: &Mapping) -> Option<Result<MappedInterpreter, NotSupported>> {
        if let Some(known) = self.known(mapping) {
            return Some(known);
        }
        let Mapping { start, end, inode, ref path, .. } = *mapping;
        let opened = open_mapped(pid, &MappedRange { start, end, path, inode }).ok()?;
        let elf = Elf::of_file(opened.file).ok()?;
        let shown = opened.root.join(path.strip_prefix("/").unwrap_or(path));
        let build = Build::of(&elf, if opened.root.as_os_str().is_empty() { path } else { &shown }).map(Arc::new);
        let file = InterpreterFile { build, segments: elf.segments.into() };
        let found = file.at(mapping);
        if self.0.len() >= MOST_FILES {
            self.0.clear();
        }
        self.0.insert((mapping.device, inode), file);
        Some(found)
    }
}

impl InterpreterFile {
    fn at(&self, mapping: &Mapping) -> Result<MappedInterpreter, NotSupported> {
        let build = self.build.clone()?;
        let address = address_of(&self.segments, mapping.file_offset).ok_or(NotSupported::NoInterpreter)?;
        Ok(MappedInterpreter { build, bias: mapping.start.wrapping_sub(address) })
    }
}

/// Returns whether a file may have an interpreter, by its name.
pub fn may_have_interpreter(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("python") || name.starts_with("libpython")
}
