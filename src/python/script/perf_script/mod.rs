//! Delivers events to Python functions as `perf script -s` does, with the fields as arguments. Scripts that were
//! written for perf run here without a change.
//!
//! `handlers` finds the function for an event in `__main__` (`function`) and calls it. `passing` determines from the
//! function's `parameters` which values it gets. `reads` finds out which of these values the function reads.
//! `arguments` makes the values. Objects that a script has not kept are used again: single values (`cache`), dicts
//! (`kept_dict`), and callchains (`chains`). `modules` provides the modules that scripts import.

mod address;
mod arguments;
mod branches;
mod cache;
mod chains;
mod context;
mod db_export;
mod definitions;
mod field;
mod fields_dict;
mod frame;
mod function;
mod handlers;
mod header;
mod kept_dict;
mod modules;
mod parameters;
mod passing;
mod reads;
mod records;
mod sample;

pub use context::{line_of, perf_trace_context, source_of};
pub use field::Signs;
pub use frame::FrameObjects;
pub use handlers::{Handlers, Raised};
pub use modules::{exec_path, install as install_modules};
pub use records::RecordFunctions;

/// The settings of scripts of `perf script`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How signed fields of less than 8 bytes are converted to Python numbers.
    pub signs: Signs,
}
