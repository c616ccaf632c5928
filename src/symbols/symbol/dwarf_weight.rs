//! Weighs DWARF: computes how much memory `addr2line` will take for it, before `addr2line` reads the DWARF.
//!
//! Any number of units and functions may refer to the same abbreviations, ranges, line programs and strings, and
//! `addr2line` copies these for each reference. So a file of a few KiB may take gigabytes, and the size of its sections
//! is no bound. Everything that `addr2line` reads has a weight, so a limit on the weight also bounds the time that
//! reading takes.

use std::cell::Cell;

use gimli::{AttributeValue, EndianArcSlice, Reader as _, RunTimeEndian, Section, UnitHeader};

/// The contents of a DWARF section.
pub(super) type Bytes = EndianArcSlice<RunTimeEndian>;
type Dwarf = gimli::Dwarf<Bytes>;
type Unit = gimli::Unit<Bytes>;

/// Why DWARF could not be weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WeightError {
    /// The DWARF weighs more than the limit.
    TooHeavy,
    /// The DWARF is damaged.
    Damaged(gimli::Error),
    /// A string is longer than `elf::NAME_LIMIT`.
    LongString,
    /// Inlined functions are nested deeper than `NESTING_LIMIT`. `addr2line` reads them recursively.
    TooDeep,
}

impl From<gimli::Error> for WeightError {
    fn from(error: gimli::Error) -> Self {
        Self::Damaged(error)
    }
}

/// The maximum number of inlined functions that are nested in each other.
const NESTING_LIMIT: usize = 256;
/// The memory in bytes for a range of addresses: an entry in a list of `addr2line`, and an entry in a list here.
const RANGE: usize = 80;
/// The memory in bytes for a row of a line program.
const ROW: usize = 32;
/// The memory in bytes for a function or an inlined function.
const FUNCTION: usize = 320;
/// The memory in bytes for an abbreviation, without its attributes.
const ABBREVIATION: usize = 256;
/// The memory in bytes for an attribute of an abbreviation.
const ATTRIBUTE: usize = 32;
/// The memory in bytes for a unit, without the data that it refers to.
const UNIT: usize = 2 * size_of::<Unit>() + 512;

/// The weight of a file's DWARF.
#[derive(Debug)]
pub(super) struct Weight {
    units: Vec<UnitWeight>,
    ranges: Vec<UnitRange>,
    total: Cell<usize>,
    limit: usize,
    /// The weight of a function with its names. It includes a part of the longest string, because `addr2line` may copy
    /// a name for each function that refers to it.
    name: usize,
}

#[derive(Debug)]
struct UnitWeight {
    header: UnitHeader<Bytes>,
    /// Whether the unit's lines are already part of the total. `functions` says the same about its functions.
    lines: Cell<bool>,
    functions: Cell<bool>,
}

/// A range of addresses that a unit may describe. The ranges are sorted by their ends.
#[derive(Clone, Copy, Debug)]
struct UnitRange {
    begin: u64,
    end: u64,
    /// The lowest `begin` of this range and of all ranges after it.
    lowest: u64,
    unit: usize,
}

impl Weight {
    /// Weighs the data that `addr2line` reads at the start: the units and their ranges. Fails if this data weighs more
    /// than `limit`.
    pub fn new(dwarf: &Dwarf, limit: usize) -> Result<Self, WeightError> {
        let longest = [longest_string(&dwarf.debug_str), longest_string(&dwarf.debug_line_str)];
        let longest = longest.into_iter().max().unwrap_or(0).max(longest_string(&dwarf.debug_info));
        if longest > super::elf::NAME_LIMIT {
            return Err(WeightError::LongString);
        }
        let mut weight =
            Self { units: Vec::new(), ranges: Vec::new(), total: Cell::new(0), limit, name: FUNCTION + longest / 64 };
        if let Some(shared) = dwarf.sup() {
            let mut units = shared.units();
            while let Some(header) = units.next()? {
                weight.unit(shared, &header)?;
            }
        }
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            if matches!(header.type_(), gimli::UnitType::Type { .. } | gimli::UnitType::SplitType { .. }) {
                continue;
            }
            let unit = weight.unit(dwarf, &header)?;
            let number = weight.units.len();
            weight.units.push(UnitWeight { header, lines: Cell::new(false), functions: Cell::new(false) });
            if let Some(unit) = unit {
                weight.add_ranges(dwarf, &unit, number)?;
            }
        }
        weight.add_address_table(dwarf)?;
        weight.ranges.sort_unstable_by_key(|range| range.end);
        let mut lowest = u64::MAX;
        for range in weight.ranges.iter_mut().rev() {
            lowest = lowest.min(range.begin);
            range.lowest = lowest;
        }
        Ok(weight)
    }

    /// Returns the weight of everything that was read so far, in bytes.
    pub fn total(&self) -> usize {
        self.total.get()
    }

    /// Weighs the functions and lines of all units that may describe `address`. Must be called before `addr2line` reads
    /// these units.
    pub fn add_address(&self, dwarf: &Dwarf, address: u64) -> Result<(), WeightError> {
        let first = self.ranges.partition_point(|range| range.end <= address);
        for range in self.ranges[first..].iter().take_while(|range| range.lowest <= address) {
            let unit = &self.units[range.unit];
            if range.begin > address || unit.lines.get() && unit.functions.get() {
                continue;
            }
            // The headers of the line program and the abbreviations were weighed already.
            let parsed = dwarf.unit(unit.header.clone())?;
            if !unit.lines.get() {
                self.add_lines(dwarf, &parsed)?;
                unit.lines.set(true);
            }
            if !unit.functions.get() {
                self.add_functions(dwarf, &parsed)?;
                unit.functions.set(true);
            }
        }
        Ok(())
    }

    fn add(&self, bytes: usize) -> Result<(), WeightError> {
        let total = self.total.get().saturating_add(bytes);
        if total > self.limit {
            return Err(WeightError::TooHeavy);
        }
        self.total.set(total);
        Ok(())
    }

    /// Weighs the parts of a unit that `addr2line` reads together with the unit's header. Returns the unit if it can be
    /// read.
    fn unit(&self, dwarf: &Dwarf, header: &UnitHeader<Bytes>) -> Result<Option<Unit>, WeightError> {
        self.add(UNIT)?;
        let mut abbreviations = dwarf.debug_abbrev.reader().clone();
        if abbreviations.skip(header.debug_abbrev_offset().0).is_err() {
            return Ok(None);
        }
        if self.add_abbreviations(&mut abbreviations)? == Parsed::No {
            return Ok(None);
        }
        let Ok(abbreviations) = dwarf.abbreviations(header) else { return Ok(None) };
        let mut entries = header.entries(&abbreviations);
        let Ok(Some(root)) = entries.next_dfs() else { return Ok(None) };
        if let Some(AttributeValue::DebugLineRef(at)) = root.attr_value(gimli::DW_AT_stmt_list)
            && let Some(length) = line_header_length(dwarf.debug_line.reader(), at.0)
        {
            // Each file and directory takes at least one byte of the header. So the size of the header bounds the
            // number of files and directories before the header is read. After the header was read, their actual number
            // is counted.
            let most = length.saturating_mul(size_of::<gimli::FileEntry<Bytes>>());
            if self.total.get().saturating_add(most) > self.limit {
                return Err(WeightError::TooHeavy);
            }
            self.add(length)?;
        }
        let Ok(unit) = dwarf.unit(header.clone()) else { return Ok(None) };
        if let Some(program) = &unit.line_program {
            let (header, name) = (program.header(), size_of::<AttributeValue<Bytes>>());
            self.add(2 * header.include_directories().len() * name)?;
            self.add(2 * header.file_names().len() * size_of::<gimli::FileEntry<Bytes>>())?;
        }
        Ok(Some(unit))
    }

    /// Weighs a table of abbreviations (DWARF 5, 7.5.3).
    fn add_abbreviations(&self, input: &mut Bytes) -> Result<Parsed, WeightError> {
        loop {
            match input.read_uleb128() {
                Ok(0) => return Ok(Parsed::Yes),
                Ok(_) => self.add(ABBREVIATION)?,
                Err(_) => return Ok(Parsed::No),
            }
            // Skips the tag, and the byte that says whether the entry has children.
            if input.read_uleb128().and_then(|_| input.read_u8()).is_err() {
                return Ok(Parsed::No);
            }
            loop {
                let (Ok(name), Ok(form)) = (input.read_uleb128(), input.read_uleb128()) else { return Ok(Parsed::No) };
                if form == u64::from(gimli::DW_FORM_implicit_const.0) && input.read_sleb128().is_err() {
                    return Ok(Parsed::No);
                }
                if (name, form) == (0, 0) {
                    break;
                }
                self.add(ATTRIBUTE)?;
            }
        }
    }

    /// Adds the address ranges of a unit. If the unit has no ranges, `addr2line` takes them from the unit's line
    /// program.
    fn add_ranges(&mut self, dwarf: &Dwarf, unit: &Unit, number: usize) -> Result<(), WeightError> {
        let mut entries = unit.entries();
        let Ok(Some(root)) = entries.next_dfs() else { return Ok(()) };
        if let Some(value) = root.attr_value(gimli::DW_AT_ranges) {
            self.add_range_list(dwarf, unit, value)?;
        }
        let before = self.ranges.len();
        if let Ok(mut ranges) = dwarf.die_ranges(unit, root) {
            while let Ok(Some(range)) = ranges.next() {
                self.add_range(range.begin, range.end, number)?;
            }
        }
        if self.ranges.len() > before {
            return Ok(());
        }
        self.add_lines(dwarf, unit)?;
        self.units[number].lines.set(true);
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let mut rows = program.rows();
        let mut begin = None;
        while let Ok(Some((_, row))) = rows.next_row() {
            let start = *begin.get_or_insert(row.address());
            if row.end_sequence() {
                self.add_range(start, row.address(), number)?;
                begin = None;
            }
        }
        Ok(())
    }

    /// Adds the address ranges of all units that `.debug_aranges` lists.
    fn add_address_table(&mut self, dwarf: &Dwarf) -> Result<(), WeightError> {
        let mut headers = dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            self.add(RANGE)?;
            let offset = header.debug_info_offset();
            let Ok(unit) = self.units.binary_search_by_key(&Some(offset), |unit| unit.header.debug_info_offset())
            else {
                continue;
            };
            let mut entries = header.entries();
            // A damaged entry is skipped.
            loop {
                match entries.next() {
                    Ok(Some(entry)) => self.add_range(entry.range().begin, entry.range().end, unit)?,
                    Ok(None) => break,
                    Err(_) => self.add(RANGE)?,
                }
            }
        }
        Ok(())
    }

    fn add_range(&mut self, begin: u64, end: u64, unit: usize) -> Result<(), WeightError> {
        self.add(RANGE)?;
        if begin < end {
            self.ranges.push(UnitRange { begin, end, lowest: 0, unit });
        }
        Ok(())
    }

    /// Weighs a list of ranges.
    fn add_range_list(&self, dwarf: &Dwarf, unit: &Unit, value: AttributeValue<Bytes>) -> Result<(), WeightError> {
        let Ok(Some(offset)) = dwarf.attr_ranges_offset(unit, value) else { return Ok(()) };
        let Ok(mut list) = dwarf.raw_ranges(unit, offset) else { return Ok(()) };
        while let Ok(Some(_)) = list.next() {
            self.add(RANGE)?;
        }
        Ok(())
    }

    /// Weighs the lines of a unit: the rows of its line program, and the paths of its files.
    fn add_lines(&self, dwarf: &Dwarf, unit: &Unit) -> Result<(), WeightError> {
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let header = program.header();
        // The instructions of the program are weighed too, because instructions without a row also take time.
        self.add(header.raw_program_buf().len() / 4)?;
        let length = |value: Option<AttributeValue<Bytes>>| {
            value.and_then(|value| Some(dwarf.attr_string(unit, value).ok()?.len())).unwrap_or(0)
        };
        let folder = unit.comp_dir.as_ref().map_or(0, |folder| folder.len());
        for file in header.file_names() {
            self.add(folder + length(file.directory(header)) + length(Some(file.path_name())) + 64)?;
        }
        let mut rows = program.rows();
        while let Ok(Some(_)) = rows.next_row() {
            self.add(ROW)?;
        }
        Ok(())
    }

    /// Weighs the functions of a unit, and the functions that are inlined into them.
    fn add_functions(&self, dwarf: &Dwarf, unit: &Unit) -> Result<(), WeightError> {
        let mut entries = unit.entries_raw(None)?;
        // The depths of the inlined functions that contain the current entry.
        let mut nested: Vec<isize> = Vec::new();
        let mut attributes = 0;
        while !entries.is_empty() {
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            // Attributes are weighed too. An attribute may take no bytes in the entry, but reading it takes time.
            attributes += abbreviation.attributes().len();
            if attributes >= 64 {
                self.add(std::mem::take(&mut attributes) / 64)?;
            }
            while nested.pop_if(|outer| *outer >= depth).is_some() {}
            match abbreviation.tag() {
                gimli::DW_TAG_inlined_subroutine => nested.push(depth),
                gimli::DW_TAG_subprogram => {}
                _ => {
                    entries.skip_attributes(abbreviation.attributes())?;
                    continue;
                }
            }
            if nested.len() > NESTING_LIMIT {
                return Err(WeightError::TooDeep);
            }
            self.add(self.name)?;
            for &attribute in abbreviation.attributes() {
                let attribute = entries.read_attribute(attribute)?;
                if attribute.name() == gimli::DW_AT_ranges {
                    self.add_range_list(dwarf, unit, attribute.value())?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a table could be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parsed {
    Yes,
    No,
}

/// Returns the length of the longest string that the section may contain, in bytes.
fn longest_string(section: &impl Section<Bytes>) -> usize {
    let bytes = section.reader().bytes();
    bytes.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(0)
}

/// Returns the size of the line program's header at the offset `at`, in bytes (DWARF 5, 6.2.4).
fn line_header_length(section: &Bytes, at: usize) -> Option<usize> {
    let mut input = section.clone();
    input.skip(at).ok()?;
    let (_, format) = input.read_initial_length().ok()?;
    if input.read_u16().ok()? >= 5 {
        // Skips the sizes of addresses and of segment selectors.
        input.skip(2).ok()?;
    }
    let length = input.read_offset(format).ok()?;
    Some(length.min(input.len()))
}
