//! Everything with Python: the interpreter, scripts and their events, and the package `perf_prof` for programs.
//!
//! This wing does not know argv. It is the only one with pyo3, apart from the module itself.
//!
//! The rooms, each of which uses only those above it:
//!
//! * [`script`]: Interpreter, loader, callbacks, event objects, the native module `perf_prof._native`; `aggregate/`:
//!   aggregators as Python objects; `perf_script/`: the handlers of scripts of `perf script`. The only room with pyo3.
//!   Must not know: argv.
//! * [`run`]: A script's run: `script_run.rs` is the one way, on a `core/spine/`; `jobs.rs` forks processes for its
//!   parts, `parts.rs` is for programs that fork them, `one_part.rs` replays one part for another process, and
//!   `shard.rs` passes their results on; `several.rs` and `engine.rs` replay several recordings. Must not know: argv.
//! * [`library`]: The functions of the package `perf_prof` for programs: traces, recordings and counts in a process
//!   that belongs to the program. Must not know: argv; signal handlers; stdout and stderr.
//! * [`testing`]: Formats of events as Python objects, made events, and runs of scripts on them, for
//!   `perf_prof.testing`. Must not know: argv; live events.

#![cfg(feature = "python")]

pub mod script;

pub mod run;

pub mod library;

pub mod testing;
