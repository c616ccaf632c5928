//! `perf-prof record` as users run it. Each test runs the built program on events of this kernel, and the real `perf`
//! reads the recordings.

mod blocks;
mod bpf_programs;
pub mod burst;
mod command_end;
mod compressed;
mod control;
mod errors;
pub mod flight;
mod groups;
mod kept_rings;
mod output_place;
mod perf_options;
mod pipe;
mod plain;
mod shared_events;
pub mod side_band;
mod snapshots;
mod targets;
mod threads;
mod with_script;
