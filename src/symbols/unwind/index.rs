//! Finds the entry for an address in an unwind section. This module uses the table that the linker wrote, or creates a
//! table. It does not interpret the entries.

use gimli::{BaseAddresses, CieOrFde, Reader, UnwindOffset, UnwindSection};

use super::elf::Section;

/// An index of the entries in an unwind section. For each address, the index finds the only entry that may cover the
/// address. The caller has to check whether the entry covers the address.
#[derive(Debug)]
pub(super) enum Index {
    /// The table in `.eh_frame_hdr`, in the form that linkers write.
    Linker {
        /// The section `.eh_frame_hdr`.
        hdr: Section,
        /// The address of `.eh_frame`, from the pointer in `.eh_frame_hdr`.
        eh_frame: u64,
    },
    /// Pairs of an entry's first address and the entry's offset, in ascending order.
    Own(Vec<(u64, u32)>),
}

/// The first four bytes of `.eh_frame_hdr`: version 1, a pointer of 4 bytes relative to its own address
/// (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`), a count of 4 bytes (`udata4`), and a table of 4-byte values relative to the
/// section (`datarel | sdata4`). Linkers write no other format.
const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// The offset of the table in `.eh_frame_hdr`, in bytes: the size of the format, the pointer and the count before it.
const TABLE: usize = 12;
const ROW: usize = 8;

/// Returns the address of `.eh_frame`, from the pointer in `.eh_frame_hdr`.
pub(super) fn eh_frame_address(hdr: &Section) -> Option<u64> {
    let (form, rest) = hdr.bytes.split_first_chunk::<4>()?;
    let &pointer = rest.first_chunk::<4>()?;
    let relative = i64::from(i32::from_le_bytes(pointer));
    (form[..2] == FORM[..2]).then(|| hdr.address.wrapping_add(4).wrapping_add_signed(relative))
}

impl Index {
    /// Returns the linker's table, if it is not empty and starts with [`FORM`].
    pub(super) fn linker(hdr: Section) -> Option<Index> {
        let eh_frame = eh_frame_address(&hdr)?;
        let index = Index::Linker { hdr, eh_frame };
        let Index::Linker { hdr, .. } = &index else { return None };
        (hdr.bytes.starts_with(&FORM) && rows(hdr)? > 0).then_some(index)
    }

    /// Creates a table from the section. Stops at the end of the section, or at the first entry whose header cannot be
    /// read.
    pub(super) fn own<R: Reader<Offset = usize>, S: UnwindSection<R>>(section: &S, bases: &BaseAddresses) -> Index {
        let mut table = Vec::new();
        let mut last = None;
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(entry) = entry else { continue };
            // The last common information entry (CIE) is reused, because most entries refer to the same one as the
            // entry before.
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

    /// Returns the offset of the last entry that starts at or before `address`. `section` is the address of the unwind
    /// section.
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
                // `.eh_frame_hdr` may state another address of `.eh_frame` than the section headers.
                let offset = entry.checked_sub(*eh_frame)?.checked_add(eh_frame.checked_sub(section)?)?;
                usize::try_from(offset).ok()
            }
        }
    }

    /// Returns the size of the table in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Index::Linker { hdr, .. } => hdr.bytes.len(),
            Index::Own(table) => size_of_val(&table[..]),
        }
    }
}

/// Returns the number of rows in the linker's table. The count in the section may be too large, so it is limited to the
/// rows that fit into the section.
fn rows(hdr: &Section) -> Option<usize> {
    let count = hdr.bytes.get(8..)?.first_chunk::<4>()?;
    Some((u32::from_le_bytes(*count) as usize).min((hdr.bytes.len() - TABLE) / ROW))
}

/// Returns the two addresses in a row of the linker's table: the first address that the entry covers, and the address
/// of the entry itself.
fn row(hdr: &Section, row: usize) -> Option<(u64, u64)> {
    let bytes = hdr.bytes.get(TABLE + row * ROW..)?.first_chunk::<ROW>()?;
    let word = |at: usize| {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        hdr.address.wrapping_add_signed(i64::from(i32::from_le_bytes(word)))
    };
    Some((word(0), word(4)))
}
