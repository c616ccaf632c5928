//! The program of a table, and the layout of its rows.
//!
//! The rows are in a hash. For a distribution there is a row for each key and range.

mod amount;
mod range;
mod shape;

use perf_prof_events::{
    aggregate::{Definition, Measure, Plan},
    event::EventType,
};
use perf_prof_format::{
    abi::bpf::{BPF_FUNC_KTIME_GET_NS, BPF_FUNC_MAP_LOOKUP_ELEM, BPF_FUNC_MAP_UPDATE_ELEM, BPF_NOEXIST},
    tracefs::Filter,
};

pub use shape::{Counters, Row, Shape};

use self::range::RangeOf;
use crate::{
    expression::{Outcome, start},
    instruction::{Code, Condition, Instruction, LONGEST, Label, MapUse, Program, Register, Size},
    lower::{Lowered, MAX_KEY, Part, Unsuited, lower},
    select::{SCRATCH, Selection},
};

/// The register with the number that is added.
const ADDED: Register = Register::R8;
/// The register with the hash, and then with the value of a row.
const ROW: Register = Register::R7;
/// What the kernel returns if another CPU has added the row meanwhile: `-EEXIST`.
const EXISTS: i32 = -17;

/// Returns the program that adds events to a table, and the layout of the table's rows. `plan` is the definition for the
/// type of the event, and `filter` is the filter of the selector.
pub fn table_program(
    plan: &Plan,
    definition: &Definition,
    event: &EventType,
    filter: Option<&Filter>,
    selection: &Selection,
) -> Result<(Program, Shape), Unsuited> {
    let (code, shape) = table_code((plan, definition), event, filter, selection)?;
    let program = code.program();
    match program.instructions.len() {
        words if words > LONGEST => Err(Unsuited::Long(words)),
        _ => Ok((program, shape)),
    }
}

/// The labels to which all parts of the program jump.
struct Ends {
    /// The event is perf-prof's own.
    own: Label,
    /// There is no room for the row.
    refused: Label,
    /// Nothing remains to be done.
    done: Label,
}

fn table_code(
    (plan, definition): (&Plan, &Definition),
    event: &EventType,
    filter: Option<&Filter>,
    selection: &Selection,
) -> Result<(Code, Shape), Unsuited> {
    selection.check()?;
    let lowered = lower((plan, definition), event, filter, selection.ids)?;
    let range = match definition.measure {
        Measure::Sum => None,
        Measure::Distribution(buckets) => Some(RangeOf::new(buckets)?),
    };
    let shape = Shape::new(&lowered, range.is_some());
    if shape.key_bytes > MAX_KEY {
        return Err(Unsuited::LongKey(shape.key_bytes));
    }
    let mut code = Code::new();
    let ends = Ends { own: code.label(), refused: code.label(), done: code.label() };
    start(&mut code);
    select(&mut code, &lowered, selection, &ends);
    if let Some(added) = lowered.added {
        added.load(&mut code, ADDED);
    } else {
        code.copy(ADDED, 1);
    }
    key(&mut code, &lowered.key, &shape);
    if let Some(range) = range {
        range.write(&mut code, ADDED, shape.numbers());
        code.store(Size::Double, shape.range(), Register::R0);
    }
    count(&mut code, &shape, &ends);
    finish(&mut code, &shape, &ends);
    Ok((code, shape))
}

/// Writes the code that leaves out what is not selected, and what the filters do not let pass.
fn select(code: &mut Code, lowered: &Lowered, selection: &Selection, ends: &Ends) {
    selection.jump_unless(code, ends.done);
    if let Some(test) = &lowered.selected {
        test.jump(code, Outcome::Fails, ends.done);
    }
    selection.own.jump(code, ends.own);
    if let Some(test) = &lowered.filter {
        test.jump(code, Outcome::Fails, ends.done);
    }
}

/// Writes the code that puts the key on the stack.
fn key(code: &mut Code, parts: &[Part], shape: &Shape) {
    let mut at = shape.key();
    for part in parts {
        match part {
            Part::Number(number) => {
                number.load(code, Register::R1);
                code.store(Size::Double, at, Register::R1);
            }
            Part::Text(text) | Part::Bytes { from: text, .. } => text.copy(code, at),
            Part::Constant(_) => {}
        }
        at = at.base.at(at.offset + part.bytes() as i16);
    }
    if shape.has_no_key() {
        // A hash has no keys without bytes.
        code.store_number(Size::Double, at, 0);
    }
}

/// Writes the code that adds to the row of the key, or adds the row.
fn count(code: &mut Code, shape: &Shape, ends: &Ends) {
    let (add, add_after_all) = (code.label(), code.label());
    code.store_number(Size::Word, SCRATCH, 0);
    code.map(Register::R1, MapUse::Tables);
    code.address(Register::R2, SCRATCH);
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
    code.jump_if(Condition::Equal, Register::R0, 0, ends.refused);
    code.copy(ROW, Register::R0);
    look_up_row(code, shape);
    code.jump_if(Condition::NotEqual, Register::R0, 0, add);
    code.call(BPF_FUNC_KTIME_GET_NS);
    amount::start(code, shape);
    code.copy(Register::R1, ROW);
    code.address(Register::R2, shape.key());
    code.address(Register::R3, shape.value());
    code.set(Register::R4, BPF_NOEXIST);
    code.call(BPF_FUNC_MAP_UPDATE_ELEM);
    code.copy(Register::R1, EXISTS);
    code.jump_if(Condition::Equal, Register::R0, Register::R1, add_after_all);
    code.jump_if(Condition::NotEqual, Register::R0, 0, ends.refused);
    count_in(code, Counters::INSERTED);
    code.jump(ends.done);
    code.here(add_after_all);
    look_up_row(code, shape);
    code.jump_if(Condition::Equal, Register::R0, 0, ends.refused);
    code.here(add);
    code.copy(ROW, Register::R0);
    amount::add(code, shape, ends.refused);
}

fn look_up_row(code: &mut Code, shape: &Shape) {
    code.copy(Register::R1, ROW);
    code.address(Register::R2, shape.key());
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
}

/// Writes the ends of the program. It always returns 1: with 0, nobody would get a record of the event.
fn finish(code: &mut Code, shape: &Shape, ends: &Ends) {
    code.jump(ends.done);
    code.here(ends.refused);
    count_in(code, Counters::REFUSED);
    amount::add_refused(code, shape, Register::R1.at(Counters::REFUSED_SUM));
    code.jump(ends.done);
    code.here(ends.own);
    count_in(code, Counters::OWN);
    code.here(ends.done);
    code.exit(1);
}

/// Adds 1 to the counter at this offset. `R1` is then the address of the counters.
fn count_in(code: &mut Code, offset: i16) {
    code.map(Register::R1, MapUse::Counters);
    code.copy(Register::R2, 1);
    code.push(Instruction::AtomicAdd(Register::R1.at(offset), Register::R2));
}

#[cfg(test)]
mod tests;
