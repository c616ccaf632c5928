//! Writes the raw data of a tracepoint from the values of its fields. This is the inverse of [`Field::value`].

use std::collections::HashMap;

use thiserror::Error;

use super::{ElementType, EventFormat, Field, FieldKind, UNKNOWN_NUMBER, field::Extent, print_fmt::ctype::IntType};

/// A value for a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldInput {
    /// A number, or a `bool` as 0 or 1.
    Int(i128),
    /// A number that has more than 127 bits, as text.
    HugeInt(String),
    /// Text. In the raw data, a NUL follows it.
    Text(Vec<u8>),
    /// Bytes, which are written as they are.
    Bytes(Vec<u8>),
    /// The elements of an array of integers.
    Ints(Vec<i128>),
}

/// Why the raw data cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// A number is outside of the range of its field.
    #[error("{field} is {value}, but {c_type} has values from {low} to {high}")]
    OutOfRange {
        /// The field's name, with the index of the element for an array.
        field: String,
        /// The value.
        value: String,
        /// The field's type.
        c_type: String,
        /// The lowest value of the type.
        low: i128,
        /// The highest value of the type.
        high: i128,
    },
    /// The value has a type that the field cannot have.
    #[error("{field} ({c_type}) needs {needed}, not {given}")]
    WrongType {
        /// The field's name.
        field: String,
        /// The field's type.
        c_type: String,
        /// The types that the field can have.
        needed: &'static str,
        /// The type of the value.
        given: &'static str,
    },
    /// The value has more bytes than the field.
    #[error("{field} has {given} bytes{}, but {c_type} has room for {room}", if *.is_text { " with the NUL at its end" } else { "" })]
    TooLong {
        /// The field's name.
        field: String,
        /// The field's type.
        c_type: String,
        /// The size of the value in bytes.
        given: usize,
        /// Whether the value is text.
        is_text: bool,
        /// The size of the field in bytes.
        room: usize,
    },
    /// The text contains a NUL, which would end the text in the raw data.
    #[error("{field} contains a NUL character, which would end the text")]
    Nul {
        /// The field's name.
        field: String,
    },
    /// The raw data has more bytes than a record can have.
    #[error("the values have {size} bytes in total, but a record has at most {max}", max = u16::MAX)]
    TooLarge {
        /// The size of the raw data in bytes.
        size: usize,
    },
}

/// The bytes that are written for the value of an array field.
struct ArrayBytes {
    bytes: Vec<u8>,
    is_text: bool,
}

impl EventFormat {
    /// Returns the raw data of an event with these values. A field without a value is 0 or empty, except for
    /// `common_type`, which is the event's id. Values of fields that the event does not have are ignored.
    pub fn encode(&self, values: &HashMap<String, FieldInput>) -> Result<Vec<u8>, EncodeError> {
        let all = || self.common_fields().iter().chain(self.fields());
        let mut raw = vec![0; all().map(|field| field.offset.saturating_add(field.size)).max().unwrap_or(0)];
        let id = FieldInput::Int(self.id.into());
        for field in all() {
            let default = (field.name == "common_type").then_some(&id);
            let value = values.get(&field.name).or(default);
            match field.extent() {
                None => {
                    if let Some(value) = value {
                        write_number(field, number(field, value)?, &mut raw);
                    }
                }
                Some(extent) => write_array(field, extent, value, &mut raw)?,
            }
            if raw.len() > usize::from(u16::MAX) {
                return Err(EncodeError::TooLarge { size: raw.len() });
            }
        }
        Ok(raw)
    }
}

/// Returns the number of a field that is not an array, after checking its range.
fn number(field: &Field, value: &FieldInput) -> Result<i128, EncodeError> {
    let (low, high) = match (field.kind, field.number()) {
        (FieldKind::Bool, _) => (0, 1),
        (FieldKind::NumberIfKnown, _) => (0, i128::from(UNKNOWN_NUMBER) - 1),
        (_, Some(ty)) => range(ty),
        // Callers pass no fields that are arrays.
        (_, None) => (0, 0),
    };
    let out_of_range =
        |value: String| EncodeError::OutOfRange { field: field.name.clone(), value, c_type: field.c_type(), low, high };
    match value {
        FieldInput::Int(value) if (low..=high).contains(value) => Ok(*value),
        FieldInput::Int(value) => Err(out_of_range(value.to_string())),
        FieldInput::HugeInt(value) => Err(out_of_range(value.clone())),
        other => Err(wrong_type(field, "an int", other)),
    }
}

/// Returns the lowest and the highest value of an integer type.
fn range(ty: IntType) -> (i128, i128) {
    let bits = u32::from(ty.width) * 8;
    if ty.signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

fn write_number(field: &Field, value: i128, raw: &mut [u8]) {
    // A field can be larger than its C type, for example the arguments of system calls. The kernel extends the value to
    // the size of the field, so all bytes of the field are written.
    if let Some(to) = raw.get_mut(field.offset..field.offset + field.size) {
        put(value, to);
    }
}

/// Writes the low bytes of a number, in this machine's byte order.
fn put(value: i128, to: &mut [u8]) {
    let bytes = value.to_ne_bytes();
    let size = to.len().min(bytes.len());
    let low = if cfg!(target_endian = "little") { &bytes[..size] } else { &bytes[bytes.len() - size..] };
    to[..size].copy_from_slice(low);
}

fn write_array(
    field: &Field,
    extent: Extent,
    value: Option<&FieldInput>,
    raw: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let Some(element) = field.kind.element() else { return Ok(()) };
    let empty = FieldInput::Bytes(Vec::new());
    let dynamic_empty =
        if element == ElementType::Char && !field.may_be_absent() { FieldInput::Text(Vec::new()) } else { empty };
    match extent {
        Extent::Fixed { offset, size } => {
            let Some(value) = value else { return Ok(()) };
            let ArrayBytes { bytes, is_text } = array_bytes(field, element, value)?;
            if bytes.len() > size {
                let (field, c_type) = (field.name.clone(), field.c_type());
                return Err(EncodeError::TooLong { field, c_type, given: bytes.len(), is_text, room: size });
            }
            raw[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        Extent::Flexible { offset } => {
            let ArrayBytes { bytes, .. } = array_bytes(field, element, value.unwrap_or(&dynamic_empty))?;
            raw.resize(offset.max(raw.len()), 0);
            raw.extend(bytes);
        }
        Extent::DataLoc { offset } | Extent::RelLoc { offset } => {
            let ArrayBytes { bytes, .. } = array_bytes(field, element, value.unwrap_or(&dynamic_empty))?;
            let start = raw.len();
            let (Ok(size), true) = (u16::try_from(bytes.len()), start + bytes.len() <= usize::from(u16::MAX)) else {
                return Err(EncodeError::TooLarge { size: start + bytes.len() });
            };
            let from = if matches!(extent, Extent::RelLoc { .. }) { offset + 4 } else { 0 };
            let location = u32::from(size) << 16 | (start - from) as u32;
            raw[offset..offset + 4].copy_from_slice(&location.to_ne_bytes());
            raw.extend(bytes);
        }
    }
    Ok(())
}

/// Returns the bytes of an array.
fn array_bytes(field: &Field, element: ElementType, value: &FieldInput) -> Result<ArrayBytes, EncodeError> {
    let as_bytes = |bytes: &[u8]| ArrayBytes { bytes: bytes.to_vec(), is_text: false };
    match (element, value) {
        (ElementType::Char, FieldInput::Text(text)) if text.contains(&0) => {
            Err(EncodeError::Nul { field: field.name.clone() })
        }
        (ElementType::Char, FieldInput::Text(text)) => {
            Ok(ArrayBytes { bytes: [text, [0].as_slice()].concat(), is_text: true })
        }
        (_, FieldInput::Bytes(bytes)) => Ok(as_bytes(bytes)),
        (ElementType::Int { .. } | ElementType::Word, FieldInput::Ints(values)) => {
            let ty = element.int().unwrap_or(IntType::new(8, false));
            let width = usize::from(ty.width);
            let (low, high) = range(ty);
            let mut bytes = vec![0; values.len() * width];
            let places = bytes.chunks_exact_mut(width.max(1));
            for (at, (&value, to)) in values.iter().zip(places).enumerate() {
                if !(low..=high).contains(&value) {
                    let field_name = format!("{}[{at}]", field.name);
                    let (value, c_type) = (value.to_string(), field.c_type());
                    return Err(EncodeError::OutOfRange { field: field_name, value, c_type, low, high });
                }
                put(value, to);
            }
            Ok(ArrayBytes { bytes, is_text: false })
        }
        (ElementType::Char, other) => Err(wrong_type(field, "a str or bytes", other)),
        (ElementType::Int { .. } | ElementType::Word, other) => {
            Err(wrong_type(field, "a list of ints or bytes", other))
        }
        (ElementType::Opaque, other) => Err(wrong_type(field, "bytes", other)),
    }
}

fn wrong_type(field: &Field, needed: &'static str, given: &FieldInput) -> EncodeError {
    let given = match given {
        FieldInput::Int(_) | FieldInput::HugeInt(_) => "an int",
        FieldInput::Text(_) => "a str",
        FieldInput::Bytes(_) => "bytes",
        FieldInput::Ints(_) => "a list",
    };
    EncodeError::WrongType { field: field.name.clone(), c_type: field.c_type(), needed, given }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::value::Value;

    const FORMAT: &str = "name: test
ID: 77
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:unsigned int fd;\toffset:24;\tsize:8;\tsigned:0;
\tfield:s64 delta;\toffset:32;\tsize:8;\tsigned:1;
\tfield:__data_loc char[] name;\toffset:40;\tsize:4;\tsigned:0;
\tfield:__rel_loc char[] other;\toffset:44;\tsize:4;\tsigned:0;
\tfield:__data_loc u32[] numbers;\toffset:48;\tsize:4;\tsigned:0;
\tfield:bool on;\toffset:52;\tsize:1;\tsigned:0;
\tfield:void * at;\toffset:56;\tsize:8;\tsigned:0;
\tfield:unsigned long args[2];\toffset:64;\tsize:16;\tsigned:0;

print fmt: \"%d\", REC->fd
";

    /// Parses the format for the system `syscalls`, in which arguments are narrower than their fields.
    fn format() -> EventFormat {
        EventFormat::parse("syscalls", FORMAT).unwrap()
    }

    fn encode(values: &[(&str, FieldInput)]) -> Result<Vec<u8>, EncodeError> {
        format().encode(&values.iter().map(|(name, value)| (name.to_string(), value.clone())).collect())
    }

    fn message(values: &[(&str, FieldInput)]) -> String {
        encode(values).unwrap_err().to_string()
    }

    fn text(text: &str) -> FieldInput {
        FieldInput::Text(text.into())
    }

    #[test]
    fn every_kind_of_field_is_read_back() {
        let raw = encode(&[
            ("comm", text("make")),
            ("fd", FieldInput::Int(0xffff_ffff)),
            ("delta", FieldInput::Int(-5)),
            ("name", text("first")),
            ("other", text("second")),
            ("numbers", FieldInput::Ints(vec![1, 2, 0xffff_ffff])),
            ("on", FieldInput::Int(1)),
            ("at", FieldInput::Int(u64::MAX.into())),
            ("args", FieldInput::Ints(vec![7])),
        ])
        .unwrap();
        let format = format();
        let value = |name: &str| format.field(name).unwrap().value(&raw).unwrap();
        assert_eq!(value("common_type"), Value::Uint(77));
        assert_eq!(value("common_pid"), Value::Int(0));
        assert_eq!(value("comm"), Value::Str(b"make"));
        assert_eq!(value("fd"), Value::Uint(0xffff_ffff));
        assert_eq!(value("delta"), Value::Int(-5));
        assert_eq!(value("name"), Value::Str(b"first"));
        assert_eq!(value("other"), Value::Str(b"second"));
        assert_eq!(value("on"), Value::Bool(true));
        assert_eq!(value("at"), Value::Uint(u64::MAX));
        let array = |name: &str| format.field(name).unwrap().array(&raw).unwrap().collect::<Vec<_>>();
        assert_eq!(array("numbers"), [1, 2, 0xffff_ffff].map(Value::Uint));
        assert_eq!(array("args"), [7, 0].map(Value::Uint));
    }

    #[test]
    fn fields_without_a_value_are_zero_or_empty() {
        let raw = encode(&[]).unwrap();
        let format = format();
        for field in format.fields() {
            let expected = match field.name.as_str() {
                "comm" | "name" | "other" => Value::Str(b""),
                "numbers" => Value::Bytes(b""),
                "args" => Value::Bytes(&[0; 16]),
                "on" => Value::Bool(false),
                "delta" => Value::Int(0),
                _ => Value::Uint(0),
            };
            assert_eq!(field.value(&raw), Some(expected), "{}", field.name);
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error_with_the_reason() {
        let int = FieldInput::Int;
        assert_eq!(message(&[("fd", int(-1))]), "fd is -1, but unsigned int has values from 0 to 4294967295");
        assert_eq!(message(&[("on", int(2))]), "on is 2, but bool has values from 0 to 1");
        let huge = FieldInput::HugeInt("1e99".into());
        assert!(message(&[("delta", huge)]).starts_with("delta is 1e99, but s64 has values from -9223372036854775808"));
        assert_eq!(message(&[("fd", text("x"))]), "fd (unsigned int) needs an int, not a str");
        assert_eq!(message(&[("comm", int(1))]), "comm (char[16]) needs a str or bytes, not an int");
        assert_eq!(
            message(&[("comm", text("sixteen letters!"))]),
            "comm has 17 bytes with the NUL at its end, but char[16] has room for 16"
        );
        assert!(encode(&[("comm", FieldInput::Bytes(vec![b'x'; 16]))]).is_ok());
        assert_eq!(
            message(&[("args", FieldInput::Ints(vec![1, -2]))]),
            "args[1] is -2, but unsigned long[2] has values from 0 to 18446744073709551615"
        );
        assert_eq!(
            message(&[("args", FieldInput::Ints(vec![0; 3]))]),
            "args has 24 bytes, but unsigned long[2] has room for 16"
        );
        assert_eq!(message(&[("name", text("a\0b"))]), "name contains a NUL character, which would end the text");
        let large = FieldInput::Bytes(vec![1; 40_000]);
        assert_eq!(
            message(&[("name", large.clone()), ("other", large)]),
            "the values have 80080 bytes in total, but a record has at most 65535"
        );
    }

    proptest! {
        #[test]
        fn any_values_are_read_back_or_refused(
            fd in -(1i64 << 31)..1 << 33, delta: i64, name in ".{0,300}", numbers in prop::collection::vec(any::<u32>(), 0..50)
        ) {
            let numbers_input = FieldInput::Ints(numbers.iter().map(|&number| number.into()).collect());
            let result = encode(&[
                ("fd", FieldInput::Int(fd.into())),
                ("delta", FieldInput::Int(delta.into())),
                ("name", text(&name)),
                ("numbers", numbers_input),
            ]);
            let fits = u32::try_from(fd).is_ok() && !name.contains('\0');
            prop_assert_eq!(result.is_ok(), fits);
            if let Ok(raw) = result {
                let format = format();
                let value = |name: &str| format.field(name).unwrap().value(&raw).unwrap();
                prop_assert_eq!(value("fd"), Value::Uint(fd as u64));
                prop_assert_eq!(value("delta"), Value::Int(delta));
                prop_assert_eq!(value("name"), Value::Str(name.as_bytes()));
                let found: Vec<_> = format.field("numbers").unwrap().array(&raw).unwrap().collect();
                prop_assert_eq!(found, numbers.iter().map(|&n| Value::Uint(n.into())).collect::<Vec<_>>());
            }
        }
    }
}
