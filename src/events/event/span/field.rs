//! The fields of spans: their types, and how their values are found.

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
    /// The description of the field; empty for a field of the event that begins the span.
    pub about: &'static str,
    /// The type of its values.
    pub kind: SpanFieldKind,
    /// How its values are found.
    pub source: SpanFieldSource,
    /// Where a BPF program finds the value of a computed field, because it cannot call the function that computes the
    /// value. If the value is the text of a number, such as the name of a system call, this is the origin of the number.
    /// `None` if only the function can compute the value.
    pub origin: Option<Origin>,
}

/// Where a BPF program in the kernel finds the value of a span's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the key: the part with this index.
    Key(usize),
    /// In the event that begins the span: the number in this field.
    Begin(&'static str),
    /// In the event that ends the span: this field.
    End(&'static str),
    /// In the event that begins the span: these bits of this field.
    BeginBits(&'static str, u32),
    /// In the event that ends the span: these bits of this field.
    EndBits(&'static str, u32),
    /// The name of the task in which the span ends.
    Comm,
    /// In the event that ends the span: this field holds the result of a call. The value is its error number, or 0 if the
    /// call did not fail.
    Error(&'static str),
}

/// The type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanFieldKind {
    /// An array of unsigned 64-bit numbers.
    Words,
    /// A signed 64-bit number.
    Int,
    /// An unsigned 64-bit number.
    Uint,
    /// An unsigned 64-bit number, printed in hexadecimal.
    Address,
    /// A time in ns: an unsigned 64-bit number.
    Time,
    /// A time in ns that may be unknown. A span without a value is not added up.
    TimeIfKnown,
    /// Text.
    Text,
    /// Text from user space. A value may be missing because it could not be read.
    UserText,
}

/// How the values of a field are found.
#[derive(Clone, Debug)]
pub enum SpanFieldSource {
    /// They are values of a field of the event that begins the span. The vector has an element for each input: the field, or
    /// `None` if the input begins no spans.
    Begin(Vec<Option<Field>>),
    /// A function computes them.
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
    /// A time in ns. The function returns `None` if the time is not known.
    TimeIfKnown(fn(&SpanView<'_>) -> Option<u64>),
    /// Text. It ends at its first NUL.
    Text(for<'a> fn(&SpanView<'a>) -> Cow<'a, [u8]>),
    /// Text that depends only on a number of the span, such as the name of a system call. The first function returns the
    /// number, and the second function its text. A filter by the text is thus evaluated once for each number.
    TextOfNumber(fn(&SpanView<'_>) -> i64, for<'a> fn(&SpanView<'a>, i64) -> Cow<'a, [u8]>),
    /// Text from user space. The function gets this name, and returns `None` if the text could not be read, or if the span
    /// has no such text.
    UserText(&'static str, for<'a> fn(&SpanView<'a>, &str) -> Option<Cow<'a, [u8]>>),
    /// The bytes of an array of unsigned 64-bit numbers.
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
            ComputeField::TimeIfKnown(_) => SpanFieldKind::TimeIfKnown,
            ComputeField::Text(_) | ComputeField::TextOfNumber(..) => SpanFieldKind::Text,
            ComputeField::UserText(..) => SpanFieldKind::UserText,
            ComputeField::Words(_) => SpanFieldKind::Words,
        }
    }
}

/// The value of a span's field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SpanValue<'a> {
    /// The value of a field of kind [`SpanFieldKind::Int`].
    Int(i64),
    /// The value of a field of any other kind of numbers.
    Uint(u64),
    /// The value of a text or of an array.
    Bytes(Cow<'a, [u8]>),
}

impl SpanField {
    /// Creates the field for a part of the key or an argument of a probe. `fields` contains the field in each input of the
    /// span.
    pub fn of_begin(name: &str, fields: Vec<Option<Field>>) -> SpanField {
        // Take the sign from the C type: the format's own `signed` is 0 for all arguments of system calls.
        let kind = match fields.iter().flatten().next().map(|field| &field.kind) {
            Some(kind) if kind.is_text() => SpanFieldKind::Text,
            Some(FieldKind::Int { signed: true, .. }) => SpanFieldKind::Int,
            _ => SpanFieldKind::Uint,
        };
        SpanField { name: name.to_owned(), about: "", kind, source: SpanFieldSource::Begin(fields), origin: None }
    }

    /// Returns the value of the field in a span; `None` if it is not known, or if the record of the begin event ends before it.
    pub(super) fn value<'a>(&self, view: &SpanView<'a>) -> Option<SpanValue<'a>> {
        match &self.source {
            SpanFieldSource::Computed(ComputeField::Int(compute)) => Some(SpanValue::Int(compute(view))),
            SpanFieldSource::Computed(
                ComputeField::Uint(compute) | ComputeField::Address(compute) | ComputeField::Time(compute),
            ) => Some(SpanValue::Uint(compute(view))),
            SpanFieldSource::Computed(ComputeField::TimeIfKnown(compute)) => compute(view).map(SpanValue::Uint),
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
