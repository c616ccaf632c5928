//! A column of numbers.

use std::sync::Arc;

use arrow_array::{ArrayRef, ArrowPrimitiveType, PrimitiveArray, types::*};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};

use super::cell::Number;

/// The Rust type of a column's numbers.
pub(super) trait Element: Copy + Default {
    /// Converts a number. The caller makes sure that the type can hold it.
    fn of(number: Number) -> Self;
}

macro_rules! elements {
    ($($element:ty)*) => {
        $(impl Element for $element {
            #[inline]
            fn of(number: Number) -> Self {
                number.word as $element
            }
        })*
    };
}

elements!(i8 u8 i16 u16 i32 u32 i64 u64);

impl Element for i128 {
    #[inline]
    fn of(number: Number) -> Self {
        number.wide()
    }
}

#[derive(Debug)]
pub(super) struct Numbers<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    /// The indexes of the rows that have no number.
    missing: Vec<u32>,
}

impl<T: ArrowPrimitiveType<Native: Element>> Numbers<T> {
    pub fn new(rows: usize) -> Numbers<T> {
        Numbers { values: Vec::with_capacity(rows), missing: Vec::new() }
    }

    #[inline]
    pub fn push(&mut self, number: Option<Number>) {
        if number.is_none() {
            self.note_missing(self.values.len());
        }
        self.values.push(number.map(Element::of).unwrap_or_default());
    }

    /// Notes that a row has no number. The caller also appends any value for the row, and calls this for rows in rising
    /// order.
    #[inline]
    fn note_missing(&mut self, row: usize) {
        // A batch has fewer rows than a `u32` can count (see `BatchLimit`).
        self.missing.push(row as u32);
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the numbers as an Arrow array, and empties the column. Reserves capacity for `rows` new rows.
    pub fn finish(&mut self, rows: usize) -> PrimitiveArray<T> {
        let values = std::mem::replace(&mut self.values, Vec::with_capacity(rows));
        let nulls = nulls(values.len(), &self.missing);
        self.missing.clear();
        PrimitiveArray::new(values.into(), nulls)
    }
}

/// Returns Arrow's validity bitmap; `None` if every row has a value.
fn nulls(rows: usize, missing: &[u32]) -> Option<NullBuffer> {
    if missing.is_empty() {
        return None;
    }
    let mut bits = BooleanBufferBuilder::new(rows);
    bits.append_n(rows, true);
    missing.iter().for_each(|&row| bits.set_bit(row as usize, false));
    Some(NullBuffer::new(bits.finish()))
}

macro_rules! integers {
    ($($variant:ident $width:literal $signed:literal $ty:ty;)*) => {
        /// A column of integers, of any integer type.
        #[derive(Debug)]
        pub(super) enum Integers {
            $($variant(Numbers<$ty>),)*
        }

        impl Integers {
            pub fn new(ty: perf_prof_format::tracefs::IntType, rows: usize) -> Integers {
                match (ty.width, ty.signed) {
                    $(($width, $signed) => Integers::$variant(Numbers::new(rows)),)*
                    (_, true) => Integers::I64(Numbers::new(rows)),
                    (_, false) => Integers::U64(Numbers::new(rows)),
                }
            }

            #[inline]
            pub fn push(&mut self, number: Option<Number>) {
                match self {
                    $(Integers::$variant(column) => column.push(number),)*
                }
            }

            pub fn extend(&mut self, numbers: impl Iterator<Item = Option<Number>>) {
                match self {
                    $(Integers::$variant(column) => numbers.for_each(|number| column.push(number)),)*
                }
            }

            /// Appends integers. The caller makes sure that the column's type can hold them.
            #[inline]
            pub fn extend_words(&mut self, words: impl Iterator<Item = u64>) {
                match self {
                    $(Integers::$variant(column) => column.values.extend(words.map(|word| word as <$ty as ArrowPrimitiveType>::Native)),)*
                }
            }

            /// Notes that a row has no integer. The caller also appends any word for the row.
            pub fn note_missing(&mut self, row: usize) {
                match self {
                    $(Integers::$variant(column) => column.note_missing(row),)*
                }
            }

            #[inline]
            pub fn len(&self) -> usize {
                match self {
                    $(Integers::$variant(column) => column.len(),)*
                }
            }

            pub fn finish(&mut self, rows: usize) -> ArrayRef {
                match self {
                    $(Integers::$variant(column) => Arc::new(column.finish(rows)),)*
                }
            }
        }
    };
}

integers! {
    I8 1 true Int8Type;
    U8 1 false UInt8Type;
    I16 2 true Int16Type;
    U16 2 false UInt16Type;
    I32 4 true Int32Type;
    U32 4 false UInt32Type;
    I64 8 true Int64Type;
    U64 8 false UInt64Type;
}
