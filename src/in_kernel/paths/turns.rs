//! Loops with a maximum number of iterations. The kernel's iterator over numbers counts them, or a register on kernels
//! without this iterator.

use super::NumberIterator;
use crate::instruction::{Code, Condition, Label, Operation, Place, Register};

/// How the iterations of a loop are counted.
#[derive(Clone, Copy)]
pub(crate) struct Turns {
    pub iterator: Option<NumberIterator>,
    /// The place of the iterator on the stack.
    pub place: Place,
    /// The register that counts the iterations if there is no iterator.
    pub register: Register,
    pub most: i32,
}

impl Turns {
    /// Writes the code before the first iteration.
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

    /// Writes the code at the start of an iteration. It jumps to `done` after the last one.
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
