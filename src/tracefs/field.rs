//! A field of an event: where it lies in the raw data and what it holds. Knows nothing of print formats.

use crate::value::Value;

use super::print_fmt::ctype::IntType;

/// A field of an event, as a `field:` line of its format describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its C type as written, without name and length: `unsigned long`, `__data_loc char[]`.
    pub type_text: String,
    /// Where it begins in the raw data.
    pub offset: usize,
    /// Its size there in bytes; 0 for an array that goes on to the end of the raw data.
    pub size: usize,
    /// Whether the format calls it signed. [`Field::kind`] knows better.
    pub signed: bool,
    /// What it holds.
    pub kind: FieldKind,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A C `bool`.
    Bool,
    /// An integer of `width` bytes, in a slot that may be wider: arguments of system calls have slots of 8 bytes.
    Int {
        /// Size of the C type.
        width: u8,
        /// Whether the C type has negative values.
        signed: bool,
    },
    /// An address.
    Pointer,
    /// An array in place.
    Array(ElementType),
    /// An array elsewhere in the raw data, at an offset from its start.
    DataLoc(ElementType),
    /// An array elsewhere in the raw data, at an offset from the end of the field itself.
    RelLoc(ElementType),
}

/// What an array consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// Text: `char` that the print format does not show as an address or identifier.
    Char,
    /// Integers.
    Int {
        /// Size of one.
        width: u8,
        /// Whether they have negative values.
        signed: bool,
    },
    /// Something of unknown structure.
    Opaque,
}

impl Field {
    /// The field's value; `None` when the raw data ends before it.
    #[inline]
    pub fn value<'a>(&self, raw: &'a [u8]) -> Option<Value<'a>> {
        match self.kind {
            FieldKind::Int { width, signed } => {
                let value = self.load(raw, width, signed)?;
                Some(if signed { Value::Int(value as i64) } else { Value::Uint(value) })
            }
            FieldKind::Pointer => self.load(raw, self.size as u8, false).map(Value::Uint),
            FieldKind::Bool => Some(Value::Bool(*raw.get(self.offset)? != 0)),
            FieldKind::Array(element) | FieldKind::DataLoc(element) | FieldKind::RelLoc(element) => {
                let bytes = self.extent()?.bytes(raw)?;
                Some(if element == ElementType::Char { Value::Str(up_to_nul(bytes)) } else { Value::Bytes(bytes) })
            }
        }
    }

    /// The elements of an array of integers, in place or not; `None` for anything else and when the raw data ends
    /// before it.
    pub fn array<'a>(&self, raw: &'a [u8]) -> Option<Array<'a>> {
        let element = match self.kind {
            FieldKind::Array(element) | FieldKind::DataLoc(element) | FieldKind::RelLoc(element) => element,
            _ => return None,
        };
        let ty = match element {
            ElementType::Int { width, signed } => IntType::new(width, signed),
            ElementType::Char | ElementType::Opaque => return None,
        };
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

    /// Where an array's bytes lie; `None` for a field that is none.
    #[inline]
    pub(crate) fn extent(&self) -> Option<Extent> {
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

/// Where an array's bytes lie in the raw data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Fixed { offset: usize, size: usize },
    Flexible { offset: usize },
    DataLoc { offset: usize },
    RelLoc { offset: usize },
}

impl Extent {
    /// The array's bytes, fewer when the raw data is cut off; `None` when it ends before them.
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

    /// The array's length as the record states it.
    pub fn len(self, raw: &[u8]) -> Option<u64> {
        match self {
            Extent::DataLoc { offset } | Extent::RelLoc { offset } => Some(location(raw, offset)?.1 as u64),
            Extent::Fixed { .. } | Extent::Flexible { .. } => Some(self.bytes(raw)?.len() as u64),
        }
    }
}

/// Offset and size that a `__data_loc` or `__rel_loc` word states.
fn location(raw: &[u8], offset: usize) -> Option<(usize, usize)> {
    let word = u32::from_ne_bytes(*raw.get(offset..)?.first_chunk()?);
    Some(((word & 0xffff) as usize, (word >> 16) as usize))
}

/// The bytes before the first NUL.
pub(crate) fn up_to_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())]
}

/// The elements of an array of integers.
#[derive(Clone, Debug)]
pub struct Array<'a> {
    bytes: &'a [u8],
    ty: IntType,
}

impl<'a> Iterator for Array<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let value = self.ty.load(self.bytes, 0)?;
        self.bytes = &self.bytes[self.ty.width as usize..];
        Some(if self.ty.signed { Value::Int(value as i64) } else { Value::Uint(value) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.bytes.len() / self.ty.width as usize;
        (len, Some(len))
    }
}

impl ExactSizeIterator for Array<'_> {}
