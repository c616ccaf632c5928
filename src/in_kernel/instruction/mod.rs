//! Instructions of BPF: written with labels and symbolic maps, encoded to words, and shown as text.

mod code;
mod encode;
#[cfg(test)]
pub(crate) mod interpreter;
mod reachable;
mod show;

pub use code::{Code, Label};

/// The maximum number of words of a program. The kernel accepts longer programs, and jumps reach farther.
pub const LONGEST: usize = 4096;

/// A register. `R0` has results, `R1` to `R5` are arguments and lost by a call, `R6` to `R9` are kept, and `Frame` points to
/// the end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    Frame,
}

/// The size of a load or a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 1 byte.
    Byte,
    /// 2 bytes.
    Half,
    /// 4 bytes.
    Word,
    /// 8 bytes.
    Double,
}

/// The second operand of an operation or of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Register(Register),
    /// A number. Operations extend its sign to 64 bits.
    Number(i32),
}

/// An operation on numbers of 64 bits. Divisions are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    ShiftLeft,
    ShiftRight,
    /// Keeps the sign.
    ShiftRightSigned,
    Move,
}

/// A comparison of numbers of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Condition {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    LessSigned,
    LessOrEqualSigned,
    GreaterSigned,
    GreaterOrEqualSigned,
    /// They have a bit in common.
    Bits,
}

/// A place in memory: a distance from the address in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The register with the address.
    pub base: Register,
    /// The distance in bytes.
    pub offset: i16,
}

/// A map that a program uses. The loader puts the descriptor of the real map in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapUse {
    /// An array with one map: the hash with the rows of a table.
    Tables,
    /// An array with one value: the counters that belong to the table. Programs get the address of the value, not of the map.
    Counters,
    /// A hash of the open spans.
    Open,
    /// An array with marks for each CPU. There is a mark for each event of a span: it says whether the program has seen the
    /// last event.
    Marks,
    /// A hash of the tasks whose events are missing, with their numbers.
    Gaps,
    /// A hash of the ids of the selected tasks.
    Tasks,
    /// The array of the selected cgroups.
    Cgroups,
    /// An array with one value for each CPU: the record that is being written.
    Record,
    /// The perf events, one for each CPU, to which records are written.
    Output,
    /// An array by the number of the system call. Its values have a bit for each argument that is a string.
    Arguments,
    /// A hash of the arguments of open calls whose strings could not be read yet.
    Unread,
    /// A hash of names of programs: those that threads are about to run. The memory with these strings will be gone after the
    /// call.
    Names,
    /// An array with one value for each CPU: the paths that are being made.
    Paths,
    /// An array with one value for each CPU: the call chain of the event.
    Chain,
    /// An array with one map: the hash with the segments of call chains.
    Segments,
    /// A hash by process: the time at which the process got its present mappings.
    Since,
    /// A hash by process: how the frames of its interpreter are found.
    Interpreters,
    /// An array with one value for each CPU: the frames of an interpreter.
    Frames,
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Changes a register by an operation.
    Do(Operation, Register, Operand),
    /// Sets a register to a number of 64 bits.
    Set(Register, u64),
    /// Sets a register to a map, or to the address of its value.
    Map(Register, MapUse),
    /// Loads a number and extends it with zeros.
    Load(Size, Register, Place),
    /// Stores the lowest bytes of a register.
    Store(Size, Place, Register),
    /// Stores a number, whose sign is extended.
    StoreNumber(Size, Place, i32),
    /// Adds a register to 8 bytes, atomically.
    AtomicAdd(Place, Register),
    /// If the 8 bytes are equal to `R0`, stores a register there, atomically. `R0` then has the previous 8 bytes.
    CompareExchange(Place, Register),
    /// Jumps to a label.
    Jump(Label),
    /// Jumps to a label if the condition holds for a register and an operand.
    JumpIf(Condition, Register, Operand, Label),
    /// Calls the helper function with this number.
    Call(i32),
    /// Calls the function of the kernel with this number in its BTF.
    CallKernel(i32),
    /// Returns `R0`.
    Exit,
    /// No instruction: the place of a label.
    Here(Label),
}

/// Where a program names a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapReference {
    /// The index of the word whose immediate number is the map's descriptor.
    pub at: usize,
    /// The map.
    pub map: MapUse,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its instructions as the kernel takes them.
    pub instructions: Vec<u64>,
    /// The maps that the program names, in the order of its instructions.
    pub maps: Vec<MapReference>,
}

impl Program {
    /// Returns whether the program uses a map.
    pub fn uses(&self, map: MapUse) -> bool {
        self.maps.iter().any(|reference| reference.map == map)
    }

    /// Returns the instructions with the descriptors of maps.
    pub fn with_maps(&self, mut descriptor: impl FnMut(MapUse) -> u32) -> Vec<u64> {
        let mut words = self.instructions.clone();
        for &MapReference { at, map } in &self.maps {
            if let Some(word) = words.get_mut(at) {
                *word = *word & u64::from(u32::MAX) | u64::from(descriptor(map)) << 32;
            }
        }
        words
    }
}

impl Size {
    /// Returns the largest size of at most `bytes` that divides `offset`.
    pub fn aligned(offset: usize, bytes: usize) -> Size {
        let fits = |size: usize| bytes >= size && offset.is_multiple_of(size);
        match () {
            () if fits(8) => Size::Double,
            () if fits(4) => Size::Word,
            () if fits(2) => Size::Half,
            () => Size::Byte,
        }
    }

    /// Returns the number of bytes.
    pub fn bytes(self) -> usize {
        match self {
            Size::Byte => 1,
            Size::Half => 2,
            Size::Word => 4,
            Size::Double => 8,
        }
    }
}

impl Place {
    /// Returns the place that is `bytes` bytes behind this one.
    pub fn after(self, bytes: usize) -> Place {
        Place { offset: self.offset + bytes as i16, ..self }
    }

    /// Returns a number with the alignment of the address: the offset, because addresses in registers are multiples of 8.
    pub fn alignment(self) -> usize {
        usize::from(self.offset.unsigned_abs())
    }
}

impl Condition {
    /// Returns the opposite comparison; `None` if no instruction does it.
    pub fn negated(self) -> Option<Condition> {
        Some(match self {
            Condition::Equal => Condition::NotEqual,
            Condition::NotEqual => Condition::Equal,
            Condition::Less => Condition::GreaterOrEqual,
            Condition::LessOrEqual => Condition::Greater,
            Condition::Greater => Condition::LessOrEqual,
            Condition::GreaterOrEqual => Condition::Less,
            Condition::LessSigned => Condition::GreaterOrEqualSigned,
            Condition::LessOrEqualSigned => Condition::GreaterSigned,
            Condition::GreaterSigned => Condition::LessOrEqualSigned,
            Condition::GreaterOrEqualSigned => Condition::LessSigned,
            Condition::Bits => return None,
        })
    }
}

impl Register {
    /// Returns the place at a distance from the address in the register.
    pub const fn at(self, offset: i16) -> Place {
        Place { base: self, offset }
    }
}

impl From<Register> for Operand {
    fn from(register: Register) -> Operand {
        Operand::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Operand {
        Operand::Number(number)
    }
}

#[cfg(test)]
mod tests;
