//! The programs of spans that are added up: one keeps the begin of each open span in a hash, and the other one finds it
//! there, takes it out, and adds the span to a table. No record leaves the kernel.

mod counts;
mod pairs;
mod system_call;

use perf_prof_events::{
    aggregate::{Definition, Plan},
    derive::Span,
    event::EventType,
};
use perf_prof_format::{
    abi::bpf::{
        BPF_ANY, BPF_FUNC_KTIME_GET_NS, BPF_FUNC_MAP_DELETE_ELEM, BPF_FUNC_MAP_LOOKUP_ELEM, BPF_FUNC_MAP_UPDATE_ELEM,
        BPF_NOEXIST,
    },
    tracefs::Filter,
};

pub use counts::SpanCounters;
pub use pairs::{PairPrograms, pair_programs};
pub use system_call::SystemCall;

use crate::{
    expression::{Number, Outcome, start},
    instruction::{Code, Condition, LONGEST, Label, MapUse, Operation, Place, Program, Register, Size},
    lower::{
        DURATION, GENERATION, KEPT, LoweredSpan, LoweredStep, OPEN_KEY, OTHER_KEY, Part, StepAction, Unsuited,
        lower_span,
    },
    select::Selection,
    table::{Counters, EXISTS, Rows, Shape, count_in, write_parts},
};

/// The register with the latest time at which a span of one of several keys began.
const BEGAN: Register = Register::R8;

/// Where programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// At the tracepoints of the events.
    Tracepoints,
    /// At the raw tracepoints of system calls.
    SystemCalls,
}

/// The programs of a span, and the layout of its maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanPrograms {
    /// The program for the event that begins spans.
    pub begin: Program,
    /// The program for the event that ends them; `None` if one event does both.
    pub end: Option<Program>,
    /// The size of the keys and of the values of the hash of open spans.
    pub open_bytes: (usize, usize),
    /// The layout of the table's rows.
    pub shape: Shape,
}

/// A span that is selected, and the type of its event.
#[derive(Clone, Copy, Debug)]
pub struct SelectedSpan<'a> {
    /// The span.
    pub span: &'a Span,
    /// The type of its event.
    pub event: &'a EventType,
    /// The filters of the events that begin and end it.
    pub filters: [Option<&'a Filter>; 2],
}

/// Returns the programs that add spans to a table. `plan` is the plan of the definition for the type of the span's event.
pub fn span_programs(
    span: SelectedSpan<'_>,
    (plan, definition): (&Plan, &Definition),
    at: Hook,
    selection: &Selection,
) -> Result<SpanPrograms, Unsuited> {
    let codes = span_codes(span, (plan, definition), at, selection)?;
    let program = |code: &Code| {
        let program = code.program();
        match program.instructions.len() {
            words if words > LONGEST => Err(Unsuited::Long(words)),
            _ => Ok(program),
        }
    };
    let end = codes.end.as_ref().map(program).transpose()?;
    Ok(SpanPrograms { begin: program(&codes.begin)?, end, open_bytes: codes.open_bytes, shape: codes.shape })
}

struct SpanCodes {
    begin: Code,
    end: Option<Code>,
    open_bytes: (usize, usize),
    shape: Shape,
}

fn span_codes(
    SelectedSpan { span, event, filters }: SelectedSpan<'_>,
    (plan, definition): (&Plan, &Definition),
    at: Hook,
    selection: &Selection,
) -> Result<SpanCodes, Unsuited> {
    selection.check()?;
    let lowered = lower_span(span, event, filters, (plan, definition), selection.ids)?;
    if at == Hook::SystemCalls {
        system_call::check(&lowered)?;
    }
    let rows = Rows::new(&lowered.table, definition.measure)?;
    let key_bytes = 8 * lowered.begin.iter().chain(&lowered.end).map(|step| step.keys[0].len()).max().unwrap_or(0);
    let kept_bytes: usize = lowered.kept.iter().map(Part::bytes).sum();
    let open_bytes = (key_bytes.max(8), (GENERATION - KEPT) as usize + 8 + kept_bytes);
    let writer = Writer {
        lowered: &lowered,
        rows: &rows,
        selection,
        value_bytes: open_bytes.1,
        at,
        is_source: span.spec().is_source(),
    };
    let begin = writer.program(&lowered.begin, (0, SystemCall::Enter));
    let end = (!lowered.end.is_empty()).then(|| writer.program(&lowered.end, (1, SystemCall::Exit)));
    Ok(SpanCodes { begin, end, open_bytes, shape: rows.shape })
}

/// Writes the programs of a span.
struct Writer<'a> {
    lowered: &'a LoweredSpan,
    rows: &'a Rows,
    selection: &'a Selection,
    /// The size of the value of an open span, in bytes.
    value_bytes: usize,
    at: Hook,
    /// Whether a key that begins again is no sign of a missing end, because some ends are not reported.
    is_source: bool,
}

impl Writer<'_> {
    /// Returns the program of the event that begins spans (`event` is 0) or ends them (1).
    fn program(&self, steps: &[LoweredStep], (event, call): (usize, SystemCall)) -> Code {
        let mut code = Code::new();
        let (own, done) = (code.label(), code.label());
        start(&mut code);
        if self.at == Hook::SystemCalls {
            call.write_record(&mut code);
        }
        self.selection.jump_unless(&mut code, done);
        if let Some(test) = &self.lowered.selected[event] {
            test.jump(&mut code, Outcome::Fails, done);
        }
        self.selection.own.jump(&mut code, own);
        for step in steps {
            let next = code.label();
            if let Some(when) = &step.when {
                when.jump(&mut code, Outcome::Fails, next);
            }
            write_key(&mut code, &step.keys[0], stack(OPEN_KEY));
            match step.action {
                StepAction::Begin => self.begin(&mut code, next),
                StepAction::End => self.end(&mut code, &step.keys[1..], next),
            }
            code.here(next);
        }
        code.jump(done);
        code.here(own);
        count_in(&mut code, Counters::OWN);
        code.here(done);
        code.exit(1);
        code
    }

    /// Writes the code that opens a span.
    fn begin(&self, code: &mut Code, next: Label) {
        code.call(BPF_FUNC_KTIME_GET_NS);
        code.store(Size::Double, stack(KEPT), Register::R0);
        code.map(Register::R1, MapUse::Counters);
        code.load(Size::Double, Register::R2, Register::R1.at(SpanCounters::GENERATION));
        code.store(Size::Double, stack(GENERATION), Register::R2);
        write_parts(code, &self.lowered.kept, stack(GENERATION + 8));
        count_in(code, SpanCounters::OPENED);
        if self.at == Hook::SystemCalls {
            SystemCall::jump_if_never_returns(code, next);
        }
        let (replace, no_room) = (code.label(), code.label());
        put(code, BPF_NOEXIST);
        code.jump_if(Condition::Equal, Register::R0, 0, next);
        code.copy(Register::R1, EXISTS);
        code.jump_if(Condition::Equal, Register::R0, Register::R1, replace);
        code.jump(no_room);
        code.here(replace);
        put(code, BPF_ANY);
        code.jump_if(Condition::NotEqual, Register::R0, 0, no_room);
        count_in(code, SpanCounters::DROPPED);
        if !self.is_source {
            count_in(code, SpanCounters::REPLACED);
        }
        code.jump(next);
        code.here(no_room);
        count_in(code, SpanCounters::DROPPED);
        count_in(code, SpanCounters::WITHOUT_ROOM);
    }

    /// Writes the code that ends the open span of the key on the stack, or that of one of the `others` if it began later.
    fn end(&self, code: &mut Code, others: &[Vec<Number>], next: Label) {
        let (no_begin, lost) = (code.label(), code.label());
        look_up(code, OPEN_KEY);
        if !others.is_empty() {
            choose(code, others);
            look_up(code, OPEN_KEY);
        }
        code.jump_if(Condition::Equal, Register::R0, 0, no_begin);
        for at in (0..self.value_bytes).step_by(8) {
            code.load(Size::Double, Register::R1, Register::R0.at(at as i16));
            code.store(Size::Double, stack(KEPT).after(at), Register::R1);
        }
        // If several CPUs end the span at the same time, only one of them can delete it.
        code.map(Register::R1, MapUse::Open);
        code.address(Register::R2, stack(OPEN_KEY));
        code.call(BPF_FUNC_MAP_DELETE_ELEM);
        code.jump_if(Condition::NotEqual, Register::R0, 0, no_begin);
        code.map(Register::R1, MapUse::Counters);
        code.load(Size::Double, Register::R2, Register::R1.at(SpanCounters::GENERATION));
        code.load(Size::Double, Register::R3, stack(GENERATION));
        code.jump_if(Condition::NotEqual, Register::R2, Register::R3, lost);
        count_in(code, SpanCounters::ENDED);
        self.add(code, next);
        code.jump(next);
        code.here(no_begin);
        count_in(code, SpanCounters::WITHOUT_BEGIN);
        code.jump(next);
        code.here(lost);
        count_in(code, SpanCounters::DROPPED);
        count_in(code, SpanCounters::LOST);
    }

    /// Writes the code that adds a span if it is long enough and passes the filters.
    fn add(&self, code: &mut Code, next: Label) {
        let is_later = code.label();
        code.call(BPF_FUNC_KTIME_GET_NS);
        code.load(Size::Double, Register::R1, stack(KEPT));
        code.jump_if(Condition::GreaterOrEqual, Register::R0, Register::R1, is_later);
        code.copy(Register::R0, Register::R1);
        code.here(is_later);
        code.operate(Operation::Subtract, Register::R0, Register::R1);
        code.store(Size::Double, stack(KEPT), Register::R0);
        if self.lowered.min != 0 {
            DURATION.load(code, Register::R1);
            code.jump_if_number(Condition::Less, Register::R1, (self.lowered.min, Register::R2), next);
        }
        for test in [&self.lowered.table.selected, &self.lowered.table.filter].into_iter().flatten() {
            test.jump(code, Outcome::Fails, next);
        }
        self.rows.add(code, &self.lowered.table);
    }
}

fn stack(offset: i16) -> Place {
    Register::Frame.at(offset)
}

/// Writes the code that puts a key on the stack.
fn write_key(code: &mut Code, key: &[Number], to: Place) {
    for (at, number) in key.iter().enumerate() {
        number.load(code, Register::R1);
        code.store(Size::Double, to.after(8 * at), Register::R1);
    }
    if key.is_empty() {
        code.store_number(Size::Double, to, 0);
    }
}

/// Writes the code that looks up an open span by the key at this place of the stack.
fn look_up(code: &mut Code, key: i16) {
    code.map(Register::R1, MapUse::Open);
    code.address(Register::R2, stack(key));
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
}

/// Writes the code that puts the open span on the stack into the hash.
fn put(code: &mut Code, flags: u64) {
    code.map(Register::R1, MapUse::Open);
    code.address(Register::R2, stack(OPEN_KEY));
    code.address(Register::R3, stack(KEPT));
    code.set(Register::R4, flags);
    code.call(BPF_FUNC_MAP_UPDATE_ELEM);
}

/// Writes the code that replaces the key on the stack by one of the `others` if its span began later. `R0` is the open span
/// of the key, or 0.
fn choose(code: &mut Code, others: &[Vec<Number>]) {
    let found = code.label();
    code.copy(BEGAN, 0);
    code.jump_if(Condition::Equal, Register::R0, 0, found);
    code.load(Size::Double, BEGAN, Register::R0.at(0));
    code.here(found);
    for other in others {
        let worse = code.label();
        write_key(code, other, stack(OTHER_KEY));
        look_up(code, OTHER_KEY);
        code.jump_if(Condition::Equal, Register::R0, 0, worse);
        code.load(Size::Double, Register::R1, Register::R0.at(0));
        code.jump_if(Condition::LessOrEqual, Register::R1, BEGAN, worse);
        code.copy(BEGAN, Register::R1);
        for at in 0..other.len().max(1) {
            code.load(Size::Double, Register::R1, stack(OTHER_KEY).after(8 * at));
            code.store(Size::Double, stack(OPEN_KEY).after(8 * at), Register::R1);
        }
        code.here(worse);
    }
}

#[cfg(test)]
mod tests;
