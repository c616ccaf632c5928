//! The functions of the script to which the rows of tables are passed, and the ids of the rows.

use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::super::{super::event::text, Raised, parameters};

/// The tables of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Evsel,
    Machine,
    Thread,
    Comm,
    CommThread,
    Dso,
    Symbol,
    BranchType,
    Sample,
    CallPath,
    ContextSwitch,
}

impl Table {
    const ALL: [(Table, &str); 11] = [
        (Table::Evsel, "evsel_table"),
        (Table::Machine, "machine_table"),
        (Table::Thread, "thread_table"),
        (Table::Comm, "comm_table"),
        (Table::CommThread, "comm_thread_table"),
        (Table::Dso, "dso_table"),
        (Table::Symbol, "symbol_table"),
        (Table::BranchType, "branch_type_table"),
        (Table::Sample, "sample_table"),
        (Table::CallPath, "call_path_table"),
        (Table::ContextSwitch, "context_switch_table"),
    ];
}

/// A value in one column of a row.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// A number. All numbers are signed, so a kernel address is negative.
    Number(i64),
    Text(&'a [u8]),
}

/// Returns the cell for a number.
pub fn number(number: u64) -> Cell<'static> {
    Cell::Number(number as i64)
}

/// The functions of the script, and the last id in each table.
pub struct Tables {
    functions: [Option<Py<PyAny>>; Table::ALL.len()],
    last: [u64; Table::ALL.len()],
}

impl Tables {
    /// Looks up the functions. Rows of a table get ids even if the script has no function for this table.
    pub fn new(main: &Bound<'_, PyDict>) -> Tables {
        let function = |(_, name)| parameters::callable(main, name).map(Bound::unbind);
        Tables { functions: Table::ALL.map(function), last: [0; Table::ALL.len()] }
    }

    /// Returns the id of the next row.
    pub fn next(&mut self, table: Table) -> u64 {
        self.last[table as usize] += 1;
        self.last[table as usize]
    }

    /// Passes a row to the function of its table. Does nothing if the script does not define this function.
    pub fn add(&self, py: Python<'_>, table: Table, row: &[Cell<'_>]) -> Result<(), Raised> {
        let Some(function) = &self.functions[table as usize] else { return Ok(()) };
        let object = |cell: &Cell<'_>| match *cell {
            Cell::Number(number) => Ok(number.into_pyobject(py)?.into_any()),
            Cell::Text(bytes) => text(py, bytes),
        };
        let row = row.iter().map(object).collect::<PyResult<Vec<_>>>();
        let called = row.and_then(|row| function.bind(py).call1(PyTuple::new(py, row)?));
        called.map(drop).map_err(|error| Raised { function: Table::ALL[table as usize].1.to_owned(), error })
    }
}
