//! Runs, live or from a recording: the plan, the selected events, and the run loop. Also `record` and `stat`.
//!
//! This crate knows neither argv nor Python.
//!
//! The modules. Each of them uses only those above it:
//!
//! * [`selectors`]: Events other than tracepoints: what a selector opens; built-in sources, one file each; PMU terms;
//!   `probe/`: from a function to a file and an offset. Must not know: Python.
//! * [`plan`]: The settings of a run before it starts: `draft.rs` is what the user asked for, `selection.rs` and
//!   `error.rs` check which options fit together, `run.rs` is the plan. Must not know: argv.
//! * [`engine`]: The run loop, the pump, intervals, losses, statistics, exit status. Must not know: live events, files,
//!   where events go.
//! * [`dividing`]: A recording divided between readers: the parts, the result of a part and its encoding, the sum of
//!   all results. Must not know: Python, argv, how readers are started.
//! * [`live`]: From selectors to events of the running kernel; requests and options of the capture; what a plain user
//!   may see. Must not know: recordings.
//! * [`recording`]: A recording as a run: opening, selecting, replaying, decoding to columns, its clock, its binaries,
//!   its kernel's names. Must not know: scripts.
//! * [`recorder`]: `perf-prof record` and `--record`: what is written, when, by which threads. Must not know: argv,
//!   Python.
//! * [`spine`]: The steps of a run: `RunPlan -> Chosen -> Armed -> Session -> Outcome`, for live events and for
//!   recordings. Must not know: argv, Python.
//! * [`flight`]: `record --before`: samples stay in rings that the kernel overwrites, and a trigger writes them into a
//!   recording. Must not know: argv, Python.
//! * [`stat`]: `perf-prof stat`: counting, scaling, metrics. Must not know: argv, how counts are shown.
//!
//! # Where a change goes
//!
//! Paths start at this folder.
//!
//! * which options fit together: `plan/draft.rs`; targets and tasks: `plan/selection.rs`; the messages: `plan/error.rs`
//! * what a run of a source traces if `-p` is given: `plan/mod.rs`
//! * what a selector opens: `selectors/` (perf events, PMU terms in `selectors/pmu.rs`, one file for each built-in
//!   source); probes: `selectors/probe/` (`file.rs`, `location.rs`, `arguments.rs`; static
//!   ones: `static_probe.rs`, `static_arguments.rs`)
//! * the effect of an attribute of selectors, sizes of rings and of the buffer, whose events are left out:
//!   `live/requests.rs`
//! * wildcards, and the events that spans need: `live/select.rs`, `recording/select.rs`; recorded events that several
//!   selectors need: `live/sharing.rs`; their delivery while they are recorded: `engine/pump/shared.rs`
//! * which events BPF programs add up in the kernel, and the reasons if they do not: `live/in_kernel.rs`; which system
//!   calls they pair: `live/pairs.rs`, `engine/call_pairs.rs`; when the run reads their tables:
//!   `engine/kernel_tables.rs`
//! * what a program opens and polls itself: `live/polled.rs`
//! * what a plain user may trace: `live/unprivileged.rs`; rights that a run gives up: `live/file_rights.rs`
//! * a step of all runs, or another origin of events: `spine/`, whose `Chosen`, `Armed` and `Session` have a case for
//!   each origin
//! * signals, `-i`, `--duration`: `engine/run_loop.rs`; `-N` and losses: `engine/pump/mod.rs`; when output is written:
//!   `engine/flushing.rs`
//! * how another thread gets tables that are up to date: `engine/refresh.rs`
//! * lines about losses, statistics on SIGUSR2: `engine/losses.rs`; about missing spans:
//!   `engine/span_report.rs`; the exit status: `engine/exit_status.rs`
//! * how a traced command ends: `live/workload_end.rs`
//! * whether a path is a recording, and the message if it is not: `recording/open.rs`
//! * what a replay says if nothing was selected: `recording/empty_result.rs`; what the recording lacks for the selected
//!   events: `recording/lacking.rs`
//! * of which tasks the samples of a recording are delivered (`-p` with new children, cgroups): `engine/sample_routes.rs`
//! * clocks of recordings and `--time`: `recording/clock.rs`
//! * names in recordings: `recording/binaries.rs`, `recording/kernel.rs`; of events without a recorded name:
//!   `recording/event_name.rs`
//! * counts of `perf stat record`: `recording/stat_counts/mod.rs`
//! * columns of a recording: `recording/columns/` (`parts.rs` divides it, `decode.rs` reads a part, `hand_over.rs`
//!   keeps order and memory, `run.rs` has the threads)
//! * how a recording is divided for `--jobs`: `dividing/whole.rs`; what the process of a part passes on:
//!   `dividing/result.rs` (with a version); the sums: `dividing/results.rs`, `dividing/counts.rs`
//! * what spans carry from part to part: `recording/carried.rs`, and `continue_in` and `mute` of `Derivation` in the
//!   crate `events`
//! * what happens to files and links at the place of a new recording: `recorder/container.rs`
//! * facts about the machine in a recording: `recorder/machine.rs`; records of tasks that already ran:
//!   `recorder/existing_state.rs`
//! * recording while a script runs: `recorder/tee.rs` (after delivery, ends of rounds), `recorder/lifecycle.rs` (start,
//!   end)
//! * `--control` of `record`: `recorder/control.rs`; `--threads`: `recorder/writer_threads.rs`
//! * `record --before`: `flight/keeper.rs` (when a dump is made, what follows it), `flight/dump.rs` (the contents of a dump),
//!   `flight/in_order.rs` (its records in the order of time),
//!   `flight/side_band.rs` (the state of tasks), `flight/rings.rs` (sizes of rings), `flight/triggers.rs` (the events
//!   that cause dumps), `flight/beside.rs` (for `snapshot()` in scripts)
//! * counts of `stat`: `stat/result.rs` (sums, scaling, means), `stat/metric.rs` (such as instructions per cycle). How
//!   they are shown: the crate `cli`.

pub mod selectors;

pub mod plan;

pub mod engine;

pub mod dividing;

pub mod live;

pub mod recording;

pub mod recorder;

pub mod spine;

pub mod flight;

pub mod stat;
