//! The numbers and texts that a program reads from an event, and tests of them, each with its code.
//!
//! While a program runs, [`CONTEXT`] is the record, and [`IDS`] has the ids of the running task. All code in this room may
//! change `R0` to `R5`.

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

/// The register with the address of the record. The fields of the record are at the offsets of the tracepoint's format. But
/// its first 8 bytes are a pointer of the kernel, not the common fields.
pub const CONTEXT: Register = Register::R6;

/// The register with the ids of the running task: the process in the upper 32 bits, the thread in the lower ones.
pub const IDS: Register = Register::R9;

/// Sets [`CONTEXT`] and [`IDS`] at the start of a program.
pub fn start(code: &mut Code) {
    code.copy(CONTEXT, Register::R1);
    code.call(BPF_FUNC_GET_CURRENT_PID_TGID);
    code.copy(IDS, Register::R0);
}

#[cfg(test)]
mod tests;
