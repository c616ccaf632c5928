//! The commands that need no Python.
//!
//! This wing does not know argv, nor Python: a command gets a plan.
//!
//! The rooms, each of which uses only those above it:
//!
//! * [`parallel`]: `perf-prof parallel`: a command that reads a recording to jobs that read parts of it. Must not know:
//!   recordings, events.
//! * [`commands`]: Commands that show a recording: `evlist`, `--header-only`, `report`, `script`, `export`. Must not
//!   know: argv, Python.
//! * [`watch`]: Commands that answer questions about events without a script, live or from a recording: `trace`, `top`,
//!   `hist`. Must not know: argv, Python.

pub mod parallel;

pub mod commands;

pub mod watch;
