//! The value of a tracepoint's field, as `perf script -s` passes it. Two types differ from `perf-prof python`: an array
//! that is not text becomes a bytearray, and a negative number of less than 8 bytes becomes positive by default.

use perf_prof_format::tracefs::{Field, FieldKind};
use pyo3::{exceptions::PyValueError, ffi, prelude::*};

use super::cache::{NewReference, Objects};

/// How signed fields of less than 8 bytes are converted to Python numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signs {
    /// As in perf, without extending the sign: the value -1 of an `int` becomes 4294967295.
    #[default]
    AsPerf,
    /// With the sign: the value -1 of an `int` stays -1.
    True,
}

/// Reads one field of a tracepoint.
#[derive(Clone, Debug)]
pub struct FieldReader {
    pub name: String,
    offset: usize,
    size: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unsigned,
    /// A signed number of `width` bytes.
    Signed {
        width: usize,
    },
    /// An array. It becomes a str if its bytes are printable, otherwise a bytearray.
    Text(Place),
    Bytes(Place),
}

/// Where the bytes of an array are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the field itself.
    Here,
    /// At the offset in the low 16 bits of the field. The high 16 bits contain the length in bytes.
    DataLoc,
    /// As for `DataLoc`, but the offset is relative to the end of the field.
    RelLoc,
}

impl FieldReader {
    /// Creates the reader of a field.
    pub fn new(field: &Field, signs: Signs) -> FieldReader {
        let place = match field.kind {
            FieldKind::Array(_) => Some(Place::Here),
            FieldKind::DataLoc(_) => Some(Place::DataLoc),
            FieldKind::RelLoc(_) => Some(Place::RelLoc),
            FieldKind::Bool | FieldKind::Int { .. } | FieldKind::Pointer | FieldKind::NumberIfKnown => None,
        };
        // perf's rule for text: an element has one byte according to its C type (TEP_FIELD_IS_STRING in the manual page
        // of libtraceevent).
        let is_text = ["char", "u8", "s8"].iter().any(|one_byte| field.type_text.contains(one_byte));
        let kind = match (place, field.kind, signs) {
            (Some(place), ..) if is_text => Kind::Text(place),
            (Some(place), ..) => Kind::Bytes(place),
            (None, FieldKind::Int { width, signed: true }, Signs::True) => Kind::Signed { width: width.into() },
            (None, ..) if field.signed && field.size == 8 => Kind::Signed { width: 8 },
            (None, ..) => Kind::Unsigned,
        };
        FieldReader { name: field.name.clone(), offset: field.offset, size: field.size, kind }
    }

    /// Returns a new reference to the value of the field. Raises ValueError if the raw data ends before the field.
    #[inline]
    pub fn object(&self, py: Python<'_>, raw: &[u8], objects: &mut Objects) -> NewReference {
        match self.kind {
            Kind::Unsigned => match self.number(raw) {
                Some(number) => objects.unsigned(py, number),
                None => self.too_short(py),
            },
            Kind::Signed { width } => match self.number(raw) {
                Some(number) => {
                    let unused = 64 - 8 * width.clamp(1, 8) as u32;
                    objects.signed(py, (number << unused) as i64 >> unused)
                }
                None => self.too_short(py),
            },
            Kind::Text(place) => match self.bytes(raw, place) {
                Some(bytes) => {
                    let text = match bytes.try_into() {
                        Ok(comm) => objects.comm(py, comm),
                        Err(_) => objects.text(py, bytes),
                    };
                    text.unwrap_or_else(|| bytearray(py, bytes))
                }
                None => self.too_short(py),
            },
            Kind::Bytes(place) => match self.bytes(raw, place) {
                Some(bytes) => bytearray(py, bytes),
                None => self.too_short(py),
            },
        }
    }

    /// Returns the number from which the value is made; `None` if the field is not a number, or if the raw data ends
    /// before the field.
    #[inline]
    pub fn number_of(&self, raw: &[u8]) -> Option<u64> {
        match self.kind {
            Kind::Unsigned | Kind::Signed { .. } => self.number(raw),
            Kind::Text(_) | Kind::Bytes(_) => None,
        }
    }

    /// Returns the bytes of the number as an unsigned number. Returns 0 for a size that no C type has, as perf does.
    #[inline]
    fn number(&self, raw: &[u8]) -> Option<u64> {
        let at = raw.get(self.offset..)?;
        Some(match self.size {
            1 => u64::from(*at.first()?),
            2 => u16::from_ne_bytes(*at.first_chunk()?).into(),
            4 => u32::from_ne_bytes(*at.first_chunk()?).into(),
            8 => u64::from_ne_bytes(*at.first_chunk()?),
            _ => 0,
        })
    }

    /// Returns the bytes of the array. If the raw data ends within the array, returns only the bytes before this end.
    #[inline]
    fn bytes<'a>(&self, raw: &'a [u8], place: Place) -> Option<&'a [u8]> {
        let (start, size) = match place {
            Place::Here => (self.offset, self.size),
            Place::DataLoc | Place::RelLoc => {
                let word = u32::from_ne_bytes(*raw.get(self.offset..)?.first_chunk()?);
                let from = if place == Place::RelLoc { self.offset + self.size } else { 0 };
                (from + (word & 0xffff) as usize, (word >> 16) as usize)
            }
        };
        let from = raw.get(start..)?;
        Some(&from[..size.min(from.len())])
    }

    #[cold]
    fn too_short(&self, py: Python<'_>) -> NewReference {
        PyValueError::new_err(format!("the sample's data ends before its field {}", self.name)).restore(py);
        std::ptr::null_mut()
    }
}

fn bytearray(_: Python<'_>, bytes: &[u8]) -> NewReference {
    // SAFETY: the GIL is held. Pointer and length are those of a live slice.
    unsafe { ffi::PyByteArray_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t) }
}
