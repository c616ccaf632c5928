//! A file's functions by name and their places in the file: what a uprobe is put on. Knows nothing of probes.

use std::path::Path;

use object::elf;

use super::{DebugSearch, Elf, ElfError, debug_file, debug_file::mini_debug_info, table::RawTable};
use crate::{spec, symbol::demangle::demangle};

/// Where a function begins in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionOffset {
    /// From the file's begin.
    pub file_offset: u64,
    /// The address that it is loaded to, as `nm` and `objdump` show it.
    pub address: u64,
    /// The function's size; 0 where the file does not state it.
    pub size: u64,
}

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name as the linker knows it, lossily where it is not UTF-8.
    pub name: String,
    /// Where it is.
    pub offset: FunctionOffset,
    /// When it runs.
    pub kind: FunctionKind,
}

/// When a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// When it is called.
    Called,
    /// When a program calls it that was linked with an earlier version of the file, as those of libc's before 2.14 call
    /// another `memcpy`.
    Superseded,
    /// When a program starts, to choose what will be called by its name (STT_GNU_IFUNC).
    Chooser,
}

/// No such function, because.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// The file cannot be used.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: ElfError,
    },
    /// It has no symbols.
    #[error("{path} has no symbols, nor has a debug file of it been found")]
    NoSymbols {
        /// Which.
        path: String,
    },
    /// It has others.
    #[error("{path} has no function `{name}`{}", spec_near(near))]
    Unknown {
        /// The file.
        path: String,
        /// What was asked for.
        name: String,
        /// Names that are like it.
        near: Vec<String>,
    },
    /// It has several of that name.
    #[error("{path} has {count} functions `{name}`; give the address of one: {}", hex(addresses))]
    Ambiguous {
        /// The file.
        path: String,
        /// What was asked for.
        name: String,
        /// How many.
        count: usize,
        /// Where the first of them are.
        addresses: Vec<u64>,
    },
    /// It would not be called.
    #[error(
        "{path}: which code is called as `{name}` is chosen when a program starts (IFUNC); name the one that is chosen{}",
        implementations(others)
    )]
    Chosen {
        /// The file.
        path: String,
        /// What was asked for.
        name: String,
        /// Functions that are called alike.
        others: Vec<String>,
    },
}

fn spec_near(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}

fn implementations(others: &[String]) -> String {
    match others {
        [] => ": its name is in the debug symbols, which are not installed".to_owned(),
        others => format!(", as {}", others.join(", ")),
    }
}

fn hex(addresses: &[u64]) -> String {
    addresses.iter().map(|address| format!("{address:#x}")).collect::<Vec<_>>().join(", ")
}

/// The function `name` of a file: by its name in the symbol table, without its version, or demangled.
pub fn function(file: &Path, name: &str) -> Result<FunctionOffset, FunctionError> {
    let functions = functions(file)?;
    let path = || file.display().to_string();
    let plain = |function: &&Function| function.name == name || function.name.split('@').next() == Some(name);
    let mut found: Vec<&Function> = functions.iter().filter(plain).collect();
    if found.is_empty() && name.contains([':', '(', '<', ' ']) {
        let demangled = |function: &&Function| {
            demangle(&function.name).is_some_and(|full| full == name || full.split('(').next() == Some(name))
        };
        found = functions.iter().filter(demangled).collect();
    }
    // What nothing is linked with any more is meant only if there is nothing else.
    if found.iter().any(|function| function.kind != FunctionKind::Superseded) {
        found.retain(|function| function.kind != FunctionKind::Superseded);
    }
    found.sort_by_key(|function| function.offset.file_offset);
    found.dedup_by_key(|function| function.offset.file_offset);
    match found[..] {
        [Function { kind: FunctionKind::Chooser, .. }] => {
            let implements = |function: &&Function| {
                function.name != name && function.name.contains(name) && function.kind == FunctionKind::Called
            };
            let others =
                functions.iter().filter(implements).take(NAMED).map(|function| function.name.clone()).collect();
            Err(FunctionError::Chosen { path: path(), name: name.to_owned(), others })
        }
        [only] => Ok(only.offset),
        [] => {
            let near = spec::near(name, functions.iter().map(|function| function.name.as_str()));
            let near = near.into_iter().map(str::to_owned).collect();
            Err(FunctionError::Unknown { path: path(), name: name.to_owned(), near })
        }
        _ => {
            let addresses = found.iter().take(NAMED).map(|function| function.offset.address).collect();
            Err(FunctionError::Ambiguous { path: path(), name: name.to_owned(), count: found.len(), addresses })
        }
    }
}

/// The most functions that a message names.
const NAMED: usize = 6;

/// All functions of a file, all names of each.
pub fn functions(file: &Path) -> Result<Vec<Function>, FunctionError> {
    let path = || file.display().to_string();
    let main = Elf::open(file).map_err(|error| FunctionError::File { path: path(), error })?;
    let debug = debug_file(&main, file, &DebugSearch::default()).map(|(_, debug)| debug);
    let mini = mini_debug_info(&main).and_then(Result::ok);
    let mut functions = Vec::new();
    let mut wrong = None;
    for part in [Some(&main), debug.as_ref(), mini.as_ref()].into_iter().flatten() {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            match RawTable::read(part, kind) {
                Ok(Some(table)) => {
                    let candidates = table.candidates(part, 0);
                    // Places are those of the file that runs: a debug file has other ones.
                    functions.extend(candidates.iter().filter_map(|symbol| {
                        let name = String::from_utf8_lossy(table.name_of(symbol)).into_owned();
                        let file_offset = main.offset_of(symbol.start)?;
                        let offset = FunctionOffset { file_offset, address: symbol.start, size: symbol.size };
                        // A table that is not for the dynamic linker has versions in its names.
                        let superseded = symbol.superseded || name.contains('@') && !name.contains("@@");
                        let kind = match (superseded, symbol.chooses) {
                            (true, _) => FunctionKind::Superseded,
                            (false, true) => FunctionKind::Chooser,
                            (false, false) => FunctionKind::Called,
                        };
                        Some(Function { name, offset, kind })
                    }));
                }
                Ok(None) => {}
                Err(error) => wrong = Some(error),
            }
        }
    }
    if functions.is_empty() {
        return Err(match wrong {
            Some(error) => FunctionError::File { path: path(), error },
            None => FunctionError::NoSymbols { path: path() },
        });
    }
    functions.sort_by(|a, b| a.name.cmp(&b.name).then(a.offset.file_offset.cmp(&b.offset.file_offset)));
    functions.dedup_by(|a, b| a.name == b.name && a.offset.file_offset == b.offset.file_offset);
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_libc_and_near_matches_of_a_mistyped_one() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc =
            maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("/libc.so"));
        let Some(libc) = libc.map(Path::new) else { return println!("skipped: no libc.so in this process") };
        let found = function(libc, "malloc").unwrap();
        assert!(found.file_offset > 0x1000 && found.size > 0, "{found:?}");
        let text = function(libc, "mallocc").unwrap_err().to_string();
        assert!(text.contains("did you mean") && text.contains("malloc"), "{text}");
        assert!(matches!(function(Path::new("/proc/self/maps"), "x"), Err(FunctionError::File { .. })));
        assert!(matches!(function(Path::new("/no/such"), "x"), Err(FunctionError::File { .. })));
    }
}
