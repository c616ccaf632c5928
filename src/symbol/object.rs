//! One binary: its symbols, and its DWARF once somebody asks. Knows nothing of who mapped it.

use std::{path::PathBuf, sync::Arc};

use rustc_hash::FxHashMap;

use super::{
    Reason,
    demangle::demangle,
    dwarf::{Dwarf, DwarfFrame},
    elf::{DebugSearch, Elf, Symbols, debug_file, mini_debug_info, shared_debug_file},
    options::Demangle,
};

/// A binary that is open. What was read of it can be dropped and read again.
#[derive(Debug)]
pub struct Object {
    elf: Elf,
    /// The path by which the process knows it.
    path: PathBuf,
    search: DebugSearch,
    /// The separate debug file, where it is, once it was looked for.
    debug: Option<Option<(PathBuf, Elf)>>,
    symbols: Option<Result<Symbols, Reason>>,
    /// Whether the symbols are all there were when it was linked, not just what dynamic linking needs.
    extent: Extent,
    dwarf: Option<Result<Dwarf, Reason>>,
    /// Names that were asked for, by the number of the function.
    names: FxHashMap<u32, Arc<str>>,
    name_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    Stripped,
}

/// A function of a binary.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its name.
    pub name: Arc<str>,
    /// Where it begins.
    pub start: u64,
}

impl Object {
    /// Nothing but the headers has been read.
    pub fn new(elf: Elf, path: PathBuf, root: PathBuf) -> Self {
        let search = DebugSearch { root, ..DebugSearch::default() };
        Self {
            elf,
            path,
            search,
            debug: None,
            symbols: None,
            extent: Extent::Whole,
            dwarf: None,
            names: FxHashMap::default(),
            name_bytes: 0,
        }
    }

    /// Its bytes, for who reads them in his own way.
    pub fn image(&self) -> std::io::Result<super::CodeImage> {
        self.elf.image()
    }

    /// The bytes of its separate debug file, where there is one.
    pub fn debug_image(&mut self) -> Option<super::CodeImage> {
        self.find_debug();
        self.debug.as_ref()?.as_ref()?.1.image().ok()
    }

    /// What it was built from.
    pub fn build_id(&self) -> Option<&Arc<[u8]>> {
        self.elf.build_id.as_ref()
    }

    /// The address in the file of a place in the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        self.elf.address_of(offset)
    }

    /// Bytes of memory that `unload` gives back.
    pub fn bytes(&self) -> usize {
        let symbols = self.symbols.as_ref().and_then(|symbols| symbols.as_ref().ok()).map_or(0, Symbols::bytes);
        let dwarf = self.dwarf.as_ref().and_then(|dwarf| dwarf.as_ref().ok()).map_or(0, Dwarf::bytes);
        symbols + dwarf + self.name_bytes
    }

    /// Drops all that can be read again; the file stays open, as it may be gone.
    pub fn unload(&mut self) {
        (self.symbols, self.dwarf, self.names, self.name_bytes) = (None, None, FxHashMap::default(), 0);
    }

    /// Drops the names that were asked for, which the symbols tell again.
    pub fn forget_names(&mut self) {
        (self.names, self.name_bytes) = (FxHashMap::default(), 0);
    }

    /// The function that an address is in. `limit` bounds what may be read for it.
    pub fn name(&mut self, address: u64, style: Demangle, limit: usize) -> Result<Named, Reason> {
        let found = match self.symbols(limit) {
            Ok(symbols) => symbols.lookup(address).map(|found| (found.index, found.start, found.name.to_vec())),
            Err(reason @ Reason::NoSymbols) | Err(reason @ Reason::NoSymbolsIn { .. }) => {
                return self.name_of_dwarf(address, style, limit).ok_or(reason);
            }
            Err(reason) => return Err(reason),
        };
        let Some((index, start, name)) = found else {
            let path = self.path.display().to_string();
            let none = match self.extent {
                Extent::Whole => Reason::NoFunction { path },
                Extent::Stripped => Reason::NoSymbolsIn { path },
            };
            return self.name_of_dwarf(address, style, limit).ok_or(none);
        };
        if let Some(name) = self.names.get(&index) {
            return Ok(Named { name: Arc::clone(name), start });
        }
        let name = shown(&String::from_utf8_lossy(&name), style);
        self.name_bytes += name.len() + 64;
        self.names.insert(index, Arc::clone(&name));
        Ok(Named { name, start })
    }

    /// Where no symbol covers the address, DWARF may: of a file whose symbol table was stripped and nothing else.
    fn name_of_dwarf(&mut self, address: u64, style: Demangle, limit: usize) -> Option<Named> {
        let outer = self.frames(address, limit).ok()?.pop()?;
        Some(Named { name: shown(&outer.name?, style), start: outer.start.unwrap_or(address) })
    }

    /// What DWARF tells of an address, innermost first.
    pub fn frames(&mut self, address: u64, limit: usize) -> Result<Vec<DwarfFrame>, Reason> {
        if self.dwarf.is_none() {
            self.dwarf = Some(self.read_dwarf(limit));
        }
        match &self.dwarf {
            Some(Ok(dwarf)) => Ok(dwarf.frames(address)),
            Some(Err(reason)) => Err(reason.clone()),
            None => Err(Reason::NoSymbols),
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
        // With a symbol table of its own there is no need to look for another file.
        let stripped = self.elf.sections.iter().all(|section| section.kind != object::elf::SHT_SYMTAB);
        if stripped {
            self.find_debug();
        }
        let debug = self.debug.as_ref().and_then(Option::as_ref).filter(|_| stripped).map(|(_, debug)| debug);
        let mini = if stripped && debug.is_none() { mini_debug_info(&self.elf).and_then(Result::ok) } else { None };
        self.extent = if stripped && debug.is_none() && mini.is_none() { Extent::Stripped } else { Extent::Whole };
        let path = || self.path.display().to_string();
        let parts: Vec<&Elf> = [Some(&self.elf), debug, mini.as_ref()].into_iter().flatten().collect();
        let expected = Symbols::expected_bytes(&parts);
        if expected > limit as u64 {
            return Err(Reason::TooLarge { path: path(), bytes: expected });
        }
        if expected.saturating_add(self.bytes() as u64) > limit as u64 {
            // Names come before lines.
            self.dwarf = None;
        }
        let path = || self.path.display().to_string();
        let damaged = |error: super::elf::ElfError| Reason::Damaged { path: path(), error: error.to_string() };
        let symbols = Symbols::read(&parts).map_err(damaged)?;
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
        // Beside the symbols; otherwise it would have to go again, and be read again for the next address.
        let expected = Dwarf::in_memory(expected);
        if expected.saturating_add(self.bytes() as u64) > limit as u64 {
            return Err(Reason::TooLarge { path: path(), bytes: expected });
        }
        Dwarf::read(elf, shared.as_ref()).map_err(|error| Reason::Damaged { path: path(), error: error.to_string() })
    }

    fn find_debug(&mut self) {
        if self.debug.is_none() {
            self.debug = Some(debug_file(&self.elf, &self.path, &self.search));
        }
    }
}

/// A name in the style that is wanted.
pub fn shown(name: &str, style: Demangle) -> Arc<str> {
    match style {
        Demangle::Yes => demangle(name).map_or_else(|| name.into(), Arc::from),
        Demangle::No => name.into(),
    }
}
