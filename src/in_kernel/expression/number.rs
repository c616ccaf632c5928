//! Numbers that a program can load.

use perf_prof_format::{abi::bpf::BPF_FUNC_GET_SMP_PROCESSOR_ID, tracefs::IntType};

use super::{CONTEXT, IDS};
use crate::instruction::{Code, Condition, Operation, Register, Size};

/// A 64-bit number. Narrower fields are extended with zeros or with their sign, as their type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A field of the record. Its offset is a multiple of its width.
    Field {
        /// The offset of the field.
        offset: i16,
        /// The type of the field.
        ty: IntType,
    },
    /// A byte of the record. Any value except 0 becomes 1.
    Bool {
        /// The offset of the byte.
        offset: i16,
    },
    /// Some bits of a field.
    Bits {
        /// The offset of the field.
        offset: i16,
        /// The type of the field.
        ty: IntType,
        /// A mask of the bits. The highest bit of the mask is never set.
        bits: u32,
    },
    /// A constant.
    Constant(u64),
    /// A number on the stack, which the program has extended to 64 bits.
    Kept {
        /// The distance from the end of the stack, in bytes.
        offset: i16,
        /// Whether the number can be negative.
        is_signed: bool,
        /// Whether the number can need more than 32 bits.
        is_wide: bool,
    },
    /// The process id of the running task, in the initial PID namespace.
    Process,
    /// The thread id of the running task, in the initial PID namespace.
    Thread,
    /// The number of the CPU on which the program runs.
    Cpu,
}

impl Number {
    /// Returns whether the number can be negative.
    pub fn is_signed(self) -> bool {
        match self {
            Number::Field { ty, .. } => ty.signed,
            Number::Kept { is_signed, .. } => is_signed,
            _ => false,
        }
    }

    /// Returns whether the number can need more than 32 bits.
    pub fn is_wide(self) -> bool {
        match self {
            Number::Field { ty, .. } => ty.width > 4,
            Number::Constant(number) => number > u32::MAX.into(),
            Number::Kept { is_wide, .. } => is_wide,
            Number::Bits { .. } | Number::Bool { .. } | Number::Process | Number::Thread | Number::Cpu => false,
        }
    }

    /// Writes code that puts the number into a register.
    pub fn load(self, code: &mut Code, to: Register) {
        match self {
            Number::Field { offset, ty } => {
                let size = Size::aligned(0, ty.width.into());
                code.load(size, to, CONTEXT.at(offset));
                let unused = 64 - 8 * i32::from(ty.width);
                if ty.signed && unused != 0 {
                    code.operate(Operation::ShiftLeft, to, unused);
                    code.operate(Operation::ShiftRightSigned, to, unused);
                }
            }
            Number::Bits { offset, ty, bits } => {
                code.load(Size::aligned(0, ty.width.into()), to, CONTEXT.at(offset));
                code.operate(Operation::And, to, bits as i32);
            }
            Number::Bool { offset } => {
                code.load(Size::Byte, to, CONTEXT.at(offset));
                let is_false = code.label();
                code.jump_if(Condition::Equal, to, 0, is_false);
                code.copy(to, 1);
                code.here(is_false);
            }
            Number::Constant(number) => code.set(to, number),
            Number::Kept { offset, .. } => code.load(Size::Double, to, Register::Frame.at(offset)),
            Number::Process => {
                code.copy(to, IDS);
                code.operate(Operation::ShiftRight, to, 32);
            }
            Number::Thread => {
                code.copy(to, IDS);
                code.operate(Operation::ShiftLeft, to, 32);
                code.operate(Operation::ShiftRight, to, 32);
            }
            Number::Cpu => {
                code.call(BPF_FUNC_GET_SMP_PROCESSOR_ID);
                code.copy(to, Register::R0);
            }
        }
    }
}
