//! Reads the parts of an ELF file that unwinding needs: the addresses of its code, and its unwind sections. This module
//! does not interpret the sections.

use object::{Endianness, elf::SHT_NOBITS};

use super::{Arch, Missing};
use crate::symbol::{
    CodeImage,
    elf::{Elf as File, Segment},
};

/// The parts of a file that unwinding needs.
#[derive(Debug, Default)]
pub(super) struct Elf {
    /// The loaded segments of the file. Segments with code come first.
    segments: Vec<Segment>,
    /// The addresses of `.text` and `.got`, as the file counts addresses. Pointers in the unwind sections may be
    /// relative to these addresses.
    pub(super) text: u64,
    pub(super) got: u64,
    pub(super) eh_frame: Option<Section>,
    pub(super) eh_frame_hdr: Option<Section>,
    pub(super) debug_frame: Option<Section>,
    /// Why an existing unwind section was not read.
    pub(super) unread: Option<Missing>,
}

/// A section: its address, as the file's headers count addresses, and its contents.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
}

impl Elf {
    /// Reads an ELF file. Fails if the file is not for the processor `arch`. Sections larger than `limit` bytes are not
    /// read.
    pub(super) fn read(image: CodeImage, arch: &Arch, limit: u64) -> Result<Elf, Missing> {
        let file = File::of_image(image).map_err(|_| Missing::NoElf)?;
        if !file.is_64 || file.endian != Endianness::Little || file.machine != arch.machine {
            return Err(Missing::NoElf);
        }
        let mut elf = Elf { segments: file.segments.clone(), ..Elf::default() };
        elf.segments.sort_by_key(|segment| !segment.executable);
        elf.find_by_names(&file, limit);
        if elf.eh_frame.is_none() {
            elf.find_by_program_headers(&file, limit);
        }
        Ok(elf)
    }

    /// Finds the sections by name. In a file without section names, none is found.
    fn find_by_names(&mut self, file: &File, limit: u64) {
        for section in &file.sections {
            let address = section.address;
            let place = match &*section.name {
                ".text" => {
                    self.text = address;
                    continue;
                }
                ".got" => {
                    self.got = address;
                    continue;
                }
                ".eh_frame" => &mut self.eh_frame,
                ".eh_frame_hdr" => &mut self.eh_frame_hdr,
                ".debug_frame" => &mut self.debug_frame,
                _ => continue,
            };
            // A debug file contains headers of sections without their contents. Compressed sections are not read
            // either.
            let absent = section.kind == SHT_NOBITS || section.is_compressed();
            // Several sections may have the same name. The first one is used.
            if absent || place.is_some() {
                continue;
            }
            if section.size > limit {
                self.unread = Some(Missing::TooLarge);
                continue;
            }
            *place = file.data(section, limit).ok().map(|bytes| Section { address, bytes });
        }
    }

    /// Finds `.eh_frame_hdr` through the program headers, as the C library does at run time. The pointer in
    /// `.eh_frame_hdr` leads to `.eh_frame`. The program headers do not show where `.eh_frame` ends. So everything up
    /// to the end of its segment is read.
    fn find_by_program_headers(&mut self, file: &File, limit: u64) -> Option<()> {
        let mut read = |address, offset, size| {
            if size > limit {
                self.unread = Some(Missing::TooLarge);
            }
            file.read(offset, size, limit).ok().map(|bytes| Section { address, bytes })
        };
        let hdr = file.eh_frame_hdr?;
        let section = read(hdr.address, hdr.offset, hdr.size)?;
        let start = super::index::eh_frame_address(&section)?;
        let segment = self.segments.iter().find(|segment| start.wrapping_sub(segment.address) < segment.size)?;
        let skipped = start - segment.address;
        self.eh_frame = Some(read(start, segment.offset.checked_add(skipped)?, segment.size - skipped)?);
        self.eh_frame_hdr = Some(section);
        Some(())
    }

    /// Converts an offset in the file to an address, as the file's headers count addresses.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        // The kernel maps whole pages, so the last page of a segment may be the first page of the next segment.
        // Segments with code are searched first.
        let holds = |segment: &&Segment| {
            offset.wrapping_sub(segment.offset & !PAGE) < (segment.size | PAGE).saturating_add(segment.offset & PAGE)
        };
        let segment = self.segments.iter().find(holds)?;
        Some(segment.address.wrapping_add(offset.wrapping_sub(segment.offset)))
    }
}

/// A mask of the offset in a page, for the smallest page size of 4 KiB.
const PAGE: u64 = 4095;
