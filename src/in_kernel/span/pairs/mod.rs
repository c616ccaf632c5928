//! The programs of system calls that are paired and written as records. The program of the begin keeps each open call in a
//! hash. The program of the end finds the call and removes it. If the call passes the tests, it writes one record with the
//! begin and the end. So a call is lost as a whole or not at all.

mod kernel_frames;
mod strings;

pub use kernel_frames::KernelFrames;
pub use strings::KEPT_STRING_BYTES;

use perf_prof_events::{
    derive::{PairLayout, Span},
    event::{EventType, Format},
};
use perf_prof_format::{
    abi::{
        bpf::{
            BPF_ANY, BPF_F_CURRENT_CPU, BPF_FUNC_GET_SMP_PROCESSOR_ID, BPF_FUNC_KTIME_GET_NS, BPF_FUNC_MAP_DELETE_ELEM,
            BPF_FUNC_PERF_EVENT_OUTPUT, BPF_FUNC_PROBE_READ_KERNEL, BPF_NOEXIST,
        },
        system_calls,
    },
    tracefs::{EventFormat, Filter},
};

use self::strings::Strings;
use super::{
    SpanCounters, SystemCall, look_up, put, stack,
    system_call::{self, Registers},
};
use crate::{
    expression::{CONTEXT, Number, Outcome, Text, start},
    instruction::{Code, Condition, LONGEST, Label, MapUse, Operation, Place, Program, Register, Size},
    lower::{COMM, ERROR, KEPT, LoweredPairs, OPEN_KEY, PidNamespace, Unsuited, lower_pairs},
    select::Selection,
    strings::KernelTypes,
    table::{Counters, EXISTS, count_in},
};

/// The register with the context of the raw tracepoint.
const RAW: Register = Register::R7;
/// The register with the address of a kept begin, and later with the size of the record.
const BEGIN: Register = Register::R8;

/// What is kept of a begin: the time, the CPU, the number of the call, and registers. At the end of the call, the duration
/// replaces the time on the stack.
const TIME: i16 = 0;
const CPU: i16 = 8;
const ID: i16 = 16;
const REGISTERS: i16 = 24;
/// The size of what is kept of a begin, in bytes.
const KEPT_BYTES: usize = REGISTERS as usize + Registers::BYTES;
/// The place of the record on the stack.
const RECORD: i16 = KEPT + KEPT_BYTES as i16;
/// The result of the kernel's function if the ring is full: `-ENOSPC`.
const NO_ROOM: i32 = -28;

/// The programs that pair system calls and write them as records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairPrograms {
    /// The program for the begins of calls.
    pub begin: Program,
    /// The program for the ends of calls.
    pub end: Program,
    /// The program for exiting threads. Without it, the kept begin of a call in which a thread is killed would stay in the
    /// hash for ever.
    pub exit: Program,
    /// The sizes of keys and of values in the hash of open calls.
    pub open_bytes: (usize, usize),
    /// The size of the memory in which a record with strings or with frames of an interpreter is built, in bytes. `None` if
    /// records have neither.
    pub record_bytes: Option<usize>,
}

/// A span of system calls that the user selected.
#[derive(Clone, Copy, Debug)]
pub struct SelectedCalls<'a> {
    /// The span.
    pub span: &'a Span,
    /// The event type of the span.
    pub event: &'a EventType,
    /// The filters of the events that begin and end the span.
    pub filters: [Option<&'a Filter>; 2],
    /// Whether the call chains of its events have frames of the kernel.
    pub kernel_frames: KernelFrames,
}

/// Returns the programs that pair system calls and write those that pass the tests. Without the kernel's types, records contain
/// no paths.
pub fn pair_programs(
    span: SelectedCalls<'_>,
    selection: &Selection,
    types: KernelTypes<'_>,
) -> Result<PairPrograms, Unsuited> {
    let PairCodes { codes, open_bytes, record_bytes } = pair_codes(span, selection, types)?;
    let [begin, end, exit] = codes.map(|code| code.program());
    match begin.instructions.len().max(end.instructions.len()) {
        words if words > LONGEST => Err(Unsuited::Long(words)),
        _ => Ok(PairPrograms { begin, end, exit, open_bytes, record_bytes }),
    }
}

pub(super) struct PairCodes {
    pub codes: [Code; 3],
    pub open_bytes: (usize, usize),
    record_bytes: Option<usize>,
}

pub(super) fn pair_codes(
    SelectedCalls { span, event, filters, kernel_frames }: SelectedCalls<'_>,
    selection: &Selection,
    types: KernelTypes<'_>,
) -> Result<PairCodes, Unsuited> {
    selection.check()?;
    let mut lowered = lower_pairs(span, event, filters, selection.ids)?;
    let [of_begin, of_end] = &lowered.selected;
    if !system_call::have(of_begin.as_slice(), of_end.as_slice()) {
        return Err(Unsuited::Spans("the filters of its events read fields that raw tracepoints do not have"));
    }
    lowered.tests.retain(|test| system_call::have(&[], std::slice::from_ref(test)));
    let [begin, end] = formats(event).ok_or(Unsuited::NoTracepoint)?;
    let strings = Strings::of(begin, types);
    if begin.interpreter_frames_offset().is_some() && selection.ids == PidNamespace::Other {
        // Programs see the ids of processes and threads in the initial namespace.
        return Err(Unsuited::PidNamespace);
    }
    let types = [begin.id, end.id];
    let writer = Writer { lowered: &lowered, selection, types, kernel_frames, strings: strings.as_ref() };
    let codes = [writer.begin(), writer.end(), exit(strings.as_ref())];
    let files = strings.as_ref().map_or(0, Strings::kept_bytes);
    let open_bytes = (8, KEPT_BYTES + files);
    Ok(PairCodes { codes, open_bytes, record_bytes: strings.map(|strings| strings.record_bytes()) })
}

/// Returns the formats of the tracepoints that begin and end spans.
fn formats(event: &EventType) -> Option<[&EventFormat; 2]> {
    let Format::Span(format) = &event.format else { return None };
    let [begin, end] = format.inputs.as_slice() else { return None };
    Some([begin.format.tracepoint()?, end.format.tracepoint()?])
}

struct Writer<'a> {
    lowered: &'a LoweredPairs,
    selection: &'a Selection,
    /// The ids of the tracepoints.
    types: [u32; 2],
    kernel_frames: KernelFrames,
    /// What records contain besides fields; `None` if that is nothing.
    strings: Option<&'a Strings<'a>>,
}

impl Writer<'_> {
    /// Returns the program for the begins of calls.
    fn begin(&self) -> Code {
        self.program(SystemCall::Enter, |code, done| {
            count_in(code, SpanCounters::OPENED);
            code.address(Register::R1, kept(REGISTERS));
            code.copy(Register::R2, Registers::BYTES as i32);
            code.load(Size::Double, Register::R3, RAW.at(0));
            code.operate(Operation::Add, Register::R3, Registers::FIRST);
            code.call(BPF_FUNC_PROBE_READ_KERNEL);
            Registers::mark_compat(code, kept(REGISTERS));
            SystemCall::jump_if_never_returns(code, done);
            code.load(Size::Double, Register::R1, SystemCall::id());
            code.store(Size::Double, kept(ID), Register::R1);
            if let Some(strings) = self.strings {
                strings.keep(code);
            }
            code.call(BPF_FUNC_GET_SMP_PROCESSOR_ID);
            code.store(Size::Double, kept(CPU), Register::R0);
            code.call(BPF_FUNC_KTIME_GET_NS);
            code.store(Size::Double, kept(TIME), Register::R0);
            open(code, done);
        })
    }

    /// Returns the program for the ends of calls.
    fn end(&self) -> Code {
        self.program(SystemCall::Exit, |code, done| {
            let (no_begin, is_other, is_its_end) = (code.label(), code.label(), code.label());
            look_up(code, OPEN_KEY);
            code.jump_if(Condition::Equal, Register::R0, 0, no_begin);
            code.copy(BEGIN, Register::R0);
            // Only the end of this call ends the open call: the numbers of both must be equal.
            SystemCall::Exit.mark_compat(code);
            code.load(Size::Double, Register::R1, BEGIN.at(ID));
            load_number(code, Register::R2, SystemCall::id());
            code.jump_if(Condition::Equal, Register::R1, Register::R2, is_its_end);
            jump_unless_executed(code, is_other);
            code.jump(is_its_end);
            code.here(is_other);
            jump_unless_restored(code, no_begin);
            code.here(is_its_end);
            code.load(Size::Double, Register::R1, BEGIN.at(ID));
            code.store(Size::Double, call_number(), Register::R1);
            self.ended(code, done);
            code.here(no_begin);
            count_in(code, SpanCounters::WITHOUT_BEGIN);
        })
    }

    /// Returns the program of a tracepoint. `body` writes the code for selected calls. This code may jump to its label to
    /// end the program.
    fn program(&self, call: SystemCall, body: impl FnOnce(&mut Code, Label)) -> Code {
        let mut code = Code::new();
        let (own, done) = (code.label(), code.label());
        start(&mut code);
        code.copy(RAW, CONTEXT);
        call.write_record(&mut code);
        self.kernel_frames.note(&mut code, call);
        let [of_begin, of_end] = &self.lowered.selected;
        if let Some(test) = if call == SystemCall::Enter { of_begin } else { of_end } {
            test.jump(&mut code, Outcome::Fails, done);
        }
        self.selection.jump_unless(&mut code, done);
        self.selection.own.jump(&mut code, own);
        Number::Thread.load(&mut code, Register::R1);
        code.store(Size::Double, stack(OPEN_KEY), Register::R1);
        body(&mut code, done);
        code.jump(done);
        code.here(own);
        count_in(&mut code, Counters::OWN);
        code.here(done);
        code.exit(1);
        code
    }

    /// Writes code for a call that has ended. It removes the kept begin, and writes the record if the call is long enough
    /// and passes the tests.
    fn ended(&self, code: &mut Code, done: Label) {
        let (is_later, is_written, is_not) = (code.label(), code.label(), code.label());
        code.call(BPF_FUNC_KTIME_GET_NS);
        code.load(Size::Double, Register::R1, BEGIN.at(TIME));
        code.jump_if(Condition::GreaterOrEqual, Register::R0, Register::R1, is_later);
        code.copy(Register::R0, Register::R1);
        code.here(is_later);
        code.operate(Operation::Subtract, Register::R0, Register::R1);
        code.store(Size::Double, kept(TIME), Register::R0);
        if self.lowered.min != 0 {
            code.jump_if_number(Condition::Less, Register::R0, (self.lowered.min, Register::R1), is_not);
        }
        self.write_for_filters(code);
        for test in &self.lowered.tests {
            test.jump(code, Outcome::Fails, is_not);
        }
        for at in (CPU..KEPT_BYTES as i16).step_by(8) {
            code.load(Size::Double, Register::R1, BEGIN.at(at));
            code.store(Size::Double, kept(at), Register::R1);
        }
        if let Some(strings) = self.strings {
            strings.take_files(code);
        }
        take_out(code);
        self.write_record(code);
        match self.strings {
            Some(strings) => strings.output(code),
            None => output(code),
        }
        code.jump_if(Condition::Equal, Register::R0, 0, is_written);
        count_unwritten(code, done);
        code.here(is_not);
        take_out(code);
        if let Some(strings) = self.strings {
            strings.forget_name(code);
        }
        code.here(is_written);
        count_in(code, SpanCounters::ENDED);
        code.jump(done);
    }

    /// Writes code that puts values on the stack that only tests read.
    fn write_for_filters(&self, code: &mut Code) {
        if let (Text::Kept { offset, .. }, true) = (COMM, self.lowered.reads_comm) {
            Text::Comm.copy(code, stack(offset));
        }
        if let (Number::Kept { offset, .. }, true) = (ERROR, self.lowered.reads_error) {
            write_error(code, stack(offset));
        }
    }

    /// Writes code that builds the record on the stack, in the layout of `PairLayout`.
    fn write_record(&self, code: &mut Code) {
        for (at, tracepoint) in [0, PairLayout::BEGIN].into_iter().zip([self.types[1], self.types[0]]) {
            code.set(Register::R1, tracepoint.into());
            code.store(Size::Word, record(at), Register::R1);
            Number::Thread.load(code, Register::R1);
            code.store(Size::Word, record(at + 4), Register::R1);
        }
        let copied = [
            (PairLayout::ID, SystemCall::id()),
            (PairLayout::RET, SystemCall::result()),
            (PairLayout::DURATION, kept(TIME)),
            (PairLayout::CPU, kept(CPU)),
            (PairLayout::BEGIN + PairLayout::ID, kept(ID)),
        ];
        for (to, from) in copied {
            code.load(Size::Double, Register::R1, from);
            code.store(Size::Double, record(to), Register::R1);
        }
        Registers::write_arguments(code, kept(REGISTERS), record(PairLayout::BEGIN + PairLayout::ARGUMENTS));
    }
}

/// Returns the program for exiting threads.
fn exit(strings: Option<&Strings<'_>>) -> Code {
    let mut code = Code::new();
    start(&mut code);
    Number::Thread.load(&mut code, Register::R1);
    code.store(Size::Double, stack(OPEN_KEY), Register::R1);
    take_out(&mut code);
    if strings.is_some_and(Strings::keeps_names) {
        strings::remove_name(&mut code);
    }
    code.exit(1);
    code
}

/// Returns a place in the kept begin on the stack.
fn kept(at: i16) -> Place {
    stack(KEPT + at)
}

/// Returns a place in the record on the stack.
fn record(at: usize) -> Place {
    stack(RECORD).after(at)
}

/// Returns the place of the open call's number. Tests read it as a part of the key.
fn call_number() -> Place {
    stack(OPEN_KEY + 8)
}

/// Writes code that loads a call's number, to compare it with several. The verifier knows that a register has the value of the
/// stack from which it was loaded. So it would check all code that follows once more for each of the numbers. A copy that was
/// calculated has no such bond.
fn load_number(code: &mut Code, to: Register, from: Place) {
    code.load(Size::Double, to, from);
    code.operate(Operation::And, to, -1);
}

/// Writes code that keeps the begin on the stack.
fn open(code: &mut Code, done: Label) {
    let (replace, no_room) = (code.label(), code.label());
    put(code, BPF_NOEXIST);
    code.jump_if(Condition::Equal, Register::R0, 0, done);
    code.copy(Register::R1, EXISTS);
    code.jump_if(Condition::Equal, Register::R0, Register::R1, replace);
    code.jump(no_room);
    code.here(replace);
    put(code, BPF_ANY);
    code.jump_if(Condition::NotEqual, Register::R0, 0, no_room);
    count_in(code, SpanCounters::DROPPED);
    code.jump(done);
    code.here(no_room);
    count_in(code, SpanCounters::DROPPED);
    count_in(code, SpanCounters::WITHOUT_ROOM);
}

/// Writes code that removes the kept begin of the running thread.
fn take_out(code: &mut Code) {
    code.map(Register::R1, MapUse::Open);
    code.address(Register::R2, stack(OPEN_KEY));
    code.call(BPF_FUNC_MAP_DELETE_ELEM);
}

/// Returns the numbers of the calls that return where a signal interrupted the thread.
fn restores() -> impl Iterator<Item = i32> {
    let numbers = |name| system_calls::numbers(std::env::consts::ARCH, name);
    ["rt_sigreturn", "sigreturn"].into_iter().flat_map(numbers).filter_map(|number| i32::try_from(number).ok())
}

/// Writes code that puts the error number of the call on the stack; 0 if the call did not fail. The result of rt_sigreturn()
/// is not an error number, but a register of the interrupted code.
fn write_error(code: &mut Code, to: Place) {
    const LAST: i32 = 4095;
    let done = code.label();
    code.store_number(Size::Double, to, 0);
    load_number(code, Register::R1, call_number());
    restores().for_each(|number| code.jump_if(Condition::Equal, Register::R1, number, done));
    code.load(Size::Double, Register::R1, SystemCall::result());
    code.copy(Register::R2, 0);
    code.operate(Operation::Subtract, Register::R2, Register::R1);
    code.jump_if(Condition::Greater, Register::R2, LAST, done);
    code.store(Size::Double, to, Register::R2);
    code.here(done);
}

/// Writes code that jumps to `to` unless the open call, whose number is in `R1`, has run a new program. Then the end has the
/// number of execve() in programs of the new kind. `R2` contains the number of the end.
fn jump_unless_executed(code: &mut Code, to: Label) {
    let (is_execve, executed) = (code.label(), code.label());
    let numbers = |name| {
        let numbers = system_calls::numbers(std::env::consts::ARCH, name);
        numbers.filter_map(|number| i32::try_from(number).ok())
    };
    numbers("execve").for_each(|number| code.jump_if(Condition::Equal, Register::R2, number, is_execve));
    code.jump(to);
    code.here(is_execve);
    let both = numbers("execve").chain(numbers("execveat"));
    both.for_each(|number| code.jump_if(Condition::Equal, Register::R1, number, executed));
    code.jump(to);
    code.here(executed);
}

/// Writes code that jumps to `to` unless this is the end of a call like rt_sigreturn(), whose number is -1. `R2` contains the
/// number of the end.
fn jump_unless_restored(code: &mut Code, to: Label) {
    let restores_it = code.label();
    code.copy(Register::R1, -1);
    code.jump_if(Condition::NotEqual, Register::R1, Register::R2, to);
    code.load(Size::Double, Register::R1, BEGIN.at(ID));
    restores().for_each(|number| code.jump_if(Condition::Equal, Register::R1, number, restores_it));
    code.jump(to);
    code.here(restores_it);
}

/// Writes code that writes the record to the ring of the CPU. `R0` gets 0 or the error number.
fn output(code: &mut Code) {
    code.copy(BEGIN, PairLayout::BYTES as i32);
    code.copy(Register::R1, RAW);
    code.map(Register::R2, MapUse::Output);
    code.set(Register::R3, BPF_F_CURRENT_CPU);
    code.address(Register::R4, record(0));
    code.copy(Register::R5, BEGIN);
    code.call(BPF_FUNC_PERF_EVENT_OUTPUT);
}

/// Writes code that counts a record that could not be written. If the ring was full, the span counts as dropped. Otherwise
/// the event is disabled on this CPU, and the span does not belong to the run.
fn count_unwritten(code: &mut Code, done: Label) {
    let is_off = code.label();
    code.copy(Register::R1, NO_ROOM);
    code.jump_if(Condition::NotEqual, Register::R0, Register::R1, is_off);
    count_in(code, SpanCounters::DROPPED);
    count_in(code, SpanCounters::LOST);
    code.jump(done);
    code.here(is_off);
    count_in(code, SpanCounters::OFF);
    code.jump(done);
}
