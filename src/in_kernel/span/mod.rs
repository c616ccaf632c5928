//! The programs of spans that are added up. The program of the begin keeps each open span in a hash. The program of the end
//! finds the span, removes it from the hash, and adds it to a table. No record is written.
//!
//! Programs at tracepoints miss some events, and the kernel reports this too late to tell which spans are right. So each
//! program has a [witness](witness_program). The programs of system calls miss no events.

mod chain;
mod counts;
mod in_place;
mod pairs;
mod system_call;
mod tasks;
mod witness;

use std::sync::Arc;

use perf_prof_events::{
    aggregate::{Definition, Plan},
    derive::Span,
    event::{Context, EventType},
};
use perf_prof_format::{
    abi::bpf::{
        BPF_ANY, BPF_FUNC_KTIME_GET_NS, BPF_FUNC_MAP_DELETE_ELEM, BPF_FUNC_MAP_LOOKUP_ELEM, BPF_FUNC_MAP_UPDATE_ELEM,
        BPF_NOEXIST,
    },
    tracefs::Filter,
};

pub use chain::GAP_BYTES;
pub use counts::SpanCounters;
pub use pairs::{KEPT_STRING_BYTES, KernelFrames, PairPrograms, SelectedCalls, pair_programs};
pub use system_call::SystemCall;
pub use tasks::SpanTasks;
pub use witness::{MARKS_BYTES, MOST_INPUTS, witness_program};

use crate::{
    expression::{Number, Outcome, start},
    instruction::{Code, Condition, LONGEST, Label, MapUse, Operation, Place, Program, Register, Size},
    lower::{
        DURATION, GENERATION, KEPT, LoweredInput, LoweredSpan, LoweredStep, NOW, OPEN_KEY, OTHER_KEY, OwnEvents, Part,
        PidNamespace, StepAction, TaskUse, Unsuited, lower_span,
    },
    select::{Own, Selection},
    table::{Counters, EXISTS, Rows, Shape, count_in, write_parts},
};

/// The register with the start time of the newest span, if a span can have one of several keys.
const BEGAN: Register = Register::R8;

/// Where programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// To the tracepoints of the events.
    Tracepoints,
    /// To the raw tracepoints of system calls.
    SystemCalls,
}

/// What happens to an open span when its key begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Dropped,
    Stays,
}

/// The programs of a span, and the layout of its maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanPrograms {
    /// The programs, each with the index of its event in the span.
    pub programs: Vec<(usize, Program)>,
    /// The sizes of keys and of values in the hash of open spans.
    pub open_bytes: (usize, usize),
    /// The layout of the table's rows.
    pub shape: Shape,
    /// Whether each task has an entry in the hash of open spans, even while no span is open.
    pub are_of_tasks: bool,
}

/// A span that a declaration selects.
#[derive(Clone, Copy)]
pub struct SelectedSpan<'a> {
    /// The span.
    pub span: &'a Span,
    /// The event type of the span.
    pub event: &'a EventType,
    /// The events of the span.
    pub inputs: &'a [SelectedInput],
    /// The tasks whose spans are added.
    pub tasks: &'a SpanTasks,
    /// Knows the names of addresses. `None` if the run has no context.
    pub context: Option<&'a Arc<Context>>,
}

/// Which samples of an event count.
#[derive(Clone, Debug)]
pub struct SelectedInput {
    /// Samples that pass this filter.
    pub filter: Option<Filter>,
    /// Samples of these tasks and CPUs.
    pub selection: Selection,
}

/// Returns the programs that add spans to a table. `plan` is the definition compiled for the span's event type.
pub fn span_programs(
    span: SelectedSpan<'_>,
    (plan, definition): (&Plan, &Definition),
    at: Hook,
) -> Result<SpanPrograms, Unsuited> {
    let codes = span_codes(span, (plan, definition), at)?;
    let program = |(input, code): &(usize, Code)| {
        let program = code.program();
        match program.instructions.len() {
            words if words > LONGEST => Err(Unsuited::Long(words)),
            _ => Ok((*input, program)),
        }
    };
    let programs = codes.codes.iter().map(program).collect::<Result<_, _>>()?;
    let SpanCodes { open_bytes, shape, are_of_tasks, .. } = codes;
    Ok(SpanPrograms { programs, open_bytes, shape, are_of_tasks })
}

struct SpanCodes {
    codes: Vec<(usize, Code)>,
    open_bytes: (usize, usize),
    shape: Shape,
    are_of_tasks: bool,
}

fn span_codes(
    SelectedSpan { span, event, inputs, tasks, context }: SelectedSpan<'_>,
    (plan, definition): (&Plan, &Definition),
    at: Hook,
) -> Result<SpanCodes, Unsuited> {
    inputs.iter().try_for_each(|input| input.selection.check())?;
    let ids = inputs.first().map_or(PidNamespace::First, |input| input.selection.ids);
    let task = match (tasks.are_all(), tasks.are_selected) {
        (true, _) => TaskUse::Unused,
        (false, true) => TaskUse::Ids,
        (false, false) => TaskUse::Own,
    };
    let filters: Vec<Option<&Filter>> = inputs.iter().map(|input| input.filter.as_ref()).collect();
    let lowered = lower_span((span, event, context), &filters, (plan, definition), (ids, task))?;
    if at == Hook::SystemCalls {
        system_call::check(&lowered)?;
    }
    let rows = Rows::new(&lowered.table, definition.measure)?;
    let steps = || lowered.inputs.iter().flat_map(|input| &input.steps);
    let key_bytes = 8 * steps().map(|step| step.keys[0].len()).max().unwrap_or(0).max(1);
    let kept_bytes: usize = lowered.kept.iter().map(Part::bytes).sum();
    let are_of_tasks = steps().any(|step| step.action.is_of_scheduler());
    let states = steps().any(|step| step.action == StepAction::DiscardWokenAgain).then_some(16 + kept_bytes);
    let state_bytes = if states.is_some() { in_place::STATE_BYTES } else { 0 };
    let open_bytes = (key_bytes, 16 + kept_bytes + state_bytes);
    let writer = Writer {
        lowered: &lowered,
        rows: &rows,
        tasks,
        sizes: open_bytes,
        states,
        at,
        is_source: span.spec().is_source(),
    };
    let code = |of: &LoweredInput| {
        let mut selection = inputs.get(of.input).ok_or(Unsuited::NoTracepoint)?.selection.clone();
        if lowered.own == OwnEvents::Counted {
            selection.own = Own::NOTHING;
        }
        Ok((of.input, writer.program(of, &selection, are_of_tasks)))
    };
    let codes = lowered.inputs.iter().map(code).collect::<Result<_, _>>()?;
    Ok(SpanCodes { codes, open_bytes, shape: rows.shape, are_of_tasks })
}

/// Writes the programs of a span.
struct Writer<'a> {
    lowered: &'a LoweredSpan,
    rows: &'a Rows,
    tasks: &'a SpanTasks,
    /// The sizes of the key and of the value of an open span.
    sizes: (usize, usize),
    /// The offset of a task's state in the value of an open span. `None` if wakeups are not followed.
    states: Option<usize>,
    at: Hook,
    /// Whether the span is one of a built-in source, such as `offcpu`. Some ends of a source's spans have no event, so a
    /// key that begins again does not show that an end is missing.
    is_source: bool,
}

impl Writer<'_> {
    /// Returns the program of an event. With `are_of_tasks`, it changes the entries of tasks in place.
    fn program(&self, of: &LoweredInput, selection: &Selection, are_of_tasks: bool) -> Code {
        let mut code = Code::new();
        let (own, done) = (code.label(), code.label());
        start(&mut code);
        match self.at {
            Hook::SystemCalls => SystemCall::of_input(of.input).write_record(&mut code),
            Hook::Tracepoints => witness::mark(&mut code, of.input),
        }
        selection.jump_unless(&mut code, done);
        if let Some(test) = &of.selected {
            test.jump(&mut code, Outcome::Fails, done);
        }
        selection.own.jump(&mut code, own);
        if self.at == Hook::SystemCalls {
            SystemCall::of_input(of.input).mark_compat(&mut code);
        }
        code.call(BPF_FUNC_KTIME_GET_NS);
        code.store(Size::Double, stack(NOW), Register::R0);
        if let Some(switch) = of.switch {
            chain::follow(&mut code, switch, self.tasks);
        }
        if are_of_tasks {
            self.in_place(&mut code, &of.steps);
        } else {
            of.steps.iter().for_each(|step| self.step(&mut code, step));
        }
        code.jump(done);
        code.here(own);
        count_in(&mut code, Counters::OWN);
        code.here(done);
        code.exit(1);
        code
    }

    fn step(&self, code: &mut Code, step: &LoweredStep) {
        let next = code.label();
        if let Some(when) = &step.when {
            when.jump(code, Outcome::Fails, next);
        }
        self.write_key(code, &step.keys[0], stack(OPEN_KEY));
        match step.action {
            StepAction::Begin => self.begin(code, Open::Dropped, next),
            StepAction::BeginUnlessOpen => self.begin(code, Open::Stays, next),
            StepAction::End => self.end(code, &step.keys[1..], next),
            StepAction::Discard => discard(code, next),
            // Not reached: `in_place` handles what the scheduler does with a task.
            StepAction::DiscardWokenAgain | StepAction::Leaves(_) | StepAction::Comes | StepAction::Wakes => {}
        }
        code.here(next);
    }

    /// Writes code that opens a span. `open` says what happens to an open span with the same key.
    fn begin(&self, code: &mut Code, open: Open, next: Label) {
        if open == Open::Stays {
            let is_new = code.label();
            look_up(code, OPEN_KEY);
            code.jump_if(Condition::Equal, Register::R0, 0, is_new);
            jump_if_fresh(code, Register::R0, next);
            code.here(is_new);
        }
        self.write_begin(code, stack(KEPT));
        count_in(code, SpanCounters::OPENED);
        if self.at == Hook::SystemCalls {
            SystemCall::jump_if_never_returns(code, next);
        }
        let (replace, no_room, is_lost, dropped) = (code.label(), code.label(), code.label(), code.label());
        put(code, BPF_NOEXIST);
        code.jump_if(Condition::Equal, Register::R0, 0, next);
        code.copy(Register::R1, EXISTS);
        code.jump_if(Condition::NotEqual, Register::R0, Register::R1, no_room);
        look_up(code, OPEN_KEY);
        code.jump_if(Condition::Equal, Register::R0, 0, replace);
        jump_if_fresh(code, Register::R0, replace);
        put(code, BPF_ANY);
        code.jump_if(Condition::Equal, Register::R0, 0, is_lost);
        code.jump(no_room);
        code.here(is_lost);
        count_in(code, SpanCounters::LOST);
        code.jump(dropped);
        code.here(replace);
        put(code, BPF_ANY);
        code.jump_if(Condition::NotEqual, Register::R0, 0, no_room);
        if !self.is_source {
            count_in(code, SpanCounters::REPLACED);
        }
        code.here(dropped);
        count_in(code, SpanCounters::DROPPED);
        code.jump(next);
        code.here(no_room);
        count_in(code, SpanCounters::DROPPED);
        count_in(code, SpanCounters::WITHOUT_ROOM);
    }

    /// Writes code that stores the time, the generation and the kept values of the event that begins a span.
    fn write_begin(&self, code: &mut Code, to: Place) {
        code.load(Size::Double, Register::R1, stack(NOW));
        code.store(Size::Double, to, Register::R1);
        code.map(Register::R1, MapUse::Counters);
        code.load(Size::Double, Register::R2, Register::R1.at(SpanCounters::GENERATION));
        code.store(Size::Double, to.after(8), Register::R2);
        write_parts(code, &self.lowered.kept, to.after(16));
    }

    /// Writes code that ends the open span with the key on the stack. If a span with one of the keys in `others` began
    /// later, ends this span instead.
    fn end(&self, code: &mut Code, others: &[Vec<Number>], next: Label) {
        let no_begin = code.label();
        look_up(code, OPEN_KEY);
        if !others.is_empty() {
            self.choose(code, others);
            look_up(code, OPEN_KEY);
        }
        code.jump_if(Condition::Equal, Register::R0, 0, no_begin);
        self.take(code, Register::R0);
        // If several CPUs end the span at the same time, only one of them can delete it.
        code.map(Register::R1, MapUse::Open);
        code.address(Register::R2, stack(OPEN_KEY));
        code.call(BPF_FUNC_MAP_DELETE_ELEM);
        code.jump_if(Condition::NotEqual, Register::R0, 0, no_begin);
        self.add_taken(code, next);
        code.here(no_begin);
        count_in(code, SpanCounters::WITHOUT_BEGIN);
    }

    /// Writes code that copies an open span to the stack. `from` contains the address of the span.
    fn take(&self, code: &mut Code, from: Register) {
        for at in (0..self.sizes.1).step_by(8) {
            code.load(Size::Double, Register::R1, from.at(at as i16));
            code.store(Size::Double, stack(KEPT).after(at), Register::R1);
        }
    }

    /// Writes code that counts the span on the stack as ended, adds it to the table, and jumps to `next`.
    fn add_taken(&self, code: &mut Code, next: Label) {
        let lost = code.label();
        code.map(Register::R1, MapUse::Counters);
        code.load(Size::Double, Register::R2, Register::R1.at(SpanCounters::GENERATION));
        code.load(Size::Double, Register::R3, stack(GENERATION));
        code.jump_if(Condition::NotEqual, Register::R2, Register::R3, lost);
        count_in(code, SpanCounters::ENDED);
        self.add(code, next);
        code.jump(next);
        code.here(lost);
        count_in(code, SpanCounters::DROPPED);
        count_in(code, SpanCounters::LOST);
        code.jump(next);
    }

    /// Writes code that adds a span if it is long enough and passes the filters.
    fn add(&self, code: &mut Code, next: Label) {
        let is_later = code.label();
        code.load(Size::Double, Register::R0, stack(NOW));
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
        if let Some(task) = self.lowered.task {
            self.tasks.jump_unless(code, task, next);
        }
        for test in [&self.lowered.table.selected, &self.lowered.table.filter].into_iter().flatten() {
            test.jump(code, Outcome::Fails, next);
        }
        self.rows.add(code, &self.lowered.table);
    }
}

impl Writer<'_> {
    /// Writes code that puts a key on the stack.
    fn write_key(&self, code: &mut Code, key: &[Number], to: Place) {
        for (at, number) in key.iter().enumerate() {
            number.load(code, Register::R1);
            code.store(Size::Double, to.after(8 * at), Register::R1);
        }
        // Missing parts are -1, so a shorter key is never equal to a longer one.
        for at in key.len()..self.sizes.0 / 8 {
            code.store_number(Size::Double, to.after(8 * at), -1);
        }
    }

    /// Writes code that replaces the key on the stack if a span with another key began later. `R0` is the result of looking
    /// up the key on the stack.
    fn choose(&self, code: &mut Code, others: &[Vec<Number>]) {
        let found = code.label();
        code.copy(BEGAN, 0);
        code.jump_if(Condition::Equal, Register::R0, 0, found);
        code.load(Size::Double, BEGAN, Register::R0.at(0));
        code.here(found);
        for other in others {
            let worse = code.label();
            self.write_key(code, other, stack(OTHER_KEY));
            look_up(code, OTHER_KEY);
            code.jump_if(Condition::Equal, Register::R0, 0, worse);
            code.load(Size::Double, Register::R1, Register::R0.at(0));
            code.jump_if(Condition::LessOrEqual, Register::R1, BEGAN, worse);
            code.copy(BEGAN, Register::R1);
            for at in 0..self.sizes.0 / 8 {
                code.load(Size::Double, Register::R1, stack(OTHER_KEY).after(8 * at));
                code.store(Size::Double, stack(OPEN_KEY).after(8 * at), Register::R1);
            }
            code.here(worse);
        }
    }
}

fn stack(offset: i16) -> Place {
    Register::Frame.at(offset)
}

/// Writes code that looks up an open span. `key` is the place of its key on the stack.
fn look_up(code: &mut Code, key: i16) {
    code.map(Register::R1, MapUse::Open);
    code.address(Register::R2, stack(key));
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
}

/// Writes code that puts the open span on the stack into the hash.
fn put(code: &mut Code, flags: u64) {
    code.map(Register::R1, MapUse::Open);
    code.address(Register::R2, stack(OPEN_KEY));
    code.address(Register::R3, stack(KEPT));
    code.set(Register::R4, flags);
    code.call(BPF_FUNC_MAP_UPDATE_ELEM);
}

/// Writes code that jumps to `to` unless events were lost since a span began. `span` contains the span's address. Changes
/// `R1` and `R2`.
fn jump_if_fresh(code: &mut Code, span: Register, to: Label) {
    code.map(Register::R1, MapUse::Counters);
    code.load(Size::Double, Register::R2, Register::R1.at(SpanCounters::GENERATION));
    code.load(Size::Double, Register::R1, span.at(8));
    code.jump_if(Condition::Equal, Register::R1, Register::R2, to);
}

/// Writes code that drops the open span with the key on the stack.
fn discard(code: &mut Code, next: Label) {
    code.map(Register::R1, MapUse::Open);
    code.address(Register::R2, stack(OPEN_KEY));
    code.call(BPF_FUNC_MAP_DELETE_ELEM);
    code.jump_if(Condition::NotEqual, Register::R0, 0, next);
    count_in(code, SpanCounters::DROPPED);
}

#[cfg(test)]
mod tests;
