//! What a user of `perf-prof record` relies on: each test runs the built program on events of this kernel, and has the
//! recording read by the real `perf`.

mod blocks;
pub mod burst;
mod compressed;
mod control;
mod errors;
mod groups;
mod pipe;
mod plain;
pub mod side_band;
mod targets;
mod threads;
mod with_script;
