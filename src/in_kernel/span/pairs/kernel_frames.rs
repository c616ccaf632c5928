//! The kernel's frames in the call chains of system calls. They are the same for all calls of 64-bit programs, so each program
//! notes them once, and no call pays for them.

use perf_prof_format::abi::bpf::{BPF_FUNC_GET_STACK, BPF_FUNC_PROBE_READ_KERNEL};

use super::RAW;
use crate::{
    instruction::{Code, Condition, MapUse, Operation, Register, Size},
    select::SCRATCH,
    span::{
        SpanCounters,
        system_call::{Registers, SystemCall},
    },
};

/// The maximum number of noted frames. Those of the programs come first, and some seven in all are usual.
const MOST: usize = 16;
/// The number of words for a tracepoint: the size of the frames in bytes, and the frames.
const WORDS: usize = 1 + MOST;

/// Whether programs note the kernel's frames in which calls begin and end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelFrames {
    /// They note them, after the counters.
    Noted,
    /// Nobody needs them.
    #[default]
    NotNeeded,
}

impl KernelFrames {
    /// The number of words of the counters and the noted frames.
    pub const ALL_WORDS: usize = SpanCounters::ALL_WORDS + 2 * WORDS;

    /// Writes code that notes the frames, unless that was done. 32-bit programs enter the kernel in other ways. New tasks, and
    /// programs that were just executed, may come to the end of a call in other ways; the result of their calls is 0.
    pub(super) fn note(self, code: &mut Code, call: SystemCall) {
        if self == KernelFrames::NotNeeded {
            return;
        }
        let done = code.label();
        let at = 8 * first_word(call) as i16;
        code.map(Register::R1, MapUse::Counters);
        code.load(Size::Double, Register::R1, Register::R1.at(at));
        code.jump_if(Condition::NotEqual, Register::R1, 0, done);
        if call == SystemCall::Exit {
            code.load(Size::Double, Register::R1, RAW.at(8));
            code.jump_if(Condition::Equal, Register::R1, 0, done);
        }
        code.address(Register::R1, SCRATCH);
        code.copy(Register::R2, 8);
        code.load(Size::Double, Register::R3, RAW.at(0));
        code.operate(Operation::Add, Register::R3, i32::from(Registers::CS));
        code.call(BPF_FUNC_PROBE_READ_KERNEL);
        code.load(Size::Half, Register::R1, SCRATCH);
        code.jump_if(Condition::Equal, Register::R1, Registers::USER32_CS, done);
        code.copy(Register::R1, RAW);
        code.map(Register::R2, MapUse::Counters);
        code.operate(Operation::Add, Register::R2, i32::from(at) + 8);
        code.copy(Register::R3, 8 * MOST as i32);
        code.copy(Register::R4, 0);
        code.call(BPF_FUNC_GET_STACK);
        code.jump_if(Condition::LessOrEqualSigned, Register::R0, 0, done);
        code.map(Register::R1, MapUse::Counters);
        code.store(Size::Double, Register::R1.at(at), Register::R0);
        code.here(done);
    }

    /// Returns the frames in which calls begin and end, innermost first. `word` returns a word of the counters. Frames that
    /// are not known are missing.
    pub fn noted(word: impl Fn(usize) -> u64) -> [Vec<u64>; 2] {
        [SystemCall::Enter, SystemCall::Exit].map(|call| {
            let first = first_word(call);
            let count = usize::try_from(word(first) / 8).unwrap_or(MOST).min(MOST);
            (first + 1..).take(count).map(&word).collect()
        })
    }
}

fn first_word(call: SystemCall) -> usize {
    let at = if call == SystemCall::Enter { 0 } else { WORDS };
    SpanCounters::ALL_WORDS + at
}
