//! What bytes and texts of the kernel mean: records, samples, fields, selectors.
//!
//! This wing knows no machine: it makes no system call, so all of it runs in tests and in fuzzing.
//!
//! The rooms, each of which uses only those above it:
//!
//! * [`abi`]: The perf ABI as data: bits of attrs, records and samples; register names; numbers of perf.data. Must not
//!   know: system calls.
//! * [`value`]: `Value`: a decoded field. Must not know: Python.
//! * [`control_characters`]: Control characters as text, for terminals and for lines. Must not know: where the text
//!   comes from.
//! * [`spec`]: Selector text to `EventSpec`: grammar, attributes, perf's event names, probes, CPU lists, quantities.
//!   Must not know: the machine: it opens no file.
//! * [`record`]: Bytes to `Record`, the layout of samples, batches, sorting, `trait Source`. Must not know: where the
//!   bytes come from.
//! * [`tracefs`]: Format text to `EventFormat`; `print_fmt/`: lex, parse, compile, render; filters; BTF; `trait Kernel`
//!   for facts that rendering needs. Must not know: files, time.

pub mod abi;

pub mod value;

pub mod control_characters;

pub mod spec;

pub mod record;

pub mod tracefs;
