//! The analysis scripts, run by their first lines on workloads whose true numbers are known.

pub mod processes;
mod profiling;
mod recorded;
pub mod scheduling;
pub mod syscalls;
mod uprobe_latency;
mod usage;
