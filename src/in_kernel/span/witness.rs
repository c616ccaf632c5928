//! The witness of a tracepoint's program: a program at the raw tracepoint of the same event.
//!
//! While bpf(2) or another program is active on a CPU, programs of tracepoints do not run there (`trace_call_bpf()` in
//! kernel/trace/bpf_trace.c), but those of raw tracepoints do. For each event, the program leaves a mark on its CPU, and the
//! witness, which runs after it, removes the mark. If there is no mark, the program missed the event. Spans that are open
//! then may end or begin unseen. So the witness changes the generation at once, which drops these spans.
//!
//! So the programs have seen all events between the begin and the end of a span that is added. A wrong span would need a
//! missed end and a missed begin, and the witness has seen both.

use perf_prof_format::abi::bpf::TASK_COMM_LEN;

use super::{SpanCounters, chain, count_in};
use crate::{
    instruction::{Code, Condition, MapUse, Program, Register, Size},
    select::look_up_only,
};

/// The maximum number of events of a span that have programs.
pub const MOST_INPUTS: usize = 8;
/// The size of the marks of a CPU: one mark for each event, and the running task with its name.
pub const MARKS_BYTES: usize = 8 * MOST_INPUTS + 8 + TASK_COMM_LEN;

/// Writes the code that leaves the mark of an event.
pub(super) fn mark(code: &mut Code, input: usize) {
    let none = code.label();
    look_up(code);
    code.jump_if(Condition::Equal, Register::R0, 0, none);
    code.store_number(Size::Double, Register::R0.at(8 * input as i16), 1);
    code.here(none);
}

/// Returns the witness of a program. The event is given by its index among the events of the span.
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

/// Writes the code that finds the marks of the CPU. `R0` is then the address of the marks, or 0.
pub(super) fn look_up(code: &mut Code) {
    look_up_only(code, MapUse::Marks);
}
