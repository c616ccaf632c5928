//! The program that writes the record of an event together with the strings to which its fields point. It writes to the ring
//! of the CPU, as a sample of an event that only such programs write (`PERF_COUNT_SW_BPF_OUTPUT`).

pub(crate) mod calls;
mod probes;
mod without_fields;

use perf_prof_events::event::EventType;
use perf_prof_format::{
    abi::bpf::{
        BPF_F_CURRENT_CPU, BPF_FUNC_PERF_EVENT_OUTPUT, BPF_FUNC_PROBE_READ_KERNEL, BPF_FUNC_PROBE_READ_USER_STR,
    },
    tracefs::{
        CUT_MARK, EventFormat, Filter, LONGEST_STRING, MOUNT_NAMESPACE, MOUNT_NAMESPACE_ID, StringAddress, StringPlace,
    },
};

use calls::Call;
pub use calls::UNREAD_BYTES;
pub use probes::{can_write_samples, probe_program};
pub use without_fields::frames_program;

use crate::{
    expression::{CONTEXT, Number, Outcome, start},
    frames::{FRAMES_BYTES, LARGEST_FRAMES, ValueUse, read_frames, write_frames},
    instruction::{Code, Condition, LONGEST, Label, MapUse, Operation, Place, Program, Register, Size},
    lower::{PidNamespace, Unsuited, lower_filter},
    paths::{
        Found, LONGEST_PATH, NumberIterator, PATHS_BYTES, PathTypes, jump_unless, load_namespace, load_path, make_paths,
    },
    select::{EventRegisters, Selection, look_up_only},
};

/// The register with the address of the record that is being built.
pub(crate) const RECORD: Register = Register::R7;
/// The register with the present length of the record, in bytes.
pub(crate) const LENGTH: Register = Register::R8;

/// A program that writes records with strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringProgram {
    /// The program.
    pub program: Program,
    /// The size of the map value in which a record is built, in bytes: the largest record, and a word for its length.
    pub record_bytes: usize,
    /// How many values its maps have on each CPU. If there are several, the program counts the events that find none.
    pub values: u32,
}

impl StringProgram {
    /// Returns whether the program uses a map.
    pub fn uses(&self, map: MapUse) -> bool {
        self.program.uses(map)
    }

    /// Returns how much memory its maps take in the kernel on each CPU, in bytes.
    pub fn bytes_of_cpu(&self) -> usize {
        let sizes = [(MapUse::Record, self.record_bytes), (MapUse::Frames, FRAMES_BYTES)];
        let of_values: usize = sizes.iter().filter(|(map, _)| self.uses(*map)).map(|(_, bytes)| bytes).sum();
        let of_paths = if self.uses(MapUse::Paths) { PATHS_BYTES } else { 0 };
        of_values * self.values as usize + of_paths
    }
}

/// What programs need to know of the running kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelTypes<'a> {
    /// The offsets for reading paths. If `None`, records contain no paths.
    pub paths: Option<&'a PathTypes>,
    /// The iterator for loops; `None` if programs cannot use it.
    pub iterator: Option<NumberIterator>,
    /// How to recognize events in interrupts; `None` if they never happen there, or if programs cannot recognize them.
    pub registers: Option<EventRegisters>,
}

/// Returns the program that writes the records of an event whose format contains strings or frames of an interpreter.
/// `filter` is the filter of the selector.
pub fn string_program(
    event: &EventType,
    filter: Option<&Filter>,
    selection: &Selection,
    types: KernelTypes<'_>,
) -> Result<StringProgram, Unsuited> {
    let format = event.format.tracepoint().ok_or(Unsuited::NoTracepoint)?;
    let code = string_code(event, format, (filter, selection), types)?;
    let program = code.program();
    match program.instructions.len() {
        words if words > LONGEST => Err(Unsuited::Long(words)),
        _ => Ok(StringProgram { program, record_bytes: record_bytes(format), values: 1 }),
    }
}

/// Returns the size of the map value in which a record is built: the largest record, and a word for its length.
pub(crate) fn record_bytes(format: &EventFormat) -> usize {
    let longest = longest_string(&format.strings());
    let frames = if format.interpreter_frames_offset().is_some() { LARGEST_FRAMES } else { 0 };
    (format.first_string() + format.strings().len() * longest + frames).next_multiple_of(8) + 8
}

/// Returns the size of the longest string, in bytes. Of a string in a program's memory, one byte more than the maximum is
/// read. This byte shows whether the string must be cut off.
fn longest_string(strings: &[StringPlace]) -> usize {
    let may_be_path = strings.iter().any(|string| string.argument.is_some());
    if may_be_path { LONGEST_PATH.max(LONGEST_STRING + 1) } else { LONGEST_STRING + 1 }
}

/// How much a record can still hold.
pub(crate) struct Room {
    /// The place in memory of the record's present length. The verifier does not track values in memory. So it verifies the
    /// code after a string only once, whatever the length of the string is.
    length: Place,
    /// The maximum length of a record to which a string can still be added.
    most: i32,
    /// Whether a string can be a path.
    has_paths: bool,
    /// Where the code jumps if the record is full. This never happens.
    full: Label,
}

impl Room {
    /// Returns how much the records of an event can hold.
    pub fn new(format: &EventFormat, has_paths: bool, full: Label) -> Room {
        let bytes = record_bytes(format) - 8;
        let most = (bytes - longest_string(&format.strings())) as i32;
        Room { length: RECORD.at(bytes as i16), most, has_paths, full }
    }

    /// Writes code that checks that another string fits into the record.
    fn check(&self, code: &mut Code) {
        self.check_for(code, self.most, Some(self.full));
    }

    /// Writes code that checks that the present length is at most `most`. Otherwise the code sets the length to `most` and
    /// jumps to `full`, if there is such a label.
    pub fn check_for(&self, code: &mut Code, most: i32, full: Option<Label>) {
        let has_room = code.label();
        code.store(Size::Double, self.length, LENGTH);
        code.load(Size::Double, LENGTH, self.length);
        code.jump_if(Condition::LessOrEqual, LENGTH, most, has_room);
        code.copy(LENGTH, most);
        full.into_iter().for_each(|full| code.jump(full));
        code.here(has_room);
    }
}

pub(crate) fn string_code(
    event: &EventType,
    format: &EventFormat,
    (filter, selection): (Option<&Filter>, &Selection),
    types: KernelTypes<'_>,
) -> Result<Code, Unsuited> {
    selection.check()?;
    let frames = format.interpreter_frames_offset();
    if frames.is_some() && selection.ids == PidNamespace::Other {
        // Programs see the ids of processes and threads in the initial namespace.
        return Err(Unsuited::PidNamespace);
    }
    let test = filter.map(|filter| lower_filter(filter, event, selection.ids)).transpose()?;
    let strings = format.strings();
    let mut code = Code::new();
    let done = code.label();
    start(&mut code);
    selection.jump_unless(&mut code, done);
    if let Some(test) = &test {
        test.jump(&mut code, Outcome::Fails, done);
    }
    let call = Call::of(format, &strings);
    let of_begin = types.paths.zip(call.as_ref().and_then(Call::begin));
    if let Some((types, (call, arguments))) = of_begin {
        make_paths(&mut code, types, Found::All, (call, |at: usize| CONTEXT.at((arguments + 8 * at) as i16)));
    }
    if frames.is_some() {
        read_frames(&mut code, types.iterator, ValueUse::Only);
    }
    look_up_only(&mut code, MapUse::Record);
    code.jump_if(Condition::Equal, Register::R0, 0, done);
    code.copy(RECORD, Register::R0);
    write_fields(&mut code, format, &strings, types.registers);
    if of_begin.is_some() {
        write_namespace(&mut code, format);
    }
    code.copy(LENGTH, format.first_string() as i32);
    let written = code.label();
    let room = Room::new(format, of_begin.is_some(), written);
    if let Some(call) = &call {
        call.find_strings(&mut code, &strings, types.paths, written);
    }
    strings.iter().for_each(|string| write_string(&mut code, *string, &room, call.as_ref()));
    code.here(written);
    if let Some(offset) = frames {
        room.check_for(&mut code, (record_bytes(format) - 8 - LARGEST_FRAMES) as i32, None);
        write_frames(&mut code, RECORD, LENGTH, offset);
    }
    write_record(&mut code);
    if let Some(call) = &call {
        call.keep_unread(&mut code, done);
    }
    code.here(done);
    // A result of 0 would keep the event from other users of the tracepoint.
    code.exit(1);
    Ok(code)
}

/// Writes the code that puts the record into the ring.
fn write_record(code: &mut Code) {
    code.copy(Register::R1, CONTEXT);
    code.map(Register::R2, MapUse::Output);
    code.set(Register::R3, BPF_F_CURRENT_CPU);
    code.copy(Register::R4, RECORD);
    code.copy(Register::R5, LENGTH);
    // A failure needs no action. If the ring is full, the kernel counts the record as lost. If the event is disabled on this
    // CPU, nobody needs the record.
    code.call(BPF_FUNC_PERF_EVENT_OUTPUT);
}

/// Writes code that copies the fields of the tracepoint to the record. Programs do not get the common fields, so the code
/// sets them itself: `common_preempt_count` is 0, and `common_flags` says only whether the event happened in an interrupt.
pub(crate) fn write_fields(
    code: &mut Code,
    format: &EventFormat,
    strings: &[StringPlace],
    registers: Option<EventRegisters>,
) {
    write_common_fields(code, format, registers);
    let hidden = format.interpreter_frames_offset();
    let first_added = strings.iter().map(|string| string.location).chain(hidden).min().unwrap_or(0);
    // Do not read beyond the last field: the kernel would refuse to attach the program.
    let of_tracepoint = format.common_fields().iter().chain(format.fields()).filter(|field| field.offset < first_added);
    let end = of_tracepoint.map(|field| field.offset + field.size).max().unwrap_or(0);
    let mut done = 8;
    while done < end {
        let part = Size::aligned(done, end - done);
        code.load(part, Register::R1, CONTEXT.at(done as i16));
        code.store(part, RECORD.at(done as i16), Register::R1);
        done += part.bytes();
    }
    write_zeros(code, done, first_added);
    write_zeros(code, first_added + 4 * strings.len(), format.first_string());
}

/// Writes code that sets the fields with the number and the id of the task's mount namespace.
pub(crate) fn write_namespace(code: &mut Code, format: &EventFormat) {
    let fields = (format.field(MOUNT_NAMESPACE), format.field(MOUNT_NAMESPACE_ID));
    if let (Some(number), Some(id)) = fields {
        load_namespace(code);
        code.store(Size::Word, RECORD.at(number.offset as i16), Register::R1);
        code.store(Size::Double, RECORD.at(id.offset as i16), Register::R2);
    }
}

/// Writes code that sets the common fields: the first 8 bytes of the record.
fn write_common_fields(code: &mut Code, format: &EventFormat, registers: Option<EventRegisters>) {
    code.set(Register::R1, u64::from(format.id));
    code.store(Size::Half, RECORD.at(0), Register::R1);
    code.store_number(Size::Half, RECORD.at(2), 0);
    if let Some(registers) = registers {
        registers.store_flags(code, RECORD.at(2));
    }
    Number::Thread.load(code, Register::R1);
    code.store(Size::Word, RECORD.at(4), Register::R1);
}

/// Writes code that sets the bytes of the record between two offsets to 0.
fn write_zeros(code: &mut Code, mut from: usize, to: usize) {
    while from < to {
        let part = Size::aligned(from, to - from);
        code.store_number(part, RECORD.at(from as i16), 0);
        from += part.bytes();
    }
}

/// Writes code that reads a string to the end of the record, and stores its offset and length.
fn write_string(code: &mut Code, string: StringPlace, room: &Room, call: Option<&Call>) {
    let read = |code: &mut Code| {
        end_of_record(code);
        code.copy(Register::R2, LONGEST_STRING as i32 + 1);
        match (string.address, string.argument) {
            (StringAddress::Field(offset), _) => code.load(Size::Double, Register::R3, CONTEXT.at(offset as i16)),
            (StringAddress::Kept, argument) => calls::load_kept(code, argument.unwrap_or(0), Register::R3),
            (StringAddress::OfTask, _) => {}
        }
        code.call(BPF_FUNC_PROBE_READ_USER_STR);
    };
    let not_read = |code: &mut Code| {
        if let (Some(call), Some(argument)) = (call, string.argument) {
            call.note_unread(code, argument);
        }
    };
    write_read_string(code, string, room, read, not_read);
}

/// Writes code that puts a string at the end of the record, and stores its offset and length. `read` writes code that reads
/// the string there and sets `R0` to its size. A string that cannot be read has no bytes, and an empty string has its NUL.
/// An argument that is not a string can have a path.
pub(crate) fn write_read_string(
    code: &mut Code,
    string: StringPlace,
    room: &Room,
    read: impl FnOnce(&mut Code),
    not_read: impl FnOnce(&mut Code),
) {
    let [is_no_string, is_absent, is_read, next] = std::array::from_fn(|_| code.label());
    room.check(code);
    if string.address != StringAddress::OfTask {
        if let Some(argument) = string.argument {
            jump_unless(code, 1 << argument, is_no_string);
        }
        read(code);
        code.jump_if(Condition::GreaterSigned, Register::R0, 0, is_read);
        not_read(code);
        code.jump(is_absent);
        code.here(is_read);
        write_place(code, string);
        code.jump(next);
    }
    code.here(is_no_string);
    if let (Some(slot), true) = (string.argument, room.has_paths) {
        write_path(code, slot, string, is_absent);
        code.jump(next);
    }
    code.here(is_absent);
    write_nothing(code, &[string]);
    code.here(next);
}

/// Writes code that puts a path at the end of the record, and stores its offset and length.
fn write_path(code: &mut Code, slot: usize, string: StringPlace, absent: Label) {
    let location = RECORD.at(string.location as i16);
    load_path(code, slot, absent);
    code.copy(Register::R1, Register::R2);
    code.operate(Operation::ShiftLeft, Register::R1, 16);
    code.operate(Operation::Or, Register::R1, LENGTH);
    code.store(Size::Word, location, Register::R1);
    end_of_record(code);
    code.call(BPF_FUNC_PROBE_READ_KERNEL);
    code.jump_if(Condition::NotEqual, Register::R0, 0, absent);
    code.load(Size::Half, Register::R1, location.after(2));
    code.jump_if(Condition::Greater, Register::R1, LONGEST_PATH as i32, absent);
    code.operate(Operation::Add, LENGTH, Register::R1);
}

/// Writes code that stores the offset and the length of the string at the end of the record. `R0` contains its size.
fn write_place(code: &mut Code, string: StringPlace) {
    let is_whole = code.label();
    code.jump_if(Condition::LessOrEqual, Register::R0, LONGEST_STRING as i32, is_whole);
    end_of_record(code);
    let mark = CUT_MARK.bytes().chain([0]);
    for (at, byte) in (LONGEST_STRING - CUT_MARK.len() - 1..).zip(mark) {
        code.store_number(Size::Byte, Register::R1.at(at as i16), byte.into());
    }
    code.store_number(Size::Byte, RECORD.at(string.cut as i16), 1);
    code.copy(Register::R0, LONGEST_STRING as i32);
    code.here(is_whole);
    code.copy(Register::R1, Register::R0);
    code.operate(Operation::ShiftLeft, Register::R1, 16);
    code.operate(Operation::Or, Register::R1, LENGTH);
    code.store(Size::Word, RECORD.at(string.location as i16), Register::R1);
    code.operate(Operation::Add, LENGTH, Register::R0);
}

/// Writes code that marks strings as missing. It appends a NUL to the record. Each missing string gets the length 0 and the
/// offset of this NUL, so readers that ignore the length find an empty string.
pub(crate) fn write_nothing(code: &mut Code, strings: &[StringPlace]) {
    end_of_record(code);
    code.store_number(Size::Byte, Register::R1.at(0), 0);
    for string in strings {
        code.store(Size::Word, RECORD.at(string.location as i16), LENGTH);
    }
    code.operate(Operation::Add, LENGTH, 1);
}

/// Writes code that sets `R1` to the address of the record's present end.
pub(crate) fn end_of_record(code: &mut Code) {
    code.copy(Register::R1, RECORD);
    code.operate(Operation::Add, Register::R1, LENGTH);
}

#[cfg(test)]
mod path_tests;
#[cfg(test)]
mod tests;
