//! One binary: its symbols and its DWARF, which are read at their first use. This module does not know which processes
//! map the binary.

use std::{path::PathBuf, sync::Arc};

use rustc_hash::FxHashMap;

use super::{
    Extent, Reason,
    demangle::{demangle, demangle_name},
    dwarf::{Dwarf, DwarfError, DwarfFrame},
    elf::{DebugSearch, Elf, Symbols, debug_file, mini_debug_info, shared_debug_file},
    options::{Data, Demangle},
};

/// An open binary. Symbols and DWARF that were read from it can be dropped and read again.
#[derive(Debug)]
pub struct Object {
    elf: Elf,
    /// The path as the process sees it.
    path: PathBuf,
    search: DebugSearch,
    /// The separate debug file and its path. `None` before the search, `Some(None)` if the search found no such file.
    debug: Option<Option<(PathBuf, Elf)>>,
    symbols: Option<Result<Symbols, Reason>>,
    /// Whether `symbols` is the complete symbol table, or only the symbols for dynamic linking.
    extent: SymbolTable,
    dwarf: Option<Result<Dwarf, Reason>>,
    /// The names that were looked up so far, by the index of the function in `symbols`.
    names: FxHashMap<u32, Arc<str>>,
    name_bytes: usize,
    /// Whether symbols of data are read too.
    pub data: Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SymbolTable {
    Complete,
    DynamicOnly,
}

/// A function of a binary.
#[derive(Clone, Debug)]
pub struct NamedFunction {
    /// The function's name.
    pub name: Arc<str>,
    /// The address at which the function starts, as the file's headers count addresses.
    pub start: u64,
    /// The function's extent in the symbol table.
    pub extent: Extent,
}

impl Object {
    /// Creates an object. Only the headers of the file have been read so far. `path` is the file's path as the process
    /// sees it, and `root` is the root directory of the process.
    pub fn new(elf: Elf, path: PathBuf, root: PathBuf) -> Self {
        let search = DebugSearch { root, ..DebugSearch::default() };
        Self {
            elf,
            path,
            search,
            debug: None,
            symbols: None,
            extent: SymbolTable::Complete,
            dwarf: None,
            names: FxHashMap::default(),
            name_bytes: 0,
            data: Data::No,
        }
    }

    /// Returns the bytes of the file, for callers that parse the file themselves.
    pub fn image(&self) -> std::io::Result<super::CodeImage> {
        self.elf.image()
    }

    /// Returns the bytes of the binary's separate debug file, if there is one.
    pub fn debug_image(&mut self) -> Option<super::CodeImage> {
        self.find_debug();
        self.debug.as_ref()?.as_ref()?.1.image().ok()
    }

    /// Returns the build id of the binary.
    pub fn build_id(&self) -> Option<&Arc<[u8]>> {
        self.elf.build_id.as_ref()
    }

    /// Converts an offset in the file to an address, as the file's headers count addresses.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        match self.data {
            Data::Yes => self.elf.address_in_memory(offset),
            Data::No => self.elf.address_of(offset),
        }
    }

    /// Returns the memory that [`Object::unload`] frees, in bytes.
    pub fn bytes(&self) -> usize {
        let symbols = self.symbols.as_ref().and_then(|symbols| symbols.as_ref().ok()).map_or(0, Symbols::bytes);
        let dwarf = self.dwarf.as_ref().and_then(|dwarf| dwarf.as_ref().ok()).map_or(0, Dwarf::bytes);
        symbols + dwarf + self.name_bytes
    }

    /// Returns the memory that remains after [`Object::unload`], in bytes: the headers of the files.
    pub fn header_bytes(&self) -> usize {
        let debug = self.debug.as_ref().and_then(Option::as_ref);
        size_of::<Self>() + self.elf.bytes() + debug.map_or(0, |(path, elf)| path.as_os_str().len() + elf.bytes())
    }

    /// Drops everything that can be read again. The file stays open, because another file may be at its path now.
    pub fn unload(&mut self) {
        (self.symbols, self.dwarf, self.names, self.name_bytes) = (None, None, FxHashMap::default(), 0);
    }

    /// Drops the cached names. They can be created again from the symbols.
    pub fn forget_names(&mut self) {
        (self.names, self.name_bytes) = (FxHashMap::default(), 0);
    }

    /// Returns the function that contains `address`. `limit` is the maximum memory for the symbols and the DWARF of
    /// this file, in bytes.
    pub fn name(&mut self, address: u64, style: Demangle, limit: usize) -> Result<NamedFunction, Reason> {
        let found = match self.symbols(limit) {
            Ok(symbols) => symbols.lookup(address).map(|found| {
                let extent = Extent { start: found.start, end: found.end, binding: found.binding.0 };
                (found.index, extent, found.name.to_vec())
            }),
            Err(reason @ Reason::NoSymbols) | Err(reason @ Reason::NoSymbolsIn { .. }) => {
                return self.name_from_dwarf(address, style, limit).ok_or(reason);
            }
            Err(reason) => return Err(reason),
        };
        let Some((index, extent, name)) = found else {
            let path = self.path.display().to_string();
            let none = match self.extent {
                SymbolTable::Complete => Reason::NoFunction { path },
                SymbolTable::DynamicOnly => Reason::NoSymbolsIn { path },
            };
            return self.name_from_dwarf(address, style, limit).ok_or(none);
        };
        let start = extent.start;
        let extent = self.in_file(extent);
        if let Some(name) = self.names.get(&index) {
            return Ok(NamedFunction { name: Arc::clone(name), start, extent });
        }
        let name = styled_name(&String::from_utf8_lossy(&name), style);
        self.name_bytes += name.len() + 64;
        self.names.insert(index, Arc::clone(&name));
        Ok(NamedFunction { name, start, extent })
    }

    fn in_file(&self, extent: Extent) -> Extent {
        let start = self.elf.offset_of(extent.start).unwrap_or(extent.start);
        Extent { start, end: start.saturating_add(extent.end.saturating_sub(extent.start)), ..extent }
    }

    /// Looks up the function in DWARF, for addresses that no symbol covers. No symbol covers an address, for example,
    /// if only the symbol table was removed from the file.
    fn name_from_dwarf(&mut self, address: u64, style: Demangle, limit: usize) -> Option<NamedFunction> {
        let outer = self.frames(address, limit).ok()?.pop()?;
        let start = outer.start.unwrap_or(address);
        // DWARF contains no binding, so `STB_GLOBAL` is assumed. A function may consist of several ranges, so the
        // extent ends after `address`.
        let extent = self.in_file(Extent { start, end: address.saturating_add(1), binding: object::elf::STB_GLOBAL.0 });
        Some(NamedFunction { name: styled_name(&outer.name?, style), start, extent })
    }

    /// Returns the functions that contain `address` according to DWARF, innermost first. `limit` is the same as for
    /// [`Object::name`].
    pub fn frames(&mut self, address: u64, limit: usize) -> Result<Vec<DwarfFrame>, Reason> {
        let is_new = self.dwarf.is_none();
        if is_new {
            self.dwarf = Some(self.read_dwarf(limit));
        }
        match self.frames_from_dwarf(address) {
            // The DWARF that was parsed for other addresses fills the memory. It is dropped, so that only the DWARF for
            // this address is parsed again.
            Err(Reason::TooLarge { .. }) if !is_new && matches!(self.dwarf, Some(Ok(_))) => {
                self.dwarf = None;
                self.dwarf = Some(self.read_dwarf(limit));
                self.frames_from_dwarf(address)
            }
            found => found,
        }
    }

    fn frames_from_dwarf(&self, address: u64) -> Result<Vec<DwarfFrame>, Reason> {
        match &self.dwarf {
            Some(Ok(dwarf)) => dwarf.frames(address).map_err(|error| self.dwarf_reason(error, dwarf.bytes() as u64)),
            Some(Err(reason)) => Err(reason.clone()),
            None => Err(Reason::NoSymbols),
        }
    }

    fn dwarf_reason(&self, error: DwarfError, bytes: u64) -> Reason {
        let path = self.path.display().to_string();
        match error {
            DwarfError::TooLarge => Reason::TooLarge { path, bytes },
            error => Reason::Damaged { path, error: error.to_string() },
        }
    }

    fn symbols(&mut self, limit: usize) -> Result<&Symbols, Reason> {
        if self.symbols.is_none() {
            self.symbols = Some(self.read_symbols(limit));
        }
        match &self.symbols {
            Some(Ok(symbols)) => Ok(symbols),
            Some(Err(reason)) => Err(reason.clone()),
            None => Err(Reason::NoSymbols),
        }
    }

    fn read_symbols(&mut self, limit: usize) -> Result<Symbols, Reason> {
        // A file with a complete symbol table needs no separate debug file for names.
        let stripped = self.elf.sections.iter().all(|section| section.kind != object::elf::SHT_SYMTAB);
        if stripped {
            self.find_debug();
        }
        let debug = self.debug.as_ref().and_then(Option::as_ref).filter(|_| stripped).map(|(_, debug)| debug);
        let mini = match stripped && debug.is_none() {
            true => mini_debug_info(&self.elf, limit).and_then(Result::ok),
            false => None,
        };
        self.extent = if stripped && debug.is_none() && mini.is_none() {
            SymbolTable::DynamicOnly
        } else {
            SymbolTable::Complete
        };
        let path = || self.path.display().to_string();
        let parts: Vec<&Elf> = [Some(&self.elf), debug, mini.as_ref()].into_iter().flatten().collect();
        let expected = Symbols::expected_bytes(&parts);
        if expected > limit as u64 {
            return Err(Reason::TooLarge { path: path(), bytes: expected });
        }
        if expected.saturating_add(self.bytes() as u64) > limit as u64 {
            // Names are more important than source lines, so the DWARF is dropped to make room for the symbols.
            self.dwarf = None;
        }
        let path = || self.path.display().to_string();
        let symbols = Symbols::read_with(&parts, limit, self.data)
            .map_err(|error| Reason::Damaged { path: path(), error: error.to_string() })?;
        if symbols.is_empty() { Err(Reason::NoSymbolsIn { path: path() }) } else { Ok(symbols) }
    }

    fn read_dwarf(&mut self, limit: usize) -> Result<Dwarf, Reason> {
        if !Dwarf::is_in(&self.elf) {
            self.find_debug();
        }
        let path = || self.path.display().to_string();
        let (at, elf) = match &self.debug {
            Some(Some((at, debug))) if Dwarf::is_in(debug) => (at, debug),
            _ if Dwarf::is_in(&self.elf) => (&self.path, &self.elf),
            _ => return Err(Reason::NoDebugInfo { path: path() }),
        };
        let shared = shared_debug_file(elf, at, &self.search);
        let expected = shared.as_ref().map_or(0, Dwarf::expected_bytes).saturating_add(Dwarf::expected_bytes(elf));
        // DWARF and symbols must fit in memory together. Otherwise DWARF would be unloaded and read again for each
        // address.
        let expected = Dwarf::in_memory(expected);
        if expected.saturating_add(self.bytes() as u64) > limit as u64 {
            return Err(Reason::TooLarge { path: path(), bytes: expected });
        }
        let room = limit.saturating_sub(self.bytes());
        Dwarf::read(elf, shared.as_ref(), room).map_err(|error| self.dwarf_reason(error, expected))
    }

    fn find_debug(&mut self) {
        if self.debug.is_none() {
            self.debug = Some(debug_file(&self.elf, &self.path, &self.search));
        }
    }
}

/// Returns a name in the requested style.
pub fn styled_name(name: &str, style: Demangle) -> Arc<str> {
    match style {
        Demangle::Yes => demangle(name).map_or_else(|| name.into(), Arc::from),
        Demangle::NameOnly => demangle_name(name).map_or_else(|| name.into(), Arc::from),
        Demangle::No => name.into(),
    }
}
