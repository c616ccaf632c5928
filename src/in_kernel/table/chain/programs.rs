//! The programs that note when a process got its present mappings. An exec replaces the mappings, and a new process may get
//! the id of an exited process. So chains from before and after such a change differ, even if their addresses are equal.

use perf_prof_format::{
    abi::bpf::{BPF_ANY, BPF_FUNC_KTIME_GET_NS, BPF_FUNC_MAP_UPDATE_ELEM},
    tracefs::EventFormat,
};

use crate::{
    expression::{CONTEXT, Number, start},
    instruction::{Code, MapUse, Program, Register, Size},
    lower::Unsuited,
    select::{SCRATCH, count_unless_kept, offset_of},
};

/// The place of the time on the stack, below `SCRATCH`.
const TIME: i16 = SCRATCH.offset - 8;

/// Returns the program that notes the time for a new process (`sched:sched_process_fork`), or at an exec
/// (`sched:sched_process_exec`). `child` is the field that contains the new process; `None` stands for the running process.
pub fn renew_program(format: &EventFormat, child: Option<&str>) -> Result<Program, Unsuited> {
    renew_code(format, child).map(|code| code.program())
}

pub(super) fn renew_code(format: &EventFormat, child: Option<&str>) -> Result<Code, Unsuited> {
    let mut code = Code::new();
    start(&mut code);
    match child {
        // A new thread gets an entry too, which nobody reads.
        Some(field) => code.load(Size::Word, Register::R1, CONTEXT.at(offset_of(format, field)?)),
        None => Number::Process.load(&mut code, Register::R1),
    }
    code.store(Size::Word, SCRATCH, Register::R1);
    code.call(BPF_FUNC_KTIME_GET_NS);
    code.store(Size::Double, SCRATCH.base.at(TIME), Register::R0);
    code.map(Register::R1, MapUse::Since);
    code.address(Register::R2, SCRATCH);
    code.address(Register::R3, SCRATCH.base.at(TIME));
    code.set(Register::R4, BPF_ANY);
    code.call(BPF_FUNC_MAP_UPDATE_ELEM);
    count_unless_kept(&mut code);
    code.exit(1);
    Ok(code)
}
