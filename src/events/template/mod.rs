//! Writes script templates and types for events, and lines that describe their fields.

mod field;
mod perf_script;
mod script;
mod stubs;

pub use field::{METHODS, SPAN_MEMBERS, access_by_key, field_line, member_line, member_python_type, python_type};
pub use perf_script::{FieldSigns, perf_script_template};
pub use script::script;
pub use stubs::stubs;
