//! Finds the names of the entries in the procedure linkage table (PLT), such as `function@plt`. Supports x86-64 and
//! aarch64.

use std::collections::HashMap;

use object::{
    Endianness,
    elf::{self, Rela64},
    read::elf::Rela,
};

use super::{Elf, Section, table::RawTable};

/// The size of an entry in bytes. On x86-64, the entries of `.plt.got` may be shorter.
const ENTRY: u64 = 16;

/// The PLT entries of a file, and their names.
#[derive(Debug, Default)]
pub(super) struct PltEntries {
    /// For each entry: the address, the size in bytes, and the offset of the name in `names`.
    pub entries: Vec<(u64, u64, u32)>,
    /// The names, each with a NUL at its end.
    pub names: Vec<u8>,
}

/// The maximum size of the relocations and the code that are read, in bytes. The PLTs of the largest programs are
/// smaller.
const READ_LIMIT: u64 = 64 << 20;

/// Finds the PLT entries of a file. Symbols of more than `limit` bytes are not read. The entries and their names take
/// at most `room` bytes, and further entries are left out.
pub(super) fn entries(elf: &Elf, limit: u64, room: usize) -> PltEntries {
    if !elf.is_64 || !matches!(elf.machine, elf::EM_X86_64 | elf::EM_AARCH64) {
        return PltEntries::default();
    }
    let Ok(Some(symbols)) = RawTable::read(elf, elf::SHT_DYNSYM, limit) else { return PltEntries::default() };
    let mut budget = READ_LIMIT.min(limit);
    let slots = slots(elf, &mut budget);
    entries_with_names(elf, &symbols, &slots, &mut budget, room)
}

/// Reads a section if its size is within `budget`, and subtracts the size from `budget`. The budget is needed because
/// any number of sections may refer to the same bytes of the file.
fn read(elf: &Elf, section: &Section, budget: &mut u64) -> Option<Vec<u8>> {
    let data = elf.data(section, *budget).ok()?;
    *budget = budget.saturating_sub(section.size.max(data.len() as u64));
    Some(data)
}

/// Returns the index of the symbol for each slot. A slot is an address in the global offset table. At run time, the
/// dynamic linker stores the address of the symbol there.
fn slots(elf: &Elf, budget: &mut u64) -> HashMap<u64, u32> {
    let mut slots = HashMap::new();
    for section in elf.sections.iter().filter(|section| section.kind == elf::SHT_RELA && section.loaded) {
        let Some(bytes) = read(elf, section, budget) else { continue };
        let Ok((relocations, _)) =
            object::slice_from_bytes::<Rela64<Endianness>>(&bytes, bytes.len() / size_of::<Rela64<Endianness>>())
        else {
            continue;
        };
        for relocation in relocations {
            let kind = relocation.r_type(elf.endian, false);
            let jump = match elf.machine {
                elf::EM_X86_64 => kind == elf::R_X86_64_JUMP_SLOT || kind == elf::R_X86_64_GLOB_DAT,
                _ => kind == elf::R_AARCH64_JUMP_SLOT || kind == elf::R_AARCH64_GLOB_DAT,
            };
            if jump {
                slots.insert(relocation.r_offset(elf.endian), relocation.r_sym(elf.endian, false));
            }
        }
    }
    slots
}

/// Finds the names of the PLT entries. The jump instruction in an entry refers to a slot, and the slot determines the
/// symbol. The order of the entries does not determine the symbols, because it depends on the linker.
fn entries_with_names(
    elf: &Elf,
    symbols: &RawTable,
    slots: &HashMap<u64, u32>,
    budget: &mut u64,
    room: usize,
) -> PltEntries {
    let mut found = PltEntries::default();
    for section in elf.sections.iter().filter(|section| section.name.starts_with(".plt") && section.executable) {
        let Some(code) = read(elf, section, budget) else { continue };
        let jumps = match elf.machine {
            elf::EM_X86_64 => jumps_of_x86_64(&code, if section.entry_size == 8 { 8 } else { ENTRY }),
            _ => jumps_of_aarch64(&code, section.address),
        };
        for (start, size, slot) in jumps {
            let slot = if elf.machine == elf::EM_X86_64 { slot.wrapping_add(section.address) } else { slot };
            let name = slots.get(&slot).and_then(|&symbol| symbols.name(elf, symbol as usize));
            let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
            let taken = found.names.len() + found.entries.len() * size_of::<(u64, u64, u32)>();
            if taken + name.len() + 64 > room {
                return found;
            }
            found.entries.push((section.address.wrapping_add(start), size, found.names.len() as u32));
            found.names.extend_from_slice(name);
            found.names.extend_from_slice(b"@plt\0");
        }
    }
    found
}

/// Finds the PLT entries that contain `jmp *slot(%rip)`. Returns the start, the size and the slot of each entry. Start
/// and slot are offsets in `code`.
fn jumps_of_x86_64(code: &[u8], entry: u64) -> Vec<(u64, u64, u64)> {
    let mut found = Vec::new();
    for (number, bytes) in code.chunks_exact(entry as usize).enumerate() {
        let start = number as u64 * entry;
        if let Some(at) = bytes.windows(6).position(|code| code.starts_with(&[0xff, 0x25])) {
            let distance = i32::from_le_bytes([bytes[at + 2], bytes[at + 3], bytes[at + 4], bytes[at + 5]]);
            found.push((start, entry, (start + at as u64 + 6).wrapping_add_signed(distance.into())));
        }
    }
    found
}

/// Finds the PLT entries that contain `adrp x16, page` and then `ldr x17, [x16, offset]`. In code with landing pads,
/// `bti` comes first. Returns the start, the size and the slot of each entry. The start is an offset in `code`, the
/// slot is an address.
fn jumps_of_aarch64(code: &[u8], address: u64) -> Vec<(u64, u64, u64)> {
    const BTI_C: u32 = 0xd503_245f;
    let words: Vec<u32> =
        code.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    let mut found = Vec::new();
    for (number, pair) in words.windows(2).enumerate() {
        let (adrp, ldr) = (pair[0], pair[1]);
        if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
            continue;
        }
        let pages = (adrp >> 5 & 0x7ffff) << 2 | adrp >> 29 & 3;
        let distance = i64::from((pages << 11) as i32 >> 11) << 12;
        let at = number as u64 * 4;
        let slot = (address.wrapping_add(at) & !0xfff).wrapping_add_signed(distance);
        let landing = u64::from(number > 0 && words[number - 1] == BTI_C) * 4;
        found.push((at - landing, ENTRY + landing, slot.wrapping_add(u64::from(ldr >> 10 & 0xfff) * 8)));
    }
    found
}
