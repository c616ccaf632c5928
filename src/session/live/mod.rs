//! Events of the running kernel: which events a selector selects, and how events are opened.

pub mod chosen;
pub mod file_rights;
pub mod in_kernel;
pub mod interpreter;
pub mod kernel_target;
pub mod pairs;
pub mod polled;
pub mod read_ahead;
pub mod refusal;
pub mod requests;
pub mod select;
pub mod sharing;
pub mod strings;
pub mod unprivileged;
pub mod workload_end;
