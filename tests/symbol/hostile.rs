//! Files that were made to waste perf-prof's time or memory, because a traced program can be any file. Each file is
//! written here, byte by byte. The tests measure the memory and the number of reads, and not the time.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use perf_prof_symbols::symbol::{
    AddressKind, Mapping, Options, Symbolizer,
    dwarf::{Dwarf, DwarfError},
    elf::{DebugSearch, Elf, ElfError, NAME_LIMIT, Symbols, debug_file, functions, mini_debug_info},
};
use tempfile::{TempDir, tempdir};

use crate::harness::{compile::tool, memory};

const MIB: usize = 1 << 20;
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOTE: u32 = 7;
const DYNSYM: u32 = 11;
const VERSYM: u32 = 0x6fff_ffff;
const COMPRESSED: u64 = 0x800;
const CODE: u64 = 6;

/// A section of a file.
#[derive(Clone, Default)]
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    address: u64,
    link: u32,
    bytes: Vec<u8>,
    /// The size in the header, if it differs from the true size.
    claimed: Option<u64>,
}

fn section(name: &'static str, kind: u32, bytes: impl Into<Vec<u8>>) -> Section {
    Section { name, kind, bytes: bytes.into(), ..Section::default() }
}

/// Returns code at 0x1000, which is the first section of most files.
fn code() -> Section {
    Section { flags: CODE, address: 0x1000, ..section(".text", PROGBITS, [0x90; 64]) }
}

/// Returns an x86-64 file with these sections, numbered from 1, and one segment with code.
fn elf(sections: &[Section]) -> Vec<u8> {
    let mut names = vec![0];
    let mut all = sections.to_vec();
    all.push(section(".shstrtab", STRTAB, []));
    let at: Vec<usize> = all
        .iter()
        .map(|section| {
            let at = names.len();
            names.extend(section.name.bytes().chain([0]));
            at
        })
        .collect();
    all.last_mut().unwrap().bytes = names;
    let mut file = vec![0; 64 + 56];
    let mut headers = vec![0; 64];
    for (section, name) in all.iter().zip(at) {
        let words: [u64; 4] =
            [section.flags, section.address, file.len() as u64, section.claimed.unwrap_or(section.bytes.len() as u64)];
        headers.extend([name as u32, section.kind].iter().flat_map(|word| word.to_le_bytes()));
        headers.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        headers.extend([section.link, 0].iter().flat_map(|word| word.to_le_bytes()));
        headers.extend([8u64, 24].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(&section.bytes);
        file.resize(file.len().next_multiple_of(8), 0);
    }
    let header = header(file.len() as u64, all.len() as u16 + 1, all.len() as u16);
    file[..64].copy_from_slice(&header);
    // A segment with code, which covers the whole file.
    file[64..72].copy_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
    let segment: [u64; 6] = [0, 0, 0, 1 << 40, 1 << 40, 0x1000];
    file[72..120].copy_from_slice(&segment.map(u64::to_le_bytes).concat());
    file.extend(headers);
    file
}

/// Returns the header of a file with section headers at `at`.
fn header(at: u64, sections: u16, names: u16) -> [u8; 64] {
    let mut header = [0; 64];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    header[16..24].copy_from_slice(&[3, 0, 62, 0, 1, 0, 0, 0]);
    header[32] = 64;
    header[40..48].copy_from_slice(&at.to_le_bytes());
    for (place, value) in [(52, 64), (54, 56), (56, 1), (58, 64), (60, sections), (62, names)] {
        header[place..place + 2].copy_from_slice(&value.to_le_bytes());
    }
    header
}

/// Returns the symbol of a function in section 1. `name` is the offset of its name.
fn symbol(name: u32, address: u64) -> Vec<u8> {
    [&name.to_le_bytes()[..], &[0x12, 0, 1, 0], &address.to_le_bytes(), &16u64.to_le_bytes()].concat()
}

/// Returns a file with `count` functions at one address. Their names are suffixes of one name of a MiB.
fn one_long_name(count: u32) -> Vec<u8> {
    let symbols: Vec<u8> = (0..count).flat_map(|at| symbol(1 + at % (MIB as u32 / 2), 0x1000)).collect();
    let names = [vec![0], vec![b'n'; MIB], vec![0]].concat();
    elf(&[code(), Section { link: 3, ..section(".symtab", SYMTAB, symbols) }, section(".strtab", STRTAB, names)])
}

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Makes a file longer without using disk space.
fn lengthen(path: &Path, size: u64) {
    File::options().write(true).open(path).unwrap().set_len(size).unwrap();
}

/// Returns the contents of a compressed section (`Elf64_Chdr` and a zstd frame). `claimed` is the size in the header.
fn compressed(bytes: &[u8], claimed: u64) -> Vec<u8> {
    let mut section = [2u32, 0].map(u32::to_le_bytes).concat();
    section.extend([claimed, 1].map(u64::to_le_bytes).concat());
    section.extend(zstd::bulk::compress(bytes, 3).unwrap());
    section
}

#[test]
fn many_functions_may_share_a_long_name() {
    let bytes = one_long_name(43_690);
    let size = bytes.len();
    let elf = Elf::of_bytes(bytes.into()).unwrap();
    let (symbols, peak, _) = memory::of(|| Symbols::read(&[&elf], 4 * MIB));
    let symbols = symbols.unwrap();
    let found = symbols.lookup(0x1004).unwrap();
    // The longest of equally good names is used, and cut.
    assert_eq!((symbols.len(), found.name.len()), (1, NAME_LIMIT));
    assert!(peak <= 3 * size, "{peak} for a file of {size}");
}

#[test]
fn names_of_functions_to_probe_are_bounded() {
    let folder = tempdir().unwrap();
    let path = write(&folder, "names", &one_long_name(43_690));
    let (found, peak, after) = memory::of(|| functions(&path).map(|functions| functions.len()));
    assert!(found.unwrap_err().to_string().contains("which is more than perf-prof reads"));
    assert!(peak <= 300 * MIB && after < MIB, "{peak} {after}");
}

#[test]
fn names_of_results_count_against_the_cache() {
    let folder = tempdir().unwrap();
    let symbols: Vec<u8> = (0..4000).flat_map(|at: u32| symbol(1 + at, 0x1000 + 16 * u64::from(at))).collect();
    let names = [vec![0], vec![b'n'; MIB], vec![0]].concat();
    let table = Section { link: 3, ..section(".symtab", SYMTAB, symbols) };
    let path = write(&folder, "names", &elf(&[code(), table, section(".strtab", STRTAB, names)]));
    let cache = 32 * MIB;
    let (symbolizer, peak, _) = memory::of(|| {
        let mut symbolizer = Symbolizer::new(Options { cache_bytes: cache, ..Options::default() });
        symbolizer.mmap(7, 1, &mapping(&path, 0));
        for at in 0..4000 {
            let found = symbolizer.user(7, START + 0x1000 + 16 * at, 2, AddressKind::Instruction);
            assert_eq!(found.symbol.as_ref().unwrap().name.len(), NAME_LIMIT, "{at}");
        }
        symbolizer
    });
    assert!(symbolizer.bytes() <= cache && peak <= cache + cache / 2, "{} {peak}", symbolizer.bytes());
}

const START: u64 = 0x7000_0000_0000;

/// Returns the mapping of a whole file.
fn mapping(path: &Path, number: u64) -> Mapping {
    let metadata = fs::metadata(path).unwrap();
    Mapping {
        start: START + (number << 32),
        end: START + (number << 32) + (1 << 31),
        file_offset: 0,
        device: (0, 0),
        inode: metadata.ino(),
        generation: 0,
        path: path.to_owned(),
        deleted: false,
        executable: true,
        build_id: None,
    }
}

#[test]
fn a_debug_file_without_end_is_not_read() {
    let folder = tempdir().unwrap();
    let link = [&b"debug\0\0\0"[..], &7u32.to_le_bytes()].concat();
    let path = write(&folder, "stripped", &elf(&[code(), section(".gnu_debuglink", PROGBITS, link)]));
    let debug = write(&folder, "debug", &elf(&[code()]));
    lengthen(&debug, 1 << 43);
    let stripped = Elf::open(&path).unwrap();
    assert!(debug_file(&stripped, &path, &DebugSearch::default()).is_none());
    // The checksum ends when the caller gives up, and before the file exceeds the caller's limit.
    let debug = Elf::open(&debug).unwrap();
    let mut asked = 0;
    let mut give_up = || {
        asked += 1;
        asked == 5
    };
    assert_eq!(debug.crc32(1 << 50, &mut give_up), Err(ElfError::Interrupted));
    assert_eq!((debug.crc32(1 << 42, &mut give_up), asked), (Err(ElfError::TooLarge(1 << 43)), 5));
}

#[test]
fn compressed_symbols_count_as_what_they_become() {
    let symbols = vec![0; 256 * MIB];
    let packed = compressed(&symbols, symbols.len() as u64);
    assert!(packed.len() < MIB);
    let of = |claimed: u64, bytes: &[u8]| {
        let table = Section { flags: COMPRESSED, link: 3, ..section(".symtab", SYMTAB, compressed(bytes, claimed)) };
        Elf::of_bytes(elf(&[code(), table, section(".strtab", STRTAB, [0])]).into()).unwrap()
    };
    let large = of(symbols.len() as u64, &symbols);
    let (read, peak, _) = memory::of(|| Symbols::read(&[&large], 16 * MIB).map(|_| ()));
    assert!(matches!(read, Err(ElfError::TooLarge(bytes)) if bytes > 256 << 20), "{read:?}");
    assert!(peak < MIB, "{peak}");
    // The header states a smaller size than the actual one.
    let liar = of(24, &symbols);
    let (read, peak, _) = memory::of(|| Symbols::read(&[&liar], 16 * MIB).map(|symbols| symbols.len()));
    assert!(read.is_err() && peak <= 16 * MIB, "{read:?} {peak}");
    let small = of(48, &[vec![0; 24], symbol(0, 0x1000)].concat());
    assert!(Symbols::read(&[&small], 16 * MIB).is_ok());
}

/// Creates a file of a few KiB on the disk, whose header states `count` sections.
fn many_sections(folder: &TempDir, name: &str, count: u64) -> PathBuf {
    let path = write(folder, name, &header(4096, 0, 0));
    let file = File::options().write(true).open(&path).unwrap();
    // If there are many sections, their number is in the first section header.
    file.write_all_at(&count.to_le_bytes(), 4096 + 32).unwrap();
    lengthen(&path, 4096 + 64 * count);
    path
}

#[test]
fn headers_of_sections_are_bounded() {
    let folder = tempdir().unwrap();
    let path = many_sections(&folder, "million", 1_000_000);
    assert!(fs::metadata(&path).unwrap().blocks() * 512 < 64 << 10);
    let (opened, peak, _) = memory::of(|| Elf::open(&path).map(|_| ()));
    assert!(matches!(opened, Err(ElfError::Malformed(_))), "{opened:?}");
    assert!(peak < MIB, "{peak}");
}

#[test]
fn headers_of_all_files_together_count_against_the_cache() {
    let folder = tempdir().unwrap();
    let cache = 32 * MIB;
    let (symbolizer, peak, _) = memory::of(|| {
        let mut symbolizer = Symbolizer::new(Options { cache_bytes: cache, ..Options::default() });
        for number in 0..12 {
            let path = many_sections(&folder, &number.to_string(), 60_000);
            assert!(Elf::open(&path).unwrap().bytes() > 4 * MIB);
            symbolizer.mmap(7, 1 + number, &mapping(&path, number));
        }
        symbolizer
    });
    assert!(symbolizer.bytes() <= cache, "{}", symbolizer.bytes());
    // While a file is opened, its headers are in memory twice.
    assert!(peak <= cache + 16 * MIB, "{peak}");
}

#[test]
fn a_section_that_claims_a_gibibyte_is_not_read() {
    let folder = tempdir().unwrap();
    let claimed = |mut section: Section| {
        section.claimed = Some(1 << 30);
        section
    };
    let link = [&b"debug\0\0\0"[..], &7u32.to_le_bytes()].concat();
    let symbols = Section { link: 3, ..section(".dynsym", DYNSYM, [vec![0; 24], symbol(1, 0x1000)].concat()) };
    let sections = [
        code(),
        symbols,
        section(".dynstr", STRTAB, *b"\0f\0"),
        claimed(section(".gnu.version", VERSYM, [0; 4])),
        claimed(section(".gnu_debuglink", PROGBITS, link)),
        claimed(section(".gnu_debugdata", PROGBITS, [0; 64])),
        claimed(section(".gnu_debugaltlink", PROGBITS, *b"x\0\x01\x02\x03")),
        claimed(section(".note.a", NOTE, [0; 64])),
        claimed(section(".rela.dyn", 4, [0; 64])),
        claimed(Section { flags: CODE, ..section(".plt", PROGBITS, [0; 64]) }),
        claimed(section(".debug_info", PROGBITS, [0; 64])),
    ];
    let path = write(&folder, "claims", &elf(&sections));
    lengthen(&path, 2 << 30);
    // The last section header, which describes the section names, states this size too.
    let size = elf(&sections).len() as u64;
    File::options().write(true).open(&path).unwrap().write_all_at(&(1u64 << 30).to_le_bytes(), size - 32).unwrap();
    let ((elf, symbols), peak, _) = memory::of(|| {
        let elf = Elf::open(&path).unwrap();
        let symbols = Symbols::read(&[&elf], 16 * MIB).unwrap();
        assert!(debug_file(&elf, &path, &DebugSearch::default()).is_none());
        assert!(mini_debug_info(&elf, 16 * MIB).unwrap().is_err());
        assert!(matches!(Dwarf::read(&elf, None, 16 * MIB), Err(DwarfError::Elf(ElfError::TooLarge(_)))));
        (elf, symbols)
    });
    assert_eq!((elf.sections[1].name.as_ref(), symbols.lookup(0x1001).unwrap().name), (".text", &b"f"[..]));
    assert!(peak < 4 * MIB, "{peak}");
}

#[test]
fn notes_are_read_once_whatever_refers_to_them() {
    let notes = vec![0; MIB];
    let mut sections = vec![code()];
    sections.push(section(".note", NOTE, notes));
    sections.extend((0..2000).map(|_| Section { claimed: Some(MIB as u64 - 8), ..section(".n", NOTE, [0; 8]) }));
    let folder = tempdir().unwrap();
    let path = write(&folder, "notes", &elf(&sections));
    lengthen(&path, 4 << 20);
    let (_, peak, _) = memory::of(|| Elf::open(&path).unwrap());
    assert!(peak < 4 * MIB, "{peak}");
}

/// The contents of a file's DWARF 4 sections: abbreviations, units, lines.
#[derive(Default)]
struct Debug {
    abbreviations: Vec<u8>,
    info: Vec<u8>,
    line: Vec<u8>,
    ranges: Vec<u8>,
}

impl Debug {
    /// Adds a unit with these entries.
    fn unit(&mut self, abbreviations: u32, entries: &[u8]) {
        self.info.extend((7 + entries.len() as u32).to_le_bytes());
        self.info.extend([4, 0]);
        self.info.extend(abbreviations.to_le_bytes());
        self.info.push(8);
        self.info.extend(entries);
    }

    fn elf(&self) -> Elf {
        let sections = [
            code(),
            section(".debug_abbrev", PROGBITS, self.abbreviations.clone()),
            section(".debug_info", PROGBITS, self.info.clone()),
            section(".debug_line", PROGBITS, self.line.clone()),
            section(".debug_ranges", PROGBITS, self.ranges.clone()),
        ];
        Elf::of_bytes(elf(&sections).into()).unwrap()
    }

    /// Looks up an address of the units. Returns the error, the peak memory, and the memory that the DWARF object
    /// reports.
    fn ask(&self, limit: usize) -> (Option<DwarfError>, usize, usize) {
        let elf = self.elf();
        let ((error, own), peak, _) = memory::of(|| match Dwarf::read(&elf, None, limit) {
            Ok(dwarf) => {
                let found = dwarf.frames(0x8000);
                (found.err(), dwarf.bytes())
            }
            Err(error) => (Some(error), 0),
        });
        (error, peak, own)
    }
}

/// The abbreviation of a unit. Its attributes are the line program, the first address, and the size.
const UNIT: &[u8] = &[1, 0x11, 1, 0x10, 0x17, 0x11, 0x01, 0x12, 0x07, 0, 0];

fn unit_entry(line: u32) -> Vec<u8> {
    [&[1][..], &line.to_le_bytes(), &0x1000u64.to_le_bytes(), &0x10_0000u64.to_le_bytes()].concat()
}

/// Returns a line program with this number of rows, from 0x1000 on.
fn line_program(rows: usize) -> Vec<u8> {
    // The fields are: minimum instruction length, operations per instruction, is_stmt, line base, line range, first
    // special opcode, lengths of the standard opcodes, no folders, one file.
    let mut body = vec![1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0];
    body.extend(b"f.c\0\0\0\0\0");
    let mut text = vec![4, 0];
    text.extend((body.len() as u32).to_le_bytes());
    text.extend(body);
    text.extend([0, 9, 2]);
    text.extend(0x1000u64.to_le_bytes());
    // Each special opcode advances by an address and makes a row.
    text.resize(text.len() + rows, 13 + 5 + 14);
    text.extend([0, 1, 1]);
    [&(text.len() as u32).to_le_bytes()[..], &text].concat()
}

#[test]
fn units_that_share_a_line_program_take_no_more_than_the_limit() {
    let mut debug = Debug { abbreviations: [UNIT, &[0]].concat(), ..Debug::default() };
    debug.line = line_program(20_000);
    // Some units contain no address, so their lines are read to find their addresses.
    for _ in 0..2000 {
        debug.unit(0, &unit_entry(0));
    }
    let (error, peak, own) = debug.ask(16 * MIB);
    assert_eq!(error, Some(DwarfError::TooLarge));
    assert!(own <= 16 * MIB && peak <= 32 * MIB, "{own} {peak}");
    let without_address: &[u8] = &[1, 0x11, 0, 0x10, 0x17, 0, 0];
    let mut debug = Debug { abbreviations: [without_address, &[0]].concat(), line: debug.line, ..Debug::default() };
    for _ in 0..2000 {
        debug.unit(0, &[1, 0, 0, 0, 0]);
    }
    let (error, peak, _) = debug.ask(16 * MIB);
    assert_eq!(error, Some(DwarfError::TooLarge));
    assert!(peak <= 32 * MIB, "{peak}");
    // A few units fit into the limit.
    let mut debug = Debug { abbreviations: [UNIT, &[0]].concat(), line: line_program(20_000), ..Debug::default() };
    (0..4).for_each(|_| debug.unit(0, &unit_entry(0)));
    let (error, peak, own) = debug.ask(16 * MIB);
    assert_eq!(error, None);
    assert!(peak <= own && own <= 16 * MIB, "{own} {peak}");
}

#[test]
fn units_that_share_abbreviations_take_no_more_than_the_limit() {
    let many = (2..6000u32).flat_map(|code| [code as u8 | 0x80, (code >> 7) as u8 & 0x7f, 0x34, 0, 3, 8, 0, 0]);
    let mut debug = Debug { abbreviations: UNIT.iter().copied().chain(many).chain([0]).collect(), ..Debug::default() };
    debug.line = line_program(10);
    for _ in 0..2000 {
        debug.unit(0, &unit_entry(0));
    }
    let (error, peak, own) = debug.ask(16 * MIB);
    assert_eq!(error, Some(DwarfError::TooLarge));
    assert!(own <= 16 * MIB && peak <= 32 * MIB, "{own} {peak}");
}

#[test]
fn functions_that_share_ranges_take_no_more_than_the_limit() {
    // A function with ranges, and an inlined function with ranges.
    let ranged: &[u8] = &[2, 0x2e, 0, 0x55, 0x17, 0, 0, 3, 0x1d, 0, 0x55, 0x17, 0, 0, 4, 0x2e, 1, 0x55, 0x17, 0, 0];
    let mut unit = UNIT.to_vec();
    unit[2] = 1;
    let ranges: Vec<u8> =
        (0..10_000u64).flat_map(|at| [0x1000 + 16 * at, 0x1010 + 16 * at]).flat_map(u64::to_le_bytes).collect();
    let ranges = [ranges, vec![0; 16]].concat();
    let begin = |inner: &[u8]| [&unit_entry(0)[..], inner].concat();
    for entries in
        [begin(&[2, 0, 0, 0, 0].repeat(2000)), begin(&[&[4, 0, 0, 0, 0], &[3, 0, 0, 0, 0].repeat(2000)[..]].concat())]
    {
        let mut debug = Debug { abbreviations: [&unit, ranged, &[0]].concat(), ..Debug::default() };
        (debug.line, debug.ranges) = (line_program(10), ranges.clone());
        debug.unit(0, &entries);
        let (error, peak, own) = debug.ask(16 * MIB);
        assert_eq!(error, Some(DwarfError::TooLarge));
        assert!(own <= 16 * MIB && peak <= 32 * MIB, "{own} {peak}");
    }
}

/// Inlined functions are read recursively, so deep nesting would overflow the stack.
#[test]
fn inlined_functions_are_not_nested_without_end() {
    let inlined: &[u8] = &[2, 0x2e, 1, 0x11, 0x01, 0x12, 0x07, 0, 0, 3, 0x1d, 1, 0x59, 0x0b, 0, 0];
    let mut unit = UNIT.to_vec();
    unit[2] = 1;
    let mut debug =
        Debug { abbreviations: [&unit, inlined, &[0]].concat(), line: line_program(10), ..Debug::default() };
    let function = [&[2][..], &0x1000u64.to_le_bytes(), &0x10_0000u64.to_le_bytes()].concat();
    debug.unit(0, &[unit_entry(0), function, [3, 0].repeat(1_000_000)].concat());
    let (error, ..) = debug.ask(512 * MIB);
    assert_eq!(error, Some(DwarfError::Malformed("inlined functions are nested too deep")));
}

#[test]
fn strings_of_debug_information_are_not_read_without_end() {
    let named: &[u8] = &[2, 0x2e, 0, 0x03, 0x08, 0, 0];
    let mut unit = UNIT.to_vec();
    unit[2] = 1;
    let mut debug = Debug { abbreviations: [&unit, named, &[0]].concat(), line: line_program(10), ..Debug::default() };
    debug.unit(0, &[unit_entry(0), vec![2], vec![b'n'; MIB], vec![0]].concat());
    let (error, ..) = debug.ask(16 * MIB);
    assert_eq!(error, Some(DwarfError::Malformed("a name is too long")));
}

/// The memory for decompression is bounded, and so is the decompressed size.
#[test]
fn compressed_debug_data_becomes_no_more_than_the_limit() {
    let folder = tempdir().unwrap();
    let path = write(&folder, "zeros", &vec![0; 64 * MIB]);
    tool("xz", &[path.to_str().unwrap()]);
    let packed = fs::read(path.with_extension("xz")).unwrap();
    let elf = Elf::of_bytes(elf(&[code(), section(".gnu_debugdata", PROGBITS, packed)]).into()).unwrap();
    let (read, peak, _) = memory::of(|| mini_debug_info(&elf, 4 * MIB).unwrap().map(|_| ()));
    assert!(matches!(read, Err(ElfError::TooLarge(_))), "{read:?}");
    assert!(peak <= 12 * MIB, "{peak}");
}
