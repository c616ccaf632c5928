//! Maps addresses of the kernel and of processes to names, or to the reason why there is no name. For processes, this
//! module uses their mappings, the mapped files, and the files in which processes list generated code.
//!
//! The caller reports what processes do with `Symbolizer::mmap` and `Processes` (`exec`, `forked`, `exited`), and
//! resolves addresses with `Symbolizer::user`. Mappings that were not reported are read from /proc/PID/maps.

mod code;
mod code_map;
mod demangle;
pub mod dwarf;
mod dwarf_weight;
pub mod elf;
mod extent;
mod jit;
pub mod jitdump;
mod kallsyms;
mod kernel;
mod kernel_code;
mod mapping_history;
mod mapping_index;
pub mod maps;
mod object;
mod objects;
pub(crate) mod open;
mod options;
pub mod perf_map;
mod processes;
mod reason;
mod slot;
mod unnamed_frames;

mod recorded_binaries;
pub mod signature;
mod symbolizer;
mod vdso;

pub use code::{Code, CodeImage};
pub use code_map::CodeMap;
pub use demangle::demangle;
pub use extent::Extent;
pub use kallsyms::{Kallsyms, PerfSymbol, Symbol};
pub use kernel::KernelSymbols;
pub use kernel_code::{KernelCode, loaded_modules, module_name};
pub use mapping_history::Contents;
pub use maps::Mapping;
pub use options::{Data, Demangle, Inline, Options, Srcline};
pub use processes::{ProcessOrigin, Processes};
pub use reason::Reason;
pub use slot::Slot;
pub use unnamed_frames::{UnnamedFrames, most_frequent_files};

pub use recorded_binaries::RecordedBinaries;
pub use symbolizer::{AddressKind, InlinedFrame, Mapped, Name, Resolved, Symbolizer};
