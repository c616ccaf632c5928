//! The meaning of records: events, what is derived from them, and their sums, columns and pictures.
//!
//! This wing does not know where records come from: neither capture nor recordings. It reads procfs for the names of
//! tasks.
//!
//! The rooms, each of which uses only those above it:
//!
//! * [`picture`]: Stacks to a flame graph, values to a histogram or, over time, to a heat map, slices to a timeline.
//!   Must not know: Python, events.
//! * [`event`]: Meaning: event types, lazy samples, callchains, `reader/`: values by name, text lines, sums of samples,
//!   task names, counts, `trait Sink`. Must not know: Python.
//! * [`template`]: Event types to the text of `help`, to lines about fields, and to a script with handlers for them.
//!   Must not know: files.
//! * [`aggregate`]: Aggregators: a definition compiled to a plan for an event type, tables of sums and distributions by
//!   key, the largest events. Must not know: Python, where events come from.
//! * [`mod@column`]: Events as columns of Arrow arrays: names resolved to a plan for each event type, the type that
//!   fits several of them, batches. Must not know: Python, where events come from.
//! * [`mod@derive`]: Events that are derived from several others, with state between them; `span/`: the time from one
//!   event to another. Must not know: Python, where samples come from.

pub mod picture;

pub mod event;

pub mod template;

pub mod aggregate;

pub mod column;

pub mod derive;
