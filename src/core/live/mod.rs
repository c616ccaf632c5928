//! Events of the running kernel: which events a selector selects, how events are opened, and which names the kernel has
//! for addresses and values. Does not know recordings.

pub mod chosen;
pub mod file_rights;
pub mod kernel;
pub mod refusal;
pub mod requests;
pub mod select;
pub mod unprivileged;
pub mod workload_end;
