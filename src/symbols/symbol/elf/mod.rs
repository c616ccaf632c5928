//! ELF files: headers, symbols, separate debug files, functions by name. Knows nothing of processes.

mod debug_file;
mod file;
mod function;
mod interrupt;
mod names;
mod operand;
mod plt;
mod static_probe;
mod table;
mod variables;

pub use debug_file::{DebugSearch, debug_file, mini_debug_info, shared_debug_file};
pub use file::{Elf, ElfError, Section, Segment, address_of};
pub use function::{
    Function, FunctionError, FunctionKind, FunctionOffset, function, function_of, functions, functions_of,
};
pub use names::NAME_LIMIT;
pub use operand::{Memory, Operand};
pub use static_probe::{StaticArgument, StaticProbe, static_probes};
pub use table::{FunctionAt, Symbols};
pub use variables::{exported_variables, variables};
