//! Prints code as text, one instruction in each line, for tests and debugging.

use std::fmt::{self, Display, Formatter};

use super::{Code, Condition, Instruction, Operand, Operation, Place, Register, Size};

impl Display for Code {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.reachable().iter().try_for_each(|instruction| writeln!(f, "{instruction}"))
    }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Instruction::Here(label) => return write!(f, "{}:", label.0),
            _ => write!(f, "    ")?,
        }
        match self {
            Instruction::Do(operation, register, operand) => write!(f, "{register} {} {operand}", symbol(*operation)),
            Instruction::Set(register, number) => write!(f, "{register} = {number:#x}"),
            Instruction::Map(register, map) => write!(f, "{register} = map {map:?}"),
            Instruction::Load(size, register, place) => write!(f, "{register} = {}{place}", bits(*size)),
            Instruction::Store(size, place, register) => write!(f, "{}{place} = {register}", bits(*size)),
            Instruction::StoreNumber(size, place, number) => write!(f, "{}{place} = {number}", bits(*size)),
            Instruction::AtomicAdd(place, register) => write!(f, "lock u64{place} += {register}"),
            Instruction::CompareExchange(place, register) => {
                write!(f, "lock u64{place}: r0 = exchanged if r0, by {register}")
            }
            Instruction::Jump(label) => write!(f, "goto {}", label.0),
            Instruction::JumpIf(condition, register, operand, label) => {
                write!(f, "if {register} {} {operand} goto {}", relation(*condition), label.0)
            }
            Instruction::Call(helper) => write!(f, "call {helper}"),
            Instruction::CallKernel(function) => write!(f, "call kernel {function}"),
            Instruction::Exit => write!(f, "exit"),
            Instruction::Here(_) => Ok(()),
        }
    }
}

impl Display for Register {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Register::Frame => write!(f, "fp"),
            register => write!(f, "r{}", *register as u8),
        }
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Register(register) => register.fmt(f),
            Operand::Number(number) => number.fmt(f),
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "[{}{:+}]", self.base, self.offset)
    }
}

fn bits(size: Size) -> &'static str {
    match size {
        Size::Byte => "u8",
        Size::Half => "u16",
        Size::Word => "u32",
        Size::Double => "u64",
    }
}

fn symbol(operation: Operation) -> &'static str {
    match operation {
        Operation::Add => "+=",
        Operation::Subtract => "-=",
        Operation::Multiply => "*=",
        Operation::Divide => "/=",
        Operation::Remainder => "%=",
        Operation::And => "&=",
        Operation::Or => "|=",
        Operation::ShiftLeft => "<<=",
        Operation::ShiftRight => ">>=",
        Operation::ShiftRightSigned => "s>>=",
        Operation::Move => "=",
    }
}

fn relation(condition: Condition) -> &'static str {
    match condition {
        Condition::Equal => "==",
        Condition::NotEqual => "!=",
        Condition::Less => "<",
        Condition::LessOrEqual => "<=",
        Condition::Greater => ">",
        Condition::GreaterOrEqual => ">=",
        Condition::LessSigned => "s<",
        Condition::LessOrEqualSigned => "s<=",
        Condition::GreaterSigned => "s>",
        Condition::GreaterOrEqualSigned => "s>=",
        Condition::Bits => "&",
    }
}
