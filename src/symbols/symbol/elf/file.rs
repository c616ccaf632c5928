//! Reads the headers of an ELF file, and the bytes of its sections on request. Does not interpret the contents of the
//! sections.
//!
//! The file is read and not mapped. If another program truncated a mapped file, an access to the mapping would raise
//! SIGBUS. Besides, only a small part of a binary is needed, such as its symbol table.

use std::{borrow::Cow, fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc};

use object::{
    Endianness, ReadCache, ReadRef,
    elf::{self, FileHeader32, FileHeader64, ProgramType},
    read::elf::{CompressionHeader, FileHeader, NoteIterator, ProgramHeader, SectionHeader},
};

use crate::symbol::CodeImage;

/// The maximum size of a section that is read, in bytes. Undamaged files have no larger sections.
const SECTION_LIMIT: u64 = 1 << 30;
/// The maximum number of sections or segments. A file with more is treated as damaged. Symbols cannot refer to sections
/// with larger numbers (SHN_LORESERVE), and the kernel executes only files with far fewer segments (load_elf_phdrs() in
/// fs/binfmt_elf.c). Without this limit, the headers of a sparse file of a few KiB would take hundreds of MiB.
const HEADER_LIMIT: u32 = 0xff00;
/// The maximum size of the section names, in bytes. Names beyond this size are not read.
const NAMES_LIMIT: u64 = 1 << 20;
/// The maximum length of a section's name that is kept, in bytes. The names that perf-prof looks for are shorter.
const NAME_LIMIT: usize = 64;
/// The maximum size of a build id in bytes. Linkers make build ids of 8 to 20 bytes.
const BUILD_ID_LIMIT: usize = 64;

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(String),
    /// The file is not an ELF file, or it is damaged.
    #[error("{0}")]
    Malformed(&'static str),
    /// The symbols are larger than the limit.
    #[error("its symbols take {0} bytes, which is more than perf-prof reads")]
    TooLarge(u64),
    /// The user asked perf-prof to end while the file was read.
    #[error("the run ended while the symbols were read")]
    Interrupted,
}

impl From<io::Error> for ElfError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

impl From<object::read::Error> for ElfError {
    fn from(_: object::read::Error) -> Self {
        Self::Malformed("not an ELF file, or damaged")
    }
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Memory(Arc<[u8]>),
}

/// An ELF file that is open.
#[derive(Debug)]
pub struct Elf {
    bytes: Bytes,
    /// The byte order of the file.
    pub endian: Endianness,
    /// Whether the file is a 64-bit file.
    pub is_64: bool,
    /// The CPU architecture of the file's code.
    pub machine: elf::Machine,
    /// The parts of the file that are loaded into memory (PT_LOAD).
    pub segments: Vec<Segment>,
    /// The segment that contains `.eh_frame_hdr` (PT_GNU_EH_FRAME). The C library finds it in the same way at run time.
    pub eh_frame_hdr: Option<Segment>,
    /// All sections; the first one is empty.
    pub sections: Vec<Section>,
    /// The build id.
    pub build_id: Option<Arc<[u8]>>,
}

/// A part of the file that is loaded into memory.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The size in the file, in bytes.
    pub size: u64,
    /// The size in memory, in bytes. If it is larger than the size in the file, the additional bytes are 0.
    pub memory: u64,
    /// The address to which the part is loaded, as the file counts addresses.
    pub address: u64,
    /// Whether the part is loaded as code.
    pub executable: bool,
}

/// A section's header.
#[derive(Clone, Debug)]
pub struct Section {
    /// The section's name.
    pub name: Box<str>,
    /// The type, SHT_*.
    pub kind: elf::SectionType,
    /// The address to which the section is loaded.
    pub address: u64,
    /// The size in the file, in bytes.
    pub size: u64,
    /// The index of the section that this section refers to. For a symbol table, it is the section with the names.
    pub link: usize,
    /// The size of an entry in bytes, if the section is a table.
    pub entry_size: u64,
    /// Whether the section contains code (SHF_EXECINSTR).
    pub executable: bool,
    /// Whether the section is loaded when the program runs (SHF_ALLOC).
    pub loaded: bool,
    offset: u64,
    /// If the section is compressed: the kind of compression, the size after decompression, and the size of the header
    /// before the compressed data. Sizes are in bytes.
    compression: Option<(elf::CompressionType, u64, u64)>,
}

impl Section {
    /// Returns the size of the section in bytes, after decompression.
    pub fn uncompressed_size(&self) -> u64 {
        self.compression.map_or(self.size, |(_, size, _)| size)
    }

    /// Returns whether the section is compressed in the file.
    pub fn is_compressed(&self) -> bool {
        self.compression.is_some()
    }
}

/// Converts an offset in a file with the segments `segments` to the address to which the byte at the offset is loaded.
pub fn address_of(segments: &[Segment], offset: u64) -> Option<u64> {
    let holds = |segment: &&Segment| offset.checked_sub(segment.offset).is_some_and(|into| into < segment.size);
    segments.iter().find(holds).map(|segment| (offset - segment.offset).wrapping_add(segment.address))
}

impl Elf {
    /// Returns the bytes of the file. The result can outlive this object.
    pub fn image(&self) -> std::io::Result<CodeImage> {
        Ok(match &self.bytes {
            Bytes::File(file) => CodeImage::File(file.try_clone()?),
            Bytes::Memory(bytes) => CodeImage::Bytes(Arc::clone(bytes)),
        })
    }

    /// Opens a file by its path and reads its headers.
    pub fn open(path: &Path) -> Result<Self, ElfError> {
        Self::of_file(perf_prof_system::file::open_regular(path).map_err(|error| ElfError::Io(error.to_string()))?)
    }

    /// Reads the headers of an open file, or of a file in memory.
    pub fn of_image(image: CodeImage) -> Result<Self, ElfError> {
        match image {
            CodeImage::File(file) => Self::of_file(file),
            CodeImage::Bytes(bytes) => Self::of_bytes(bytes),
        }
    }

    /// Reads the headers of an open file.
    pub fn of_file(file: File) -> Result<Self, ElfError> {
        let cache = ReadCache::new(&file);
        let headers = headers(&cache)?;
        drop(cache);
        headers.finish(Bytes::File(file))
    }

    /// Reads the headers of a file that is in memory.
    pub fn of_bytes(bytes: Arc<[u8]>) -> Result<Self, ElfError> {
        let headers = headers(&*bytes)?;
        headers.finish(Bytes::Memory(bytes))
    }

    /// Returns the first section with this name that has bytes in the file.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| &*section.name == name && section.kind != elf::SHT_NOBITS)
    }

    /// Returns the memory that the headers take, in bytes. If the file is in memory, its bytes are included.
    pub fn bytes(&self) -> usize {
        let names: usize = self.sections.iter().map(|section| section.name.len()).sum();
        let file = match &self.bytes {
            Bytes::File(_) => 0,
            Bytes::Memory(bytes) => bytes.len(),
        };
        let headers = self.sections.capacity() * size_of::<Section>() + self.segments.capacity() * size_of::<Segment>();
        file + headers + names + self.build_id.as_ref().map_or(0, |id| id.len())
    }

    /// Returns the bytes of a section after decompression. Fails if there are more than `limit` bytes before or after
    /// decompression.
    pub fn data(&self, section: &Section, limit: u64) -> Result<Vec<u8>, ElfError> {
        if section.kind == elf::SHT_NOBITS {
            return Ok(Vec::new());
        }
        let limit = limit.min(SECTION_LIMIT);
        if section.uncompressed_size() > limit {
            return Err(ElfError::TooLarge(section.uncompressed_size()));
        }
        // Compression may make short contents a little longer, so the compressed data may exceed the limit by 4 KiB.
        let bytes = self.read(section.offset, section.size, limit + (1 << 12))?;
        let Some((kind, size, header)) = section.compression else { return Ok(bytes) };
        let format = match kind {
            elf::ELFCOMPRESS_ZLIB => object::CompressionFormat::Zlib,
            elf::ELFCOMPRESS_ZSTD => object::CompressionFormat::Zstandard,
            _ => return Err(ElfError::Malformed("a section is compressed in an unknown format")),
        };
        let data = bytes.get(header as usize..).ok_or(ElfError::Malformed("a compressed section is cut off"))?;
        let compressed = object::CompressedData { format, data, uncompressed_size: size };
        Ok(compressed.decompress().map(Cow::into_owned)?)
    }

    /// Reads bytes at an offset in the file. Fails if `size` is larger than `limit`.
    pub fn read(&self, offset: u64, size: u64, limit: u64) -> Result<Vec<u8>, ElfError> {
        const CUT: ElfError = ElfError::Malformed("the file is cut off");
        if size > limit {
            return Err(ElfError::TooLarge(size));
        }
        let end = offset.checked_add(size).ok_or(CUT)?;
        match &self.bytes {
            Bytes::Memory(bytes) => Ok(bytes.get(offset as usize..end as usize).ok_or(CUT)?.to_vec()),
            Bytes::File(file) => {
                if end > file.metadata()?.len() {
                    return Err(CUT);
                }
                let mut bytes = vec![0; size as usize];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(bytes)
            }
        }
    }

    /// Returns the CRC-32 checksum of the whole file, as `.gnu_debuglink` contains it. Fails if the file is larger than
    /// `limit` bytes. Calls `is_given_up` before each block, and fails if `is_given_up` returns true.
    pub fn crc32(&self, limit: u64, is_given_up: &mut dyn FnMut() -> bool) -> Result<u32, ElfError> {
        let file = match &self.bytes {
            Bytes::Memory(bytes) => return Ok(crc32fast::hash(bytes)),
            Bytes::File(file) => file,
        };
        let size = file.metadata()?.len();
        if size > limit {
            return Err(ElfError::TooLarge(size));
        }
        let (mut crc, mut block, mut at) = (crc32fast::Hasher::new(), vec![0; 1 << 20], 0);
        loop {
            if is_given_up() {
                return Err(ElfError::Interrupted);
            }
            match file.read_at(&mut block, at)? {
                0 => return Ok(crc.finalize()),
                // The file grew while it was read, and is now larger than the limit.
                _ if at > limit => return Err(ElfError::TooLarge(at)),
                size => {
                    crc.update(&block[..size]);
                    at += size as u64;
                }
            }
        }
    }

    /// Converts an offset in the file to the address to which the byte at the offset is loaded.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        address_of(&self.segments, offset)
    }

    /// Converts an offset in the file to an address like [`Elf::address_of`]. Also accepts offsets beyond a segment's
    /// end in the file, up to the segment's end in memory.
    pub fn address_in_memory(&self, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| offset.checked_sub(segment.offset).is_some_and(|into| into < segment.memory);
        let found = || self.segments.iter().rev().find(holds);
        let after = || found().map(|segment| (offset - segment.offset).wrapping_add(segment.address));
        self.address_of(offset).or_else(after)
    }

    /// Converts an address to the offset in the file of the byte that is loaded there.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        let holds = |segment: &&Segment| address.checked_sub(segment.address).is_some_and(|into| into < segment.size);
        self.segments.iter().find(holds).map(|segment| (address - segment.address).wrapping_add(segment.offset))
    }
}

/// The contents of the headers of a 32-bit or 64-bit file.
struct Headers {
    endian: Endianness,
    is_64: bool,
    machine: elf::Machine,
    segments: Vec<Segment>,
    eh_frame_hdr: Option<Segment>,
    sections: Vec<Section>,
    build_id: Option<Arc<[u8]>>,
    /// The index of the section with the section names.
    names: Option<usize>,
    name_offsets: Vec<u32>,
}

impl Headers {
    fn finish(mut self, bytes: Bytes) -> Result<Elf, ElfError> {
        let names = self.names.and_then(|index| self.sections.get(index)).cloned();
        let Headers { endian, is_64, machine, segments, eh_frame_hdr, build_id, .. } = self;
        let sections = std::mem::take(&mut self.sections);
        let mut elf = Elf { bytes, endian, is_64, machine, segments, eh_frame_hdr, sections, build_id };
        // A file without section names is accepted: none of its sections can be found, but its segments show what is
        // loaded where.
        let read = |section: Section| match section.compression {
            Some(_) => elf.data(&section, NAMES_LIMIT),
            None => elf.read(section.offset, section.size.min(NAMES_LIMIT), NAMES_LIMIT),
        };
        let names = names.map(read).transpose()?.unwrap_or_default();
        for (section, at) in elf.sections.iter_mut().zip(self.name_offsets) {
            let name = names.get(at as usize..).unwrap_or_default();
            let name = &name[..name.len().min(NAME_LIMIT)];
            let name = &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())];
            section.name = String::from_utf8_lossy(name).into();
        }
        Ok(elf)
    }
}

fn headers<'data, R: ReadRef<'data>>(data: R) -> Result<Headers, ElfError> {
    let identity = data.read_bytes_at(0, 16).map_err(|()| ElfError::Malformed("too short for an ELF file"))?;
    match identity {
        [0x7f, b'E', b'L', b'F', 1, ..] => parse::<FileHeader32<Endianness>, R>(data),
        [0x7f, b'E', b'L', b'F', 2, ..] => parse::<FileHeader64<Endianness>, R>(data),
        _ => Err(ElfError::Malformed("not an ELF file")),
    }
}

fn parse<'data, E, R>(data: R) -> Result<Headers, ElfError>
where
    E: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = E::parse(data)?;
    let endian = header.endian()?;
    if header.phnum(endian, data)? > HEADER_LIMIT || header.shnum(endian, data)? > HEADER_LIMIT {
        return Err(ElfError::Malformed("the header claims more sections or segments than a file can have"));
    }
    let mut build_id = None;
    let mut notes_left = NOTES_LIMIT;
    // The size is subtracted for each header, because any number of headers may refer to the same notes.
    let mut may_read = |size: u64| {
        let may = size <= notes_left;
        notes_left -= if may { size } else { 0 };
        may
    };
    let (mut segments, mut eh_frame_hdr) = (Vec::new(), None);
    for segment in header.program_headers(endian, data)? {
        let part = part_of(segment, endian);
        match segment.p_type(endian) {
            elf::PT_LOAD => segments.push(part),
            elf::PT_GNU_EH_FRAME => {
                eh_frame_hdr.get_or_insert(part);
            }
            elf::PT_NOTE if build_id.is_none() && may_read(part.size) => {
                build_id =
                    segment.notes(endian, data).ok().flatten().and_then(|notes| find_build_id::<E>(endian, notes));
            }
            ProgramType(_) => {}
        }
    }
    // If the section headers are damaged or stripped, the segments still show what is loaded where.
    let headers = header.section_headers(endian, data).unwrap_or_default();
    let mut sections = Vec::with_capacity(headers.len());
    for section in headers {
        let (offset, size) = (section.sh_offset(endian).into(), section.sh_size(endian).into());
        let flags = section.sh_flags(endian);
        if build_id.is_none() && section.sh_type(endian) == elf::SHT_NOTE && may_read(size) {
            build_id = section.notes(endian, data).ok().flatten().and_then(|notes| find_build_id::<E>(endian, notes));
        }
        let compressed = flags.0 & elf::SHF_COMPRESSED.0 != 0;
        sections.push(Section {
            name: "".into(),
            kind: section.sh_type(endian),
            address: section.sh_addr(endian).into(),
            size,
            link: section.sh_link(endian) as usize,
            entry_size: section.sh_entsize(endian).into(),
            executable: flags.0 & elf::SHF_EXECINSTR.0 != 0,
            loaded: flags.0 & elf::SHF_ALLOC.0 != 0,
            offset,
            compression: if compressed { compression::<E, R>(endian, data, offset) } else { None },
        });
    }
    Ok(Headers {
        endian,
        is_64: header.is_type_64(),
        machine: header.e_machine(endian),
        segments,
        eh_frame_hdr,
        sections,
        build_id,
        names: header.shstrndx(endian, data).ok().map(|index| index as usize),
        name_offsets: headers.iter().map(|section| section.sh_name(endian)).collect(),
    })
}

fn part_of<P: ProgramHeader<Endian = Endianness>>(header: &P, endian: Endianness) -> Segment {
    let (offset, size) = header.file_range(endian);
    Segment {
        offset,
        size,
        memory: header.p_memsz(endian).into(),
        address: header.p_vaddr(endian).into(),
        executable: header.p_flags(endian).0 & elf::PF_X.0 != 0,
    }
}

/// The maximum size of all notes of a file together, in bytes. Notes are short, but the headers of a damaged file may
/// contain any size.
const NOTES_LIMIT: u64 = 1 << 20;

fn compression<'data, E, R>(endian: Endianness, data: R, offset: u64) -> Option<(elf::CompressionType, u64, u64)>
where
    E: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = data.read_at::<E::CompressionHeader>(offset).ok()?;
    Some((header.ch_type(endian), header.ch_size(endian).into(), size_of::<E::CompressionHeader>() as u64))
}

fn find_build_id<E: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    mut notes: NoteIterator<'_, E>,
) -> Option<Arc<[u8]>> {
    while let Ok(Some(note)) = notes.next() {
        let is_build_id = note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID;
        if is_build_id && (1..=BUILD_ID_LIMIT).contains(&note.desc().len()) {
            return Some(note.desc().into());
        }
    }
    None
}
