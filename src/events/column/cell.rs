//! How to read the value of a column from the samples of one event type.

use perf_prof_format::{
    record::SampleMember,
    tracefs::{Field, FieldKind, IntType},
    value::{Value, words},
};

use super::{column_type::ColumnType, plan::CALLCHAIN};
use crate::event::{
    EventType, Frame, Origin, Sample, has_callchain,
    reader::{Input, Read, ReadError, ReadKind, resolve},
};

/// How to read the value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// Nothing is read: the event type lacks the column.
    Null,
    Read(Read),
    /// The value is a text, and is read as bytes even if it is not UTF-8.
    Raw(Read),
    /// The addresses of the call chain are read.
    Callchain,
}

/// A column whose name ends with this suffix holds a text as bytes.
const RAW: &str = "_raw";

const ID: IntType = IntType { width: 4, signed: true };
const CPU: IntType = IntType { width: 4, signed: false };
const WORD: IntType = IntType { width: 8, signed: false };
const TIME: IntType = IntType { width: 8, signed: true };

impl Cell {
    /// Returns how to read the field or member with this name, and the type of its values.
    pub fn resolve(name: &str, event: &EventType) -> Result<(Cell, ColumnType), ReadError> {
        let member = |member: SampleMember| event.members().any(|of| of == member) && member.name() == name;
        let is_field = event.format.tracepoint().is_some_and(|format| format.field(name).is_some());
        if !is_field && (name == CALLCHAIN || member(SampleMember::Callchain)) {
            let has_chain = has_callchain(&Sample { event, record: &[] });
            return if has_chain { Ok((Cell::Callchain, ColumnType::List(WORD))) } else { Err(ReadError::NoCallchain) };
        }
        let error = match resolve(name, event) {
            Ok(read) => {
                let ty = column_type(name, &read);
                return Ok((Cell::Read(read), ty));
            }
            Err(error) => error,
        };
        let text = name.strip_suffix(RAW).map(|text| resolve(text, event));
        match text {
            Some(Ok(read)) if read.kind() == ReadKind::Text => Ok((Cell::Raw(read), ColumnType::Binary)),
            _ => Err(error),
        }
    }

    /// Returns whether reading needs the functions of addresses.
    pub fn needs_symbols(&self) -> bool {
        match self {
            Cell::Callchain => true,
            Cell::Read(read) | Cell::Raw(read) => read.needs_symbols(),
            Cell::Null => false,
        }
    }

    /// Returns whether the values are times of the wall clock.
    pub fn needs_realtime(&self) -> bool {
        match self {
            Cell::Read(Read::Realtime) => true,
            Cell::Read(Read::Part(part)) => part.reads().any(|read| *read == Read::Realtime),
            Cell::Read(_) | Cell::Raw(_) | Cell::Callchain | Cell::Null => false,
        }
    }
}

fn column_type(name: &str, read: &Read) -> ColumnType {
    match read {
        // Times are never negative. Their type is signed, because other programs subtract times.
        Read::Time => ColumnType::Int(TIME),
        Read::Number { ty, .. } if name == "_time" => ColumnType::Int(IntType { signed: true, ..*ty }),
        Read::Number { ty, .. } => ColumnType::Int(*ty),
        Read::Field(field) => field_type(field),
        Read::Member(_) if read.kind() == ReadKind::Bytes => ColumnType::Binary,
        Read::Member(SampleMember::Pid | SampleMember::Tid) | Read::Pid | Read::Tid => ColumnType::Int(ID),
        Read::Cpu | Read::Member(SampleMember::Cpu) => ColumnType::Int(CPU),
        Read::Member(_) | Read::Period => ColumnType::Int(WORD),
        Read::Realtime => ColumnType::Time,
        Read::Comm | Read::Cgroup | Read::Event(_) | Read::Stack(_) => ColumnType::Text,
        Read::Part(part) => {
            let name = name.split_once('.').map_or(name, |(_, name)| name);
            let types = part.reads().map(|read| column_type(name, read));
            types.reduce(ColumnType::with).unwrap_or(ColumnType::Text)
        }
    }
}

fn field_type(field: &Field) -> ColumnType {
    match field.kind {
        FieldKind::Bool => ColumnType::Bool,
        FieldKind::NumberIfKnown => ColumnType::Int(WORD),
        _ if field.kind.is_text() => ColumnType::Text,
        kind => match (field.number(), kind.element().and_then(|element| element.int())) {
            (Some(ty), _) => ColumnType::Int(ty),
            (None, Some(ty)) => ColumnType::List(ty),
            (None, None) => ColumnType::Binary,
        },
    }
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Datum<'a> {
    Number(Number),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    List(Vec<Number>),
    /// Text that the record does not contain, such as the name of a task.
    Made(Vec<u8>),
}

/// A number that is signed or unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    /// The bits of the number. If `signed`, they are those of an `i64`.
    pub word: u64,
    pub signed: bool,
}

impl Number {
    #[inline]
    pub fn wide(self) -> i128 {
        if self.signed { i128::from(self.word as i64) } else { self.word.into() }
    }
}

impl Datum<'_> {
    /// Returns the value as text. This is needed if the column holds text for another event type.
    pub fn text(&self) -> Vec<u8> {
        match self {
            Datum::Number(number) => number.wide().to_string().into_bytes(),
            Datum::Text(text) => text.to_vec(),
            Datum::Made(text) => text.clone(),
            Datum::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes(),
            Datum::List(numbers) => {
                numbers.iter().map(|number| number.wide().to_string()).collect::<Vec<_>>().join(" ").into_bytes()
            }
        }
    }
}

impl<'a> From<Value<'a>> for Datum<'a> {
    #[inline]
    fn from(value: Value<'a>) -> Datum<'a> {
        match value {
            Value::Bool(on) => Datum::Number(Number { word: on.into(), signed: false }),
            Value::Int(number) => Datum::Number(Number { word: number as u64, signed: true }),
            Value::Uint(word) => Datum::Number(Number { word, signed: false }),
            Value::Str(text) => Datum::Text(text),
            Value::Bytes(bytes) => Datum::Bytes(bytes),
            Value::Words(bytes) => Datum::List(words(bytes).map(|word| Number { word, signed: false }).collect()),
        }
    }
}

impl Cell {
    /// Returns the value as a number. Returns `None` if the record ends before the value, or if the value is not a
    /// number.
    #[inline]
    pub fn number(&self, input: &Input<'_>) -> Option<Number> {
        match self {
            Cell::Read(Read::Number { at, ty }) => {
                Some(Number { word: ty.load(input.sample.record, *at)?, signed: ty.signed })
            }
            _ => match self.datum(input)? {
                Datum::Number(number) => Some(number),
                _ => None,
            },
        }
    }

    /// Returns the value. Returns `None` if the record ends before the value, or if perf-prof does not know it.
    pub fn datum<'a>(&self, input: &Input<'a>) -> Option<Datum<'a>> {
        match self {
            Cell::Null => None,
            Cell::Read(read) => datum(read, input),
            Cell::Raw(read) => match datum(read, input)? {
                Datum::Text(text) => Some(Datum::Bytes(text)),
                Datum::Made(text) => Some(Datum::Made(text)),
                _ => None,
            },
            Cell::Callchain => {
                let frames = input.frames();
                // Leave out inlined functions: they have the address of the function that contains them.
                let own = |frame: &&std::sync::Arc<Frame>| !matches!(frame.origin, Origin::Inlined { .. });
                let numbers = frames.iter().filter(own).map(|frame| Number { word: frame.addr, signed: false });
                Some(Datum::List(numbers.collect()))
            }
        }
    }
}

fn datum<'a>(read: &Read, input: &Input<'a>) -> Option<Datum<'a>> {
    match read {
        Read::Number { at, ty } => {
            Some(Datum::Number(Number { word: ty.load(input.sample.record, *at)?, signed: ty.signed }))
        }
        Read::Part(part) => {
            let (read, input) = part.of(input)?;
            datum(read, &input)
        }
        Read::Field(field) => match field.array(input.sample.raw()) {
            Some(array) => {
                let number = |value| match value {
                    Value::Int(number) => Number { word: number as u64, signed: true },
                    Value::Uint(word) => Number { word, signed: false },
                    _ => Number { word: 0, signed: false },
                };
                Some(Datum::List(array.map(number).collect()))
            }
            None => input.sample.field(field).map(Datum::from),
        },
        Read::Comm | Read::Cgroup | Read::Stack(_) | Read::Event(_) => read.made_text(input).map(Datum::Made),
        _ => read.value(input).map(Datum::from),
    }
}
