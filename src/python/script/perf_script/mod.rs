//! The second way to deliver events to Python functions: as `perf script -s` does, with the fields as arguments. Scripts
//! that were written for perf run here without a change.
//!
//! `handlers` finds the function of an event in `__main__` (`function`) and calls it. `passing` decides which values the
//! function gets, from its `parameters`. `arguments` makes the values. `modules` are the modules that scripts import.

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
    /// The values of signed fields that are smaller than 8 bytes.
    pub signs: Signs,
}
