//! Delivers events to Python functions as `perf script -s` does, with the fields as arguments. Scripts that were
//! written for perf run here without a change.
//!
//! `handlers` finds the function for an event in `__main__` (`function`) and calls it. `passing` decides from the
//! function's `parameters` which values it gets. `arguments` makes the values. `modules` has the modules that scripts
//! import.

mod address;
mod arguments;
mod branches;
mod cache;
mod context;
mod db_export;
mod definitions;
mod field;
mod frame;
mod function;
mod handlers;
mod header;
mod modules;
mod parameters;
mod passing;
mod records;
mod sample;

pub use context::perf_trace_context;
pub use field::Signs;
pub use handlers::{Handlers, Raised};
pub use modules::{exec_path, install as install_modules};
pub use records::RecordFunctions;

/// The settings that only scripts of `perf script` have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How signed fields of less than 8 bytes become Python numbers.
    pub signs: Signs,
}
