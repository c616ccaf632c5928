//! The paths of files in system calls: of file descriptors, and of the folders to which names of files are relative.
//! Programs read them from the kernel's memory when the event happens, so no file descriptor can change in between. The
//! paths are those that procfs shows in /proc/PID/fd.
//!
//! A program takes two steps. `find_files` finds the files that the arguments refer to. `walk` builds the path of each file.
//! It goes from the file up to the root, through mounts, and writes the names into a buffer, the last name first at the
//! buffer's end.

mod arguments;
mod find;
mod turns;
mod types;
mod walk;

use arguments::{HAS_FOLDER, IS_DESCRIPTOR, IS_NAME};
pub use arguments::{MOST_CALLS, bits_of_call};
pub(crate) use arguments::{STRINGS, jump_unless, look_up_call};
use find::find_files;
pub(crate) use find::{Found, add_file, keep_files, read_namespace};
pub(crate) use turns::Turns;
pub use types::{NamespaceTypes, NumberIterator, PathTypes};
pub(crate) use walk::walk;

use perf_prof_format::abi::{
    bpf::{BPF_FUNC_GET_CURRENT_PID_TGID, BPF_FUNC_PROBE_READ_KERNEL},
    string_arguments::MOST_ARGUMENTS,
};

use crate::{
    expression::IDS,
    instruction::{Code, Condition, Label, MapUse, Operation, Place, Register, Size},
    select::look_up_only,
};

/// The maximum length of a path, in bytes, with the NUL. Longer paths are missing.
pub const LONGEST_PATH: usize = 1024;
/// The size of the map in which paths are built.
pub const PATHS_BYTES: usize = FIRST_SLOT as usize + SLOTS * SLOT_BYTES as usize;

/// The bits of all file descriptors. `FILES` adds those of all names.
const DESCRIPTORS: i32 = 0x3f << IS_DESCRIPTOR;
pub(crate) const FILES: i32 = DESCRIPTORS | 0x3f << IS_NAME;

/// The number of paths: one for each argument, the current folder, and the root of the task.
pub(crate) const SLOTS: usize = MOST_ARGUMENTS + 2;
/// The indexes of the current folder and of the root.
pub(crate) const CURRENT_FOLDER: usize = MOST_ARGUMENTS;
pub(crate) const ROOT: usize = MOST_ARGUMENTS + 1;

/// The register with the address of the map value in which paths are built.
pub(crate) const PATHS: Register = Register::R7;
/// The place on the stack of this address; 0 if there are no paths.
pub(crate) const KEPT_PATHS: Place = Place { base: Register::Frame, offset: -80 };

/// The contents of the map value in which paths are built: the index of the current path, numbers that were read, and the
/// task's table of file descriptors, and the number and the id of its mount namespace. The files that the
/// call had when it began follow.
const AT: Place = PATHS.at(0);
const NUMBER: Place = PATHS.at(8);
const OTHER_NUMBER: Place = PATHS.at(16);
const NAME: Place = PATHS.at(24);
const MOST_DESCRIPTORS: Place = PATHS.at(40);
const FILES_OF_TASK: Place = PATHS.at(48);
const NAMESPACE: Place = PATHS.at(56);
const NAMESPACE_ID: Place = PATHS.at(64);
pub(crate) const BEGAN_WITH: Place = PATHS.at(72);
const FIRST_SLOT: i16 = 72 + 8 * SLOTS as i16;

/// The contents of a path: its file (a mount and an entry), the root of this mount, where the text starts, and the state.
const MOUNT: i16 = 0;
const ENTRY: i16 = 8;
const TOP: i16 = 16;
const START: i16 = 24;
const STATE: i16 = 32;
/// The text of the path. Spare bytes follow: the verifier assumes that reading a name may go beyond the end.
const TEXT: i16 = 40;
const SLOT_BYTES: i16 = TEXT + 2 * LONGEST_PATH as i16;
/// The size of the part of a path that is needed to read it: start, state and text.
pub(crate) const KEPT_PATH_BYTES: usize = (TEXT - START) as usize + LONGEST_PATH;
/// The offset of the NUL in the text.
const END: i32 = LONGEST_PATH as i32 - 1;

/// The states of a path: there is no file, the file is known, some names are read, and the path is complete.
const ABSENT: i32 = 0;
const NEW: i32 = 1;
const NAMED: i32 = 2;
const COMPLETE: i32 = 3;

/// Writes code that sets [`PATHS`] and [`KEPT_PATHS`]. It jumps to `none` if there is no memory for paths.
pub(crate) fn look_up_paths(code: &mut Code, none: Label) {
    look_up_only(code, MapUse::Paths);
    code.store(Size::Double, KEPT_PATHS, Register::R0);
    code.jump_if(Condition::Equal, Register::R0, 0, none);
    code.copy(PATHS, Register::R0);
}

/// Writes code that builds the paths of a call. `call` is the offset of the call's number in the record, and `argument`
/// returns the place of each argument. Only [`CONTEXT`] and [`IDS`] keep their values.
pub(crate) fn make_paths(
    code: &mut Code,
    types: &PathTypes,
    found: Found,
    (call, argument): (usize, impl Fn(usize) -> Place),
) {
    let done = code.label();
    look_up_paths(code, done);
    forget_paths(code);
    // Programs that pair calls have marked the number.
    look_up_call(code, call, (found == Found::All).then_some(types));
    jump_unless(code, FILES, done);
    find_files(code, types, found, argument);
    walk(code, types);
    code.here(done);
    code.call(BPF_FUNC_GET_CURRENT_PID_TGID);
    code.copy(IDS, Register::R0);
}

/// Writes code that marks all paths and the namespace as missing.
pub(crate) fn forget_paths(code: &mut Code) {
    code.store_number(Size::Double, NAMESPACE, 0);
    code.store_number(Size::Double, NAMESPACE_ID, 0);
    for slot in 0..SLOTS {
        code.store_number(Size::Double, slot_place(slot, STATE), ABSENT);
    }
}

/// Writes code that sets `R3` to the address of a path and `R2` to its size with the NUL. It jumps to `absent` if the path
/// is not complete.
pub(crate) fn load_path(code: &mut Code, slot: usize, absent: Label) {
    code.load(Size::Double, Register::R3, KEPT_PATHS);
    code.jump_if(Condition::Equal, Register::R3, 0, absent);
    let place = |at: i16| Register::R3.at(slot_place(slot, at).offset);
    code.load(Size::Double, Register::R1, place(STATE));
    code.jump_if(Condition::NotEqual, Register::R1, COMPLETE, absent);
    code.load(Size::Double, Register::R1, place(START));
    code.jump_if(Condition::Greater, Register::R1, END, absent);
    code.copy(Register::R2, LONGEST_PATH as i32);
    code.operate(Operation::Subtract, Register::R2, Register::R1);
    code.address(Register::R3, place(TEXT));
    code.operate(Operation::Add, Register::R3, Register::R1);
}

/// Writes code that sets `R1` to the number of the task's mount namespace and `R2` to its id. Both are 0 if they are not known.
pub(crate) fn load_namespace(code: &mut Code) {
    let is_unknown = code.label();
    code.copy(Register::R1, 0);
    code.copy(Register::R2, 0);
    code.load(Size::Double, Register::R3, KEPT_PATHS);
    code.jump_if(Condition::Equal, Register::R3, 0, is_unknown);
    code.load(Size::Word, Register::R1, Register::R3.at(NAMESPACE.offset));
    code.load(Size::Double, Register::R2, Register::R3.at(NAMESPACE_ID.offset));
    code.here(is_unknown);
}

/// Returns the place of the part of a path that is needed to read it: [`KEPT_PATH_BYTES`] bytes.
pub(crate) fn kept_path(slot: usize) -> Place {
    slot_place(slot, START)
}

/// Returns the place of a part of a path.
fn slot_place(slot: usize, at: i16) -> Place {
    PATHS.at(FIRST_SLOT + slot as i16 * SLOT_BYTES + at)
}

/// Writes code that reads memory of the kernel, from the address in `R3`. Bytes that cannot be read become 0.
fn read(code: &mut Code, to: Place, bytes: i32) {
    code.address(Register::R1, to);
    code.copy(Register::R2, bytes);
    code.call(BPF_FUNC_PROBE_READ_KERNEL);
}

/// Writes code that reads 8 bytes of the kernel's memory, at `offset` from the address in `from`.
fn follow(code: &mut Code, from: Place, offset: i32, to: Place) {
    code.load(Size::Double, Register::R3, from);
    if offset != 0 {
        code.operate(Operation::Add, Register::R3, offset);
    }
    read(code, to, 8);
}
