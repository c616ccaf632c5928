//! Names of addresses in real programs. The programs are compiled here, stripped, moved, removed, or run in their own
//! namespaces.

mod corrupt;
mod files;
mod hostile;
mod kernel;
mod mappings;
mod processes;
mod run_time;
mod speed;
