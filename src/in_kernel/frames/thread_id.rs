//! The thread id that interpreters have noted: in a PID namespace, it is the id that the thread has in this namespace.

use perf_prof_format::{
    abi::bpf::{BPF_FUNC_GET_CURRENT_TASK, BPF_FUNC_PROBE_READ_KERNEL},
    tracefs::Btf,
};
use perf_prof_symbols::runtime::{Walk, WalkWord};

use super::{THREAD_ID, VALUE, word};
use crate::{
    expression::IDS,
    instruction::{Code, Condition, Operation, Place, Register, Size},
};

/// The shift that turns the level of a PID namespace into an offset. For each level, the kernel keeps a number and a
/// pointer: 16 bytes.
const LEVEL_SHIFT: i32 = 4;

/// The offsets in the kernel's structures that lead to the ids of a task, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdOffsets {
    task_pid: u64,
    level: u64,
    numbers: u64,
}

impl IdOffsets {
    /// Returns whether programs need this structure.
    pub fn needs(name: &str) -> bool {
        ["task_struct", "pid", "upid"].contains(&name)
    }

    /// Returns the offsets. `None` if a member is missing, or is not where programs expect it.
    pub fn of(types: &Btf) -> Option<IdOffsets> {
        let at = |tag: &str, member: &str| {
            let place = types.member(tag, member).filter(|place| place.size == 0)?;
            Some(u64::from(place.offset / 8))
        };
        let is_number = at("upid", "nr")? == 0 && types.size_of("struct upid")? == 1 << LEVEL_SHIFT;
        let of_task = at("task_struct", "thread_pid").filter(|_| is_number)?;
        Some(IdOffsets { task_pid: of_task, level: at("pid", "level")?, numbers: at("pid", "numbers")? })
    }

    /// Adds the offsets to what a program knows of a process.
    pub fn add_to(self, walk: &mut Walk) {
        walk.set(WalkWord::TaskPid, self.task_pid);
        walk.set(WalkWord::PidLevel, self.level);
        walk.set(WalkWord::PidNumbers, self.numbers);
    }
}

/// Writes the code that stores the id of the running thread: the id in the thread's own PID namespace if the offsets are
/// known, and otherwise the id in the first namespace.
pub(super) fn store_thread_id(code: &mut Code) {
    let done = code.label();
    code.copy(Register::R1, IDS);
    code.operate(Operation::ShiftLeft, Register::R1, 32);
    code.operate(Operation::ShiftRight, Register::R1, 32);
    code.store(Size::Double, THREAD_ID, Register::R1);
    code.load(Size::Double, Register::R1, word(WalkWord::TaskPid));
    code.jump_if(Condition::Equal, Register::R1, 0, done);
    code.call(BPF_FUNC_GET_CURRENT_TASK);
    code.copy(Register::R3, Register::R0);
    read_kernel(code, WalkWord::TaskPid, VALUE, 8);
    code.store_number(Size::Double, LEVEL, 0);
    code.load(Size::Double, Register::R3, VALUE);
    read_kernel(code, WalkWord::PidLevel, LEVEL, 4);
    code.load(Size::Double, Register::R3, LEVEL);
    code.jump_if(Condition::Equal, Register::R3, 0, done);
    code.operate(Operation::ShiftLeft, Register::R3, LEVEL_SHIFT);
    code.load(Size::Double, Register::R1, VALUE);
    code.operate(Operation::Add, Register::R3, Register::R1);
    read_kernel(code, WalkWord::PidNumbers, THREAD_ID, 4);
    code.here(done);
}

/// The place of the namespace's level. Later, this place holds the address of the frame that is followed.
const LEVEL: Place = super::FRAME;

/// Writes the code that reads memory of the kernel at a distance from the address in `R3`. The code overwrites `R1`.
fn read_kernel(code: &mut Code, distance: WalkWord, to: Place, bytes: i32) {
    code.load(Size::Double, Register::R1, word(distance));
    code.operate(Operation::Add, Register::R3, Register::R1);
    code.address(Register::R1, to);
    code.copy(Register::R2, bytes);
    code.call(BPF_FUNC_PROBE_READ_KERNEL);
}
