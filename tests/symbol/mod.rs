//! Names of addresses in real programs: compiled here, stripped, moved, removed, run in namespaces of their own.

mod corrupt;
mod files;
mod kernel;
mod mappings;
mod processes;
mod run_time;
mod speed;
