//! Strings in the records of pairs. They are read when the call ends, and only for calls that pass the tests: by then, the
//! kernel has loaded their pages. There are two exceptions. If a thread runs a program, the program's name is read when the
//! call begins, because its memory is gone at the end. If a file descriptor is closed, its path is read when the call begins
//! too.
//!
//! The frames of an interpreter follow the strings. They are those of the begin too, because the thread was in the kernel
//! meanwhile.

use perf_prof_events::derive::PairLayout;
use perf_prof_format::{
    abi::{
        bpf::{
            BPF_ANY, BPF_F_CURRENT_CPU, BPF_FUNC_GET_CURRENT_PID_TGID, BPF_FUNC_MAP_DELETE_ELEM,
            BPF_FUNC_MAP_LOOKUP_ELEM, BPF_FUNC_MAP_UPDATE_ELEM, BPF_FUNC_PERF_EVENT_OUTPUT, BPF_FUNC_PROBE_READ_KERNEL,
            BPF_FUNC_PROBE_READ_KERNEL_STR, BPF_FUNC_PROBE_READ_USER_STR,
        },
        string_arguments::string_arguments,
        system_calls,
    },
    tracefs::{EventFormat, LONGEST_STRING, StringAddress, StringPlace},
};

use super::{BEGIN, KEPT_BYTES, RAW, REGISTERS, call_number, kept, load_number, record};
use crate::{
    expression::{CONTEXT, IDS},
    frames::{LARGEST_FRAMES, ValueUse, read_frames, write_frames},
    instruction::{Code, Condition, Label, MapUse, Operation, Place, Register, Size},
    lower::OPEN_KEY,
    paths::{
        BEGAN_WITH, FILES, Found, KEPT_PATH_BYTES, NumberIterator, PathTypes, SLOTS, STRINGS, add_file, forget_paths,
        jump_unless, keep_files, kept_path, look_up_call, look_up_paths, make_paths, read_namespace, walk,
    },
    select::look_up_only,
    span::{
        stack,
        system_call::{Registers, SystemCall},
    },
    strings::{
        KernelTypes, LENGTH, RECORD, Room, end_of_record, record_bytes, write_fields, write_namespace, write_nothing,
        write_read_string,
    },
};

/// The calls that run another program.
const RUNS: [&str; 2] = ["execve", "execveat"];
/// The call that closes its file descriptor.
const CLOSES: &str = "close";
/// How many bytes are kept of the name of a program, or of a path.
pub const KEPT_STRING_BYTES: usize = KEPT_PATH_BYTES;
/// The places on the stack of the raw tracepoint's context, and of the kept name's address.
const SAVED: Place = Place { base: Register::Frame, offset: -16 };
const NAME: Place = Place { base: Register::Frame, offset: -24 };

/// What the records of pairs contain besides fields: strings, and the frames of an interpreter.
pub(super) struct Strings<'a> {
    /// The format of the begins of calls.
    format: &'a EventFormat,
    places: Vec<StringPlace>,
    /// The offsets for reading paths; `None` if records contain no paths.
    types: Option<&'a PathTypes>,
    /// The iterator for the loop over frames; `None` if programs cannot use it.
    iterator: Option<NumberIterator>,
}

impl<'a> Strings<'a> {
    /// Returns the strings and the frames in a format; `None` if there are neither.
    pub fn of(format: &'a EventFormat, types: KernelTypes<'a>) -> Option<Strings<'a>> {
        let places = format.strings();
        let has_some = !places.is_empty() || format.interpreter_frames_offset().is_some();
        let paths = types.paths.filter(|_| !places.is_empty());
        has_some.then_some(Strings { format, places, types: paths, iterator: types.iterator })
    }

    /// Returns whether names are kept when calls begin.
    pub fn keeps_names(&self) -> bool {
        !self.places.is_empty()
    }

    /// Returns how many bytes are kept for the strings of an open call.
    pub fn kept_bytes(&self) -> usize {
        if self.types.is_some() { 8 * SLOTS } else { 0 }
    }

    /// Returns the size of the largest record, in bytes.
    pub fn record_bytes(&self) -> usize {
        PairLayout::BEGIN + record_bytes(self.format)
    }

    /// Writes code that keeps the strings that cannot be read when the call ends. The call's key and registers are on the
    /// stack.
    pub fn keep(&self, code: &mut Code) {
        if let Some(types) = self.types {
            let done = code.label();
            self.keep_files(code, types, done);
            keep_closed(code, types, done);
            code.here(done);
        }
        self.keep_name(code);
    }

    /// Writes code that keeps the addresses of the files to which a call refers at its begin. The code jumps to `done` if
    /// there are no such files.
    fn keep_files(&self, code: &mut Code, types: &PathTypes, done: Label) {
        for slot in 0..SLOTS {
            code.store_number(Size::Double, kept_file(slot), 0);
        }
        look_up_paths(code, done);
        look_up_call(code, PairLayout::ID, None);
        jump_unless(code, FILES, done);
        keep_files(code, types, kept_file(0), |at| Registers::argument(kept(REGISTERS), at));
    }

    /// Writes code that copies the addresses of the call's files from the kept begin.
    pub fn take_files(&self, code: &mut Code) {
        if self.types.is_none() {
            return;
        }
        let done = code.label();
        look_up_only(code, MapUse::Paths);
        code.jump_if(Condition::Equal, Register::R0, 0, done);
        for at in (0..self.kept_bytes()).step_by(8) {
            code.load(Size::Double, Register::R1, BEGIN.at((KEPT_BYTES + at) as i16));
            code.store(Size::Double, Register::R0.at(BEGAN_WITH.offset).after(at), Register::R1);
        }
        code.here(done);
    }

    /// Writes code that builds the paths of the call.
    fn make_paths(&self, code: &mut Code, types: &PathTypes) {
        let (is_open, absent, done) = (code.label(), code.label(), code.label());
        load_number(code, Register::R1, call_number());
        jump_unless_closes(code, is_open);
        look_up_paths(code, absent);
        forget_paths(code);
        read_namespace(code, types);
        look_up_name(code);
        code.jump_if(Condition::Equal, Register::R0, 0, absent);
        code.copy(Register::R3, Register::R0);
        code.address(Register::R1, kept_path(0));
        code.copy(Register::R2, KEPT_PATH_BYTES as i32);
        code.call(BPF_FUNC_PROBE_READ_KERNEL);
        code.here(absent);
        code.call(BPF_FUNC_GET_CURRENT_PID_TGID);
        code.copy(IDS, Register::R0);
        code.jump(done);
        code.here(is_open);
        let arguments = record(PairLayout::BEGIN + PairLayout::ARGUMENTS);
        make_paths(code, types, Found::Unchanged, (PairLayout::ID, |at| arguments.after(8 * at)));
        code.here(done);
    }

    /// Writes code that keeps the name of the program that the thread is about to run.
    fn keep_name(&self, code: &mut Code) {
        if !self.keeps_names() {
            return;
        }
        let done = code.label();
        for (number, argument) in runs() {
            let other = code.label();
            load_number(code, Register::R1, SystemCall::id());
            code.jump_if(Condition::NotEqual, Register::R1, number, other);
            look_up_record(code, done);
            code.copy(BEGIN, Register::R0);
            code.copy(Register::R1, BEGIN);
            code.copy(Register::R2, LONGEST_STRING as i32 + 1);
            code.load(Size::Double, Register::R3, Registers::argument(kept(REGISTERS), argument));
            code.call(BPF_FUNC_PROBE_READ_USER_STR);
            code.jump_if(Condition::LessOrEqualSigned, Register::R0, 0, done);
            code.copy(Register::R3, BEGIN);
            keep_string(code);
            code.jump(done);
            code.here(other);
        }
        code.here(done);
    }

    /// Writes code that removes the string that `keep` has kept.
    pub fn forget_name(&self, code: &mut Code) {
        if !self.keeps_names() {
            return;
        }
        let (is_kept, done) = (code.label(), code.label());
        jump_if_runs(code, is_kept);
        if self.types.is_some() {
            closes().for_each(|number| code.jump_if(Condition::Equal, Register::R1, number, is_kept));
        }
        code.jump(done);
        code.here(is_kept);
        remove_name(code);
        code.here(done);
    }

    /// Writes code that copies the record from the stack, adds the strings and the frames, and writes the record to the ring.
    /// `R0` gets 0 or the error number.
    pub fn output(&self, code: &mut Code) {
        let done = code.label();
        let frames = self.format.interpreter_frames_offset();
        code.store(Size::Double, SAVED, RAW);
        code.address(CONTEXT, record(PairLayout::BEGIN));
        if let Some(types) = self.types {
            self.make_paths(code, types);
        }
        if frames.is_some() {
            read_frames(code, self.iterator, ValueUse::Only);
        }
        look_up_record(code, done);
        code.copy(RECORD, Register::R0);
        code.operate(Operation::Add, RECORD, PairLayout::BEGIN as i32);
        for at in (0..PairLayout::BEGIN).step_by(8) {
            code.load(Size::Double, Register::R1, record(at));
            code.store(Size::Double, RECORD.at(at as i16 - PairLayout::BEGIN as i16), Register::R1);
        }
        write_fields(code, self.format, &self.places, None);
        if self.types.is_some() {
            write_namespace(code, self.format);
        }
        code.copy(LENGTH, self.format.first_string() as i32);
        let written = code.label();
        let room = Room::new(self.format, self.types.is_some(), written);
        self.write_strings(code, &room, written);
        code.here(written);
        self.forget_name(code);
        if let Some(offset) = frames {
            room.check_for(code, (record_bytes(self.format) - 8 - LARGEST_FRAMES) as i32, None);
            write_frames(code, RECORD, LENGTH, offset);
        }
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

    /// Writes code that adds the strings. If there are none, it jumps to `written`.
    fn write_strings(&self, code: &mut Code, room: &Room, written: Label) {
        if self.places.is_empty() {
            return;
        }
        let has_strings = code.label();
        look_up_call(code, PairLayout::ID, None);
        self.find_name(code);
        code.jump_if(Condition::NotEqual, STRINGS, 0, has_strings);
        write_nothing(code, &self.places);
        code.jump(written);
        code.here(has_strings);
        self.places.iter().for_each(|place| write_string(code, *place, room));
    }

    /// Writes code that finds the kept name. If there is none, the record gets no strings.
    fn find_name(&self, code: &mut Code) {
        let (runs_program, found, done) = (code.label(), code.label(), code.label());
        code.store_number(Size::Double, NAME, 0);
        jump_if_runs(code, runs_program);
        code.jump(done);
        code.here(runs_program);
        look_up_name(code);
        code.jump_if(Condition::NotEqual, Register::R0, 0, found);
        code.copy(STRINGS, 0);
        code.jump(done);
        code.here(found);
        code.store(Size::Double, NAME, Register::R0);
        code.here(done);
    }
}

/// Returns the place on the stack of a file's kept address.
fn kept_file(slot: usize) -> Place {
    kept(KEPT_BYTES as i16).after(8 * slot)
}

/// Writes code that keeps the path of the file descriptor that a call closes. The files of the call were found before.
fn keep_closed(code: &mut Code, types: &PathTypes, done: Label) {
    load_number(code, Register::R1, SystemCall::id());
    jump_unless_closes(code, done);
    code.load(Size::Double, Register::R1, kept_file(0));
    code.jump_if(Condition::Equal, Register::R1, 0, done);
    forget_paths(code);
    add_file(code, types, kept_file(0), 0);
    walk(code, types);
    code.address(Register::R3, kept_path(0));
    keep_string(code);
}

/// Writes code that keeps the text at the address in `R3` for the running thread.
fn keep_string(code: &mut Code) {
    code.map(Register::R1, MapUse::Names);
    code.address(Register::R2, stack(OPEN_KEY));
    code.set(Register::R4, BPF_ANY);
    code.call(BPF_FUNC_MAP_UPDATE_ELEM);
}

/// Writes code that sets `R0` to the address of the text that is kept for the running thread; 0 if there is none.
fn look_up_name(code: &mut Code) {
    code.map(Register::R1, MapUse::Names);
    code.address(Register::R2, stack(OPEN_KEY));
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
}

/// Returns the numbers of close().
fn closes() -> impl Iterator<Item = i32> {
    system_calls::numbers(std::env::consts::ARCH, CLOSES).filter_map(|number| i32::try_from(number).ok())
}

/// Writes code that jumps to `to` unless `R1` contains a number of close().
fn jump_unless_closes(code: &mut Code, to: Label) {
    let is_close = code.label();
    closes().for_each(|number| code.jump_if(Condition::Equal, Register::R1, number, is_close));
    code.jump(to);
    code.here(is_close);
}

/// Writes code that removes the name that is kept for the running thread.
pub(super) fn remove_name(code: &mut Code) {
    code.map(Register::R1, MapUse::Names);
    code.address(Register::R2, stack(OPEN_KEY));
    code.call(BPF_FUNC_MAP_DELETE_ELEM);
}

/// Writes code that reads a string from the kept name, or from the memory of the program.
fn write_string(code: &mut Code, place: StringPlace, room: &Room) {
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
    write_read_string(code, place, room, read, |_| {});
}

/// Writes code that sets `R0` to the address of the record that is being built.
fn look_up_record(code: &mut Code, absent: Label) {
    look_up_only(code, MapUse::Record);
    let found = code.label();
    code.jump_if(Condition::NotEqual, Register::R0, 0, found);
    code.copy(Register::R0, 1);
    code.jump(absent);
    code.here(found);
}

/// Writes code that jumps to `to` if the call that has ended runs a program. It always sets `R1` to the number of the call.
fn jump_if_runs(code: &mut Code, to: Label) {
    load_number(code, Register::R1, call_number());
    runs().for_each(|(number, _)| code.jump_if(Condition::Equal, Register::R1, number, to));
}

/// Returns the number of each call that runs a program, and the index of the argument that is the program's name.
fn runs() -> impl Iterator<Item = (i32, usize)> {
    RUNS.into_iter().flat_map(|name| {
        let argument = string_arguments(name).first().map(|(argument, _)| *argument);
        let numbers =
            system_calls::numbers(std::env::consts::ARCH, name).filter_map(|number| i32::try_from(number).ok());
        numbers.filter_map(move |number| Some((number, argument?)))
    })
}
