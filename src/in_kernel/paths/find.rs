//! Finds the files that a call refers to: those of its file descriptors, the current folder, and the root of the task.
//!
//! For a paired call, the paths are read when the call ends, and only if it passes the tests. By then, another thread may
//! have changed a file descriptor or the folder. So the addresses of the files are kept when the call begins. If an address
//! is different at the end, the path is unknown.

use perf_prof_format::abi::{
    bpf::{BPF_FUNC_GET_CURRENT_TASK, BPF_FUNC_PROBE_READ_USER},
    path_arguments::AT_FDCWD,
    string_arguments::MOST_ARGUMENTS,
};

use super::{
    BEGAN_WITH, CURRENT_FOLDER, DESCRIPTORS, ENTRY, FILES_OF_TASK, HAS_FOLDER, IS_DESCRIPTOR, IS_NAME,
    MOST_DESCRIPTORS, MOUNT, NAMESPACE, NAMESPACE_ID, NEW, NUMBER, OTHER_NUMBER, PathTypes, ROOT, STATE, STRINGS,
    follow, jump_unless, read, slot_place,
};
use crate::instruction::{Code, Condition, Label, Operation, Place, Register, Size};

/// The register with the address of the running task's `task_struct`.
const TASK: Register = Register::R8;
/// The bits for what the names of a call need. They follow the bits of strings in `STRINGS`.
const NEEDS_FOLDER: i32 = 1 << 6;
const NEEDS_ROOT: i32 = 1 << 7;
/// The bits of all arguments that are names.
const NAMES: i32 = 0x3f << IS_NAME;

/// Which files are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// All files.
    All,
    /// Only files whose address has not changed since the call began.
    Unchanged,
}

/// Writes code that keeps the addresses of the files when a call begins. `kept` is the place for all addresses. An argument
/// without a file gets 0. `STRINGS` contains the bits of the call, and `argument` returns the place of each argument.
pub(crate) fn keep_files(code: &mut Code, types: &PathTypes, kept: Place, argument: impl Fn(usize) -> Place) {
    let done = code.label();
    load_task(code);
    each_descriptor(code, types, &argument, |code, at, _| {
        code.load(Size::Double, Register::R1, NUMBER);
        code.store(Size::Double, kept.after(8 * at), Register::R1);
    });
    jump_unless(code, NAMES, done);
    read_of_task(code, types.task_fs);
    for (slot, folder) in [(CURRENT_FOLDER, types.fs_pwd), (ROOT, types.fs_root)] {
        follow(code, NUMBER, folder + ENTRY as i32, OTHER_NUMBER);
        code.load(Size::Double, Register::R1, OTHER_NUMBER);
        code.store(Size::Double, kept.after(8 * slot), Register::R1);
    }
    code.here(done);
}

/// Writes code that finds the files of a call. `STRINGS` contains the bits of the call, and `argument` returns the place of
/// each argument.
pub(super) fn find_files(code: &mut Code, types: &PathTypes, found: Found, argument: impl Fn(usize) -> Place) {
    let done = code.label();
    load_task(code);
    read_namespace_of_task(code, types);
    each_descriptor(code, types, &argument, |code, at, next| {
        if found == Found::Unchanged {
            code.load(Size::Double, Register::R1, NUMBER);
            jump_if_changed(code, at, next);
        }
        add_file(code, types, NUMBER, at);
    });
    find_needs(code, &argument);
    jump_unless(code, NEEDS_FOLDER | NEEDS_ROOT, done);
    read_of_task(code, types.task_fs);
    for (slot, need, folder) in [(CURRENT_FOLDER, NEEDS_FOLDER, types.fs_pwd), (ROOT, NEEDS_ROOT, types.fs_root)] {
        let next = code.label();
        jump_unless(code, need, next);
        code.load(Size::Double, Register::R3, NUMBER);
        code.operate(Operation::Add, Register::R3, folder);
        read(code, slot_place(slot, MOUNT), 16);
        if found == Found::Unchanged {
            code.load(Size::Double, Register::R1, slot_place(slot, ENTRY));
            jump_if_changed(code, slot, next);
        }
        code.store_number(Size::Double, slot_place(slot, STATE), NEW);
        code.here(next);
    }
    code.here(done);
}

/// Writes code that adds a file as a path to be built. `file` is the place of the file's address.
pub(crate) fn add_file(code: &mut Code, types: &PathTypes, file: Place, slot: usize) {
    code.load(Size::Double, Register::R3, file);
    code.operate(Operation::Add, Register::R3, types.file_path);
    read(code, slot_place(slot, MOUNT), 16);
    code.store_number(Size::Double, slot_place(slot, STATE), NEW);
}

/// Writes code that reads the number and the id of the task's mount namespace.
pub(crate) fn read_namespace(code: &mut Code, types: &PathTypes) {
    load_task(code);
    read_namespace_of_task(code, types);
}

/// Writes code that reads the number and the id of the mount namespace of the task in `TASK`. A task that exits has none.
fn read_namespace_of_task(code: &mut Code, types: &PathTypes) {
    let Some(namespace) = types.namespace else { return };
    read_of_task(code, namespace.task_proxy);
    follow(code, NUMBER, namespace.proxy_namespace, NUMBER);
    for (member, to, bytes) in [(namespace.namespace_number, NAMESPACE, 4), (namespace.namespace_id, NAMESPACE_ID, 8)] {
        code.load(Size::Double, Register::R3, NUMBER);
        code.operate(Operation::Add, Register::R3, member);
        read(code, to, bytes);
    }
}

fn load_task(code: &mut Code) {
    code.call(BPF_FUNC_GET_CURRENT_TASK);
    code.copy(TASK, Register::R0);
}

/// Writes code that reads an address from the task's structure into `NUMBER`.
fn read_of_task(code: &mut Code, offset: i32) {
    code.copy(Register::R3, TASK);
    code.operate(Operation::Add, Register::R3, offset);
    read(code, NUMBER, 8);
}

/// Writes code that jumps to `to` unless the address in `R1` is the one that was kept when the call began.
fn jump_if_changed(code: &mut Code, slot: usize, to: Label) {
    code.load(Size::Double, Register::R2, BEGAN_WITH.after(8 * slot));
    code.jump_if(Condition::NotEqual, Register::R1, Register::R2, to);
}

/// Writes code that puts the address of a file into `NUMBER`, for each file descriptor of a call, and then runs the code
/// that `each` writes. This code may jump to its label to leave out the file.
fn each_descriptor(
    code: &mut Code,
    types: &PathTypes,
    argument: impl Fn(usize) -> Place,
    each: impl Fn(&mut Code, usize, Label),
) {
    let done = code.label();
    jump_unless(code, DESCRIPTORS, done);
    read_of_task(code, types.task_files);
    follow(code, NUMBER, types.files_fdt, NUMBER);
    code.store_number(Size::Double, MOST_DESCRIPTORS, 0);
    code.load(Size::Double, Register::R3, NUMBER);
    code.operate(Operation::Add, Register::R3, types.table_max);
    read(code, MOST_DESCRIPTORS, 4);
    follow(code, NUMBER, types.table_files, FILES_OF_TASK);
    for at in 0..MOST_ARGUMENTS {
        let next = code.label();
        jump_unless(code, 1 << (IS_DESCRIPTOR + at), next);
        code.load(Size::Word, Register::R1, argument(at));
        code.load(Size::Double, Register::R2, MOST_DESCRIPTORS);
        // The comparison also leaves out `AT_FDCWD` and -1, because they are large as unsigned numbers.
        code.jump_if(Condition::GreaterOrEqual, Register::R1, Register::R2, next);
        code.operate(Operation::ShiftLeft, Register::R1, 3);
        code.load(Size::Double, Register::R3, FILES_OF_TASK);
        code.operate(Operation::Add, Register::R3, Register::R1);
        read(code, NUMBER, 8);
        code.load(Size::Double, Register::R1, NUMBER);
        code.jump_if(Condition::Equal, Register::R1, 0, next);
        each(code, at, next);
        code.here(next);
    }
    code.here(done);
}

/// Writes code that sets the bits for what the names of a call need. A name that starts with a slash needs the root. Any
/// other name needs the current folder, unless it is relative to a file descriptor. A name that cannot be read may need
/// both.
fn find_needs(code: &mut Code, argument: impl Fn(usize) -> Place) {
    let done = code.label();
    jump_unless(code, NAMES, done);
    for at in 0..MOST_ARGUMENTS {
        let [is_read, is_absolute, needs_folder, next] = std::array::from_fn(|_| code.label());
        jump_unless(code, 1 << (IS_NAME + at), next);
        code.address(Register::R1, NUMBER);
        code.copy(Register::R2, 1);
        code.load(Size::Double, Register::R3, argument(at));
        code.call(BPF_FUNC_PROBE_READ_USER);
        code.jump_if(Condition::Equal, Register::R0, 0, is_read);
        code.operate(Operation::Or, STRINGS, NEEDS_FOLDER | NEEDS_ROOT);
        code.jump(next);
        code.here(is_read);
        code.load(Size::Byte, Register::R1, NUMBER);
        code.jump_if(Condition::Equal, Register::R1, i32::from(b'/'), is_absolute);
        if let Some(before) = at.checked_sub(1) {
            jump_unless(code, 1 << (HAS_FOLDER + at), needs_folder);
            code.load(Size::Word, Register::R1, argument(before));
            code.set(Register::R2, u64::from(AT_FDCWD as u32));
            code.jump_if(Condition::NotEqual, Register::R1, Register::R2, next);
        }
        code.here(needs_folder);
        code.operate(Operation::Or, STRINGS, NEEDS_FOLDER);
        code.jump(next);
        code.here(is_absolute);
        code.operate(Operation::Or, STRINGS, NEEDS_ROOT);
        code.here(next);
    }
    code.here(done);
}
