//! Address to name, or the reason why not: the kernel's symbols, and those of processes through their mappings, their
//! files, and what they tell of code made at run time. Knows nothing of events.
//!
//! `Symbolizer` is told of processes through `Symbolizer::mmap` and `Processes` (`exec`, `forked`, `exited`), and asked by
//! `Symbolizer::user`. What it is not told it reads from /proc/PID/maps.

mod code;
mod code_map;
mod demangle;
pub mod dwarf;
pub mod elf;
mod jit;
pub mod jitdump;
mod kallsyms;
mod kernel;
pub mod maps;
mod nameless;
mod object;
mod objects;
mod open;
mod options;
pub mod perf_map;
mod process;
mod processes;
mod reason;
mod slot;

mod recorded;
mod symbolizer;
mod vdso;

pub use code::{Code, CodeImage};
pub use code_map::CodeMap;
pub use demangle::demangle;
pub use kallsyms::{Kallsyms, Symbol};
pub use kernel::KernelSymbols;
pub use maps::Mapping;
pub use nameless::Nameless;
pub use options::{Demangle, Inline, Options, Srcline};
pub use processes::{Processes, Whose};
pub use reason::Reason;
pub use slot::Slot;

pub use recorded::Recorded;
pub use symbolizer::{InlinedFrame, Name, Place, Resolved, Symbolizer};
