//! Compiles declarations of aggregators to BPF programs. Values that are only added up are then added up in the kernel, and
//! no record is written for them.
//!
//! A declaration takes these steps. `lower` makes expressions of an aggregator's plan, or says why it cannot. `table` writes
//! the code of the program: first the code that selects tasks and CPUs, then that of the expressions. `instruction` encodes
//! the code. `table` also reads the rows that the program has added up.
//!
//! The modules, each of which uses only the modules above it:
//!
//! * [`instruction`]: Instructions of BPF: code with labels and symbolic maps, its words, its text. Must not know: events.
//! * [`expression`]: What a program reads from an event: numbers, texts and tests, each with its code. Must not know:
//!   aggregators.
//! * [`lower`]: Makes expressions of an aggregator's plan and of filters, or says why it cannot (`Unsuited`). Must not know:
//!   instructions.
//! * [`select`]: Which events count: those of selected tasks, CPUs and cgroups, without perf-prof's own. Contains the
//!   programs that update the map of selected tasks.
//! * [`table`]: The program that fills a table, and the layout of the table's rows.
//! * [`paths`]: The paths of files in system calls, read from the kernel's memory.
//! * [`frames`]: The frames of an interpreter, such as Python's, read from the memory of the process.
//! * [`strings`]: The program that writes records together with the strings to which their fields point.
//! * [`span`]: The programs of spans. The program of the begin keeps open spans in a hash. The program of the end adds spans
//!   to a table, or writes them as records.
//! * [`load`]: Programs and maps in the kernel: loads and attaches programs, exchanges and reads tables. Must not know:
//!   which events are added up, and why.
//!
//! # Where a change goes
//!
//! Paths start at this folder.
//!
//! * what keys and sums can read: `lower/read.rs`; for a new kind of value: `expression/number.rs`, `expression/text.rs`
//! * what filters can compare: `lower/filter.rs`, `expression/test.rs`, `expression/glob.rs`
//! * which spans can be paired and added up in the kernel, and which values of the begin are kept: `lower/span/mod.rs`; what
//!   their events do with open spans: `lower/span/step.rs`; texts of numbers, such as names of system calls:
//!   `lower/named.rs`
//! * system calls that are paired and written only if they pass the filter: the tests: `lower/span/pairs.rs`; the programs:
//!   `span/pairs/mod.rs`; their strings and frames of interpreters: `span/pairs/strings.rs`; the kernel's frames in their call
//!   chains: `span/pairs/kernel_frames.rs`; loading: `load/pairs.rs`
//! * the open spans of tasks, and what events of the scheduler do with them: `span/in_place.rs`; how events that a program
//!   missed are found: `span/witness.rs`, `span/chain.rs`; which tasks' spans are added: `span/tasks.rs`
//! * why a declaration cannot be compiled, and is added up in perf-prof: `lower/unsuited.rs`
//! * call chains in keys: `table/chain/mod.rs`; when a process got its mappings: `table/chain/programs.rs`; their maps:
//!   `load/chains.rs`
//! * what is kept for a key, and how rows are read: `table/shape.rs`, `table/amount.rs`; the ranges of histograms:
//!   `table/range.rs`
//! * how much of a string is read, and where it is in the record: `strings/mod.rs`; the format: `format/tracefs/strings.rs`
//! * samples of timers and of probes with frames: `strings/without_fields.rs`, `strings/probes.rs`
//! * paths of file descriptors and folders: which: `paths/find.rs`; as text: `paths/walk.rs`; members of the kernel's
//!   structures: `paths/types.rs`
//! * frames of an interpreter: the loop of the program: `frames/mod.rs`; the id of the thread that it looks for:
//!   `frames/thread_id.rs`; which structures it follows: `Walk` in the crate
//!   `symbols`
//! * which tasks, CPUs and cgroups count: `select/mod.rs`; which events happen in interrupts: `select/interrupt.rs`
//! * how many rows a table can have, and how it is read: `load/table.rs`; which tasks a target selects: `load/selected.rs`

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
