//! The program that fills a table, and the layout of the table's rows.
//!
//! The rows are in a hash. A distribution has a row for each key and range.

mod amount;
pub mod chain;
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

pub(crate) use crate::select::count_in;

use self::range::RangeOf;
use crate::{
    expression::{Outcome, start},
    instruction::{Code, Condition, LONGEST, Label, MapUse, Place, Program, Register, Size},
    lower::{Chains, Lowered, MAX_KEY, Part, Unsuited, lower},
    select::{Selection, look_up_only},
};

/// The register with the number that is added.
const ADDED: Register = Register::R8;
/// The register with the hash, and later with the address of a row's value.
const ROW: Register = Register::R7;
/// The result of an update if another CPU has added the row in between: `-EEXIST`.
pub(crate) const EXISTS: i32 = -17;

/// Returns the program that adds events to a table, and the layout of the table's rows. `plan` is the definition compiled
/// for the type of the event. `filter` is the filter of the selector.
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

fn table_code(
    (plan, definition): (&Plan, &Definition),
    event: &EventType,
    filter: Option<&Filter>,
    selection: &Selection,
) -> Result<(Code, Shape), Unsuited> {
    selection.check()?;
    let lowered = lower((plan, definition), event, filter, selection.ids)?;
    let mut rows = Rows::new(&lowered, definition.measure)?;
    if lowered.key.iter().filter(|part| **part == Part::Chain).count() > 1 {
        return Err(Unsuited::ChainTwice);
    }
    if rows.shape.has_chain() {
        rows.chains = Some(chain::check(selection.chains, selection.ids)?);
    }
    let mut code = Code::new();
    let (own, done) = (code.label(), code.label());
    start(&mut code);
    selection.jump_unless(&mut code, done);
    if let Some(test) = &lowered.selected {
        test.jump(&mut code, Outcome::Fails, done);
    }
    selection.own.jump(&mut code, own);
    if let Some(test) = &lowered.filter {
        test.jump(&mut code, Outcome::Fails, done);
    }
    rows.add(&mut code, &lowered);
    code.jump(done);
    code.here(own);
    count_in(&mut code, Counters::OWN);
    code.here(done);
    // A result of 0 would keep the event from other users of the tracepoint.
    code.exit(1);
    Ok((code, rows.shape))
}

/// The rows to which a program adds.
pub(crate) struct Rows {
    pub shape: Shape,
    range: Option<RangeOf>,
    /// The call chains in keys; `None` if keys contain none.
    chains: Option<Chains>,
}

impl Rows {
    pub fn new(lowered: &Lowered, measure: Measure) -> Result<Rows, Unsuited> {
        let range = match measure {
            Measure::Sum => None,
            Measure::Distribution(buckets) => Some(RangeOf::new(buckets)?),
        };
        let shape = Shape::new(lowered, range.is_some());
        let rows = Rows { shape, range, chains: None };
        if rows.shape.key_bytes > MAX_KEY { Err(Unsuited::LongKey(rows.shape.key_bytes)) } else { Ok(rows) }
    }

    /// Writes code that adds an event. If its row is new and the table is full, the code counts the event as refused.
    pub fn add(&self, code: &mut Code, lowered: &Lowered) {
        let Rows { shape, range, chains } = self;
        let (refused, done) = (code.label(), code.label());
        match lowered.added {
            Some(added) => added.load(code, ADDED),
            None => code.copy(ADDED, 1),
        }
        if let (Some(chains), Some(id)) = (*chains, shape.chain()) {
            chain::write(code, chains, id, refused);
        }
        write_parts(code, &lowered.key, shape.key());
        if shape.has_no_key() {
            // A key without parts is 8 bytes of zeros: the keys of a hash cannot have 0 bytes.
            code.store_number(Size::Double, shape.key(), 0);
        }
        if let Some(range) = range {
            range.write(code, ADDED, shape.numbers());
            code.store(Size::Double, shape.range(), Register::R0);
        }
        count(code, shape, refused, done);
        code.jump(done);
        code.here(refused);
        count_in(code, Counters::REFUSED);
        amount::add_refused(code, shape, Register::R1.at(Counters::REFUSED_SUM));
        code.here(done);
    }
}

/// Writes code that puts the parts of a key on the stack, one after another. The id of a call chain is there already.
pub(crate) fn write_parts(code: &mut Code, parts: &[Part], to: Place) {
    let mut at = to;
    for part in parts {
        match part {
            Part::Number(number) | Part::Named { number, .. } => {
                number.load(code, Register::R1);
                code.store(Size::Double, at, Register::R1);
            }
            Part::Text(text) | Part::Bytes { from: text, .. } => text.copy(code, at),
            Part::Constant(_) | Part::Chain => {}
        }
        at = at.after(part.bytes());
    }
}

/// Writes code that adds the number to the row of the key. Adds a row if the key has none.
fn count(code: &mut Code, shape: &Shape, refused: Label, done: Label) {
    let (add, add_after_all) = (code.label(), code.label());
    look_up_only(code, MapUse::Tables);
    code.jump_if(Condition::Equal, Register::R0, 0, refused);
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
    code.jump_if(Condition::NotEqual, Register::R0, 0, refused);
    count_in(code, Counters::INSERTED);
    code.jump(done);
    code.here(add_after_all);
    look_up_row(code, shape);
    code.jump_if(Condition::Equal, Register::R0, 0, refused);
    code.here(add);
    code.copy(ROW, Register::R0);
    amount::add(code, shape, refused);
}

fn look_up_row(code: &mut Code, shape: &Shape) {
    code.copy(Register::R1, ROW);
    code.address(Register::R2, shape.key());
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
}

#[cfg(test)]
pub(crate) mod tests;
