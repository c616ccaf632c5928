//! What of an ELF file unwinding needs: where its code lies, and its unwind sections. Knows not what is in those.

use object::{
    Endianness, ReadCache, ReadRef,
    elf::{FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD, ProgramHeader64, SHF_COMPRESSED, SHT_NOBITS},
    read::elf::{FileHeader, ProgramHeader, SectionHeader},
};

use super::{Arch, Image, Missing};

type Header = FileHeader64<Endianness>;

/// A file with more sections than this is none.
const MAX_SECTIONS: u32 = 1 << 18;

/// What was read of a file.
#[derive(Debug, Default)]
pub(super) struct Elf {
    /// The loaded parts of the file, those with code first.
    segments: Vec<Segment>,
    /// Where `.text` and `.got` are, by the file's own addresses: pointers may be relative to them.
    pub(super) text: u64,
    pub(super) got: u64,
    pub(super) eh_frame: Option<Section>,
    pub(super) eh_frame_hdr: Option<Section>,
    pub(super) debug_frame: Option<Section>,
    /// Why a section that is there was not read.
    pub(super) unread: Option<Missing>,
}

/// A section: where it is by the file's own addresses, and its bytes.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
    code: bool,
}

impl Elf {
    /// Reads a file of that processor. No section may be larger than `limit`.
    pub(super) fn read(image: &Image, arch: &Arch, limit: u64) -> Result<Elf, Missing> {
        let elf = match image {
            Image::File(file) => read(&ReadCache::new(file), arch, limit),
            Image::Bytes(bytes) => read(&bytes[..], arch, limit),
        };
        elf.ok_or(Missing::NoElf)
    }

    /// The address in the file's own numbering of a place in the file.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        // The kernel maps whole pages: the last of one segment may be the first of the next. Code comes first.
        let holds = |segment: &&Segment| {
            offset.wrapping_sub(segment.offset & !PAGE) < (segment.size | PAGE).saturating_add(segment.offset & PAGE)
        };
        let segment = self.segments.iter().find(holds)?;
        Some(segment.address.wrapping_add(offset.wrapping_sub(segment.offset)))
    }
}

/// The offset in a page of the smallest size that there is.
const PAGE: u64 = 4095;

fn read<'d, R: ReadRef<'d>>(data: R, arch: &Arch, limit: u64) -> Option<Elf> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if endian != Endianness::Little || header.e_machine(endian) != arch.machine {
        return None;
    }
    let programs = header.program_headers(endian, data).ok()?;
    let mut elf = Elf::default();
    for program in programs.iter().filter(|program| program.p_type(endian) == PT_LOAD) {
        elf.segments.push(Segment {
            offset: program.p_offset(endian),
            size: program.p_filesz(endian),
            address: program.p_vaddr(endian),
            code: program.p_flags(endian).contains(PF_X),
        });
    }
    elf.segments.sort_by_key(|segment| !segment.code);
    sections(&mut elf, header, endian, data, limit);
    if elf.eh_frame.is_none() {
        by_programs(&mut elf, programs, endian, data, limit);
    }
    Some(elf)
}

/// Finds the sections by their names. A file without names has none.
fn sections<'d, R: ReadRef<'d>>(
    elf: &mut Elf,
    header: &'d Header,
    endian: Endianness,
    data: R,
    limit: u64,
) -> Option<()> {
    if header.shnum(endian, data).ok()? > MAX_SECTIONS {
        return None;
    }
    let sections = header.sections(endian, data).ok()?;
    for section in sections.iter() {
        let Ok(name) = sections.section_name(endian, section) else { continue };
        let address = section.sh_addr(endian);
        let place = match name {
            b".text" => {
                elf.text = address;
                continue;
            }
            b".got" => {
                elf.got = address;
                continue;
            }
            b".eh_frame" => &mut elf.eh_frame,
            b".eh_frame_hdr" => &mut elf.eh_frame_hdr,
            b".debug_frame" => &mut elf.debug_frame,
            _ => continue,
        };
        // A separate debug file keeps the headers of sections whose bytes it does not have.
        let absent = section.sh_type(endian) == SHT_NOBITS || section.sh_flags(endian).contains(SHF_COMPRESSED);
        if absent {
            continue;
        }
        if section.sh_size(endian) > limit {
            elf.unread = Some(Missing::TooLarge);
            continue;
        }
        if let Ok(bytes) = section.data(endian, data) {
            *place = Some(Section { address, bytes: bytes.to_vec() });
        }
    }
    Some(())
}

/// Finds `.eh_frame_hdr` as the C library does at run time, and `.eh_frame` behind the pointer in it. Where that ends is not
/// said: its segment's end will do.
fn by_programs<'d, R: ReadRef<'d>>(
    elf: &mut Elf,
    programs: &[ProgramHeader64<Endianness>],
    endian: Endianness,
    data: R,
    limit: u64,
) -> Option<()> {
    let hdr = programs.iter().find(|program| program.p_type(endian) == PT_GNU_EH_FRAME)?;
    if hdr.p_filesz(endian) > limit {
        elf.unread = Some(Missing::TooLarge);
        return None;
    }
    let section = Section { address: hdr.p_vaddr(endian), bytes: hdr.data(endian, data).ok()?.to_vec() };
    let start = super::index::eh_frame_address(&section)?;
    let segment = elf.segments.iter().find(|segment| start.wrapping_sub(segment.address) < segment.size)?;
    let skipped = start - segment.address;
    let size = segment.size - skipped;
    if size > limit {
        elf.unread = Some(Missing::TooLarge);
        return None;
    }
    let bytes = data.read_bytes_at(segment.offset.checked_add(skipped)?, size).ok()?;
    elf.eh_frame = Some(Section { address: start, bytes: bytes.to_vec() });
    elf.eh_frame_hdr = Some(section);
    Some(())
}
