//! The type of a column. If event types have different types for a column, a type that fits all of them is chosen.

use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};
use perf_prof_format::tracefs::IntType;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// True or false.
    Bool,
    /// Integers of this width and sign.
    Int(IntType),
    /// Integers from -2^63 to 2^64 - 1, for a field that is signed in one event and unsigned in another. Arrow has no
    /// integer type for this range.
    Decimal,
    /// Text, encoded as a dictionary. Bytes that are not UTF-8 become U+FFFD.
    Text,
    /// Bytes.
    Binary,
    /// Arrays of integers.
    List(IntType),
    /// Times of the wall clock in ns.
    Time,
}

use ColumnType::*;

/// The name of a list's elements in the schema, as other implementations of Arrow name them.
const ITEM: &str = "item";

impl ColumnType {
    /// Returns a type that fits the values of both types. If no other type fits, returns text.
    pub fn with(self, other: ColumnType) -> ColumnType {
        const BIT: IntType = IntType { width: 1, signed: false };
        match (self, other) {
            (one, other) if one == other => one,
            (Int(one), Int(other)) => integers(one, other).map_or(Decimal, Int),
            (Int(number), Bool) | (Bool, Int(number)) => integers(number, BIT).map_or(Decimal, Int),
            (Int(_) | Bool | Decimal, Int(_) | Bool | Decimal) => Decimal,
            (List(one), List(other)) => integers(one, other).map_or(Text, List),
            _ => Text,
        }
    }

    /// Returns Arrow's type.
    pub fn data_type(self) -> DataType {
        match self {
            Bool => DataType::Boolean,
            Int(ty) => int(ty),
            Decimal => DataType::Decimal128(20, 0),
            Text => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            Binary => DataType::Binary,
            List(ty) => DataType::List(Arc::new(ColumnType::item(ty))),
            Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        }
    }

    /// Returns the memory of a row, in bytes, without texts, byte strings and elements of lists.
    pub(super) fn bytes_of_row(self) -> usize {
        match self {
            Bool => 1,
            Int(ty) => ty.width.into(),
            Decimal => 16,
            // The index of a text, and the key of the dictionary.
            Text => 8,
            Binary | List(_) => 4,
            Time => 8,
        }
    }

    pub(super) fn item(ty: IntType) -> Field {
        Field::new(ITEM, int(ty), false)
    }
}

/// Returns the smallest integer type that fits both types; `None` if there is none.
fn integers(one: IntType, other: IntType) -> Option<IntType> {
    if one.signed == other.signed {
        return Some(IntType { width: one.width.max(other.width), signed: one.signed });
    }
    let (signed, unsigned) = if one.signed { (one, other) } else { (other, one) };
    let width = signed.width.max(unsigned.width * 2);
    (width <= 8).then_some(IntType { width, signed: true })
}

fn int(ty: IntType) -> DataType {
    match (ty.width, ty.signed) {
        (1, true) => DataType::Int8,
        (1, false) => DataType::UInt8,
        (2, true) => DataType::Int16,
        (2, false) => DataType::UInt16,
        (4, true) => DataType::Int32,
        (4, false) => DataType::UInt32,
        (_, true) => DataType::Int64,
        (_, false) => DataType::UInt64,
    }
}
