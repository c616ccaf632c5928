//! The programs that update the map of tasks: they add the children of selected tasks, and remove exited tasks.

use perf_prof_format::{
    abi::bpf::{BPF_ANY, BPF_FUNC_MAP_DELETE_ELEM, BPF_FUNC_MAP_UPDATE_ELEM},
    tracefs::{EventFormat, IntType},
};

use super::{SCRATCH, TaskIds, count_in};
use crate::{
    expression::{CONTEXT, Number, start},
    instruction::{Code, Condition, MapUse, Program, Register, Size},
    lower::Unsuited,
};

/// The number of counters of the programs that update maps of tasks. The only one counts the tasks for which a map had no
/// room.
pub const NOT_KEPT_WORDS: usize = 1;
const NOT_KEPT: i16 = 0;
/// The type of the thread id in records.
const ID: IntType = IntType { width: 4, signed: true };

/// Returns the program for `sched:sched_process_fork`, which selects the children of selected tasks. A thread counts as a
/// child of the thread that starts it.
pub fn fork_program(format: &EventFormat, ids: TaskIds) -> Result<Program, Unsuited> {
    fork_code(format, ids).map(|code| code.program())
}

pub(super) fn fork_code(format: &EventFormat, ids: TaskIds) -> Result<Code, Unsuited> {
    let child = offset_of(format, "child_pid")?;
    let mut code = Code::new();
    let not_selected = code.label();
    start(&mut code);
    ids.look_up(&mut code);
    code.jump_if(Condition::Equal, Register::R0, 0, not_selected);
    code.load(Size::Word, Register::R1, CONTEXT.at(child));
    code.store(Size::Word, SCRATCH, Register::R1);
    insert(&mut code);
    code.here(not_selected);
    code.exit(1);
    Ok(code)
}

/// Returns the program for `sched:sched_process_free`, which removes an exited task from a map with ids as keys.
/// `sched:sched_process_exit` would be too early: after it, the task frees its memory and its files, and events that happen
/// meanwhile count.
pub fn removal_program(format: &EventFormat, map: MapUse) -> Result<Program, Unsuited> {
    removal_code(format, map).map(|code| code.program())
}

pub(super) fn removal_code(format: &EventFormat, map: MapUse) -> Result<Code, Unsuited> {
    let gone = offset_of(format, "pid")?;
    let mut code = Code::new();
    start(&mut code);
    code.load(Size::Word, Register::R1, CONTEXT.at(gone));
    code.store(Size::Word, SCRATCH, Register::R1);
    code.map(Register::R1, map);
    code.address(Register::R2, SCRATCH);
    code.call(BPF_FUNC_MAP_DELETE_ELEM);
    code.exit(1);
    Ok(code)
}

/// Returns the program for `task:task_rename`, which selects a command at its exec. The kernel renames the task there
/// (`__set_task_comm`), right after `perf_event_exec` has enabled events with `enable_on_exec` (see `fs/exec.c`).
pub fn start_program(process: u32) -> Program {
    start_code(process).program()
}

pub(super) fn start_code(process: u32) -> Code {
    let mut code = Code::new();
    let other = code.label();
    start(&mut code);
    Number::Thread.load(&mut code, Register::R1);
    code.jump_if_number(Condition::NotEqual, Register::R1, (process.into(), Register::R2), other);
    code.store(Size::Word, SCRATCH, Register::R1);
    insert(&mut code);
    code.here(other);
    code.exit(1);
    code
}

/// Writes code that adds the id in `SCRATCH` to the map of tasks.
fn insert(code: &mut Code) {
    let value = SCRATCH.base.at(SCRATCH.offset + 4);
    code.store_number(Size::Byte, value, 1);
    code.map(Register::R1, MapUse::Tasks);
    code.address(Register::R2, SCRATCH);
    code.address(Register::R3, value);
    code.set(Register::R4, BPF_ANY);
    code.call(BPF_FUNC_MAP_UPDATE_ELEM);
    count_unless_kept(code);
}

/// Writes the code that counts a task that could not be added to a map, because the map is full. `R0` has the result.
pub(crate) fn count_unless_kept(code: &mut Code) {
    let kept = code.label();
    code.jump_if(Condition::Equal, Register::R0, 0, kept);
    count_in(code, NOT_KEPT);
    code.here(kept);
}

/// Returns the offset of a field that contains a thread id.
pub(crate) fn offset_of(format: &EventFormat, name: &str) -> Result<i16, Unsuited> {
    let field = format.field(name).filter(|field| field.number() == Some(ID) && field.offset.is_multiple_of(4));
    let offset = field.and_then(|field| i16::try_from(field.offset).ok());
    offset.ok_or_else(|| Unsuited::Member(name.to_owned()))
}
