//! The witness of a program at a tracepoint: a program at the raw tracepoint of the same event.
//!
//! While bpf(2) or another program runs on a CPU, programs at tracepoints do not run there (`trace_call_bpf()` in
//! kernel/trace/bpf_trace.c), but those at raw tracepoints do. For each event, the program leaves a mark on its CPU, and the
//! witness, which runs after it, removes the mark. If there is no mark, the program missed the event, which may have ended
//! or begun a span. So the witness changes the generation at once, and all spans that are open at this time are dropped.
//!
//! A span that is added is thus right: the programs saw all events between its begin and its end.

use perf_prof_format::abi::bpf::TASK_COMM_LEN;

use super::{SpanCounters, chain, count_in};
use crate::{
    instruction::{Code, Condition, MapUse, Program, Register, Size},
    select::look_up_only,
};

/// The maximum number of events of a span that have programs.
pub const MOST_INPUTS: usize = 8;
/// The size of the marks of a CPU, in bytes: a mark for each event, the running task and its name.
pub const MARKS_BYTES: usize = 8 * MOST_INPUTS + 8 + TASK_COMM_LEN;

/// Writes code that leaves the mark of an event.
pub(super) fn mark(code: &mut Code, input: usize) {
    let none = code.label();
    look_up(code);
    code.jump_if(Condition::Equal, Register::R0, 0, none);
    code.store_number(Size::Double, Register::R0.at(8 * input as i16), 1);
    code.here(none);
}

/// Returns the witness of a program. `input` is the index of the event in the span.
pub fn witness_program(input: usize) -> Program {
    witness_code(input).program()
}

pub(super) fn witness_code(input: usize) -> Code {
    let mut code = Code::new();
    let (none, seen) = (code.label(), code.label());
    let place = Register::R0.at(8 * input as i16);
    look_up(&mut code);
    code.jump_if(Condition::Equal, Register::R0, 0, none);
    code.load(Size::Double, Register::R1, place);
    code.store_number(Size::Double, place, 0);
    code.jump_if(Condition::NotEqual, Register::R1, 0, seen);
    chain::forget(&mut code, Register::R0);
    count_in(&mut code, SpanCounters::MISSED);
    count_in(&mut code, SpanCounters::GENERATION);
    code.here(seen);
    code.here(none);
    code.exit(0);
    code
}

/// Writes code that sets `R0` to the address of the CPU's marks; 0 if there are none.
pub(super) fn look_up(code: &mut Code) {
    look_up_only(code, MapUse::Marks);
}
