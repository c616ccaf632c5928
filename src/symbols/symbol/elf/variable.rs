//! Finds the variables of a file by name.

use std::path::Path;

use object::elf;

use super::{super::options::Data, DebugSearch, Elf, debug_file, interrupt::Interrupt, table::RawTable};

/// The maximum size of a symbol table that is read, in bytes.
const SYMBOLS_LIMIT: u64 = 256 << 20;

/// Returns the address of the variable `name` of a file, as `nm` shows it. `path` is the path of the file. Returns `None`
/// if the file and its debug file have no such variable, or several.
pub fn variable(main: &Elf, path: &Path, name: &str) -> Option<u64> {
    let debug = debug_file(main, path, &DebugSearch::default()).map(|(_, debug)| debug);
    let interrupt = Interrupt::begin();
    let mut found: Option<u64> = None;
    for part in [Some(main), debug.as_ref()].into_iter().flatten() {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Ok(Some(table)) = RawTable::read(part, kind, SYMBOLS_LIMIT) else { continue };
            let mut candidates = Vec::new();
            table.add_candidates(part, (0, Data::Yes), &interrupt, &mut candidates).ok()?;
            // A name in a table that is not for the dynamic linker may have a version: `environ@@GLIBC_2.2.5`.
            let is_it = |of: &[u8]| of.split(|&byte| byte == b'@').next() == Some(name.as_bytes());
            for symbol in candidates.iter().filter(|symbol| is_it(table.name_of(symbol))) {
                if found.is_some_and(|found| found != symbol.start) {
                    return None;
                }
                found = Some(symbol.start);
            }
        }
    }
    found
}
