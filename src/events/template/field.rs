//! Describes a field for script authors: the Python type and the C declaration.

use perf_prof_format::{
    control_characters::without_controls,
    record::{MemberType, SampleMember},
    tracefs::{ElementType, Field},
    value::ValueType,
};

use crate::event::SpanFormat;

/// The names of the methods of events.
pub const METHODS: [&str; 8] = ["keys", "values", "items", "get", "to_dict", "print", "array", "text"];

/// Returns the expression with which a script reads a field that is not an attribute of its event, such as `event['keys']`.
/// A field is not an attribute if its name is that of a method of events, or has a meaning in Python. Returns `None` for
/// attributes.
pub fn access_by_key(name: &str) -> Option<String> {
    let is_special = name.len() > 4 && name.starts_with("__") && name.ends_with("__");
    (METHODS.contains(&name) || is_special).then(|| format!("event['{name}']"))
}

/// The members that only spans have: name, type and description.
pub const SPAN_MEMBERS: [(&str, &str, &str); 4] = [
    ("begin", "PerfEvent", "the event that began the span"),
    ("end", "PerfEvent", "the event that ended the span; None if the span is open"),
    ("between", "tuple", "the events between them that a source keeps"),
    ("comm", "str", "name of the task at the end of the span"),
];

/// Returns the members that only spans have. Leaves out members that a field of the same name hides.
pub fn span_members(fields: &[Field]) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    SPAN_MEMBERS.into_iter().filter(|(name, ..)| fields.iter().all(|field| field.name != *name))
}

/// Returns the Python type of a field's value.
pub fn python_type(field: &Field) -> &'static str {
    match field.kind.value_type() {
        ValueType::Bool => "bool",
        ValueType::Int => "int",
        ValueType::Str => "str",
        ValueType::Bytes => "bytes",
        ValueType::Words => "tuple",
    }
}

/// Returns the expression with which a script reads the integers of an array field; `None` for other fields.
pub fn array_access(field: &Field) -> Option<String> {
    match field.kind.element() {
        Some(ElementType::Int { .. }) => Some(format!("event.array('{}')", field.name)),
        _ => None,
    }
}

/// Returns the docstring line of a field, for example `prio : int    (C: int)`.
pub fn field_line(field: &Field) -> String {
    let name = &field.name;
    let note: String =
        access_by_key(name).into_iter().chain(array_access(field)).map(|note| format!("; {note}")).collect();
    let line = format!("{name} : {}    (C: {}{note})", python_type(field), field.c_type());
    // A format in a recording may contain any characters, but the docstring has one line for each field.
    without_controls(&line).into_owned()
}

/// Returns the docstring line of a span's field. For a source, the line says what the field means.
pub fn span_field_line(span: &SpanFormat, field: &Field) -> String {
    match span.about(&field.name) {
        "" => field_line(field),
        about => {
            let access: String = access_by_key(&field.name)
                .into_iter()
                .chain(array_access(field))
                .map(|note| format!("; {note}"))
                .collect();
            format!("{} : {}    ({about}{access})", field.name, python_type(field))
        }
    }
}

/// Returns the Python type of a member of a sample.
pub fn member_python_type(member: SampleMember) -> &'static str {
    match member.kind() {
        MemberType::Int => "int",
        MemberType::Bytes => "bytes",
        MemberType::Callchain | MemberType::Branches => "list",
        MemberType::Read | MemberType::Registers => "dict",
    }
}

/// Returns the docstring line of a member of a sample, for example `ip : int    (address of the instruction)`.
pub fn member_line(member: SampleMember) -> String {
    format!("{} : {}    ({})", member.name(), member_python_type(member), member.doc())
}
