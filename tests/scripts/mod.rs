//! Runs the shipped scripts by their first lines, on workloads with known numbers of events.

mod causes;
mod devices;
mod locks_and_memory;
mod namespaces;
pub mod processes;
mod profiling;
mod recorded;
pub mod scheduling;
mod shipped;
pub mod signals;
mod snoops;
pub mod syscalls;
mod uprobe_latency;
mod usage;
