//! A run: from the plan over the selected events to the run loop, live or from a recording, and recording and counting.
//!
//! This wing does not know argv, nor Python.
//!
//! The rooms, each of which uses only those above it:
//!
//! * [`selectors`]: Events other than tracepoints: a selector to what is opened; built-in sources, one file each; PMU
//!   terms; `probe/`: a function to a file and an offset. Must not know: Python.
//! * [`plan`]: What a run is told before it starts: `draft.rs` is what the user asked for, `selection.rs` and
//!   `error.rs` say what fits together, `run.rs` is the plan. Must not know: argv.
//! * [`engine`]: The run loop, the pump, intervals, losses, statistics, exit status. Must not know: live events, files,
//!   where events go.
//! * [`dividing`]: A recording divided between readers: the parts, the result of a part and its encoding, the sum of
//!   all results. Must not know: Python, argv, how readers are started.
//! * [`live`]: Selectors to events of the running kernel; requests and options of the capture; what a plain user may
//!   see. Must not know: recordings.
//! * [`recording`]: A recording as a run: opening, selecting, replaying, decoding to columns, its clock, its binaries,
//!   its kernel's names. Must not know: scripts.
//! * [`recorder`]: `perf-prof record` and `--record`: what is written, when, by which threads. Must not know: argv,
//!   Python.
//! * [`spine`]: The spine of a run: `RunPlan -> Chosen -> Armed -> Session -> Outcome`, for live events and for
//!   recordings. Must not know: argv, Python.
//! * [`stat`]: `perf-prof stat`: counting, scaling, metrics. Must not know: argv, how counts are shown.

pub mod selectors;

pub mod plan;

pub mod engine;

pub mod dividing;

pub mod live;

pub mod recording;

pub mod recorder;

pub mod spine;

pub mod stat;
