//! The functions of a file, in an array that is sorted by address. This module does not search for files.
//!
//! Tables are read and not mapped, because truncating a mapped file causes SIGBUS. Names stay in the file's string
//! tables, and for each function an entry of 16 bytes refers to its name. 145,000 functions of a library of 200 MB take
//! 0.1 s and 22 MiB. DWARF is read only for lines or inlined functions, or if the file contains no symbols. Each table
//! is read only if it fits into the limit.

use object::{
    Endianness,
    elf::{self, Sym32, Sym64},
    read::elf::Sym,
};

use super::{
    super::options::Data,
    Elf, ElfError,
    interrupt::Interrupt,
    names::{NameAt, NameLengths, until_nul},
    plt,
};

/// Functions by address.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Sorted by address; one entry per address.
    entries: Vec<Entry>,
    /// The less often used properties of the entries, in the order of `entries`.
    marks: Vec<Mark>,
    /// The string tables. The names in `entries` are offsets into them.
    names: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    /// The size of the function in bytes. A size of 4 GiB or more is stored as `u32::MAX`, because no function is that
    /// large.
    size: u32,
    name: NameAt,
}

/// The function that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionAt<'a> {
    /// The name as the linker knows it.
    pub name: &'a [u8],
    /// The address at which the function starts.
    pub start: u64,
    /// The address after the function's end. If the symbol table states no size, the function extends to the next
    /// function, even beyond the end of its section. perf extends it in the same way (`symbols__fixup_end()` in
    /// `tools/perf/util/symbol.c`).
    pub end: u64,
    /// The function's binding in the symbol table: STB_LOCAL, STB_GLOBAL or STB_WEAK.
    pub binding: elf::SymbolBind,
    /// The function's index in the table. Callers can use it to store data for each function.
    pub index: u32,
}

/// The properties of an entry that are needed less often than its range and name.
#[derive(Clone, Copy, Debug)]
struct Mark {
    binding: elf::SymbolBind,
    size: SizeSource,
}

/// Where the size of an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizeSource {
    /// The symbol table states the size.
    Table,
    /// The start of the next symbol, because the symbol table states the size 0.
    NextSymbol,
    /// The entry comes from the procedure linkage table and not from a symbol table.
    Linkage,
}

/// The page size to which perf rounds up the end of a file's last symbol, if the symbol has no size.
const PAGE: u64 = 4096;

/// A symbol that may become an entry of the table.
pub(super) struct Candidate {
    pub start: u64,
    pub size: u64,
    /// The address at which the symbol's section ends.
    pub limit: u64,
    name: NameAt,
    typed: bool,
    /// True if the function only chooses an implementation when a program starts (STT_GNU_IFUNC).
    pub chooses: bool,
    /// True if only programs that were linked with an earlier version of the file call the function.
    pub superseded: bool,
    binding: elf::SymbolBind,
    source: SizeSource,
}

impl Symbols {
    /// Reads the symbols of the files that belong to one binary: the file itself, its debug file, its `.gnu_debugdata`.
    /// Fails if the symbols may take more than `limit` bytes. While the symbols are read, they take up to three times
    /// as much.
    pub fn read(parts: &[&Elf], limit: usize) -> Result<Self, ElfError> {
        Self::read_with(parts, limit, Data::No)
    }

    /// Like [`Symbols::read`]. With `Data::Yes`, reads the symbols of data too.
    pub fn read_with(parts: &[&Elf], limit: usize, data: Data) -> Result<Self, ElfError> {
        let expected = Self::expected_bytes(parts);
        if expected > limit as u64 {
            return Err(ElfError::TooLarge(expected));
        }
        let interrupt = Interrupt::begin();
        let mut candidates = Vec::new();
        let mut names = Vec::new();
        let mut wrong = None;
        for part in parts {
            for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
                match RawTable::read(part, kind, limit as u64) {
                    Ok(Some(table)) if names.len() < 3 => {
                        table.add_candidates(part, names.len(), data, &interrupt, &mut candidates)?;
                        names.push(table.names);
                    }
                    Ok(_) => {}
                    Err(error) => wrong = Some(error),
                }
            }
        }
        if let Some(main) = parts.first() {
            let plt = plt::entries(main, limit as u64, limit.saturating_sub(expected as usize));
            for (start, size, name) in plt.entries {
                let Some(name) = NameAt::new(names.len(), name) else { break };
                candidates.push(Candidate {
                    start,
                    size,
                    limit: start.saturating_add(size),
                    name,
                    typed: true,
                    chooses: false,
                    superseded: false,
                    binding: elf::STB_GLOBAL,
                    source: SizeSource::Linkage,
                });
            }
            names.push(plt.names);
        }
        match wrong {
            Some(error) if candidates.is_empty() => Err(error),
            _ => Self::from_candidates(candidates, names, &interrupt),
        }
    }

    fn from_candidates(
        mut candidates: Vec<Candidate>,
        names: Vec<Vec<u8>>,
        interrupt: &Interrupt,
    ) -> Result<Self, ElfError> {
        // The sort is stable: among equally good symbols, the first one in the file is chosen.
        candidates.sort_by_key(|candidate| candidate.start);
        let mut entries: Vec<Entry> = Vec::with_capacity(candidates.len());
        let mut marks: Vec<Mark> = Vec::with_capacity(candidates.len());
        let mut lengths = NameLengths::new(&names);
        let mut rest = &candidates[..];
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|other| other.start == first.start).count();
            let (aliases, after) = rest.split_at(same);
            let best = aliases[1..]
                .iter()
                .fold(first, |best, other| if is_better_name(other, best, &mut lengths) { other } else { best });
            // A symbol without a size, for example from assembler code, extends to the next symbol.
            let next = after.first().map_or(best.limit, |next| next.start.min(best.limit));
            let size = if best.size == 0 { next.saturating_sub(best.start) } else { best.size };
            entries.push(Entry { start: best.start, size: u32::try_from(size).unwrap_or(u32::MAX), name: best.name });
            marks.push(Mark { binding: best.binding, size: best.source });
            rest = after;
            if entries.len().is_multiple_of(CHECK_EVERY) && interrupt.is_requested() {
                return Err(ElfError::Interrupted);
            }
        }
        entries.shrink_to_fit();
        marks.shrink_to_fit();
        Ok(Self { entries, marks, names })
    }

    /// Returns whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Iterates over all functions in the order of their addresses.
    pub fn iter(&self) -> impl Iterator<Item = FunctionAt<'_>> {
        self.entries.iter().enumerate().map(|(index, entry)| self.function(index, entry))
    }

    /// Returns the maximum memory that the symbols of these files can take, in bytes. The section headers are enough to
    /// compute it.
    pub fn expected_bytes(parts: &[&Elf]) -> u64 {
        let tables = parts.iter().flat_map(|part| part.sections.iter().map(move |section| (part, section)));
        let tables = tables.filter(|(_, section)| section.kind == elf::SHT_SYMTAB || section.kind == elf::SHT_DYNSYM);
        let size = |(part, section): (&&Elf, &super::Section)| {
            let names = part.sections.get(section.link).map_or(0, super::Section::uncompressed_size);
            section.uncompressed_size().saturating_add(names)
        };
        tables.map(size).fold(0, u64::saturating_add)
    }

    /// Returns the memory that is used, in bytes.
    pub fn bytes(&self) -> usize {
        let tables = self.entries.capacity() * size_of::<Entry>() + self.marks.capacity() * size_of::<Mark>();
        tables + self.names.iter().map(Vec::capacity).sum::<usize>()
    }

    /// Returns the function that contains an address.
    pub fn lookup(&self, address: u64) -> Option<FunctionAt<'_>> {
        let next = self.entries.partition_point(|entry| entry.start <= address);
        // The last entry that starts at or before `address` may be a label inside a function, and may end before
        // `address`. So earlier entries are checked too, but only a limited number. Otherwise the search for an address
        // in a gap of a large file would walk through all entries.
        let before = self.entries[..next].iter().enumerate().rev().take(NESTED);
        let (index, entry) = before.into_iter().find(|(_, entry)| address - entry.start < u64::from(entry.size))?;
        Some(self.function(index, entry))
    }

    fn function(&self, index: usize, entry: &Entry) -> FunctionAt<'_> {
        let mark = self.marks.get(index).copied();
        let end = match mark.map(|mark| mark.size) {
            Some(SizeSource::NextSymbol) => {
                // perf computes the sizes before it adds the entries of the procedure linkage table, so these entries
                // do not end a symbol.
                let mut after = self.entries.iter().zip(&self.marks).skip(index + 1);
                let next = after.find(|(_, mark)| mark.size != SizeSource::Linkage);
                next.map(|(next, _)| next.start)
                    .unwrap_or_else(|| entry.start.next_multiple_of(PAGE).saturating_add(PAGE))
            }
            _ => entry.start.saturating_add(entry.size.into()),
        };
        FunctionAt {
            name: entry.name.bytes(&self.names),
            start: entry.start,
            end,
            binding: mark.map_or(elf::STB_LOCAL, |mark| mark.binding),
            index: index as u32,
        }
    }
}

/// The maximum number of entries that `lookup` checks.
const NESTED: usize = 16;

/// Returns whether `one` is a better name for an address than `other`. The rules follow perf, so users see the same
/// names as in perf (choose_best_symbol() in tools/perf/util/symbol.c). These properties make a symbol better, the most
/// important one first: it has a size, has a type, is not weak, is global, has fewer leading underscores, has a longer
/// name.
fn is_better_name(one: &Candidate, other: &Candidate, names: &mut NameLengths<'_>) -> bool {
    let rank = |candidate: &Candidate| {
        let binding = candidate.binding;
        // Before perf chooses among the symbols at an address, it extends the last of these symbols to the next symbol
        // (`symbols__fixup_end()`). In data, the extended symbol is often a symbol at the end of a section.
        let is_object = candidate.limit == u64::MAX && candidate.typed;
        (candidate.size > 0 || is_object, candidate.typed, binding != elf::STB_WEAK, binding == elf::STB_GLOBAL)
    };
    let mut order = rank(one).cmp(&rank(other));
    if order.is_eq() {
        order = names.underscores(other.name).cmp(&names.underscores(one.name));
    }
    if order.is_eq() {
        order = names.length(one.name).cmp(&names.length(other.name));
    }
    order.is_gt()
}

/// The number of symbols that are read between two checks whether the user asked perf-prof to end.
const CHECK_EVERY: usize = 1 << 16;

/// The contents of a symbol table in a file.
pub(super) struct RawTable {
    symbols: Vec<u8>,
    /// The names of the symbols.
    pub names: Vec<u8>,
    /// The versions of the symbols, two bytes each; empty if the symbols have no versions.
    versions: Vec<u8>,
}

impl RawTable {
    /// Reads the file's symbol table of this kind (SHT_SYMTAB or SHT_DYNSYM), if it has one. Fails if the symbols or
    /// their names take more than `limit` bytes.
    pub fn read(elf: &Elf, kind: elf::SectionType, limit: u64) -> Result<Option<Self>, ElfError> {
        let Some(section) = elf.sections.iter().find(|section| section.kind == kind) else { return Ok(None) };
        let Some(strings) = elf.sections.get(section.link) else {
            return Err(ElfError::Malformed("a symbol table has no string table"));
        };
        let versions = elf.sections.iter().find(|section| section.kind == elf::SHT_GNU_VERSYM);
        let symbols = elf.data(section, limit)?;
        // The table of versions contains two bytes for each symbol. If it cannot be read, no symbol counts as
        // superseded.
        let versions_limit = (symbols.len() / size_of::<Sym32<Endianness>>() * 2) as u64;
        let versions = versions.filter(|_| kind == elf::SHT_DYNSYM);
        let versions = versions.and_then(|section| elf.data(section, versions_limit).ok()).unwrap_or_default();
        Ok(Some(Self { symbols, names: elf.data(strings, limit)?, versions }))
    }

    /// Adds the functions and code labels in the table to `candidates`. `number` is the number of the table's names in
    /// [`NameAt`].
    pub fn add_candidates(
        &self,
        elf: &Elf,
        number: usize,
        data: Data,
        interrupt: &Interrupt,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), ElfError> {
        match elf.is_64 {
            true => self.add_candidates_of_size::<Sym64<Endianness>>(elf, number, data, interrupt, candidates),
            false => self.add_candidates_of_size::<Sym32<Endianness>>(elf, number, data, interrupt, candidates),
        }
    }

    /// Returns the name of the symbol with this index. Relocations refer to symbols by index.
    pub fn name(&self, elf: &Elf, index: usize) -> Option<&[u8]> {
        let at = match elf.is_64 {
            true => self.slice::<Sym64<Endianness>>().get(index)?.st_name(elf.endian),
            false => self.slice::<Sym32<Endianness>>().get(index)?.st_name(elf.endian),
        };
        Some(until_nul(self.names.get(at as usize..)?))
    }

    fn is_superseded(&self, elf: &Elf, index: usize) -> bool {
        let bytes = self.versions.get(index * 2..).and_then(|rest| rest.first_chunk());
        let version = bytes.map(|&bytes: &[u8; 2]| match elf.endian {
            Endianness::Little => u16::from_le_bytes(bytes),
            Endianness::Big => u16::from_be_bytes(bytes),
        });
        version.is_some_and(|version| version & elf::VERSYM_HIDDEN.0 != 0)
    }

    /// Returns the name of a candidate of this table.
    pub fn name_of(&self, candidate: &Candidate) -> &[u8] {
        candidate.name.bytes(std::slice::from_ref(&self.names))
    }

    fn slice<S: object::Pod>(&self) -> &[S] {
        object::slice_from_bytes(&self.symbols, self.symbols.len() / size_of::<S>()).map_or(&[], |(symbols, _)| symbols)
    }

    fn add_candidates_of_size<S: Sym<Endian = Endianness> + object::Pod>(
        &self,
        elf: &Elf,
        number: usize,
        data: Data,
        interrupt: &Interrupt,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), ElfError> {
        let symbols = self.slice::<S>();
        candidates.reserve_exact(symbols.len());
        for (index, symbol) in symbols.iter().enumerate() {
            if index.is_multiple_of(CHECK_EVERY) && interrupt.is_requested() {
                return Err(ElfError::Interrupted);
            }
            let kind = symbol.st_type();
            let typed = kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC;
            let is_object = kind == elf::STT_OBJECT && data == Data::Yes;
            if !typed && kind != elf::STT_NOTYPE && !is_object {
                continue;
            }
            let Some(section) = elf.sections.get(usize::from(symbol.st_shndx(elf.endian).0)) else { continue };
            // A label without a type counts as data if the name of its section contains `data`, as in perf
            // (`elf_sec__filter()` in `tools/perf/util/symbol-elf.c`).
            let is_data = data == Data::Yes && section.loaded && (is_object || section.name.contains("data"));
            if !(section.executable || is_data) || section.kind == elf::SHT_NULL {
                continue;
            }
            let Some(name) = NameAt::new(number, symbol.st_name(elf.endian)) else { continue };
            // Labels for the assembler are no functions. For example, `$x` and `$d` mark code and data on arm.
            let first = self.names.get(name.offset());
            if matches!(first, None | Some(0)) || (!typed && matches!(first, Some(b'$' | b'.'))) {
                continue;
            }
            let mut start: u64 = symbol.st_value(elf.endian).into();
            // The lowest bit of a function's address on arm marks Thumb code. It is not part of the address.
            if elf.machine == elf::EM_ARM && typed {
                start &= !1;
            }
            candidates.push(Candidate {
                start,
                size: symbol.st_size(elf.endian).into(),
                // Data has no limit, because a label at the end of a data section may name the data after it.
                limit: if is_data { u64::MAX } else { section.address.saturating_add(section.size) },
                name,
                typed: typed || is_object,
                chooses: kind == elf::STT_GNU_IFUNC,
                superseded: self.is_superseded(elf, index),
                binding: symbol.st_bind(),
                source: if symbol.st_size(elf.endian).into() == 0 { SizeSource::NextSymbol } else { SizeSource::Table },
            });
        }
        Ok(())
    }
}
