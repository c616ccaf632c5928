//! A column of numbers.

use std::sync::Arc;

use arrow_array::{ArrayRef, ArrowPrimitiveType, PrimitiveArray, types::*};
use arrow_buffer::NullBufferBuilder;

use super::cell::Number;

/// An element of a column of numbers.
pub(super) trait Element: Copy + Default {
    /// Returns the element for a number that the column's type has.
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

/// A column of numbers.
#[derive(Debug)]
pub(super) struct Numbers<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
}

impl<T: ArrowPrimitiveType<Native: Element>> Numbers<T> {
    pub fn new(rows: usize) -> Numbers<T> {
        Numbers { values: Vec::with_capacity(rows), nulls: NullBufferBuilder::new(rows) }
    }

    #[inline]
    pub fn push(&mut self, number: Option<Number>) {
        match number {
            Some(number) => {
                self.values.push(Element::of(number));
                self.nulls.append_non_null();
            }
            None => {
                self.values.push(Default::default());
                self.nulls.append_null();
            }
        }
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the array, and leaves an empty column.
    pub fn finish(&mut self, rows: usize) -> PrimitiveArray<T> {
        let values = std::mem::replace(&mut self.values, Vec::with_capacity(rows));
        PrimitiveArray::new(values.into(), self.nulls.finish())
    }
}

macro_rules! integers {
    ($($variant:ident $width:literal $signed:literal $ty:ty;)*) => {
        /// A column of integers.
        #[derive(Debug)]
        pub(super) enum Integers {
            $($variant(Numbers<$ty>),)*
        }

        impl Integers {
            pub fn new(ty: crate::tracefs::IntType, rows: usize) -> Integers {
                match (ty.width, ty.signed) {
                    $(($width, $signed) => Integers::$variant(Numbers::new(rows)),)*
                    (_, true) => Integers::I64(Numbers::new(rows)),
                    (_, false) => Integers::U64(Numbers::new(rows)),
                }
            }

            /// Appends numbers.
            #[inline]
            pub fn extend(&mut self, numbers: impl Iterator<Item = Option<Number>>) {
                match self {
                    $(Integers::$variant(column) => numbers.for_each(|number| column.push(number)),)*
                }
            }

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
