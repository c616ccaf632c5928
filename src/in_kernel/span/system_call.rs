//! The raw tracepoints of system calls. Programs at raw tracepoints run even while bpf(2) runs on the CPU, unlike programs
//! at tracepoints. So no event is missed, and a begin is never paired with the end of another call.

use std::ffi::CStr;

use perf_prof_format::abi::{bpf::BPF_FUNC_PROBE_READ_KERNEL, system_calls};

use crate::{
    expression::{CONTEXT, Number, Test, Text},
    instruction::{Code, Condition, Label, Operation, Place, Register, Size},
    lower::{LoweredInput, LoweredSpan, LoweredStep, Part, Unsuited},
};

/// Where programs put the values of the raw tracepoint, as fields of the event's record. Other fields are not filled in.
const RECORD: Place = Place { base: Register::Frame, offset: -512 };
/// The offsets of the fields. Both records contain `id`; that of `sys_exit` also contains `ret`.
const ID: i16 = 8;
const RET: i16 = 16;
/// Where programs put the address of `struct pt_regs` at the entry, and from there on `orig_ax`, `ip` and `cs` at the return.
const REGISTERS: i16 = 24;
const CS: i16 = 40;
/// The offset of `orig_ax`, the number of the call, in `struct pt_regs` of x86-64.
const ORIG_AX: i32 = 120;

/// The registers that contain the arguments of calls: a part of `struct pt_regs` of x86-64.
pub(super) struct Registers;

impl Registers {
    /// The offset of the first of these registers, `bp`.
    pub const FIRST: i32 = 32;
    /// The size of these registers, up to `cs`, in bytes.
    pub const BYTES: usize = 112;
    /// The offsets of the six arguments: `di`, `si`, `dx`, `r10`, `r8` and `r9`.
    const ARGUMENTS: [i16; 6] = [112, 104, 96, 56, 72, 64];
    /// The offsets of the six arguments in a 32-bit program: `bx`, `cx`, `dx`, `si`, `di` and `bp`.
    const OF_32_BITS: [i16; 6] = [40, 88, 96, 104, 112, 32];
    /// The offset of `cs`, and its value in 32-bit programs (`__USER32_CS`).
    pub const CS: i16 = 136;
    pub const USER32_CS: i32 = 0x23;

    /// Returns the place of an argument, from 0 to 5. `registers` is the place of the registers.
    pub fn argument(registers: Place, argument: usize) -> Place {
        let at = Registers::ARGUMENTS.get(argument).copied().unwrap_or(Registers::CS);
        Registers::place(registers, at)
    }

    fn place(registers: Place, at: i16) -> Place {
        Place { offset: registers.offset + at - Registers::FIRST as i16, ..registers }
    }

    /// Writes code that jumps to `to` unless a 32-bit program made the call. `cs` is the place of this register.
    fn jump_unless_compat(code: &mut Code, cs: Place, to: Label) {
        code.load(Size::Half, Register::R1, cs);
        code.jump_if(Condition::NotEqual, Register::R1, Registers::USER32_CS, to);
    }

    /// Writes code for a call of a 32-bit program: it marks the number of the call, and moves the arguments to the registers
    /// that 64-bit programs use for them.
    pub fn mark_compat(code: &mut Code, registers: Place) {
        // Arguments 3 and 4 come first: they are in registers that arguments 0 and 1 overwrite.
        const ORDER: [usize; 6] = [3, 4, 0, 1, 2, 5];
        let done = code.label();
        Registers::jump_unless_compat(code, Registers::place(registers, Registers::CS), done);
        mark_number(code);
        for argument in ORDER {
            let [from, to] = [Registers::OF_32_BITS, Registers::ARGUMENTS].map(|of| of[argument]);
            code.load(Size::Word, Register::R1, Registers::place(registers, from));
            code.store(Size::Double, Registers::place(registers, to), Register::R1);
        }
        code.here(done);
    }

    /// Writes code that copies the arguments of a call from the registers.
    pub fn write_arguments(code: &mut Code, registers: Place, to: Place) {
        for (argument, at) in Registers::ARGUMENTS.into_iter().enumerate() {
            code.load(Size::Double, Register::R1, Registers::place(registers, at));
            code.store(Size::Double, to.after(8 * argument), Register::R1);
        }
    }
}

/// Writes code that adds [`system_calls::COMPAT`] to the call's number, unless it is negative, as for restored returns.
fn mark_number(code: &mut Code) {
    let done = code.label();
    code.load(Size::Double, Register::R1, SystemCall::id());
    code.jump_if(Condition::GreaterOrEqual, Register::R1, system_calls::COMPAT as i32, done);
    code.operate(Operation::Add, Register::R1, system_calls::COMPAT as i32);
    // The upper half stays 0.
    code.store(Size::Word, SystemCall::id(), Register::R1);
    code.here(done);
}

/// The raw tracepoint to which a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemCall {
    /// `sys_enter`, whose values are the registers and the number of the call.
    Enter,
    /// `sys_exit`, whose values are the registers and the result.
    Exit,
}

impl SystemCall {
    /// Returns the raw tracepoint for an event of the source. Event 0 begins calls.
    pub fn of_input(input: usize) -> SystemCall {
        if input == 0 { SystemCall::Enter } else { SystemCall::Exit }
    }

    /// Returns the name of the raw tracepoint.
    pub fn name(self) -> &'static CStr {
        match self {
            SystemCall::Enter => c"sys_enter",
            SystemCall::Exit => c"sys_exit",
        }
    }

    /// Writes code that builds a record from the values of the raw tracepoint.
    pub(super) fn write_record(self, code: &mut Code) {
        let id = RECORD.after(ID as usize);
        match self {
            SystemCall::Enter => {
                code.load(Size::Double, Register::R1, CONTEXT.at(8));
                code.store(Size::Double, id, Register::R1);
                code.load(Size::Double, Register::R1, CONTEXT.at(0));
                code.store(Size::Double, RECORD.after(REGISTERS as usize), Register::R1);
            }
            SystemCall::Exit => {
                code.load(Size::Double, Register::R1, CONTEXT.at(8));
                code.store(Size::Double, RECORD.after(RET as usize), Register::R1);
                code.address(Register::R1, RECORD.after(REGISTERS as usize));
                code.copy(Register::R2, 24);
                code.load(Size::Double, Register::R3, CONTEXT.at(0));
                code.operate(Operation::Add, Register::R3, ORIG_AX);
                code.call(BPF_FUNC_PROBE_READ_KERNEL);
                // As in the kernel: take the lower half, and extend its sign.
                code.load(Size::Double, Register::R1, RECORD.after(REGISTERS as usize));
                code.operate(Operation::ShiftLeft, Register::R1, 32);
                code.operate(Operation::ShiftRightSigned, Register::R1, 32);
                code.store(Size::Double, id, Register::R1);
            }
        }
        code.address(CONTEXT, RECORD);
    }

    /// Writes code that marks the number of a call of a 32-bit program. Tests that the kernel's filters also make come before
    /// it: they see the numbers of the kernel.
    pub(super) fn mark_compat(self, code: &mut Code) {
        let (done, cs) = (code.label(), RECORD.after(CS as usize));
        if self == SystemCall::Enter {
            code.address(Register::R1, cs);
            code.copy(Register::R2, 8);
            code.load(Size::Double, Register::R3, RECORD.after(REGISTERS as usize));
            code.operate(Operation::Add, Register::R3, i32::from(Registers::CS));
            code.call(BPF_FUNC_PROBE_READ_KERNEL);
        }
        Registers::jump_unless_compat(code, cs, done);
        mark_number(code);
        code.here(done);
    }

    /// Returns the place of the call's number.
    pub(super) const fn id() -> Place {
        Place { base: Register::Frame, offset: RECORD.offset + ID }
    }

    /// Returns the place of the call's result, in the program of the end.
    pub(super) const fn result() -> Place {
        Place { base: Register::Frame, offset: RECORD.offset + RET }
    }

    /// Writes code that jumps to `to` if the call never returns, like exit(). Each thread ends with such a call. If the
    /// calls were kept, they would fill the hash of open spans.
    pub(super) fn jump_if_never_returns(code: &mut Code, to: Label) {
        for name in ["exit", "exit_group"] {
            for number in system_calls::numbers(std::env::consts::ARCH, name).map(i64::cast_unsigned) {
                code.load(Size::Double, Register::R1, RECORD.after(ID as usize));
                code.jump_if_number(Condition::Equal, Register::R1, (number, Register::R2), to);
            }
        }
    }

    /// Returns the offset of the last field that is filled in.
    fn last(self) -> i16 {
        match self {
            SystemCall::Enter => ID,
            SystemCall::Exit => RET,
        }
    }
}

/// Fails if the programs of a span read fields that are not filled in.
pub(super) fn check(span: &LoweredSpan) -> Result<(), Unsuited> {
    let (enter, exit) = (SystemCall::Enter.last(), SystemCall::Exit.last());
    let table = &span.table;
    let tests = [&table.selected, &table.filter].into_iter().flatten();
    let has_input = |input: &LoweredInput| {
        let last = SystemCall::of_input(input.input).last();
        input.steps.iter().all(|step| has_step(step, last)) && input.selected.iter().all(|test| has_test(test, last))
    };
    let has_all = cfg!(target_arch = "x86_64")
        && span.kept.iter().all(|part| has_part(part, enter))
        && span.inputs.iter().all(has_input)
        && table.key.iter().all(|part| has_part(part, exit))
        && table.added.is_none_or(|number| has(number, exit))
        && tests.into_iter().all(|test| has_test(test, exit));
    if has_all { Ok(()) } else { Err(Unsuited::Spans("it reads the arguments of system calls")) }
}

/// Returns whether the fields that tests read are filled in: the tests `of_enter` at the entry of a call, and the tests
/// `of_exit` at its return.
pub(super) fn have(of_enter: &[Test], of_exit: &[Test]) -> bool {
    let (enter, exit) = (SystemCall::Enter.last(), SystemCall::Exit.last());
    cfg!(target_arch = "x86_64")
        && of_enter.iter().all(|test| has_test(test, enter))
        && of_exit.iter().all(|test| has_test(test, exit))
}

fn has(number: Number, last: i16) -> bool {
    let at = match number {
        Number::Field { offset, .. } | Number::Bits { offset, .. } | Number::Bool { offset } => offset,
        _ => return true,
    };
    at <= last
}

fn has_part(part: &Part, last: i16) -> bool {
    match part {
        Part::Number(number) | Part::Named { number, .. } => has(*number, last),
        Part::Text(Text::Field { .. }) | Part::Bytes { from: Text::Field { .. }, .. } => false,
        Part::Text(_) | Part::Bytes { .. } | Part::Constant(_) | Part::Chain => true,
    }
}

fn has_step(step: &LoweredStep, last: i16) -> bool {
    step.keys.iter().flatten().all(|number| has(*number, last)) && step.when.iter().all(|test| has_test(test, last))
}

fn has_test(test: &Test, last: i16) -> bool {
    match test {
        Test::All(tests) | Test::Any(tests) => tests.iter().all(|test| has_test(test, last)),
        Test::Not(test) => has_test(test, last),
        Test::Number { number, .. } => has(*number, last),
        Test::Text { array, .. } => array.base != CONTEXT,
    }
}
