//! The numbers, texts and tests that a program reads from an event, each with its code.
//!
//! While a program runs, [`CONTEXT`] contains the address of the record, and [`IDS`] the ids of the running task. All code
//! in this module may change `R0` to `R5`.

mod glob;
mod number;
mod test;
mod text;

use perf_prof_format::abi::bpf::BPF_FUNC_GET_CURRENT_PID_TGID;

pub use glob::Glob;
pub use number::Number;
pub use test::{Outcome, Sign, Test};
pub use text::{Text, TextTest};

use crate::instruction::{Code, Register};

/// The register with the address of the record. The fields are at the offsets in the tracepoint's format. The common fields
/// are missing: in their place, the first 8 bytes are a pointer of the kernel.
pub const CONTEXT: Register = Register::R6;

/// The register with the ids of the running task: the process id in the upper 32 bits, the thread id in the lower 32 bits.
pub const IDS: Register = Register::R9;

/// Writes the start of a program, which sets [`CONTEXT`] and [`IDS`].
pub fn start(code: &mut Code) {
    code.copy(CONTEXT, Register::R1);
    code.call(BPF_FUNC_GET_CURRENT_PID_TGID);
    code.copy(IDS, Register::R0);
}

#[cfg(test)]
mod tests;
