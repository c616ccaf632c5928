//! Encodes instructions as the kernel expects them: words of 8 bytes, with relative jumps.

use perf_prof_format::abi::bpf::{
    BPF_ADD, BPF_ALU64, BPF_AND, BPF_ARSH, BPF_ATOMIC, BPF_B, BPF_CALL, BPF_CMPXCHG, BPF_DIV, BPF_DW, BPF_EXIT, BPF_H,
    BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JLE, BPF_JLT, BPF_JMP, BPF_JNE, BPF_JSET, BPF_JSGE, BPF_JSGT,
    BPF_JSLE, BPF_JSLT, BPF_K, BPF_LD, BPF_LDX, BPF_LSH, BPF_MEM, BPF_MOD, BPF_MOV, BPF_MUL, BPF_OR,
    BPF_PSEUDO_KFUNC_CALL, BPF_PSEUDO_MAP_FD, BPF_PSEUDO_MAP_VALUE, BPF_RSH, BPF_ST, BPF_STX, BPF_SUB, BPF_W, BPF_X,
};

use super::{
    Code, Condition, Instruction, Label, MapReference, MapUse, Operand, Operation, Place, Program, Register, Size,
};

/// The parts of an instruction's word.
#[derive(Default)]
struct Parts {
    opcode: u8,
    /// The destination register, in the lower half of the second byte.
    to: u8,
    /// The source register, in the upper half of the second byte.
    from: u8,
    offset: i16,
    immediate: i32,
}

impl Parts {
    fn word(self) -> u64 {
        let registers = self.to | self.from << 4;
        let offset = u64::from(self.offset as u16) << 16;
        u64::from(self.opcode) | u64::from(registers) << 8 | offset | u64::from(self.immediate as u32) << 32
    }
}

impl Code {
    /// Encodes the code. A jump reaches 32767 words. All programs are shorter: see [`LONGEST`](crate::instruction::LONGEST).
    pub fn program(&self) -> Program {
        let reachable = self.reachable();
        let places = places(&reachable, self.labels);
        let (mut instructions, mut maps) = (Vec::new(), Vec::new());
        for instruction in &reachable {
            let at = instructions.len();
            // A jump is relative to the next instruction.
            let distance = |label: &Label| (places[label.0] as i64 - at as i64 - 1) as i16;
            match *instruction {
                Instruction::Here(_) => {}
                Instruction::Set(register, number) => instructions.extend(load_double(register, 0, number)),
                Instruction::Map(register, map) => {
                    maps.push(MapReference { at, map });
                    instructions.extend(load_double(register, kind_of(map), 0));
                }
                Instruction::Jump(ref label) => {
                    let opcode = BPF_JMP | BPF_JA;
                    instructions.push(Parts { opcode, offset: distance(label), ..Parts::default() }.word());
                }
                Instruction::JumpIf(condition, register, operand, ref label) => {
                    let parts = with_operand(BPF_JMP | jump_code(condition), register, operand);
                    instructions.push(Parts { offset: distance(label), ..parts }.word());
                }
                _ => instructions.push(plain(instruction).word()),
            }
        }
        Program { instructions, maps }
    }
}

/// Returns the index of the word at which each label is placed.
fn places(instructions: &[Instruction], labels: usize) -> Vec<usize> {
    let mut places = vec![0; labels];
    let mut at = 0;
    for instruction in instructions {
        match instruction {
            Instruction::Here(label) => places[label.0] = at,
            Instruction::Set(..) | Instruction::Map(..) => at += 2,
            _ => at += 1,
        }
    }
    places
}

/// Returns the parts of an instruction that takes one word and is not a jump.
fn plain(instruction: &Instruction) -> Parts {
    let at = |opcode, to: Register, place: Place, from: Register| Parts {
        opcode,
        to: to as u8,
        from: from as u8,
        offset: place.offset,
        immediate: 0,
    };
    match *instruction {
        Instruction::Do(operation, register, operand) => {
            with_operand(BPF_ALU64 | operation_code(operation), register, operand)
        }
        Instruction::Load(size, to, place) => at(BPF_LDX | BPF_MEM | size_code(size), to, place, place.base),
        Instruction::Store(size, place, from) => at(BPF_STX | BPF_MEM | size_code(size), place.base, place, from),
        Instruction::StoreNumber(size, place, immediate) => {
            Parts { immediate, ..at(BPF_ST | BPF_MEM | size_code(size), place.base, place, Register::R0) }
        }
        Instruction::AtomicAdd(place, from) => {
            Parts { immediate: BPF_ADD.into(), ..at(BPF_STX | BPF_ATOMIC | BPF_DW, place.base, place, from) }
        }
        Instruction::CompareExchange(place, from) => {
            Parts { immediate: BPF_CMPXCHG, ..at(BPF_STX | BPF_ATOMIC | BPF_DW, place.base, place, from) }
        }
        Instruction::Call(helper) => Parts { opcode: BPF_JMP | BPF_CALL, immediate: helper, ..Parts::default() },
        Instruction::CallKernel(function) => {
            let from = BPF_PSEUDO_KFUNC_CALL;
            Parts { opcode: BPF_JMP | BPF_CALL, from, immediate: function, ..Parts::default() }
        }
        _ => Parts { opcode: BPF_JMP | BPF_EXIT, ..Parts::default() },
    }
}

/// Returns the two words that set a register: to a 64-bit number if `kind` is 0, and otherwise to a map.
fn load_double(register: Register, kind: u8, number: u64) -> [u64; 2] {
    let opcode = BPF_LD | BPF_IMM | BPF_DW;
    let first = Parts { opcode, to: register as u8, from: kind, offset: 0, immediate: number as i32 };
    [first.word(), Parts { immediate: (number >> 32) as i32, ..Parts::default() }.word()]
}

/// Returns the number that an instruction has in place of its source register. The number says whether the instruction sets
/// a register to a map or to the address of the map's value.
fn kind_of(map: MapUse) -> u8 {
    match map {
        MapUse::Counters => BPF_PSEUDO_MAP_VALUE,
        _ => BPF_PSEUDO_MAP_FD,
    }
}

fn with_operand(opcode: u8, register: Register, operand: Operand) -> Parts {
    let to = register as u8;
    match operand {
        Operand::Register(from) => Parts { opcode: opcode | BPF_X, to, from: from as u8, ..Parts::default() },
        Operand::Number(immediate) => Parts { opcode: opcode | BPF_K, to, immediate, ..Parts::default() },
    }
}

fn size_code(size: Size) -> u8 {
    match size {
        Size::Byte => BPF_B,
        Size::Half => BPF_H,
        Size::Word => BPF_W,
        Size::Double => BPF_DW,
    }
}

fn operation_code(operation: Operation) -> u8 {
    match operation {
        Operation::Add => BPF_ADD,
        Operation::Subtract => BPF_SUB,
        Operation::Multiply => BPF_MUL,
        Operation::Divide => BPF_DIV,
        Operation::Remainder => BPF_MOD,
        Operation::And => BPF_AND,
        Operation::Or => BPF_OR,
        Operation::ShiftLeft => BPF_LSH,
        Operation::ShiftRight => BPF_RSH,
        Operation::ShiftRightSigned => BPF_ARSH,
        Operation::Move => BPF_MOV,
    }
}

fn jump_code(condition: Condition) -> u8 {
    match condition {
        Condition::Equal => BPF_JEQ,
        Condition::NotEqual => BPF_JNE,
        Condition::Less => BPF_JLT,
        Condition::LessOrEqual => BPF_JLE,
        Condition::Greater => BPF_JGT,
        Condition::GreaterOrEqual => BPF_JGE,
        Condition::LessSigned => BPF_JSLT,
        Condition::LessOrEqualSigned => BPF_JSLE,
        Condition::GreaterSigned => BPF_JSGT,
        Condition::GreaterOrEqualSigned => BPF_JSGE,
        Condition::Bits => BPF_JSET,
    }
}
