//! A recording of the real `perf` worked by several processes: `perf-prof parallel`, and `perf-prof python --jobs`.
#![cfg(feature = "script")]
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod command;
mod harness;
mod jobs;
mod scripts;
