//! Finds the variables of a file by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use object::elf::{self, SectionType};

use super::{super::options::Data, DebugSearch, Elf, debug_file, interrupt::Interrupt, table::RawTable};

/// The maximum size of a symbol table that is read, in bytes.
const SYMBOLS_LIMIT: u64 = 256 << 20;
/// The maximum size of a symbol table in a file that any process may have made, in bytes. The symbol tables of
/// CPython's libraries and executables take at most a few MiB.
const SMALL_LIMIT: u64 = 16 << 20;

/// Returns the addresses of variables by name, as `nm` shows them. `main` is the file, and `path` is its path. A
/// variable is missing from the result if neither the file nor its debug file contains it, or if they contain several
/// variables with its name.
pub fn variables(main: &Elf, path: &Path, names: &BTreeSet<&str>) -> BTreeMap<String, u64> {
    if names.is_empty() {
        return BTreeMap::new();
    }
    let debug = debug_file(main, path, &DebugSearch::default()).map(|(_, debug)| debug);
    let mut found = Found::default();
    for part in [Some(main), debug.as_ref()].into_iter().flatten() {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            found.read(part, kind, SYMBOLS_LIMIT, names);
        }
    }
    found.only()
}

/// Like [`variables`], for variables that a file exports. The complete symbol table is read only if the file does not
/// export all of the variables, and a debug file is never read. So a file with any content takes little time and
/// memory.
pub fn exported_variables(main: &Elf, names: &BTreeSet<&str>) -> BTreeMap<String, u64> {
    let mut found = Found::default();
    for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
        found.read(main, kind, SMALL_LIMIT, names);
        if found.0.len() == names.len() {
            break;
        }
    }
    found.only()
}

/// The addresses that were found for each name.
#[derive(Default)]
struct Found(BTreeMap<String, BTreeSet<u64>>);

impl Found {
    /// Reads a symbol table of a file, if it has one of at most `limit` bytes.
    fn read(&mut self, part: &Elf, kind: SectionType, limit: u64, names: &BTreeSet<&str>) {
        let Ok(Some(table)) = RawTable::read(part, kind, limit) else { return };
        let (interrupt, mut candidates) = (Interrupt::begin(), Vec::new());
        if table.add_candidates(part, 0, Data::Yes, &interrupt, &mut candidates).is_err() {
            return;
        }
        for symbol in &candidates {
            // In `.symtab`, a name may include the version of the symbol: `environ@@GLIBC_2.2.5`.
            let name = table.name_of(symbol).split(|&byte| byte == b'@').next().unwrap_or_default();
            if let Some(name) = std::str::from_utf8(name).ok().and_then(|name| names.get(name)) {
                self.0.entry((*name).to_owned()).or_default().insert(symbol.start);
            }
        }
    }

    /// Returns the names with exactly one address.
    fn only(self) -> BTreeMap<String, u64> {
        let only = |(name, addresses): (String, BTreeSet<u64>)| match addresses.len() {
            1 => Some((name, addresses.into_iter().next()?)),
            _ => None,
        };
        self.0.into_iter().filter_map(only).collect()
    }
}
