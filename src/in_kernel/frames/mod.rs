//! Code that reads the frames of an interpreter, such as Python's, from the memory of the process. One loop first looks for
//! the thread, and then follows the thread's frames. The process cannot be trusted. So whatever its memory contains, the
//! loop has at most `MOST_TURNS` turns, and reads that fail give zeros.
//!
//! All state is in memory, so the verifier sees the same state in all turns. If the kernel's iterator counts the turns, the
//! verifier checks the loop once.

mod thread_id;

pub use thread_id::IdOffsets;
use thread_id::store_thread_id;

use perf_prof_format::{
    abi::bpf::{
        BPF_FUNC_GET_CURRENT_PID_TGID, BPF_FUNC_MAP_LOOKUP_ELEM, BPF_FUNC_PROBE_READ_KERNEL, BPF_FUNC_PROBE_READ_USER,
    },
    tracefs::{
        FramesState, INSTRUCTION_BITS, INTERPRETER_FRAME_BYTES, INTERPRETER_HEADER_BYTES, MOST_INTERPRETER_FRAMES,
    },
};
use perf_prof_symbols::runtime::{Walk, WalkWord};

use crate::{
    expression::IDS,
    instruction::{Code, Condition, Instruction, Label, MapUse, Operation, Place, Register, Size},
    paths::{NumberIterator, Turns},
    select::{SCRATCH, look_up_only},
};

/// The maximum size of all frames with their header, in bytes.
pub const LARGEST_FRAMES: usize = INTERPRETER_HEADER_BYTES + MOST_INTERPRETER_FRAMES * INTERPRETER_FRAME_BYTES;
/// The size of a value of the map into which frames are read, in bytes.
pub const FRAMES_BYTES: usize = FRAMES as usize + LARGEST_FRAMES;
/// How many values the maps of a program have on each CPU if the program can be preempted: see `take_value`. The program counts events
/// that find none.
pub const PREEMPTED_VALUES: u32 = 8;

/// The maximum number of turns of the loop: one for each thread and each interpreter that it looks at, and one for each
/// frame.
const MOST_TURNS: i32 = 256 + MOST_INTERPRETER_FRAMES as i32;

/// The register with the address of the process's [`Walk`].
const WALK: Register = Register::R7;
/// The register with the address of the map value into which frames are read.
const MEMORY: Register = Register::R8;
/// The register with the number of turns, on kernels without iterators.
const TURNS: Register = Register::R9;
/// The place on the stack that holds the address of the map value; 0 if there are no frames.
const KEPT_MEMORY: Place = Place { base: Register::Frame, offset: -104 };
/// The place of the iterator on the stack.
const ITERATOR: Place = Place { base: Register::Frame, offset: -112 };
/// The place on the stack that holds the index of the map values that this run of the program uses: see [`take_value`].
const VALUE_INDEX: Place = Place { base: Register::Frame, offset: -120 };
/// The place on the stack that holds the address of the map value whose mark `TAKEN` the program has set.
const KEPT_VALUE: Place = Place { base: Register::Frame, offset: -128 };

// The map value whose address is in `KEPT_MEMORY`: the pointers that are followed, the state of the loop (`COUNT`,
// `PHASE`), whether a program uses the value (`TAKEN`), copies of the process's memory (`BLOCK`, `COPY`), and what goes
// into the record (`HEADER`, `FRAMES`).
const INTERPRETER: Place = MEMORY.at(0);
const THREAD: Place = MEMORY.at(8);
const THREAD_ID: Place = MEMORY.at(16);
const FRAME: Place = MEMORY.at(24);
const VALUE: Place = MEMORY.at(32);
const COUNT: Place = MEMORY.at(40);
const PHASE: Place = MEMORY.at(48);
const TAKEN: Place = MEMORY.at(56);
/// The index of this map value among the map values of the CPU.
const INDEX: Place = MEMORY.at(88);
/// The address of the memory of which `BLOCK` is a copy, and the distance from this address to the last frame that is
/// wholly in the block.
const BLOCK_START: Place = MEMORY.at(64);
const BLOCK_REACH: Place = MEMORY.at(72);
/// The address of the memory of which `COPY` is a copy.
const COPIED: Place = MEMORY.at(80);
/// The interpreter puts most frames of a thread into blocks of memory, next to each other, callers first. So one read gets
/// several frames.
const BLOCK: i16 = 96;
const BLOCK_BYTES: i16 = 1024;
/// The distance from the start of the block to a frame that ends where the block ends, in bytes.
const REACH: i32 = BLOCK_BYTES as i32 - Walk::FRAME_BYTES as i32;
/// The copy of a part of a code object, from the object's version on. Between the block and the copy is room for the
/// largest offset that `load_of_frame` can use.
const COPY: i16 = BLOCK + BLOCK_BYTES + 128;
const HEADER: i16 = COPY + Walk::CODE_BYTES as i16 + 64;
const FRAMES: i16 = HEADER + INTERPRETER_HEADER_BYTES as i16;

/// The values of `PHASE`: the thread is looked for, or its frames are followed.
const SEARCH: i32 = 0;
const FOLLOW: i32 = 1;

/// Which of a map's values on the CPU a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueUse {
    /// The only one. The program is not preempted.
    Only,
    /// The one that [`take_value`] found.
    Taken,
}

impl ValueUse {
    /// Writes code that sets `R0` to the address of the value. The verifier requires that the code then tests `R0` for 0.
    pub fn look_up(self, code: &mut Code, map: MapUse) {
        match self {
            ValueUse::Only => look_up_only(code, map),
            ValueUse::Taken => {
                code.map(Register::R1, map);
                code.address(Register::R2, VALUE_INDEX);
                code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
            }
        }
    }
}

/// Writes code that finds a map value that no other task uses. If there is none, the code jumps to `none`. Since Linux 6.0,
/// the kernel may preempt programs of uprobes, and run the same program for another task on the CPU
/// (`bpf_prog_run_array_uprobe()` in include/linux/bpf.h).
pub(crate) fn take_value(code: &mut Code, none: Label) {
    let taken = code.label();
    for index in 0..PREEMPTED_VALUES {
        let next = code.label();
        code.store_number(Size::Word, VALUE_INDEX, index as i32);
        ValueUse::Taken.look_up(code, MapUse::Frames);
        code.jump_if(Condition::Equal, Register::R0, 0, next);
        code.copy(Register::R1, Register::R0);
        code.store_number(Size::Double, Register::R1.at(INDEX.offset), index as i32);
        code.copy(Register::R0, 0);
        code.copy(Register::R2, 1);
        code.push(Instruction::CompareExchange(Register::R1.at(TAKEN.offset), Register::R2));
        code.jump_if(Condition::Equal, Register::R0, 0, taken);
        code.here(next);
    }
    code.jump(none);
    code.here(taken);
    code.store(Size::Double, KEPT_VALUE, Register::R1);
    // The index is loaded from memory, because the verifier would check the code that follows once for each index that it
    // knows.
    code.load(Size::Double, Register::R2, Register::R1.at(INDEX.offset));
    code.store(Size::Word, VALUE_INDEX, Register::R2);
}

/// Writes code that lets other tasks use the map value again.
pub(crate) fn leave_value(code: &mut Code) {
    code.load(Size::Double, Register::R1, KEPT_VALUE);
    code.store_number(Size::Double, Register::R1.at(TAKEN.offset), 0);
}

/// Writes the code that reads the frames of the running task. `IDS` has the task's ids before and after. Registers other
/// than [`crate::expression::CONTEXT`] are lost.
pub(crate) fn read_frames(code: &mut Code, iterator: Option<NumberIterator>, value: ValueUse) {
    let [none, done, again, follow] = std::array::from_fn(|_| code.label());
    code.store_number(Size::Double, KEPT_MEMORY, 0);
    code.copy(Register::R1, IDS);
    code.operate(Operation::ShiftRight, Register::R1, 32);
    code.store(Size::Word, SCRATCH, Register::R1);
    code.map(Register::R1, MapUse::Interpreters);
    code.address(Register::R2, SCRATCH);
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
    code.jump_if(Condition::Equal, Register::R0, 0, none);
    code.copy(WALK, Register::R0);
    value.look_up(code, MapUse::Frames);
    code.jump_if(Condition::Equal, Register::R0, 0, none);
    code.copy(MEMORY, Register::R0);
    code.store(Size::Double, KEPT_MEMORY, Register::R0);
    store_thread_id(code);
    code.load(Size::Double, Register::R1, word(WalkWord::Number));
    code.operate(Operation::ShiftLeft, Register::R1, 32);
    code.store(Size::Double, MEMORY.at(HEADER), Register::R1);
    let from_zero = [THREAD, FRAME, COUNT, BLOCK_START, BLOCK_REACH, COPIED];
    from_zero.iter().for_each(|&place| code.store_number(Size::Double, place, 0));
    code.store_number(Size::Double, PHASE, SEARCH);
    set_state(code, FramesState::NoThread);
    code.load(Size::Double, Register::R3, word(WalkWord::Interpreters));
    read_word(code, INTERPRETER);
    let turns = Turns { iterator, place: ITERATOR, register: TURNS, most: MOST_TURNS };
    turns.begin(code);
    code.here(again);
    turns.next(code, done);
    code.load(Size::Double, Register::R1, PHASE);
    code.jump_if(Condition::Equal, Register::R1, FOLLOW, follow);
    search_thread(code, again, done);
    code.here(follow);
    follow_frame(code, again, done);
    code.here(done);
    turns.end(code);
    code.here(none);
    code.call(BPF_FUNC_GET_CURRENT_PID_TGID);
    code.copy(IDS, Register::R0);
}

/// Writes the code of a turn that looks at a thread, or at an interpreter's list of threads.
fn search_thread(code: &mut Code, again: Label, done: Label) {
    let [is_thread, is_found, in_thread, has_holder, has_frame] = std::array::from_fn(|_| code.label());
    code.load(Size::Double, Register::R1, THREAD);
    code.jump_if(Condition::NotEqual, Register::R1, 0, is_thread);
    code.load(Size::Double, Register::R1, INTERPRETER);
    code.jump_if(Condition::Equal, Register::R1, 0, done);
    follow_word(code, INTERPRETER, WalkWord::Threads, THREAD);
    follow_word(code, INTERPRETER, WalkWord::NextInterpreter, INTERPRETER);
    code.jump(again);
    code.here(is_thread);
    follow_word(code, THREAD, WalkWord::ThreadId, VALUE);
    code.load(Size::Double, Register::R1, VALUE);
    code.load(Size::Double, Register::R2, THREAD_ID);
    code.jump_if(Condition::Equal, Register::R1, Register::R2, is_found);
    follow_word(code, THREAD, WalkWord::NextThread, THREAD);
    code.jump(again);
    code.here(is_found);
    code.load(Size::Double, Register::R1, word(WalkWord::Holder));
    code.set(Register::R2, Walk::ITSELF);
    code.jump_if(Condition::Equal, Register::R1, Register::R2, in_thread);
    follow_word(code, THREAD, WalkWord::Holder, VALUE);
    code.jump(has_holder);
    code.here(in_thread);
    code.load(Size::Double, Register::R1, THREAD);
    code.store(Size::Double, VALUE, Register::R1);
    code.here(has_holder);
    follow_word(code, VALUE, WalkWord::Current, FRAME);
    code.load(Size::Double, Register::R1, FRAME);
    code.jump_if(Condition::NotEqual, Register::R1, 0, has_frame);
    // The thread may be listed a second time, by another interpreter of the process.
    set_state(code, FramesState::Complete);
    follow_word(code, THREAD, WalkWord::NextThread, THREAD);
    code.jump(again);
    code.here(has_frame);
    code.store_number(Size::Double, PHASE, FOLLOW);
    // If the turns are used up before the last frame, frames are missing.
    set_state(code, FramesState::Cut);
    code.jump(again);
}

/// Writes the code of a turn that adds a frame, and goes to the frame of its caller.
fn follow_frame(code: &mut Code, again: Label, done: Label) {
    let [has_room, has_frame] = std::array::from_fn(|_| code.label());
    code.load(Size::Double, Register::R1, FRAME);
    code.jump_if(Condition::NotEqual, Register::R1, 0, has_frame);
    set_state(code, FramesState::Complete);
    code.jump(done);
    code.here(has_frame);
    code.load(Size::Double, Register::R1, COUNT);
    code.jump_if(Condition::Less, Register::R1, MOST_INTERPRETER_FRAMES as i32, has_room);
    set_state(code, FramesState::Cut);
    code.jump(done);
    code.here(has_room);
    find_frame(code, done);
    load_of_frame(code, WalkWord::Previous, Size::Double);
    code.store(Size::Double, FRAME, Register::R2);
    load_of_frame(code, WalkWord::Mark, Size::Byte);
    code.operate(Operation::ShiftLeft, Register::R2, INSTRUCTION_BITS as i32);
    code.copy(Register::R3, Register::R2);
    load_of_frame(code, WalkWord::Instruction, Size::Double);
    code.operate(Operation::ShiftLeft, Register::R2, 64 - INSTRUCTION_BITS as i32);
    code.operate(Operation::ShiftRight, Register::R2, 64 - INSTRUCTION_BITS as i32);
    code.operate(Operation::Or, Register::R3, Register::R2);
    load_of_frame(code, WalkWord::Code, Size::Double);
    load_place_in_record(code, done);
    code.store(Size::Double, Register::R1.at(0), Register::R2);
    code.store(Size::Double, Register::R1.at(8), Register::R3);
    copy_code(code);
    load_place_in_record(code, done);
    code.load(Size::Double, Register::R2, word(WalkWord::Identity));
    code.load(Size::Double, Register::R3, word(WalkWord::Version));
    code.operate(Operation::Subtract, Register::R2, Register::R3);
    code.operate(Operation::And, Register::R2, 0x3f);
    code.copy(Register::R3, MEMORY);
    code.operate(Operation::Add, Register::R3, Register::R2);
    for (from, to) in [(Register::R3.at(COPY), 16), (Register::R3.at(COPY + 8), 24), (MEMORY.at(COPY), 32)] {
        code.load(Size::Double, Register::R2, from);
        code.store(Size::Double, Register::R1.at(to), Register::R2);
    }
    code.load(Size::Double, Register::R1, COUNT);
    code.operate(Operation::Add, Register::R1, 1);
    code.store(Size::Double, COUNT, Register::R1);
    code.jump(again);
}

/// Writes the code that sets `R5` to the address of the copy of the current frame, minus `BLOCK`. The code reads the memory
/// around the frame unless the block contains the frame already.
fn find_frame(code: &mut Code, done: Label) {
    let [is_read, is_found] = std::array::from_fn(|_| code.label());
    code.load(Size::Double, Register::R5, FRAME);
    code.load(Size::Double, Register::R1, BLOCK_START);
    code.operate(Operation::Subtract, Register::R5, Register::R1);
    code.load(Size::Double, Register::R1, BLOCK_REACH);
    code.jump_if(Condition::LessOrEqual, Register::R5, Register::R1, is_found);
    // The frames of the callers are before this frame, so read the memory that ends with this frame.
    code.load(Size::Double, Register::R3, FRAME);
    code.operate(Operation::Subtract, Register::R3, REACH);
    code.store(Size::Double, BLOCK_START, Register::R3);
    code.store_number(Size::Double, BLOCK_REACH, REACH);
    code.address(Register::R1, MEMORY.at(BLOCK));
    code.copy(Register::R2, i32::from(BLOCK_BYTES));
    code.call(BPF_FUNC_PROBE_READ_USER);
    code.copy(Register::R5, REACH);
    code.jump_if(Condition::Equal, Register::R0, 0, is_read);
    // The memory before the frame cannot be read, so read only the frame.
    code.load(Size::Double, Register::R3, FRAME);
    code.store(Size::Double, BLOCK_START, Register::R3);
    code.store_number(Size::Double, BLOCK_REACH, 0);
    code.address(Register::R1, MEMORY.at(BLOCK));
    code.copy(Register::R2, Walk::FRAME_BYTES as i32);
    code.call(BPF_FUNC_PROBE_READ_USER);
    code.copy(Register::R5, 0);
    code.jump_if(Condition::Equal, Register::R0, 0, is_read);
    set_state(code, FramesState::Unreadable);
    code.jump(done);
    // The verifier does not know what `BLOCK_REACH` holds.
    code.here(is_found);
    code.jump_if(Condition::Greater, Register::R5, REACH, done);
    code.here(is_read);
    code.operate(Operation::Add, Register::R5, MEMORY);
}

/// Writes the code that makes `COPY` a copy of the code object whose tagged address is in `R2`, from the object's version
/// on. Most chains with many frames have the same function several times in a row, which the code copies once.
fn copy_code(code: &mut Code) {
    let is_copied = code.label();
    code.operate(Operation::And, Register::R2, !7);
    code.load(Size::Double, Register::R3, word(WalkWord::Version));
    code.operate(Operation::Add, Register::R3, Register::R2);
    code.load(Size::Double, Register::R1, COPIED);
    code.jump_if(Condition::Equal, Register::R1, Register::R3, is_copied);
    code.store(Size::Double, COPIED, Register::R3);
    code.address(Register::R1, MEMORY.at(COPY));
    code.copy(Register::R2, Walk::CODE_BYTES as i32);
    code.call(BPF_FUNC_PROBE_READ_USER);
    code.here(is_copied);
}

/// Writes the code that sets `R1` to the place of the current frame in the record. The code tests the number of the frame
/// again, because the verifier does not track numbers in memory.
fn load_place_in_record(code: &mut Code, done: Label) {
    code.load(Size::Double, Register::R1, COUNT);
    code.jump_if(Condition::GreaterOrEqual, Register::R1, MOST_INTERPRETER_FRAMES as i32, done);
    code.operate(Operation::Multiply, Register::R1, INTERPRETER_FRAME_BYTES as i32);
    code.operate(Operation::Add, Register::R1, MEMORY);
    code.operate(Operation::Add, Register::R1, i32::from(FRAMES));
}

/// Writes the code that puts the frames at the end of a record, and stores their place at `offset` of the record. The
/// record has room for the frames.
pub(crate) fn write_frames(code: &mut Code, record: Register, length: Register, offset: usize) {
    let done = code.label();
    let location = record.at(offset as i16);
    code.load(Size::Double, Register::R3, KEPT_MEMORY);
    code.jump_if(Condition::Equal, Register::R3, 0, done);
    code.load(Size::Double, Register::R2, Register::R3.at(COUNT.offset));
    code.jump_if(Condition::Greater, Register::R2, MOST_INTERPRETER_FRAMES as i32, done);
    code.operate(Operation::Multiply, Register::R2, INTERPRETER_FRAME_BYTES as i32);
    code.operate(Operation::Add, Register::R2, INTERPRETER_HEADER_BYTES as i32);
    code.copy(Register::R1, Register::R2);
    code.operate(Operation::ShiftLeft, Register::R1, 16);
    code.operate(Operation::Or, Register::R1, length);
    code.store(Size::Word, location, Register::R1);
    code.operate(Operation::Add, Register::R3, i32::from(HEADER));
    code.copy(Register::R1, record);
    code.operate(Operation::Add, Register::R1, length);
    // The size is added first, because a call loses it.
    code.operate(Operation::Add, length, Register::R2);
    code.call(BPF_FUNC_PROBE_READ_KERNEL);
    code.here(done);
}

/// Returns the place of a word of the process's [`Walk`].
fn word(word: WalkWord) -> Place {
    WALK.at(8 * word as i16)
}

/// Writes the code that reads 8 bytes of the process from the address in `R3`. What cannot be read becomes 0.
fn read_word(code: &mut Code, to: Place) {
    code.address(Register::R1, to);
    code.copy(Register::R2, 8);
    code.call(BPF_FUNC_PROBE_READ_USER);
}

/// Writes the code that reads 8 bytes of the process, at `distance` from the address in `from`.
fn follow_word(code: &mut Code, from: Place, distance: WalkWord, to: Place) {
    code.load(Size::Double, Register::R3, from);
    code.load(Size::Double, Register::R1, word(distance));
    code.operate(Operation::Add, Register::R3, Register::R1);
    read_word(code, to);
}

/// Writes the code that loads a part of the copied frame to `R2`. `R5` has the value that [`find_frame`] sets. The code
/// overwrites `R1` and `R4`.
fn load_of_frame(code: &mut Code, part: WalkWord, size: Size) {
    code.load(Size::Double, Register::R1, word(part));
    code.operate(Operation::And, Register::R1, if size == Size::Byte { 0x7f } else { 0x78 });
    code.copy(Register::R4, Register::R5);
    code.operate(Operation::Add, Register::R4, Register::R1);
    code.load(size, Register::R2, Register::R4.at(BLOCK));
}

fn set_state(code: &mut Code, state: FramesState) {
    code.store_number(Size::Byte, MEMORY.at(HEADER), state as i32);
}
