//! Texts of a fixed size: arrays in the record, and the name of the running task.

use perf_prof_format::{
    abi::bpf::{BPF_FUNC_GET_CURRENT_COMM, TASK_COMM_LEN},
    tracefs::IntType,
};

use super::{CONTEXT, Glob, Number, Outcome};
use crate::instruction::{Code, Condition, Label, Place, Register, Size};

/// The name that programs give to all idle tasks. The kernel's own names contain the CPU: `swapper/1`.
const IDLE: u64 = u64::from_ne_bytes(*b"swapper\0");
/// The start of the kernel's names of idle tasks.
const IDLE_OF_CPU: u64 = u64::from_ne_bytes(*b"swapper/");

/// A text, or an array that is not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// An array of the record.
    Field {
        /// The offset of the array.
        offset: i16,
        /// The size of the array in bytes.
        size: usize,
    },
    /// An array on the stack. Its offset is a multiple of 8.
    Kept {
        /// The distance from the end of the stack, in bytes.
        offset: i16,
        /// The size of the array in bytes.
        size: usize,
    },
    /// The name of the running task.
    Comm,
}

/// A test of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextTest {
    /// The text is equal to these bytes.
    Equal(Vec<u8>),
    /// The text matches this pattern.
    Matches(Glob),
}

impl Text {
    /// Returns how many bytes the text takes in a key.
    pub fn bytes(self) -> usize {
        match self {
            Text::Field { size, .. } | Text::Kept { size, .. } => size.next_multiple_of(8),
            Text::Comm => TASK_COMM_LEN,
        }
    }

    /// Writes code that copies the text to a place on the stack, which is a multiple of 8. Zeros pad the size to a multiple
    /// of 8. Bytes after a NUL are copied too.
    pub fn copy(self, code: &mut Code, to: Place) {
        match self {
            Text::Field { offset, size } => copy_array(code, (CONTEXT.at(offset), size), to),
            Text::Kept { offset, size } => copy_array(code, (Register::Frame.at(offset), size), to),
            Text::Comm => copy_comm(code, to),
        }
    }
}

fn copy_array(code: &mut Code, (from, size): (Place, usize), to: Place) {
    if !size.is_multiple_of(8) {
        code.store_number(Size::Double, to.after(size / 8 * 8), 0);
    }
    let mut done = 0;
    while done < size {
        // The address of a load or store must be a multiple of its size.
        let part = Size::aligned(from.after(done).alignment() | done, size - done);
        code.load(part, Register::R1, from.after(done));
        code.store(part, to.after(done), Register::R1);
        done += part.bytes();
    }
}

fn copy_comm(code: &mut Code, to: Place) {
    code.address(Register::R1, to);
    code.copy(Register::R2, TASK_COMM_LEN as i32);
    code.call(BPF_FUNC_GET_CURRENT_COMM);
    let named = code.label();
    code.load(Size::Double, Register::R1, to);
    code.jump_if_number(Condition::NotEqual, Register::R1, (IDLE_OF_CPU, Register::R2), named);
    // Other tasks may be called `swapper/` too, but only idle tasks have the id 0.
    Number::Thread.load(code, Register::R1);
    code.jump_if(Condition::NotEqual, Register::R1, 0, named);
    code.set(Register::R1, IDLE);
    code.store(Size::Double, to, Register::R1);
    code.store_number(Size::Double, to.after(8), 0);
    code.here(named);
}

impl TextTest {
    /// Writes code that jumps to `to` if the test of the array has the outcome `on`.
    pub fn jump(&self, code: &mut Code, (array, size): (Place, usize), on: Outcome, to: Label) {
        let fails = code.label();
        let on_failure = if on == Outcome::Fails { to } else { fails };
        match self {
            TextTest::Equal(text) => {
                jump_unless_bytes(code, array, text, on_failure);
                // If the text fills the array, no NUL follows.
                if text.len() < size {
                    code.load(Size::Byte, Register::R1, array.after(text.len()));
                    code.jump_if(Condition::NotEqual, Register::R1, 0, on_failure);
                }
            }
            TextTest::Matches(glob) => glob.jump_unless(code, (array, size), on_failure),
        }
        if on == Outcome::Holds {
            code.jump(to);
        }
        code.here(fails);
    }
}

/// Writes code that jumps to `to` unless `place` contains these bytes.
pub(super) fn jump_unless_bytes(code: &mut Code, place: Place, bytes: &[u8], to: Label) {
    let mut done = 0;
    while done < bytes.len() {
        let part = Size::aligned(place.after(done).alignment(), bytes.len() - done);
        let ty = IntType { width: part.bytes() as u8, signed: false };
        // The load succeeds: at least `part` bytes are left.
        let number = ty.load(bytes, done).unwrap_or_default();
        code.load(part, Register::R1, place.after(done));
        code.jump_if_number(Condition::NotEqual, Register::R1, (number, Register::R2), to);
        done += part.bytes();
    }
}
