//! What DWARF tells of an address: functions, inlined ones too, and lines. Knows nothing of where files are.

use std::sync::Arc;

use addr2line::Context;
use gimli::{EndianArcSlice, RunTimeEndian, SectionId};
use object::Endianness;

use super::elf::{Elf, ElfError};

type Reader = EndianArcSlice<RunTimeEndian>;

/// A file's DWARF.
pub struct Dwarf {
    context: Context<Reader>,
    bytes: usize,
}

/// A function that an address is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DwarfFrame {
    /// Its name as the linker would have it, else as the source has it.
    pub name: Option<String>,
    /// Where in the source.
    pub file: Option<String>,
    /// Which line; 0 for code that belongs to none.
    pub line: Option<u32>,
    /// Where its code begins, or the part of it that the address is in.
    pub start: Option<u64>,
}

/// More frames than that are inlined at no address.
const DEPTH: usize = 256;

impl Dwarf {
    /// Whether the file has any.
    pub fn is_in(elf: &Elf) -> bool {
        elf.section(".debug_info").is_some()
    }

    /// The bytes that it takes in the file; more in memory when it is compressed.
    pub fn expected_bytes(elf: &Elf) -> u64 {
        let debug = elf.sections.iter().filter(|section| section.name.starts_with(".debug_"));
        debug.map(|section| section.uncompressed_size()).fold(0, u64::saturating_add)
    }

    /// Reads the sections of a file, and of the one that it shares debug information in with others.
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

    /// Bytes of memory that sections of so many bytes take: half as much again for what is made of them, as seen on large
    /// binaries.
    pub fn in_memory(sections: u64) -> u64 {
        sections.saturating_add(sections / 2)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        Self::in_memory(self.bytes as u64) as usize
    }

    /// The functions that an address is in, innermost first; all but the last are inlined into the next.
    pub fn frames(&self, address: u64) -> Vec<DwarfFrame> {
        let mut frames = Vec::new();
        // `addr2line` looks for the range up to the next address, and there is none.
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
    /// Where the code of a function begins that holds an address.
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

/// DWARF cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DwarfError {
    /// The file cannot be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// It is damaged.
    #[error("damaged DWARF: {0}")]
    Damaged(gimli::Error),
}

impl From<gimli::Error> for DwarfError {
    fn from(error: gimli::Error) -> Self {
        Self::Damaged(error)
    }
}
