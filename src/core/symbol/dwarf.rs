//! Finds the functions and source lines of an address in DWARF, including inlined functions. Does not search for files.

use std::sync::Arc;

use addr2line::Context;
use gimli::{EndianArcSlice, RunTimeEndian, SectionId};
use object::Endianness;

use super::elf::{Elf, ElfError};

type Reader = EndianArcSlice<RunTimeEndian>;

/// The DWARF of a file.
pub struct Dwarf {
    pub(super) context: Context<Reader>,
    bytes: usize,
}

/// A function that contains an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DwarfFrame {
    /// The mangled name. If DWARF does not have the mangled name, the name in the source.
    pub name: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line number; 0 for code that belongs to no line.
    pub line: Option<u32>,
    /// The address at which the function's code starts. If the code has several parts, the start of the part that
    /// contains the address.
    pub start: Option<u64>,
}

/// The maximum number of frames that are returned for an address. Undamaged DWARF has fewer inlined functions per
/// address.
const DEPTH: usize = 256;

impl Dwarf {
    /// Returns whether the file has DWARF.
    pub fn is_in(elf: &Elf) -> bool {
        elf.section(".debug_info").is_some()
    }

    /// Returns the decompressed size of the file's debug sections in bytes.
    pub fn expected_bytes(elf: &Elf) -> u64 {
        let debug = elf.sections.iter().filter(|section| section.name.starts_with(".debug_"));
        debug.map(|section| section.uncompressed_size()).fold(0, u64::saturating_add)
    }

    /// Reads the debug sections of `elf`. `shared` is the file with debug information that `elf` shares with other
    /// files, if there is such a file. Its debug sections are read too.
    pub fn read(elf: &Elf, shared: Option<&Elf>) -> Result<Self, DwarfError> {
        let mut bytes = 0;
        let mut load = |elf: &Elf, id: SectionId| -> Result<Reader, DwarfError> {
            let data = elf.section(id.name()).map(|section| elf.data(section)).transpose()?.unwrap_or_default();
            bytes += data.len();
            let order = if elf.endian == Endianness::Little { RunTimeEndian::Little } else { RunTimeEndian::Big };
            Ok(Reader::new(Arc::from(data), order))
        };
        let mut dwarf = gimli::Dwarf::load(|id| load(elf, id))?;
        if let Some(shared) = shared {
            dwarf.load_sup(|id| load(shared, id))?;
        }
        Ok(Self { context: Context::from_dwarf(dwarf)?, bytes })
    }

    /// Returns the memory that debug sections of this size take, in bytes. The parsed data needs half of the size in
    /// addition, as measured on large binaries.
    pub fn in_memory(sections: u64) -> u64 {
        sections.saturating_add(sections / 2)
    }

    /// Returns the memory that is used, in bytes.
    pub fn bytes(&self) -> usize {
        Self::in_memory(self.bytes as u64) as usize
    }

    /// Returns the functions that contain an address, innermost first. Each function except the last one is inlined
    /// into the next one.
    pub fn frames(&self, address: u64) -> Vec<DwarfFrame> {
        let mut frames = Vec::new();
        // `addr2line` searches the range from `address` to `address + 1`, which does not exist for the last address.
        if address == u64::MAX {
            return frames;
        }
        let Ok(mut found) = self.context.find_frames(address).skip_all_loads() else { return frames };
        while let Ok(Some(frame)) = found.next() {
            let name = frame.function.as_ref().and_then(|function| Some(function.raw_name().ok()?.into_owned()));
            let (file, line) = frame.location.map_or((None, None), |place| (place.file.map(str::to_owned), place.line));
            let start = frame.dw_die_offset.and_then(|die| self.start(address, die));
            frames.push(DwarfFrame { name, file, line, start });
            if frames.len() == DEPTH {
                break;
            }
        }
        frames
    }
}

impl Dwarf {
    /// Returns the address at which a function's code starts. If the code has several parts, returns the start of the
    /// part that contains `address`.
    fn start(&self, address: u64, die: gimli::UnitOffset) -> Option<u64> {
        let unit = self.context.find_dwarf_and_unit(address).skip_all_loads()?;
        let entry = unit.entry(die).ok()?;
        let mut ranges = unit.die_ranges(&entry).ok()?;
        while let Ok(Some(range)) = ranges.next() {
            if range.begin <= address && address < range.end {
                return Some(range.begin);
            }
        }
        None
    }
}

impl std::fmt::Debug for Dwarf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dwarf").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Why DWARF cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DwarfError {
    /// The file cannot be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The DWARF data is damaged.
    #[error("damaged DWARF: {0}")]
    Damaged(gimli::Error),
}

impl From<gimli::Error> for DwarfError {
    fn from(error: gimli::Error) -> Self {
        Self::Damaged(error)
    }
}
