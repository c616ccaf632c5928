//! A field of an event: its position in the raw data and its type. Does not know about print formats.

use crate::value::{Value, ValueType};

use super::print_fmt::ctype::IntType;

/// A field of an event, as described by a `field:` line of the event's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name of the field.
    pub name: String,
    /// The C type as it is written in the format, without the field's name and array length: `unsigned long`,
    /// `__data_loc char[]`.
    pub type_text: String,
    /// The offset of the field in the raw data, in bytes.
    pub offset: usize,
    /// The size of the field in the raw data, in bytes; 0 for an array that extends to the end of the raw data.
    pub size: usize,
    /// The value of `signed:` in the format. The type in [`Field::kind`] is more reliable.
    pub signed: bool,
    /// The type of the field's value.
    pub kind: FieldKind,
}

/// The C type of a [`FieldKind::NumberIfKnown`] in the format of a span.
pub const NUMBER_IF_KNOWN: &str = "u64 __if_known";

/// The number that a field contains if its value is not known. It cannot be a duration, because no duration in ns is
/// that long.
pub const UNKNOWN_NUMBER: u64 = u64::MAX;

/// The type of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A C `bool`.
    Bool,
    /// An integer of `width` bytes. The field may have more bytes: in the events of system calls, each argument takes 8
    /// bytes.
    Int {
        /// Size of the C type in bytes.
        width: u8,
        /// True if the C type has negative values.
        signed: bool,
    },
    /// An address.
    Pointer,
    /// An unsigned number of 8 bytes in the record of a span. If the number is not known, the field contains
    /// [`UNKNOWN_NUMBER`].
    NumberIfKnown,
    /// An array that is stored in the field itself.
    Array(ElementType),
    /// An array elsewhere in the raw data (`__data_loc`). The field contains the array's offset from the start of the
    /// raw data.
    DataLoc(ElementType),
    /// An array elsewhere in the raw data (`__rel_loc`). The field contains the array's offset from the end of the
    /// field.
    RelLoc(ElementType),
}

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// Text: elements of type `char`, except in arrays that the print format shows as an address or an identifier.
    Char,
    /// Integers.
    Int {
        /// Size of one integer in bytes.
        width: u8,
        /// True if the integers can be negative.
        signed: bool,
    },
    /// Unsigned 64-bit numbers in the record of a span. The value of the array is [`Value::Words`], a list of numbers.
    Word,
    /// Elements of unknown structure.
    Opaque,
}

impl FieldKind {
    /// Returns the type of the array's elements, or `None` if the type is not an array.
    #[inline]
    pub fn element(self) -> Option<ElementType> {
        match self {
            FieldKind::Array(element) | FieldKind::DataLoc(element) | FieldKind::RelLoc(element) => Some(element),
            FieldKind::Bool | FieldKind::Int { .. } | FieldKind::Pointer | FieldKind::NumberIfKnown => None,
        }
    }

    /// Returns the same kind of array with elements of another type. If the type is not an array, returns it unchanged.
    pub(crate) fn with_element(self, element: ElementType) -> FieldKind {
        match self {
            FieldKind::Array(_) => FieldKind::Array(element),
            FieldKind::DataLoc(_) => FieldKind::DataLoc(element),
            FieldKind::RelLoc(_) => FieldKind::RelLoc(element),
            FieldKind::Bool | FieldKind::Int { .. } | FieldKind::Pointer | FieldKind::NumberIfKnown => self,
        }
    }

    /// Returns whether the type is text, either stored in the field or elsewhere in the raw data.
    #[inline]
    pub fn is_text(self) -> bool {
        self.element() == Some(ElementType::Char)
    }

    /// Returns whether the type is an address.
    #[inline]
    pub fn is_address(self) -> bool {
        self == FieldKind::Pointer
    }

    /// Returns the type of the value that [`Field::value`] returns.
    #[inline]
    pub fn value_type(self) -> ValueType {
        match self {
            FieldKind::Bool => ValueType::Bool,
            FieldKind::Int { .. } | FieldKind::Pointer | FieldKind::NumberIfKnown => ValueType::Int,
            FieldKind::Array(element) | FieldKind::DataLoc(element) | FieldKind::RelLoc(element) => match element {
                ElementType::Char => ValueType::Str,
                ElementType::Int { .. } | ElementType::Opaque => ValueType::Bytes,
                ElementType::Word => ValueType::Words,
            },
        }
    }
}

impl ElementType {
    /// Returns the integer type of the elements, or `None` if the elements are not integers.
    #[inline]
    pub fn int(self) -> Option<IntType> {
        match self {
            ElementType::Int { width, signed } => Some(IntType::new(width, signed)),
            ElementType::Word => Some(IntType::new(8, false)),
            ElementType::Char | ElementType::Opaque => None,
        }
    }
}

impl Field {
    /// Returns the field's value. Returns `None` if the raw data ends before the field, or if the record has no value for
    /// the field (see [`Field::may_be_absent`]).
    #[inline]
    pub fn value<'a>(&self, raw: &'a [u8]) -> Option<Value<'a>> {
        match self.kind {
            FieldKind::Int { width, signed } => {
                let value = self.load(raw, width, signed)?;
                Some(if signed { Value::Int(value as i64) } else { Value::Uint(value) })
            }
            FieldKind::Pointer => self.load(raw, self.size as u8, false).map(Value::Uint),
            FieldKind::NumberIfKnown => {
                self.load(raw, 8, false).filter(|number| *number != UNKNOWN_NUMBER).map(Value::Uint)
            }
            FieldKind::Bool => Some(Value::Bool(*raw.get(self.offset)? != 0)),
            FieldKind::Array(element) | FieldKind::DataLoc(element) | FieldKind::RelLoc(element) => {
                let bytes = self.extent()?.bytes(raw)?;
                Some(match element {
                    ElementType::Char if self.is_absent(bytes) => return None,
                    ElementType::Char => Value::Str(up_to_nul(bytes)),
                    ElementType::Word => Value::Words(bytes),
                    ElementType::Int { .. } | ElementType::Opaque => Value::Bytes(bytes),
                })
            }
        }
    }

    /// Returns the elements of an array of integers, which may be stored in the field or elsewhere in the raw data.
    /// Returns `None` if the field is not an array of integers, or if the raw data ends before the array.
    #[inline]
    pub fn array<'a>(&self, raw: &'a [u8]) -> Option<Array<'a>> {
        let ty = self.kind.element()?.int()?;
        Some(Array { bytes: self.extent()?.bytes(raw)?, ty })
    }

    #[inline]
    fn load(&self, raw: &[u8], width: u8, signed: bool) -> Option<u64> {
        let ty = IntType::new(width, signed);
        if width as usize == self.size {
            return ty.load(raw, self.offset);
        }
        Some(ty.wrap(IntType::new(self.size as u8, false).load(raw, self.offset)?))
    }

    /// Returns the integer type of a field that contains a number in all records. The type may have fewer bytes than the
    /// field. Returns `None` for all other fields, including `bool`.
    #[inline]
    pub fn number(&self) -> Option<IntType> {
        match self.kind {
            FieldKind::Int { width, signed } => Some(IntType::new(width, signed)),
            FieldKind::Pointer => Some(IntType::new(self.size as u8, false)),
            FieldKind::Bool
            | FieldKind::NumberIfKnown
            | FieldKind::Array(_)
            | FieldKind::DataLoc(_)
            | FieldKind::RelLoc(_) => None,
        }
    }

    /// Returns the type of the integer that fills the whole field, for loading it from the raw data. Must not be called
    /// for arrays.
    #[inline]
    pub(crate) fn slot(&self) -> IntType {
        let signed = matches!(self.kind, FieldKind::Int { .. }) && self.signed;
        IntType::new(self.size as u8, signed)
    }

    /// Returns whether the field is text of a fixed size that is stored in the field.
    pub fn is_fixed_text(&self) -> bool {
        self.kind.is_text() && matches!(self.extent(), Some(Extent::Fixed { .. }))
    }

    /// Returns the C declaration without the name, for example `int`, `char[16]` or `__data_loc char[]`.
    pub fn c_type(&self) -> String {
        let Field { type_text, size, kind, .. } = self;
        match (kind, size) {
            _ if type_text.ends_with(']') => type_text.clone(),
            (FieldKind::Array(_), 0) => format!("{type_text}[]"),
            (FieldKind::Array(ElementType::Char), size) => format!("{type_text}[{size}]"),
            (FieldKind::Array(ElementType::Int { width, .. }), size) => {
                format!("{type_text}[{}]", size / usize::from(*width).max(1))
            }
            (FieldKind::Array(ElementType::Opaque), size) => format!("{type_text}, {size} bytes"),
            _ => type_text.clone(),
        }
    }

    /// Returns the position of an array's bytes, or `None` if the field is not an array.
    #[inline]
    pub fn extent(&self) -> Option<Extent> {
        let &Field { offset, size, .. } = self;
        match self.kind {
            FieldKind::Array(_) if size == 0 => Some(Extent::Flexible { offset }),
            FieldKind::Array(_) => Some(Extent::Fixed { offset, size }),
            FieldKind::DataLoc(_) => Some(Extent::DataLoc { offset }),
            FieldKind::RelLoc(_) => Some(Extent::RelLoc { offset }),
            _ => None,
        }
    }
}

/// The position of an array's bytes in the raw data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The array has the same offset and size in every record.
    Fixed {
        /// The offset of the array, in bytes.
        offset: usize,
        /// The size of the array, in bytes.
        size: usize,
    },
    /// The array extends from a fixed offset to the end of the raw data.
    Flexible {
        /// The offset of the array, in bytes.
        offset: usize,
    },
    /// `__data_loc`: a word in the record contains the offset of the array.
    DataLoc {
        /// The offset of the word, in bytes.
        offset: usize,
    },
    /// `__rel_loc`: a word in the record contains the offset of the array, relative to the end of the word.
    RelLoc {
        /// The offset of the word, in bytes.
        offset: usize,
    },
}

impl Extent {
    /// Returns the offset at which the field starts. For `__data_loc` and `__rel_loc`, it is the offset of the word.
    #[inline]
    pub fn offset(self) -> usize {
        match self {
            Extent::Fixed { offset, .. }
            | Extent::Flexible { offset }
            | Extent::DataLoc { offset }
            | Extent::RelLoc { offset } => offset,
        }
    }

    /// Returns the array's bytes. If the raw data ends within the array, returns only the bytes that are there. If the
    /// raw data ends before the array, returns `None`.
    #[inline]
    pub fn bytes(self, raw: &[u8]) -> Option<&[u8]> {
        let (start, size) = match self {
            Extent::Fixed { offset, size } => (offset, size),
            Extent::Flexible { offset } => (offset, usize::MAX),
            Extent::DataLoc { offset } => location(raw, offset)?,
            Extent::RelLoc { offset } => {
                let (start, size) = location(raw, offset)?;
                (start + offset + 4, size)
            }
        };
        let from = raw.get(start..)?;
        Some(&from[..size.min(from.len())])
    }

    /// Returns the array's length in bytes, as the record states it.
    #[inline]
    pub fn len(self, raw: &[u8]) -> Option<u64> {
        match self {
            Extent::DataLoc { offset } | Extent::RelLoc { offset } => Some(location(raw, offset)?.1 as u64),
            Extent::Fixed { .. } | Extent::Flexible { .. } => Some(self.bytes(raw)?.len() as u64),
        }
    }
}

/// Returns the offset and the size in a `__data_loc` or `__rel_loc` word.
#[inline]
fn location(raw: &[u8], offset: usize) -> Option<(usize, usize)> {
    let word = u32::from_ne_bytes(*raw.get(offset..)?.first_chunk()?);
    Some(((word & 0xffff) as usize, (word >> 16) as usize))
}

/// Returns the bytes before the first NUL, or all bytes if there is none.
#[inline]
pub(crate) fn up_to_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())]
}

/// An iterator over the elements of an array of integers.
#[derive(Clone, Debug)]
pub struct Array<'a> {
    bytes: &'a [u8],
    ty: IntType,
}

impl<'a> Iterator for Array<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        let value = self.ty.load(self.bytes, 0)?;
        self.bytes = &self.bytes[self.ty.width as usize..];
        Some(if self.ty.signed { Value::Int(value as i64) } else { Value::Uint(value) })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.bytes.len() / self.ty.width as usize;
        (len, Some(len))
    }
}

impl ExactSizeIterator for Array<'_> {}
