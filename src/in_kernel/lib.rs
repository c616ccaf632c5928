//! Compiles declarations to BPF programs. Values that are only added up are then added up in the kernel, and no record is
//! written.
//!
//! A declaration takes these steps. `lower` reads an aggregator's plan and makes expressions of it, or says why it cannot.
//! `table` writes the code of the program from the expressions, after the code that selects tasks and CPUs. `instruction`
//! encodes the code. `table` also reads the rows that the program keeps.
//!
//! The rooms, each of which uses only those above it:
//!
//! * [`instruction`]: Instructions of BPF: code with labels and symbolic maps, its words, its text. Must not know: events.
//! * [`expression`]: What a program reads of an event: numbers, texts, tests, each with its code. Must not know:
//!   aggregators.
//! * [`lower`]: From the plan of an aggregator and filters to expressions, or the reason why not (`Unsuited`). Must not
//!   know: instructions.
//! * [`select`]: Which events count: tasks, CPUs, cgroups, perf-prof's own; the programs that keep the map of tasks.
//! * [`table`]: The program of a table, and the layout of its rows.
//! * [`paths`]: The paths of files in the calls of a task, from the kernel's memory.
//! * [`frames`]: The frames of an interpreter, such as Python's, from the memory of the process.
//! * [`strings`]: The program that writes records with the strings to which fields point.
//! * [`span`]: The programs of spans. One keeps open spans in a hash, and the other one adds spans to a table when they end, or
//!   writes them out.
//! * [`load`]: Programs and maps in the kernel: loading, attaching, exchanging and reading tables. Must not know: which
//!   events are added up, and why.
//!
//! # Where a change goes
//!
//! Paths start at this folder.
//!
//! * what keys and sums can read: `lower/read.rs`; if it is a new kind of value: `expression/number.rs`,
//!   `expression/text.rs`
//! * what filters can compare: `lower/filter.rs`, `expression/test.rs`, `expression/glob.rs`
//! * which spans can be paired and added up in the kernel, and what is kept of an open one: `lower/span/mod.rs`; what their
//!   events do with it: `lower/span/step.rs`; texts that depend on a number, such as names of system calls: `lower/named.rs`
//! * system calls of which only those that pass are written: what is tested: `lower/span/pairs.rs`; their programs:
//!   `span/pairs/mod.rs`, their strings: `span/pairs/strings.rs`; loading them: `load/pairs.rs`
//! * the open spans of tasks, and what the scheduler's events do with them: `span/in_place.rs`; what is noticed when a program
//!   misses events: `span/witness.rs`, `span/chain.rs`; whose spans are added: `span/tasks.rs`
//! * why something stays in perf-prof: `lower/unsuited.rs`
//! * call chains in keys: `table/chain/mod.rs`; since when a process has its mappings: `table/chain/programs.rs`; their
//!   maps: `load/chains.rs`
//! * what is kept for a key, and how rows are read: `table/shape.rs`, `table/amount.rs`; the ranges of histograms:
//!   `table/range.rs`
//! * what is read of a string, and how the record has it: `strings/mod.rs`, and the format in `format/tracefs/strings.rs`
//! * the paths of descriptors and folders: which ones: `paths/find.rs`; their text: `paths/walk.rs`; members of the kernel's
//!   structures: `paths/types.rs`
//! * frames of an interpreter: the loop: `frames/mod.rs`; what it follows: `Walk` in the wing `symbols`
//! * how much room a table has, and how it is read: `load/table.rs`; which tasks a target selects: `load/selected.rs`

pub mod instruction;

pub mod expression;

pub mod lower;

pub mod select;

pub mod table;

pub mod paths;

pub mod frames;

pub mod strings;

pub mod span;

pub mod load;
