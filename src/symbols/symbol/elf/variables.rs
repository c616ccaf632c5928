//! Finds the variables of a file by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use object::elf;

use super::{super::options::Data, DebugSearch, Elf, debug_file, interrupt::Interrupt, table::RawTable};

/// The maximum size of a symbol table that is read, in bytes.
const SYMBOLS_LIMIT: u64 = 256 << 20;

/// Returns the addresses of variables by name, as `nm` shows them. `path` is the path of the file. A variable is
/// missing if neither the file nor its debug file contains it, or if they contain several of its name.
pub fn variables(main: &Elf, path: &Path, names: &BTreeSet<&str>) -> BTreeMap<String, u64> {
    let mut found: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    if names.is_empty() {
        return BTreeMap::new();
    }
    let debug = debug_file(main, path, &DebugSearch::default()).map(|(_, debug)| debug);
    let interrupt = Interrupt::begin();
    for part in [Some(main), debug.as_ref()].into_iter().flatten() {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Ok(Some(table)) = RawTable::read(part, kind, SYMBOLS_LIMIT) else { continue };
            let mut candidates = Vec::new();
            if table.add_candidates(part, 0, Data::Yes, &interrupt, &mut candidates).is_err() {
                continue;
            }
            for symbol in &candidates {
                // In `.symtab`, a name may include the version of the symbol: `environ@@GLIBC_2.2.5`.
                let name = table.name_of(symbol).split(|&byte| byte == b'@').next().unwrap_or_default();
                if let Some(name) = std::str::from_utf8(name).ok().and_then(|name| names.get(name)) {
                    found.entry((*name).to_owned()).or_default().insert(symbol.start);
                }
            }
        }
    }
    let only = |(name, addresses): (String, BTreeSet<u64>)| match addresses.len() {
        1 => Some((name, addresses.into_iter().next()?)),
        _ => None,
    };
    found.into_iter().filter_map(only).collect()
}
