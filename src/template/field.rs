//! What a field is to a script: its Python type and its C declaration.

use crate::{
    record::{MemberType, SampleMember},
    tracefs::{ElementType, Field, FieldKind},
};

/// The Python type that a field's value has.
pub fn python_type(field: &Field) -> &'static str {
    match field.kind {
        FieldKind::Bool => "bool",
        FieldKind::Int { .. } | FieldKind::Pointer => "int",
        FieldKind::Array(element) | FieldKind::DataLoc(element) | FieldKind::RelLoc(element) => match element {
            ElementType::Char => "str",
            ElementType::Int { .. } | ElementType::Opaque => "bytes",
        },
    }
}

/// Its C declaration without the name: `int`, `char[16]`, `__data_loc char[]`.
pub fn c_type(field: &Field) -> String {
    let Field { type_text, size, kind, .. } = field;
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

/// One field in a docstring: `prio : int    (C: int)`.
pub fn field_line(field: &Field) -> String {
    let name = &field.name;
    let element = match field.kind {
        FieldKind::Array(element) | FieldKind::DataLoc(element) | FieldKind::RelLoc(element) => Some(element),
        FieldKind::Bool | FieldKind::Int { .. } | FieldKind::Pointer => None,
    };
    let note = match element {
        Some(ElementType::Int { .. }) => format!("; event.array('{name}')"),
        _ => String::new(),
    };
    format!("{name} : {}    (C: {}{note})", python_type(field), c_type(field))
}

/// The Python type of a sample's member.
pub fn member_python_type(member: SampleMember) -> &'static str {
    match member.kind() {
        MemberType::Int => "int",
        MemberType::Bytes => "bytes",
        MemberType::Callchain => "list",
        MemberType::Read | MemberType::Registers => "dict",
    }
}

/// One member of a sample in a docstring: `ip : int    (address of the instruction)`.
pub fn member_line(member: SampleMember) -> String {
    format!("{} : {}    ({})", member.name(), member_python_type(member), member.doc())
}
