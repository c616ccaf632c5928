//! The paths of files in the calls of a task: those of its descriptors, and of the folders from which names of files are
//! looked up. Programs read them from the kernel's memory where the event happens, so no descriptor can change in between.
//! They are the paths that procfs shows in /proc/PID/fd.
//!
//! A program takes two steps. `find_files` reads which files the arguments stand for. `walk` makes a path of each: it goes from
//! the file up to the root, through mounts, and writes names from the end of a buffer to its start.

mod arguments;
mod find;
mod turns;
mod types;
mod walk;

use arguments::{HAS_FOLDER, IS_DESCRIPTOR, IS_NAME};
pub use arguments::{MOST_CALLS, bits_of_call};
pub(crate) use arguments::{STRINGS, jump_unless, look_up_call};
use find::find_files;
pub(crate) use find::{Found, add_file, keep_files};
pub(crate) use turns::Turns;
pub use types::{NumberIterator, PathTypes};
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

/// The maximum length of a path in bytes, with the NUL at its end. Longer paths are absent.
pub const LONGEST_PATH: usize = 1024;
/// The size of the map in which paths are made.
pub const PATHS_BYTES: usize = FIRST_SLOT as usize + SLOTS * SLOT_BYTES as usize;

/// All bits of descriptors, and all bits of names.
const DESCRIPTORS: i32 = 0x3f << IS_DESCRIPTOR;
pub(crate) const FILES: i32 = DESCRIPTORS | 0x3f << IS_NAME;

/// The number of paths: one for each argument, the current folder, and the root of the task.
pub(crate) const SLOTS: usize = MOST_ARGUMENTS + 2;
/// The indexes of the current folder and of the root among the paths.
pub(crate) const CURRENT_FOLDER: usize = MOST_ARGUMENTS;
pub(crate) const ROOT: usize = MOST_ARGUMENTS + 1;

/// The register with the address of the memory in which paths are made.
pub(crate) const PATHS: Register = Register::R7;
/// The place on the stack that has this address; 0 if there are no paths.
pub(crate) const KEPT_PATHS: Place = Place { base: Register::Frame, offset: -80 };

/// The contents of this memory: the index of the path that is being made, numbers that are read, the descriptors of the task,
/// and the files that a call had when it began.
const AT: Place = PATHS.at(0);
const NUMBER: Place = PATHS.at(8);
const OTHER_NUMBER: Place = PATHS.at(16);
const NAME: Place = PATHS.at(24);
const MOST_DESCRIPTORS: Place = PATHS.at(40);
const FILES_OF_TASK: Place = PATHS.at(48);
pub(crate) const BEGAN_WITH: Place = PATHS.at(56);
const FIRST_SLOT: i16 = 56 + 8 * SLOTS as i16;

/// The contents of a path's memory: the file, which is its mount and its entry; the root of this mount; where the text
/// starts; and the state of the path.
const MOUNT: i16 = 0;
const ENTRY: i16 = 8;
const TOP: i16 = 16;
const START: i16 = 24;
const STATE: i16 = 32;
/// The text of the path. Spare room follows it, because the verifier assumes that a read of a name may go beyond its end.
const TEXT: i16 = 40;
const SLOT_BYTES: i16 = TEXT + 2 * LONGEST_PATH as i16;
/// The size of a path with what is needed to read it.
pub(crate) const KEPT_PATH_BYTES: usize = (TEXT - START) as usize + LONGEST_PATH;
/// The place of the NUL.
const END: i32 = LONGEST_PATH as i32 - 1;

/// The states of a path: there is no file, its file is known, its names are being read, or it is complete.
const ABSENT: i32 = 0;
const NEW: i32 = 1;
const NAMED: i32 = 2;
const COMPLETE: i32 = 3;

/// Writes the code that sets [`PATHS`] and [`KEPT_PATHS`], and jumps to a label if there is no memory for paths.
pub(crate) fn look_up_paths(code: &mut Code, none: Label) {
    look_up_only(code, MapUse::Paths);
    code.store(Size::Double, KEPT_PATHS, Register::R0);
    code.jump_if(Condition::Equal, Register::R0, 0, none);
    code.copy(PATHS, Register::R0);
}

/// Writes the code that makes the paths of a call. The number of the call is at an offset of the record, and the second value
/// says where its arguments are. Only [`CONTEXT`] and [`IDS`] keep their values; all other registers change.
pub(crate) fn make_paths(
    code: &mut Code,
    types: &PathTypes,
    found: Found,
    (call, argument): (usize, impl Fn(usize) -> Place),
) {
    let done = code.label();
    look_up_paths(code, done);
    forget_paths(code);
    look_up_call(code, call);
    jump_unless(code, FILES, done);
    find_files(code, types, found, argument);
    walk(code, types);
    code.here(done);
    code.call(BPF_FUNC_GET_CURRENT_PID_TGID);
    code.copy(IDS, Register::R0);
}

/// Writes the code that marks all paths as absent.
pub(crate) fn forget_paths(code: &mut Code) {
    for slot in 0..SLOTS {
        code.store_number(Size::Double, slot_place(slot, STATE), ABSENT);
    }
}

/// Writes the code that sets `R3` to the place of a complete path and `R2` to its size with the NUL, or jumps to a label.
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

/// Returns the place of a path. All of the path is in the [`KEPT_PATH_BYTES`] bytes from this place on.
pub(crate) fn kept_path(slot: usize) -> Place {
    slot_place(slot, START)
}

/// Returns the place of a part of a path.
fn slot_place(slot: usize, at: i16) -> Place {
    PATHS.at(FIRST_SLOT + slot as i16 * SLOT_BYTES + at)
}

/// Writes the code that reads memory of the kernel from the address in `R3`. Bytes that cannot be read become 0.
fn read(code: &mut Code, to: Place, bytes: i32) {
    code.address(Register::R1, to);
    code.copy(Register::R2, bytes);
    code.call(BPF_FUNC_PROBE_READ_KERNEL);
}

/// Writes the code that reads 8 bytes at a distance from the address in a place.
fn follow(code: &mut Code, from: Place, offset: i32, to: Place) {
    code.load(Size::Double, Register::R3, from);
    if offset != 0 {
        code.operate(Operation::Add, Register::R3, offset);
    }
    read(code, to, 8);
}
