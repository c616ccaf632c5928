//! The keys of spans: their values, and how to read a key from the records of an event.

use std::hash::Hasher;

use perf_prof_format::{
    record::SampleLayout,
    tracefs::{EventFormat, Field},
    value::{Value, ValueType},
};
use rustc_hash::FxHasher;

use super::SpanError;

/// How to read the key from the records of an event.
#[derive(Clone, Debug)]
pub struct KeyPlan(Vec<Part>);

/// How to read one part of the key from the records of an event.
#[derive(Clone, Debug)]
pub enum Part {
    /// The thread id.
    Tid,
    /// The process id.
    Pid,
    /// The CPU.
    Cpu,
    /// A field.
    Field(Field),
    /// The sum of the numbers in two fields.
    Sum(Field, Field),
    /// A constant.
    Number(u64),
}

/// The value of a key. Most keys consist of one or two numbers, which need no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// One number.
    One(u64),
    /// Two numbers, each as its lower and its upper 32 bits.
    Two([u32; 4]),
    /// Any other key.
    Bytes(Box<[u8]>),
}

impl Key {
    /// Returns a key of two numbers.
    #[inline]
    pub fn two(one: u64, two: u64) -> Key {
        Key::Two([one as u32, (one >> 32) as u32, two as u32, (two >> 32) as u32])
    }

    /// Returns the hash of the key. Ignores the variant, because all keys of a span have the same variant.
    #[inline]
    pub fn hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        match self {
            Key::One(_) | Key::Two(_) => {
                let [one, two] = self.numbers();
                hasher.write_u64(one);
                hasher.write_u64(two);
            }
            Key::Bytes(bytes) => hasher.write(bytes),
        }
        hasher.finish()
    }

    /// Returns the heap memory of the key, in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Key::One(_) | Key::Two(_) => 0,
            Key::Bytes(bytes) => bytes.len(),
        }
    }

    /// Returns the numbers of a key of one or two numbers. A missing second number is 0. Returns zeros for any other key.
    #[inline]
    pub fn numbers(&self) -> [u64; 2] {
        match self {
            Key::One(one) => [*one, 0],
            Key::Two([low, high, low2, high2]) => {
                let number = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
                [number(*low, *high), number(*low2, *high2)]
            }
            Key::Bytes(_) => [0; 2],
        }
    }
}

impl KeyPlan {
    /// Returns the parts of the key.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// Finds the fields of a key in the format of an event.
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>, format: &EventFormat) -> Result<KeyPlan, SpanError> {
        let field = |name: &str| match format.field(name) {
            Some(field) if field.kind.value_type() == ValueType::Bytes => Err(SpanError::Array(name.to_owned())),
            Some(field) => Ok(field.clone()),
            None => Err(SpanError::no_field(name, format)),
        };
        let part = |name: &str| match name {
            "_tid" => Ok(Part::Tid),
            "_pid" => Ok(Part::Pid),
            "_cpu" => Ok(Part::Cpu),
            name if name.starts_with(|first: char| first.is_ascii_digit()) => {
                name.parse().map(Part::Number).map_err(|_| SpanError::no_field(name, format))
            }
            name => match name.split_once(" plus ") {
                Some((one, other)) => Ok(Part::Sum(field(one)?, field(other)?)),
                None => field(name).map(Part::Field),
            },
        };
        names.map(part).collect::<Result<_, _>>().map(KeyPlan)
    }

    /// Fails if a part of the key is a number in one event and text in the other event.
    pub(super) fn check_same_types(&self, other: &KeyPlan) -> Result<(), SpanError> {
        for (one, other) in self.0.iter().zip(&other.0) {
            if one.is_text() != other.is_text() {
                return Err(SpanError::Types(one.name().to_owned(), other.name().to_owned()));
            }
        }
        Ok(())
    }

    /// Returns the fields of the key, in order; `None` for a part that is not a field.
    pub(super) fn fields(&self) -> impl Iterator<Item = Option<&Field>> {
        self.0.iter().map(|part| if let Part::Field(field) = part { Some(field) } else { None })
    }

    /// Returns the key in a record; `None` if the record is too short.
    pub(super) fn key(&self, layout: &SampleLayout, record: &[u8]) -> Option<Key> {
        let mut key = Key::One(0);
        self.read(layout, record, &mut key)?;
        Some(key)
    }

    /// Reads the key in a record into `key`. Returns `None` if the record is too short. This is faster than [`Self::key`]: a
    /// key that is returned is moved, and the CPU waits for its parts before it can move them together.
    #[inline]
    pub(super) fn read(&self, layout: &SampleLayout, record: &[u8], key: &mut Key) -> Option<()> {
        match self.0.as_slice() {
            [one] if !one.is_text() => *key = Key::One(one.number(layout, record)?),
            [one, two] if !one.is_text() && !two.is_text() => {
                *key = Key::two(one.number(layout, record)?, two.number(layout, record)?);
            }
            parts => {
                let mut bytes = Vec::with_capacity(32);
                for part in parts {
                    match part {
                        Part::Field(field) if part.is_text() => {
                            let Value::Str(text) = field.value(layout.raw(record)?)? else { return None };
                            bytes.extend((text.len() as u32).to_ne_bytes());
                            bytes.extend_from_slice(text);
                        }
                        part => bytes.extend(part.number(layout, record)?.to_ne_bytes()),
                    }
                }
                *key = Key::Bytes(bytes.into());
            }
        }
        Some(())
    }
}

impl Part {
    fn is_text(&self) -> bool {
        matches!(self, Part::Field(field) if field.kind.is_text())
    }

    fn name(&self) -> &str {
        match self {
            Part::Tid => "_tid",
            Part::Pid => "_pid",
            Part::Cpu => "_cpu",
            Part::Field(field) | Part::Sum(field, _) => &field.name,
            Part::Number(_) => "a number",
        }
    }

    /// Returns the part as a number. Extends the sign to 64 bits, so that fields of different sizes can be compared.
    #[inline]
    fn number(&self, layout: &SampleLayout, record: &[u8]) -> Option<u64> {
        match self {
            Part::Tid => layout.pid_tid(record).map(|(_, tid)| i64::from(tid as i32) as u64),
            Part::Pid => layout.pid_tid(record).map(|(pid, _)| i64::from(pid as i32) as u64),
            Part::Cpu => layout.cpu(record).map(u64::from),
            Part::Number(number) => Some(*number),
            Part::Field(field) => number(field, layout.raw(record)?),
            Part::Sum(one, other) => {
                let raw = layout.raw(record)?;
                Some(number(one, raw)?.wrapping_add(number(other, raw)?))
            }
        }
    }
}

#[inline]
fn number(field: &Field, raw: &[u8]) -> Option<u64> {
    match field.value(raw)? {
        Value::Int(value) => Some(value as u64),
        Value::Uint(value) => Some(value),
        Value::Bool(value) => Some(value.into()),
        Value::Str(_) | Value::Bytes(_) | Value::Words(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::{
        abi::PERF_SAMPLE_RAW,
        record::{SampleLayout, SampleValues},
    };

    use super::*;

    #[test]
    fn a_part_may_be_the_sum_of_two_fields() {
        let text = "name: x\nID: 1\nformat:\n\tfield:u64 sector;\toffset:0;\tsize:8;\tsigned:0;\n\
                    \tfield:u32 count;\toffset:8;\tsize:4;\tsigned:0;\n\nprint fmt: \"\"\n";
        let format = EventFormat::parse("s", text).unwrap();
        let layout = SampleLayout::new(PERF_SAMPLE_RAW, 0);
        let raw = [&1000u64.to_ne_bytes()[..], &24u32.to_ne_bytes(), &[0; 4]].concat();
        let record = layout.encode(&SampleValues { raw, ..SampleValues::default() }).unwrap();
        let key = |name: &str| KeyPlan::new([name].into_iter(), &format).unwrap().key(&layout, &record);
        assert_eq!(key("sector plus count"), Some(Key::One(1024)));
        assert_eq!(key("sector"), Some(Key::One(1000)));
    }
}
