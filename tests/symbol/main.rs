//! Names of addresses in real programs: compiled here, stripped, moved, removed, run in namespaces of their own.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod corrupt;
mod files;
mod harness;
mod mappings;
mod processes;
mod run_time;
mod speed;
