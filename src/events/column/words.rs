//! Columns of integers that are at the same offset in all records of an event type. First, the integers of the records
//! are read into a buffer of words, row by row. Every few hundred rows, the buffer is appended to the columns. Each
//! column has its own integer type.

use arrow_array::ArrayRef;
use perf_prof_format::{record::RECORD_HEADER, tracefs::IntType};

use super::{cell::Cell, column_type::ColumnType, numbers::Integers, plan::Plan};
use crate::event::reader::Read;

/// The number of integers in the buffer. The buffer fits into the CPU's cache.
const READ: usize = 2048;
/// The minimum number of rows in the buffer.
const LEAST_ROWS: usize = 16;

pub(super) struct Words {
    columns: Vec<Integers>,
    /// How the columns are read, for each event type.
    types: Vec<TypeLoads>,
    /// The buffer: the integers that were read, one row after the other.
    read: Vec<u64>,
    /// The number of integers that `read` currently holds, at its start.
    filled: usize,
    /// The number of rows that were appended to the columns.
    appended: usize,
}

/// How the columns are read from the records of an event type.
struct TypeLoads {
    loads: Vec<Load>,
    /// The minimum size of a record that contains the integers of all columns.
    whole: usize,
}

/// Where an integer is in a record, and how it is made from the word that ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    /// The offset in the record, in bytes, at which the integer ends (exclusive).
    end: usize,
    /// The number of bits of the word that do not belong to the integer.
    shift: u8,
    signed: bool,
}

impl Load {
    /// The load of a value that an event lacks: its offset is after the end of every record.
    const NOWHERE: Load = Load { end: usize::MAX, shift: 0, signed: false };

    /// Returns how to load the integer that a cell reads; `None` for a cell that reads something else.
    fn of_cell(cell: &Cell) -> Option<Load> {
        match *cell {
            Cell::Read(Read::Number { at, ty: IntType { width: width @ (1 | 2 | 4 | 8), signed } })
                if at >= RECORD_HEADER =>
            {
                Some(Load { end: at + usize::from(width), shift: 64 - 8 * width, signed })
            }
            _ => None,
        }
    }

    /// Returns the integer with its sign, as a word. `None` if the record ends before it.
    #[inline(always)]
    fn word(self, record: &[u8]) -> Option<u64> {
        // Read the 8 bytes up to the end of the integer. The record has them all, because its header of 8 bytes is
        // before the integer.
        let word = record.get(self.end - 8..self.end)?.first_chunk()?;
        let word = u64::from_ne_bytes(*word);
        // On big-endian machines, the integer is in the lowest bits of the word.
        let word = if cfg!(target_endian = "big") { word << self.shift } else { word };
        Some(if self.signed { (word as i64 >> self.shift) as u64 } else { word >> self.shift })
    }
}

impl Words {
    /// Returns whether a column with this type and these cells belongs to `Words`.
    pub fn has(ty: ColumnType, cells: &[Cell]) -> bool {
        let is_at_its_place = |cell: &Cell| *cell == Cell::Null || Load::of_cell(cell).is_some();
        matches!(ty, ColumnType::Int(_)) && cells.iter().all(is_at_its_place)
    }

    /// Creates the columns of a plan with room for this many rows.
    pub fn new(plan: &Plan, rows: usize) -> Words {
        let planned = || plan.columns.iter().filter(|column| Words::has(column.ty, &column.cells));
        let columns: Vec<Integers> = planned()
            .filter_map(|column| if let ColumnType::Int(ty) = column.ty { Some(Integers::new(ty, rows)) } else { None })
            .collect();
        let of_type = |event: usize| {
            let load = |cells: &[Cell]| cells.get(event).and_then(Load::of_cell).unwrap_or(Load::NOWHERE);
            let loads: Vec<Load> = planned().map(|column| load(&column.cells)).collect();
            TypeLoads { whole: loads.iter().map(|load| load.end).max().unwrap_or(0), loads }
        };
        let read = vec![0; columns.len() * (READ / columns.len().max(1)).max(LEAST_ROWS)];
        let types = (0..plan.types.len()).map(of_type).collect();
        Words { columns, types, read, filled: 0, appended: 0 }
    }

    /// Appends a row.
    #[inline]
    pub fn push(&mut self, event: usize, record: &[u8]) {
        let (width, from) = (self.columns.len(), self.filled);
        let Some(of_type) = self.types.get(event) else { return };
        let Some(row) = self.read.get_mut(from..from + width) else { return };
        let words = row.iter_mut().zip(&of_type.loads);
        if of_type.whole <= record.len() {
            words.for_each(|(word, load)| *word = load.word(record).unwrap_or(0));
        } else {
            let at = self.appended + from / width.max(1);
            for ((word, load), column) in words.zip(&mut self.columns) {
                let found = load.word(record);
                *word = found.unwrap_or(0);
                if found.is_none() {
                    column.note_missing(at);
                }
            }
        }
        self.filled += width;
        if self.filled == self.read.len() {
            self.append();
        }
    }

    /// Moves the rows in the buffer to the columns.
    fn append(&mut self) {
        let (width, read) = (self.columns.len().max(1), &self.read[..self.filled]);
        for (at, column) in self.columns.iter_mut().enumerate() {
            column.extend_words(read.chunks_exact(width).map(|row| row[at]));
        }
        self.appended += self.filled / width;
        self.filled = 0;
    }

    /// Returns the arrays of the columns, and leaves empty columns.
    pub fn finish(&mut self, rows: usize) -> impl Iterator<Item = ArrayRef> {
        self.append();
        self.appended = 0;
        self.columns.iter_mut().map(move |column| column.finish(rows))
    }
}
