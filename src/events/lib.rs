//! What records mean: events, events that are derived from others, and their sums, columns and pictures.
//!
//! This crate does not know where records come from: neither capture nor recordings. It reads procfs for the names of tasks.
//!
//! The modules, each of which uses only the modules above it:
//!
//! * [`picture`]: Makes flame graphs of stacks, histograms of values, heat maps of values over time, and timelines of slices.
//!   Must not know: Python, events.
//! * [`event`]: Event types, lazy samples, callchains, values by name (`reader/`), text lines, sums of samples, task names,
//!   counts, `trait Sink`. Must not know: Python.
//! * [`template`]: Writes the text of `help`, lines about fields, and scripts with a handler for each event type. Must not
//!   know: files.
//! * [`aggregate`]: Aggregators: a definition compiled to a plan for an event type, tables of sums and distributions by
//!   key, the largest events. Must not know: Python, where events come from.
//! * [`mod@column`]: Events as Arrow arrays: resolves the names of columns for each event type, finds a type that fits
//!   several event types, and makes batches. Must not know: Python, where events come from.
//! * [`mod@derive`]: Derives events from several others, and keeps state between them. `span/` makes spans: a span is the
//!   time from one event to another. Must not know: Python, where samples come from.
//!
//! # Where a change goes
//!
//! Paths start at this folder.
//!
//! * the value of a member of events: `event/sample.rs`; the value of `_realtime`, and the names of tasks:
//!   `event/context.rs`, `event/tasks.rs`
//! * which names keys, filters, sums and columns know: `event/reader/mod.rs`. Names are resolved nowhere else.
//! * the line of an event: `event/line.rs` (`event.print()`), `event/columns.rs` and `event/perf_line.rs` (`perf-prof
//!   script`), `event/json.rs` (`--json`, `export`)
//! * what scripts of `perf script` get for an address: `event/perf_frame.rs`
//! * what a sink receives: `event/sink.rs`
//! * which samples `--comms` and `--symbols` select: `event/name_filter.rs`; which tasks `-p`, `-t` and `--exec` select
//!   with `--all-cpus`: `event/targets.rs`
//! * a built-in source of several events, such as `offcpu`: a file in `derive/source/`; what the rules and fields of sources
//!   can say: `derive/source/definition.rs`, `derive/span/rules.rs`, `event/span/view.rs`
//! * which tasks and CPUs a source needs events of: `derive/source/target.rs`
//! * keys of spans, open spans, counts of spans: `derive/span/`; records and fields of spans: `event/span/`
//! * which events of the scheduler are missing: `derive/span/scheduler.rs`; which ends of short spans are missing:
//!   `derive/span/overdue.rs`, `derive/span/engine/overdue.rs`; which spans lack a begin or an end:
//!   `derive/span/engine/unpaired.rs`; calls that end with their thread: `derive/span/engine/exited.rs`; which have not
//!   ended at the end of a run: `derive/span/engine/at_end.rs`; which tasks lack
//!   spans, and how this is reported: `event/span/incomplete.rs`, `event/shortfall.rs`
//! * which tasks a wait for a CPU is charged to: `derive/span/runs.rs`; the cache for filters of spans:
//!   `derive/span/verdicts.rs`
//! * calls of 32-bit programs: `derive/compat_calls.rs`; the texts that a field of a source can have:
//!   `derive/source/field_values.rs`
//! * another event that is derived from several: an implementation of `Derivation` in `derive/`, which `Derived` starts
//! * what an aggregator keeps for a key: `aggregate/definition.rs` (`Measure`), `aggregate/groups.rs` (the table and
//!   its limit), `aggregate/distribution.rs`; how it is shown: `aggregate/report.rs`
//! * the names, buckets and formats of metrics: `aggregate/metrics/`
//! * the type of a column: `column/column_type.rs`; how it is read: `column/cell.rs`, for integers at fixed places
//!   `column/words.rs`; which columns there are if none is named: `column/plan.rs`
//! * the look of pictures: `picture/flame_graph.rs`, `picture/heat_map_svg.rs`, `picture/histogram.rs`; which values
//!   share a box: `picture/heat_map.rs`; which chains may be cut off: `picture/long_chains.rs`; the file of a timeline:
//!   `picture/perfetto/mod.rs`; which
//!   of Perfetto's tables an export fills: `picture/perfetto/kernel_trace.rs`; the file of a profile of pprof:
//!   `picture/pprof/mod.rs`
//! * the template that `help` prints: `template/script.rs`; for scripts of `perf script`: `template/perf_script.rs`;
//!   the types of `stubs`: `template/stubs.rs`

pub mod picture;

pub mod event;

pub mod template;

pub mod aggregate;

pub mod column;

pub mod derive;
