//! Finds the functions and source lines of an address in DWARF, including inlined functions. Does not search for files.

use std::sync::Arc;

use addr2line::Context;
use gimli::{RunTimeEndian, SectionId};
use object::Endianness;

use super::{
    dwarf_weight::{Bytes, Weight, WeightError},
    elf::{Elf, ElfError, NAME_LIMIT},
};

/// The DWARF of a file.
pub struct Dwarf {
    pub(super) context: Context<Bytes>,
    sections: Arc<gimli::Dwarf<Bytes>>,
    /// The size of the debug sections in bytes.
    bytes: usize,
    /// The weight of the units that `addr2line` has read, or will read for the next address.
    weight: Weight,
}

/// A function at an address: the function that contains the address, or a function that was inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DwarfFrame {
    /// The mangled name, or the name in the source if DWARF contains no mangled name.
    pub name: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line number; 0 for code that belongs to no line.
    pub line: Option<u32>,
    /// The address of the function's first instruction. If the function's code consists of several ranges, it is the
    /// start of the range that contains the looked-up address. `None` for inlined functions.
    pub start: Option<u64>,
}

/// The maximum number of frames that are returned for an address. Undamaged DWARF nests fewer inlined functions.
const DEPTH: usize = 256;

/// The number of bytes of parsed data that the memory limit does not count. The parsed data of a small program with a
/// single unit takes less.
const UNCOUNTED: usize = 64 << 10;

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

    /// Reads the debug sections of `elf` and of `shared`, the file with debug information that `elf` shares with other
    /// files. Fails if these sections together take more than `limit` bytes. The data that `addr2line` parses later is
    /// bounded by the same limit.
    pub fn read(elf: &Elf, shared: Option<&Elf>, limit: usize) -> Result<Self, DwarfError> {
        let mut bytes = 0;
        let mut load = |elf: &Elf, id: SectionId| -> Result<Bytes, DwarfError> {
            let room = limit.saturating_sub(bytes) as u64;
            let data = elf.section(id.name()).map(|section| elf.data(section, room)).transpose()?.unwrap_or_default();
            bytes += data.len();
            let order = if elf.endian == Endianness::Little { RunTimeEndian::Little } else { RunTimeEndian::Big };
            Ok(Bytes::new(Arc::from(data), order))
        };
        let mut dwarf = gimli::Dwarf::load(|id| load(elf, id))?;
        if let Some(shared) = shared {
            dwarf.load_sup(|id| load(shared, id))?;
        }
        let weight = Weight::new(&dwarf, limit.saturating_sub(bytes) + UNCOUNTED)?;
        let sections = Arc::new(dwarf);
        Ok(Self { context: Context::from_arc_dwarf(Arc::clone(&sections))?, sections, bytes, weight })
    }

    /// Returns the memory that debug sections of the size `sections` take, in bytes. The data that is parsed from them
    /// takes half of their size in addition, as measured with large binaries.
    pub fn in_memory(sections: u64) -> u64 {
        sections.saturating_add(sections / 2)
    }

    /// Returns the memory that is used, in bytes.
    pub fn bytes(&self) -> usize {
        let parsed = self.weight.total().saturating_sub(UNCOUNTED);
        (Self::in_memory(self.bytes as u64) as usize).max(self.bytes + parsed)
    }

    /// Checks that the data that `addr2line` parses for an address stays within the limits. Callers call it before
    /// `addr2line` parses this data.
    pub(super) fn weigh(&self, address: u64) -> Result<(), DwarfError> {
        match self.weight.add_address(&self.sections, address) {
            // Damaged DWARF is no error here, because `addr2line` stops at the damage too.
            Ok(()) | Err(WeightError::Damaged(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the functions that contain an address, innermost first. Each function except the last one is inlined
    /// into the next one. Fails if there is no memory left for the data that has to be read.
    pub fn frames(&self, address: u64) -> Result<Vec<DwarfFrame>, DwarfError> {
        let mut frames = Vec::new();
        // `addr2line` searches the range `address..address + 1`. The end of this range would overflow.
        if address == u64::MAX {
            return Ok(frames);
        }
        self.weigh(address)?;
        let Ok(mut found) = self.context.find_frames(address).skip_all_loads() else { return Ok(frames) };
        let mut outermost = None;
        while let Ok(Some(frame)) = found.next() {
            let name = frame.function.as_ref().map(|function| text(&function.name));
            let (file, line) = frame.location.map_or((None, None), |place| (place.file.map(str::to_owned), place.line));
            outermost = frame.dw_die_offset;
            frames.push(DwarfFrame { name, file, line, start: None });
            if frames.len() == DEPTH {
                break;
            }
        }
        if let Some(frame) = frames.last_mut() {
            frame.start = outermost.and_then(|die| self.start(address, die));
        }
        Ok(frames)
    }
}

/// Returns a name as text, cut to `NAME_LIMIT` bytes.
fn text(name: &Bytes) -> String {
    let bytes = name.bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(NAME_LIMIT)]).into_owned()
}

impl Dwarf {
    /// Returns the address of the function's first instruction. If its code consists of several ranges, returns the
    /// start of the range that contains `address`.
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
    /// The DWARF data was malformed on purpose: no compiler writes it in this way.
    #[error("damaged DWARF: {0}")]
    Malformed(&'static str),
    /// There is no memory left for the data that has to be read.
    #[error("the debug information is too large for the symbol cache; --symbol-cache makes it larger")]
    TooLarge,
}

impl From<WeightError> for DwarfError {
    fn from(error: WeightError) -> Self {
        match error {
            WeightError::TooHeavy => Self::TooLarge,
            WeightError::Damaged(error) => Self::Damaged(error),
            WeightError::LongString => Self::Malformed("a name is too long"),
            WeightError::TooDeep => Self::Malformed("inlined functions are nested too deep"),
        }
    }
}

impl From<gimli::Error> for DwarfError {
    fn from(error: gimli::Error) -> Self {
        Self::Damaged(error)
    }
}
