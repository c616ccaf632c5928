//! Names of addresses, of the kernel and of processes, and user stacks.
//!
//! This crate does not know events.
//!
//! The modules. A module uses only the modules above it in this list:
//!
//! * [`symbol`]: Finds the name of an address, or the reason why it has none: kallsyms, mappings and their times, ELF,
//!   DWARF, perf maps. Must not know: events.
//! * [`unwind`]: Unwinds user stacks with registers, a copy of the stack, and DWARF unwind information. Must not know:
//!   events, how files are found.
//! * [`runtime`]: Finds the functions that an interpreter runs, such as Python functions, and their names. Must not
//!   know: events.
//! * [`running_kernel`]: The symbols, strings, constants and types of the running kernel. Texts of events need them.
//!   Must not know: events, recordings.
//!
//! # Where a change goes
//!
//! Paths start at `symbol/`, unless they start with `unwind/` or `runtime/`.
//!
//! * which code of the kernel an address is in: `kernel_code.rs`; its symbol: `kernel.rs`, `kallsyms.rs`
//! * which mapping an address is in: `processes.rs` (all processes), `mapping_history.rs` (one process at all times),
//!   `mapping_index.rs` (fast lookup in long lists)
//! * which file belongs to a mapping: `open.rs` (live), `recorded_binaries.rs` (of a recording), `elf/debug_file.rs`
//!   (separate debug files)
//! * names from files: `elf/` (tables), `dwarf.rs` (lines, inlined functions), `demangle.rs`
//! * names of generated code: `jit.rs` (finds perf maps and jitdumps, and decides which are used), `perf_map.rs`,
//!   `jitdump.rs`
//! * why an address has no name: `reason.rs`
//! * parameters of functions, for probes: `signature.rs`; static probes: `elf/static_probe.rs` (notes),
//!   `elf/operand.rs` (where their arguments are)
//! * limits on the memory and the time for files: `objects.rs` (all files together), `elf/file.rs` and `elf/names.rs`
//!   (one file), `dwarf_weight.rs` (the DWARF of one file)
//! * how the caller of a frame is found: `unwind/rule.rs` (finds the rule), `unwind/step.rs` (applies the rule),
//!   `unwind/arch.rs` (what differs between processors)
//! * frames of Python: `runtime/python/build.rs` (versions and their offsets), `runtime/python/code.rs` (names),
//!   `runtime/python/lines.rs` (lines)
//! * frames of any interpreter, in `runtime/`: `interpreters.rs` and `files.rs` (which processes run an interpreter),
//!   `functions.rs`, `budget.rs` and `reader.rs` (how much of their memory is read, and for how long), `walk.rs` (the
//!   addresses and offsets that BPF programs follow)
//! * constants, types and strings of the running kernel: `running_kernel.rs`, beside `symbol/`

pub mod symbol;

pub mod unwind;

pub mod runtime;

pub mod running_kernel;
