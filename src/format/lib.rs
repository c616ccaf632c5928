//! What bytes and texts of the kernel mean: records, samples, fields, selectors.
//!
//! This crate makes no system call, so all of it runs in tests and in fuzzing.
//!
//! The modules. A module uses only the modules above it in this list:
//!
//! * [`abi`]: The perf ABI as data: bits of attrs, records and samples; register names; numbers of perf.data. Must not
//!   know: system calls.
//! * [`value`]: `Value`: a decoded field. Must not know: Python.
//! * [`control_characters`]: Control characters as text, for terminals and for lines. Must not know: where the text
//!   comes from.
//! * [`spec`]: Selector text to `EventSpec`: grammar, attributes, perf's event names, probes, CPU lists, quantities.
//!   Opens no file. Must not know: the machine.
//! * [`record`]: Bytes to `Record`, the layout of samples, batches, sorting, `trait Source`. Must not know: where the
//!   bytes come from.
//! * [`tracefs`]: Format text to `EventFormat`; `print_fmt/`: lex, parse, compile, render; filters; BTF; `trait Kernel`
//!   for facts that rendering needs. Must not know: files, time.
//!
//! # Where a change goes
//!
//! Paths start at this folder.
//!
//! * the grammar of selectors: `spec/parse/mod.rs` (sections), `spec/attrs.rs` (attributes), `spec/span.rs` (spans),
//!   `spec/probe.rs` and `spec/probe_args.rs` (probes), `spec/breakpoint.rs` (accesses to an address, `mem:`),
//!   `spec/terms.rs` and `spec/modifiers.rs` (perf events)
//! * a name of perf for an event that every kernel has: `spec/perf_names.rs`
//! * the form of values that several options share, such as times, sizes and CPUs: a parser in `spec/`
//! * what "did you mean" suggests: `spec/near.rs`
//! * a type of fields: `tracefs/field.rs`; how a field of this type is written in events that a test creates:
//!   `tracefs/encode.rs`
//! * a `__print_*` function or a form of `%p`: `tracefs/print_fmt/functions.rs`, `tracefs/print_fmt/pointer.rs`
//! * events whose text the kernel does not make with the print format: `tracefs/kernel_text.rs`
//! * the names of flags and values that scripts of `perf script` get: `tracefs/print_fmt/definitions.rs`
//! * filters on recorded samples: `tracefs/filter/parse.rs` (grammar), `tracefs/filter/mod.rs` (values). Live filters are
//!   the kernel's own.
//! * a member of samples: `record/members/mod.rs` (bits, name, type, bytes); for events that a test creates also
//!   `record/encode.rs`
//! * a type of records: `record/parse.rs`; if programs can receive these records, also `record/other.rs`
//! * the order of live records: `record/order.rs`
//! * names of registers, system calls and signals: `abi/`

// This check is in the crate that is compiled first. If pip finds no wheel for a system, it compiles the package, and this
// message is what the user sees.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "perf-prof traces the Linux kernel: it runs on Linux with 64 bits only, and there is no wheel for this system"
);

pub mod abi;

pub mod value;

pub mod control_characters;

pub mod spec;

pub mod record;

pub mod tracefs;
