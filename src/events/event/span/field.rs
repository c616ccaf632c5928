//! The fields of spans: their types, and where their values come from.

use std::borrow::Cow;

use perf_prof_format::{
    tracefs::{Field, FieldKind},
    value::Value,
};

use super::SpanView;

/// A field of a span.
#[derive(Clone, Debug)]
pub struct SpanField {
    /// Its name.
    pub name: String,
    /// A description of the value; empty for a field of the event that begins the span.
    pub about: &'static str,
    /// The type of its values.
    pub kind: SpanFieldKind,
    /// Where its values come from.
    pub source: SpanFieldSource,
    /// Where the value of a computed field comes from, so that it can be computed without the function. If the field is
    /// a text for a number, this is the origin of the number. `None` if only the function can compute it.
    pub origin: Option<Origin>,
}

/// The origin of a value of a span. Only origins that a BPF program in the kernel can read too are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The part of the key with this index.
    Key(usize),
    /// The number in the field with this name of the event that begins the span.
    Begin(&'static str),
    /// The field with this name of the event that ends the span.
    End(&'static str),
    /// These bits of the field with this name of the event that begins the span.
    BeginBits(&'static str, u32),
    /// These bits of the field with this name of the event that ends the span.
    EndBits(&'static str, u32),
    /// The name of the task in which the span ends, as text.
    Comm,
    /// The number of the error that this field of the end has, which is the result of a call; 0 if it has none.
    Error(&'static str),
}

/// The type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanFieldKind {
    /// An array of unsigned numbers of 64 bits.
    Words,
    /// A signed number of 64 bits.
    Int,
    /// An unsigned number of 64 bits.
    Uint,
    /// An unsigned number of 64 bits, which lines show in hexadecimal form.
    Address,
    /// A time in ns: an unsigned number of 64 bits.
    Time,
    /// Text.
    Text,
    /// Text of user space. It is absent if it could not be read.
    UserText,
}

/// Where the values of a field come from.
#[derive(Clone, Debug)]
pub enum SpanFieldSource {
    /// A field of the event that begins the span. For each input: the field, or `None` if the input begins no spans.
    Begin(Vec<Option<Field>>),
    /// A function that computes them.
    Computed(ComputeField),
}

/// Computes the value of a field from the samples of a span.
#[derive(Clone, Copy, Debug)]
pub enum ComputeField {
    /// A signed number.
    Int(fn(&SpanView<'_>) -> i64),
    /// An address.
    Address(fn(&SpanView<'_>) -> u64),
    /// An unsigned number.
    Uint(fn(&SpanView<'_>) -> u64),
    /// A time in ns.
    Time(fn(&SpanView<'_>) -> u64),
    /// Text, which ends at its first NUL.
    Text(for<'a> fn(&SpanView<'a>) -> Cow<'a, [u8]>),
    /// Text that depends only on a number of the span. The first function returns the number, and the second one the text for
    /// it. So a filter by the text is evaluated once for each number.
    TextOfNumber(fn(&SpanView<'_>) -> i64, for<'a> fn(&SpanView<'a>, i64) -> Cow<'a, [u8]>),
    /// The text of user space with this name. `None` if it could not be read, or if the span has no such text.
    UserText(&'static str, for<'a> fn(&SpanView<'a>, &str) -> Option<Cow<'a, [u8]>>),
    /// The bytes of unsigned numbers of 64 bits.
    Words(for<'a> fn(&SpanView<'a>) -> &'a [u8]),
}

impl ComputeField {
    /// Returns the type of the values.
    pub fn kind(self) -> SpanFieldKind {
        match self {
            ComputeField::Int(_) => SpanFieldKind::Int,
            ComputeField::Address(_) => SpanFieldKind::Address,
            ComputeField::Uint(_) => SpanFieldKind::Uint,
            ComputeField::Time(_) => SpanFieldKind::Time,
            ComputeField::Text(_) | ComputeField::TextOfNumber(..) => SpanFieldKind::Text,
            ComputeField::UserText(..) => SpanFieldKind::UserText,
            ComputeField::Words(_) => SpanFieldKind::Words,
        }
    }
}

/// The value of a span's field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SpanValue<'a> {
    /// A number of a field whose kind is [`SpanFieldKind::Int`].
    Int(i64),
    /// A number of a field with another kind of numbers.
    Uint(u64),
    /// Text, or the bytes of an array.
    Bytes(Cow<'a, [u8]>),
}

impl SpanField {
    /// Creates the field for a part of the key or an argument of a probe. `fields` are the fields of the inputs, by the
    /// index of the input.
    pub fn of_begin(name: &str, fields: Vec<Option<Field>>) -> SpanField {
        // The kind has the sign of the C type. The format's own `signed` is 0 for all arguments of system calls.
        let kind = match fields.iter().flatten().next().map(|field| &field.kind) {
            Some(kind) if kind.is_text() => SpanFieldKind::Text,
            Some(FieldKind::Int { signed: true, .. }) => SpanFieldKind::Int,
            _ => SpanFieldKind::Uint,
        };
        SpanField { name: name.to_owned(), about: "", kind, source: SpanFieldSource::Begin(fields), origin: None }
    }

    /// Returns the value of the field in a span; `None` if the record of the begin is too short.
    pub(super) fn value<'a>(&self, view: &SpanView<'a>) -> Option<SpanValue<'a>> {
        match &self.source {
            SpanFieldSource::Computed(ComputeField::Int(compute)) => Some(SpanValue::Int(compute(view))),
            SpanFieldSource::Computed(
                ComputeField::Uint(compute) | ComputeField::Address(compute) | ComputeField::Time(compute),
            ) => Some(SpanValue::Uint(compute(view))),
            SpanFieldSource::Computed(ComputeField::Text(compute)) => Some(SpanValue::Bytes(compute(view))),
            SpanFieldSource::Computed(ComputeField::TextOfNumber(number, compute)) => {
                Some(SpanValue::Bytes(compute(view, number(view))))
            }
            SpanFieldSource::Computed(ComputeField::UserText(name, compute)) => {
                compute(view, name).map(SpanValue::Bytes)
            }
            SpanFieldSource::Computed(ComputeField::Words(compute)) => Some(SpanValue::Bytes(compute(view).into())),
            SpanFieldSource::Begin(fields) => {
                let begin = view.begin();
                match fields.get(view.begin_input())?.as_ref()?.value(begin.raw())? {
                    Value::Int(value) => Some(SpanValue::Int(value)),
                    Value::Uint(value) => Some(SpanValue::Uint(value)),
                    Value::Bool(value) => Some(SpanValue::Uint(value.into())),
                    Value::Str(text) => Some(SpanValue::Bytes(text.into())),
                    Value::Bytes(_) | Value::Words(_) => None,
                }
            }
        }
    }
}
