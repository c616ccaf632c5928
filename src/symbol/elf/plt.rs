//! Names of the procedure linkage table's entries, `function@plt`. Knows the tables of x86-64 and aarch64.

use std::collections::HashMap;

use object::{
    Endianness,
    elf::{self, Rela64},
    read::elf::Rela,
};

use super::{Elf, table::RawTable};

/// Size of an entry; on x86-64 `.plt.got` may have shorter ones.
const ENTRY: u64 = 16;

/// The entries of a file: address, size, name.
pub(super) fn entries(elf: &Elf) -> Vec<(u64, u64, Vec<u8>)> {
    if !elf.is_64 || !matches!(elf.machine, elf::EM_X86_64 | elf::EM_AARCH64) {
        return Vec::new();
    }
    slots(elf).map(|slots| named(elf, &slots)).unwrap_or_default()
}

/// By slot in the global offset table: the name of what the dynamic linker will write the address of.
fn slots(elf: &Elf) -> Option<HashMap<u64, Vec<u8>>> {
    let symbols = RawTable::read(elf, elf::SHT_DYNSYM).ok()??;
    let mut slots = HashMap::new();
    for section in elf.sections.iter().filter(|section| section.kind == elf::SHT_RELA) {
        let bytes = elf.data(section).ok()?;
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
            if let Some(name) = jump.then(|| symbols.name(elf, relocation.r_sym(elf.endian, false) as usize)).flatten()
                && !name.is_empty()
            {
                slots.insert(relocation.r_offset(elf.endian), [name, b"@plt"].concat());
            }
        }
    }
    Some(slots)
}

/// Reads the slot off the jump of each entry: the entries' order is the linker's business.
fn named(elf: &Elf, slots: &HashMap<u64, Vec<u8>>) -> Vec<(u64, u64, Vec<u8>)> {
    let mut entries = Vec::new();
    for section in elf.sections.iter().filter(|section| section.name.starts_with(".plt") && section.executable) {
        let Ok(code) = elf.data(section) else { continue };
        let found = match elf.machine {
            elf::EM_X86_64 => jumps_of_x86_64(&code, if section.entry_size == 8 { 8 } else { ENTRY }),
            _ => jumps_of_aarch64(&code, section.address),
        };
        for (start, size, slot) in found {
            let slot = if elf.machine == elf::EM_X86_64 { slot.wrapping_add(section.address) } else { slot };
            if let Some(name) = slots.get(&slot) {
                entries.push((section.address.wrapping_add(start), size, name.clone()));
            }
        }
    }
    entries
}

/// `jmp *slot(%rip)`: start and size of the entry that it is in, and the slot, all relative to the code's begin.
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

/// `adrp x16, page; ldr x17, [x16, offset]`, where landing pads are wanted behind a `bti`: start and size of the entry
/// relative to the code's begin, and the slot's address.
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
