//! From an address to the entry of an unwind section that covers it: the linker's table, or one made here. Knows nothing
//! of what entries say.

use gimli::{BaseAddresses, CieOrFde, Reader, UnwindOffset, UnwindSection};

use super::elf::Section;

/// Finds the entry that may cover an address. That it does is for the finder to see.
#[derive(Debug)]
pub(super) enum Index {
    /// The table in `.eh_frame_hdr`, in the form that linkers write.
    Linker {
        /// That section.
        hdr: Section,
        /// Where `.eh_frame` begins by the pointer in it.
        eh_frame: u64,
    },
    /// First addresses and the offsets of their entries, ascending.
    Own(Vec<(u64, u32)>),
}

/// Version 1; a pointer relative to its own place, a 4-byte count and a table relative to the section, all in 4 bytes.
/// Linkers write nothing else (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`, `udata4`, `datarel | sdata4`).
const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// The table begins behind form, pointer and count.
const TABLE: usize = 12;
const ROW: usize = 8;

/// Where `.eh_frame` begins, as its header says.
pub(super) fn eh_frame_address(hdr: &Section) -> Option<u64> {
    let (form, rest) = hdr.bytes.split_first_chunk::<4>()?;
    let &pointer = rest.first_chunk::<4>()?;
    let relative = i64::from(i32::from_le_bytes(pointer));
    (form[..2] == FORM[..2]).then(|| hdr.address.wrapping_add(4).wrapping_add_signed(relative))
}

impl Index {
    /// The linker's table, when it is in the usual form and says of how many rows it is.
    pub(super) fn linker(hdr: Section) -> Option<Index> {
        let eh_frame = eh_frame_address(&hdr)?;
        let index = Index::Linker { hdr, eh_frame };
        let Index::Linker { hdr, .. } = &index else { return None };
        (hdr.bytes.starts_with(&FORM) && rows(hdr)? > 0).then_some(index)
    }

    /// Makes a table by reading the whole section, as far as it can be read.
    pub(super) fn own<R: Reader<Offset = usize>, S: UnwindSection<R>>(section: &S, bases: &BaseAddresses) -> Index {
        let mut table = Vec::new();
        let mut last = None;
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(entry) = entry else { continue };
            // Most entries have the same common part as the one before.
            let entry = entry.parse(|section, bases, offset| {
                let place: usize = UnwindOffset::into(offset);
                if let Some((_, common)) = last.as_ref().filter(|(at, _)| *at == place) {
                    return Ok(Clone::clone(common));
                }
                let common = section.cie_from_offset(bases, offset)?;
                last = Some((place, common.clone()));
                Ok(common)
            });
            let Ok(entry) = entry else { continue };
            if let Ok(offset) = u32::try_from(entry.offset()) {
                table.push((entry.initial_address(), offset));
            }
        }
        table.sort_unstable();
        table.shrink_to_fit();
        Index::Own(table)
    }

    /// The offset, in a section that begins at `section`, of the entry with the greatest first address up to this one.
    pub(super) fn entry(&self, section: u64, address: u64) -> Option<usize> {
        match self {
            Index::Own(table) => {
                let next = table.partition_point(|&(first, _)| first <= address);
                table[..next].last().map(|&(_, offset)| offset as usize)
            }
            Index::Linker { hdr, eh_frame } => {
                let (mut low, mut high) = (0, rows(hdr)?);
                while low < high {
                    let middle = low + (high - low) / 2;
                    match row(hdr, middle)?.0 <= address {
                        true => low = middle + 1,
                        false => high = middle,
                    }
                }
                let (_, entry) = row(hdr, low.checked_sub(1)?)?;
                // The header may name another begin than the section's own.
                let offset = entry.checked_sub(*eh_frame)?.checked_add(eh_frame.checked_sub(section)?)?;
                usize::try_from(offset).ok()
            }
        }
    }

    /// How many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Index::Linker { hdr, .. } => hdr.bytes.len(),
            Index::Own(table) => size_of_val(&table[..]),
        }
    }
}

/// How many rows the linker's table has, at most as many as fit in.
fn rows(hdr: &Section) -> Option<usize> {
    let count = hdr.bytes.get(8..)?.first_chunk::<4>()?;
    Some((u32::from_le_bytes(*count) as usize).min((hdr.bytes.len() - TABLE) / ROW))
}

/// First address and entry's address in a row of the linker's table.
fn row(hdr: &Section, row: usize) -> Option<(u64, u64)> {
    let bytes = hdr.bytes.get(TABLE + row * ROW..)?.first_chunk::<ROW>()?;
    let word = |at: usize| {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        hdr.address.wrapping_add_signed(i64::from(i32::from_le_bytes(word)))
    };
    Some((word(0), word(4)))
}
