//! Finds the files with the symbols of a stripped file: its separate debug file, and the ELF file in its section
//! `.gnu_debugdata`. A build id or a debug link leads to the debug file.

use std::{
    ffi::OsStr,
    fmt::Write,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use liblzma::{read::XzDecoder, stream::Stream};

use super::{Elf, ElfError, interrupt::Interrupt};

/// The directories in which separate debug files are searched.
#[derive(Clone, Debug)]
pub struct DebugSearch {
    /// The root directory of the process that mapped the binary, as a prefix for absolute paths. Empty if this
    /// directory is perf-prof's own root directory.
    pub root: PathBuf,
    /// The directory in which distributions install debug files: `/usr/lib/debug`.
    pub global: PathBuf,
}

impl Default for DebugSearch {
    fn default() -> Self {
        Self { root: PathBuf::new(), global: "/usr/lib/debug".into() }
    }
}

impl DebugSearch {
    fn in_root(&self, path: &Path) -> PathBuf {
        match path.strip_prefix("/") {
            Ok(relative) if !self.root.as_os_str().is_empty() => self.root.join(relative),
            _ => path.to_owned(),
        }
    }
}

/// The maximum size of a section with a link to another file, in bytes. The section contains a path, and a checksum or
/// a build id.
const LINK_LIMIT: u64 = 8 << 10;
/// The maximum size of a file whose checksum is computed, in bytes. The checksum covers the whole file, and a sparse
/// file may have any size.
const CHECKSUM_LIMIT: u64 = 4 << 30;

/// Returns the debug file that belongs to `elf`, if there is one. `path` is the path of `elf` as the process sees it.
pub fn debug_file(elf: &Elf, path: &Path, search: &DebugSearch) -> Option<(PathBuf, Elf)> {
    by_build_id(elf, search).or_else(|| by_link(elf, path, search))
}

/// Returns the file with shared debug information, if `debug` refers to one (`.gnu_debugaltlink`). `dwz` moves debug
/// information that several debug files have in common to such a file. `path` is the path of `debug`.
pub fn shared_debug_file(debug: &Elf, path: &Path, search: &DebugSearch) -> Option<Elf> {
    let link = debug.data(debug.section(".gnu_debugaltlink")?, LINK_LIMIT).ok()?;
    let end = link.iter().position(|&byte| byte == 0)?;
    let id = &link[end + 1..];
    let name = path.parent()?.join(OsStr::from_bytes(&link[..end]));
    let found = Elf::open(&name).or_else(|error| Elf::open(&search.in_root(&name)).map_err(|_| error));
    let found = found.ok().filter(|found| found.build_id.as_deref() == Some(id));
    found.or_else(|| with_build_id(id, search).map(|(_, found)| found))
}

fn by_build_id(elf: &Elf, search: &DebugSearch) -> Option<(PathBuf, Elf)> {
    with_build_id(elf.build_id.as_deref()?, search)
}

fn with_build_id(id: &[u8], search: &DebugSearch) -> Option<(PathBuf, Elf)> {
    if id.len() < 2 {
        return None;
    }
    let mut name = String::from(".build-id/");
    for (at, byte) in id.iter().enumerate() {
        let _ = write!(name, "{byte:02x}{}", if at == 0 { "/" } else { "" });
    }
    name.push_str(".debug");
    let path = search.global.join(name);
    // The path in the root directory of the traced process comes first, then the same path in perf-prof's root
    // directory. Debug packages for the binaries of a container are often installed outside of the container.
    let mut paths = vec![search.in_root(&path), path];
    paths.dedup();
    let found = paths.into_iter().find_map(|path| Some((Elf::open(&path).ok()?, path)));
    found.filter(|(debug, _)| debug.build_id.as_deref() == Some(id)).map(|(debug, path)| (path, debug))
}

fn by_link(elf: &Elf, path: &Path, search: &DebugSearch) -> Option<(PathBuf, Elf)> {
    // The section has a file name that ends with a NUL, padding to a multiple of four bytes, and a checksum.
    let link = elf.data(elf.section(".gnu_debuglink")?, LINK_LIMIT).ok()?;
    let end = link.iter().position(|&byte| byte == 0)?;
    let name = Path::new(OsStr::from_bytes(&link[..end]));
    let crc: &[u8; 4] = link.get((end + 4) & !3..)?.first_chunk()?;
    let crc =
        if elf.endian == object::Endianness::Little { u32::from_le_bytes(*crc) } else { u32::from_be_bytes(*crc) };
    // Only a plain file name is accepted, so that the link cannot lead to another directory.
    if name.file_name() != Some(name.as_os_str()) {
        return None;
    }
    let folder = path.parent()?;
    let below = search.global.join(folder.strip_prefix("/").unwrap_or(folder));
    for path in [folder.join(name), folder.join(".debug").join(name), below.join(name)] {
        let path = search.in_root(&path);
        let Ok(debug) = Elf::open(&path) else { continue };
        // A debug link may lead back to the stripped file itself. This file has another checksum, so it is not used.
        let interrupt = Interrupt::begin();
        if debug.crc32(CHECKSUM_LIMIT, &mut || interrupt.is_requested()).is_ok_and(|found| found == crc) {
            return Some((path, debug));
        }
    }
    None
}

/// Returns the ELF file with symbols in the section `.gnu_debugdata`. Some distributions compress symbols into this
/// section of stripped files. Returns `None` if there is no such section. Fails if the file is larger than `limit`
/// bytes, because a few KiB of malicious xz data can expand to any size.
pub fn mini_debug_info(elf: &Elf, limit: usize) -> Option<Result<Elf, ElfError>> {
    let packed = elf.section(".gnu_debugdata")?;
    let limit = (limit as u64).min(MINI_LIMIT);
    Some(elf.data(packed, limit).and_then(|packed| {
        const DAMAGED: ElfError = ElfError::Malformed("the section .gnu_debugdata is damaged");
        let mut bytes = Vec::new();
        let stream = Stream::new_stream_decoder(DICTIONARY_LIMIT, 0).map_err(|_| DAMAGED)?;
        let mut unpacked = XzDecoder::new_stream(&packed[..], stream).take(limit + 1);
        unpacked.read_to_end(&mut bytes).map_err(|_| DAMAGED)?;
        if bytes.len() as u64 > limit {
            return Err(ElfError::TooLarge(bytes.len() as u64));
        }
        Elf::of_bytes(bytes.into())
    }))
}

/// The maximum size of `.gnu_debugdata` after decompression, in bytes. In the largest binaries, this section takes a
/// few MiB.
const MINI_LIMIT: u64 = 256 << 20;
/// The maximum memory that the decompression of `.gnu_debugdata` takes, in bytes. `xz -9` needs 65 MiB (xz(1)).
const DICTIONARY_LIMIT: u64 = 128 << 20;
