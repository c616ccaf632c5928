//! The events of all system calls: which arguments are strings, and strings that can be read only when the call ends.
//!
//! When a call begins, the page of a string may not be in memory, and programs cannot wait for it. When the call ends, the
//! page is in memory, because the kernel has read the string. So the program of the begin keeps the addresses of such
//! strings in a hash by thread. The program of the end takes them out of the hash and reads the strings.

use perf_prof_format::{
    abi::{
        bpf::{
            BPF_ANY, BPF_FUNC_GET_CURRENT_PID_TGID, BPF_FUNC_MAP_DELETE_ELEM, BPF_FUNC_MAP_LOOKUP_ELEM,
            BPF_FUNC_MAP_UPDATE_ELEM,
        },
        string_arguments::MOST_ARGUMENTS,
    },
    tracefs::{EventFormat, StringAddress, StringPlace},
};

use super::write_nothing;
use crate::{
    expression::CONTEXT,
    instruction::{Code, Condition, Label, MapUse, Operation, Place, Register, Size},
    paths::{PathTypes, STRINGS, look_up_call},
};

/// The size of the hash's values: a bit for each argument whose string could not be read, and the arguments.
pub const UNREAD_BYTES: usize = 8 * (1 + MOST_ARGUMENTS);

/// The field that contains the number of the system call.
const CALL: &str = "id";
/// The place on the stack of the hash's key: the ids of the running task.
const KEY: Place = Place { base: Register::Frame, offset: -16 };
/// The place on the stack of the hash's value.
const UNREAD: Place = Place { base: Register::Frame, offset: -16 - UNREAD_BYTES as i16 };

/// An event of all system calls.
pub(super) enum Call {
    /// A call begins. The offsets are those of its number and of its first argument.
    Begins { call: usize, arguments: usize },
    /// A call ends.
    Ends,
}

impl Call {
    /// Returns the offsets of the call's number and first argument, if this is a begin.
    pub fn begin(&self) -> Option<(usize, usize)> {
        if let Call::Begins { call, arguments } = *self { Some((call, arguments)) } else { None }
    }

    /// Returns the kind of the event; `None` if it is not an event of all system calls.
    pub fn of(format: &EventFormat, strings: &[StringPlace]) -> Option<Call> {
        let first = strings.iter().find(|string| string.argument == Some(0))?;
        match first.address {
            StringAddress::Field(arguments) => Some(Call::Begins { call: format.field(CALL)?.offset, arguments }),
            StringAddress::Kept | StringAddress::OfTask => Some(Call::Ends),
        }
    }

    /// Writes code that finds out which arguments are strings. If there are none, the record is complete, and the code jumps
    /// to `written`.
    pub fn find_strings(&self, code: &mut Code, strings: &[StringPlace], types: Option<&PathTypes>, written: Label) {
        let has_some = code.label();
        for at in (0..UNREAD_BYTES).step_by(8) {
            code.store_number(Size::Double, UNREAD.after(at), 0);
        }
        match self {
            Call::Begins { call, .. } => look_up_call(code, *call, types),
            Call::Ends => take_unread(code),
        }
        code.jump_if(Condition::NotEqual, STRINGS, 0, has_some);
        write_nothing(code, strings);
        code.jump(written);
        code.here(has_some);
    }

    /// Writes code that notes that the string of an argument could not be read.
    pub fn note_unread(&self, code: &mut Code, argument: usize) {
        if let Call::Begins { .. } = self {
            code.load(Size::Double, Register::R1, UNREAD);
            code.operate(Operation::Or, Register::R1, 1 << argument);
            code.store(Size::Double, UNREAD, Register::R1);
        }
    }

    /// Writes code that keeps the addresses of strings that could not be read. The code jumps to `done` if there are no
    /// such strings.
    pub fn keep_unread(&self, code: &mut Code, done: Label) {
        let Call::Begins { arguments, .. } = *self else { return };
        code.load(Size::Double, Register::R1, UNREAD);
        code.jump_if(Condition::Equal, Register::R1, 0, done);
        for at in 0..MOST_ARGUMENTS {
            code.load(Size::Double, Register::R1, CONTEXT.at((arguments + 8 * at) as i16));
            code.store(Size::Double, UNREAD.after(8 + 8 * at), Register::R1);
        }
        write_key(code);
        code.map(Register::R1, MapUse::Unread);
        code.address(Register::R2, KEY);
        code.address(Register::R3, UNREAD);
        code.set(Register::R4, BPF_ANY);
        code.call(BPF_FUNC_MAP_UPDATE_ELEM);
    }
}

/// Writes code that loads an argument that was kept when the call began.
pub(super) fn load_kept(code: &mut Code, argument: usize, to: Register) {
    code.load(Size::Double, to, UNREAD.after(8 + 8 * argument));
}

fn take_unread(code: &mut Code) {
    let found = code.label();
    write_key(code);
    code.copy(STRINGS, 0);
    code.map(Register::R1, MapUse::Unread);
    code.address(Register::R2, KEY);
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
    code.jump_if(Condition::Equal, Register::R0, 0, found);
    for at in (0..UNREAD_BYTES).step_by(8) {
        code.load(Size::Double, Register::R1, Register::R0.at(at as i16));
        code.store(Size::Double, UNREAD.after(at), Register::R1);
    }
    code.map(Register::R1, MapUse::Unread);
    code.address(Register::R2, KEY);
    code.call(BPF_FUNC_MAP_DELETE_ELEM);
    code.load(Size::Double, STRINGS, UNREAD);
    code.here(found);
}

fn write_key(code: &mut Code) {
    code.call(BPF_FUNC_GET_CURRENT_PID_TGID);
    code.store(Size::Double, KEY, Register::R0);
}
