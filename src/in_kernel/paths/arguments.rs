//! Which arguments of a system call are strings, file descriptors, or names of files. A map contains these facts as bits,
//! by the number of the call.

use perf_prof_format::abi::{
    bpf::{BPF_FUNC_GET_CURRENT_TASK, BPF_FUNC_MAP_LOOKUP_ELEM},
    path_arguments::{descriptor_arguments, name_arguments},
    string_arguments::string_arguments,
    system_calls,
};

use super::{PathTypes, read};
use crate::{
    expression::CONTEXT,
    instruction::{Code, Condition, Label, MapUse, Operation, Register, Size},
    select::SCRATCH,
};

/// The limit for numbers of system calls, with those of marked compat calls. All calls with such arguments have smaller numbers.
pub const MOST_CALLS: u32 = 1024 + system_calls::COMPAT as u32;

/// The register with the bits of the call. In this register, the bits replace the ids of the task. The lowest bits stand
/// for arguments that are strings.
pub(crate) const STRINGS: Register = Register::R9;
/// The positions of the bits of argument 0, which the bits of the other arguments follow. A bit of the first group says
/// that the argument is a file descriptor. A bit of the second group says that the argument is the name of a file, and a
/// bit of the third group says that this name is relative to the file descriptor in the argument before it.
pub(crate) const IS_DESCRIPTOR: usize = 8;
pub(crate) const IS_NAME: usize = 16;
pub(crate) const HAS_FOLDER: usize = 24;

/// Returns the value of the map for the system call with this name.
pub fn bits_of_call(call: &str) -> u64 {
    let strings = string_arguments(call).iter().map(|(argument, _)| 1 << argument);
    let descriptors = descriptor_arguments(call).iter().map(|(argument, _)| 1 << (IS_DESCRIPTOR + argument));
    let names = name_arguments(call).map(|name| {
        let folder = if name.folder.is_some() { 1 << (HAS_FOLDER + name.argument) } else { 0 };
        folder | 1 << (IS_NAME + name.argument)
    });
    strings.chain(descriptors).chain(names).fold(0, |bits: u64, bit: u64| bits | bit)
}

/// `TS_COMPAT` of arch/x86/include/asm/thread_info.h.
const TS_COMPAT: i32 = 2;

/// Writes code that sets `STRINGS` for a call. `call` is the offset of the call's number in the record. If this number is not
/// marked, `types` says how to recognize compat calls.
pub(crate) fn look_up_call(code: &mut Code, call: usize, types: Option<&PathTypes>) {
    let (found, is_marked) = (code.label(), code.label());
    let status = types.and_then(|types| types.task_status);
    if let Some(status) = status {
        code.call(BPF_FUNC_GET_CURRENT_TASK);
        code.copy(Register::R3, Register::R0);
        code.operate(Operation::Add, Register::R3, status);
        read(code, SCRATCH, 4);
        code.load(Size::Word, Register::R2, SCRATCH);
    }
    code.load(Size::Double, Register::R1, CONTEXT.at(call as i16));
    if status.is_some() {
        let is_compat = code.label();
        code.jump_if(Condition::Bits, Register::R2, TS_COMPAT, is_compat);
        code.jump(is_marked);
        code.here(is_compat);
        code.operate(Operation::Add, Register::R1, system_calls::COMPAT as i32);
    }
    code.here(is_marked);
    code.copy(STRINGS, 0);
    code.jump_if(Condition::GreaterOrEqual, Register::R1, MOST_CALLS as i32, found);
    code.store(Size::Word, SCRATCH, Register::R1);
    code.map(Register::R1, MapUse::Arguments);
    code.address(Register::R2, SCRATCH);
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
    code.jump_if(Condition::Equal, Register::R0, 0, found);
    code.load(Size::Double, STRINGS, Register::R0.at(0));
    code.here(found);
}

/// Writes code that jumps to `to` unless the call has at least one of these bits.
pub(crate) fn jump_unless(code: &mut Code, bits: i32, to: Label) {
    let has_one = code.label();
    code.jump_if(Condition::Bits, STRINGS, bits, has_one);
    code.jump(to);
    code.here(has_one);
}
