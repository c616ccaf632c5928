//! The library that the kernel maps into every process: the same image for all 64-bit ones, so we read our own.

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

/// No vdso is larger.
const SIZE_LIMIT: u64 = 1 << 20;

/// Whether a process's vdso is the one that we have. That of a 32-bit process is another one.
pub fn is_ours(start: u64, end: u64) -> bool {
    static SIZE: OnceLock<Option<u64>> = OnceLock::new();
    let own = *SIZE.get_or_init(|| mapping().ok().map(|vdso| vdso.end - vdso.start));
    start >= 1 << 32 && own == end.checked_sub(start)
}

/// The vdso's image.
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

/// Where it is in this process.
fn mapping() -> Result<Mapping, Reason> {
    let maps = std::fs::read("/proc/self/maps").map_err(|error| wrong("/proc/self/maps", error.to_string()))?;
    let vdso = maps::parse(&maps).find(|mapping| mapping.executable && Backing::of(&mapping.path) == Backing::Vdso);
    vdso.filter(|vdso| vdso.end - vdso.start <= SIZE_LIMIT).ok_or(Reason::NotMapped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::elf::Symbols;

    #[test]
    fn it_has_the_clock() {
        let vdso = match read() {
            Ok(vdso) => vdso,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let symbols = Symbols::read(&[&vdso]).unwrap();
        assert!(symbols.iter().any(|found| String::from_utf8_lossy(found.name).contains("clock_gettime")));
    }
}
