//! Finds the functions of a file by name, with their offsets in the file. Uprobes need these offsets.

use std::path::Path;

use object::elf;
use perf_prof_format::spec;

use super::{
    super::options::Data, DebugSearch, Elf, ElfError, debug_file, debug_file::mini_debug_info, interrupt::Interrupt,
    table::RawTable,
};
use crate::symbol::demangle::demangle;

/// The position of a function's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionOffset {
    /// The offset from the start of the file, in bytes.
    pub file_offset: u64,
    /// The address to which the function is loaded, as `nm` and `objdump` show it.
    pub address: u64,
    /// The function's size in bytes; 0 if the file does not state it.
    pub size: u64,
}

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name as the linker knows it. Bytes that are not UTF-8 are replaced.
    pub name: String,
    /// The position at which the function starts.
    pub offset: FunctionOffset,
    /// When the function runs.
    pub kind: FunctionKind,
}

/// When a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// Whenever it is called.
    Called,
    /// Only in programs that were linked with an earlier version of the file. For example, programs that were linked
    /// with libc before 2.14 call another `memcpy`.
    Superseded,
    /// When a program starts. The function chooses an implementation, and calls to the function's name then go to this
    /// implementation (STT_GNU_IFUNC).
    Ifunc,
}

/// Why a function was not found.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// The file cannot be used.
    #[error("{path}: {error}")]
    File {
        /// The file's path.
        path: String,
        /// The error.
        error: ElfError,
    },
    /// The file has no symbols.
    #[error("{path} has no symbols, and no debug file was found for it")]
    NoSymbols {
        /// The file's path.
        path: String,
    },
    /// The file contains functions, but none with this name.
    #[error("{path} has no function `{name}`{}{}", spec_near(near), only_exported(*.stripped))]
    Unknown {
        /// The file's path.
        path: String,
        /// The requested name.
        name: String,
        /// Names in the file that are similar to the requested name.
        near: Vec<String>,
        /// Whether the file is stripped. In a stripped file, only the functions that other files can call are known.
        stripped: bool,
    },
    /// The file contains several functions with this name.
    #[error("{path} has {count} functions named `{name}`; give the address of one instead: {}", hex(addresses))]
    Ambiguous {
        /// The file's path.
        path: String,
        /// The requested name.
        name: String,
        /// The number of these functions.
        count: usize,
        /// The addresses of the first few of these functions.
        addresses: Vec<u64>,
    },
    /// The function only chooses an implementation when a program starts. Programs call the implementation in place of
    /// the function.
    #[error(
        "{path}: `{name}` has several implementations, and a program chooses one when it starts (IFUNC); give the name of the implementation{}",
        implementations(others)
    )]
    IsIfunc {
        /// The file's path.
        path: String,
        /// The requested name.
        name: String,
        /// Functions with similar names, which may be the implementations.
        others: Vec<String>,
    },
}

fn spec_near(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}

fn only_exported(stripped: bool) -> &'static str {
    if stripped {
        "; the file is stripped, so only its exported functions are known; install its debug symbols to find all"
    } else {
        ""
    }
}

fn implementations(others: &[String]) -> String {
    match others {
        [] => " (the file's debug symbols contain this name: install them)".to_owned(),
        others => format!(", for example {}", others.join(", ")),
    }
}

fn hex(addresses: &[u64]) -> String {
    addresses.iter().map(|address| format!("{address:#x}")).collect::<Vec<_>>().join(", ")
}

/// Returns the position of the function `name` in a file. `name` is the name in the symbol table without its version,
/// or the demangled name.
pub fn function(file: &Path, name: &str) -> Result<FunctionOffset, FunctionError> {
    function_of(&open(file)?, file, name)
}

/// Like [`function`], for a file that is open. `file` is its path.
pub fn function_of(main: &Elf, file: &Path, name: &str) -> Result<FunctionOffset, FunctionError> {
    let functions = functions_of(main, file)?;
    let path = || file.display().to_string();
    let plain = |function: &&Function| function.name == name || function.name.split('@').next() == Some(name);
    let mut found: Vec<&Function> = functions.iter().filter(plain).collect();
    if found.is_empty() && name.contains([':', '(', '<', ' ']) {
        let demangled = |function: &&Function| {
            demangle(&function.name).is_some_and(|full| full == name || full.split('(').next() == Some(name))
        };
        found = functions.iter().filter(demangled).collect();
    }
    // Superseded functions are only used if the file contains no other function of this name, because new programs are
    // not linked with them.
    if found.iter().any(|function| function.kind != FunctionKind::Superseded) {
        found.retain(|function| function.kind != FunctionKind::Superseded);
    }
    found.sort_by_key(|function| function.offset.file_offset);
    found.dedup_by_key(|function| function.offset.file_offset);
    match found[..] {
        [Function { kind: FunctionKind::Ifunc, .. }] => {
            let implements = |function: &&Function| {
                function.name != name && function.name.contains(name) && function.kind == FunctionKind::Called
            };
            let others =
                functions.iter().filter(implements).take(NAMED).map(|function| function.name.clone()).collect();
            Err(FunctionError::IsIfunc { path: path(), name: name.to_owned(), others })
        }
        [only] => Ok(only.offset),
        [] => {
            // Much longer names are skipped, because the time for a comparison of two names grows with the product of
            // their lengths.
            let is_similar_length = |other: &&str| other.len() <= 2 * name.len() + 64;
            let names = functions.iter().map(|function| function.name.as_str());
            let near = spec::similar_names(name, names.filter(is_similar_length));
            let has_all = |elf: &Elf| elf.sections.iter().any(|section| section.kind == elf::SHT_SYMTAB);
            let debug = || debug_file(main, file, &DebugSearch::default()).map(|(_, debug)| debug);
            let stripped = !has_all(main) && !debug().is_some_and(|debug| has_all(&debug));
            Err(FunctionError::Unknown { path: path(), name: name.to_owned(), near, stripped })
        }
        _ => {
            let addresses = found.iter().take(NAMED).map(|function| function.offset.address).collect();
            Err(FunctionError::Ambiguous { path: path(), name: name.to_owned(), count: found.len(), addresses })
        }
    }
}

/// The maximum number of functions that a message lists.
const NAMED: usize = 6;

/// The maximum memory for the functions of a file, in bytes.
const SYMBOLS_LIMIT: usize = 256 << 20;

/// Returns all functions of a file. A function with several names is returned once for each name.
pub fn functions(file: &Path) -> Result<Vec<Function>, FunctionError> {
    functions_of(&open(file)?, file)
}

fn open(file: &Path) -> Result<Elf, FunctionError> {
    Elf::open(file).map_err(|error| FunctionError::File { path: file.display().to_string(), error })
}

/// Like [`functions`], for a file that is open. `file` is its path.
pub fn functions_of(main: &Elf, file: &Path) -> Result<Vec<Function>, FunctionError> {
    let path = || file.display().to_string();
    let debug = debug_file(main, file, &DebugSearch::default()).map(|(_, debug)| debug);
    let mini = mini_debug_info(main, SYMBOLS_LIMIT).and_then(Result::ok);
    let mut functions: Vec<Function> = Vec::new();
    let mut wrong = None;
    let interrupt = Interrupt::begin();
    // The memory of the names is counted, because many symbols may refer to the same long name.
    let mut bytes = 0;
    for part in [Some(main), debug.as_ref(), mini.as_ref()].into_iter().flatten() {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let mut candidates = Vec::new();
            let table = RawTable::read(part, kind, SYMBOLS_LIMIT as u64).and_then(|table| match table {
                Some(table) => {
                    table.add_candidates(part, 0, Data::No, &interrupt, &mut candidates).map(|()| Some(table))
                }
                None => Ok(None),
            });
            match table {
                Ok(Some(table)) => {
                    for symbol in &candidates {
                        // The offset is taken from the main file, which is executed. The debug file has other offsets.
                        let Some(file_offset) = main.offset_of(symbol.start) else { continue };
                        let name = String::from_utf8_lossy(table.name_of(symbol)).into_owned();
                        bytes += name.len() + size_of::<Function>();
                        if bytes > SYMBOLS_LIMIT {
                            let error = ElfError::TooLarge(bytes as u64);
                            return Err(FunctionError::File { path: path(), error });
                        }
                        let offset = FunctionOffset { file_offset, address: symbol.start, size: symbol.size };
                        // In `.symtab`, the version is part of the name: `name@version` for a superseded function,
                        // `name@@version` for the current one.
                        let superseded = symbol.superseded || name.contains('@') && !name.contains("@@");
                        let kind = match (superseded, symbol.chooses) {
                            (true, _) => FunctionKind::Superseded,
                            (false, true) => FunctionKind::Ifunc,
                            (false, false) => FunctionKind::Called,
                        };
                        functions.push(Function { name, offset, kind });
                    }
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
