//! A column to which rows are appended.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, ListArray,
    builder::{BinaryBuilder, BooleanBuilder},
    types::{Decimal128Type, TimestampNanosecondType},
};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use arrow_schema::ArrowError;
use perf_prof_format::tracefs::IntType;

use super::{
    cell::{Cell, Datum},
    column_type::ColumnType,
    numbers::{Integers, Numbers},
    texts::TextColumn,
};
use crate::event::reader::Input;

/// A column to which rows are appended, of any type.
pub(super) enum Builder {
    Bool(BooleanBuilder),
    Int(Integers),
    Decimal(Numbers<Decimal128Type>),
    Text(Box<TextColumn>),
    Binary(BinaryBuilder),
    List(ListColumn),
    Time(Numbers<TimestampNanosecondType>),
}

/// A column of arrays of integers.
pub(super) struct ListColumn {
    ty: IntType,
    values: Integers,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Builder {
    /// Creates an empty column with capacity for `rows` rows.
    pub fn new(ty: ColumnType, rows: usize) -> Builder {
        match ty {
            ColumnType::Bool => Builder::Bool(BooleanBuilder::with_capacity(rows)),
            ColumnType::Int(ty) => Builder::Int(Integers::new(ty, rows)),
            ColumnType::Decimal => Builder::Decimal(Numbers::new(rows)),
            ColumnType::Text => Builder::Text(Box::default()),
            ColumnType::Binary => Builder::Binary(BinaryBuilder::new()),
            ColumnType::List(ty) => Builder::List(ListColumn {
                ty,
                values: Integers::new(ty, 0),
                offsets: vec![0],
                nulls: NullBufferBuilder::new(rows),
            }),
            ColumnType::Time => Builder::Time(Numbers::new(rows)),
        }
    }

    /// Appends the value that `cell` reads from `input`. `event` is the index of the row's event type. Fails if the
    /// batch has more bytes than Arrow's 32-bit offsets can count.
    pub fn push(&mut self, event: usize, cell: &Cell, input: &Input<'_>) -> Result<(), ArrowError> {
        match self {
            Builder::Int(column) => column.push(cell.number(input)),
            Builder::Decimal(column) => column.push(cell.number(input)),
            Builder::Time(column) => column.push(cell.number(input)),
            Builder::Text(column) => column.push(event, cell, input),
            Builder::Bool(column) => column.append_option(cell.number(input).map(|number| number.word != 0)),
            Builder::Binary(column) => match cell.datum(input) {
                Some(Datum::Bytes(bytes) | Datum::Text(bytes)) => column.append_value(bytes),
                Some(Datum::Made(bytes)) => column.append_value(bytes),
                _ => column.append_null(),
            },
            Builder::List(column) => {
                let list = match cell.datum(input) {
                    Some(Datum::List(list)) => Some(list),
                    _ => None,
                };
                column.nulls.append(list.is_some());
                column.values.extend(list.into_iter().flatten().map(Some));
                let end = i32::try_from(column.values.len());
                column.offsets.push(end.map_err(|_| ArrowError::OffsetOverflowError(column.values.len()))?);
            }
        }
        Ok(())
    }

    /// Returns the memory, in bytes, of what the rows point to: texts, byte strings and elements of lists.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Builder::Text(column) => column.bytes(),
            Builder::Binary(column) => column.values_slice().len(),
            Builder::List(column) => usize::from(column.ty.width) * column.values.len(),
            Builder::Bool(_) | Builder::Int(_) | Builder::Decimal(_) | Builder::Time(_) => 0,
        }
    }

    /// Returns the rows as an Arrow array, and empties the column. Reserves capacity for `rows` new rows.
    pub fn finish(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Builder::Bool(column) => Arc::new(column.finish()),
            Builder::Int(column) => column.finish(rows),
            Builder::Decimal(column) => Arc::new(column.finish(rows).with_precision_and_scale(20, 0)?),
            Builder::Time(column) => Arc::new(column.finish(rows).with_timezone("UTC")),
            Builder::Text(column) => column.finish()?,
            Builder::Binary(column) => Arc::new(column.finish()),
            Builder::List(ListColumn { ty, values, offsets, nulls }) => {
                let ends = OffsetBuffer::new(std::mem::replace(offsets, vec![0]).into());
                let item = Arc::new(ColumnType::item(*ty));
                Arc::new(ListArray::try_new(item, ends, values.finish(0), nulls.finish())?)
            }
        })
    }
}
