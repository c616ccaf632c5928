//! Live capture of real tracepoints. Skipped where the kernel does not let us trace.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod counting;
mod delivery;
mod harness;
mod opening;
mod targets;
