//! Builds the paths of files, in one loop for all files. Each iteration reads a name, or goes up to the mount above. All
//! state is in memory, so the verifier sees the same state in all iterations. If the kernel's iterator counts them, the
//! verifier checks the code of the loop once. Otherwise a register counts them, and the verifier checks each iteration.
//!
//! Files outside of a tree of folders get the text that `d_path()` gives them: `pipe:[4711]`, `socket:[4711]`,
//! `anon_inode:[eventpoll]`, `/memfd:name (deleted)`.

use perf_prof_format::abi::bpf::BPF_FUNC_PROBE_READ_KERNEL;

use super::{
    ABSENT, AT, COMPLETE, END, ENTRY, FIRST_SLOT, MOUNT, NAME, NAMED, NEW, NUMBER, OTHER_NUMBER, PATHS, PathTypes,
    SLOT_BYTES, SLOTS, START, STATE, TEXT, TOP, Turns, follow, read,
};
use crate::instruction::{Code, Condition, Label, Operation, Place, Register, Size};

/// The register with the address of the path that is being built.
const PATH: Register = Register::R9;
/// The register that counts the iterations, and the place on the stack of the kernel's iterator, which replaces the
/// register.
const TURNS: Register = Register::R8;
const ITERATOR: Place = Place { base: Register::Frame, offset: -88 };
/// The maximum number of iterations for all paths of a call: one for each name and each mount, and two more for each path.
const MOST_TURNS: i32 = 100;
/// The maximum length of a name in the kernel, `NAME_MAX`.
const LONGEST_NAME: i32 = 255;
/// The end of the path of a removed file.
const DELETED: &str = " (deleted)";
/// The maximum number of digits of a 32-bit inode number, which pipes and sockets have.
const DIGITS: i32 = 10;

/// The file systems whose files are outside of a tree of folders (include/uapi/linux/magic.h).
const PIPEFS_MAGIC: u64 = 0x5049_5045;
const SOCKFS_MAGIC: u64 = 0x534f_434b;
const ANON_INODE_FS_MAGIC: u64 = 0x0904_1934;
const TMPFS_MAGIC: u64 = 0x0102_1994;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// Where an iteration goes on.
#[derive(Clone, Copy)]
struct Labels {
    again: Label,
    /// When the path is complete.
    complete: Label,
    /// When the path cannot be found out.
    unknown: Label,
}

/// Writes code that builds the paths of all files that were found.
pub(crate) fn walk(code: &mut Code, types: &PathTypes) {
    let labels = Labels { again: code.label(), complete: code.label(), unknown: code.label() };
    let [is_new, is_named, next, done] = std::array::from_fn(|_| code.label());
    code.store_number(Size::Double, AT, 0);
    let turns = Turns { iterator: types.iterator, place: ITERATOR, register: TURNS, most: MOST_TURNS };
    turns.begin(code);
    code.here(labels.again);
    turns.next(code, done);
    code.load(Size::Double, Register::R1, AT);
    code.jump_if(Condition::GreaterOrEqual, Register::R1, SLOTS as i32, done);
    code.operate(Operation::Multiply, Register::R1, i32::from(SLOT_BYTES));
    code.address(PATH, PATHS.at(FIRST_SLOT));
    code.operate(Operation::Add, PATH, Register::R1);
    code.load(Size::Double, Register::R1, PATH.at(STATE));
    code.jump_if(Condition::Equal, Register::R1, NAMED, is_named);
    code.jump_if(Condition::Equal, Register::R1, NEW, is_new);
    code.here(next);
    code.load(Size::Double, Register::R1, AT);
    code.operate(Operation::Add, Register::R1, 1);
    code.store(Size::Double, AT, Register::R1);
    code.jump(labels.again);
    code.here(is_new);
    begin(code, types, labels);
    code.here(is_named);
    go_up(code, types, labels);
    code.here(labels.complete);
    code.store_number(Size::Double, PATH.at(STATE), COMPLETE);
    code.jump(next);
    code.here(labels.unknown);
    code.store_number(Size::Double, PATH.at(STATE), ABSENT);
    code.jump(next);
    code.here(done);
    turns.end(code);
}

/// Writes the code of the first iteration of a path. It writes the end of the text, or the whole text if the file is outside
/// of a tree.
fn begin(code: &mut Code, types: &PathTypes, labels: Labels) {
    let [in_tree, is_special, is_listed] = std::array::from_fn(|_| code.label());
    follow(code, PATH.at(MOUNT), types.mount_top, PATH.at(TOP));
    code.store_number(Size::Double, PATH.at(START), END);
    code.store_number(Size::Byte, PATH.at(TEXT + END as i16), 0);
    code.store_number(Size::Double, PATH.at(STATE), NAMED);
    follow(code, PATH.at(ENTRY), types.entry_operations, NUMBER);
    code.load(Size::Double, Register::R1, NUMBER);
    code.jump_if(Condition::Equal, Register::R1, 0, in_tree);
    follow(code, NUMBER, types.operations_name, NUMBER);
    code.load(Size::Double, Register::R1, NUMBER);
    code.jump_if(Condition::Equal, Register::R1, 0, in_tree);
    code.load(Size::Double, Register::R1, PATH.at(ENTRY));
    code.load(Size::Double, Register::R2, PATH.at(TOP));
    code.jump_if(Condition::NotEqual, Register::R1, Register::R2, is_special);
    code.here(in_tree);
    follow(code, PATH.at(ENTRY), types.entry_hash, NUMBER);
    code.load(Size::Double, Register::R1, NUMBER);
    code.jump_if(Condition::NotEqual, Register::R1, 0, is_listed);
    follow(code, PATH.at(ENTRY), types.entry_parent, NUMBER);
    code.load(Size::Double, Register::R1, NUMBER);
    code.load(Size::Double, Register::R2, PATH.at(ENTRY));
    code.jump_if(Condition::Equal, Register::R1, Register::R2, is_listed);
    prepend(code, DELETED, labels.unknown);
    code.here(is_listed);
    code.jump(labels.again);
    code.here(is_special);
    name_special(code, types, labels);
}

/// Writes the code for a file outside of a tree of folders, such as a pipe.
fn name_special(code: &mut Code, types: &PathTypes, labels: Labels) {
    let [is_pipe, is_socket, is_anonymous, is_memory] = std::array::from_fn(|_| code.label());
    follow(code, PATH.at(ENTRY), types.entry_super, NUMBER);
    follow(code, NUMBER, types.super_magic, NUMBER);
    let kinds = [
        (PIPEFS_MAGIC, is_pipe),
        (SOCKFS_MAGIC, is_socket),
        (ANON_INODE_FS_MAGIC, is_anonymous),
        (TMPFS_MAGIC, is_memory),
        (HUGETLBFS_MAGIC, is_memory),
    ];
    code.load(Size::Double, Register::R1, NUMBER);
    for (magic, kind) in kinds {
        code.jump_if_number(Condition::Equal, Register::R1, (magic, Register::R2), kind);
    }
    code.jump(labels.unknown);
    for (kind, text) in [(is_pipe, "pipe:["), (is_socket, "socket:[")] {
        code.here(kind);
        write_number(code, types, labels.unknown);
        prepend(code, text, labels.unknown);
        code.jump(labels.complete);
    }
    code.here(is_anonymous);
    prepend_name(code, types, labels.unknown);
    prepend(code, "anon_inode:", labels.unknown);
    code.jump(labels.complete);
    code.here(is_memory);
    prepend(code, DELETED, labels.unknown);
    prepend_name(code, types, labels.unknown);
    prepend(code, "/", labels.unknown);
    code.jump(labels.complete);
}

/// Writes the code of an iteration: the next name, or the mount above.
fn go_up(code: &mut Code, types: &PathTypes, labels: Labels) {
    let [in_mount, has_text] = std::array::from_fn(|_| code.label());
    code.load(Size::Double, Register::R1, PATH.at(ENTRY));
    code.jump_if(Condition::Equal, Register::R1, 0, labels.unknown);
    code.load(Size::Double, Register::R2, PATH.at(TOP));
    code.jump_if(Condition::NotEqual, Register::R1, Register::R2, in_mount);
    code.load(Size::Double, Register::R1, PATH.at(MOUNT));
    code.operate(Operation::Subtract, Register::R1, types.mount_part);
    code.store(Size::Double, OTHER_NUMBER, Register::R1);
    follow(code, OTHER_NUMBER, types.mount_parent, NUMBER);
    let is_root = code.label();
    code.load(Size::Double, Register::R1, NUMBER);
    code.jump_if(Condition::Equal, Register::R1, 0, labels.unknown);
    code.load(Size::Double, Register::R2, OTHER_NUMBER);
    code.jump_if(Condition::Equal, Register::R1, Register::R2, is_root);
    code.operate(Operation::Add, Register::R1, types.mount_part);
    code.store(Size::Double, PATH.at(MOUNT), Register::R1);
    follow(code, OTHER_NUMBER, types.mount_point, PATH.at(ENTRY));
    follow(code, PATH.at(MOUNT), types.mount_top, PATH.at(TOP));
    code.jump(labels.again);
    code.here(is_root);
    code.load(Size::Double, Register::R1, PATH.at(START));
    code.jump_if(Condition::NotEqual, Register::R1, END, has_text);
    prepend(code, "/", labels.unknown);
    code.here(has_text);
    code.jump(labels.complete);
    code.here(in_mount);
    follow(code, PATH.at(ENTRY), types.entry_parent, NUMBER);
    // If an entry has no parent and is not the root of its mount, it has no path.
    code.load(Size::Double, Register::R1, NUMBER);
    code.load(Size::Double, Register::R2, PATH.at(ENTRY));
    code.jump_if(Condition::Equal, Register::R1, Register::R2, labels.unknown);
    prepend_name(code, types, labels.unknown);
    prepend(code, "/", labels.unknown);
    code.load(Size::Double, Register::R1, NUMBER);
    code.store(Size::Double, PATH.at(ENTRY), Register::R1);
    code.jump(labels.again);
}

/// Writes code that puts a text before the path.
fn prepend(code: &mut Code, text: &str, no_room: Label) {
    let length = text.len() as i32;
    code.load(Size::Double, Register::R1, PATH.at(START));
    code.jump_if(Condition::Greater, Register::R1, END, no_room);
    code.jump_if(Condition::Less, Register::R1, length, no_room);
    code.operate(Operation::Subtract, Register::R1, length);
    code.store(Size::Double, PATH.at(START), Register::R1);
    code.copy(Register::R2, PATH);
    code.operate(Operation::Add, Register::R2, Register::R1);
    for (at, byte) in (TEXT..).zip(text.bytes()) {
        code.store_number(Size::Byte, Register::R2.at(at), byte.into());
    }
}

/// Writes code that puts the name of the entry before the path.
fn prepend_name(code: &mut Code, types: &PathTypes, unknown: Label) {
    code.load(Size::Double, Register::R3, PATH.at(ENTRY));
    code.operate(Operation::Add, Register::R3, types.entry_name);
    read(code, NAME, 16);
    code.load(Size::Word, Register::R4, part_of_name(types.name_length));
    code.jump_if(Condition::Greater, Register::R4, LONGEST_NAME, unknown);
    code.jump_if(Condition::Equal, Register::R4, 0, unknown);
    code.load(Size::Double, Register::R2, PATH.at(START));
    code.operate(Operation::Subtract, Register::R2, Register::R4);
    code.jump_if(Condition::Greater, Register::R2, END, unknown);
    code.store(Size::Double, PATH.at(START), Register::R2);
    code.copy(Register::R1, PATH);
    code.operate(Operation::Add, Register::R1, Register::R2);
    code.operate(Operation::Add, Register::R1, i32::from(TEXT));
    code.copy(Register::R2, Register::R4);
    code.load(Size::Double, Register::R3, part_of_name(types.name_text));
    code.call(BPF_FUNC_PROBE_READ_KERNEL);
    code.jump_if(Condition::NotEqual, Register::R0, 0, unknown);
}

fn part_of_name(offset: i32) -> Place {
    NAME.after(offset as usize)
}

/// Writes code that makes the inode number and a bracket the whole text. It jumps to `too_large` if the number has too many
/// digits.
fn write_number(code: &mut Code, types: &PathTypes, too_large: Label) {
    let done = code.label();
    follow(code, PATH.at(ENTRY), types.entry_inode, NUMBER);
    follow(code, NUMBER, types.inode_number, NUMBER);
    code.store_number(Size::Byte, PATH.at(TEXT + END as i16 - 1), b']'.into());
    code.load(Size::Double, Register::R1, NUMBER);
    for at in (END - 1 - DIGITS..END - 1).rev() {
        code.copy(Register::R2, Register::R1);
        code.operate(Operation::Remainder, Register::R2, 10);
        code.operate(Operation::Add, Register::R2, i32::from(b'0'));
        code.store(Size::Byte, PATH.at(TEXT + at as i16), Register::R2);
        code.store_number(Size::Double, PATH.at(START), at);
        code.operate(Operation::Divide, Register::R1, 10);
        code.jump_if(Condition::Equal, Register::R1, 0, done);
    }
    code.jump(too_large);
    code.here(done);
}
