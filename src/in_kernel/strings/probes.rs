//! The program that writes the samples of a probe, with the frames of an interpreter. The kernel gives such a program the
//! registers in place of the probe's record, so the program makes the record.

use perf_prof_events::event::EventType;
use perf_prof_format::tracefs::{EventFormat, Filter};
use perf_prof_system::probe_definition::{FireAt, ProbeDefinition, ProbedCode};

use super::{KernelTypes, LENGTH, RECORD, StringProgram, record_bytes, write_common_fields, write_record, write_zeros};
use crate::{
    expression::{CONTEXT, Number, Outcome, Test, start},
    frames::{PREEMPTED_VALUES, ValueUse, leave_value, read_frames, take_value, write_frames},
    instruction::{Code, Condition, Label, MapUse, Register, Size},
    lower::{PidNamespace, Unsuited, lower_filter},
    select::{Selection, count_in},
};

/// The counter of events without a record, because as many preempted tasks as there are values were at their events. It is the
/// only counter of a probe's program.
const WITHOUT_VALUE: i16 = 0;

/// The registers, in the order of `struct pt_regs` (arch/x86/include/uapi/asm/ptrace.h), with the names that definitions of
/// probes use.
#[cfg(target_arch = "x86_64")]
const REGISTERS: &[&str] = &[
    "r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di", "orig_ax", "ip",
    "cs", "flags", "sp", "ss",
];
/// On other processors, programs do not know where registers are.
#[cfg(not(target_arch = "x86_64"))]
const REGISTERS: &[&str] = &[];

/// Where a program finds the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldValue {
    /// The value is in a register. The number is the offset of the register in the context (`struct pt_regs`).
    Register(i16),
    Constant(u64),
}

/// A field of the record that a program fills in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProbeField {
    offset: i16,
    size: Size,
    value: FieldValue,
}

/// Returns whether a program can write the samples of a probe. The probe must be in the code of a process, must not fire at
/// a function's return, and may only have arguments that are registers or constants. For an argument in memory, a program
/// could not wait until the memory is loaded, as the kernel does. At a function's return, the registers do not contain the
/// function's address.
pub fn can_write_samples(format: &EventFormat, definition: &ProbeDefinition) -> bool {
    definition.places.iter().all(|place| fields(format, definition, &place.arguments).is_some())
}

/// Returns the program that writes the samples of a probe. All places of the definition have the same arguments. `filter`
/// is the filter of the selector.
pub fn probe_program(
    event: &EventType,
    definition: &ProbeDefinition,
    filter: Option<&Filter>,
    (selection, types): (&Selection, KernelTypes<'_>),
) -> Result<StringProgram, Unsuited> {
    selection.check()?;
    if selection.ids == PidNamespace::Other {
        // Processes and threads are found by the ids that the first namespace gives them.
        return Err(Unsuited::PidNamespace);
    }
    let format = event.format.tracepoint().ok_or(Unsuited::NoTracepoint)?;
    let arguments = definition.places.first().map(|place| &*place.arguments).unwrap_or_default();
    let fields = fields(format, definition, arguments).ok_or(Unsuited::Probe)?;
    let frames = format.interpreter_frames_offset().ok_or(Unsuited::Probe)?;
    let test = filter.map(|filter| lower_filter(filter, event, selection.ids)).transpose()?;
    let test = test.map(|test| test.with_numbers(&|number| before_record(number, &fields)));
    let mut code = Code::new();
    let [leave, none, done] = std::array::from_fn(|_| code.label());
    begin(&mut code, selection, test, [none, done]);
    let look_up_record = |code: &mut Code| {
        ValueUse::Taken.look_up(code, MapUse::Record);
        code.jump_if(Condition::Equal, Register::R0, 0, leave);
        code.copy(RECORD, Register::R0);
    };
    look_up_record(&mut code);
    write_common_fields(&mut code, format, None);
    write_zeros(&mut code, 8, format.first_string());
    fields.iter().for_each(|field| field.write(&mut code));
    read_frames(&mut code, types.iterator, ValueUse::Taken);
    look_up_record(&mut code);
    code.copy(LENGTH, format.first_string() as i32);
    write_frames(&mut code, RECORD, LENGTH, frames);
    write_record(&mut code);
    code.here(leave);
    leave_value(&mut code);
    code.jump(done);
    note_without_value(&mut code, none);
    code.here(done);
    // Only perf-prof uses this definition of the probe, and the event of the probe has no ring. So the kernel need not make
    // the sample.
    code.exit(0);
    Ok(StringProgram { program: code.program(), record_bytes: record_bytes(format), values: PREEMPTED_VALUES })
}

/// Writes the code that takes a value if the event is selected and passes the test. It jumps to `none` if there is no value,
/// and to `done` if the event does not pass: such an event is not counted as missing.
fn begin(code: &mut Code, selection: &Selection, test: Option<Test>, [none, done]: [Label; 2]) {
    start(code);
    selection.jump_unless(code, done);
    if let Some(test) = test {
        test.jump(code, Outcome::Fails, done);
    }
    take_value(code, none);
}

/// Returns the number of a field from where it is before there is a record.
fn before_record(number: Number, fields: &[ProbeField]) -> Number {
    let Number::Field { offset, ty } = number else { return number };
    match fields.iter().find(|field| field.offset == offset).map(|field| field.value) {
        Some(FieldValue::Register(offset)) => Number::Field { offset, ty },
        Some(FieldValue::Constant(value)) => Number::Constant(ty.wrap(value)),
        None => number,
    }
}

/// Writes the code that counts an event that finds no value. It is reached by a jump to `none`.
fn note_without_value(code: &mut Code, none: Label) {
    code.here(none);
    count_in(code, WITHOUT_VALUE);
}

impl ProbeField {
    fn write(self, code: &mut Code) {
        match self.value {
            FieldValue::Register(offset) => code.load(Size::Double, Register::R1, CONTEXT.at(offset)),
            FieldValue::Constant(number) => code.set(Register::R1, number),
        }
        code.store(self.size, RECORD.at(self.offset), Register::R1);
    }
}

/// Returns the fields of a probe's record. `None` if programs cannot read one of them.
fn fields(format: &EventFormat, definition: &ProbeDefinition, arguments: &[String]) -> Option<Vec<ProbeField>> {
    if definition.fire_at == FireAt::Return || matches!(definition.probed, ProbedCode::Kernel(_)) {
        return None;
    }
    let mut fields = vec![field(format, "__probe_ip", FieldValue::Register(register("ip")?))?];
    for argument in arguments {
        let (name, fetch) = argument.split_once('=')?;
        let (fetch, type_name) = fetch.split_once(':').map_or((fetch, None), |(fetch, name)| (fetch, Some(name)));
        type_name.is_none_or(is_number).then_some(())?;
        fields.push(field(format, name, value(fetch)?)?);
    }
    (fields.len() == format.fields().len()).then_some(fields)
}

fn field(format: &EventFormat, name: &str, value: FieldValue) -> Option<ProbeField> {
    let field = format.field(name)?;
    let size =
        [Size::Byte, Size::Half, Size::Word, Size::Double].into_iter().find(|size| size.bytes() == field.size)?;
    Some(ProbeField { offset: i16::try_from(field.offset).ok()?, size, value })
}

/// Returns whether a type in the kernel's syntax of probes is an integer type, such as `u32`.
fn is_number(type_name: &str) -> bool {
    let bits = type_name.strip_prefix(['u', 's', 'x']);
    bits.is_some_and(|bits| ["8", "16", "32", "64"].contains(&bits))
}

/// Returns the value of an argument in the syntax of the kernel (Documentation/trace/uprobetracer.rst).
fn value(fetch: &str) -> Option<FieldValue> {
    let of_register = |name: &str| register(name).map(FieldValue::Register);
    let (sign, rest) = fetch.split_at_checked(1)?;
    match (sign, rest) {
        ("%", name) => of_register(name),
        ("$", "stack") => of_register("sp"),
        // The kernel takes a number with a leading 0 for an octal one (`str_to_immediate()` in kernel/trace/trace_probe.c).
        ("\\", number) if number.len() == 1 || !number.starts_with('0') => {
            let number = number.parse::<i64>().map(|number| number as u64).or_else(|_| number.parse());
            number.ok().map(FieldValue::Constant)
        }
        _ => None,
    }
}

/// Returns the offset of a register in the context of a program.
fn register(name: &str) -> Option<i16> {
    let at = REGISTERS.iter().position(|register| *register == name)?;
    Some(8 * at as i16)
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    use std::sync::Arc;

    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::{instruction::interpreter::Machine, table::tests::records::event};

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn arguments_in_registers_and_constants_are_read_and_others_are_left_to_the_kernel() {
        let read = ["%di", "\\-1", "\\18446744073709551614", "$stack"].map(|fetch| value(fetch).unwrap());
        let [minus_one, minus_two] = [u64::MAX, u64::MAX - 1].map(FieldValue::Constant);
        assert_eq!(read, [FieldValue::Register(112), minus_one, minus_two, FieldValue::Register(152)]);
        for other in ["+8(%sp)", "@+16", "$comm", "%xmm0", "$retval", "\\x", "\\010", ""] {
            assert_eq!(value(other), None, "{other}");
        }
        let types = ["u8", "s16", "x32", "s64", "string", "b1@2/8", "u32[4]", "symbol", ""].map(is_number);
        assert_eq!(types, [true, true, true, true, false, false, false, false, false]);
    }

    #[cfg(target_arch = "x86_64")]
    const PROBE: &str = "name: p\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:s32 a;\toffset:16;\tsize:4;\tsigned:1;\n\tfield:s8 b;\toffset:20;\tsize:1;\tsigned:1;\n\n\
        print fmt: \"(%lx)\", REC->__probe_ip\n";

    /// Returns a program that takes a value when an event happens, and is preempted there.
    #[cfg(target_arch = "x86_64")]
    fn preempted(filter: &str) -> Code {
        let format = EventFormat::parse("uprobe", PROBE).unwrap();
        let filter = Filter::parse(filter, &format).unwrap();
        let fields = ["__probe_ip=%ip", "a=%di:s32", "b=\\-3:s8"].map(|argument| {
            let (name, fetch) = argument.split_once('=').unwrap();
            field(&format, name, value(fetch.split(':').next().unwrap()).unwrap()).unwrap()
        });
        let test = lower_filter(&filter, &event(&Arc::new(format)), PidNamespace::First).unwrap();
        let test = test.with_numbers(&|number| before_record(number, &fields));
        let mut code = Code::new();
        let [none, done] = std::array::from_fn(|_| code.label());
        begin(&mut code, &Selection::EVERYTHING, Some(test), [none, done]);
        code.jump(done);
        note_without_value(&mut code, none);
        code.here(done);
        code.exit(0);
        code
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn an_event_that_finds_no_value_is_counted_if_it_passes_the_filter() {
        const DI: usize = 14;
        // Values of `a`. As many as there are values pass the filter and take one.
        let happening = [5, -7, 5, 5, 5, 5, 5, 5, 5, -7, 5, -7, -7, 5];
        for (filter, missing) in [
            ("a > 3", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2]),
            ("!(a < 0) && b == -3", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2]),
            ("a < 10", [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6]),
            ("b > 0", [0; 14]),
        ] {
            let (code, mut machine) = (preempted(filter), Machine::new((8, 8)));
            let counts = happening.map(|a: i32| {
                let mut registers = [0u64; REGISTERS.len()];
                // The upper half of a register is not a part of the argument.
                registers[DI] = 1 << 40 | u64::from(a as u32);
                machine.run(&code, &registers.map(u64::to_ne_bytes).concat());
                machine.counters::<1>()[0]
            });
            assert_eq!(counts, missing, "{filter}");
        }
    }
}
