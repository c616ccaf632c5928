//! Everything with Python: the interpreter, scripts and their events, and the package `perf_prof` for programs.
//!
//! This crate does not know the command line (argv) of perf-prof. Only this crate uses pyo3, apart from the two crates
//! that define the native module `_native`.
//!
//! The modules, each of which uses only those above it:
//!
//! * [`script`]: interpreter, loader, callbacks, event objects, the native module `perf_prof._native`; `aggregate/`:
//!   aggregators as Python objects; `perf_script/`: the handlers of scripts of `perf script`. No other module contains
//!   `unsafe`. Must not know: argv.
//! * [`run`]: runs a script. `script_run.rs` contains the steps of each run, on the module `spine` of the crate
//!   `session`. `jobs.rs` forks a process for each part of a recording. `parts.rs` is for programs that fork these
//!   processes themselves. `one_part.rs` replays one part for another process. `shard.rs` passes the results of a part
//!   on. `several.rs` and `engine.rs` replay several recordings. Does not use pyo3. Must not know: argv.
//! * [`library`]: the functions of the package `perf_prof` for programs: traces, recordings and counts in a process
//!   that belongs to the program. Must not know: argv; signal handlers; stdout and stderr.
//! * [`testing`]: formats of events as Python objects, made events, and runs of scripts on them, for
//!   `perf_prof.testing`. Must not know: argv; live events.
//!
//! # Where a change goes
//!
//! Paths start at this folder. The Python files of the package are in `python/perf_prof/` of the repository.
//!
//! * a member of events: `script/event/access.rs` and `script/event/members.rs`; `begin`, `end`, `between` and `comm`
//!   of spans: `script/event/class.rs`; a method: `script/event/methods.rs`
//! * a callback: `script/callbacks.rs`, `script/host.rs`
//! * a function or class of `perf_prof`: `script/module.rs`, or a Python file; a file of the package has its line in
//!   `script/package.rs`
//! * a method of aggregators: `script/aggregate/base.rs` (all), `script/aggregate/kinds.rs` (one class),
//!   `script/aggregate/top.rs`; how they get events: `script/aggregate/feed.rs`, `script/feeding.rs`
//! * metrics for Prometheus: the server is `metrics.py`, its pages come from `script/aggregate/metrics.rs`, and
//!   `script/serving.rs` starts it for a script
//! * what a notebook shows: `_repr_html_` of the classes, for example in `script/flame_graph.rs`; what pictures share:
//!   `script/pictures.rs`; the notebook of the project: `docs/notebook.ipynb` of the repository, which
//!   `tests/python/test_notebook.py` runs
//! * `Parts` and `States`, for scripts with `--jobs`: `_parts.py`
//! * tracebacks of callbacks, `--on-error`: `script/failure.rs`
//! * control characters in the output of scripts: `script/printing.rs`
//! * what a handler of a script of `perf script` gets: `script/perf_script/passing.rs` (which values),
//!   `script/perf_script/arguments.rs` (their objects), `script/perf_script/field.rs` (the value of a field, its sign),
//!   `script/perf_script/sample.rs`;
//!   which function is called: `script/perf_script/handlers.rs`; which values are not made because the function does
//!   not read them: `script/perf_script/reads.rs` and `_reads.py`; objects that are used again:
//!   `script/perf_script/cache.rs`, `script/perf_script/kept_dict.rs`, `script/perf_script/chains.rs`
//! * a module that scripts of `perf script` import: its text in `python/perf_script/` of the repository; how it is
//!   found: `script/perf_script/modules.rs`
//! * perf's Python module, for scripts with `import perf`: `perf.py` and the files `_perf_*.py`; sessions:
//!   `library/perf_session.rs`; live events: `library/perf_events.rs`; members of their events:
//!   `script/event/perf_sample.rs`, `script/perf_module/` (callchains, branches); which scripts import it:
//!   `run/imports.rs`; how such a script runs: `run/program.rs`, `script/loader.rs`
//! * which Python is used: `script/choice.rs` (choice), `script/interpreter.rs` (the embedded interpreter),
//!   `script/running.rs` (the interpreter of an installed package)
//! * events that a script can do without: `script/optional_events.rs`, `run/missing_events.rs`
//! * `--jobs`: `run/jobs.rs` (one process for each part), `script/merge.rs` (`__partial__`, `__merge__`),
//!   `run/shard.rs` (results); in a program: `run/parts.rs`, `library/divided.rs`, `_jobs.py`
//! * several recordings: `run/inputs.rs` (patterns), `run/several.rs` (one after the other), `run/engine.rs`,
//!   `run/one_part.rs`, `script/fleet.rs` and `_engines.py` (in other processes)
//! * a keyword of `trace` and similar functions: its row in `_options.py`, its arm in `library/options.rs`, its name in
//!   messages in `library/keywords.rs`
//! * what a program gets from a run: `library/queue.rs` (between the thread of the run and the program),
//!   `library/trace.rs` (iteration; for asyncio, `_asyncio.py`), `library/dispatch.rs` (handlers), `library/columns.rs`
//!   (`table()`, `batches()`)
//! * an exception of the package: `_errors.py`, `library/errors.rs`
//! * what a forked child of a program inherits: `library/forks.rs`
//! * what `make_event` accepts: `testing/members.rs`, `testing/made_span.rs`; what `run_script` calls:
//!   `testing/script_run.rs`, and what it restores afterwards: `testing.py`; formats of events: `testing/formats.rs`

#![cfg(feature = "python")]

pub mod script;

pub mod run;

pub mod library;

pub mod testing;
