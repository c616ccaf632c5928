//! What a field is to a script: its Python type and its C declaration.

use crate::tracefs::{ElementType, Field, FieldKind};

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

/// One field in a docstring: `prio : int    C: int prio`.
pub fn field_line(field: &Field) -> String {
    let Field { name, type_text, size, .. } = field;
    let (declared, note) = match field.kind {
        FieldKind::Array(ElementType::Int { .. }) => {
            (type_text.clone(), format!(", {size} bytes; event.array('{name}')"))
        }
        FieldKind::DataLoc(ElementType::Int { .. }) | FieldKind::RelLoc(ElementType::Int { .. }) => {
            (type_text.clone(), format!("; event.array('{name}')"))
        }
        _ => (type_text.clone(), String::new()),
    };
    format!("{name} : {}    ({declared}{note})", python_type(field))
}
