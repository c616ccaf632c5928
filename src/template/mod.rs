//! Event types to the text of a script template, and to the lines that describe their fields. Knows nothing of files.

mod field;
mod script;

pub use field::{c_type, field_line, member_line, member_python_type, python_type};
pub use script::script;
