//! The commands that need no Python.
//!
//! This crate knows neither argv nor Python. A command gets a plan.
//!
//! The modules. Each uses only the modules above it:
//!
//! * [`output`]: The output of a command: text that is collected before it is written. Must not know: recordings,
//!   argv, Python.
//! * [`parallel`]: `perf-prof parallel`. Makes jobs of a command that reads a recording. Each job reads a part of the
//!   recording. Must not know: recordings, events.
//! * [`commands`]: Commands that show a recording: `evlist`, `--header-only`, `report`, `script`, `export`. Must not
//!   know: argv, Python.
//! * [`watch`]: Commands that answer questions about events without a script, live or from a recording: `trace`, `top`,
//!   `hist`. Must not know: argv, Python.
//!
//! # Where a change goes
//!
//! Paths start at this folder.
//!
//! * a command that shows a recording: a file in `commands/`; its sink gets the events of a `ChosenRecording`
//! * a format of `export`: a file in `commands/export/`, its line in `Form::ALL`; files of columns:
//!   `commands/export/column_file.rs`; profiles of pprof, which `report` writes too: `commands/pprof.rs`
//! * the counts in the text of `script`: `commands/script_text/counts.rs`
//! * what `top` and `hist` add up, and when they print: `watch/tally.rs`; the tables and the order of
//!   their rows: `watch/top.rs`, `watch/hist.rs`, `watch/sum_table.rs` (`--sum`);
//!   on a terminal: `watch/screen.rs`; by how many seconds a rate is divided: `watch/recorded_times.rs`;
//!   which spans a table lacks because they had not ended: `watch/not_ended.rs`
//! * how much of a call chain a table shows: `watch/stack_width.rs`
//! * a line of `trace`: `watch/trace.rs`, `watch/system_call.rs`, `watch/span_text.rs`
//! * how `perf-prof parallel` divides a recording: `parallel/ranges.rs`, `parallel/job_plan.rs`; which tools it
//!   supports: `parallel/reader.rs`

pub mod output;

pub mod parallel;

pub mod commands;

pub mod watch;
