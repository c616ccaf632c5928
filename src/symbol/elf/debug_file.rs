//! The files that belong to a stripped one: its separate debug file by build id or debug link, its `.gnu_debugdata`.

use std::{
    ffi::OsStr,
    fmt::Write,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{Elf, ElfError};

/// Where separate debug files are kept.
#[derive(Clone, Debug)]
pub struct DebugSearch {
    /// Before each absolute path: the root of the process, empty for our own.
    pub root: PathBuf,
    /// `/usr/lib/debug`, where distributions put them.
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

/// The debug file of `elf`, which was opened as `path` (in the process's own view), if there is one that belongs to it.
pub fn debug_file(elf: &Elf, path: &Path, search: &DebugSearch) -> Option<(PathBuf, Elf)> {
    by_build_id(elf, search).or_else(|| by_link(elf, path, search))
}

/// What several debug files share (`dwz`), where `debug`, which is at `path`, refers to it (`.gnu_debugaltlink`).
pub fn shared_debug_file(debug: &Elf, path: &Path, search: &DebugSearch) -> Option<Elf> {
    let link = debug.data(debug.section(".gnu_debugaltlink")?).ok()?;
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
    // The process's own view first, then ours: debug packages of a container's binaries are often installed outside.
    let mut paths = vec![search.in_root(&path), path];
    paths.dedup();
    let found = paths.into_iter().find_map(|path| Some((Elf::open(&path).ok()?, path)));
    found.filter(|(debug, _)| debug.build_id.as_deref() == Some(id)).map(|(debug, path)| (path, debug))
}

fn by_link(elf: &Elf, path: &Path, search: &DebugSearch) -> Option<(PathBuf, Elf)> {
    // The name up to its NUL, filled up to four bytes, and the checksum.
    let link = elf.data(elf.section(".gnu_debuglink")?).ok()?;
    let end = link.iter().position(|&byte| byte == 0)?;
    let name = Path::new(OsStr::from_bytes(&link[..end]));
    let crc: &[u8; 4] = link.get((end + 4) & !3..)?.first_chunk()?;
    let crc =
        if elf.endian == object::Endianness::Little { u32::from_le_bytes(*crc) } else { u32::from_be_bytes(*crc) };
    // A file's name, nothing that leads elsewhere.
    if name.file_name() != Some(name.as_os_str()) {
        return None;
    }
    let folder = path.parent()?;
    let below = search.global.join(folder.strip_prefix("/").unwrap_or(folder));
    for path in [folder.join(name), folder.join(".debug").join(name), below.join(name)] {
        let path = search.in_root(&path);
        let Ok(debug) = Elf::open(&path) else { continue };
        // A file that links to itself is the stripped one.
        if debug.crc32().is_ok_and(|found| found == crc) {
            return Some((path, debug));
        }
    }
    None
}

/// Symbols that a distribution left in the stripped file, compressed (`.gnu_debugdata`).
pub fn mini_debug_info(elf: &Elf) -> Option<Result<Elf, ElfError>> {
    let packed = elf.section(".gnu_debugdata")?;
    Some(elf.data(packed).and_then(|packed| {
        let mut bytes = Vec::new();
        let mut unpacked = liblzma::read::XzDecoder::new(&packed[..]).take(MINI_LIMIT + 1);
        unpacked.read_to_end(&mut bytes).map_err(|_| ElfError::Malformed("damaged .gnu_debugdata"))?;
        if bytes.len() as u64 > MINI_LIMIT {
            return Err(ElfError::TooLarge(bytes.len() as u64));
        }
        Elf::of_bytes(bytes.into())
    }))
}

/// Those of the largest binaries have a few MiB; a few KiB of xz may unpack to anything.
const MINI_LIMIT: u64 = 256 << 20;
