//! Reads the parts of an ELF file that unwinding needs: the addresses of its code, and its unwind sections. Does not
//! interpret the contents of the sections.

use object::{
    Endianness, ReadCache, ReadRef,
    elf::{FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD, ProgramHeader64, SHF_COMPRESSED, SHT_NOBITS},
    read::elf::{FileHeader, ProgramHeader, SectionHeader},
};

use super::{Arch, Image, Missing};

type Header = FileHeader64<Endianness>;

/// The maximum number of sections. If a file has more, its section headers are not read. Only sections with smaller
/// numbers can be referred to (SHN_LORESERVE).
const MAX_SECTIONS: u32 = 0xff00;
/// The maximum number of segments. The kernel executes only files with far fewer (load_elf_phdrs() in fs/binfmt_elf.c).
const MAX_SEGMENTS: u32 = 0xff00;
/// The number of bytes of a section's name that are read: the longest name that is looked for, and one more byte.
const NAME: u64 = b".eh_frame_hdr".len() as u64 + 1;

/// The parts of a file that unwinding needs.
#[derive(Debug, Default)]
pub(super) struct Elf {
    /// The loaded segments of the file, segments with code first.
    segments: Vec<Segment>,
    /// The addresses of `.text` and `.got` in the file. Pointers in the unwind sections may be relative to these
    /// addresses.
    pub(super) text: u64,
    pub(super) got: u64,
    pub(super) eh_frame: Option<Section>,
    pub(super) eh_frame_hdr: Option<Section>,
    pub(super) debug_frame: Option<Section>,
    /// The reason why a section was not read although it exists.
    pub(super) unread: Option<Missing>,
}

/// A section: its address, as the file's headers count addresses, and its contents.
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
    /// Reads an ELF file. Fails if the file is not for the processor `arch`. Sections larger than `limit` bytes are not
    /// read.
    pub(super) fn read(image: &Image, arch: &Arch, limit: u64) -> Result<Elf, Missing> {
        let elf = match image {
            Image::File(file) => read(&ReadCache::new(file), arch, limit),
            Image::Bytes(bytes) => read(&bytes[..], arch, limit),
        };
        elf.ok_or(Missing::NoElf)
    }

    /// Converts an offset in the file to an address, as the file's headers count addresses.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        // The kernel maps whole pages, so the last page of one segment may be the first page of the next. Segments with
        // code are searched first.
        let holds = |segment: &&Segment| {
            offset.wrapping_sub(segment.offset & !PAGE) < (segment.size | PAGE).saturating_add(segment.offset & PAGE)
        };
        let segment = self.segments.iter().find(holds)?;
        Some(segment.address.wrapping_add(offset.wrapping_sub(segment.offset)))
    }
}

/// A mask of the address bits that contain the offset in a page. It is for the smallest page size, 4 KiB.
const PAGE: u64 = 4095;

fn read<'d, R: ReadRef<'d>>(data: R, arch: &Arch, limit: u64) -> Option<Elf> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if endian != Endianness::Little || header.e_machine(endian) != arch.machine {
        return None;
    }
    if header.phnum(endian, data).ok()? > MAX_SEGMENTS {
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
        sections_by_program_headers(&mut elf, programs, endian, data, limit);
    }
    Some(elf)
}

/// Finds the sections by their names. In a file without section names it finds none.
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
    let sections = header.section_headers(endian, data).ok()?;
    let (names, names_size) = sections.get(header.shstrndx(endian, data).ok()? as usize)?.file_range(endian)?;
    for section in sections {
        // Many sections may refer to the same long name, so only its first bytes are read.
        let at = u64::from(section.sh_name(endian));
        let size = names_size.saturating_sub(at).min(NAME);
        let Ok(name) = data.read_bytes_at(names.saturating_add(at), size) else { continue };
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
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
        // A separate debug file also has headers of sections without the contents of these sections. Compressed
        // sections are not read.
        let absent = section.sh_type(endian) == SHT_NOBITS || section.sh_flags(endian).contains(SHF_COMPRESSED);
        // Any number of sections may have the same name. The first one is used.
        if absent || place.is_some() {
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

/// Finds `.eh_frame_hdr` through the program headers, as the C library does at run time. Finds `.eh_frame` through the
/// pointer in `.eh_frame_hdr`. The program headers do not show where `.eh_frame` ends, so the end of its segment is
/// used.
fn sections_by_program_headers<'d, R: ReadRef<'d>>(
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
