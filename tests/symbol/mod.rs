//! Names of addresses in real programs, which the tests compile, strip, move, remove, or run in their own namespaces.

mod corrupt;
mod files;
mod hostile;
mod kernel;
mod mappings;
mod processes;
mod run_time;
mod speed;
