//! Strings in the records of pairs. They are read when the call ends, and only of calls that pass: the kernel has brought their
//! pages into memory then. But the names of programs that threads run are read when the call begins, because the memory is gone
//! when it ends.

use perf_prof_events::derive::PairLayout;
use perf_prof_format::{
    abi::{
        bpf::{
            BPF_ANY, BPF_F_CURRENT_CPU, BPF_FUNC_MAP_DELETE_ELEM, BPF_FUNC_MAP_LOOKUP_ELEM, BPF_FUNC_MAP_UPDATE_ELEM,
            BPF_FUNC_PERF_EVENT_OUTPUT, BPF_FUNC_PROBE_READ_KERNEL_STR, BPF_FUNC_PROBE_READ_USER_STR,
        },
        string_arguments::string_arguments,
        system_calls,
    },
    tracefs::{EventFormat, LONGEST_STRING, StringAddress, StringPlace},
};

use super::{BEGIN, RAW, REGISTERS, call_number, kept, record};
use crate::{
    expression::CONTEXT,
    instruction::{Code, Condition, Label, MapUse, Operation, Place, Register, Size},
    lower::OPEN_KEY,
    select::look_up_only,
    span::{
        stack,
        system_call::{Registers, SystemCall},
    },
    strings::{
        LENGTH, RECORD,
        calls::{STRINGS, look_up_call},
        end_of_record, first_string, record_bytes, write_fields, write_nothing, write_read_string,
    },
};

/// The calls that run another program.
const RUNS: [&str; 2] = ["execve", "execveat"];
/// Where the stack has the context of the raw tracepoint, and the address of the name that was kept.
const SAVED: Place = Place { base: Register::Frame, offset: -16 };
const NAME: Place = Place { base: Register::Frame, offset: -24 };

/// The strings of all calls.
pub(super) struct Strings<'a> {
    /// The format of the begins.
    format: &'a EventFormat,
    places: Vec<StringPlace>,
}

impl<'a> Strings<'a> {
    /// Returns the strings of a format; `None` if it has none.
    pub fn of(format: &'a EventFormat) -> Option<Strings<'a>> {
        let places = format.strings();
        (!places.is_empty()).then_some(Strings { format, places })
    }

    /// Returns the size of the largest record.
    pub fn record_bytes(&self) -> usize {
        PairLayout::BEGIN + record_bytes(self.format)
    }

    /// Writes the code that keeps the name of the program that the thread is about to run. The key of the call is on the stack, and
    /// so are its registers.
    pub fn keep_name(&self, code: &mut Code) {
        let done = code.label();
        for (number, argument) in runs() {
            let other = code.label();
            code.load(Size::Double, Register::R1, SystemCall::id());
            code.jump_if(Condition::NotEqual, Register::R1, number, other);
            look_up_record(code, done);
            code.copy(BEGIN, Register::R0);
            code.copy(Register::R1, BEGIN);
            code.copy(Register::R2, LONGEST_STRING as i32 + 1);
            code.load(Size::Double, Register::R3, Registers::argument(kept(REGISTERS), argument));
            code.call(BPF_FUNC_PROBE_READ_USER_STR);
            code.jump_if(Condition::LessOrEqualSigned, Register::R0, 0, done);
            code.map(Register::R1, MapUse::Names);
            code.address(Register::R2, stack(OPEN_KEY));
            code.copy(Register::R3, BEGIN);
            code.set(Register::R4, BPF_ANY);
            code.call(BPF_FUNC_MAP_UPDATE_ELEM);
            code.jump(done);
            code.here(other);
        }
        code.here(done);
    }

    /// Writes the code that removes what `keep_name` has kept.
    pub fn forget_name(&self, code: &mut Code) {
        let (runs_program, done) = (code.label(), code.label());
        jump_if_runs(code, runs_program);
        code.jump(done);
        code.here(runs_program);
        remove_name(code);
        code.here(done);
    }

    /// Writes the code that copies the record from the stack, adds the strings, and writes it to the ring. `R0` is then 0, or why
    /// this was not possible.
    pub fn output(&self, code: &mut Code) {
        let (done, written, has_strings) = (code.label(), code.label(), code.label());
        code.store(Size::Double, SAVED, RAW);
        look_up_record(code, done);
        code.copy(RECORD, Register::R0);
        code.operate(Operation::Add, RECORD, PairLayout::BEGIN as i32);
        for at in (0..PairLayout::BEGIN).step_by(8) {
            code.load(Size::Double, Register::R1, record(at));
            code.store(Size::Double, RECORD.at(at as i16 - PairLayout::BEGIN as i16), Register::R1);
        }
        code.address(CONTEXT, record(PairLayout::BEGIN));
        write_fields(code, self.format, &self.places);
        code.copy(LENGTH, first_string(self.format) as i32);
        look_up_call(code, PairLayout::ID);
        self.find_name(code);
        code.jump_if(Condition::NotEqual, STRINGS, 0, has_strings);
        write_nothing(code, &self.places);
        code.jump(written);
        code.here(has_strings);
        self.places.iter().for_each(|place| write_string(code, *place));
        code.here(written);
        self.forget_name(code);
        code.operate(Operation::Add, LENGTH, PairLayout::BEGIN as i32);
        code.load(Size::Double, Register::R1, SAVED);
        code.map(Register::R2, MapUse::Output);
        code.set(Register::R3, BPF_F_CURRENT_CPU);
        code.copy(Register::R4, RECORD);
        code.operate(Operation::Subtract, Register::R4, PairLayout::BEGIN as i32);
        code.copy(Register::R5, LENGTH);
        code.call(BPF_FUNC_PERF_EVENT_OUTPUT);
        code.here(done);
    }

    /// Writes the code that finds the name that was kept. If there is none, the call has no strings.
    fn find_name(&self, code: &mut Code) {
        let (runs_program, found, done) = (code.label(), code.label(), code.label());
        code.store_number(Size::Double, NAME, 0);
        jump_if_runs(code, runs_program);
        code.jump(done);
        code.here(runs_program);
        code.map(Register::R1, MapUse::Names);
        code.address(Register::R2, stack(OPEN_KEY));
        code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
        code.jump_if(Condition::NotEqual, Register::R0, 0, found);
        code.copy(STRINGS, 0);
        code.jump(done);
        code.here(found);
        code.store(Size::Double, NAME, Register::R0);
        code.here(done);
    }
}

/// Writes the code that removes the name that was kept for the running thread.
pub(super) fn remove_name(code: &mut Code) {
    code.map(Register::R1, MapUse::Names);
    code.address(Register::R2, stack(OPEN_KEY));
    code.call(BPF_FUNC_MAP_DELETE_ELEM);
}

/// Writes the code that reads a string: the name that was kept, or memory of the program.
fn write_string(code: &mut Code, place: StringPlace) {
    let read = |code: &mut Code| {
        let (is_of_program, done) = (code.label(), code.label());
        end_of_record(code);
        code.copy(Register::R2, LONGEST_STRING as i32 + 1);
        code.load(Size::Double, Register::R3, NAME);
        code.jump_if(Condition::Equal, Register::R3, 0, is_of_program);
        code.call(BPF_FUNC_PROBE_READ_KERNEL_STR);
        code.jump(done);
        code.here(is_of_program);
        if let StringAddress::Field(offset) = place.address {
            code.load(Size::Double, Register::R3, CONTEXT.at(offset as i16));
        }
        code.call(BPF_FUNC_PROBE_READ_USER_STR);
        code.here(done);
    };
    write_read_string(code, place, read, |_| {});
}

/// Writes the code that sets `R0` to the address of the record that is being written.
fn look_up_record(code: &mut Code, absent: Label) {
    look_up_only(code, MapUse::Record);
    let found = code.label();
    code.jump_if(Condition::NotEqual, Register::R0, 0, found);
    code.copy(Register::R0, 1);
    code.jump(absent);
    code.here(found);
}

/// Writes the code that jumps to a label if the call that has ended runs a program.
fn jump_if_runs(code: &mut Code, to: Label) {
    code.load(Size::Double, Register::R1, call_number());
    runs().for_each(|(number, _)| code.jump_if(Condition::Equal, Register::R1, number, to));
}

/// Returns the number of each call that runs a program, and which of its arguments is the name.
fn runs() -> impl Iterator<Item = (i32, usize)> {
    RUNS.into_iter().filter_map(|name| {
        let number = i32::try_from(system_calls::number(std::env::consts::ARCH, name)?).ok()?;
        Some((number, string_arguments(name).first()?.0))
    })
}
