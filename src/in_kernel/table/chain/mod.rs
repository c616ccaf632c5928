//! Call chains in keys. A program takes the call chain of an event into a buffer of its CPU, and finds the id that stands
//! for the chain.
//!
//! All keys of a hash have the same size, and each lookup reads the whole key. So the words of a chain are divided into
//! segments, and a hash gives each segment an id. The key of a segment contains the id of the segment before it. So the id
//! of the last segment stands for the whole chain: different chains have different ids. The first words of a chain are the
//! process and the length.

mod programs;
mod read;

use perf_prof_format::abi::bpf::{
    BPF_F_USER_STACK, BPF_FUNC_GET_SMP_PROCESSOR_ID, BPF_FUNC_GET_STACK, BPF_FUNC_MAP_LOOKUP_ELEM,
    BPF_FUNC_MAP_UPDATE_ELEM, BPF_NOEXIST,
};

pub use programs::renew_program;
pub use read::{ChainAt, Segments};

use super::{Counters, EXISTS, count_in};
use crate::{
    expression::{CONTEXT, IDS},
    instruction::{Code, Condition, Label, MapUse, Operation, Place, Register, Size},
    lower::{Chains, MOST_FRAMES, PidNamespace, Unsuited},
    select::{SCRATCH, look_up_only},
};

/// The number of words in a segment.
const SEGMENT: usize = 16;
/// The size of a segment's key: the id of the segment before (0 for the first one), and the words.
pub const KEY_BYTES: usize = 8 * (1 + SEGMENT);
/// The size of a segment's value: its id.
pub const VALUE_BYTES: usize = 8;
/// The size of the frames of the longest chain, in bytes. All sizes are multiples of 8, and none has a bit that this size
/// lacks, so this size is also used as a mask.
const MOST_BYTES: i32 = 8 * MOST_FRAMES as i32;

/// The register with the address of the buffer.
const BUFFER: Register = Register::R7;
/// The offsets in the buffer: the last id that the CPU gave, the id for a new segment, and the key of the first segment.
const LAST_ID: i16 = 0;
const NEW_ID: i16 = 8;
const FIRST_KEY: i16 = 16;
/// The offset of the first word, which contains the process, the size of all frames, and the size of the kernel's frames.
const LENGTHS: i16 = FIRST_KEY + 8;
/// The offset of the time at which the process got its present mappings; 0 if it was before the run.
const SINCE: i16 = LENGTHS + 8;
/// The offset of the frames.
const FRAMES: i16 = SINCE + 8;
/// The number of words before the frames.
const HEADER: usize = 2;
/// The size of the buffer. The verifier assumes that frames of a process may start after the maximum number of kernel
/// frames.
pub const BUFFER_BYTES: usize = FRAMES as usize + 2 * MOST_BYTES as usize;

/// The distance between two ids of a CPU. It is larger than the number of any CPU, so no two CPUs give the same id.
const ID_STEP: i32 = 1 << 16;

/// Fails if programs cannot take these chains.
pub fn check(chains: Option<Chains>, ids: PidNamespace) -> Result<Chains, Unsuited> {
    match chains {
        None => Err(Unsuited::Unwound),
        Some(Chains { most, .. }) if most > MOST_FRAMES => Err(Unsuited::DeepChain(most)),
        Some(Chains { user: true, .. }) if ids == PidNamespace::Other => Err(Unsuited::PidNamespace),
        Some(chains) => Ok(chains),
    }
}

/// Writes code that stores the id of the event's call chain at `id` on the stack. It jumps to `refused` if the hash of
/// segments is full. Changes `R7` and `SCRATCH`.
pub fn write(code: &mut Code, chains: Chains, id: Place, refused: Label) {
    look_up_only(code, MapUse::Chain);
    code.jump_if(Condition::Equal, Register::R0, 0, refused);
    code.copy(BUFFER, Register::R0);
    take(code, chains, refused);
    code.map(Register::R1, MapUse::Segments);
    code.address(Register::R2, SCRATCH.base.at(SCRATCH.offset + 4));
    code.store_number(Size::Word, SCRATCH.base.at(SCRATCH.offset + 4), 0);
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
    code.jump_if(Condition::Equal, Register::R0, 0, refused);
    // Until the id is found, the place `id` contains the address of the hash.
    code.store(Size::Double, id, Register::R0);
    find_id(code, chains, id, refused);
    code.store(Size::Double, id, Register::R0);
}

/// Writes code that takes the frames into the buffer, with the words before them and zeros after them. The lower half of
/// `SCRATCH` gets the size of the frames.
fn take(code: &mut Code, Chains { kernel, user, most }: Chains, refused: Label) {
    let most = 8 * i32::from(most);
    code.copy(Register::R0, 0);
    if kernel {
        code.copy(Register::R3, most);
        code.address(Register::R2, BUFFER.at(FRAMES));
        get_stack(code, 0, most);
    }
    // No other program runs on this CPU at the same time, so the code can keep numbers in the CPU's buffer.
    code.store(Size::Double, BUFFER.at(LENGTHS), Register::R0);
    if user {
        let (no_room, taken) = (code.label(), code.label());
        code.copy(Register::R3, most);
        code.operate(Operation::Subtract, Register::R3, Register::R0);
        code.copy(Register::R2, BUFFER);
        code.operate(Operation::Add, Register::R2, i32::from(FRAMES));
        code.operate(Operation::Add, Register::R2, Register::R0);
        code.jump_if(Condition::Equal, Register::R3, 0, no_room);
        get_stack(code, BPF_F_USER_STACK, most);
        code.jump(taken);
        code.here(no_room);
        code.copy(Register::R0, 0);
        code.here(taken);
    } else {
        code.copy(Register::R0, 0);
    }
    note_process(code, user, refused);
    code.copy(Register::R1, BUFFER);
    code.operate(Operation::Add, Register::R1, Register::R0);
    for word in 0..SEGMENT as i16 - 1 {
        code.store_number(Size::Double, Register::R1.at(FRAMES + 8 * word), 0);
    }
}

/// Writes code that copies frames to the address in `R2`, and sets `R0` to their size in bytes. If the kernel cannot follow
/// the stack, there are no frames, as in a sample.
fn get_stack(code: &mut Code, flags: u64, most: i32) {
    let fits = code.label();
    code.copy(Register::R1, CONTEXT);
    code.set(Register::R4, flags);
    code.call(BPF_FUNC_GET_STACK);
    // An error is negative, so it is large as an unsigned number.
    code.jump_if(Condition::LessOrEqual, Register::R0, most, fits);
    code.copy(Register::R0, 0);
    code.here(fits);
    code.operate(Operation::And, Register::R0, MOST_BYTES);
}

/// Writes code that writes the words before the frames. Before this code, `R0` is the size of the process's frames, and
/// after it, `R0` is the size of all frames. A chain without frames of a process is the same for all processes.
fn note_process(code: &mut Code, has_user: bool, refused: Label) {
    code.load(Size::Double, Register::R1, BUFFER.at(LENGTHS));
    code.store_number(Size::Double, BUFFER.at(SINCE), 0);
    code.store_number(Size::Double, BUFFER.at(FIRST_KEY), 0);
    let only_kernel = code.label();
    code.copy(Register::R2, Register::R1);
    code.operate(Operation::Add, Register::R1, Register::R0);
    // The test always succeeds. The verifier needs it, because it does not track numbers in the buffer.
    code.jump_if(Condition::Greater, Register::R1, MOST_BYTES, refused);
    code.operate(Operation::And, Register::R1, MOST_BYTES);
    code.copy(Register::R3, Register::R1);
    code.operate(Operation::ShiftLeft, Register::R3, 16);
    code.operate(Operation::Or, Register::R2, Register::R3);
    code.store(Size::Word, SCRATCH, Register::R1);
    if has_user {
        code.jump_if(Condition::Equal, Register::R0, 0, only_kernel);
        code.copy(Register::R3, IDS);
        code.operate(Operation::ShiftRight, Register::R3, 32);
        code.store(Size::Word, SCRATCH.base.at(SCRATCH.offset + 4), Register::R3);
        code.operate(Operation::ShiftLeft, Register::R3, 32);
        code.operate(Operation::Or, Register::R2, Register::R3);
    }
    code.here(only_kernel);
    code.store(Size::Double, BUFFER.at(LENGTHS), Register::R2);
    if has_user {
        let unchanged = code.label();
        code.jump_if(Condition::Equal, Register::R0, 0, unchanged);
        code.map(Register::R1, MapUse::Since);
        code.address(Register::R2, SCRATCH.base.at(SCRATCH.offset + 4));
        code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
        code.jump_if(Condition::Equal, Register::R0, 0, unchanged);
        code.load(Size::Double, Register::R1, Register::R0.at(0));
        code.store(Size::Double, BUFFER.at(SINCE), Register::R1);
        code.here(unchanged);
    }
    code.load(Size::Word, Register::R0, SCRATCH);
    code.operate(Operation::And, Register::R0, MOST_BYTES);
}

/// Writes code that sets `R0` to the id of the chain in the buffer. The place `hash` contains the hash of segments.
fn find_id(code: &mut Code, Chains { most, .. }: Chains, hash: Place, refused: Label) {
    let found = code.label();
    let segments = (HEADER + usize::from(most)).div_ceil(SEGMENT);
    for segment in 0..segments {
        let key = BUFFER.at(FIRST_KEY + (8 * SEGMENT * segment) as i16);
        find_segment(code, key, hash, refused);
        if segment + 1 < segments {
            code.load(Size::Word, Register::R1, SCRATCH);
            let frames_so_far = SEGMENT * (segment + 1) - HEADER;
            code.jump_if(Condition::LessOrEqual, Register::R1, 8 * frames_so_far as i32, found);
            // The id replaces the last word, which is no longer needed.
            code.store(Size::Double, BUFFER.at(key.offset + 8 * SEGMENT as i16), Register::R0);
        }
    }
    code.here(found);
}

/// Writes code that sets `R0` to the id of a segment. A new segment gets a new id.
fn find_segment(code: &mut Code, key: Place, hash: Place, refused: Label) {
    let (known, found) = (code.label(), code.label());
    look_up(code, key, hash);
    code.jump_if(Condition::NotEqual, Register::R0, 0, known);
    code.call(BPF_FUNC_GET_SMP_PROCESSOR_ID);
    code.load(Size::Double, Register::R1, BUFFER.at(LAST_ID));
    code.operate(Operation::Add, Register::R1, ID_STEP);
    code.store(Size::Double, BUFFER.at(LAST_ID), Register::R1);
    code.operate(Operation::Or, Register::R1, Register::R0);
    code.store(Size::Double, BUFFER.at(NEW_ID), Register::R1);
    code.load(Size::Double, Register::R1, hash);
    code.address(Register::R2, key);
    code.address(Register::R3, BUFFER.at(NEW_ID));
    code.set(Register::R4, BPF_NOEXIST);
    code.call(BPF_FUNC_MAP_UPDATE_ELEM);
    let (is_new, exists) = (code.label(), code.label());
    code.jump_if(Condition::Equal, Register::R0, 0, is_new);
    code.copy(Register::R1, EXISTS);
    code.jump_if(Condition::Equal, Register::R0, Register::R1, exists);
    code.jump(refused);
    code.here(exists);
    look_up(code, key, hash);
    code.jump_if(Condition::Equal, Register::R0, 0, refused);
    code.jump(known);
    code.here(is_new);
    count_in(code, Counters::SEGMENTS);
    code.load(Size::Double, Register::R0, BUFFER.at(NEW_ID));
    code.jump(found);
    code.here(known);
    code.load(Size::Double, Register::R0, Register::R0.at(0));
    code.here(found);
}

fn look_up(code: &mut Code, key: Place, hash: Place) {
    code.load(Size::Double, Register::R1, hash);
    code.address(Register::R2, key);
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
}

#[cfg(test)]
mod tests;
