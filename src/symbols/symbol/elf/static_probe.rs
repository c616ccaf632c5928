//! Static probes of a file (USDT): the notes in its section `.note.stapsdt`, in the form that `sys/sdt.h` of SystemTap
//! writes (<https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>).

use object::{
    Endianness,
    elf::{self, FileHeader32},
    read::elf::NoteIterator,
};

use super::{Elf, ElfError, operand::Operand};

/// The maximum size of the section with the notes, in bytes. The notes of libjvm.so, which contains many probes, take
/// 36 KiB.
const NOTES_LIMIT: u64 = 1 << 20;

/// The owner (name) and the type of the notes.
const OWNER: &[u8] = b"stapsdt";
const TYPE: elf::NoteType = elf::NoteType(3);

/// A static probe at one place of a program or library. A probe may have several places, and each is a `StaticProbe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticProbe {
    /// The provider: the name for the group of all probes of the program or library.
    pub provider: String,
    /// The name of the probe.
    pub name: String,
    /// The address of the probe's instruction, as `objdump` shows it.
    pub address: u64,
    /// The address of the probe's semaphore: a counter of 16 bits. While the counter is 0, the program may skip the
    /// probe.
    pub semaphore: Option<u64>,
    /// The values that the probe passes to a tracer.
    pub arguments: Vec<StaticArgument>,
}

/// One argument of a static probe at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticArgument {
    /// The argument's text in the note, for example `-4@%eax`.
    pub text: String,
    /// The size of the value in bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether the value is a signed number.
    pub signed: bool,
    /// The location of the value. `None` if an [`Operand`] cannot express it, for example for a floating-point
    /// register.
    pub operand: Option<Operand>,
}

/// Returns the static probes of a file, in the order of its notes. Returns an empty list if the file has none.
pub fn static_probes(elf: &Elf) -> Result<Vec<StaticProbe>, ElfError> {
    let Some(section) = elf.section(".note.stapsdt") else { return Ok(Vec::new()) };
    let notes = elf.data(section, NOTES_LIMIT)?;
    // Tools such as prelink move the addresses in a file, but not the addresses in its notes. `.stapsdt.base` shows how
    // far the addresses were moved.
    let base = elf.sections.iter().find(|section| &*section.name == ".stapsdt.base").map(|section| section.address);
    read_notes(&notes, elf, base)
}

fn read_notes(notes: &[u8], elf: &Elf, base: Option<u64>) -> Result<Vec<StaticProbe>, ElfError> {
    // Notes have the same header in 32-bit and 64-bit files, so the type for 32-bit files reads the notes of both
    // kinds.
    let mut notes = NoteIterator::<FileHeader32<Endianness>>::new(elf.endian, 4, notes)?;
    let mut probes = Vec::new();
    while let Some(note) = notes.next()? {
        if note.name() == OWNER && note.n_type(elf.endian) == TYPE {
            let probe = probe(note.desc(), elf, base);
            probes.push(probe.ok_or(ElfError::Malformed("a note of a static probe is damaged"))?);
        }
    }
    Ok(probes)
}

/// Reads the description of a note: three addresses and three texts.
fn probe(contents: &[u8], elf: &Elf, base: Option<u64>) -> Option<StaticProbe> {
    let mut rest = contents;
    let (mut addresses, mut texts) = ([0; 3], [""; 3].map(str::to_owned));
    for address in &mut addresses {
        *address = take_address(&mut rest, elf)?;
    }
    for text in &mut texts {
        let end = rest.iter().position(|&byte| byte == 0)?;
        *text = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 1..];
    }
    let ([address, noted_base, semaphore], [provider, name, arguments]) = (addresses, texts);
    let moved = base.filter(|_| noted_base != 0).map_or(0, |base| base.wrapping_sub(noted_base));
    let arguments = split(&arguments).map(|text| argument(text, elf)).collect();
    let semaphore = (semaphore != 0).then(|| semaphore.wrapping_add(moved));
    Some(StaticProbe { provider, name, address: address.wrapping_add(moved), semaphore, arguments })
}

fn take_address(bytes: &mut &[u8], elf: &Elf) -> Option<u64> {
    if elf.is_64 {
        let (address, rest) = bytes.split_first_chunk::<8>()?;
        *bytes = rest;
        Some(if elf.endian == Endianness::Little { u64::from_le_bytes(*address) } else { u64::from_be_bytes(*address) })
    } else {
        let (address, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        let little = elf.endian == Endianness::Little;
        Some(u64::from(if little { u32::from_le_bytes(*address) } else { u32::from_be_bytes(*address) }))
    }
}

/// Splits the text of the arguments at blanks, but not within brackets. An AArch64 argument may contain a blank:
/// `8@[sp, 16]`.
fn split(arguments: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    let pieces = arguments.split(move |c: char| {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ' ' && depth == 0
    });
    pieces.filter(|piece| !piece.is_empty())
}

/// Parses an argument. `-4@%eax` is a signed number of 4 bytes. Arguments in old notes state no size. Their values are
/// as large as an address.
fn argument(text: &str, elf: &Elf) -> StaticArgument {
    let word = if elf.is_64 { 8 } else { 4 };
    let (size, operand) = text.split_once('@').map_or((None, text), |(size, operand)| (Some(size), operand));
    let number = size.map_or(Some(word), |size| size.trim_start_matches('-').parse().ok());
    let number = number.filter(|size| [1, 2, 4, 8].contains(size));
    // `8f` is the size of a floating-point number, which no operand can express.
    let operand = number.and_then(|_| Operand::parse(operand, elf.machine));
    let signed = size.is_some_and(|size| size.starts_with('-'));
    StaticArgument { text: text.to_owned(), size: number.unwrap_or(word), signed, operand }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::operand::Memory, *};

    /// Returns the headers of this test program, changed as if the file were a 32-bit or 64-bit file for another
    /// processor.
    fn file(is_64: bool, machine: elf::Machine) -> Elf {
        let mut elf = Elf::open(&std::env::current_exe().unwrap()).unwrap();
        (elf.is_64, elf.machine) = (is_64, machine);
        elf
    }

    /// Returns a note as the assembler writes it.
    fn note(addresses: [u64; 3], texts: [&str; 3], is_64: bool) -> Vec<u8> {
        let mut contents = Vec::new();
        for address in addresses {
            let bytes = address.to_le_bytes();
            contents.extend(if is_64 { &bytes[..] } else { &bytes[..4] });
        }
        texts.iter().for_each(|text| contents.extend([text.as_bytes(), &[0]].concat()));
        let mut note: Vec<u8> = [8u32, contents.len() as u32, 3].into_iter().flat_map(u32::to_le_bytes).collect();
        note.extend(b"stapsdt\0");
        note.extend(&contents);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    fn read(notes: &[u8], is_64: bool, base: Option<u64>) -> Result<Vec<StaticProbe>, ElfError> {
        read_notes(notes, &file(is_64, elf::EM_X86_64), base)
    }

    #[test]
    fn each_note_is_a_place_of_a_probe() {
        let texts = ["app", "start", "-4@%edi 8@16(%rsp) 1@$65 8f@%xmm0 %rax"];
        for is_64 in [true, false] {
            let notes =
                [note([0x1000, 0x9000, 0], texts, is_64), note([0x1010, 0x9000, 0x8000], ["a", "b", ""], is_64)];
            let probes = read(&notes.concat(), is_64, Some(0x9000)).unwrap();
            assert_eq!((probes[0].address, probes[0].semaphore), (0x1000, None));
            assert_eq!((probes[1].address, probes[1].semaphore, probes[1].arguments.len()), (0x1010, Some(0x8000), 0));
            let shown = |argument: &StaticArgument| (argument.size, argument.signed, argument.operand.is_some());
            let word = if is_64 { 8 } else { 4 };
            let arguments: Vec<_> = probes[0].arguments.iter().map(shown).collect();
            assert_eq!(
                arguments,
                [(4, true, true), (8, false, true), (1, false, true), (word, false, false), (word, false, true)]
            );
        }
    }

    #[test]
    fn the_notes_of_a_file_that_was_moved_have_other_addresses() {
        let notes = note([0x1000, 0x9000, 0x8000], ["a", "b", ""], true);
        let place = |base| read(&notes, true, base).map(|probes| (probes[0].address, probes[0].semaphore)).unwrap();
        assert_eq!(place(Some(0x19000)), (0x11000, Some(0x18000)));
        assert_eq!(place(Some(0x8000)), (0, Some(0x7000)));
        assert_eq!(place(None), (0x1000, Some(0x8000)));
    }

    #[test]
    fn arguments_on_aarch64_have_blanks_in_brackets() {
        assert_eq!(split("8@[sp, 16]  -4@w0 8@[x1]").collect::<Vec<_>>(), ["8@[sp, 16]", "-4@w0", "8@[x1]"]);
        let elf = file(true, elf::EM_AARCH64);
        let operand = Operand::Memory(Memory { base: Some("sp".to_owned()), offset: 16, ..Memory::default() });
        assert_eq!(argument("8@[sp, 16]", &elf).operand, Some(operand));
    }

    #[test]
    fn a_file_without_notes_has_no_probes_and_a_damaged_one_says_so() {
        assert!(static_probes(&file(true, elf::EM_X86_64)).unwrap().is_empty());
        let whole = note([1, 2, 3], ["a", "b", "8@%rax"], true);
        let short = [&8u32.to_le_bytes()[..], &4u32.to_le_bytes(), &3u32.to_le_bytes(), b"stapsdt\0", &[0; 4]].concat();
        for damaged in [&whole[..whole.len() - 8], &short] {
            assert!(matches!(read(damaged, true, None), Err(ElfError::Malformed(_))), "{damaged:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_probes_or_an_error_and_take_no_more_memory_than_the_notes(
            bytes in prop::collection::vec(any::<u8>(), 0..400), is_64: bool, base: Option<u64>,
        ) {
            if let Ok(probes) = read(&bytes, is_64, base) {
                prop_assert!(probes.len() * 20 <= bytes.len());
            }
        }

        #[test]
        fn a_note_with_any_contents_is_a_probe_or_an_error(
            contents in prop::collection::vec(any::<u8>(), 0..200), is_64: bool, base: Option<u64>,
        ) {
            let _ = probe(&contents, &file(is_64, elf::EM_X86_64), base);
        }

        #[test]
        fn what_is_written_is_read(
            addresses: [u64; 3], provider in "[a-z_]{1,9}", name in "[^\0]{0,9}", arguments in "[^\0]{0,40}",
        ) {
            let notes = note(addresses, [&provider, &name, &arguments], true);
            let probes = read(&notes.repeat(3), true, None).unwrap();
            prop_assert_eq!(probes.len(), 3);
            prop_assert_eq!((&probes[2].provider, &probes[2].name), (&provider, &name));
            prop_assert_eq!(probes[2].address, addresses[0]);
            let texts: String = probes[2].arguments.iter().map(|argument| argument.text.as_str()).collect();
            prop_assert!(texts.len() <= arguments.len());
        }
    }
}
