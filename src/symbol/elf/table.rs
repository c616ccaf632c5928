//! The functions of a file by address: a sorted array whose names stay where they are in the file's string tables. Knows
//! nothing of where the file is.

use object::{
    Endianness,
    elf::{self, Sym32, Sym64},
    read::elf::Sym,
};

use super::{Elf, ElfError, plt};

/// Functions by address.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Ascending, one per address.
    entries: Vec<Entry>,
    /// String tables; names are offsets into them.
    names: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    /// Larger ones are cut: no function has 4 GiB.
    size: u32,
    name: NameAt,
}

/// Which string table, in the upper bits, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NameAt(u32);

/// Bits of `NameAt` for the place; string tables are at most that large (`SECTION_LIMIT` in file.rs).
const PLACE_BITS: u32 = 30;

impl NameAt {
    fn new(table: usize, at: u32) -> Option<Self> {
        (table < 4 && at >> PLACE_BITS == 0).then_some(Self((table as u32) << PLACE_BITS | at))
    }

    fn of(self, tables: &[Vec<u8>]) -> &[u8] {
        let rest = tables.get((self.0 >> PLACE_BITS) as usize);
        let rest = rest.and_then(|table| table.get((self.0 & ((1 << PLACE_BITS) - 1)) as usize..)).unwrap_or_default();
        &rest[..rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len())]
    }
}

/// A function that an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// Its name as the linker knows it.
    pub name: &'a [u8],
    /// Where it begins.
    pub start: u64,
    /// Its number, for what is kept by function.
    pub index: u32,
}

/// A symbol on its way into the table.
pub(super) struct Candidate {
    pub start: u64,
    pub size: u64,
    /// Where the section ends that it is in.
    pub limit: u64,
    name: NameAt,
    typed: bool,
    /// Whether it is no function but chooses one when a program starts (STT_GNU_IFUNC).
    pub chooses: bool,
    /// Whether it is the function for programs that were linked with an earlier version of it.
    pub superseded: bool,
    binding: elf::SymbolBind,
}

impl Symbols {
    /// Reads the symbols of files that are one binary: itself, its debug file, its `.gnu_debugdata`.
    pub fn read(parts: &[&Elf]) -> Result<Self, ElfError> {
        let mut candidates = Vec::new();
        let mut names = Vec::new();
        let mut wrong = None;
        for part in parts {
            for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
                match RawTable::read(part, kind) {
                    Ok(Some(table)) if names.len() < 3 => {
                        candidates.extend(table.candidates(part, names.len()));
                        names.push(table.names);
                    }
                    Ok(_) => {}
                    Err(error) => wrong = Some(error),
                }
            }
        }
        if let Some(main) = parts.first() {
            let mut text = Vec::new();
            for (start, size, name) in plt::entries(main) {
                let Some(at) = NameAt::new(names.len(), text.len() as u32) else { break };
                text.extend_from_slice(&name);
                text.push(0);
                let limit = start.saturating_add(size);
                candidates.push(Candidate {
                    start,
                    size,
                    limit,
                    name: at,
                    typed: true,
                    chooses: false,
                    superseded: false,
                    binding: elf::STB_LOCAL,
                });
            }
            names.push(text);
        }
        match wrong {
            Some(error) if candidates.is_empty() => Err(error),
            _ => Ok(Self::of(candidates, names)),
        }
    }

    fn of(mut candidates: Vec<Candidate>, names: Vec<Vec<u8>>) -> Self {
        // Stable: among equals the first of the file stays.
        candidates.sort_by_key(|candidate| candidate.start);
        let mut entries: Vec<Entry> = Vec::with_capacity(candidates.len());
        let mut rest = &candidates[..];
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|other| other.start == first.start).count();
            let (aliases, after) = rest.split_at(same);
            let best =
                aliases[1..].iter().fold(first, |best, other| if better(other, best, &names) { other } else { best });
            // What states no size (written in assembler) reaches up to what comes next.
            let next = after.first().map_or(best.limit, |next| next.start.min(best.limit));
            let size = if best.size == 0 { next.saturating_sub(best.start) } else { best.size };
            entries.push(Entry { start: best.start, size: u32::try_from(size).unwrap_or(u32::MAX), name: best.name });
            rest = after;
        }
        entries.shrink_to_fit();
        Self { entries, names }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// All functions by address.
    pub fn iter(&self) -> impl Iterator<Item = Found<'_>> {
        let found = |(index, entry): (usize, &Entry)| (entry.start, entry.name, index as u32);
        self.entries.iter().enumerate().map(found).map(|(start, name, index)| Found {
            name: name.of(&self.names),
            start,
            index,
        })
    }

    /// What reading the symbols of such files takes at most, as far as their headers tell.
    pub fn expected_bytes(parts: &[&Elf]) -> u64 {
        let tables = parts.iter().flat_map(|part| part.sections.iter().map(move |section| (part, section)));
        let tables = tables.filter(|(_, section)| section.kind == elf::SHT_SYMTAB || section.kind == elf::SHT_DYNSYM);
        let size = |(part, section): (&&Elf, &super::Section)| {
            section.size.saturating_add(part.sections.get(section.link).map_or(0, |names| names.size))
        };
        tables.map(size).fold(0, u64::saturating_add)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.names.iter().map(Vec::capacity).sum::<usize>()
    }

    /// The function that an address is in.
    pub fn lookup(&self, address: u64) -> Option<Found<'_>> {
        let next = self.entries.partition_point(|entry| entry.start <= address);
        // A label inside a function ends before the function does: then a symbol further ahead is the one. How far is
        // bounded, so that an address in a gap of a large file costs no walk through all of it.
        let before = self.entries[..next].iter().enumerate().rev().take(NESTED);
        let (index, entry) = before.into_iter().find(|(_, entry)| address - entry.start < u64::from(entry.size))?;
        Some(Found { name: entry.name.of(&self.names), start: entry.start, index: index as u32 })
    }
}

/// How many symbols may begin inside a function and end before the address that is looked up in it.
const NESTED: usize = 16;

/// Whether one of two symbols of an address names it better. What `perf` prefers, so that its users find the names they
/// know (choose_best_symbol() in tools/perf/util/symbol.c): the one with a size, with a type, not weak, global, with
/// fewer leading underscores, the longer one.
fn better(one: &Candidate, other: &Candidate, names: &[Vec<u8>]) -> bool {
    let rank = |candidate: &Candidate| {
        let binding = candidate.binding;
        (candidate.size > 0, candidate.typed, binding != elf::STB_WEAK, binding == elf::STB_GLOBAL)
    };
    rank(one).cmp(&rank(other)).then_with(|| {
        let (one, other) = (one.name.of(names), other.name.of(names));
        let underscores = |name: &[u8]| name.iter().take_while(|&&byte| byte == b'_').count();
        underscores(other).cmp(&underscores(one)).then(one.len().cmp(&other.len()))
    }) == std::cmp::Ordering::Greater
}

/// A symbol table as it is in the file.
pub(super) struct RawTable {
    symbols: Vec<u8>,
    /// Its names.
    pub names: Vec<u8>,
    /// The version of each symbol that a program is linked with, two bytes each; empty where there are none.
    versions: Vec<u8>,
}

impl RawTable {
    /// The file's table of a kind, where it has one.
    pub fn read(elf: &Elf, kind: elf::SectionType) -> Result<Option<Self>, ElfError> {
        let Some(section) = elf.sections.iter().find(|section| section.kind == kind) else { return Ok(None) };
        let Some(strings) = elf.sections.get(section.link) else {
            return Err(ElfError::Malformed("a symbol table without names"));
        };
        let versions = elf.sections.iter().find(|section| section.kind == elf::SHT_GNU_VERSYM);
        // Without versions, all names are the last ones.
        let versions = versions.filter(|_| kind == elf::SHT_DYNSYM).and_then(|section| elf.data(section).ok());
        Ok(Some(Self {
            symbols: elf.data(section)?,
            names: elf.data(strings)?,
            versions: versions.unwrap_or_default(),
        }))
    }

    /// Its functions and code labels; `number` is the number that its names will have.
    pub fn candidates(&self, elf: &Elf, number: usize) -> Vec<Candidate> {
        match elf.is_64 {
            true => self.of_size::<Sym64<Endianness>>(elf, number),
            false => self.of_size::<Sym32<Endianness>>(elf, number),
        }
    }

    /// The names of its symbols by number; relocations name symbols so.
    pub fn name(&self, elf: &Elf, index: usize) -> Option<&[u8]> {
        let at = match elf.is_64 {
            true => self.slice::<Sym64<Endianness>>().get(index)?.st_name(elf.endian),
            false => self.slice::<Sym32<Endianness>>().get(index)?.st_name(elf.endian),
        };
        let rest = self.names.get(at as usize..)?;
        Some(&rest[..rest.iter().position(|&byte| byte == 0)?])
    }

    fn is_superseded(&self, elf: &Elf, index: usize) -> bool {
        let bytes = self.versions.get(index * 2..).and_then(|rest| rest.first_chunk());
        let version = bytes.map(|&bytes: &[u8; 2]| match elf.endian {
            Endianness::Little => u16::from_le_bytes(bytes),
            Endianness::Big => u16::from_be_bytes(bytes),
        });
        version.is_some_and(|version| version & elf::VERSYM_HIDDEN.0 != 0)
    }

    /// The name of a candidate of this table.
    pub fn name_of(&self, candidate: &Candidate) -> &[u8] {
        candidate.name.of(std::slice::from_ref(&self.names))
    }

    fn slice<S: object::Pod>(&self) -> &[S] {
        object::slice_from_bytes(&self.symbols, self.symbols.len() / size_of::<S>()).map_or(&[], |(symbols, _)| symbols)
    }

    fn of_size<S: Sym<Endian = Endianness> + object::Pod>(&self, elf: &Elf, number: usize) -> Vec<Candidate> {
        let symbols = self.slice::<S>();
        let mut candidates = Vec::with_capacity(symbols.len());
        for (index, symbol) in symbols.iter().enumerate() {
            let kind = symbol.st_type();
            let typed = kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC;
            if !typed && kind != elf::STT_NOTYPE {
                continue;
            }
            let Some(section) = elf.sections.get(usize::from(symbol.st_shndx(elf.endian).0)) else { continue };
            if !section.executable || section.kind == elf::SHT_NULL {
                continue;
            }
            let Some(name) = NameAt::new(number, symbol.st_name(elf.endian)) else { continue };
            // Labels that the assembler needs ($x and $d tell code from data on arm) name nothing.
            let first = self.names.get((name.0 & ((1 << PLACE_BITS) - 1)) as usize);
            if matches!(first, None | Some(0)) || (!typed && matches!(first, Some(b'$' | b'.'))) {
                continue;
            }
            let mut start: u64 = symbol.st_value(elf.endian).into();
            // The lowest bit of an arm function says that it is Thumb code.
            if elf.machine == elf::EM_ARM && typed {
                start &= !1;
            }
            candidates.push(Candidate {
                start,
                size: symbol.st_size(elf.endian).into(),
                limit: section.address.saturating_add(section.size),
                name,
                typed,
                chooses: kind == elf::STT_GNU_IFUNC,
                superseded: self.is_superseded(elf, index),
                binding: symbol.st_bind(),
            });
        }
        candidates
    }
}
