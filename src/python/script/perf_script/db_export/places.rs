//! The tables of files and symbols.

use std::{collections::HashMap, sync::Arc};

use perf_prof_events::event::{PerfFrame, PerfFrameSymbol, PerfMap};
use pyo3::prelude::*;

use super::{
    super::Raised,
    MACHINE,
    tables::{Cell, Table, Tables, number},
};

/// The place of an address: the id of the file, the id of the symbol, and the offset of the address from the start of
/// the symbol. All three are 0 if no mapping contains the address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub dso: u64,
    pub symbol: u64,
    pub offset: u64,
}

/// Where the symbol `unknown` starts. This symbol is made for an address without a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnamed {
    /// At the offset of the address in the file.
    InFile,
    /// At the address itself, as in perf's callchains. But if a symbol exists already at the offset of the address in
    /// the file, this symbol is used instead.
    Address,
}

/// The ids of the files and symbols for which rows were passed.
#[derive(Debug, Default)]
pub struct Places {
    /// The ids of the files, by path and build id.
    dsos: HashMap<(Arc<str>, Arc<str>), u64>,
    symbols: HashMap<(u64, SymbolKey), u64>,
}

/// Identifies a symbol within its file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SymbolKey {
    /// A symbol of the file's symbol table, by its start.
    Listed(u64),
    /// A function that was inlined at this address of the file. As in perf, an inlined function is a separate symbol at
    /// each address where it was inlined.
    Inlined(u64, Arc<str>),
}

/// The start, the end, the binding and the name of a symbol.
type SymbolRow<'a> = (u64, u64, u8, &'a str);

impl Places {
    /// Returns the place of an address, and passes its rows. For an address without a symbol, makes a symbol `unknown`;
    /// `unnamed` says where this symbol starts.
    pub fn of(
        &mut self,
        py: Python<'_>,
        tables: &mut Tables,
        frame: &PerfFrame,
        unnamed: Unnamed,
    ) -> Result<Place, Raised> {
        let Some(map) = &frame.map else { return Ok(Place::default()) };
        let dso = self.dso(py, tables, map)?;
        let (key, row, offset) = match &frame.symbol {
            Some(symbol) => (SymbolKey::Listed(symbol.extent.start), row(symbol), symbol.offset),
            None => {
                let known = |start: &u64| self.symbols.contains_key(&(dso, SymbolKey::Listed(*start)));
                let start = match unnamed {
                    Unnamed::InFile => frame.file_offset,
                    Unnamed::Address => Some(frame.file_offset).filter(known).unwrap_or(frame.ip),
                };
                (SymbolKey::Listed(start), (start, start, 0, "unknown"), 0)
            }
        };
        Ok(Place { dso, symbol: self.symbol(py, tables, (dso, key), row)?, offset })
    }

    /// Returns the place of the function that was inlined at the address of `frame`, and passes its rows.
    pub fn of_inlined(&mut self, py: Python<'_>, tables: &mut Tables, frame: &PerfFrame) -> Result<Place, Raised> {
        let (Some(map), Some(symbol)) = (&frame.map, &frame.symbol) else { return Ok(Place::default()) };
        let dso = self.dso(py, tables, map)?;
        let key = SymbolKey::Inlined(symbol.extent.start.wrapping_add(symbol.offset), symbol.name.clone());
        Ok(Place { dso, symbol: self.symbol(py, tables, (dso, key), row(symbol))?, offset: symbol.offset })
    }

    fn dso(&mut self, py: Python<'_>, tables: &mut Tables, map: &PerfMap) -> Result<u64, Raised> {
        let key = (map.dso.clone(), map.build_id.clone());
        if let Some(&id) = self.dsos.get(&key) {
            return Ok(id);
        }
        let id = tables.next(Table::Dso);
        let short = short_name(&map.dso);
        let texts = [short.as_bytes(), map.dso.as_bytes(), map.build_id.as_bytes()].map(Cell::Text);
        tables.add(py, Table::Dso, &[number(id), number(MACHINE), texts[0], texts[1], texts[2]])?;
        self.dsos.insert(key, id);
        Ok(id)
    }

    fn symbol(
        &mut self,
        py: Python<'_>,
        tables: &mut Tables,
        key: (u64, SymbolKey),
        (start, end, binding, name): SymbolRow<'_>,
    ) -> Result<u64, Raised> {
        if let Some(&id) = self.symbols.get(&key) {
            return Ok(id);
        }
        let id = tables.next(Table::Symbol);
        let row = [
            number(id),
            number(key.0),
            number(start),
            number(end),
            Cell::Number(binding.into()),
            Cell::Text(name.as_bytes()),
        ];
        tables.add(py, Table::Symbol, &row)?;
        self.symbols.insert(key, id);
        Ok(id)
    }
}

fn row(symbol: &PerfFrameSymbol) -> SymbolRow<'_> {
    let extent = &symbol.extent;
    (extent.start, extent.end, extent.binding, &symbol.name)
}

/// Returns the name of a file without its folder. For code that a process has generated, returns the name of the map,
/// as perf does (`dso__set_basename()` in `tools/perf/util/dso.c`).
fn short_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.strip_prefix("perf-").and_then(|name| name.strip_suffix(".map")) {
        Some(pid) if pid.parse::<u32>().is_ok() => format!("[JIT] tid {pid}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names() {
        let names = ["/usr/lib/libc.so.6", "[kernel.kallsyms]", "//anon", "/tmp/perf-12.map", "/tmp/perf-x.map"];
        let expected = ["libc.so.6", "[kernel.kallsyms]", "anon", "[JIT] tid 12", "perf-x.map"];
        assert_eq!(names.map(short_name), expected);
    }
}
