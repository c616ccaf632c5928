//! BPF instructions: written with labels and symbolic maps, encoded as words, and printed as text.

mod code;
mod encode;
#[cfg(test)]
pub(crate) mod interpreter;
mod reachable;
mod show;

pub use code::{Code, Label};

/// The maximum number of words of a program. The kernel accepts more, and jumps reach further.
pub const LONGEST: usize = 4096;

/// A register. `R0` contains results. `R1` to `R5` are arguments, and calls overwrite them. `R6` to `R9` keep their values.
/// `Frame` contains the address of the end of the stack.
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
    /// A number, sign-extended to 64 bits.
    Number(i32),
}

/// An operation on 64-bit numbers. Divisions are unsigned.
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
    /// An arithmetic shift, which keeps the sign.
    ShiftRightSigned,
    Move,
}

/// A comparison of 64-bit numbers.
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
    /// The operands have a bit in common.
    Bits,
}

/// A place in memory, relative to an address in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The register that contains the address.
    pub base: Register,
    /// The distance from this address, in bytes.
    pub offset: i16,
}

/// A map that a program uses. The loader replaces it by the file descriptor of the real map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapUse {
    /// An array with one element, the hash map that holds the rows of the table.
    Tables,
    /// An array with one value, the counters of the table. Programs get the address of the value, not of the map.
    Counters,
    /// A hash map of open spans.
    Open,
    /// A per-CPU array of marks, one for each event of a span. A mark says whether the program has seen the last event.
    Marks,
    /// A hash map with the tasks that miss events, and the number of events that each misses.
    Gaps,
    /// A hash map with the ids of the selected tasks.
    Tasks,
    /// The array of selected cgroups.
    Cgroups,
    /// A per-CPU array with one value: the record that is being written.
    Record,
    /// The perf events, one for each CPU, to whose rings records are written.
    Output,
    /// An array indexed by the number of the system call. A value has a bit for each argument that is a string.
    Arguments,
    /// A hash map of arguments of open calls whose strings could not be read yet.
    Unread,
    /// A hash map by thread id: a string that is kept from the start of a call to its end. It is the path of the program
    /// that `execve` runs, whose memory is gone at the end, or the path of the file that `close` closes.
    Names,
    /// A per-CPU array with one value: the paths that are being built.
    Paths,
    /// A per-CPU array with one value: the call chain of the event.
    Chain,
    /// An array with one element, the hash map that holds the segments of call chains.
    Segments,
    /// A hash map by process id: when the process got its present mappings.
    Since,
    /// A hash map by process id: how to find the frames of the interpreter.
    Interpreters,
    /// A per-CPU array with one value: the frames of an interpreter.
    Frames,
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Applies an operation to a register.
    Do(Operation, Register, Operand),
    /// Sets a register to a 64-bit number.
    Set(Register, u64),
    /// Sets a register to a map, or to the address of its value.
    Map(Register, MapUse),
    /// Loads a number, zero-extended.
    Load(Size, Register, Place),
    /// Stores the lower bytes of a register.
    Store(Size, Place, Register),
    /// Stores a number, sign-extended.
    StoreNumber(Size, Place, i32),
    /// Adds a register to 8 bytes in memory, atomically.
    AtomicAdd(Place, Register),
    /// If the 8 bytes in memory are equal to `R0`, replaces them by a register, atomically. `R0` gets the previous 8 bytes.
    CompareExchange(Place, Register),
    /// Jumps to a label.
    Jump(Label),
    /// Jumps to a label if the condition holds for a register and an operand.
    JumpIf(Condition, Register, Operand, Label),
    /// Calls the helper function with this number.
    Call(i32),
    /// Calls the kernel function (kfunc) with this BTF id.
    CallKernel(i32),
    /// Returns `R0`.
    Exit,
    /// Not an instruction: the place of a label.
    Here(Label),
}

/// A place in a program that names a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapReference {
    /// The index of the word that gets the file descriptor of the map.
    pub at: usize,
    /// The map.
    pub map: MapUse,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The instructions of the program, encoded for the kernel.
    pub instructions: Vec<u64>,
    /// The places that name a map, in the order of the instructions.
    pub maps: Vec<MapReference>,
}

impl Program {
    /// Returns whether the program uses a map.
    pub fn uses(&self, map: MapUse) -> bool {
        self.maps.iter().any(|reference| reference.map == map)
    }

    /// Returns the instructions with the file descriptors of the maps.
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
    /// Returns the largest size that is at most `bytes` and divides `offset`.
    pub fn aligned(offset: usize, bytes: usize) -> Size {
        let fits = |size: usize| bytes >= size && offset.is_multiple_of(size);
        match () {
            () if fits(8) => Size::Double,
            () if fits(4) => Size::Word,
            () if fits(2) => Size::Half,
            () => Size::Byte,
        }
    }

    /// Returns the size in bytes.
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
    /// Returns the place that is `bytes` bytes further.
    pub fn after(self, bytes: usize) -> Place {
        Place { offset: self.offset + bytes as i16, ..self }
    }

    /// Returns a number with the same alignment as the address: the offset, because addresses in registers are multiples of
    /// 8.
    pub fn alignment(self) -> usize {
        usize::from(self.offset.unsigned_abs())
    }
}

impl Condition {
    /// Returns the opposite comparison; `None` if BPF has none.
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
    /// Returns the place at this distance from the address in the register.
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
