//! The vdso, the library that the kernel maps into every process. All 64-bit processes have the same vdso, so it is
//! read from this process.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::{Arc, OnceLock},
};

use super::{
    Reason,
    elf::Elf,
    maps::{self, Backing, Mapping},
};

/// The maximum size of a vdso that is read, in bytes.
const SIZE_LIMIT: u64 = 1 << 20;

/// Returns whether the vdso of another process, at these addresses, is the same as the vdso of this process. A 32-bit
/// process has another vdso.
pub fn is_ours(start: u64, end: u64) -> bool {
    static SIZE: OnceLock<Option<u64>> = OnceLock::new();
    let own = *SIZE.get_or_init(|| mapping().ok().map(|vdso| vdso.end - vdso.start));
    start >= 1 << 32 && own == end.checked_sub(start)
}

/// Reads the vdso.
pub fn read() -> Result<Elf, Reason> {
    let vdso = mapping()?;
    let mut bytes = vec![0; (vdso.end - vdso.start) as usize];
    let memory = File::open("/proc/self/mem").and_then(|memory| memory.read_exact_at(&mut bytes, vdso.start));
    memory.map_err(|error| wrong("/proc/self/mem", error.to_string()))?;
    Elf::of_bytes(Arc::from(bytes)).map_err(|error| wrong("[vdso]", error.to_string()))
}

fn wrong(path: &str, error: String) -> Reason {
    Reason::Unreadable { path: path.to_owned(), error }
}

/// Returns the vdso's mapping in this process.
fn mapping() -> Result<Mapping, Reason> {
    let maps = std::fs::read("/proc/self/maps").map_err(|error| wrong("/proc/self/maps", error.to_string()))?;
    let vdso =
        maps::parse(&maps).find(|mapping| mapping.executable && Backing::from_path(&mapping.path) == Backing::Vdso);
    vdso.filter(|vdso| vdso.end - vdso.start <= SIZE_LIMIT).ok_or(Reason::NotMapped)
}
