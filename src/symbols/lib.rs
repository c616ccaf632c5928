//! Names of addresses, of the kernel and of processes, and user stacks.
//!
//! This wing does not know events.
//!
//! The rooms, each of which uses only those above it:
//!
//! * [`symbol`]: Address to name, or the reason why there is none: kallsyms, mappings through time, ELF, DWARF, perf
//!   maps. Must not know: events.
//! * [`unwind`]: User stacks from registers and a copy of the stack, by DWARF unwind information. Must not know:
//!   events, how files are found.
//! * [`running_kernel`]: What rendering needs of the running kernel: its symbols, strings, constants and types. Must
//!   not know: events, recordings.

pub mod symbol;

pub mod unwind;

pub mod running_kernel;
