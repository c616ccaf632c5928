//! What a program reads of an event, and what it asks about it: numbers, texts and tests, each with its code.
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

/// The register with the address of the record: the fields of a tracepoint at the offsets of its format. In the first 8
/// bytes, which would have the common fields, the kernel keeps a pointer of its own.
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
