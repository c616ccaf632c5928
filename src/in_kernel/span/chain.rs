//! In the switches of a CPU, the task that leaves must be the task that came last. A kernel may have switches that no
//! tracepoint reports, neither to programs nor to witnesses. The next switch then does not fit, as in the engine of spans.

use perf_prof_format::abi::bpf::{BPF_FUNC_MAP_LOOKUP_ELEM, BPF_FUNC_MAP_UPDATE_ELEM, BPF_NOEXIST, TASK_COMM_LEN};

use super::{MOST_INPUTS, SpanCounters, SpanTasks, count_in, stack, witness};
use crate::{
    expression::{Number, Text},
    instruction::{Code, Condition, Instruction, MapUse, Operation, Register, Size},
    lower::{LoweredTask, OTHER_KEY},
};

/// The task that came to the CPU last: its id plus 1, and its name. Both follow the marks. The first number is 0 if the
/// task is unknown.
const RUNNING: i16 = 8 * MOST_INPUTS as i16;
const NAME: i16 = RUNNING + 8;
/// The size of the value for a task with missing events: the number of these events, and the name of the task.
pub const GAP_BYTES: usize = 8 + TASK_COMM_LEN;
/// The register with the task that came last.
const LAST: Register = Register::R8;
/// The register with the address of the marks.
const MARKS: Register = Register::R7;
/// The places on the stack for a task with a missing event: its id, and its value.
const TASK: i16 = OTHER_KEY;
const GAP: i16 = OTHER_KEY + 8;

/// Writes code that follows a switch. If the task that leaves is not the task that came last, counts a missing event for
/// both tasks.
pub(super) fn follow(code: &mut Code, [left, came]: [(Number, Text); 2], tasks: &SpanTasks) {
    let (follows, done) = (code.label(), code.label());
    witness::look_up(code);
    code.copy(MARKS, Register::R0);
    code.jump_if(Condition::Equal, MARKS, 0, done);
    code.load(Size::Double, LAST, MARKS.at(RUNNING));
    code.jump_if(Condition::Equal, LAST, 0, follows);
    code.operate(Operation::Subtract, LAST, 1);
    left.0.load(code, Register::R1);
    code.jump_if(Condition::Equal, LAST, Register::R1, follows);
    code.store(Size::Double, stack(TASK), Register::R1);
    left.1.copy(code, stack(GAP + 8));
    gap(code, tasks);
    code.store(Size::Double, stack(TASK), LAST);
    for at in (0..TASK_COMM_LEN).step_by(8) {
        code.load(Size::Double, Register::R1, MARKS.at(NAME).after(at));
        code.store(Size::Double, stack(GAP + 8).after(at), Register::R1);
    }
    gap(code, tasks);
    code.here(follows);
    came.0.load(code, Register::R1);
    code.operate(Operation::Add, Register::R1, 1);
    code.store(Size::Double, MARKS.at(RUNNING), Register::R1);
    came.1.copy(code, MARKS.at(NAME));
    code.here(done);
}

/// Writes code that forgets which task came last. `marks` contains the address of the marks.
pub(super) fn forget(code: &mut Code, marks: Register) {
    code.store_number(Size::Double, marks.at(RUNNING), 0);
}

/// Writes code that counts a missing event of the task whose id is on the stack. It counts only tasks whose spans are added,
/// and no idle task.
fn gap(code: &mut Code, tasks: &SpanTasks) {
    let (new, done) = (code.label(), code.label());
    let thread = Number::Kept { offset: TASK, is_signed: true, is_wide: true };
    thread.load(code, Register::R1);
    code.jump_if(Condition::Equal, Register::R1, 0, done);
    tasks.jump_unless(code, LoweredTask { process: None, thread }, done);
    count_in(code, SpanCounters::UNSEEN);
    look_up_gap(code);
    code.jump_if(Condition::Equal, Register::R0, 0, new);
    code.copy(Register::R1, 1);
    code.push(Instruction::AtomicAdd(Register::R0.at(0), Register::R1));
    // Store the task's present name.
    for at in (8..GAP_BYTES).step_by(8) {
        code.load(Size::Double, Register::R1, stack(GAP).after(at));
        code.store(Size::Double, Register::R0.at(at as i16), Register::R1);
    }
    code.jump(done);
    code.here(new);
    code.store_number(Size::Double, stack(GAP), 1);
    code.map(Register::R1, MapUse::Gaps);
    code.address(Register::R2, stack(TASK));
    code.address(Register::R3, stack(GAP));
    code.set(Register::R4, BPF_NOEXIST);
    code.call(BPF_FUNC_MAP_UPDATE_ELEM);
    code.here(done);
}

fn look_up_gap(code: &mut Code) {
    code.map(Register::R1, MapUse::Gaps);
    code.address(Register::R2, stack(TASK));
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
}
