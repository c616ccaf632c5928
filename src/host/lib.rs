//! perf-prof's user interfaces: the script host with the embedded interpreter, and the command line.
//!
//! The modules of this crate are called rooms. A room uses only rooms above it in this list, and the crate
//! `perf_prof_core`. `docs/architecture.md` describes all rooms.

#[cfg(feature = "python")]
pub mod script;

#[cfg(feature = "python")]
pub mod run;

#[cfg(feature = "python")]
pub mod library;

#[cfg(feature = "python")]
pub mod testing;

pub mod cli;

#[cfg(feature = "python")]
pub mod native;
