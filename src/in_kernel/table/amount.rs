//! The value of a row: its start, and how several CPUs can add to it at the same time.

use super::{ADDED, ROW, Shape};
use crate::instruction::{Code, Condition, Instruction, Label, Operation, Place, Register, Size};

/// How often the code tries to store a new minimum or maximum. A try fails only if another CPU has stored a value in
/// between, which is usually the more extreme one.
const TRIES: usize = 4;

/// Writes code that builds the value of a new row on the stack. `R0` is the time.
pub(super) fn start(code: &mut Code, shape: &Shape) {
    let at = |offset| shape.value().base.at(shape.value().offset + offset);
    code.store(Size::Double, at(Shape::FIRST), Register::R0);
    code.store_number(Size::Double, at(Shape::COUNT), 1);
    for place in [shape.sum(), shape.min(), shape.max()].into_iter().flatten() {
        code.store(Size::Double, at(place), ADDED);
    }
    if let Some(high) = shape.high() {
        upper_half(code, shape);
        code.store(Size::Double, at(high), Register::R2);
    }
}

/// Writes code that adds the number to the value of a row. It jumps to `refused` if other CPUs store new extremes all the
/// time.
pub(super) fn add(code: &mut Code, shape: &Shape, refused: Label) {
    let [less, greater] = if shape.is_signed() {
        [Condition::LessSigned, Condition::GreaterSigned]
    } else {
        [Condition::Less, Condition::Greater]
    };
    if let Some(min) = shape.min() {
        replace_if(code, less, ROW.at(min), refused);
    }
    if let Some(max) = shape.max() {
        replace_if(code, greater, ROW.at(max), refused);
    }
    code.copy(Register::R1, 1);
    code.push(Instruction::AtomicAdd(ROW.at(Shape::COUNT), Register::R1));
    if let Some(sum) = shape.sum() {
        code.push(Instruction::AtomicAdd(ROW.at(sum), ADDED));
    }
    if let Some(high) = shape.high() {
        upper_half(code, shape);
        code.push(Instruction::AtomicAdd(ROW.at(high), Register::R2));
    }
}

/// Writes code that counts a refused number. The code adds the number to the sum of refused numbers, which is at `sum`. It
/// adds the upper half of the number to the sum of upper halves, which is 8 bytes further.
pub(super) fn add_refused(code: &mut Code, shape: &Shape, sum: Place) {
    code.push(Instruction::AtomicAdd(sum, ADDED));
    if shape.high().is_some() {
        upper_half(code, shape);
        code.push(Instruction::AtomicAdd(sum.base.at(sum.offset + 8), Register::R2));
    }
}

/// Writes code that sets `R2` to the upper 32 bits of the number.
fn upper_half(code: &mut Code, shape: &Shape) {
    let shift = if shape.is_signed() { Operation::ShiftRightSigned } else { Operation::ShiftRight };
    code.copy(Register::R2, ADDED);
    code.operate(shift, Register::R2, 32);
}

/// Writes code that stores the new number at `place` if it is less than the number there, or greater, as `condition` says.
fn replace_if(code: &mut Code, condition: Condition, place: Place, refused: Label) {
    let stored = code.label();
    code.load(Size::Double, Register::R0, place);
    for _ in 0..TRIES {
        let try_it = code.label();
        code.jump_if(condition, ADDED, Register::R0, try_it);
        code.jump(stored);
        code.here(try_it);
        code.copy(Register::R2, Register::R0);
        code.push(Instruction::CompareExchange(place, ADDED));
        code.jump_if(Condition::Equal, Register::R0, Register::R2, stored);
    }
    code.jump(refused);
    code.here(stored);
}
