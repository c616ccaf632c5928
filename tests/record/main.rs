//! What a user of `perf-prof record` relies on: each test runs the built program on events of this kernel, and has the
//! recording read by the real `perf`. Where the kernel does not let us trace, or perf is missing, tests say "skipped".

#![cfg(feature = "script")]
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod blocks;
mod burst;
mod compressed;
mod control;
mod errors;
mod groups;
mod harness;
mod pipe;
mod plain;
mod side_band;
mod targets;
mod threads;
mod with_script;
