//! Live capture of real tracepoints.

mod counting;
mod delivery;
mod machine;
mod opening;
mod overwritten;
mod targets;
