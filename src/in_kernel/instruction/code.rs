//! The code of a program while it is written: instructions and labels, with shortcuts for frequent instructions.

use super::{Condition, Instruction, MapUse, Operand, Operation, Place, Register, Size};

/// A target of jumps in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(pub(super) usize);

/// Code that is being written.
#[derive(Clone, Debug, Default)]
pub struct Code {
    pub(super) instructions: Vec<Instruction>,
    pub(super) labels: usize,
}

impl Code {
    /// Creates empty code.
    pub fn new() -> Code {
        Code::default()
    }

    /// Creates a label, which must be placed exactly once. A jump back to a label forms a loop, and the verifier must be
    /// able to bound its iterations.
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Adds an instruction.
    pub fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }

    /// Places a label at the end of the code.
    pub fn here(&mut self, label: Label) {
        self.push(Instruction::Here(label));
    }

    /// Applies an operation to a register.
    pub fn operate(&mut self, operation: Operation, register: Register, by: impl Into<Operand>) {
        self.push(Instruction::Do(operation, register, by.into()));
    }

    /// Sets a register to the value of a register or to a number.
    pub fn copy(&mut self, to: Register, from: impl Into<Operand>) {
        self.operate(Operation::Move, to, from);
    }

    /// Sets a register to a number, with the shortest instruction.
    pub fn set(&mut self, register: Register, number: u64) {
        match i32::try_from(number as i64) {
            Ok(number) => self.copy(register, number),
            Err(_) => self.push(Instruction::Set(register, number)),
        }
    }

    /// Sets a register to a map, or to the address of its value.
    pub fn map(&mut self, register: Register, map: MapUse) {
        self.push(Instruction::Map(register, map));
    }

    /// Loads a number into a register.
    pub fn load(&mut self, size: Size, to: Register, from: Place) {
        self.push(Instruction::Load(size, to, from));
    }

    /// Stores a register to a place.
    pub fn store(&mut self, size: Size, to: Place, from: Register) {
        self.push(Instruction::Store(size, to, from));
    }

    /// Stores a number to a place.
    pub fn store_number(&mut self, size: Size, to: Place, number: i32) {
        self.push(Instruction::StoreNumber(size, to, number));
    }

    /// Sets a register to the address of a place.
    pub fn address(&mut self, register: Register, of: Place) {
        self.copy(register, of.base);
        if of.offset != 0 {
            self.operate(Operation::Add, register, i32::from(of.offset));
        }
    }

    /// Jumps to a label.
    pub fn jump(&mut self, to: Label) {
        self.push(Instruction::Jump(to));
    }

    /// Jumps to a label if the condition holds for a register and an operand.
    pub fn jump_if(&mut self, condition: Condition, register: Register, with: impl Into<Operand>, to: Label) {
        self.push(Instruction::JumpIf(condition, register, with.into(), to));
    }

    /// Jumps to `to` if the condition holds for a register and a number. If the number does not fit into the instruction, it
    /// is put into the register `scratch`.
    pub fn jump_if_number(
        &mut self,
        condition: Condition,
        register: Register,
        (number, scratch): (u64, Register),
        to: Label,
    ) {
        // Only 0 to 2^31 - 1 are put into the instruction. The kernel sign-extends negative numbers there, but `rbpf` may
        // not.
        match i32::try_from(number) {
            Ok(number) => self.jump_if(condition, register, number, to),
            Err(_) => {
                self.set(scratch, number);
                self.jump_if(condition, register, scratch, to);
            }
        }
    }

    /// Calls a helper function.
    pub fn call(&mut self, helper: i32) {
        self.push(Instruction::Call(helper));
    }

    /// Calls a function of the kernel (kfunc).
    pub fn call_kernel(&mut self, function: i32) {
        self.push(Instruction::CallKernel(function));
    }

    /// Returns from the program with a number.
    pub fn exit(&mut self, result: i32) {
        self.copy(Register::R0, result);
        self.push(Instruction::Exit);
    }
}
