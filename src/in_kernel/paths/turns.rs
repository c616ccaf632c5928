//! Loops whose turns are limited: by the kernel's iterator over numbers, or by a register on kernels without iterators.

use super::NumberIterator;
use crate::instruction::{Code, Condition, Label, Operation, Place, Register};

/// How the turns of a loop are counted.
#[derive(Clone, Copy)]
pub(crate) struct Turns {
    pub iterator: Option<NumberIterator>,
    /// The place of the iterator on the stack.
    pub place: Place,
    /// The register with the number of turns if there is no iterator.
    pub register: Register,
    pub most: i32,
}

impl Turns {
    /// Writes the code before the first turn.
    pub fn begin(self, code: &mut Code) {
        match self.iterator {
            Some(iterator) => {
                code.address(Register::R1, self.place);
                code.copy(Register::R2, 0);
                code.copy(Register::R3, self.most);
                code.call_kernel(iterator.new);
            }
            None => code.copy(self.register, 0),
        }
    }

    /// Writes the code that begins another turn, or jumps to a label after the last one.
    pub fn next(self, code: &mut Code, done: Label) {
        match self.iterator {
            Some(iterator) => {
                code.address(Register::R1, self.place);
                code.call_kernel(iterator.next);
                code.jump_if(Condition::Equal, Register::R0, 0, done);
            }
            None => {
                code.operate(Operation::Add, self.register, 1);
                code.jump_if(Condition::Greater, self.register, self.most, done);
            }
        }
    }

    /// Writes the code after the loop.
    pub fn end(self, code: &mut Code) {
        if let Some(iterator) = self.iterator {
            code.address(Register::R1, self.place);
            code.call_kernel(iterator.destroy);
        }
    }
}
